"""Coefficients of groupings: columns of sparse rows, and shifts that cancel in every predictor."""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stansub.target.sparse import SparsePredictors, SparseRows
from stansub.types import FloatArray

# Rounding of a factor as a combination of others.
_SAME = 1e-12


class Column(NamedTuple):
    """One coefficient of each observation: its place (-1 for none) and its factor."""

    places: NDArray[np.int32]
    factors: FloatArray

    def change(self, change: FloatArray) -> FloatArray:
        """Return the change of each observation's argument with one of the coefficients, shape (m,)."""
        return np.where(self.places >= 0, self.factors * change[self.places], 0.0)

    def sums(self, values: FloatArray, m: int) -> FloatArray:
        """Return the sums of values of observations by coefficient, shape (m,)."""
        has = self.places >= 0
        return np.asarray(np.bincount(self.places[has], values[has], minlength=m), np.float64)


class Pairs(NamedTuple):
    """Two coefficients of each level of a grouping, or of one grouping within another.

    Attributes
    ----------
    arguments : (int, int)
        Which argument reads each.
    columns : (Column, Column)
    places : ndarray, shape (2, p)
        The pairs that occur.
    of : ndarray, shape (n,)
        The pair of each observation, p for none.
    """

    arguments: tuple[int, int]
    columns: tuple[Column, Column]
    places: NDArray[np.int64]
    of: NDArray[np.int64]

    def sums(self, values: FloatArray) -> FloatArray:
        """Return the sums of values of observations by pair, shape (p,)."""
        n = self.places.shape[1]
        return np.asarray(np.bincount(self.of, values, minlength=n + 1)[:n], np.float64)


def pairs(predictors: SparsePredictors) -> list[Pairs]:
    """Return coefficients that occur in no more pairs than there are of one of them; crossed groupings have more."""
    found = []
    every = [(k, column) for k, row in enumerate(predictors.rows) for column in columns(row)]
    for (j, one), (k, other) in combinations(every, 2):
        has = (one.places >= 0) & (other.places >= 0) & (one.places != other.places)
        own = [np.unique(column.places[has]) for column in (one, other)]
        codes, of_those = np.unique(one.places[has] * np.int64(predictors.dim) + other.places[has], return_inverse=True)
        if not 0 < len(codes) <= max(map(len, own)):
            continue
        of = np.full(len(has), len(codes))
        of[has] = of_those
        found.append(Pairs((j, k), (one, other), np.stack(np.divmod(codes, predictors.dim)), of))
    return found


def columns(row: SparseRows) -> list[Column]:
    """Return coefficients of an argument in an observation's own places, one per observation at a time."""
    counts, starts = np.diff(row.gathered.indptr), row.gathered.indptr[:-1]
    found = []
    for k in range(int(counts.max(initial=0))):
        has = counts > k
        places, factors = np.full(row.n, -1, np.int32), np.zeros(row.n)
        places[has] = row.gathered.indices[starts[has] + k]
        factors[has] = row.gathered.data[starts[has] + k]
        found.append(Column(places, factors))
    return found


class Means(NamedTuple):
    """Weighted means of changes of phi, from which coefficients of groupings are counted.

    Attributes
    ----------
    of : ndarray of int32, shape (m,)
        Index of each coefficient's mean; the last mean is 0.
    weights : ndarray
        Weights of the means, concatenated.
    columns, starts : ndarray of int32
        Columns of the weights, and the start of each mean's weights.
    """

    of: NDArray[np.int32]
    weights: FloatArray
    columns: NDArray[np.int32]
    starts: NDArray[np.int32]


