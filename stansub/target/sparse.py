"""Likelihoods of linear predictors with sparse rows: a few numbers, and one level of each grouping.

Observation i depends on phi, shape (m,), through q arguments eta_ki = a_ki . phi + o_ki. A row a_ki has p numbers in
places common to all observations and a few in places of its own. Memory and time therefore grow with the number of
nonzeros, not with m times the observations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.target.remainders import Family
from stansub.types import FloatArray

# Observations per block.
_BLOCK = 16384


@dataclass(frozen=True)
class SparseRows:
    """Rows of one argument.

    Attributes
    ----------
    dense : ndarray, shape (n, p) or (1, p)
        Numbers in common places; one row if all observations share it.
    places : ndarray of int, shape (p,)
        The common places among the m.
    gathered : csr_array, shape (n, m)
        The other numbers.
    offset : ndarray, shape (n,) or (1,)
    """

    dense: FloatArray
    places: NDArray[np.int64]
    gathered: sp.csr_array
    offset: FloatArray

    @property
    def n(self) -> int:
        """Return the number of observations."""
        return int(self.gathered.shape[0])

    @property
    def is_constant(self) -> bool:
        """Return whether all observations have the same row."""
        return len(self.dense) == 1 and self.n > 1

    def __call__(self, change: FloatArray) -> FloatArray:
        """Return a_i . change for all observations, shape (n,)."""
        found = np.broadcast_to(self.dense @ change[self.places], self.n)
        return np.asarray(found + self.gathered @ change if self.gathered.nnz else found)

    def back(self, slopes: FloatArray) -> FloatArray:
        """Return sum_i slopes_i a_i, shape (m,)."""
        found = np.asarray(self.gathered.T @ slopes, np.float64)
        found[self.places] += self.dense[0] * slopes.sum() if self.is_constant else slopes @ self.dense
        return found

    def part(self, rows: slice) -> SparseRows:
        """Return the rows of some observations as views."""
        starts = self.gathered.indptr[rows.start : rows.stop + 1]
        gathered = sp.csr_array((len(starts) - 1, self.gathered.shape[1]))
        # The constructor would copy parts of arrays.
        gathered.data = self.gathered.data[starts[0] : starts[-1]]
        gathered.indices = self.gathered.indices[starts[0] : starts[-1]]
        gathered.indptr = starts - starts[0]
        dense, offset = (one if len(one) == 1 else one[rows] for one in (self.dense, self.offset))
        return SparseRows(dense, self.places, gathered, offset)

    def weighted(self, weights: FloatArray, other: SparseRows) -> sp.csr_array:
        """Return sum_i weights_i a_i b_i', shape (m, m), with b the rows of another argument."""
        m = self.gathered.shape[1]
        both = self._dense_with(weights, other)
        found = sp.coo_array((both.ravel(), _grid(self.places, other.places)), shape=(m, m)).tocsr()
        if other.gathered.nnz:
            found = found + self._by_gathered(weights, other, m)
        if self.gathered.nnz:
            found = found + other._by_gathered(weights, self, m).T
        if self.gathered.nnz and other.gathered.nnz:
            found = found + self.gathered.T @ other.gathered.multiply(weights[:, np.newaxis]).tocsr()
        return sp.csr_array(found)

    def _dense_with(self, weights: FloatArray, other: SparseRows) -> FloatArray:
        if self.is_constant and other.is_constant:
            return np.asarray(weights.sum() * np.outer(self.dense[0], other.dense[0]))
        if self.is_constant:
            return np.outer(self.dense[0], weights @ other.dense)
        if other.is_constant:
            return np.outer(weights @ self.dense, other.dense[0])
        return np.asarray(self.dense.T @ (weights[:, np.newaxis] * other.dense))

    def _by_gathered(self, weights: FloatArray, other: SparseRows, m: int) -> sp.csr_array:
        """Return sum_i weights_i d_i s_i': common numbers d, and another argument's numbers s in their own places."""
        if self.is_constant:
            sums = np.outer(other.gathered.T @ weights, self.dense[0])
        else:
            sums = np.asarray(other.gathered.T @ (weights[:, np.newaxis] * self.dense))
        return sp.coo_array((sums.T.ravel(), _grid(self.places, np.arange(m))), shape=(m, m)).tocsr()


