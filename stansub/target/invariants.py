"""Coordinates of levels that a scale of products leaves unchanged, in which levels are nearly normal.

A predictor e^a (t - b) does not change if t and b are multiplied by e^c and a is shifted by -c. Given the abilities t,
the predictor is e^a t - d with d = b e^a, so the likelihood of an item is log-concave in e^a and d. Items move in a and
d, in which their distribution is less curved than in a and b.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stansub.target.levels import Grouping
from stansub.target.symmetries import Symmetry
from stansub.types import FloatArray


@dataclass(frozen=True)
class Invariants:
    """Coordinates z of a grouping's levels: coefficients x, of which some are multiplied by e^(rate * x_factor)."""

    scaled: NDArray[np.int64]
    """Coefficients of a level that are multiplied; none if z = x."""
    factor: int = 0
    """The coefficient that is the logarithm of a factor."""
    rate: float = 0.0

    @classmethod
    def of(cls, grouping: Grouping, moves: Sequence[Symmetry]) -> Invariants:
        """Return the coordinates that a move leaves unchanged if it multiplies coefficients of all levels."""
        for one in moves if not grouping.is_common else ():
            scaled, direction = np.isin(grouping.places, one.scaled), one.direction[grouping.places]
            factor = int(np.abs(direction[0]).argmax())
            same = (scaled == scaled[0]).all() and np.ptp(direction, axis=0).max() == 0
            if same and scaled.any() and np.count_nonzero(direction[0]) == 1:
                return cls(np.flatnonzero(scaled[0]), factor, float(-1 / direction[0, factor]))
        return cls(np.empty(0, np.int64))

    def inward(self, x: FloatArray) -> FloatArray:
        """Return z, shape (n_levels, size)."""
        return self._multiplied(x, self.rate)

    def outward(self, z: FloatArray) -> FloatArray:
        """Return x, shape (n_levels, size)."""
        return self._multiplied(z, -self.rate)

    def jacobian(self, x: FloatArray) -> FloatArray:
        """Return the derivative of x by z, shape (n_levels, size, size)."""
        found = np.tile(np.eye(x.shape[1]), (len(x), 1, 1))
        found[:, self.scaled, self.scaled] = np.exp(-self.rate * x[:, [self.factor]])
        found[:, self.scaled, self.factor] = -self.rate * x[:, self.scaled]
        return found

    def log_jacobian(self, x: FloatArray) -> FloatArray:
        """Return the logarithm of its determinant, shape (n_levels,)."""
        return np.asarray(-self.rate * len(self.scaled) * x[:, self.factor])

    def slopes(self, x: FloatArray, slopes: FloatArray) -> FloatArray:
        """Return the gradient of the log density of z from that of x, shape (n_levels, size) each."""
        found = slopes.copy()
        found[:, self.scaled] *= np.exp(-self.rate * x[:, [self.factor]])
        along = np.sum(x[:, self.scaled] * slopes[:, self.scaled], axis=1)
        found[:, self.factor] -= self.rate * (along + len(self.scaled))
        return found

    def precision(self, x: FloatArray, precision: FloatArray) -> FloatArray:
        """Return J' A J with the derivative J at x, for each level."""
        jacobian = self.jacobian(x)
        return np.asarray(np.swapaxes(jacobian, 1, 2) @ precision @ jacobian) if len(self.scaled) else precision

    def _multiplied(self, x: FloatArray, rate: float) -> FloatArray:
        found = x.copy()
        found[:, self.scaled] *= np.exp(rate * x[:, [self.factor]])
        return found
