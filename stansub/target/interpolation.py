"""Interpolated expansions: how an expansion changes with a coefficient of an argument that reads few of them.

Examples are the logarithms of a residual standard deviation and of the shape of a negative binomial. A change delta of
such a coefficient multiplies the squares of all others' changes, so the sum of what a second-order expansion omits has
a standard deviation of about sd(delta) sqrt(m) with m coefficients, and a mean of about delta m. For each value of
delta, though, an expansion in the others alone omits little: nothing if errors are normal. Expansions at three values
of delta are therefore interpolated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from stansub.target.sparse import Quadratic, SparsePredictors
from stansub.types import FloatArray

# In sds of a coefficient: nodes on either side of the point, and the size beyond which corrections are nearly constant.
_NODE, LIMIT = 3.0, 6.0
# Number of coefficients that may have an interpolation: each makes a gradient of the surrogate dearer by two products.
_MOST = 4


@dataclass(frozen=True)
class Interpolation:
    """What interpolated expansions add to the expansion: b F_1 + b^2 F_2, a function of all coefficients.

    With t the change of the coefficient divided by ``size``, b = t (1 + (t / `LIMIT`)^8)^(-1/8) is bounded, so that the
    surrogate stays a distribution. The mean of F_1 is 0: its part of the remainder is linear in t and would, if it
    ended at the limit, leave another mode beyond. A slope represents it (`stansub.target.approximation`).

    Attributes
    ----------
    place : int
        Index of the coefficient.
    size : float
    terms : tuple of Quadratic
        F_1 and F_2, which do not depend on this coefficient.
    """

    place: int
    size: float
    terms: tuple[Quadratic, Quadratic]

    def value(self, phi: FloatArray) -> float:
        """Return the value."""
        b, _ = self._bounded(phi)
        first, second = self.terms
        return b * (first(phi) + b * second(phi))

    def gradient(self, phi: FloatArray) -> FloatArray:
        """Return the gradient, shape (m,)."""
        b, slope = self._bounded(phi)
        first, second = self.terms
        found = b * (first.slope(phi) + b * second.slope(phi))
        found[self.place] += slope * (first(phi) + 2 * b * second(phi))
        return found

    def _bounded(self, phi: FloatArray) -> tuple[float, float]:
        """Return b and its derivative by the coefficient."""
        t = float(phi[self.place] - self.terms[0].point[self.place]) / self.size
        root = _root(t)
        return t * root, root**9 / self.size


def interpolations(
    predictors: SparsePredictors, quadratic: Quadratic, phis: Sequence[FloatArray]
) -> tuple[Interpolation, ...]:
    """Return the interpolation of each such coefficient; takes two passes over the data for each.

    Parameters
    ----------
    phis : sequence of ndarray, shape (m,)
        Arguments at draws of a surrogate.
    """
    sds = np.std(phis, axis=0)
    places = [place for place in common_coefficients(predictors) if sds[place] > 0]
    return tuple(_interpolation(predictors, quadratic, place, float(sds[place]), phis) for place in places)


def common_coefficients(predictors: SparsePredictors) -> list[int]:
    """Return the places of the coefficients of arguments that read few, if another argument reads more."""
    reads = [row.read for row in predictors.rows]
    found = set().union(*(own for own in reads if len(own) <= _MOST))
    return sorted(found) if len(found) <= _MOST < max(map(len, reads)) else []


def _interpolation(
    predictors: SparsePredictors, quadratic: Quadratic, place: int, size: float, phis: Sequence[FloatArray]
) -> Interpolation:
    above, below = (_omitted(predictors, quadratic, place, sign * _NODE * size) for sign in (1, -1))
    b = _NODE * _root(_NODE)
    first = above.combined(1 / (2 * b), below, -1 / (2 * b))
    second = above.combined(1 / (2 * b * b), below, 1 / (2 * b * b))
    mean = float(np.mean([first(phi) for phi in phis]))
    return Interpolation(place, size, (replace(first, value=first.value - mean), second))


def _omitted(predictors: SparsePredictors, quadratic: Quadratic, place: int, delta: float) -> Quadratic:
    """Return what the expansion omits of another in the other coefficients, after a change of this one."""
    point = quadratic.point
    there = predictors.expansion(point + delta * (np.arange(len(point)) == place))
    others = sp.diags_array((np.arange(len(point)) != place).astype(float))
    column = quadratic.precision[[place]].toarray()[0]
    value = quadratic.value + delta * (quadratic.gradient[place] - 0.5 * delta * column[place])
    gradient = others @ (there.gradient - (quadratic.gradient - delta * column))
    precision = others @ (there.precision - quadratic.precision) @ others
    return Quadratic.of(point, there.value - value, gradient, sp.csr_array(precision))


def _root(t: float) -> float:
    """Return b / t."""
    return float((1 + (t / LIMIT) ** 8) ** -0.125)
