"""How much memory there is for this process, whatever limits it, and errors that are the want of it."""

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

# Bytes that sampling takes beside data and draws, nearly all of them for libraries: resident, and with what is mapped
# and never touched. Measured from the start of a run to its end.
_LIBRARIES, _MAPPED = 200 * 10**6, 700 * 10**6

# With less than this, what cannot be loaded or started is taken to lack memory.
_SHORT = 100 * 10**6

_SIGNS = ("failed to map segment", "Cannot allocate memory", "bad_alloc")


class Room(NamedTuple):
    """Memory that this process may still take.

    Attributes
    ----------
    size : int
        In bytes.
    where : str
        What bounds it, as the end of "... are".
    libraries : int
        What of it a run takes beside data and draws.
    """

    size: int
    where: str
    libraries: int = _LIBRARIES

    def __str__(self) -> str:
        return f"{amount(self.size)} are {self.where}"


def amount(size: float) -> str:
    """Bytes in words."""
    for unit, one in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if size >= one:
            return f"{size / one:.2g} {unit}" if size < 100 * one else f"{size / one:,.0f} {unit}"
    return f"{size:.0f} bytes"


def room(root: Path = Path("/")) -> Room:
    """The least of what machine, control groups and resource limits leave.

    Parameters
    ----------
    root : Path
        Where ``proc`` and ``sys`` are.
    """
    return min(_rooms(root))


def check_start() -> None:
    """Raise RunError where there is not even memory for the libraries of a run: their failures say little."""
    for one in _rooms(Path("/")):
        if one.size < one.libraries:
            raise RunError(
                f"too little memory: {one}, but loading the libraries of a run takes about {amount(one.libraries)}; "
                "raise the limit or close other programs"
            )


def give_back() -> None:
    """Return memory that is free to the system, which the C library may keep for allocations to come."""
    with contextlib.suppress(AttributeError):  # other C libraries than GNU's
        ctypes.CDLL(None).malloc_trim(0)


def shortage(error: BaseException) -> str:
    """What to say of an error whose cause is that memory is short; nothing for any other."""
    cause: BaseException | None = error
    while cause is not None:
        short = isinstance(cause, MemoryError) or getattr(cause, "errno", None) == errno.ENOMEM
        if short or any(sign in str(cause) for sign in _SIGNS) or _unable(cause):
            detail = " ".join(str(cause).split())
            return f"memory is short{f' ({detail})' if detail else ''}: {room()}; ask for less or raise the limit"
        cause = cause.__cause__ or cause.__context__
    return ""


def reason(error: BaseException) -> str:
    """Return an error's message in one line, or that memory is short if that is the cause."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return shortage(error) or one_line(error)


def _unable(error: BaseException) -> bool:
    """Whether a module was not found or a thread not started while hardly any memory is left."""
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
    """What the control groups of this process leave, versions 1 and 2, those above them included."""
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
        # In a container the path may be that of its host, of which only the top is seen.
        for folder in [inner, *inner.parents]:
            limit, used = (_number(folder / name) for name in names)
            if limit is not None and used is not None:
                idle = _fields(folder / "memory.stat", unit=1)
                reclaimable = idle.get("total_inactive_file", idle.get("inactive_file", 0))
                yield Room(max(0, limit - used + reclaimable), "left under the limit of this container or job (cgroup)")
            if folder == top:
                break


def _number(path: Path) -> int | None:
    """The number in a file; None where there is no such file or it says ``max``."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _fields(path: Path, *, unit: int = 1024) -> dict[str, int]:
    """Numbers by name of a file such as ``/proc/meminfo``; none where it cannot be read."""
    try:
        words = [line.replace(":", " ").split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {word[0]: unit * int(word[1]) for word in words if len(word) > 1 and word[1].isdigit()}
