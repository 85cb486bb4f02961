"""Log likelihoods of a location and a scale, with bounds on their derivatives on boxes.

Each derivative is a sum of products of functions of one variable with known extremes on an interval. Interval
arithmetic bounds it: exactly at a point, and more tightly on smaller boxes (docs/reference/families.md).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import scipy
from numpy.typing import NDArray

from stansub import _loop
from stansub.target.families import PEAK, ByArgument, power
from stansub.target.intervals import (
    LOG_MAX,
    Interval,
    binomial_split,
    boxes,
    exponential,
    extremes,
    symmetric,
)
from stansub.target.rows import Rows, compact
from stansub.types import FloatArray


class Errors(ABC):
    """Log density F of a standardised error."""

    density: ClassVar[_loop.Density]
    """Density of an outcome with such an error, for the decision loop."""
    nanoseconds: ClassVar[float]
    """See `stansub.target.remainders.Family`."""

    @property
    def data(self) -> tuple[FloatArray, ...]:
        """Return the data of F besides the error, for each observation or common to all."""
        return ()

    def part(self, rows: Rows) -> Errors:
        """Return the errors of some observations."""
        return self

    @abstractmethod
    def each(self, order: int, x: FloatArray) -> FloatArray:
        """Return F or its derivative of order 1, 2 or 3."""

    @abstractmethod
    def critical(self, order: int, n_scale: int) -> Sequence[FloatArray | float]:
        """Return the points at which `mixed` turns, except those where it is 0 without a change of sign."""

    def mixed(self, order: int, n_scale: int, x: FloatArray) -> FloatArray:
        """Return the derivative of F((y - m) / sigma) times (-1)^order sigma^k.

        It is taken `n_scale` times in log sigma and else in m.
        """
        f = [x, *(self.each(k, x) for k in range(1, order + 1))]
        if order == 2:
            inner = f[1] + x * f[2]
            return np.asarray((f[2], inner, x * inner)[n_scale])
        if n_scale < 2:
            return np.asarray(f[3] if n_scale == 0 else 2 * f[2] + x * f[3])
        inner = f[1] + x * (3 * f[2] + x * f[3])
        return np.asarray(inner if n_scale == 2 else x * inner)


@dataclass(frozen=True)
class NormalErrors(Errors):
    """-x^2 / 2."""

    density = _loop.Density.normal_scale
    nanoseconds = 7.0

    def each(self, order: int, x: FloatArray) -> FloatArray:
        if order < 2:
            return np.asarray(-x if order else -0.5 * x**2)
        return np.asarray(-1.0 if order == 2 else 0.0)

    def critical(self, order: int, n_scale: int) -> Sequence[FloatArray | float]:
        return ()


@dataclass(frozen=True)
class StudentErrors(Errors):
    """-(nu + 1) / 2 log(1 + x^2 / nu); with one degree of freedom Cauchy's."""

    degrees: FloatArray
    """Shape (n,) or (1,)."""
    density = _loop.Density.student_t_scale
    nanoseconds = 13.0

    @property
    def data(self) -> tuple[FloatArray, ...]:
        return (self.degrees,)

    def part(self, rows: Rows) -> StudentErrors:
        return self if len(self.degrees) == 1 else StudentErrors(self.degrees[rows])

    def each(self, order: int, x: FloatArray) -> FloatArray:
        unit = np.sqrt(self.degrees)
        u = np.clip(x / unit, -1e50, 1e50)
        v = 1 + u**2
        if order == 0:
            found = np.log1p(u**2)
        elif order == 1:
            found = 2 * u / v
        else:
            found = 2 * (2 - v) / v**2 if order == 2 else 4 * u * (v - 4) / (v * v * v)
        return np.asarray(-0.5 * (self.degrees + 1) * found / unit**order)

    def critical(self, order: int, n_scale: int) -> Sequence[FloatArray | float]:
        unit = np.sqrt(self.degrees)
        return [sign * point * unit for point in _STUDENT[order, n_scale] for sign in (-1, 1)]


# For log(1 + u^2), u >= 0, from its derivatives 2 u / (1 + v), 2 (1 - v) / (1 + v)^2, 4 u (v - 3) / (1 + v)^3, v = u^2.
_STUDENT = {
    (2, 0): (0.0, math.sqrt(3)),
    (2, 1): (1 / math.sqrt(3),),
    (2, 2): (0.0, 1.0),
    (3, 0): (math.sqrt(2) - 1, math.sqrt(2) + 1),
    (3, 1): (0.0, 1.0),
    (3, 2): (math.sqrt((4 - math.sqrt(13)) / 3), math.sqrt((4 + math.sqrt(13)) / 3)),
    (3, 3): (0.0, math.sqrt(2 - math.sqrt(3)), math.sqrt(2 + math.sqrt(3))),
}


