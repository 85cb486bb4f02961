"""Sparse Cholesky factors of precisions, and of matrices that are nearly precisions."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import lapack
from threadpoolctl import threadpool_limits

from stansub import _loop
from stansub.types import FloatArray

# Operations of a factor that is not dear.
_DEAR = 2e7
# Relative increase of a diagonal that is rounding.
_INCREASED = 1e-6
# Least number of last columns, all full, that LAPACK eliminates.
_BLOCK = 256
# Ridge relative to a precision with which it is definite in spite of rounding.
_ROUNDING = 1e-9


class Factor(NamedTuple):
    """Sparse Cholesky factor of a precision, P A P' = L L', by columns that begin with their diagonal."""

    starts: NDArray[np.int32]
    rows: NDArray[np.int32]
    values: FloatArray
    order: NDArray[np.int32]

    @property
    def lower(self) -> sp.csc_array:
        """Return L."""
        return sp.csc_array((self.values, self.rows, self.starts), shape=(len(self.order), len(self.order)))

    @property
    def log_determinant(self) -> float:
        """Return log |A|."""
        return 2 * float(np.log(self.values[self.starts[:-1]]).sum())

    def matrix(self) -> FloatArray:
        """Return the precision itself, shape (dim, dim)."""
        lower, found = self.lower.toarray(), np.empty((len(self.order), len(self.order)))
        found[np.ix_(self.order, self.order)] = lower @ lower.T
        return found

    def is_of(self, precision: sp.csc_array) -> bool:
        """Return whether it is the factor of a matrix itself, which is then positive definite; see `cholesky`."""
        squares = np.bincount(self.rows, self.values**2)
        return bool((squares <= (1 + _INCREASED) * precision.diagonal()[self.order]).all())

    def solve(self, right: FloatArray) -> FloatArray:
        """Return A^-1 times a vector."""
        out = np.empty(len(right))
        out[self.order] = _loop.cholesky_solve(self.starts, self.rows, self.values, right[self.order])
        return out


class Pattern(NamedTuple):
    """Places of the elements of a factor, as in `Factor`."""

    starts: NDArray[np.int32]
    rows: NDArray[np.int32]
    order: NDArray[np.int32]

    @property
    def operations(self) -> float:
        """Return the operations that the factor takes."""
        return float(np.sum(np.diff(self.starts).astype(float) ** 2))

    @property
    def is_dear(self) -> bool:
        """Return whether the factor takes too many operations to be made often."""
        return self.operations > _DEAR


def pattern_of(matrix: sp.csc_array) -> Pattern:
    """Return the pattern of the factor of a symmetric matrix, in an order of little fill-in."""
    order = order_of(matrix)
    triangle = _triangle(matrix, matrix.data, order)
    starts, rows = _loop.cholesky_pattern(triangle.indptr.astype(np.int32), triangle.indices.astype(np.int32))
    return Pattern(starts, rows, order)


def cholesky(precision: sp.csc_array, order: NDArray[np.int32] | None = None) -> Factor:
    """Return the factor of a symmetric matrix, with an increased diagonal if it is not positive definite.

    It is in a given order, or else in one of little fill-in.

    An average of Hessians over a few draws may have directions of negative curvature. The elements of L determine the
    increase: they stay as small as those of a precision with the same diagonal (Gill, Murray and Wright 1981, Practical
    Optimization, section 4.4.2.2).
    """
    found = _factorised(precision, order, increases=True)
    assert found is not None
    return found


def definite_factor(precision: sp.csc_array, order: NDArray[np.int32] | None = None) -> Factor | None:
    """Return the factor of a symmetric matrix, in an order as for `cholesky`; None if it is not positive definite."""
    found = _factorised(precision, order, increases=False)
    return found if found is not None and found.is_of(precision) else None


def _factorised(precision: sp.csc_array, order: NDArray[np.int32] | None, *, increases: bool) -> Factor | None:
    """Return the factor; None for some matrices that are not positive definite, unless their diagonal increases."""
    scale = scale_of(precision.diagonal())
    order = order_of(precision) if order is None else order
    columns = np.repeat(np.arange(len(scale)), np.diff(precision.indptr))
    triangle = _triangle(precision, precision.data / (scale[precision.indices] * scale[columns]), order)
    triangle_factor = _factor(triangle, increases=increases)
    if triangle_factor is None:
        return None
    factor_starts, factor_rows, values = triangle_factor
    return Factor(factor_starts, factor_rows, values * scale[order][factor_rows], order)


def _triangle(matrix: sp.csc_array, values: FloatArray, order: NDArray[np.int32]) -> sp.csc_array:
    """Return the lower triangle in an order, with given values of the stored elements."""
    dim, every = len(order), np.argsort(order)
    columns = every[np.repeat(np.arange(dim), np.diff(matrix.indptr))]
    # The diagonal is stored even if it is 0.
    stored = np.concatenate([values, np.full(dim, np.finfo(float).tiny)])
    rows, columns = np.concatenate([every[matrix.indices], every]), np.concatenate([columns, every])
    lower = rows >= columns
    triangle = sp.csc_array(sp.coo_array((stored[lower], (rows[lower], columns[lower])), shape=(dim, dim)))
    triangle.sort_indices()
    return triangle


def _factor(
    triangle: sp.csc_array, *, increases: bool
) -> tuple[NDArray[np.int32], NDArray[np.int32], FloatArray] | None:
    """Return L for a lower triangle that is scaled to a diagonal of ones, by columns.

    If the last columns are many and full, LAPACK eliminates them, unless a diagonal must be increased; None if
    ``increases`` is False then.
    """
    parts = triangle.indptr.astype(np.int32), triangle.indices.astype(np.int32), triangle.data
    starts, rows, values, n_left = _loop.modified_cholesky(*parts, _BLOCK, increases)
    if not increases and not np.isfinite(values[-1]):
        return None
    if n_left:
        block = values[starts[-1 - n_left] :]
        with threadpool_limits(limits=1, user_api="blas"):  # rounding depends on the number of threads
            packed, _ = lapack.dtpttf(n_left, block, uplo="L")
            packed, failed = lapack.dpftrf(n_left, packed, uplo="L", overwrite_a=True)
            block[:], _ = lapack.dtfttp(n_left, packed, uplo="L")
        # LAPACK does not always stop at a pivot that is not a number.
        if failed or not (values[starts[:-1]] ** 2 >= _loop.LEAST_PIVOT).all():
            if not increases:
                return None
            starts, rows, values, _ = _loop.modified_cholesky(*parts, len(starts), increases)
    return starts, rows, values


def scale_of(diagonal: FloatArray) -> FloatArray:
    """Return what to divide rows and columns by for a diagonal of ones; of small elements, for at most one."""
    sizes = np.abs(diagonal)
    return np.asarray(np.sqrt(np.maximum(sizes, 1e-10 * max(sizes.max(), 1e-10))))


def order_of(matrix: sp.csc_array) -> NDArray[np.int32]:
    """Return an order in which a matrix of this pattern has little fill-in."""
    return _order_of(matrix.indptr.astype(np.int32).tobytes(), matrix.indices.astype(np.int32).tobytes())


@functools.lru_cache(maxsize=8)
def _order_of(starts: bytes, rows: bytes) -> NDArray[np.int32]:
    """Return the order for a pattern; cached, because tuning factorises many matrices of one pattern."""
    order = _loop.minimum_degree(np.frombuffer(starts, np.int32), np.frombuffer(rows, np.int32))
    order.setflags(write=False)
    return order


def is_definite(precision: sp.csr_array) -> bool:
    """Return whether a symmetric matrix has no negative eigenvalues, up to rounding."""
    diagonal = precision.diagonal()
    ridge = _ROUNDING * max(1.0, float(np.abs(diagonal).max()))
    ridged = sp.csc_array(precision + ridge * sp.eye_array(len(diagonal), format="csr"))
    return definite_factor(ridged) is not None
