"""Memory available to this process under all limits, and errors caused by a lack of it."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from stansub.errors import RunError, one_line

# Bytes that sampling needs besides data and draws, nearly all for libraries: resident, and including mapped memory that
# is never touched. Measured over whole runs.
_LIBRARIES, _MAPPED = 200 * 10**6, 700 * 10**6

# With less than this, a failure to load or start something is attributed to a lack of memory.
_SHORT = 100 * 10**6

# Parameters of the C library's `mallopt`, and bytes up to which it does not map memory for a single array.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _KEPT = -1, -3, 1 << 24

_SIGNS = ("failed to map segment", "Cannot allocate memory", "bad_alloc")


class Room(NamedTuple):
    """Memory that this process may still use."""

    size: int
    where: str
    """What limits it, as the end of "... are"."""
    libraries: int = _LIBRARIES
    """Part of it that a run needs besides data and draws."""

    def __str__(self) -> str:
        return f"{amount(self.size)} are {self.where}"


def amount(size: float) -> str:
    """Return a number of bytes in words."""
    for unit, one in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if size >= one:
            return f"{size / one:.2g} {unit}" if size < 100 * one else f"{size / one:,.0f} {unit}"
    return f"{size:.0f} bytes"


def room(root: Path = Path("/")) -> Room:
    """Return the smallest amount left by the machine, control groups and resource limits.

    ``root`` is the folder with ``proc`` and ``sys``.
    """
    return min(_rooms(root))


def check_start() -> None:
    """Raise RunError if memory does not suffice for the libraries of a run, whose own failures are obscure."""
    for one in _rooms(Path("/")):
        if one.size < one.libraries:
            raise RunError(
                f"too little memory: {one}, but loading the libraries of a run takes about {amount(one.libraries)}; "
                "raise the limit or close other programs"
            )


def give_back() -> None:
    """Return free memory to the system; the C library may otherwise keep it for later allocations."""
    with contextlib.suppress(AttributeError):  # C libraries other than GNU's
        ctypes.CDLL(None).malloc_trim(0)


def keep_freed() -> None:
    """Let the C library use freed memory again, instead of giving it back each time.

    Workers of dask start with a fixed threshold (``MALLOC_TRIM_THRESHOLD_``), above which each array of a pass over the
    data is mapped, filled with zeros and unmapped: passes took about three times as long.
    """
    with contextlib.suppress(AttributeError):  # C libraries other than GNU's
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, _KEPT)
        library.mallopt(_TRIM_THRESHOLD, 4 * _KEPT)


def shortage(error: BaseException) -> str:
    """Return a message about an error caused by a lack of memory; empty for any other error."""
    cause: BaseException | None = error
    while cause is not None:
        short = isinstance(cause, MemoryError) or getattr(cause, "errno", None) == errno.ENOMEM
        if short or any(sign in str(cause) for sign in _SIGNS) or _unable(cause):
            detail = " ".join(str(cause).split())
            return f"memory is short{f' ({detail})' if detail else ''}: {room()}; reduce the request or raise the limit"
        cause = cause.__cause__ or cause.__context__
    return ""


def reason(error: BaseException) -> str:
    """Return an error's message in one line, or that memory is short if that is the cause."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return shortage(error) or one_line(error)


def _unable(error: BaseException) -> bool:
    """Return whether a module was not found or a thread not started while almost no memory is left."""
    kind = isinstance(error, ImportError) or "can't start new thread" in str(error)
    return kind and any(one.size < max(_SHORT, one.libraries // 4) for one in _rooms(Path("/")))


def _rooms(root: Path) -> Iterator[Room]:
    yield _machine(root)
    yield from _groups(root)
    used = _fields(root / "proc/self/status")
    limits = (
        (resource.RLIMIT_AS, "VmSize", "left of the address space (ulimit -v)", _MAPPED),
        (resource.RLIMIT_DATA, "VmData", "left under the limit on data (ulimit -d)", _LIBRARIES),
    )
    for limit, field, where, libraries in limits:
        allowed = resource.getrlimit(limit)[0]
        if allowed != resource.RLIM_INFINITY and field in used:
            yield Room(max(0, allowed - used[field]), where, libraries)


def _machine(root: Path) -> Room:
    free = _fields(root / "proc/meminfo").get("MemAvailable")
    if free is None:  # not Linux
        return Room(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "the memory of this machine")
    return Room(free, "free on this machine")


def _groups(root: Path) -> Iterator[Room]:
    """Yield what the control groups of this process leave, versions 1 and 2, including their parents."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / ("memory" if controllers else "")
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes") if controllers else ("memory.max", "memory.current")
        inner = top / path.lstrip("/")
        # In a container, the path may be the host's, of which only the top is visible.
        for folder in [inner, *inner.parents]:
            limit, used = (_number(folder / name) for name in names)
            if limit is not None and used is not None:
                idle = _fields(folder / "memory.stat", unit=1)
                reclaimable = idle.get("total_inactive_file", idle.get("inactive_file", 0))
                yield Room(max(0, limit - used + reclaimable), "left under the limit of this container or job (cgroup)")
            if folder == top:
                break


def _number(path: Path) -> int | None:
    """Return the number in a file; None if there is no such file or it says ``max``."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _fields(path: Path, *, unit: int = 1024) -> dict[str, int]:
    """Return numbers by name from a file such as ``/proc/meminfo``; empty if it cannot be read."""
    try:
        words = [line.replace(":", " ").split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {word[0]: unit * int(word[1]) for word in words if len(word) > 1 and word[1].isdigit()}
