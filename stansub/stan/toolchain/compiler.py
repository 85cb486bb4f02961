"""The compiler and make of this machine, with flags for make: what compiled programs depend on besides code."""

from __future__ import annotations

import functools
import os
import platform
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from stansub.errors import RunError
from stansub.stan.toolchain.download import bridgestan_version

# Variables of make and of the Makefile; environment modules on clusters use INCLUDE and LIB for other purposes.
_MAKES_OWN = ("MAKEFLAGS", "GNUMAKEFLAGS", "MAKEFILES", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS")
_MAKEFILES_OWN = ("BS_ROOT", "BRIDGE_O", "BRIDGESTAN_AD_HESSIAN", "INCLUDE", "LIB", "SRC", "STANC", "STANCFLAGS")
_NOT_FOR_MAKE = frozenset((*_MAKES_OWN, *_MAKEFILES_OWN, "USER_HEADER", "USER_INCLUDE"))
INSTALL = (
    "install a C++17 compiler and make (Debian, Ubuntu: apt install g++ make; Fedora: dnf install gcc-c++ make; "
    "macOS: xcode-select --install)"
)


def environment(scratch: Path) -> dict[str, str]:
    """Return the environment for make: English messages, and no variables that the Makefile would read as its own."""
    ours = {key: value for key, value in os.environ.items() if key not in _NOT_FOR_MAKE}
    return ours | {"LC_ALL": "C", "TMPDIR": str(scratch), **_flags()}


def compiler() -> str:
    """Return the command of the C++ compiler."""
    return os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")


def make() -> str:
    """Return the command of make."""
    return os.environ.get("MAKE") or "make"


def is_clang() -> bool:
    """Return whether the compiler is clang."""
    return "clang" in first_line(compiler())


def make_variables() -> tuple[str, ...]:
    """Make variables of every compilation. TARGET_ARCH is make's own variable for what its rules for C++ add."""
    native = "-mcpu=native" if (sys.platform, platform.machine()) == ("darwin", "arm64") else "-march=native"
    target = os.environ.get("TARGET_ARCH", native)
    return ("STAN_THREADS=true", "O=3", f"TARGET_ARCH={target}", f"CXX={compiler()}")


def _flags() -> dict[str, str]:
    """Return the flags for any home's Makefile: those of the environment, and our own.

    Eigen's assertions are off, because a failed one ends the process; Stan checks sizes and indices itself and throws
    an exception. g++ collects no garbage below a gigabyte, which saves a sixth of its time for 6 % more memory.
    """
    collect = "" if is_clang() else "--param ggc-min-heapsize=1000000"
    ours = {"CPPFLAGS": "-DEIGEN_NO_DEBUG", "CXXFLAGS": collect}
    together = {name: f"{os.environ.get(name, '')} {flags}".strip() for name, flags in ours.items()}
    return {name: flags for name, flags in together.items() if flags}


def surroundings() -> tuple[str, ...]:
    """Return what else a library depends on: compiler version, processor, flags in the environment, package version."""
    flags = [*_flags().values(), *(os.environ.get(name, "") for name in ("LDFLAGS", "LDLIBS"))]
    return (first_line(compiler()), *processor(), bridgestan_version(), *flags)


@functools.cache
def first_line(program: str) -> str:
    """Return a program's answer to ``--version``; empty if it cannot be run."""
    try:
        done = subprocess.run([*shlex.split(program), "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.partition("\n")[0].strip()


@functools.cache
def processor() -> tuple[str, str]:
    """Return name and instruction sets of the processor, for which ``-march=native`` compiles."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").partition("\n\n")[0].splitlines()
    except OSError:
        return platform.processor() or platform.machine(), ""
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    return fields.get("model name", platform.machine()), fields.get("flags", fields.get("Features", ""))


def require_tools() -> None:
    """Raise RunError, with what to install, unless there are a compiler and make."""
    for what, program in (("C++ compiler", compiler()), ("make", make())):
        if shutil.which(shlex.split(program)[0]) is None:
            raise RunError(f"no {what} found ({program} is not on the PATH): {INSTALL}")
