"""Files that must not change while they are read, completely or in place."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stansub._loop import MappedFile
from stansub.errors import RunError


@dataclass(frozen=True)
class WatchedFile:
    """A file, or a folder of files, with its state when it was opened."""

    path: Path
    state: tuple[tuple[str, int, int, int], ...]
    """Name, identity, size and modification time of each file."""
    mapping: MappedFile | None = field(default=None, repr=False, compare=False)
    """The file in memory, if it is read in place."""

    @classmethod
    def of(cls, path: Path) -> WatchedFile:
        """Return the file as it is now."""
        return cls(path, _state(path))

    def mapped(self) -> WatchedFile:
        """Return the same file, mapped into memory; OSError if it cannot be mapped."""
        return replace(self, mapping=MappedFile(os.fspath(self.path)))

    def __reduce__(self) -> tuple[Any, ...]:
        """Omit the mapping when pickling: another process has copies of the values."""
        return WatchedFile, (self.path, self.state)

    @property
    def bytes(self) -> NDArray[np.uint8]:
        """Return bytes of a mapped file, not copied and read-only; read them within `unchanged`."""
        assert self.mapping is not None
        return self.mapping.bytes

    def check(self) -> None:
        """Raise RunError if the file has changed."""
        if _state(self.path) != self.state:
            raise RunError(f"{self.path} changed while it was read; run again when no other process writes to it")
        if self.mapping is not None and self.mapping.is_lost:
            raise RunError(f"{self.path}: the disk failed to read a part of the file; copy it to another disk")


@contextmanager
def unchanged(files: Sequence[WatchedFile]) -> Iterator[None]:
    """Check files when the block ends or fails: a change explains any failure.

    Within the block, lost parts of a mapped file read as zeros. Outside it, the process ends with a message.

    Raises `RunError` if a file has changed.
    """
    with ExitStack() as stack:
        for file in files:
            if file.mapping is not None:
                stack.enter_context(file.mapping)
        try:
            yield
        except Exception as error:
            _check(files, error)
            raise
        _check(files)


def _check(files: Sequence[WatchedFile], cause: Exception | None = None) -> None:
    for file in files:
        try:
            file.check()
        except RunError as change:
            raise change from cause


def _state(path: Path) -> tuple[tuple[str, int, int, int], ...]:
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    try:
        found = [(str(file), os.stat(file)) for file in files]
    except OSError:
        return ()
    return tuple((name, one.st_ino, one.st_size, one.st_mtime_ns) for name, one in found)
