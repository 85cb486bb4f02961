"""A file that always holds the last complete value written, and can be read while it is written.

    head | array | ... | array | root | array | ... | root

The head locates the root, and the root locates each array. The root is JSON (`stansub.codec`). An array is identified
by the digest of its bytes and is stored once. A write appends the new root and its new arrays and flushes them to disk.
It then overwrites the head, which is within one sector. A process that dies before leaves the old value, with unused
bytes at the end. When more than half of the file is unused, a new file is written beside it and replaces it.

Head, root and every array have digests, which are checked on reading.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import struct
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from stansub.codec import Encoded, digest_of
from stansub.errors import InputError
from stansub.output import files

_FAMILY = b"stansub checkpoint "
_MAGIC = _FAMILY + b"9\n"
# Magic bytes, the writer, start, length and digest of the root; then a digest of these.
_HEAD = struct.Struct("<21s16sQQ32s")
_CHECK = 16
_LENGTH = _HEAD.size + _CHECK
_SQLITE = b"SQLite format 3\x00"
# Unused bytes below which rewriting the file is not worthwhile.
_LITTLE = 1 << 20


class TakenOverError(Exception):
    """Another process now writes the file."""


class _Head(NamedTuple):
    """Head at the start of the file."""

    owner: bytes
    start: int
    size: int
    digest: str

    def packed(self) -> bytes:
        content = _HEAD.pack(_MAGIC, self.owner, self.start, self.size, bytes.fromhex(self.digest))
        return content + _check(content)


class _Written(NamedTuple):
    """State of the written file: head, places of arrays, end, and bytes in use."""

    head: bytes
    places: Mapping[str, tuple[int, int]]
    end: int
    used: int


def is_store(path: Path) -> bool:
    """Return whether a file is a store, of any version, from its first bytes."""
    return files.starts_with(path, _FAMILY)


def is_database(path: Path) -> bool:
    """Return whether a file is an SQLite database, the first format of checkpoints."""
    return files.starts_with(path, _SQLITE)


def read(path: Path) -> Encoded:
    """Return the value in a file.

    Raises
    ------
    InputError
        If the file is no store, has another version, or is damaged.
    """
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(_opened(path))
        root, places = _root(path, file)
        size = os.fstat(file.fileno()).st_size
        for digest, (start, length) in places.items():
            _part(path, file, start, length, digest)
            size -= length
            if size < 0:
                raise damaged(path, "its arrays overlap")
        arrays = Arrays(places, lambda digest: _part(path, file, *places[digest], digest))
        # The file stays open, so that replacing it changes nothing here.
        weakref.finalize(arrays, stack.pop_all().close)
        return Encoded(root, arrays)


class Arrays(Mapping[str, bytes | memoryview]):
    """Arrays by digest, each read when used."""

    def __init__(self, digests: Iterable[str], content: Callable[[str], bytes | memoryview]) -> None:
        self._digests, self._content = dict.fromkeys(digests), content

    def __getitem__(self, digest: str) -> bytes | memoryview:
        if digest not in self._digests:
            raise KeyError(digest)
        return self._content(digest)

    def __iter__(self) -> Iterator[str]:
        return iter(self._digests)

    def __len__(self) -> int:
        return len(self._digests)


def read_root(path: Path) -> Any:
    """Return the value without its arrays; raises the errors of `read`."""
    with _opened(path) as file:
        return _root(path, file)[0]


def damaged(path: Path, what: str) -> InputError:
    """Return the error for a file whose content is not what was written."""
    return InputError(f"{path} is damaged ({what}): start a new run, or restore a copy of the file")


class Store:
    """Writer of a file that is rewritten many times.

    Parameters
    ----------
    path : Path
        Symbolic links are resolved. The first write replaces any existing file, so that of two processes that write one
        file the later one keeps it.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._owner = path, secrets.token_bytes(16)
        self._written: _Written | None = None
        # To read back what was written, even if another process has replaced the file.
        self._file: BinaryIO | None = None

    def write(self, value: Encoded) -> None:
        """Write a value.

        Raises
        ------
        OSError
            If the value cannot be written; the file keeps its previous value.
        TakenOverError
            If another process has written to the file since.
        """
        written = self._written
        if written is not None:
            with self._path.open("r+b") as file:
                content = file.read(_LENGTH)
                head = _parsed(content)
                if head is None or head.owner != self._owner:
                    raise TakenOverError("another process has resumed the run from it")
                # The head differs from the last one written: an interrupt came before the write was recorded.
                if content == written.head and written.end <= 2 * written.used + _LITTLE:
                    try:
                        self._written = self._append(file, value, written.places, written.end)
                    except OSError:
                        with contextlib.suppress(OSError):
                            file.truncate(written.end)
                        raise
                    return
        part = self._path.with_name(f".stansub-{self._owner.hex()[:8]}.part")
        try:
            with part.open("w+b") as file:
                file.write(bytes(_LENGTH))
                written = self._append(file, value, {}, _LENGTH)
            reading = part.open("rb")
            os.replace(part, self._path)
            if self._file is not None:
                self._file.close()
            self._written, self._file = written, reading
            weakref.finalize(self, reading.close)
        finally:
            part.unlink(missing_ok=True)

    def array(self, digest: str) -> bytes:
        """Return an array that was written.

        Raises
        ------
        InputError
            If the file has been changed.
        """
        assert self._written is not None
        assert self._file is not None
        return _part(self._path, self._file, *self._written.places[digest], digest)

    def _append(self, file: BinaryIO, value: Encoded, places: Mapping[str, tuple[int, int]], end: int) -> _Written:
        """Append the root and the arrays not yet in the file, then write the head."""
        now = {digest: places[digest] for digest in value.arrays if digest in places}
        file.seek(end)
        for digest in value.arrays:
            if digest not in now:
                content = value.arrays[digest]
                file.write(content)
                now[digest] = end, len(content)
                end += len(content)
        root = json.dumps({"value": value.document, "places": now}, separators=(",", ":"), allow_nan=False).encode()
        file.write(root)
        _flush(file)
        head = _Head(self._owner, end, len(root), digest_of(root)).packed()
        file.seek(0)
        file.write(head)
        _flush(file)
        used = len(head) + len(root) + sum(length for _, length in now.values())
        return _Written(head, now, end + len(root), used)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise InputError(f"{path}: cannot read the file: {error.strerror}") from error