@dataclass(frozen=True)
class LogisticErrors(Errors):
    """x - 2 log(1 + e^x)."""

    density = _loop.Density.logistic_scale
    nanoseconds = 22.0

    def each(self, order: int, x: FloatArray) -> FloatArray:
        if order == 0:
            return np.asarray(-np.abs(x) - 2 * np.log1p(np.exp(-np.abs(x))))
        if order == 1:
            return np.asarray(-np.tanh(x / 2))
        slope = scipy.special.expit(x) * scipy.special.expit(-x)
        return np.asarray(-2 * slope if order == 2 else 2 * slope * np.tanh(x / 2))

    def critical(self, order: int, n_scale: int) -> Sequence[FloatArray | float]:
        return [sign * point for point in _LOGISTIC[order, n_scale] for sign in (-1, 1)]


# x >= 0 where the derivatives of the functions of `Errors.mixed` vanish, by Newton's method in 30 digits.
_LOGISTIC = {
    (2, 0): (0.0,),
    (2, 1): (2.3993572805154676678,),
    (2, 2): (),
    (3, 0): (PEAK,),
    (3, 1): (0.0, 3.435840993535110689),
    (3, 2): (1.3658604666908430601, 4.274151482392553041),
    (3, 3): (),
}


@dataclass(frozen=True)
class ExtremeErrors(Errors):
    """x - e^x: the logarithm of an exponential variable."""

    density = _loop.Density.extreme_scale
    nanoseconds = 10.0

    def each(self, order: int, x: FloatArray) -> FloatArray:
        power = np.exp(np.minimum(x, LOG_MAX))
        line = (x, 1, 0, 0)[order]
        return np.asarray(line - power)

    def critical(self, order: int, n_scale: int) -> Sequence[FloatArray | float]:
        return {(2, 1): (-2.0,), (3, 1): (-3.0,), (3, 2): (-4.0, -1.0)}.get((order, n_scale), ())


@dataclass(frozen=True)
class LocationScale(ByArgument):
    """Errors with an unknown scale: F((y - m) / sigma) - log sigma, with arguments m and log sigma."""

    y: FloatArray
    """Shape (n,)."""
    errors: Errors
    n_arguments = 2
    bounded = False

    @property
    def density(self) -> _loop.Density:
        """Return the density of its errors."""
        return self.errors.density

    @property
    def nanoseconds(self) -> float:
        """Return the time of a log likelihood with its errors."""
        return self.errors.nanoseconds

    @property
    def data(self) -> tuple[NDArray[Any], ...]:
        """Return the data, p columns of shape (n,)."""
        return (self.y, *(np.broadcast_to(one, self.y.shape) for one in self.errors.data))

    def part(self, rows: Rows) -> LocationScale:
        """Return the family of some observations."""
        return LocationScale(np.asarray(self.y[rows], np.float64), self.errors.part(rows))

    def compacted(self) -> LocationScale:
        """Return the family in less memory."""
        return LocationScale(compact(self.y), self.errors)

    def _standard(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        precision = np.exp(np.clip(-eta[1], -LOG_MAX, LOG_MAX))
        return (self.y - eta[0]) * precision, precision

    def log_lik(self, eta: FloatArray) -> FloatArray:
        """Return log likelihoods, shape (n,)."""
        return np.asarray(self.errors.each(0, self._standard(eta)[0]) - eta[1])

    def gradient(self, eta: FloatArray) -> FloatArray:
        """Return gradients, shape (2, n)."""
        x, precision = self._standard(eta)
        slope = self.errors.each(1, x)
        return np.array([-precision * slope, -1 - x * slope])

    def hessian(self, eta: FloatArray) -> FloatArray:
        """Return Hessians, shape (2, 2, n)."""
        x, precision = self._standard(eta)
        parts = [self.errors.mixed(2, k, x) * precision ** (2 - k) for k in range(3)]
        return symmetric(*parts)

    def by_argument(self, order: int, centre: FloatArray, lengths: FloatArray, radius: float) -> FloatArray:
        """Return bounds with the worst precision, functions of the standardised error and signs."""
        location, log_scale = boxes(centre, lengths, radius)
        precision = exponential(-log_scale)
        x = Interval(self.y - location.high, self.y - location.low) * precision
        found = []
        for k in range(order + 1):
            worst = extremes(partial(self.errors.mixed, order, k), x, self.errors.critical(order, k)).largest
            found.append(worst * power(precision.high, order - k))
        return binomial_split(found, *lengths)