class Recentred:
    """Changes of phi without shifts that cancel in every predictor.

    If each observation reads one element of a grouping with a factor that is a combination of the common numbers, such
    as 1 beside an intercept, those numbers' coefficients can absorb a common shift of its elements. So can another
    grouping without such numbers, as difficulties absorb a shift of abilities. Bounds term by term would count the
    shift twice.

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
        found = [one for row in predictors.rows for one in _shifts(row)]
        # A shift that one argument removes may be read by another.
        read = [set(row.places.tolist()) | set(row.gathered.indices.tolist()) for row in predictors.rows]
        shared = {place for k, one in enumerate(read) for other in read[:k] for place in one & other}
        self.shifts = [one for one in found if not shared & {*one.places.tolist(), *one.absorbing.tolist()}]

    def __call__(self, phi: FloatArray) -> FloatArray:
        """Return the change that gives the same predictors."""
        found = phi.copy()
        for one in self.shifts:
            mean = float(one.weights @ (found[one.places] - self._point[one.places]))
            found[one.places] -= mean
            found[one.absorbing] += mean * one.coefficients
        return found

    def means(self) -> Means:
        """Return the means that this removes from coefficients of groupings."""
        removed = [(one.places, one.places, one.weights) for one in self.shifts]
        by_grouping: dict[bytes, list[Shift]] = {}
        for one in self.shifts:
            if one.by_grouping:
                by_grouping.setdefault(one.absorbing.tobytes(), []).append(one)
        for those in by_grouping.values():
            weights = [-one.coefficients[0] * one.weights for one in those]
            removed.append((those[0].absorbing, np.concatenate([one.places for one in those]), np.concatenate(weights)))
        of = np.full(len(self._point), len(removed), np.int32)
        for k, (places, _, _) in enumerate(removed):
            of[places] = k
        starts = np.cumsum([0, *(len(weights) for _, _, weights in removed), 0])
        columns = np.concatenate([np.empty(0), *(own for _, own, _ in removed)])
        numbers = np.concatenate([np.empty(0), *(own for _, _, own in removed)])
        return Means(of, numbers, columns.astype(np.int32), starts.astype(np.int32))


class Shift(NamedTuple):
    """Places of a grouping with weights that sum to 1, and the coefficients equivalent to a shift of 1.

    Attributes
    ----------
    places : ndarray
    weights : ndarray
    absorbing : ndarray
        Places of the common numbers' coefficients, or of another grouping.
    coefficients : ndarray
    by_grouping : bool
        Whether it is a grouping; its coefficients are equal.
    """

    places: NDArray[np.int64]
    weights: FloatArray
    absorbing: NDArray[np.int64]
    coefficients: FloatArray
    by_grouping: bool


def _shifts(row: SparseRows) -> list[Shift]:
    found: list[Shift] = []
    whole = [one for one in columns(row) if (one.places >= 0).all()]
    for column in whole:
        absorbed = _by_common(row, column) or _by_grouping(column, whole[-1])
        if absorbed:
            counts = np.bincount(column.places)
            own = np.flatnonzero(counts)
            found.append(Shift(own, np.asarray(counts[own] / row.n, np.float64), *absorbed))
    return found


def _by_common(row: SparseRows, column: Column) -> tuple[NDArray[np.int64], FloatArray, bool] | None:
    """Return the common numbers' coefficients that absorb a shift of a grouping."""
    if not row.places.size:
        return None
    dense = np.broadcast_to(row.dense, (row.n, len(row.places)))
    coefficients, *_ = np.linalg.lstsq(dense, column.factors, rcond=None)
    if np.abs(dense @ coefficients - column.factors).max() > _SAME * np.abs(column.factors).max():
        return None
    return row.places, np.asarray(coefficients, np.float64), False


def _by_grouping(column: Column, other: Column) -> tuple[NDArray[np.int64], FloatArray, bool] | None:
    """Return the elements of another grouping that absorb a shift, if the factors have a constant ratio."""
    if other is column or not other.factors.all():
        return None
    ratios = column.factors / other.factors
    if np.abs(ratios - ratios[0]).max() > _SAME * np.abs(ratios[0]):
        return None
    places = np.unique(other.places).astype(np.int64)
    return places, np.full(len(places), ratios[0]), True