def _root(path: Path, file: BinaryIO) -> tuple[Any, dict[str, tuple[int, int]]]:
    """Return the value in the root, and the places of the arrays."""
    content = file.read(_LENGTH)
    if content.startswith(_SQLITE):
        raise InputError(
            f"{path} is an SQLite database, the checkpoint format of earlier versions: resume it with the version "
            "that wrote it, or start a new run with another file"
        )
    if content[: len(_MAGIC)] != _MAGIC[: len(content)]:
        known = content.startswith(_FAMILY)
        raise InputError(
            f"{path} is {'a checkpoint of another version' if known else 'not a checkpoint'}, or damaged: start a new "
            "run, or restore a copy of the file"
        )
    head = _parsed(content)
    if head is None:
        raise damaged(path, "its head has another digest")
    try:
        root = json.loads(_part(path, file, head.start, head.size, head.digest))
        places = {digest: (start, length) for digest, (start, length) in root["places"].items()}
        value = root["value"]
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise damaged(path, "its root is of another kind") from error
    return value, places


def _part(path: Path, file: BinaryIO, start: int, length: int, digest: str) -> bytes:
    """Return a part of the file, after checking its digest."""
    if not (type(start) is type(length) is int and min(start, length) >= 0):
        raise damaged(path, "a part of it has no place")
    if start + length > os.fstat(file.fileno()).st_size:
        raise damaged(path, "it is cut short")
    file.seek(start)
    content = file.read(length)
    if digest_of(content) != digest:
        raise damaged(path, "a part of it has another digest")
    return content


def _parsed(content: bytes) -> _Head | None:
    """Return the head; None if the content is no head."""
    packed = content[: _HEAD.size]
    if len(content) != _LENGTH or _check(packed) != content[_HEAD.size :]:
        return None
    magic, owner, start, size, digest = _HEAD.unpack(packed)
    return _Head(owner, start, size, digest.hex()) if magic == _MAGIC else None


def _check(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_CHECK).digest()


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
