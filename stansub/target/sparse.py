"""Likelihoods of linear predictors with sparse rows: a few numbers, and a few elements of each grouping.

Observation i depends on phi, shape (m,), through q arguments eta_ki = a_ki . phi + o_ki. A row a_ki has p numbers in
places common to all observations and a few in places of its own, such as one level of a grouping or two teams that
play each other. Memory and time therefore grow with the number of nonzeros, not with m times the observations. Numbers
that are columns of the data are read there, and passes over the observations need memory for a few parts of them at a
time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub import _loop
from stansub.target.remainders import Family
from stansub.target.rows import ColumnRows, Design, Rows, count
from stansub.target.threads import THREADS, one_blas_thread
from stansub.types import FloatArray

# Observations per block: few, which stay in the processor's cache, or many, where the result of each is a matrix.
_BLOCK, PART = 1 << 14, 1 << 17
# Sums of products of two coefficients up to which they are a table.
_TABLE = 1 << 21

R = TypeVar("R")


class Entries(NamedTuple):
    """Entries of a matrix, which are added if several have the same place."""

    values: FloatArray
    rows: NDArray[Any]
    columns: NDArray[Any]

    def transposed(self) -> Entries:
        """Return the entries of the transposed matrix."""
        return Entries(self.values, self.columns, self.rows)


class Column(NamedTuple):
    """One coefficient of each observation."""

    places: NDArray[np.int32]
    """Shape (n,): its place in phi, -1 for none."""
    factors: NDArray[Any]
    """Shape (n,): its factor, 0 for none: float64, or any type that holds it, at any distance in memory."""

    def part(self, rows: Rows) -> Column:
        """Return the coefficients of some observations, as views if these are a slice."""
        return Column(self.places[rows], self.factors[rows])

    def change(self, change: FloatArray) -> FloatArray:
        """Return the change of each observation's argument with one of the coefficients, shape (n,)."""
        return np.asarray(self.factors * change[self.places])

    def sums(self, values: FloatArray, m: int) -> FloatArray:
        """Return the sums of values of observations by coefficient, shape (m,)."""
        has = self.places >= 0
        return np.asarray(np.bincount(self.places[has], values[has], minlength=m), np.float64)

    def counts(self, m: int) -> NDArray[np.int64]:
        """Return the number of observations by coefficient, shape (m,)."""
        parts = (self.places[rows] for rows in slices(len(self.places)))
        return np.asarray(np.sum([np.bincount(one[one >= 0], minlength=m) for one in parts], axis=0), np.int64)


def slices(n: int, size: int = PART) -> list[slice]:
    """Return slices of n observations, ``size`` each."""
    return [slice(first, min(first + size, n)) for first in range(0, n, size)]


