"""Coefficients of groupings: columns of sparse rows, and shifts that cancel in every predictor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, compress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stansub.target.rows import Rows
from stansub.target.sparse import Column, SparsePredictors, SparseRows, slices
from stansub.types import FloatArray

# Rounding of a factor as a combination of others.
_SAME = 1e-12
# Observations for each coefficient that may absorb a shift, from which these coefficients are found.
_EACH = 8


class JoinedColumns(NamedTuple):
    """Columns of an argument that read the same coefficients: a grouping, of which observations may read several."""

    which: tuple[int, ...]
    """Indices of the columns."""
    counts: NDArray[np.int64]
    """Shape (m,): how often each coefficient is read."""

    @property
    def places(self) -> NDArray[np.int64]:
        """Return the places of the coefficients."""
        return np.flatnonzero(self.counts)


def joined_columns(row: SparseRows) -> list[JoinedColumns]:
    """Return the groupings of an argument: its columns, together if they share a coefficient."""
    found: list[JoinedColumns] = []
    for k, column in enumerate(row.columns):
        one = JoinedColumns((k,), column.counts(row.dim))
        shares = [bool((other.counts * one.counts).any()) for other in found]
        for other in compress(found, shares):
            one = JoinedColumns((*other.which, *one.which), other.counts + one.counts)
        found = [*(other for other, is_shared in zip(found, shares, strict=True) if not is_shared), one]
    return sorted((one for one in found if one.counts.any()), key=lambda one: one.which)


class Pairs(NamedTuple):
    """Two coefficients of each level of a grouping, or of one grouping within another."""

    arguments: tuple[int, int]
    """Which argument reads each."""
    columns: tuple[int, int]
    """Which columns of these arguments they are."""
    places: NDArray[np.int64]
    """Shape (2, p): the pairs that occur."""
    codes: NDArray[np.int64]
    """Shape (p,): the same as numbers, in increasing order."""
    dim: int
    """m."""

    def sums(self, part: SparsePredictors, values: FloatArray) -> FloatArray:
        """Return the sums of values of some observations by pair, shape (p,)."""
        has, codes = _codes(*self.of(part), self.dim)
        own = np.searchsorted(self.codes, codes)
        return np.asarray(np.bincount(own, values[has], minlength=len(self.codes)), np.float64)

    def of(self, part: SparsePredictors) -> tuple[Column, Column]:
        """Return the coefficients of some observations."""
        (j, k), (one, other) = self.arguments, self.columns
        return part.rows[j].columns[one], part.rows[k].columns[other]


def pairs(predictors: SparsePredictors) -> list[Pairs]:
    """Return coefficients that occur in no more pairs than there are of one of them; crossed groupings have more.

    If several arguments read the same pairs, these are returned once.
    """
    found, seen, m, n = list[Pairs](), list[NDArray[np.int64]](), predictors.dim, predictors.n_observations
    every = [(k, j, column) for k, row in enumerate(predictors.rows) for j, column in enumerate(row.columns)]
    for (k, i, one), (other_k, j, other) in combinations(every, 2):
        most = max(np.count_nonzero(column.counts(m)) for column in (one, other))
        codes = np.empty(0, np.int64)
        read = np.zeros((2, m), bool)
        for rows in slices(n):
            _, own = _codes(one.part(rows), other.part(rows), m)
            codes = np.union1d(codes, own)
            for which, places in zip(read, np.divmod(own, m), strict=True):
                which[places] = True
            if len(codes) > most:
                break
        places = np.stack(np.divmod(codes, m))
        either_way = np.sort(places.min(axis=0) * m + places.max(axis=0))
        if 0 < len(codes) <= read.sum(axis=1).max() and not any(np.array_equal(either_way, one) for one in seen):
            seen.append(either_way)
            found.append(Pairs((k, other_k), (i, j), places, codes, m))
    return found


def _codes(one: Column, other: Column, m: int) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Return which observations read two different coefficients, and the pairs of these as numbers."""
    has = (one.places >= 0) & (other.places >= 0) & (one.places != other.places)
    return has, one.places[has] * np.int64(m) + other.places[has]


