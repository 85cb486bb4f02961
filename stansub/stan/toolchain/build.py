"""Compilation of Stan code to a shared library, cached."""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from stansub.errors import EndedError, RunError
from stansub.progress import Progress, as_progress
from stansub.stan.toolchain import processes
from stansub.stan.toolchain.bridgestan_home import Home, find_home
from stansub.stan.toolchain.cache import (
    FOLDERS,
    cache_dir,
    cache_errors,
    is_damaged,
    is_intact,
    is_ours,
    keep,
    make_folder,
)
from stansub.stan.toolchain.compiler import environment, is_clang, make, make_variables, require_tools, surroundings
from stansub.stan.toolchain.headers import Headers
from stansub.stan.toolchain.stanc import STANC_ERROR, explain

_RELEVANT = re.compile(
    r"error:|unknown option|undefined reference|no space left|killed|not found|no such file|\*\*\*", re.IGNORECASE
)
_WAIT_SECONDS = 0.2
# Number of compiled programs after which headers are precompiled (more than in a first run, because it takes the time
# that three programs save), and free bytes of the disk that it needs.
_PROGRAMS_FIRST, _HEADER_ROOM = 4, 2e9
_PRECOMPILING = "Precompiling Stan's headers (about 20 s, once; halves later compilations)"
# Maximum characters of a program's name in the progress display.
_LONGEST_NAME = 16


def compile_library(
    code: str,
    *,
    name: str,
    suffix: str = "",
    goal: str = "",
    user_header: Path | None = None,
    stanc_args: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
    stop: threading.Event | None = None,
) -> Path:
    """Return the shared library with BridgeStan's C API for a Stan program, compiled unless cached.

    Libraries are named by a hash of everything they depend on, including the processor for which they are compiled. A
    damaged library is compiled again. If several processes request the same library at once, one compiles and the
    others wait. Whatever ends the wait, such as an interrupt, also ends the compiler and leaves no files behind.

    Raises `InputError` if the cache directory cannot be used; `RunError` if there is no compiler, the compilation fails
    or is stopped, or the disk is full.

    Parameters
    ----------
    name : str
        A readable name of the user's program for messages and the file; the C++ class becomes ``<name>_model`` unless
        `stanc_args` has a ``--name``.
    suffix : str
        Suffix of the name of a program that stansub derives from the user's.
    goal : str
        Purpose of such a program, to follow "also" in ``progress``.
    user_header : Path, optional
        C++ definitions of functions that the program only declares (needs ``--allow-undefined``).
    stanc_args : sequence of str
        Further options of stanc.
    progress : callable, optional
        Called with a line of text before slow work; the time limit of a `Progress` ends it.
    stop : Event, optional
        Set by another thread if the library is no longer needed.

    Returns
    -------
    Path
        The library.
    """
    log, title, name = as_progress(progress), _title(name, goal), name + suffix

    def check() -> None:
        if stop is not None and stop.is_set():
            raise RunError(f"the compilation of {name} was stopped")
        log.check()

    wanted = _Wanted.of(code, name, user_header, stanc_args)
    cache, library = wanted.cache, wanted.library
    if is_intact(library):
        return library

    require_tools()
    with cache_errors(cache):
        for folder in FOLDERS:
            make_folder(cache / folder)
        waiting = f"Waiting for another process to compile {name}"
        with _locked(cache / "locks" / wanted.key, lambda: log(waiting), check):
            if is_intact(library):
                return library
            again = f"The compiled {name} in the cache is damaged: compiling it again"
            stage = again if is_damaged(library) else title

            def begin() -> None:
                log(stage, remedy="compile the program first with `stansub check`")

            begin()
            remove_abandoned(cache)
            with _scratch(cache / "build" / wanted.key) as build:
                (build / f"{wanted.stem}.stan").write_text(code, encoding="utf-8")
                keep(_Build(wanted, build, name, log, begin, check).library(), library)
    return library


def _title(name: str, goal: str) -> str:
    """Return what is compiled and why, in a line that fits on a terminal beside its time."""
    short = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."
    why = f": also {goal} (once)" if goal else " (about 30 s, once; kept for later runs)"
    return f"Compiling {short}{why}"


