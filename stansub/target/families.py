"""Log likelihoods of one observation as functions of its linear predictor, and how large their derivatives get.

What bounds a remainder is the supremum of a derivative on an interval of predictors. With p the inverse logit,

    s_2(x) = p (1 - p),    s_3(x) = p (1 - p) |1 - 2 p|,    s_4(x) = p (1 - p) |1 - 6 p (1 - p)|

are the second to fourth derivative of log(1 + e^x) in absolute value. The first is largest, 1/4, at 0 and falls with
|x|; the second is 0 at 0, rises to 1 / (6 sqrt 3) at |x| = log(2 + sqrt 3), where p (1 - p) = 1/6, and falls again; the
third is 1/8 at 0, falls to 0 where the second is largest, rises to 1/24 where p (1 - p) = 1/12, and falls again.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
import scipy

from stansub import _loop
from stansub.types import FloatArray

# Where s_3 is largest.
PEAK = math.log(2 + math.sqrt(3))
# Where s_4 is largest beside 0: the logit of (1 + sqrt(2/3)) / 2.
_SECOND_PEAK = 2 * math.atanh(math.sqrt(2 / 3))
# Above it e^x is taken for e to this power, which is no bound but a number beyond all use.
_LOG_MAX = 700.0
# With u = r / (sigma sqrt nu) the log density of Student's t is -(nu + 1) / 2 log(1 + u^2). The third derivative of
# log(1 + u^2), 4 u (u^2 - 3) / (1 + u^2)^3, is largest in absolute value where 1 - 6 u^2 + u^4 = 0, at u = sqrt 2 - 1;
# its second, 2 (1 - u^2) / (1 + u^2)^2, at 0, and so its fourth, -12 (u^4 - 6 u^2 + 1) / (1 + u^2)^4.
_STUDENT = {2: 2.0, 3: 4 * (math.sqrt(2) - 1) * (2 * math.sqrt(2)) / (4 - 2 * math.sqrt(2)) ** 3, 4: 12.0}


def softplus(order: int, x: FloatArray) -> FloatArray:
    """log(1 + e^x), or its first, second or third derivative."""
    if order == 0:
        return np.asarray(np.logaddexp(0, x))
    p, q = scipy.special.expit(x), scipy.special.expit(-x)
    return np.asarray((p, p * q, p * q * (q - p))[order - 1])


def softplus_derivative(order: int, low: FloatArray, high: FloatArray) -> FloatArray:
    """The largest s_2, s_3 or s_4 on intervals."""
    near = np.where((low <= 0) & (high >= 0), 0.0, np.minimum(np.abs(low), np.abs(high)))
    far = np.maximum(np.abs(low), np.abs(high))
    if order == 4:
        slopes = [softplus(2, np.asarray(at)) for at in (near, far, np.clip(_SECOND_PEAK, near, far))]
        return np.asarray(np.max([slope * np.abs(1 - 6 * slope) for slope in slopes], axis=0))
    at = near if order == 2 else np.where(far < PEAK, far, np.maximum(near, PEAK))
    p = scipy.special.expit(at)
    slope = p * scipy.special.expit(-at)
    return np.asarray(slope if order == 2 else slope * (2 * p - 1))


class Columns:
    """A family whose fields are what its density takes of each observation."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    highest = 2

    @property
    def data(self) -> FloatArray:
        """Shape (p, n)."""
        return np.array([getattr(self, one.name) for one in fields(self)])

    def part(self, rows: slice) -> Self:
        """Of some observations."""
        return replace(self, **{one.name: getattr(self, one.name)[rows] for one in fields(self)})


class OneArgument(Columns, ABC):
    """A family with one argument."""

    n_arguments = 1
    bounded = True
    highest = 3

    @abstractmethod
    def each(self, order: int, eta: FloatArray) -> FloatArray:
        """Log likelihoods up to constants (order 0) or their first to third derivatives, at `eta` of shape (n,)."""

    @abstractmethod
    def derivative(self, order: int, low: FloatArray, high: FloatArray) -> FloatArray:
        """The largest absolute value of a derivative of order 2 to 4 of each log likelihood on an interval each."""

    def log_lik(self, eta: FloatArray) -> FloatArray:
        """Shape (n,)."""
        return self.each(0, eta[0])

    def gradient(self, eta: FloatArray) -> FloatArray:
        """Shape (1, n)."""
        return self.each(1, eta[0])[np.newaxis]

    def hessian(self, eta: FloatArray) -> FloatArray:
        """Shape (1, 1, n)."""
        return self.each(2, eta[0])[np.newaxis, np.newaxis]

    def third(self, eta: FloatArray) -> FloatArray:
        """Shape (n,)."""
        return np.broadcast_to(self.each(3, eta[0]), eta[0].shape)

    def largest(self, order: int, centre: FloatArray, lengths: FloatArray, radius: float) -> FloatArray:
        """The derivative's supremum on the interval, times the length's power; exact."""
        low, high = box(centre, lengths, radius)
        return np.asarray(self.derivative(order, low[0], high[0]) * lengths[0] ** order)


def box(centre: FloatArray, lengths: FloatArray, radius: float) -> tuple[FloatArray, FloatArray]:
    """Lower and upper ends; a length of 0 is a short one where the radius is infinite."""
    reach = np.maximum(lengths, np.finfo(float).tiny) * radius
    return centre - reach, centre + reach


