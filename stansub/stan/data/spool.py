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

# Share of the free memory that columns may use.
_SHARE = 4

# From a shape and a type to an array to fill.
Empty: TypeAlias = Callable[[tuple[int, ...], np.dtype[Any]], NDArray[Any]]


def arrays_of(n_bytes: int) -> Empty:
    """Return the maker of arrays of ``n_bytes`` in total; their values do not depend on where they are stored."""
    return np.empty if n_bytes <= memory.room().size // _SHARE else _in_file


def _in_file(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return an array in a file, cached in memory by the system as space allows.

    Raises `InputError` if the disk has no space for it.
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
