"""Arrays for columns: in memory or, if too large, in temporary files that end with the process."""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stansub import memory
from stansub.errors import InputError

# The part of the free memory that columns may take.
_SHARE = 4

# From a shape and a type to an array that is to be filled.
Empty: TypeAlias = Callable[[tuple[int, ...], np.dtype[Any]], NDArray[Any]]


def arrays_of(n_bytes: int) -> Empty:
    """Return what makes arrays of so many bytes altogether: their values are the same wherever they are."""
    return _in_memory if n_bytes <= memory.room().size // _SHARE else _in_file


def _in_memory(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.empty(shape, dtype)


def _in_file(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array in a file, of which the system keeps in memory what it has room for.

    Raises
    ------
    InputError
        When the disk has no room for it.
    """
    size = math.prod(shape) * dtype.itemsize
    try:
        with tempfile.TemporaryFile(prefix="stansub-") as file:
            os.posix_fallocate(file.fileno(), 0, size)  # a disk that fills up later would end the process
            mapped = mmap.mmap(file.fileno(), size)
    except OSError as error:
        folder = tempfile.gettempdir()
        raise InputError(
            f"the columns take {memory.amount(size)}, more than a quarter of the free memory, and {folder} "
            f"cannot hold them ({error.strerror}); free space there, or set TMPDIR to another folder"
        ) from error
    return np.frombuffer(mapped, dtype).reshape(shape)
