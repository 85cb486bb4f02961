"""Log likelihoods of one observation as functions of its linear predictor, with bounds on their derivatives.

The supremum of a derivative on an interval of predictors bounds a remainder. With p the inverse logit,

    s_2(x) = p (1 - p),    s_3(x) = p (1 - p) |1 - 2 p|,    s_4(x) = p (1 - p) |1 - 6 p (1 - p)|

are the second to fourth derivative of log(1 + e^x) in absolute value. The first is largest, 1/4, at 0 and falls with
|x|; the second is 0 at 0, rises to 1 / (6 sqrt 3) at |x| = log(2 + sqrt 3), where p (1 - p) = 1/6, and falls again; the
third is 1/8 at 0, falls to 0 where the second is largest, rises to 1/24 where p (1 - p) = 1/12, and falls again.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from stansub import _loop
from stansub.target.rows import Rows, compact
from stansub.types import FloatArray

# Maximum of s_3.
PEAK = math.log(2 + math.sqrt(3))
# Maximum of s_4 besides 0: the logit of (1 + sqrt(2/3)) / 2.
_SECOND_PEAK = 2 * math.atanh(math.sqrt(2 / 3))
# Above it, e^x is replaced by e to this power, which is no bound but too large to be of use.
_LOG_MAX = 700.0
# With u = r / (sigma sqrt nu) the log density of Student's t is -(nu + 1) / 2 log(1 + u^2). The third derivative of
# log(1 + u^2), 4 u (u^2 - 3) / (1 + u^2)^3, is largest in absolute value where 1 - 6 u^2 + u^4 = 0, at u = sqrt 2 - 1;
# its second, 2 (1 - u^2) / (1 + u^2)^2, at 0, and so its fourth, -12 (u^4 - 6 u^2 + 1) / (1 + u^2)^4.
_STUDENT = {2: 2.0, 3: 4 * (math.sqrt(2) - 1) * (2 * math.sqrt(2)) / (4 - 2 * math.sqrt(2)) ** 3, 4: 12.0}


def softplus(orders: Sequence[int], x: FloatArray) -> list[FloatArray]:
    """Return log(1 + e^x) and its derivatives of some orders up to the third, from one exponential."""
    small = np.exp(-np.abs(x))
    far = 1 / (1 + small) if any(orders) else small  # the larger one of p and 1 - p, used by the derivatives

    def of(order: int) -> FloatArray:
        if order == 0:
            return np.asarray(np.maximum(x, 0) + np.log1p(small))
        if order == 1:
            return np.where(x < 0, small * far, far)
        slope = small * far * far
        return slope if order == 2 else np.asarray(slope * np.copysign((1 - small) * far, -x))

    return [of(order) for order in orders]


def softplus_derivative(order: int, low: FloatArray, high: FloatArray) -> FloatArray:
    """Return the largest s_2, s_3 or s_4 on intervals."""
    near = np.maximum(np.maximum(low, -high), 0.0)
    if order == 2:
        return _slope(near)[0]
    far = np.maximum(-low, high)
    if order == 3:
        slope, small, both = _slope(np.minimum(np.maximum(near, PEAK), far))
        return np.asarray(slope * (1 - small) / both)
    # Beyond 0 it is largest at the second peak, or at the nearest point of the interval.
    slopes = [_slope(at)[0] for at in (near, np.minimum(np.maximum(near, _SECOND_PEAK), far))]
    return np.asarray(np.maximum(*(slope * np.abs(1 - 6 * slope) for slope in slopes)))


def _slope(x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return s_2 at nonnegative numbers, with e^-x and 1 + e^-x."""
    small = np.exp(-x)
    both = 1 + small
    return np.asarray(small / (both * both)), small, both


