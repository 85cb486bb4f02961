"""Moves of coefficients that change no log likelihood: shifts between groupings, and scales of products.

A shift of all abilities and difficulties changes no predictor. In a product of a discrimination and a sum of
coefficients, neither does a factor of the coefficients that divides the discriminations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from stansub.target.groupings import Recentred, joined_columns
from stansub.target.sparse import SparsePredictors
from stansub.types import FloatArray

# Rounding up to which log likelihoods must be equal, and the size of moves with which this is proved.
_SAME, _SIZE, _PROVED = 1e-9, 0.3, 3
# Factor by which equivalent coordinates may differ.
_FAR = 30.0


@dataclass(frozen=True)
class Symmetry:
    """A group of moves by numbers c: x + c v, and then factors e^c of some coordinates."""

    direction: FloatArray
    """Shape (dim,): v, which is 0 in the scaled coordinates."""
    scaled: NDArray[np.int64]
    """Places of the coordinates with a factor."""

    def __call__(self, x: FloatArray, c: float) -> FloatArray:
        """Return the coordinates moved by c."""
        found = x + c * self.direction
        found[self.scaled] *= np.exp(c)
        return found


@dataclass(frozen=True)
class Equivalence:
    """Coordinates x = scale * y + shift with the same log likelihood as y, after moves that change none."""

    scale: FloatArray
    shift: FloatArray
    """Shape (dim,)."""

    @classmethod
    def none(cls, dim: int) -> Equivalence:
        """Return that of x = y."""
        return cls(np.ones(dim), np.zeros(dim))

    def copy(self) -> Equivalence:
        """Return a copy, for moves in place."""
        return Equivalence(self.scale.copy(), self.shift.copy())

    def back(self, x: FloatArray, places: NDArray[np.int64]) -> FloatArray:
        """Return some elements of y."""
        return np.asarray((x[places] - self.shift[places]) / self.scale[places])

    def is_far(self, x: FloatArray) -> bool:
        """Return whether y differs so much from x that it might lose digits."""
        scales = np.abs(np.log(self.scale)).max(initial=0.0)
        return bool(scales > np.log(_FAR) or (np.abs(self.shift) > _FAR * (1 + np.abs(x))).any())


def symmetries(predictors: SparsePredictors, rng: np.random.Generator) -> tuple[Symmetry, ...]:
    """Return the moves that change no log likelihood, proved at random points."""
    suggested = (*_shifts(predictors), *_scales(predictors))
    return tuple(one for one in suggested if _is_proved(one, predictors, rng))


def _shifts(predictors: SparsePredictors) -> Iterator[Symmetry]:
    for shift in Recentred(predictors, np.zeros(predictors.dim)).shifts:
        direction = np.zeros(predictors.dim)
        direction[shift.places] = -1
        direction[shift.absorbing] += shift.coefficients
        yield Symmetry(direction, np.empty(0, np.int64))


def _scales(predictors: SparsePredictors) -> Iterator[Symmetry]:
    """Yield factors of all coefficients of an argument, against a shift of another one, its logarithm's."""
    for log_factor, scaled in permutations(predictors.rows, 2):
        read = np.array(sorted(scaled.read), np.int64)
        if scaled.offset.any() or not read.size:
            continue
        for one in joined_columns(log_factor):
            unit = np.zeros(predictors.dim)
            unit[one.places] = 1
            factors = log_factor(unit)
            if np.ptp(factors) or not factors[0]:
                continue
            direction = -unit / factors[0]
            if not direction[read].any():
                yield Symmetry(direction, read)


def _is_proved(one: Symmetry, predictors: SparsePredictors, rng: np.random.Generator) -> bool:
    for _ in range(_PROVED):
        x = _SIZE * rng.standard_normal(predictors.dim)
        here, there = (predictors.family.log_lik(predictors.at(at)) for at in (x, one(x, _SIZE)))
        if not np.abs(here - there).max() <= _SAME * (1 + np.abs(here).max()):
            return False
    return True
