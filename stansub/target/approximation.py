"""Approximation of a log likelihood in a surrogate: a second-order expansion and corrections that need no data.

The remainder R of the expansion is of third order, and its variance grows with the number of groups. Two corrections
remove most of it and cost little compared with a gradient of the surrogate:

- A slope. Among linear functions, the one nearest to R under a normal distribution has the mean of R's gradient as its
  slope (Stein's lemma). It is averaged over draws of an earlier surrogate.
- A profile of each coefficient that a part of the observations reads. Along this coefficient, R is a function of one
  number, summed over those observations. A polynomial in a bounded argument is fitted to it, so that the surrogate
  stays a distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from stansub.target.groupings import Recentred, columns
from stansub.target.sparse import Quadratic, SparsePredictors
from stansub.types import FloatArray

# In sds of a coefficient: the size beyond which a profile is nearly constant; and fitting points with their weights.
LIMIT = 6.0
_NODES = np.array([-4.0, -3.0, -2.25, -1.5, -0.75, 0.75, 1.5, 2.25, 3.0, 4.0])
_WEIGHTS = np.exp(-(_NODES**2) / 4)


@dataclass(frozen=True)
class Profiles:
    """Sum of functions of one coefficient each, s^3 (a + b s + c s^2).

    With t = (d_j - mean) / size, s = t / sqrt(1 + (t / `LIMIT`)^2); means are weighted means of the changes d.

    Attributes
    ----------
    places : ndarray of int32, shape (k,)
        Indices of the coefficients.
    means : ndarray of int32, shape (k,)
        Index of the mean from which each is counted.
    weights : ndarray
        Weights of the means, concatenated; the last mean has none and is 0.
    columns, starts : ndarray of int32
        Columns of the weights, and the start of each mean's weights.
    sizes : ndarray, shape (k,)
    coefficients : ndarray, shape (3, k)
    """

    places: NDArray[np.int32]
    means: NDArray[np.int32]
    weights: FloatArray
    columns: NDArray[np.int32]
    starts: NDArray[np.int32]
    sizes: FloatArray
    coefficients: FloatArray

    @classmethod
    def none(cls) -> Profiles:
        """Return profiles of no coefficients."""
        none, nowhere = np.empty(0), np.empty(0, np.int32)
        return cls(nowhere, nowhere, none, nowhere, np.zeros(2, np.int32), none, np.empty((3, 0)))

    def value(self, change: FloatArray) -> float:
        """Return the sum."""
        s, _ = self._bounded(change)
        a, b, c = self.coefficients
        return float(np.sum(s * s * s * (a + s * (b + s * c))))

    def gradient(self, change: FloatArray) -> FloatArray:
        """Return the gradient of the sum, shape (m,)."""
        s, root = self._bounded(change)
        a, b, c = self.coefficients
        slopes = s * s * (3 * a + s * (4 * b + 5 * s * c)) * (root * root * root) / self.sizes
        from_means = np.bincount(self.means, slopes, minlength=len(self.starts) - 1)[self._mean_of] * self.weights
        m = len(change)
        found = np.bincount(self.places, slopes, minlength=m) - np.bincount(self.columns, from_means, minlength=m)
        return np.asarray(found, np.float64)

    @cached_property
    def _mean_of(self) -> NDArray[np.int64]:
        """Return the index of the mean to which each weight belongs."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))

    def _bounded(self, change: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return s and s / t."""
        weighted = self.weights * change[self.columns]
        means = np.bincount(self._mean_of, weighted, minlength=len(self.starts) - 1)
        t = (change[self.places] - means[self.means]) / self.sizes
        root = 1 / np.sqrt(1 + (t / LIMIT) ** 2)
        return t * root, root


@dataclass(frozen=True)
class Approximation:
    """Expansion of a log likelihood, with corrections.

    Attributes
    ----------
    slope : ndarray, shape (m,)
    """

    quadratic: Quadratic
    slope: FloatArray
    profiles: Profiles

    @classmethod
    def plain(cls, quadratic: Quadratic) -> Approximation:
        """Return the approximation without corrections."""
        return cls(quadratic, np.zeros(len(quadratic.point)), Profiles.none())

    @cached_property
    def point(self) -> FloatArray:
        """Return the expansion point."""
        return self.quadratic.point

    def correction(self, phi: FloatArray) -> float:
        """Return the corrections' value."""
        change = phi - self.point
        return float(self.slope @ change) + self.profiles.value(change)

    def __call__(self, phi: FloatArray) -> float:
        """Return the value."""
        return self.quadratic(phi) + self.correction(phi)

    def gradient(self, phi: FloatArray) -> FloatArray:
        """Return the gradient, shape (m,)."""
        change = phi - self.point
        expanded = self.quadratic.gradient - self.quadratic.precision @ change
        return np.asarray(expanded + self.slope + self.profiles.gradient(change))


def approximation(predictors: SparsePredictors, phis: Sequence[FloatArray]) -> Approximation:
    """Return the expansion about the mean of draws, with the corrections that leave the smallest remainders there.

    Parameters
    ----------
    phis : sequence of ndarray, shape (m,)
        Arguments at draws of a surrogate.
    """
    quadratic = predictors.expansion(np.mean(phis, axis=0))
    recentred = Recentred(predictors, quadratic.point)
    sds = np.std([recentred(phi) for phi in phis], axis=0)
    found = Approximation(quadratic, np.zeros(predictors.dim), _profiles(predictors, quadratic, recentred, sds))
    slope = np.mean([predictors.gradient(phi) - found.gradient(phi) for phi in phis], axis=0)
    return Approximation(quadratic, slope, found.profiles)


def _profiles(predictors: SparsePredictors, quadratic: Quadratic, recentred: Recentred, sds: FloatArray) -> Profiles:
    """Return polynomials fitted by weighted least squares."""
    values = np.zeros((len(_NODES), predictors.dim))
    read = np.zeros(predictors.dim, bool)
    family, centre = predictors.family, predictors.at(quadratic.point)
    value, slopes, curves = family.derivatives((0, 1, 2), centre)
    for k, row in enumerate(predictors.rows):
        for places, factors in columns(row):
            has = np.flatnonzero(places >= 0)
            read[places[has]] = True
            for one, node in zip(values, _NODES, strict=True):
                moved, change = centre.copy(), np.zeros(row.n)
                change[has] = node * factors[has] * sds[places[has]]
                moved[k] += change
                left_out = family.log_lik(moved) - value - change * (slopes[k] + 0.5 * change * curves[k, k])
                one += np.bincount(places[has], left_out[has], minlength=predictors.dim)
    read &= (sds > 0) & np.isfinite(values).all(axis=0)
    places = np.flatnonzero(read).astype(np.int32)
    if not places.size:
        return Profiles.none()
    s = _NODES / np.sqrt(1 + (_NODES / LIMIT) ** 2)
    basis = s[:, np.newaxis] ** np.array([3, 4, 5])
    root = np.sqrt(_WEIGHTS)[:, np.newaxis]
    coefficients, *_ = np.linalg.lstsq(root * basis, root * values[:, places], rcond=None)
    shifts = recentred.shifts
    means = np.full(predictors.dim, len(shifts), np.int32)
    for k, shift in enumerate(shifts):
        means[shift.places] = k
    weights = [*(shift.weights for shift in shifts), np.empty(0)]
    return Profiles(
        places,
        means[places],
        np.concatenate(weights),
        np.concatenate([*(shift.places for shift in shifts), np.empty(0)]).astype(np.int32),
        np.concatenate([[0], np.cumsum([len(one) for one in weights])]).astype(np.int32),
        sds[places],
        coefficients,
    )
