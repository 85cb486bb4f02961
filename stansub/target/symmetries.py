"""Moves of coefficients that change no log likelihood: shifts between groupings, and scales of products.

A shift of all abilities and difficulties changes no predictor. In a product of a discrimination and a sum of
coefficients, neither does a factor of the coefficients that divides the discriminations. Other moves change predictors,
but no log likelihood: if all effects and all cutpoints of an ordinal regression are shifted, for example.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, permutations, product

import numpy as np
from numpy.typing import NDArray

from stansub.target.groupings import Recentred, joined_columns
from stansub.target.sparse import SparsePredictors, SparseRows
from stansub.types import FloatArray

# Rounding up to which log likelihoods must be equal, and the size of moves with which this is proved.
_SAME, _SIZE, _PROVED = 1e-9, 0.3, 3
# Observations whose slopes suggest moves of several arguments.
_FEW = 1000
# Singular values, relative to the largest, and elements up to which they are 0; how many combinations of coefficients
# are tried for a move of several arguments.
_NULL, _NONE, _TRIED = 1e-9, 1e-6, 4
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
    suggested = (*_shifts(predictors), *_scales(predictors), *_together(predictors))
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


def _together(predictors: SparsePredictors) -> Iterator[Symmetry]:
    """Yield shifts and factors of several arguments at once that change no log likelihood, as its slopes show.

    With slopes g, a shift d and factors e^s of the arguments eta change no log likelihood if (d + s eta) . g = 0.
    """
    read = [_read(row) for row in predictors.rows]
    units = [_units(row) for row in predictors.rows]
    free = np.array([bool(own) and not row.offset.any() for own, row in zip(read, predictors.rows, strict=True)])
    for vector in _without_effect(predictors):
        factors, shifts = np.split(np.where(np.abs(vector) > _NONE, vector, 0.0), 2)
        scaled, moved = factors != 0, np.flatnonzero(shifts)
        is_single = len(moved) + scaled.sum() < (3 if scaled.any() else 2)  # suggested already
        if is_single or (np.abs(factors[scaled] - 1) > _NONE).any() or not free[scaled].all():
            continue
        places = np.array(sorted(set[int]().union(*(read[k] for k in np.flatnonzero(scaled)))), np.int64)
        for those in islice(product(*(units[k] for k in moved)), _TRIED):
            direction = np.sum([shifts[k] * unit for k, unit in zip(moved, those, strict=True)], axis=0)
            if np.size(direction) == predictors.dim and not direction[places].any():
                yield Symmetry(direction, places)


def _units(row: SparseRows) -> list[FloatArray]:
    """Return changes of a grouping or a common coefficient by which an argument changes by 1 for all observations."""
    found = []
    for places in (*row.places.tolist(), *(one.places for one in joined_columns(row))):
        unit = _unit(row.dim, places)
        change = row(unit)
        if abs(change[0]) > _NONE and np.ptp(change) <= _SAME * abs(change[0]):
            found.append(unit / change[0])
    return found


def _read(row: SparseRows) -> set[int]:
    """Return the places whose factor is not 0 for all observations."""
    gathered = set[int]().union(*(one.places.tolist() for one in joined_columns(row)))
    return gathered.union(place for place in row.places.tolist() if row(_unit(row.dim, place)).any())


def _unit(dim: int, places: int | NDArray[np.int64]) -> FloatArray:
    unit = np.zeros(dim)
    unit[places] = 1
    return unit


def _without_effect(predictors: SparsePredictors) -> FloatArray:
    """Return factors and then shifts of the arguments that change no log likelihood, shape (k, 2 q), in echelon form.

    Few observations are enough, because all suggestions are proved.
    """
    q = len(predictors.rows)
    if q < 2:
        return np.empty((0, 2 * q))
    rng, n = np.random.default_rng(0), predictors.n_observations
    part = predictors.part(np.sort(rng.choice(n, min(n, _FEW), replace=False))).family
    etas = [_SIZE * rng.standard_normal((q, min(n, _FEW))) for _ in range(_PROVED)]
    slopes = [part.gradients(eta)[1] for eta in etas]
    rows = np.concatenate([np.concatenate([g * eta, g]).T for g, eta in zip(slopes, etas, strict=True)])
    if not np.isfinite(rows).all():
        return np.empty((0, 2 * q))
    _, sizes, directions = np.linalg.svd(rows, full_matrices=False)
    return _echelon(directions[sizes <= _NULL * sizes.max(initial=0.0)])


def _echelon(rows: FloatArray) -> FloatArray:
    """Return the reduced row echelon form of rows."""
    found, k = rows.copy(), 0
    for column in range(found.shape[1]):
        if k == len(found):
            break
        pivot = k + int(np.abs(found[k:, column]).argmax())
        if abs(found[pivot, column]) <= _NONE:
            continue
        found[[k, pivot]] = found[[pivot, k]]
        found[k] /= found[k, column]
        others = np.arange(len(found)) != k
        found[others] -= np.outer(found[others, column], found[k])
        k += 1
    return found


def _is_proved(one: Symmetry, predictors: SparsePredictors, rng: np.random.Generator) -> bool:
    for _ in range(_PROVED):
        x = _SIZE * rng.standard_normal(predictors.dim)
        here, there = (predictors.family.log_lik(predictors.at(at)) for at in (x, one(x, _SIZE)))
        if not np.abs(here - there).max() <= _SAME * (1 + np.abs(here).max()):
            return False
    return True