def _grid(rows: NDArray[np.int64], columns: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.repeat(rows, len(columns)), np.tile(columns, len(rows))


@dataclass(frozen=True)
class Quadratic:
    """Expansion of second order: value + gradient . d - d' precision d / 2, d = phi - point.

    Attributes
    ----------
    point, gradient : ndarray, shape (m,)
    values : ndarray
        Entries of the precision, by rows.
    columns, starts : ndarray of int32
        Columns of the entries, and the start of each row.
    """

    point: FloatArray
    value: float
    gradient: FloatArray
    values: FloatArray
    columns: NDArray[np.int32]
    starts: NDArray[np.int32]

    @classmethod
    def of(cls, point: FloatArray, value: float, gradient: FloatArray, precision: sp.csr_array) -> Quadratic:
        """Return the expansion with a precision of shape (m, m)."""
        own = sp.csr_array(precision)
        own.sum_duplicates()
        columns, starts = own.indices.astype(np.int32), own.indptr.astype(np.int32)
        return cls(point.copy(), value, gradient, np.asarray(own.data, np.float64), columns, starts)

    @cached_property
    def precision(self) -> sp.csr_array:
        """Return the precision, shape (m, m)."""
        m = len(self.point)
        return sp.csr_array((self.values, self.columns, self.starts), shape=(m, m))

    def __call__(self, phi: FloatArray) -> float:
        """Return the value."""
        d = phi - self.point
        return float(self.value + self.gradient @ d - 0.5 * d @ (self.precision @ d))


@dataclass(frozen=True)
class SparsePredictors:
    """A likelihood in its own arguments.

    Attributes
    ----------
    rows : tuple of SparseRows
        One element for each of the family's arguments.
    constant : float
        The program's log likelihood less the family's.
    """

    rows: tuple[SparseRows, ...]
    family: Family
    constant: float = 0.0
    # Objects made from the predictors, with their expansion (see `stansub.target.group_candidates.shared`).
    latest: list[tuple[Quadratic, Any]] = field(default_factory=list, repr=False, compare=False)

    @property
    def dim(self) -> int:
        """Return m."""
        return int(self.rows[0].gathered.shape[1])

    def empty(self) -> sp.csr_array:
        """Return a matrix of zeros, shape (m, m)."""
        return sp.csr_array((self.dim, self.dim))

    @cached_property
    def n_observations(self) -> int:
        """Return n."""
        return self.rows[0].n

    def at(self, phi: FloatArray) -> FloatArray:
        """Return the arguments, shape (q, n)."""
        return _at(self.rows, phi)

    @cached_property
    def _blocks(self) -> tuple[tuple[slice, tuple[SparseRows, ...]], ...]:
        """Yield rows of blocks of observations small enough for the processor's cache."""
        n = self.n_observations
        blocks = (slice(first, min(first + _BLOCK, n)) for first in range(0, n, _BLOCK))
        return tuple((block, tuple(one.part(block) for one in self.rows)) for block in blocks)

    def log_lik(self, phi: FloatArray) -> float:
        """Return the log likelihood of all observations; minus infinity where undefined."""
        with np.errstate(over="ignore", invalid="ignore"):
            sums = [float(self.family.part(block).log_lik(_at(rows, phi)).sum()) for block, rows in self._blocks]
            value = sum(sums) + self.constant
        return value if np.isfinite(value) else -np.inf

    def back(self, slopes: FloatArray) -> FloatArray:
        """Return the gradient in phi, shape (m,), of functions with gradients in the arguments, shape (q, n)."""
        return _back(self.rows, slopes)

    def gradient(self, phi: FloatArray) -> FloatArray:
        """Return the gradient of the log likelihood, shape (m,)."""
        found = np.zeros(self.dim)
        for block, rows in self._blocks:
            (slopes,) = self.family.part(block).derivatives((1,), _at(rows, phi))
            found += _back(rows, slopes)
        return found

    def expansion(self, phi: FloatArray) -> Quadratic:
        """Return the expansion about a point."""
        eta = self.at(phi)
        values, slopes, curvatures = self.family.derivatives((0, 1, 2), eta)
        gradient = _back(self.rows, slopes)
        precision = sum(
            (
                a.weighted(-np.ascontiguousarray(np.broadcast_to(curvatures[j, k], self.n_observations)), b)
                for j, a in enumerate(self.rows)
                for k, b in enumerate(self.rows)
            ),
            start=self.empty(),
        )
        return Quadratic.of(phi, float(values.sum()) + self.constant, gradient, sp.csr_array(precision))


def _at(rows: Sequence[SparseRows], phi: FloatArray) -> FloatArray:
    return np.stack([one(phi) + one.offset for one in rows])


def _back(rows: Sequence[SparseRows], slopes: FloatArray) -> FloatArray:
    return np.asarray(np.sum([row.back(one) for row, one in zip(rows, slopes, strict=True)], axis=0))