@dataclass(frozen=True)
class SparseRows:
    """Rows of one argument."""

    dense: Design
    """Shape (n, p) or (1, p): numbers in common places; one row if all observations share it."""
    places: NDArray[np.int64]
    """Shape (p,): the common places among the m."""
    columns: tuple[Column, ...]
    """The other numbers."""
    offset: NDArray[Any]
    """Shape (n,) or (1,)."""
    n: int
    dim: int
    """The number of observations, and m."""

    @classmethod
    def of(cls, dense: FloatArray, places: NDArray[np.int64], gathered: sp.csr_array, offset: FloatArray) -> SparseRows:
        """Return rows whose other numbers are a matrix, shape (n, m)."""
        return cls(dense, places, columns_of(gathered), offset, *gathered.shape)

    @cached_property
    def gathered(self) -> sp.csr_array:
        """Return the other numbers as a matrix, shape (n, m)."""
        if not self.columns:
            return sp.csr_array((self.n, self.dim))
        places = np.stack([one.places for one in self.columns], axis=1)
        factors = np.stack([one.factors for one in self.columns], axis=1).astype(np.float64, copy=False)
        has = places >= 0
        if has.all():
            starts, own = np.arange(0, places.size + 1, len(self.columns)), (factors.ravel(), places.ravel())
        else:
            starts, own = np.concatenate([[0], np.cumsum(has.sum(axis=1))]), (factors[has], places[has])
        return sp.csr_array((*own, starts.astype(np.int32)), shape=(self.n, self.dim))

    @property
    def runs(self) -> list[FloatArray]:
        """Return the numbers in common places as they are in memory, in adjacent columns; shape (n, k) or (1, k)."""
        if isinstance(self.dense, np.ndarray):
            return [self.dense]
        return [
            np.asarray(source, np.float64)
            if isinstance(source, np.ndarray)
            else np.full((1, place.stop - place.start), source)
            for place, source in self.dense.runs
        ]

    @property
    def is_constant(self) -> bool:
        """Return whether all observations have the same row."""
        return len(self.dense) == 1 and self.n > 1

    @property
    def read(self) -> set[int]:
        """Return the places that any observation reads."""
        gathered = (np.flatnonzero(one.counts(self.dim)).tolist() for one in self.columns)
        return set(self.places.tolist()).union(*gathered)

    def __call__(self, change: FloatArray) -> FloatArray:
        """Return a_i . change for all observations, shape (n,)."""
        found = np.broadcast_to(self.dense @ change[self.places], self.n)
        return np.asarray(found + sum(one.change(change) for one in self.columns) if self.columns else found)

    def back(self, slopes: FloatArray) -> FloatArray:
        """Return sum_i slopes_i a_i, shape (m,)."""
        found = np.zeros(self.dim)
        for one in self.columns:
            found += one.sums(one.factors * slopes, self.dim)
        if self.is_constant:
            found[self.places] += self.matrix[0] * slopes.sum()
        else:
            dense = self.dense
            found[self.places] += slopes @ dense if isinstance(dense, np.ndarray) else dense.weighted_sum(slopes)
        return found

    @cached_property
    def matrix(self) -> FloatArray:
        """Return the numbers in common places as an array: for a part, or where they are one."""
        return self.dense[:]

    def part(self, rows: Rows) -> SparseRows:
        """Return the rows of some observations, as views if these are a slice."""
        dense, offset = self.dense, self.offset
        if len(dense) > 1:
            dense = dense.part(rows) if isinstance(dense, ColumnRows) and isinstance(rows, slice) else dense[rows]
        if len(offset) > 1:
            offset = offset[rows]
        columns = tuple(one.part(rows) for one in self.columns)
        return SparseRows(dense, self.places, columns, offset, count(rows, self.n), self.dim)

    def weighted(self, weights: FloatArray, other: SparseRows) -> list[Entries]:
        """Return entries of sum_i weights_i a_i b_i', shape (m, m), with b the rows of another argument."""
        both = self._dense_with(weights, other)
        found = [Entries(both.ravel(), *_grid(self.places, other.places))]
        if other.columns:
            found.append(self._by_gathered(weights, other))
        if self.columns:
            own = found[-1] if other is self else other._by_gathered(weights, self)
            found.append(own.transposed())
        return found + [_products(one, beside, weights) for one in self.columns for beside in other.columns]

    def _dense_with(self, weights: FloatArray, other: SparseRows) -> FloatArray:
        if self.is_constant and other.is_constant:
            return np.asarray(weights.sum() * np.outer(self.matrix[0], other.matrix[0]))
        if self.is_constant:
            return np.outer(self.matrix[0], weights @ other.matrix)
        if other.is_constant:
            return np.outer(weights @ self.matrix, other.matrix[0])
        return np.asarray(self.matrix.T @ (weights[:, np.newaxis] * other.matrix))

    def _by_gathered(self, weights: FloatArray, other: SparseRows) -> Entries:
        """Return sum_i weights_i d_i s_i': common numbers d, and another argument's numbers s in their own places."""
        if self.is_constant:
            sums = np.outer(other.gathered.T @ weights, self.matrix[0])
        else:
            sums = np.asarray(other.gathered.T @ (weights[:, np.newaxis] * self.matrix))
        return Entries(sums.T.ravel(), *_grid(self.places, np.arange(self.dim)))


