"""Slopes of affine expressions in the unconstrained parameters, dense or sparse.

Observations have a row each, or a single row is common to all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.types import FloatArray

Slopes: TypeAlias = Any  # an array, or a csr_array if that of all observations would be too large


def none_like(slopes: Slopes) -> Slopes:
    """Return slopes of 0, shape (1, dim)."""
    shape = (1, slopes.shape[1])
    return sp.csr_array(shape) if isinstance(slopes, sp.csr_array) else np.zeros(shape)


def stacked(rows: Sequence[Slopes]) -> Slopes:
    """Return slopes stacked vertically."""
    return sp.csr_array(sp.vstack(rows, format="csr")) if isinstance(rows[0], sp.csr_array) else np.concatenate(rows)


def dense(slopes: Slopes) -> FloatArray:
    """Return slopes as an array."""
    return np.ascontiguousarray(slopes.toarray() if isinstance(slopes, sp.csr_array) else slopes, np.float64)


def spread(slopes: Slopes, n: int) -> Slopes:
    """Return slopes with a row for each of n observations, if an array of one row does not suffice."""
    if slopes.shape[0] == n or not isinstance(slopes, sp.csr_array):
        return slopes
    return sp.csr_array(slopes[np.zeros(n, np.int64)])


def repeated(slopes: Slopes, n: int) -> Slopes:
    """Return slopes with a row for each of n observations."""
    return spread(slopes, n) if isinstance(slopes, sp.csr_array) else np.broadcast_to(slopes, (n, slopes.shape[1]))


def scaled(slopes: Slopes, x: Any) -> Slopes:
    """Return slopes times a number, or one for each observation."""
    if not isinstance(slopes, sp.csr_array):
        return np.asarray(np.reshape(x, (-1, 1)) * slopes)
    if np.ndim(x):
        slopes = spread(slopes, max(len(x), slopes.shape[0]))
        x = np.repeat(np.broadcast_to(x, slopes.shape[0]), np.diff(slopes.indptr))
    return sp.csr_array((slopes.data * x, slopes.indices, slopes.indptr), shape=slopes.shape)


def dots(a: Slopes, b: Slopes) -> FloatArray:
    """Return the dot products of rows; a single row is common to all observations."""
    if isinstance(a, sp.csr_array):
        n = max(a.shape[0], b.shape[0])
        return np.asarray(spread(a, n).multiply(spread(b, n)).sum(axis=1)).ravel()
    return np.asarray(np.sum(a * b, axis=1))


def sum_of(a: Slopes, b: Slopes, sign: float) -> Slopes:
    """Return the slopes of a sum, or with a sign of -1 of a difference."""
    n = max(a.shape[0], b.shape[0])
    return spread(a, n) + sign * spread(b, n)


def is_changing(slopes: Slopes) -> bool:
    """Return whether any slope is not 0."""
    return bool(slopes.count_nonzero() if isinstance(slopes, sp.csr_array) else slopes.any())


def key_of(slopes: Slopes) -> bytes:
    """Return a key that identifies slopes."""
    if isinstance(slopes, sp.csr_array):
        return b"".join(each.tobytes() for each in (slopes.data, slopes.indices, slopes.indptr))
    return bytes(slopes.tobytes())


def rows_in_stack(lengths: Sequence[int], places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return rows in a stack of each choice's rows: the observation's own, or the only one."""
    own = np.array([length > 1 for length in lengths])[places]
    return np.cumsum([0, *lengths[:-1]])[places] + np.where(own, np.arange(len(places)), 0)