class Smooth(ABC):
    """Base of families without kinks."""

    floor = 0.0
    is_known = True

    def products(self) -> tuple[()]:
        """Return nothing: arguments are affine in the parameters."""
        return ()

    @abstractmethod
    def derivatives(self, orders: Sequence[int], eta: FloatArray) -> list[FloatArray]:
        """Return log likelihoods (order 0), gradients and Hessians of some orders."""

    def gradients(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return log likelihoods, shape (n,), and gradients, shape (q, n)."""
        values, slopes = self.derivatives((0, 1), eta)
        return values, slopes

    def smoothed(self, centre: FloatArray, lengths: FloatArray) -> Self:
        """Return itself."""
        return self

    @abstractmethod
    def largest(self, order: int, centre: FloatArray, lengths: FloatArray, radius: float) -> FloatArray:
        """Return bounds on derivatives on boxes, shape (n,)."""

    def by_argument(self, order: int, centre: FloatArray, lengths: FloatArray, radius: float) -> FloatArray:
        """Return bounds by argument, shape (q, n): as large for each as for all."""
        return np.broadcast_to(self.largest(order, centre, lengths, radius), centre.shape)

    def split(self, order: int, centre: FloatArray, lengths: FloatArray, radii: Sequence[float]) -> FloatArray:
        """Return bounds by radius and argument, shape (n_radii, q, n)."""
        return np.array([self.by_argument(order, centre, lengths, radius) for radius in radii])


class Separate(Smooth):
    """Base of families that compute their derivatives, of first and second order, one by one."""

    highest = 2

    @abstractmethod
    def log_lik(self, eta: FloatArray) -> FloatArray: ...

    @abstractmethod
    def gradient(self, eta: FloatArray) -> FloatArray: ...

    @abstractmethod
    def hessian(self, eta: FloatArray) -> FloatArray: ...

    def compacted(self) -> Self:
        """Return the family in less memory if possible; only its parts can then be evaluated."""
        return self

    def derivatives(self, orders: Sequence[int], eta: FloatArray) -> list[FloatArray]:
        """Return log likelihoods (order 0), gradients and Hessians of some orders."""
        return [(self.log_lik, self.gradient, self.hessian)[order](eta) for order in orders]


class ByArgument(Separate):
    """Base of families whose bounds are sums over arguments."""

    @abstractmethod
    def by_argument(self, order: int, centre: FloatArray, lengths: FloatArray, radius: float) -> FloatArray: ...

    def largest(self, order: int, centre: FloatArray, lengths: FloatArray, radius: float) -> FloatArray:
        """Return the sums."""
        return np.asarray(self.by_argument(order, centre, lengths, radius).sum(0))


class Columns:
    """Base of families whose fields are the data of each observation."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def data(self) -> tuple[NDArray[Any], ...]:
        """Return the data, p columns of shape (n,)."""
        return tuple(getattr(self, one.name) for one in fields(self))

    def part(self, rows: Rows) -> Self:
        """Return the family of some observations."""
        columns = {one.name: np.asarray(getattr(self, one.name)[rows], np.float64) for one in fields(self)}
        return replace(self, **columns)

    def compacted(self) -> Self:
        """Return the family in less memory."""
        return replace(self, **{one.name: compact(getattr(self, one.name)) for one in fields(self)})


class OneArgument(Columns, Smooth):
    """Base of families with one argument."""

    n_arguments = 1
    bounded = True
    highest = 3

    @abstractmethod
    def several(self, orders: Sequence[int], eta: FloatArray) -> list[FloatArray]:
        """Return log likelihoods up to constants (order 0) or their first to third derivatives, at `eta` of shape (n,).

        The results of the given orders, shape (n,) each, share the costly terms.
        """

    def derivatives(self, orders: Sequence[int], eta: FloatArray) -> list[FloatArray]:
        """Return `several` in the shapes of `stansub.target.remainders.Family.derivatives`."""
        found = zip(orders, self.several(orders, eta[0]), strict=True)
        return [each[(np.newaxis,) * (order if order < 3 else 0)] for order, each in found]

    @abstractmethod
    def derivative(self, order: int, low: FloatArray, high: FloatArray) -> FloatArray:
        """Return the largest absolute derivative of order 2 to 4 of each log likelihood on its interval."""

    def log_lik(self, eta: FloatArray) -> FloatArray:
        """Return log likelihoods, shape (n,)."""
        return self.several((0,), eta[0])[0]

    def largest(self, order: int, centre: FloatArray, lengths: FloatArray, radius: float) -> FloatArray:
        """Return the derivative's exact supremum on the interval, times the length's power."""
        low, high = box(centre, lengths, radius)
        return np.asarray(self.derivative(order, low[0], high[0]) * power(lengths[0], order))


def power(x: FloatArray, n: int) -> FloatArray | float:
    """Return x^n by multiplication, which takes a tenth of the time."""
    return math.prod([x] * n)


def _less_line(
    orders: Sequence[int], slope: FloatArray, x: FloatArray, found: Sequence[FloatArray]
) -> list[FloatArray]:
    """Return derivatives of `slope` x - f(x), from those of f."""
    lines = (lambda f: slope * x - f, lambda f: slope - f, np.negative, np.negative)
    return [np.asarray(lines[order](each)) for order, each in zip(orders, found, strict=True)]


def box(centre: FloatArray, lengths: FloatArray, radius: float) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper ends; if the radius is infinite, a length of 0 counts as a short one."""
    reach = np.maximum(lengths, np.finfo(float).tiny) * radius
    return centre - reach, centre + reach


@dataclass(frozen=True)
class Binomial(OneArgument):
    """Successes among trials, from the logit; with one trial, Bernoulli's."""

    successes: FloatArray
    trials: FloatArray
    """Shape (n,)."""
    density = _loop.Density.binomial
    nanoseconds = 4.0

    def several(self, orders: Sequence[int], eta: FloatArray) -> list[FloatArray]:
        """Return y eta - n log(1 + e^eta) or derivatives."""
        return _less_line(orders, self.successes, eta, [self.trials * each for each in softplus(orders, eta)])

    def derivative(self, order: int, low: FloatArray, high: FloatArray) -> FloatArray:
        """Return `trials` times the derivative of log(1 + e^eta)."""
        return np.asarray(self.trials * softplus_derivative(order, low, high))


@dataclass(frozen=True)
class Poisson(OneArgument):
    """Counts from the log of their rate: every derivative from the second on is -t e^eta, with t the exposure.

    Gamma variables t of a known shape y, from the log of their rate, have the same log likelihood.

    Attributes
    ----------
    counts : ndarray, shape (n,)
    exposure : ndarray, shape (n,)
    """

    counts: FloatArray
    exposure: FloatArray
    bounded = False
    density = _loop.Density.poisson
    nanoseconds = 3.0

    def several(self, orders: Sequence[int], eta: FloatArray) -> list[FloatArray]:
        """Return y eta - t e^eta or derivatives."""
        mean = self.exposure * np.exp(np.minimum(eta, _LOG_MAX))
        return _less_line(orders, self.counts, eta, [mean] * len(orders))

    def derivative(self, order: int, low: FloatArray, high: FloatArray) -> FloatArray:
        """Return the derivative at the upper end."""
        return np.asarray(self.exposure * np.exp(np.minimum(high, _LOG_MAX)))


@dataclass(frozen=True)
class NegativeBinomial(OneArgument):
    """Counts from the log of their mean, with a known dispersion phi."""

    counts: FloatArray
    dispersion: FloatArray
    """Shape (n,)."""
    density = _loop.Density.neg_binomial
    nanoseconds = 20.0

    def several(self, orders: Sequence[int], eta: FloatArray) -> list[FloatArray]:
        """Return y eta - (y + phi) log(1 + e^(eta - log phi)) or derivatives."""
        number = self.counts + self.dispersion
        found = softplus(orders, eta - np.log(self.dispersion))
        return _less_line(orders, self.counts, eta, [number * each for each in found])

    def derivative(self, order: int, low: FloatArray, high: FloatArray) -> FloatArray:
        """Return (y + phi) times the derivative of log(1 + e^x) at x = eta - log phi."""
        shift = np.log(self.dispersion)
        return np.asarray((self.counts + self.dispersion) * softplus_derivative(order, low - shift, high - shift))


@dataclass(frozen=True)
class Normal(OneArgument):
    """Normal errors of a known scale, whose third derivative is 0."""

    y: FloatArray
    scale: FloatArray
    """Shape (n,)."""
    density = _loop.Density.normal
    nanoseconds = 4.0

    def several(self, orders: Sequence[int], eta: FloatArray) -> list[FloatArray]:
        """Return -x^2 / 2 at x = (y - eta) / sigma, or derivatives."""
        x = (self.y - eta) / self.scale
        found = (lambda: -0.5 * x**2, lambda: x / self.scale, lambda: -1 / self.scale**2, lambda: np.zeros_like(x))
        return [np.asarray(found[order]()) for order in orders]

    def derivative(self, order: int, low: FloatArray, high: FloatArray) -> FloatArray:
        """Return 1 / sigma^2, or 0."""
        return np.zeros_like(self.scale) if order > 2 else np.asarray(1 / self.scale**2)


@dataclass(frozen=True)
class StudentT(OneArgument):
    """Errors with Student's t, of a known scale and degrees of freedom; with one degree Cauchy's."""

    y: FloatArray
    degrees: FloatArray
    scale: FloatArray
    """Shape (n,)."""
    density = _loop.Density.student_t
    nanoseconds = 11.0

    def several(self, orders: Sequence[int], eta: FloatArray) -> list[FloatArray]:
        """Return -(nu + 1) / 2 log(1 + u^2) at u = (y - eta) / (sigma sqrt nu), or derivatives."""
        unit = self.scale * np.sqrt(self.degrees)
        u = (self.y - eta) / unit
        v = 1 + u**2
        found = (
            lambda: np.log1p(u**2),
            lambda: 2 * u / v,
            lambda: 2 * (2 - v) / v**2,
            lambda: 4 * u * (v - 4) / v**3,
        )
        return [np.asarray(-0.5 * (self.degrees + 1) * found[order]() / (-unit) ** order) for order in orders]

    def derivative(self, order: int, low: FloatArray, high: FloatArray) -> FloatArray:
        """Return the supremum on the whole line (see `_STUDENT`)."""
        unit = self.scale * np.sqrt(self.degrees)
        return np.asarray((self.degrees + 1) / 2 * _STUDENT[order] / unit**order)


@dataclass(frozen=True)
class Logistic(OneArgument):
    """Logistic errors of a known scale."""

    y: FloatArray
    scale: FloatArray
    """Shape (n,)."""
    density = _loop.Density.logistic
    nanoseconds = 18.0

    def several(self, orders: Sequence[int], eta: FloatArray) -> list[FloatArray]:
        """Return x - 2 log(1 + e^x) at x = (y - eta) / sigma, or derivatives."""
        x = (self.y - eta) / self.scale
        found = _less_line(orders, np.ones(1), x, [2 * each for each in softplus(orders, x)])
        return [each / (-self.scale) ** order for order, each in zip(orders, found, strict=True)]

    def derivative(self, order: int, low: FloatArray, high: FloatArray) -> FloatArray:
        """Return twice the derivative of log(1 + e^x), in units of sigma."""
        at_low, at_high = (self.y - high) / self.scale, (self.y - low) / self.scale
        return np.asarray(2 * softplus_derivative(order, at_low, at_high) / self.scale**order)
