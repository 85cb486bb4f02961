"""Log likelihoods of one observation as functions of its linear predictor, and how large their derivatives get.

What bounds a remainder is the supremum of a derivative on an interval of predictors. With p the inverse logit,

    s_2(x) = p (1 - p),    s_3(x) = p (1 - p) |1 - 2 p|

are the second and third derivative of log(1 + e^x) in absolute value. The first is largest, 1/4, at 0 and falls with
|x|; the second is 0 at 0, rises to 1 / (6 sqrt 3) at |x| = log(2 + sqrt 3), where p (1 - p) = 1/6, and falls again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from stansub.types import FloatArray

# Where s_3 is largest.
_PEAK = math.log(2 + math.sqrt(3))
# With u = r / (sigma sqrt nu) the log density of Student's t is -(nu + 1) / 2 log(1 + u^2). The third derivative of
# log(1 + u^2), 4 u (u^2 - 3) / (1 + u^2)^3, is largest in absolute value where 1 - 6 u^2 + u^4 = 0, at u = sqrt 2 - 1;
# its second, 2 (1 - u^2) / (1 + u^2)^2, at 0.
_STUDENT = {2: 2.0, 3: 4 * (math.sqrt(2) - 1) * (2 * math.sqrt(2)) / (4 - 2 * math.sqrt(2)) ** 3}


def softplus_derivative(order: int, low: FloatArray, high: FloatArray) -> FloatArray:
    """The largest s_2 or s_3 on intervals."""
    near = np.where((low <= 0) & (high >= 0), 0.0, np.minimum(np.abs(low), np.abs(high)))
    far = np.maximum(np.abs(low), np.abs(high))
    at = near if order == 2 else np.where(far < _PEAK, far, np.maximum(near, _PEAK))
    p = expit(at)
    slope = p * expit(-at)
    return np.asarray(slope if order == 2 else slope * (2 * p - 1))


@dataclass(frozen=True)
class Binomial:
    """Successes among trials, by the logit; with one trial Bernoulli's.

    Attributes
    ----------
    successes, trials : ndarray, shape (n,)
    """

    successes: FloatArray
    trials: FloatArray
    bounded = True

    def log_lik(self, eta: FloatArray) -> FloatArray:
        """Up to what does not depend on eta."""
        return np.asarray(self.successes * eta - self.trials * np.logaddexp(0, eta))

    def derivative(self, order: int, low: FloatArray, high: FloatArray) -> FloatArray:
        """`trials` times that of log(1 + e^eta)."""
        return np.asarray(self.trials * softplus_derivative(order, low, high))


@dataclass(frozen=True)
class Poisson:
    """Counts by the log of their mean: every derivative from the second on is -e^eta.

    Attributes
    ----------
    counts : ndarray, shape (n,)
    """

    counts: FloatArray
    bounded = False

    def log_lik(self, eta: FloatArray) -> FloatArray:
        """Up to what does not depend on eta."""
        return np.asarray(self.counts * eta - np.exp(eta))

    def derivative(self, order: int, low: FloatArray, high: FloatArray) -> FloatArray:
        """At the upper end."""
        return np.exp(np.minimum(high, 700.0))


@dataclass(frozen=True)
class NegativeBinomial:
    """Counts by the log of their mean, with a known dispersion phi: y eta - (y + phi) log(e^eta + phi).

    Attributes
    ----------
    counts, dispersion : ndarray, shape (n,)
    """

    counts: FloatArray
    dispersion: FloatArray
    bounded = True

    def log_lik(self, eta: FloatArray) -> FloatArray:
        """Up to what does not depend on eta."""
        return np.asarray(
            self.counts * eta - (self.counts + self.dispersion) * np.logaddexp(eta, np.log(self.dispersion))
        )

    def derivative(self, order: int, low: FloatArray, high: FloatArray) -> FloatArray:
        """(y + phi) times that of log(1 + e^x) at x = eta - log phi."""
        shift = np.log(self.dispersion)
        return np.asarray((self.counts + self.dispersion) * softplus_derivative(order, low - shift, high - shift))


@dataclass(frozen=True)
class Normal:
    """Normal errors of a known scale, whose third derivative is 0.

    Attributes
    ----------
    y, scale : ndarray, shape (n,)
    """

    y: FloatArray
    scale: FloatArray
    bounded = True

    def log_lik(self, eta: FloatArray) -> FloatArray:
        """Up to what does not depend on eta."""
        return np.asarray(-0.5 * ((self.y - eta) / self.scale) ** 2)

    def derivative(self, order: int, low: FloatArray, high: FloatArray) -> FloatArray:
        """1 / sigma^2, or 0."""
        return np.zeros_like(self.scale) if order == 3 else np.asarray(1 / self.scale**2)


@dataclass(frozen=True)
class StudentT:
    """Errors with Student's t, of a known scale and degrees of freedom; with one degree Cauchy's.

    Attributes
    ----------
    y, degrees, scale : ndarray, shape (n,)
    """

    y: FloatArray
    degrees: FloatArray
    scale: FloatArray
    bounded = True

    def log_lik(self, eta: FloatArray) -> FloatArray:
        """Up to what does not depend on eta."""
        u = (self.y - eta) / self.scale
        return np.asarray(-0.5 * (self.degrees + 1) * np.log1p(u**2 / self.degrees))

    def derivative(self, order: int, low: FloatArray, high: FloatArray) -> FloatArray:
        """On the whole line (see `_STUDENT`)."""
        unit = self.scale * np.sqrt(self.degrees)
        return np.asarray((self.degrees + 1) / 2 * _STUDENT[order] / unit**order)


@dataclass(frozen=True)
class Logistic:
    """Logistic errors of a known scale: -x - 2 log(1 + e^-x) with x = (y - eta) / sigma.

    Attributes
    ----------
    y, scale : ndarray, shape (n,)
    """

    y: FloatArray
    scale: FloatArray
    bounded = True

    def log_lik(self, eta: FloatArray) -> FloatArray:
        """Up to what does not depend on eta."""
        x = (self.y - eta) / self.scale
        return np.asarray(-x - 2 * np.logaddexp(0, -x))

    def derivative(self, order: int, low: FloatArray, high: FloatArray) -> FloatArray:
        """Twice that of log(1 + e^x), in units of sigma."""
        at_low, at_high = (self.y - high) / self.scale, (self.y - low) / self.scale
        return np.asarray(2 * softplus_derivative(order, at_low, at_high) / self.scale**order)
