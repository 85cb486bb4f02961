"""Coefficients of groupings: columns of sparse rows, and shifts that cancel in every predictor."""

from __future__ import annotations

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


class Recentred:
    """Changes of phi without shifts that cancel in every predictor.

    If each observation reads one element of a grouping with a factor that is a combination of the common numbers, such
    as 1 beside an intercept, those numbers' coefficients can absorb a common shift of its elements. Bounds term by term
    would count the shift twice.

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
        self.shifts = [one for one in found if not shared & {*one.places.tolist(), *one.dense.tolist()}]

    def __call__(self, phi: FloatArray) -> FloatArray:
        """Return the change that gives the same predictors."""
        found = phi.copy()
        for one in self.shifts:
            mean = float(one.weights @ (found[one.places] - self._point[one.places]))
            found[one.places] -= mean
            found[one.dense] += mean * one.coefficients
        return found


class Shift(NamedTuple):
    """Places of a grouping with weights that sum to 1, and the coefficients equivalent to a shift of 1."""

    places: NDArray[np.int64]
    weights: FloatArray
    dense: NDArray[np.int64]
    coefficients: FloatArray


def _shifts(row: SparseRows) -> list[Shift]:
    found: list[Shift] = []
    if row.is_constant or not row.places.size:
        return found
    for places, factors in columns(row):
        if (places < 0).any():
            continue
        coefficients, *_ = np.linalg.lstsq(row.dense, factors, rcond=None)
        if np.abs(row.dense @ coefficients - factors).max() > _SAME * np.abs(factors).max():
            continue
        counts = np.bincount(places)
        own = np.flatnonzero(counts)
        weights = np.asarray(counts[own] / len(places), np.float64)
        found.append(Shift(own, weights, row.places, np.asarray(coefficients, np.float64)))
    return found