@dataclass(frozen=True)
class Means:
    """Weighted means of changes of phi, from which coefficients are counted."""

    of: NDArray[np.int32]
    """Shape (m,): index of each coefficient's mean; the last mean is 0."""
    weights: FloatArray
    """Weights of the means, concatenated."""
    columns: NDArray[np.int32]
    starts: NDArray[np.int32]
    """Columns of the weights, and the start of each mean's weights."""

    @classmethod
    def none(cls, m: int) -> Means:
        """Return means that are 0."""
        nowhere = np.empty(0, np.int32)
        return cls(np.zeros(m, np.int32), np.empty(0), nowhere, np.zeros(2, np.int32))

    @property
    def n(self) -> int:
        """Return the number of means."""
        return len(self.starts) - 1

    def values(self, change: FloatArray) -> FloatArray:
        """Return the means, shape (n,)."""
        weighted = self.weights * change[self.columns]
        return np.asarray(np.bincount(self._mean, weighted, minlength=self.n), np.float64)

    def removed(self, change: FloatArray) -> FloatArray:
        """Return changes less their means, shape (m,)."""
        return np.asarray(change - self.values(change)[self.of], np.float64)

    def back(self, slopes: FloatArray, m: int) -> FloatArray:
        """Return the gradient by changes from that by the means, shape (m,)."""
        found = np.bincount(self.columns, self.weights * slopes[self._mean], minlength=m)
        return np.asarray(found, np.float64)

    @cached_property
    def _mean(self) -> NDArray[np.int64]:
        """Return the index of the mean to which each weight belongs."""
        return np.repeat(np.arange(self.n), np.diff(self.starts))


class Recentred:
    """Changes of phi without shifts that cancel in every predictor.

    If the factors of a grouping's elements that an observation reads add up to a combination of the common numbers,
    such as 1 beside an intercept or 0 and 1 beside a treatment, those numbers' coefficients can absorb a common shift
    of its elements. So can another grouping without such numbers, as difficulties absorb a shift of abilities. If the
    factors add up to 0, as those of the two sides of a match, a shift cancels on its own. Bounds term by term would
    count the shift twice.

    Parameters
    ----------
    point : ndarray, shape (m,)
        Point from which changes are counted.

    Attributes
    ----------
    shifts : list of Shift
        The shifts that are removed.
    """

    def __init__(self, predictors: SparsePredictors, point: FloatArray) -> None:
        self._point = point
        self.shifts: list[Shift] = []
        read, removed = [row.read for row in predictors.rows], set[int]()
        for one in (one for row in predictors.rows for one in _shifts(predictors.rows, row)):
            # Common coefficients absorb a shift in all arguments that read it; another grouping may do so in one only.
            places = {*one.places.tolist(), *one.absorbing.tolist()} if one.by_grouping else set()
            reading = [row for row, own in zip(predictors.rows, read, strict=True) if own & places]
            if removed.isdisjoint(one.places.tolist()) and all(_cancels(row, one) for row in reading):
                self.shifts.append(one)
                removed.update(one.places.tolist())

    def __call__(self, phi: FloatArray) -> FloatArray:
        """Return the change that gives the same predictors."""
        found = phi.copy()
        for one in self.shifts:
            mean = float(one.weights @ (found[one.places] - self._point[one.places]))
            found[one.places] -= mean
            found[one.absorbing] += mean * one.coefficients
        return found

    def means(self) -> Means:
        """Return the means that this removes from coefficients, of groupings and of what absorbs their shifts."""
        removed = [(one.places, one.places, one.weights) for one in self.shifts]
        absorbed: dict[tuple[int, ...], list[tuple[Shift, float]]] = {}
        for one in self.shifts:
            own = one.absorbing.tolist()
            every = [tuple(own)] if one.by_grouping else [(k,) for k in own]
            for which, coefficient in zip(every, one.coefficients.tolist(), strict=False):
                if coefficient:
                    absorbed.setdefault(which, []).append((one, coefficient))
        for which, those in absorbed.items():
            weights = [-coefficient * one.weights for one, coefficient in those]
            columns = np.concatenate([one.places for one, _ in those])
            removed.append((np.array(which), columns, np.concatenate(weights)))
        of = np.full(len(self._point), len(removed), np.int32)
        for k, (places, _, _) in enumerate(removed):
            of[places] = k
        starts = np.cumsum([0, *(len(weights) for _, _, weights in removed), 0])
        columns = np.concatenate([np.empty(0), *(own for _, own, _ in removed)])
        numbers = np.concatenate([np.empty(0), *(own for _, _, own in removed)])
        return Means(of, numbers, columns.astype(np.int32), starts.astype(np.int32))


class Shift(NamedTuple):
    """Places of a grouping with weights that sum to 1, and the coefficients equivalent to a shift of 1."""

    places: NDArray[np.int64]
    weights: FloatArray
    absorbing: NDArray[np.int64]
    """Places of the common numbers' coefficients, which may be none, or of another grouping."""
    coefficients: FloatArray
    by_grouping: bool
    """Whether it is a grouping; its coefficients are equal."""


