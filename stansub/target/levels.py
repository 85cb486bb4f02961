"""Groupings of coefficients whose levels are independent given the rest: no observation reads two levels of one.

Coefficients that the same observations read form a level, such as the discrimination and the difficulty of an item.
Levels that some observation reads together conflict, and a greedy colouring of the conflicts gives the groupings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.target.remainders import Family, NoPredictorsError
from stansub.target.sparse import SparsePredictors, SparseRows
from stansub.types import FloatArray

# Groupings beyond which a sweep takes too many passes, as if teams that play each other were levels.
_MOST = 12


class Grouping(NamedTuple):
    """Levels with the same number of coefficients each, of which an observation reads one at most.

    Attributes
    ----------
    places : ndarray, shape (n_levels, size)
    of : ndarray, shape (n,)
        Level of each observation, n_levels for none.
    """

    places: NDArray[np.int64]
    of: NDArray[np.int64]

    @property
    def is_common(self) -> bool:
        """Return whether it has a single level, such as the coefficients that all observations read."""
        return len(self.places) == 1

    def sums(self, values: FloatArray) -> FloatArray:
        """Return the sums of values of observations by level, shape (n_levels,)."""
        n = len(self.places)
        return np.asarray(np.bincount(self.of, values, minlength=n + 1)[:n], np.float64)

    def among(self, which: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which observations are of some levels, shape (n,)."""
        return np.append(which, False)[self.of]

    def blocks(self, matrix: sp.csr_array) -> FloatArray:
        """Return the elements of a matrix between coefficients of the same level, shape (n_levels, size, size)."""
        rows, columns = (self.places[:, :, np.newaxis], self.places[:, np.newaxis, :])
        shape = np.broadcast_shapes(rows.shape, columns.shape)
        found = matrix[np.broadcast_to(rows, shape).ravel(), np.broadcast_to(columns, shape).ravel()]
        return np.asarray(found, np.float64).reshape(shape)


@dataclass(frozen=True)
class LevelRows:
    """Rows of all arguments as one matrix, and its parts for the coefficients of each grouping.

    Attributes
    ----------
    offset : ndarray, shape (q, n)
    rows : csr_array, shape (q n, dim)
    by_grouping : tuple of csr_array, shape (n_levels size, q n)
    """

    family: Family
    offset: FloatArray
    rows: sp.csr_array
    by_grouping: tuple[sp.csr_array, ...]
    shapes: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, predictors: SparsePredictors, levels: Sequence[Grouping]) -> LevelRows:
        """Return the rows of a likelihood."""
        n = predictors.n_observations
        whole, offsets = [], []
        for row in predictors.rows:
            whole.append(row.gathered + _common(row, n, predictors.dim))
            offsets.append(np.broadcast_to(row.offset, n))
        rows = sp.csr_array(sp.vstack(whole))
        by_grouping = tuple(sp.csr_array(rows[:, one.places.ravel()].T) for one in levels)
        shapes = tuple(one.places.shape for one in levels)
        return cls(predictors.family, np.stack(offsets), rows, by_grouping, shapes)

    @property
    def n_observations(self) -> int:
        """Return n."""
        return int(self.offset.shape[1])

    def at(self, x: FloatArray) -> FloatArray:
        """Return the arguments, shape (q, n)."""
        found = (self.rows @ x).reshape(self.offset.shape)
        found += self.offset
        return np.asarray(found, np.float64)

    def back(self, which: int, slopes: FloatArray) -> FloatArray:
        """Return the gradient in the coefficients of a grouping, shape (n_levels, size)."""
        return np.asarray(self.by_grouping[which] @ slopes.ravel()).reshape(self.shapes[which])


def _common(row: SparseRows, n: int, dim: int) -> sp.csr_array:
    """Return the numbers in common places as a sparse matrix, shape (n, dim)."""
    dense = np.broadcast_to(row.matrix, (n, len(row.places)))
    starts = np.arange(n + 1) * len(row.places)
    return sp.csr_array((dense.ravel(), np.tile(row.places, n), starts), shape=(n, dim))


def groupings(predictors: SparsePredictors) -> tuple[Grouping, ...]:
    """Return the groupings; coefficients that all observations read are the last one, of a single level.

    Raises
    ------
    NoPredictorsError
        If there are too many.
    """
    levels, incidence = _levels(predictors)
    members: dict[tuple[int, int], list[int]] = {}
    for level, colour in enumerate(_colours(sp.csr_array(incidence.T @ incidence))):
        members.setdefault((colour, len(levels[level])), []).append(level)
    if len(members) > _MOST:
        raise NoPredictorsError(f"the levels that observations read are of {len(members)} groupings or more")
    found = [_grouping(np.array([levels[level] for level in own]), incidence[:, own]) for own in members.values()]
    common = np.unique(np.concatenate([row.places for row in predictors.rows])).astype(np.int64)
    if common.size:
        found.append(Grouping(common[np.newaxis], np.zeros(predictors.n_observations, np.int64)))
    return tuple(found)


def _levels(predictors: SparsePredictors) -> tuple[list[list[int]], sp.csc_array]:
    """Return the coefficients of each level, and which observations read it, shape (n, n_levels)."""
    read = sp.csc_array(sum((abs(row.gathered) for row in predictors.rows), start=predictors.rows[0].gathered * 0))
    read.sort_indices()
    by_observations: dict[bytes, list[int]] = {}
    for place in range(predictors.dim):
        own = read.indices[read.indptr[place] : read.indptr[place + 1]]
        if len(own):
            by_observations.setdefault(own.tobytes(), []).append(place)
    levels = list(by_observations.values())
    incidence = sp.csc_array(read[:, [level[0] for level in levels]])
    incidence.data = np.ones(incidence.nnz)
    return levels, incidence


def _colours(conflicts: sp.csr_array) -> list[int]:
    """Return the first colour for each level that no earlier level in conflict with it has."""
    found: list[int] = []
    for level in range(conflicts.shape[0]):
        others = conflicts.indices[conflicts.indptr[level] : conflicts.indptr[level + 1]]
        taken = {found[other] for other in others if other < level}
        found.append(next(colour for colour in count() if colour not in taken))
    return found


def _grouping(places: NDArray[np.int64], incidence: sp.csc_array) -> Grouping:
    of = np.full(incidence.shape[0], len(places))
    of[incidence.indices] = np.repeat(np.arange(len(places)), np.diff(incidence.indptr))
    return Grouping(places, of)
