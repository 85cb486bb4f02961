"""Standard output and error where nobody may be at the other end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from stansub.errors import RunError


class ReaderGoneError(Exception):
    """Whoever read standard output has gone (``| head``)."""


@contextmanager
def guarded() -> Iterator[None]:
    """Have failures to print end in an error with a message for results, in nothing for messages.

    Raises
    ------
    ReaderGoneError, RunError
        In the block, when standard output is a closed pipe, is closed, or cannot be written to.
    """
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Stream(out, _fail), _Stream(err, lambda _: None)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err
        _empty(out)
        _empty(err)


class _Stream:
    """A text stream that takes any text, and whose failures to write are handed to a function."""

    def __init__(self, stream: TextIO, failed: Callable[[OSError], None]) -> None:
        self._stream, self._failed = stream, failed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._write(text)
        except OSError as error:
            self._failed(error)
            return len(text)

    def _write(self, text: str) -> int:
        """Write a text, with escapes in place of characters that the stream's encoding does not have."""
        try:
            return self._stream.write(text)
        except UnicodeEncodeError as error:
            return self._stream.write(text.encode(error.encoding, "backslashreplace").decode(error.encoding))

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._failed(error)


def _fail(error: OSError) -> None:
    if isinstance(error, BrokenPipeError):
        raise ReaderGoneError from error
    raise RunError(f"could not write to standard output: {error.strerror}") from error


def occupy() -> None:
    """Open closed standard streams, so that no other file gets their numbers; writing to the output still fails."""
    for number, (name, flags) in enumerate((("stdin", os.O_RDONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY))):
        if getattr(sys, name) is None:
            with suppress(OSError):
                os.fstat(number)
                continue
            if os.open(os.devnull, flags) == number:
                setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False))


def _empty(stream: TextIO) -> None:
    """Drop what a stream could not get rid of, or the interpreter complains of it at its end."""
    try:
        stream.flush()
    except OSError:
        with suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
            stream.flush()
