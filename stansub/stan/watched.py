"""Files that must not change while they are read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from stansub.errors import RunError


@dataclass(frozen=True)
class Watched:
    """A file, or a folder of files, as it was when it was opened.

    Attributes
    ----------
    path : Path
    state : tuple
        Name, identity, size and time of last change of each file.
    """

    path: Path
    state: tuple[tuple[str, int, int, int], ...]

    @classmethod
    def of(cls, path: Path) -> Watched:
        """The file as it is now."""
        return cls(path, _state(path))

    def check(self) -> None:
        """Raise RunError if the file is no longer what it was."""
        if _state(self.path) != self.state:
            raise RunError(f"{self.path} changed while it was read: run again with a file that nothing writes to")


def _state(path: Path) -> tuple[tuple[str, int, int, int], ...]:
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    try:
        found = [(str(file), os.stat(file)) for file in files]
    except OSError:
        return ()
    return tuple((name, one.st_ino, one.st_size, one.st_mtime_ns) for name, one in found)