class _Wanted(NamedTuple):
    """A library with its dependencies."""

    home: Home
    cache: Path
    stem: str
    flags: list[str]
    header: bytes | None
    """Of its file, for stanc, and of C++ definitions."""
    foundation: str
    key: str
    """Hashes of what all libraries depend on, and of everything this library depends on."""

    @classmethod
    def of(cls, code: str, name: str, user_header: Path | None, stanc_args: Sequence[str]) -> _Wanted:
        """Return the library for the arguments of `compile_library`."""
        home, stem = find_home(), stem_of(name)
        flags = [*stanc_args, f"--filename-in-msg={stem}.stan"]
        if not any(flag.startswith("--name") for flag in flags):
            flags.append(f"--name={stem}_model")
        header = None if user_header is None else user_header.read_bytes()
        foundation = _hash(home.identity, *make_variables(), *surroundings())
        key = _hash(foundation, *flags, code, header or b"")
        return cls(home, cache_dir(), stem, flags, header, foundation, key)

    @property
    def library(self) -> Path:
        """Return its path in the cache."""
        return self.cache / "libraries" / f"{self.stem}-{self.key}.so"


@dataclass(frozen=True)
class _Build:
    """The compilation of a library in a folder that has its program."""

    wanted: _Wanted
    folder: Path
    name: str
    log: Progress
    begin: Callable[[], None]
    """Reports the compilation as what takes time now."""
    check: Callable[[], None]

    def library(self) -> Path:
        """Compile the library: with few headers, or with all if that fails."""
        wanted, variables = self.wanted, [f"STANCFLAGS={shlex.join(self.wanted.flags)}"]
        if wanted.header is not None:
            (self.folder / "user_header.hpp").write_bytes(wanted.header)
            variables.append(f"USER_HEADER={self.folder / 'user_header.hpp'}")
        target = self.folder / f"{wanted.stem}_model.so"
        headers = self._headers(variables)
        try:
            self._link(target, [*variables, *([f"HEADERS={' '.join(headers)}"] if headers else [])])
        except EndedError:
            raise
        except RunError:
            if not headers:
                raise
            self.check()
            self.log(f"Compiling {self.name} again with all of Stan's headers")
            self._remove_precompiled()  # it may be damaged
            self._link(target, variables)
        return target

    def _headers(self, variables: Sequence[str]) -> list[str]:
        """Return the headers that a program includes instead of all of Stan's; empty with BridgeStan's own Makefile."""
        wanted, folder = self.wanted, self.folder
        if wanted.home.origin != "made":
            return []
        translated = folder / f"{wanted.stem}.hpp"
        done = self._make(translated, variables)
        if done.returncode != 0 or not translated.is_file():
            return []  # compiling the library reports the error
        headers = Headers.of(wanted.home.path / "include")
        kept = wanted.cache / "headers" / wanted.foundation / "stan.hpp"
        make_folder(kept.parent)
        text = headers.for_all()
        if not (is_ours(kept) and kept.read_text(encoding="ascii") == text):
            made = folder / kept.name
            made.write_text(text, encoding="ascii")
            made.chmod(0o644)
            made.replace(kept)
            self._remove_precompiled()
        self._precompile(kept)
        if self.log.stage is not None and self.log.stage.text == _PRECOMPILING:
            self.begin()  # another thread may have reported that stage
        own = folder / "named.hpp"
        code = translated.read_text(encoding="utf-8", errors="replace")
        own.write_text(headers.for_one(code + (wanted.header or b"").decode(errors="replace")), encoding="ascii")
        return [str(kept), str(own)]

    def _precompile(self, header: Path) -> None:
        """Precompile what all programs include first, unless that is done or too few programs need it.

        Other compilations wait meanwhile, because both would otherwise take longer. clang's precompiled headers would
        have to be made again whenever the headers were touched.
        """
        precompiled = header.with_name(f"{header.name}.gch")
        if is_ours(precompiled) or is_clang():
            return
        programs = header.parent / "programs"
        with programs.open("ab") as counted:  # a byte for each
            counted.write(b".")
        lock = self.wanted.cache / "locks" / f"{self.wanted.foundation}-header"
        with _locked(lock, lambda: self.log(_PRECOMPILING), self.check):
            needed = programs.stat().st_size > _PROGRAMS_FIRST and shutil.disk_usage(header.parent).free >= _HEADER_ROOM
            if needed and not is_ours(precompiled):
                self.log(_PRECOMPILING)
                precompiled.unlink(missing_ok=True)
                if not self._made_precompiled(header):
                    programs.write_bytes(b"")

    def _made_precompiled(self, header: Path) -> bool:
        """Precompile a header and remove those of other compilers and versions; return whether that worked."""
        made = self.folder / "headers" / f"{header.name}.gch"
        make_folder(made.parent)
        shutil.copy(header, made.with_suffix(""))
        if self._make(made, []).returncode != 0 or not made.is_file():
            return False
        for other in header.parent.parent.iterdir():
            if other != header.parent:
                shutil.rmtree(other, ignore_errors=True)
        made.chmod(0o644)
        made.replace(header.with_name(made.name))
        return True

    def _remove_precompiled(self) -> None:
        (self.wanted.cache / "headers" / self.wanted.foundation / "stan.hpp.gch").unlink(missing_ok=True)

    def _link(self, target: Path, variables: Sequence[str]) -> None:
        # The object of the C API serves all models, but must be compiled with the model's flags; a home's own object
        # may have others. A lock is held meanwhile, because a downloaded home compiles its libraries in place.
        shared = self.wanted.cache / "api" / f"{self.wanted.foundation}.o"
        lock = self.wanted.cache / "locks" / self.wanted.foundation
        with nullcontext() if is_intact(shared) else _locked(lock, lambda: None, self.check):
            made = target.with_name("api.o")
            api = [f"BRIDGE_O={shared}", f"--old-file={shared}"] if is_intact(shared) else [f"BRIDGE_O={made}"]
            done = self._make(target, [*variables, *api])
            if done.returncode != 0 or not target.is_file():
                output = (done.stderr or done.stdout).replace(f"{target.parent}/", "")
                raise RunError(f"compiling {target.stem.removesuffix('_model')} failed: {_reason(output)}")
            if made.is_file():
                keep(made, shared)

    def _make(self, target: Path, variables: Sequence[str]) -> subprocess.CompletedProcess[str]:
        command = [*shlex.split(make()), "-j2", *make_variables(), *variables, str(target)]
        return processes.run(command, cwd=self.wanted.home.path, env=environment(target.parent), check=self.check)