def _cancels(row: SparseRows, shift: Shift) -> bool:
    """Return whether a shift and what absorbs it together change no observation's argument."""
    change = np.zeros(row.dim)
    change[shift.places] = 1.0
    sizes = np.abs(row(change))
    change[shift.absorbing] -= shift.coefficients
    return bool((np.abs(row(change)) <= 10 * _SAME * sizes).all())


def _shifts(rows: Sequence[SparseRows], row: SparseRows) -> list[Shift]:
    """Return shifts of the groupings of one of the arguments."""
    found, groupings = list[Shift](), joined_columns(row)
    last = next((one for one in reversed(groupings) if _is_whole(row, one)), None)
    for one in groupings:
        # Also if a factor is 0, as those of a treatment's effects without it.
        absorbed = _by_common(rows, row, one.places)
        if absorbed is None and last is not None and one is not last:
            absorbed = _by_grouping(row, one, last)
        if absorbed:
            weights = one.counts[one.places] / one.counts.sum()
            found.append(Shift(one.places, np.asarray(weights, np.float64), *absorbed))
    return found


def _is_whole(row: SparseRows, one: JoinedColumns) -> bool:
    """Return whether a shift of a grouping changes all observations."""
    return all(_shifted(row.part(rows), one.places).all() for rows in slices(row.n))


def _shifted(row: SparseRows, places: NDArray[np.int64]) -> FloatArray:
    """Return what a shift of some coefficients by 1 adds to the argument, shape (n,)."""
    change = np.zeros(row.dim)
    change[places] = 1.0
    return row(change)


def _by_common(
    rows: Sequence[SparseRows], row: SparseRows, own: NDArray[np.int64]
) -> tuple[NDArray[np.int64], FloatArray, bool] | None:
    """Return the common coefficients of an argument that absorb a shift of a grouping, in all arguments.

    None are needed if the shift cancels within the grouping, as in a difference of two of its elements. They are found
    on a few of the observations; one that they do not suit joins these.
    """
    shifted = {*own.tolist(), *row.places.tolist()}
    change, alike = np.zeros(row.dim), [one for one in rows if one.read & shifted]
    change[own] = 1.0
    parts = slices(row.n)
    step = max(1, row.n // (_EACH * (len(row.places) + 1)))
    known, factors = _equations(alike, change, row.places, np.arange(0, row.n, step))
    most = max(float(np.abs(_equations(alike, change, row.places, part)[1]).max()) for part in parts)
    for _ in range(len(row.places) + 2):
        coefficients, *_ = np.linalg.lstsq(known, factors, rcond=None)
        if np.abs(known @ coefficients - factors).max() > _SAME * most:
            return None
        number, misfit = 0, 0.0
        for part in parts:
            numbers, wanted = _equations(alike, change, row.places, part)
            errors = np.abs(numbers @ coefficients - wanted).reshape(len(alike), -1).max(axis=0)
            if errors.max() > max(misfit, _SAME * most):
                number, misfit = part.start + int(np.argmax(errors)), float(errors.max())
        if not misfit:
            return row.places, np.asarray(coefficients, np.float64), False
        numbers, wanted = _equations(alike, change, row.places, slice(number, number + 1))
        known, factors = np.concatenate([known, numbers]), np.concatenate([factors, wanted])
    return None


def _equations(
    rows: Sequence[SparseRows], change: FloatArray, places: NDArray[np.int64], part: Rows
) -> tuple[FloatArray, FloatArray]:
    """Return some observations' numbers at common places, and what a change of phi adds, argument by argument."""
    numbers, added = [], []
    for row in (one.part(part) for one in rows):
        own = np.zeros((row.n, len(places)))
        common, here, there = np.intersect1d(places, row.places, return_indices=True)
        if common.size:
            own[:, here] = row.matrix[:, there]
        numbers.append(own)
        added.append(row(change))
    return np.concatenate(numbers), np.concatenate(added)


def _by_grouping(
    row: SparseRows, one: JoinedColumns, other: JoinedColumns
) -> tuple[NDArray[np.int64], FloatArray, bool]:
    """Return the elements of another grouping that may absorb a shift: if all factors have the ratio of the first."""
    first = row.part(slice(0, 1))
    ratio = _shifted(first, one.places) / _shifted(first, other.places)
    return other.places, np.full(len(other.places), ratio.item()), True