def _products(one: Column, other: Column, weights: FloatArray) -> Entries:
    """Return the sums of weighted products of two coefficients' factors."""
    rows, columns, values = one.places, other.places, np.asarray(one.factors * (other.factors * weights), np.float64)
    if (has := (rows >= 0) & (columns >= 0)).sum() < len(has):
        rows, columns, values = rows[has], columns[has], values[has]
    if other is one:
        sums = np.asarray(np.bincount(rows, values), np.float64)
        return Entries(sums, np.arange(len(sums)), np.arange(len(sums)))
    if not len(rows):
        return Entries(values, rows, columns)
    first, before = int(columns.min()), int(rows.min())
    width = int(columns.max()) - first + 1
    height = int(rows.max()) - before + 1
    if width * height > _TABLE:
        return Entries(values, rows, columns)
    sums = np.asarray(np.bincount((rows - before) * width + (columns - first), values), np.float64)
    codes = np.flatnonzero(sums != 0)  # several times as fast as of the numbers
    return Entries(sums[codes], codes // width + before, codes % width + first)


def sum_of(entries: Sequence[Entries], dim: int) -> sp.csr_array:
    """Return the matrix of entries, shape (dim, dim)."""
    if not entries:
        return sp.csr_array((dim, dim))
    values, rows, columns = (np.concatenate(part) for part in zip(*entries, strict=True))
    found = sp.coo_array((values, (rows, columns)), shape=(dim, dim)).tocsr()
    found.eliminate_zeros()
    return found


def columns_of(gathered: sp.csr_array) -> tuple[Column, ...]:
    """Return the numbers of a matrix as columns, in the order of each row; equal factors take no memory."""
    counts, starts = np.diff(gathered.indptr), gathered.indptr[:-1]
    found = []
    for k in range(int(counts.max(initial=0))):
        has = counts > k
        places, factors = np.full(len(counts), -1, np.int32), np.zeros(len(counts))
        places[has] = gathered.indices[starts[has] + k]
        factors[has] = gathered.data[starts[has] + k]
        found.append(Column(places, repeated(factors)))
    return tuple(found)


def repeated(values: FloatArray) -> FloatArray:
    """Return the same numbers, in no memory if all are equal."""
    return np.broadcast_to(values[:1], values.shape) if (values == values[:1]).all() else values


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

    @classmethod
    def mean(cls, several: Sequence[Quadratic]) -> Quadratic:
        """Return the expansion about the mean of several points, with the mean gradient and precision there."""
        point, gradient = (
            np.mean(rows, axis=0) for rows in zip(*((one.point, one.gradient) for one in several), strict=True)
        )
        precision = sp.csr_array(several[0].precision.shape)
        for one in several:
            precision = sp.csr_array(precision + one.precision / len(several))
        return cls.of(point, float(np.mean([one.value for one in several])), gradient, precision)

    @cached_property
    def precision(self) -> sp.csr_array:
        """Return the precision, shape (m, m)."""
        m = len(self.point)
        return sp.csr_array((self.values, self.columns, self.starts), shape=(m, m))

    def __call__(self, phi: FloatArray) -> float:
        """Return the value."""
        d = phi - self.point
        return float(self.value + self.gradient @ d - 0.5 * d @ (self.precision @ d))

    @property
    def is_finite(self) -> bool:
        """Return whether the value and all derivatives are finite."""
        return bool(np.isfinite(self.value) and np.isfinite(self.gradient).all() and np.isfinite(self.values).all())

    def slope(self, phi: FloatArray) -> FloatArray:
        """Return the gradient at other arguments, shape (m,)."""
        return np.asarray(self.gradient - self.precision @ (phi - self.point))


@dataclass(frozen=True)
class SparsePredictors:
    """A likelihood in its own arguments."""

    rows: tuple[SparseRows, ...]
    """One element for each of the family's arguments."""
    family: Family
    constant: float = 0.0
    """The program's log likelihood less the family's."""
    # Objects made from the predictors, with their expansion (see `stansub.target.group_candidates.shared`).
    latest: list[tuple[Quadratic, Any]] = field(default_factory=list, repr=False, compare=False)

    @property
    def dim(self) -> int:
        """Return m."""
        return self.rows[0].dim

    def empty(self) -> sp.csr_array:
        """Return a matrix of zeros, shape (m, m)."""
        return sp.csr_array((self.dim, self.dim))

    @cached_property
    def n_observations(self) -> int:
        """Return n."""
        return self.rows[0].n

    def at(self, phi: FloatArray) -> FloatArray:
        """Return the arguments, shape (q, n): for a part, or few observations."""
        return np.stack([one(phi) + one.offset for one in self.rows])

    def part(self, rows: Rows) -> SparsePredictors:
        """Return the likelihood of some observations without the constant, as views if these are a slice."""
        return SparsePredictors(tuple(one.part(rows) for one in self.rows), self.family.part(rows))

    def each(self, work: Callable[[SparsePredictors, slice], R], *, size: int = PART) -> list[R]:
        """Return the results of ``work`` on parts of all observations, in order; threads share many parts."""
        parts = slices(self.n_observations, size)

        def of(rows: slice) -> R:
            with np.errstate(over="ignore", invalid="ignore"):
                return work(self.part(rows), rows)

        if len(parts) == 1:
            return [of(parts[0])]
        with one_blas_thread(), ThreadPoolExecutor(max_workers=THREADS) as pool:
            return list(pool.map(of, parts))

    @cached_property
    def arguments(self) -> _loop.Arguments:
        """Return the rows for C++, which reads them where they are."""
        n, columns = self.n_observations, [(k, column) for k, row in enumerate(self.rows) for column in row.columns]
        return _loop.Arguments(
            rows=[row.runs for row in self.rows],
            places=[row.places.astype(np.int32) for row in self.rows],
            offsets=[np.broadcast_to(repeated(row.offset), n) for row in self.rows],
            gathered_of=[k for k, _ in columns],
            gathered_places=[column.places for _, column in columns],
            gathered_factors=[repeated(column.factors) for _, column in columns],
            n=n,
            dim=self.dim,
        )

    @property
    def data(self) -> list[NDArray[Any]]:
        """Return the data of the family's density, p columns of shape (n,)."""
        return [np.broadcast_to(one, self.n_observations) for one in self.family.data]

    @cached_property
    def full_data(self) -> _loop.FullData:
        """Return the log likelihood of all observations for C++."""
        return _loop.FullData(self.arguments, self.family.density, self.data, self.constant)

    @property
    def microseconds(self) -> float:
        """Return about how long the log likelihood of all observations takes; with its gradient, twice as long."""
        return 1e-3 * self.n_observations * (self.family.nanoseconds + self.n_read)

    @property
    def n_read(self) -> int:
        """Return how many numbers the arguments of an observation read."""
        return sum(len(row.places) + len(row.columns) for row in self.rows)

    def log_lik(self, phi: FloatArray) -> float:
        """Return the log likelihood of all observations; minus infinity where undefined."""
        value = self.full_data.log_lik(phi)
        return value if np.isfinite(value) else -np.inf

    def gradient(self, phi: FloatArray) -> FloatArray:
        """Return the gradient of the log likelihood, shape (m,)."""

        def of(part: SparsePredictors, _: slice) -> FloatArray:
            (slopes,) = part.family.derivatives((1,), part.at(phi))
            return part.back(slopes)

        return np.asarray(sum(self.each(of, size=_BLOCK), start=np.zeros(self.dim)))

    def back(self, slopes: FloatArray) -> FloatArray:
        """Return the gradient, shape (m,), from those in the arguments, shape (q, n)."""
        return np.asarray(np.sum([row.back(one) for row, one in zip(self.rows, slopes, strict=True)], axis=0))

    def expansion(self, phi: FloatArray) -> Quadratic:
        """Return the expansion about a point."""
        values, gradients, precisions = zip(*self.each(lambda part, _: part.expanded(phi)), strict=True)
        precision = sum(precisions[1:], start=precisions[0])
        return Quadratic.of(phi, sum(values) + self.constant, np.sum(gradients, axis=0), sp.csr_array(precision))

    def expansions(self, points: Sequence[FloatArray]) -> list[Quadratic]:
        """Return the expansions about points, which threads share if the observations are a single part."""
        if self.n_observations > PART:
            return [self.expansion(phi) for phi in points]
        with one_blas_thread(), ThreadPoolExecutor(max_workers=THREADS) as pool:
            return list(pool.map(self.expansion, points))

    def expanded(self, phi: FloatArray) -> tuple[float, FloatArray, sp.csr_array]:
        """Return value, gradient and precision of the expansion, without the constant."""
        values, slopes, curvatures = self.family.derivatives((0, 1, 2), self.at(phi))
        found = list[Entries]()
        for j, k in zip(*np.triu_indices(len(self.rows)), strict=True):
            if curvatures[j, k].any():
                weights = -np.ascontiguousarray(np.broadcast_to(curvatures[j, k], self.n_observations))
                own = self.rows[j].weighted(weights, self.rows[k])
                found += own if j == k else [*own, *(one.transposed() for one in own)]
        return float(values.sum()), self.back(slopes), sum_of(found, self.dim)