@contextmanager
def in_background() -> Iterator[Callable[..., Future[Path]]]:
    """Yield a function that runs `compile_library` in a thread and returns at once.

    If the block ends with an exception, such as an interrupt, its compilations are stopped.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(max_workers=2) as pool:
        try:
            yield lambda code, **options: pool.submit(compile_library, code, stop=stop, **options)
        except BaseException:
            stop.set()
            raise


def stem_of(name: str) -> str:
    """Return a name that is valid as a file name, in make, in a shell and in C++."""
    stem = re.sub(r"\W", "_", name, flags=re.ASCII)[:60]
    return stem if stem[:1].isalpha() else f"program_{stem}"


@contextmanager
def _locked(path: Path, on_wait: Callable[[], None], check: Callable[[], None]) -> Iterator[None]:
    lock = FileLock(path.with_suffix(".lock"))
    waits = 0
    while not lock.is_locked:
        check()
        try:
            lock.acquire(timeout=_WAIT_SECONDS)
        except Timeout:
            waits += 1
            if waits == 1:
                on_wait()
    try:
        yield
    finally:
        lock.release()


def remove_abandoned(cache: Path) -> None:
    """Remove the build folders of killed processes: those whose lock nobody holds."""
    for folder in (cache / "build").iterdir():
        lock = FileLock(cache / "locks" / f"{folder.name}.lock")
        with suppress(Timeout), lock.acquire(timeout=0):
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """Create an empty folder, removed afterwards."""
    shutil.rmtree(folder, ignore_errors=True)  # left by a killed process
    make_folder(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _reason(output: str) -> str:
    """Return the lines that say what went wrong, from the output of stanc, the compiler, the linker or make."""
    own = "\n".join(line for line in output.splitlines() if not line.startswith("make:"))
    if STANC_ERROR.match(own):
        return explain(own, "the program")
    lines = [line.strip() for line in (own or output).splitlines() if line.strip()]
    relevant = [line for line in lines if _RELEVANT.search(line) and "note:" not in line]
    if any("killed" in line.lower() for line in relevant):
        relevant.insert(0, "the compiler was killed, perhaps for lack of memory (it needs about 2 GB)")
    return " | ".join(relevant[:3] or lines[-3:]) or "no message"


def _hash(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:20]