@dataclass(frozen=True)
class Binomial(OneArgument):
    """Successes among trials, by the logit; with one trial Bernoulli's.

    Attributes
    ----------
    successes, trials : ndarray, shape (n,)
    """

    successes: FloatArray
    trials: FloatArray
    density = _loop.Density.binomial

    def each(self, order: int, eta: FloatArray) -> FloatArray:
        """y eta - n log(1 + e^eta)."""
        line = (self.successes * eta, self.successes, 0, 0)[order]
        return np.asarray(line - self.trials * softplus(order, eta))

    def derivative(self, order: int, low: FloatArray, high: FloatArray) -> FloatArray:
        """`trials` times that of log(1 + e^eta)."""
        return np.asarray(self.trials * softplus_derivative(order, low, high))


@dataclass(frozen=True)
class Poisson(OneArgument):
    """Counts by the log of their rate: every derivative from the second on is -t e^eta, t the exposure.

    Gamma variables t of a known shape y, by the log of their rate, have the same log likelihood.

    Attributes
    ----------
    counts : ndarray, shape (n,)
    exposure : ndarray, shape (n,)
    """

    counts: FloatArray
    exposure: FloatArray
    bounded = False
    density = _loop.Density.poisson

    def each(self, order: int, eta: FloatArray) -> FloatArray:
        """y eta - t e^eta."""
        line = (self.counts * eta, self.counts, 0, 0)[order]
        return np.asarray(line - self.exposure * np.exp(np.minimum(eta, _LOG_MAX)))

    def derivative(self, order: int, low: FloatArray, high: FloatArray) -> FloatArray:
        """At the upper end."""
        return np.asarray(self.exposure * np.exp(np.minimum(high, _LOG_MAX)))


@dataclass(frozen=True)
class NegativeBinomial(OneArgument):
    """Counts by the log of their mean, with a known dispersion phi.

    Attributes
    ----------
    counts, dispersion : ndarray, shape (n,)
    """

    counts: FloatArray
    dispersion: FloatArray
    density = _loop.Density.neg_binomial

    def each(self, order: int, eta: FloatArray) -> FloatArray:
        """y eta - (y + phi) log(1 + e^(eta - log phi))."""
        line = (self.counts * eta, self.counts, 0, 0)[order]
        x = eta - np.log(self.dispersion)
        return np.asarray(line - (self.counts + self.dispersion) * softplus(order, x))

    def derivative(self, order: int, low: FloatArray, high: FloatArray) -> FloatArray:
        """(y + phi) times that of log(1 + e^x) at x = eta - log phi."""
        shift = np.log(self.dispersion)
        return np.asarray((self.counts + self.dispersion) * softplus_derivative(order, low - shift, high - shift))


@dataclass(frozen=True)
class Normal(OneArgument):
    """Normal errors of a known scale, whose third derivative is 0.

    Attributes
    ----------
    y, scale : ndarray, shape (n,)
    """

    y: FloatArray
    scale: FloatArray
    density = _loop.Density.normal

    def each(self, order: int, eta: FloatArray) -> FloatArray:
        """-x^2 / 2 at x = (y - eta) / sigma."""
        x = (self.y - eta) / self.scale
        return np.asarray((-0.5 * x**2, x / self.scale, -1 / self.scale**2, np.zeros_like(x))[order])

    def derivative(self, order: int, low: FloatArray, high: FloatArray) -> FloatArray:
        """1 / sigma^2, or 0."""
        return np.zeros_like(self.scale) if order > 2 else np.asarray(1 / self.scale**2)


@dataclass(frozen=True)
class StudentT(OneArgument):
    """Errors with Student's t, of a known scale and degrees of freedom; with one degree Cauchy's.

    Attributes
    ----------
    y, degrees, scale : ndarray, shape (n,)
    """

    y: FloatArray
    degrees: FloatArray
    scale: FloatArray
    density = _loop.Density.student_t

    def each(self, order: int, eta: FloatArray) -> FloatArray:
        """-(nu + 1) / 2 log(1 + u^2) at u = (y - eta) / (sigma sqrt nu)."""
        unit = self.scale * np.sqrt(self.degrees)
        u = (self.y - eta) / unit
        v = 1 + u**2
        found = (np.log1p(u**2), 2 * u / v, 2 * (2 - v) / v**2, 4 * u * (v - 4) / v**3)[order] / (-unit) ** order
        return np.asarray(-0.5 * (self.degrees + 1) * found)

    def derivative(self, order: int, low: FloatArray, high: FloatArray) -> FloatArray:
        """On the whole line (see `_STUDENT`)."""
        unit = self.scale * np.sqrt(self.degrees)
        return np.asarray((self.degrees + 1) / 2 * _STUDENT[order] / unit**order)


@dataclass(frozen=True)
class Logistic(OneArgument):
    """Logistic errors of a known scale.

    Attributes
    ----------
    y, scale : ndarray, shape (n,)
    """

    y: FloatArray
    scale: FloatArray
    density = _loop.Density.logistic

    def each(self, order: int, eta: FloatArray) -> FloatArray:
        """x - 2 log(1 + e^x) at x = (y - eta) / sigma."""
        x = (self.y - eta) / self.scale
        line = (x, 1, 0, 0)[order]
        return np.asarray((line - 2 * softplus(order, x)) / (-self.scale) ** order)

    def derivative(self, order: int, low: FloatArray, high: FloatArray) -> FloatArray:
        """Twice that of log(1 + e^x), in units of sigma."""
        at_low, at_high = (self.y - high) / self.scale, (self.y - low) / self.scale
        return np.asarray(2 * softplus_derivative(order, at_low, at_high) / self.scale**order)
