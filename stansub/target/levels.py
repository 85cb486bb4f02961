"""Groupings of coefficients whose levels are independent given the rest: no observation reads two levels of one.

Coefficients that the same observations read form a level, such as the discrimination and the difficulty of an item.
Levels that some observation reads together conflict, and a greedy colouring of the conflicts gives the groupings.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub import _loop
from stansub.target.remainders import NoPredictorsError
from stansub.target.sparse import SparsePredictors
from stansub.types import FloatArray

# Groupings beyond which a sweep takes too many passes, as if teams that play each other were levels.
_MOST = 12


class Grouping(NamedTuple):
    """Levels with the same number of coefficients each, of which an observation reads one at most."""

    places: NDArray[np.int64]
    """Shape (n_levels, size)."""
    of: NDArray[np.int32]
    """Shape (n,): level of each observation, n_levels for none."""

    @property
    def is_common(self) -> bool:
        """Return whether it has a single level, such as the coefficients that all observations read."""
        return len(self.places) == 1

    def blocks(self, matrix: sp.csr_array) -> FloatArray:
        """Return the elements of a matrix between coefficients of the same level, shape (n_levels, size, size)."""
        rows, columns = (self.places[:, :, np.newaxis], self.places[:, np.newaxis, :])
        shape = np.broadcast_shapes(rows.shape, columns.shape)
        found = matrix[np.broadcast_to(rows, shape).ravel(), np.broadcast_to(columns, shape).ravel()]
        return np.asarray(found, np.float64).reshape(shape)


class LevelPasses:
    """Log likelihoods of all observations and their gradients, at the state of a chain and at a proposal.

    If the likelihood is a program, a pass over the observations computes arguments, log likelihoods, gradients and
    their sums by level at once (``cpp/levels.hpp``).
    """

    def __init__(self, predictors: SparsePredictors, levels: Sequence[Grouping]) -> None:
        self._family, self._levels, self._dim = predictors.family, tuple(levels), predictors.dim
        self.n_observations = predictors.n_observations
        density = self._family.density
        self._program = density if isinstance(density, _loop.Program) else None
        self._loop = _loop.LevelPasses(
            predictors.arguments,
            levels=[one.of for one in levels],
            level_places=[one.places.ravel().astype(np.int32) for one in levels],
            n_levels=[len(one.places) for one in levels],
            program=self._program,
            data=np.ascontiguousarray(self._family.data, np.float64) if self._program else None,
        )

    def place(self, x: FloatArray) -> None:
        """Make coefficients the state."""
        self._evaluate(x)
        self._loop.place(x)

    def state(self) -> FloatArray:
        """Return log likelihoods at the state, and their gradients in the arguments, shape (1 + q, n)."""
        self._loop.apply()
        return self._loop.state

    def slopes(self, which: int) -> FloatArray:
        """Return the gradient at the state in the coefficients of a grouping, shape (n_levels, size)."""
        found = np.empty(self._dim)
        self._loop.slopes(which, found)
        return found[self._levels[which].places]

    def propose(self, x: FloatArray, which: int) -> tuple[FloatArray, FloatArray]:
        """Return the changes of the log likelihood by level of a grouping, and the gradient, both at a proposal.

        Their shapes are (n_levels,) and (n_levels, size).
        """
        places = self._levels[which].places
        change, slopes = np.empty(len(places) + 1), np.empty(self._dim)
        self._evaluate(x)
        self._loop.propose(x, which, change, slopes)
        return change[:-1], slopes[places]

    def settle(self, which: int, accepted: NDArray[np.bool_]) -> None:
        """Make the proposal the state of observations of accepted levels."""
        self._loop.settle(which, accepted)

    def _evaluate(self, x: FloatArray) -> None:
        """Evaluate the observations at a proposal, unless passes evaluate a program."""
        if self._program is not None:
            return
        self._loop.apply()
        proposed = self._loop.proposed
        eta = np.empty((len(proposed) - 1, self.n_observations))
        self._loop.arguments(x, eta)
        with np.errstate(over="ignore", invalid="ignore"):
            proposed[0], proposed[1:] = self._family.gradients(eta)


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
        found.append(Grouping(common[np.newaxis], np.zeros(predictors.n_observations, np.int32)))
    return tuple(found)


def multiplies(predictors: SparsePredictors) -> bool:
    """Return whether observations multiply coefficients of two groupings, such as discrimination and ability.

    The family is then unknown, because the predictors of known families are affine. Functions of one argument, in which
    groupings add up, may be multiplied.
    """
    products = [pair for pair in predictors.family.products() if all(pair)]
    try:
        levels = [set(one.places.flat) for one in groupings(predictors) if not one.is_common] if products else []
    except NoPredictorsError:
        return False
    read = [{k for k, own in enumerate(levels) if not own.isdisjoint(row.read)} for row in predictors.rows]
    factors = ((read[k], read[j]) for one, other in products for k in one for j in other if k != j)
    return any(one and other and len(one | other) > 1 for one, other in factors)


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
    of = np.full(incidence.shape[0], len(places), np.int32)
    of[incidence.indices] = np.repeat(np.arange(len(places)), np.diff(incidence.indptr))
    return Grouping(places, of)
