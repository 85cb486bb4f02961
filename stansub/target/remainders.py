"""Bounds on the remainders of control variates, for likelihoods of linear predictors.

Let observation i depend on the unconstrained parameters through eta_i = z_i . theta + o_i alone, with log likelihood
f_i(eta_i). With L L' the covariance at the mode m and w = L^-1 (theta - m), eta_i changes by z_i' L w between m and
theta, which is at most |L' z_i| |w|, and by Taylor's theorem an expansion of order p is off by at most

    sup |f_i^(p + 1)| (|L' z_i| |w|)^(p + 1) / (p + 1)!

the supremum being over what eta_i takes between the two. In this metric the bound is the same however covariates are
scaled or correlated (Cornish et al. 2019 take the raw one). A block's bound is the sum of those of its observations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from stansub import _loop
from stansub.errors import InputError
from stansub.target.blocks import Blocks
from stansub.types import FloatArray

# Radii in standard deviations, as multiples of the square root of the dimension: a draw of a normal posterior has |w|
# within a few units of that. Beyond the last everything is evaluated.
_RADII = (1.0, 1.5, 2.5, 5.0)
_RADIUS = 3.0
# Candidates as a share of the blocks from which evaluating all of them, in their order, is no slower.
_SHARE = 0.3


class NoPredictorsError(InputError):
    """The likelihood is not of a recognised family with a linear predictor; the text says why."""


class Family(Protocol):
    """Log likelihoods of all observations as functions of their linear predictors.

    Attributes
    ----------
    bounded : bool
        Whether derivatives are bounded on the whole line.
    """

    @property
    def bounded(self) -> bool: ...

    def log_lik(self, eta: FloatArray) -> FloatArray:
        """All f_i, up to constants."""
        ...

    def derivative(self, order: int, low: FloatArray, high: FloatArray) -> FloatArray:
        """The largest absolute value of a derivative of order 2 or 3 of each f_i on an interval each, or more."""
        ...


@dataclass(frozen=True)
class LinearPredictors:
    """How observations depend on the parameters.

    Attributes
    ----------
    design : ndarray, shape (n_observations, dim)
        z_i, in the order of the population.
    offset : ndarray, shape (n_observations,)
        o_i.
    family : Family
    """

    design: FloatArray
    offset: FloatArray
    family: Family

    def at(self, theta: FloatArray) -> FloatArray:
        """The predictors, shape (n_observations,)."""
        return np.asarray(self.design @ theta + self.offset)

    def bounds(self, anchor: FloatArray, cholesky: FloatArray, blocks: Blocks, order: int) -> RemainderBounds:
        """Bounds on the remainders of expansions of an order about an anchor, in the metric of a covariance there."""
        lengths = np.linalg.norm(self.design @ cholesky, axis=1)
        radii = [_RADIUS + k * math.sqrt(len(anchor)) for k in _RADII] + [np.inf] * self.family.bounded
        centre, power = self.at(anchor), order + 1
        constants = []
        for radius in radii:
            reach = np.maximum(lengths, np.finfo(float).tiny) * radius
            largest = self.family.derivative(power, centre - reach, centre + reach)
            each = largest * lengths**power / math.factorial(power)
            constants.append(np.add.reduceat(each, blocks.starts))
        whitening = np.asarray(np.linalg.inv(cholesky), np.float64)
        return RemainderBounds(anchor, whitening, order, np.array(radii), np.array(constants))


@dataclass(frozen=True)
class RemainderBounds:
    """Bounds c_b |w|^(p + 1) on the remainders of expansions of order p at a point, w = A (theta - anchor).

    Attributes
    ----------
    anchor : ndarray, shape (dim,)
    whitening : ndarray, shape (dim, dim)
        A.
    order : {1, 2}
        p.
    radii : ndarray, shape (k,)
        Increasing: row k of the constants holds where |w| is no more than radius k.
    constants : ndarray, shape (k, M)
        c_b.
    proved : bool
        Whether they hold for certain; otherwise they were learned from trials.
    """

    anchor: FloatArray
    whitening: FloatArray
    order: int
    radii: FloatArray
    constants: FloatArray
    proved: bool = True

    def compiled(self, share: float = _SHARE) -> _loop.RemainderBounds:
        """The same for the decision loop, which evaluates all blocks where it would pick more than this share."""
        return _loop.RemainderBounds(
            self.anchor, self.whitening, self.order, self.radii, self.constants, share, self.proved
        )
