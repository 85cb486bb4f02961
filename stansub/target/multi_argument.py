"""Log likelihoods of one observation as functions of several arguments, and how large their derivatives get on boxes.

Each derivative is written as a sum of products of functions of one variable whose extremes on an interval are known,
and bounded by interval arithmetic: exact on a point, and the closer the smaller the box. docs/families.md has the
derivations, and what the bounds lose on wide boxes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from stansub import _loop
from stansub.target.families import PEAK, Columns, Separate, box, power, softplus, softplus_derivative
from stansub.target.rows import Rows, compact
from stansub.types import FloatArray

# Exponents are kept within this, where no product of powers below overflows; bounds are beyond all use long before.
_LOG_MAX = 150.0
# Beyond so many times the count, differences of polygamma functions at phi and phi + y are taken from their limits.
_LARGE = 1e4

Function = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class Range:
    """The least and the largest value, shape (n,) each."""

    low: FloatArray
    high: FloatArray

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def __neg__(self) -> Range:
        return Range(-self.high, -self.low)

    def __mul__(self, other: Range) -> Range:
        corners = [self.low * other.low, self.low * other.high, self.high * other.low, self.high * other.high]
        return Range(np.minimum.reduce(corners), np.maximum.reduce(corners))

    def times(self, factor: FloatArray) -> Range:
        """Scaled by numbers that are not negative."""
        return Range(self.low * factor, self.high * factor)

    @property
    def largest(self) -> FloatArray:
        """In absolute value."""
        return np.maximum(np.abs(self.low), np.abs(self.high))


def extremes(function: Function, over: Range, critical: Sequence[FloatArray | float] = ()) -> Range:
    """The range of a function of one variable that is monotone between its critical points."""
    ends = function(over.low), function(over.high)
    least, most = np.minimum(*ends), np.maximum(*ends)
    for point in critical:
        there, value = np.atleast_1d(point), function(np.atleast_1d(point))
        inside = (over.low < there) & (there < over.high)
        least, most = np.where(inside, np.minimum(least, value), least), np.where(inside, np.maximum(most, value), most)
    return Range(least, most)


def _exp(over: Range) -> Range:
    return Range(np.exp(np.clip(over.low, -_LOG_MAX, _LOG_MAX)), np.exp(np.clip(over.high, -_LOG_MAX, _LOG_MAX)))


def _boxes(centre: FloatArray, lengths: FloatArray, radius: float) -> list[Range]:
    low, high = box(centre, lengths, radius)
    return [Range(*ends) for ends in zip(low, high, strict=True)]


def _binomial_sum(derivatives: Sequence[FloatArray], a: FloatArray, b: FloatArray) -> FloatArray:
    """sum_j C(p, j) |f_j| a^(p - j) b^j, with f_j the derivative p - j times in the one and j times in the other."""
    order = len(derivatives) - 1
    terms = [math.comb(order, j) * f * power(a, order - j) * power(b, j) for j, f in enumerate(derivatives)]
    return np.asarray(sum(terms))


def _symmetric(first: FloatArray, mixed: FloatArray, second: FloatArray) -> FloatArray:
    return np.array([[first, mixed], [mixed, second]])


class Errors(ABC):
    """The log density F of a standard error.

    Attributes
    ----------
    density : Density
        Of an outcome with such an error, for the decision loop.
    """

    density: ClassVar[_loop.Density]

    @property
    def data(self) -> tuple[FloatArray, ...]:
        """What F takes beside the error, of each observation or the same for all."""
        return ()

    def part(self, rows: Rows) -> Errors:
        """Of some observations."""
        return self

    @abstractmethod
    def each(self, order: int, x: FloatArray) -> FloatArray:
        """F or its derivative of order 1, 2 or 3."""

    @abstractmethod
    def critical(self, order: int, n_scale: int) -> Sequence[FloatArray | float]:
        """Where `mixed` changes its direction, but for points where it is 0 and does not change its sign."""

    def mixed(self, order: int, n_scale: int, x: FloatArray) -> FloatArray:
        """The derivative of F((y - m) / sigma) `n_scale` times in log sigma and else in m, times (-1)^order sigma^k."""
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

    def each(self, order: int, x: FloatArray) -> FloatArray:
        if order < 2:
            return np.asarray(-x if order else -0.5 * x**2)
        return np.asarray(-1.0 if order == 2 else 0.0)

    def critical(self, order: int, n_scale: int) -> Sequence[FloatArray | float]:
        return ()


@dataclass(frozen=True)
class StudentErrors(Errors):
    """-(nu + 1) / 2 log(1 + x^2 / nu); with one degree of freedom Cauchy's.

    Attributes
    ----------
    degrees : ndarray, shape (n,) or (1,)
    """

    degrees: FloatArray
    density = _loop.Density.student_t_scale

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

    def each(self, order: int, x: FloatArray) -> FloatArray:
        power = np.exp(np.minimum(x, _LOG_MAX))
        line = (x, 1, 0, 0)[order]
        return np.asarray(line - power)

    def critical(self, order: int, n_scale: int) -> Sequence[FloatArray | float]:
        return {(2, 1): (-2.0,), (3, 1): (-3.0,), (3, 2): (-4.0, -1.0)}.get((order, n_scale), ())


@dataclass(frozen=True)
class LocationScale(Separate):
    """Errors of an unknown scale: F((y - m) / sigma) - log sigma, with arguments m and log sigma.

    Attributes
    ----------
    y : ndarray, shape (n,)
    errors : Errors
    """

    y: FloatArray
    errors: Errors
    n_arguments = 2
    highest = 2
    bounded = False

    @property
    def density(self) -> _loop.Density:
        """That of its errors."""
        return self.errors.density

    @property
    def data(self) -> FloatArray:
        """Shape (p, n)."""
        return np.array(np.broadcast_arrays(self.y, *self.errors.data))

    def part(self, rows: Rows) -> LocationScale:
        """Of some observations."""
        return LocationScale(np.asarray(self.y[rows], np.float64), self.errors.part(rows))

    def compacted(self) -> LocationScale:
        """Return the same, in less memory."""
        return LocationScale(compact(self.y), self.errors)

    def _standard(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        precision = np.exp(np.clip(-eta[1], -_LOG_MAX, _LOG_MAX))
        return (self.y - eta[0]) * precision, precision

    def log_lik(self, eta: FloatArray) -> FloatArray:
        """Shape (n,)."""
        return np.asarray(self.errors.each(0, self._standard(eta)[0]) - eta[1])

    def gradient(self, eta: FloatArray) -> FloatArray:
        """Shape (2, n)."""
        x, precision = self._standard(eta)
        slope = self.errors.each(1, x)
        return np.array([-precision * slope, -1 - x * slope])

    def hessian(self, eta: FloatArray) -> FloatArray:
        """Shape (2, 2, n)."""
        x, precision = self._standard(eta)
        parts = [self.errors.mixed(2, k, x) * precision ** (2 - k) for k in range(3)]
        return _symmetric(*parts)

    def largest(self, order: int, centre: FloatArray, lengths: FloatArray, radius: float) -> FloatArray:
        """With the precision, the functions of the standardised error and their signs each at their worst."""
        location, log_scale = _boxes(centre, lengths, radius)
        precision = _exp(-log_scale)
        x = Range(self.y - location.high, self.y - location.low) * precision
        found = []
        for k in range(order + 1):
            worst = extremes(partial(self.errors.mixed, order, k), x, self.errors.critical(order, k)).largest
            found.append(worst * power(precision.high, order - k))
        return _binomial_sum(found, *lengths)


@dataclass(frozen=True)
class NegativeBinomial2(Columns):
    """Counts by the logs of their mean and of their dispersion phi, both unknown.

    Attributes
    ----------
    counts : ndarray, shape (n,)
    """

    counts: FloatArray
    n_arguments = 2
    bounded = False
    density = _loop.Density.neg_binomial_2

    def log_lik(self, eta: FloatArray) -> FloatArray:
        """G(log phi) + y x - (y + phi) log(1 + e^x), x = eta - log phi, e^G = Gamma(y + phi) / Gamma(phi)."""
        phi, x = np.exp(np.clip(eta[1], -_LOG_MAX, _LOG_MAX)), eta[0] - eta[1]
        rising = scipy.special.gammaln(self.counts + phi) - scipy.special.gammaln(phi)
        return np.asarray(rising + self.counts * x - (self.counts + phi) * softplus((0,), x)[0])

    def gradient(self, eta: FloatArray) -> FloatArray:
        """Shape (2, n)."""
        phi, x = np.exp(np.clip(eta[1], -_LOG_MAX, _LOG_MAX)), eta[0] - eta[1]
        slope = self.counts - (self.counts + phi) * scipy.special.expit(x)
        rising = _rising_slope(self.counts, phi)
        return np.array([slope, rising - phi * softplus((0,), x)[0] - slope])

    def hessian(self, eta: FloatArray) -> FloatArray:
        """Shape (2, 2, n)."""
        return _symmetric(*(part.low for part in self._derivatives(2, eta, np.zeros_like(eta), 0.0)))

    def largest(self, order: int, centre: FloatArray, lengths: FloatArray, radius: float) -> FloatArray:
        """With phi and the functions of x at their worst."""
        found = self._derivatives(order, centre, lengths, radius)
        return _binomial_sum([part.largest for part in found], *lengths)

    def _derivatives(self, order: int, centre: FloatArray, lengths: FloatArray, radius: float) -> list[Range]:
        """From all in eta to all in log phi."""
        eta, log_phi = _boxes(centre, lengths, radius)
        x, phi, y = eta + -log_phi, _exp(log_phi), self.counts
        rising = _rising(order, y, centre[1], lengths[1] * radius)
        if order == 2:
            slope = extremes(lambda at: softplus((2,), at)[0], x, (0.0,))
            return [
                -(slope * Range(y + phi.low, y + phi.high)),
                slope.times(y) + -(phi * extremes(lambda at: scipy.special.expit(at) ** 2, x)),
                rising + -slope.times(y) + phi * extremes(_dispersion_2, x, (0.0,)),
            ]
        third = extremes(_third, x, (-PEAK, PEAK))
        return [
            -(third * Range(y + phi.low, y + phi.high)),
            third.times(y) + -(phi * extremes(_mixed_1, x, (math.log(2),))),
            -third.times(y) + phi * extremes(_mixed_2, x, (-math.log(2),)),
            rising + third.times(y) + phi * extremes(_dispersion_3, x, (-PEAK, PEAK)),
        ]


def _third(x: FloatArray) -> FloatArray:
    return np.asarray(-scipy.special.expit(x) * scipy.special.expit(-x) * np.tanh(x / 2))


def _mixed_1(x: FloatArray) -> FloatArray:
    return np.asarray(2 * scipy.special.expit(x) ** 2 * scipy.special.expit(-x))


def _mixed_2(x: FloatArray) -> FloatArray:
    return np.asarray(scipy.special.expit(x) ** 2 * -np.tanh(x / 2))


def _dispersion_2(x: FloatArray) -> FloatArray:
    p = scipy.special.expit(x)
    return np.asarray(p + p**2 - softplus((0,), x)[0])


def _dispersion_3(x: FloatArray) -> FloatArray:
    p = scipy.special.expit(x)
    return np.asarray(p + 2 * p**3 - softplus((0,), x)[0])


def _rising_slope(counts: FloatArray, phi: FloatArray) -> FloatArray:
    """The first derivative in log phi of log Gamma(y + phi) - log Gamma(phi)."""
    large = phi > _LARGE * np.maximum(counts, 1)
    at = np.where(large, 1.0, phi)
    sums = counts * (counts - 1) / 2, counts * (counts - 1) * (2 * counts - 1) / 6
    expanded = counts - (sums[0] - sums[1] / phi) / phi
    return np.where(large, expanded, at * (scipy.special.digamma(counts + at) - scipy.special.digamma(at)))


def _rising(order: int, counts: FloatArray, log_phi: FloatArray, reach: FloatArray) -> Range:
    """The range of the derivative of order 2 or 3 in log phi of log Gamma(y + phi) - log Gamma(phi).

    With s_2 and s_3 those of log(1 + e^x) they are sums of s_2 and s_3 at log phi - log j over 0 < j < y. As s_2
    changes by a factor of at most e^t over a distance t, and |s_3'| <= s_2, so do the sums.
    """
    second, third, error = _rising_at(counts, np.clip(log_phi, -_LOG_MAX, _LOG_MAX))
    growth = np.expm1(np.minimum(reach, _LOG_MAX))
    n = np.maximum(counts - 1, 0)
    if order == 2:
        return Range(second * (1 - error) / (1 + growth), np.minimum(second * (1 + growth), n / 4))
    off, most = second * (growth + error), n / (6 * math.sqrt(3))
    return Range(np.maximum(third - off, -most), np.minimum(third + off, most))


def _rising_at(counts: FloatArray, log_phi: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Those derivatives, and the relative error of what is taken from the limit of large phi."""
    if (log_phi == log_phi.flat[0]).all() and len(counts) > 1:
        few, where = np.unique(counts, return_inverse=True)
        second, third, error = _polygammas(few, np.full(len(few), log_phi.flat[0]))
        return second[where], third[where], error[where]
    return _polygammas(counts, log_phi)


def _polygammas(counts: FloatArray, log_phi: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    phi = np.exp(log_phi)
    large = phi > _LARGE * np.maximum(counts, 1)
    limit = counts * (counts - 1) / 2 / phi
    at = np.where(large, 1.0, phi)
    first, second, third = (
        at**k * (scipy.special.polygamma(k - 1, counts + at) - scipy.special.polygamma(k - 1, at)) for k in (1, 2, 3)
    )
    none, error = counts <= 1, np.where(large, 4 * counts / phi, 0.0)
    curvature = np.where(none, 0.0, np.where(large, limit, first + second))
    return curvature, np.where(none, 0.0, np.where(large, -limit, first + 3 * second + third)), error


@dataclass(frozen=True)
class Gamma(Columns):
    """Gamma variables by the logs of their shape alpha and of their rate beta.

    Attributes
    ----------
    y : ndarray, shape (n,)
    """

    y: FloatArray
    n_arguments = 2
    bounded = False
    density = _loop.Density.gamma

    def _at(self, eta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        shape, rate = np.exp(np.clip(eta, -_LOG_MAX, _LOG_MAX))
        return shape, rate * self.y, eta[1] + np.log(self.y)

    def log_lik(self, eta: FloatArray) -> FloatArray:
        """alpha log(beta y) - log Gamma(alpha) - beta y."""
        shape, scaled, log_scaled = self._at(eta)
        return np.asarray(shape * log_scaled - scipy.special.gammaln(shape) - scaled)

    def gradient(self, eta: FloatArray) -> FloatArray:
        """Shape (2, n)."""
        shape, scaled, log_scaled = self._at(eta)
        return np.array([shape * (log_scaled - scipy.special.digamma(shape)), shape - scaled])

    def hessian(self, eta: FloatArray) -> FloatArray:
        """Shape (2, 2, n)."""
        shape, scaled, log_scaled = self._at(eta)
        first = shape * (log_scaled - scipy.special.digamma(shape)) - shape**2 * scipy.special.polygamma(1, shape)
        return _symmetric(first, shape, -scaled)

    def largest(self, order: int, centre: FloatArray, lengths: FloatArray, radius: float) -> FloatArray:
        """With each part of the derivatives in log alpha at its worst."""
        log_shape, log_rate = _boxes(centre, lengths, radius)
        with np.errstate(divide="ignore"):
            log_y = np.log(self.y)
        log_scaled = Range(log_rate.low + log_y, log_rate.high + log_y)
        shape, scaled = _exp(log_shape), _exp(log_scaled)
        in_shape = _shape_times(log_shape, log_scaled) + _stirling(order, shape)
        parts = [in_shape.largest, shape.high, np.zeros_like(self.y), scaled.high]
        return _binomial_sum(parts if order == 3 else [parts[0], parts[1], parts[3]], *lengths)


def _shape_times(log_shape: Range, log_scaled: Range) -> Range:
    """e^a (v - a): linear in v; in a it rises up to v - 1 and falls from there."""

    def at(v: FloatArray) -> Range:
        return extremes(lambda a: np.exp(np.clip(a, -_LOG_MAX, _LOG_MAX)) * (v - a), log_shape, (v - 1,))

    return Range(at(log_scaled.low).low, at(log_scaled.high).high)


def _stirling(order: int, shape: Range) -> Range:
    """The derivative in a = log alpha of -log Gamma(alpha), without its part -alpha a, of order 2 or 3.

    alpha (log alpha - psi) falls, alpha^2 psi' and -alpha^3 psi'' rise.
    """
    ends = [_at_most_once(end) for end in (shape.low, shape.high)]
    first, second, third = (Range(*values) for values in zip(*ends, strict=True))
    first = Range(first.high, first.low)
    return first + -second if order == 2 else first + -second.times(np.asarray(3.0)) + third


def _at_most_once(shape: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The three functions, at one point where all are the same."""
    if len(shape) > 1 and (shape == shape[0]).all():
        return tuple(np.full(len(shape), value[0]) for value in _at_most_once(shape[:1]))  # type: ignore[return-value]
    # The difference of log alpha and psi is lost to rounding where alpha is large: the first terms of its expansion.
    large = shape > 1e5
    at = np.where(large, 1.0, shape)
    first = np.where(large, 0.5 + 1 / (12 * shape), at * (np.log(at) - scipy.special.digamma(at)))
    return first, shape**2 * scipy.special.polygamma(1, shape), -(shape**3) * scipy.special.polygamma(2, shape)


@dataclass(frozen=True)
class _Categories(Separate):
    """Categories from 0, and as many arguments as there are categories."""

    category: NDArray[np.int64]
    n_arguments: int
    highest = 2

    @property
    def data(self) -> FloatArray:
        """Shape (1, n)."""
        return np.asarray(self.category[np.newaxis], np.float64)

    def part(self, rows: Rows) -> Self:
        """Of some observations."""
        return replace(self, category=self.category[rows])


@dataclass(frozen=True)
class Categorical(_Categories):
    """Categories by the logs of their probabilities, up to a constant: arguments eta_1, ..., eta_K.

    Attributes
    ----------
    category : ndarray of int, shape (n,)
        From 0.
    n_arguments : int
        K.
    """

    bounded = True
    density = _loop.Density.categorical

    def log_lik(self, eta: FloatArray) -> FloatArray:
        """eta_y - log sum e^eta_k."""
        own = np.take_along_axis(eta, self.category[np.newaxis], 0)[0]
        return np.asarray(own - np.logaddexp.reduce(eta, 0))

    def gradient(self, eta: FloatArray) -> FloatArray:
        """Shape (K, n)."""
        own = np.arange(self.n_arguments)[:, np.newaxis] == self.category
        return np.asarray(own - np.exp(eta - np.logaddexp.reduce(eta, 0)))

    def hessian(self, eta: FloatArray) -> FloatArray:
        """Shape (K, K, n)."""
        p = np.exp(eta - np.logaddexp.reduce(eta, 0))
        return np.asarray(p[:, np.newaxis] * p - np.eye(self.n_arguments)[..., np.newaxis] * p)

    def largest(self, order: int, centre: FloatArray, lengths: FloatArray, radius: float) -> FloatArray:
        """With the probability of each category at its worst, and no more than on the whole space."""
        low, high = box(centre, lengths, radius)
        logit_low = low - _all_but(np.logaddexp, high, -np.inf)
        logit_high = high - _all_but(np.logaddexp, low, -np.inf)
        own = softplus_derivative(order, logit_low, logit_high)
        probable, most = lengths * scipy.special.expit(logit_high), lengths.max(0)
        sums = [(probable**k).sum(0) for k in (1, 2, 3)]
        k = self.n_arguments
        if order == 2:
            pairs = np.minimum(np.maximum(sums[0] ** 2 - sums[1], 0), (1 - 1 / k) * most**2)
            return np.asarray((own * lengths**2).sum(0) + pairs)
        p = Range(scipy.special.expit(logit_low), scipy.special.expit(logit_high))
        twice = extremes(lambda at: at * (1 - 2 * at), p, (0.25,)).largest
        others = np.minimum(twice * _all_but(np.add, probable, 0.0), own * _all_but(np.maximum, lengths, 0.0))
        distinct = np.maximum(sums[0] ** 3 - 3 * sums[0] * sums[1] + 2 * sums[2], 0)
        distinct = np.minimum(distinct, (1 - 1 / k) * (1 - 2 / k) * most**3)
        return np.asarray((own * lengths**3 + 3 * others * lengths**2).sum(0) + 2 * distinct)


def _all_but(ufunc: np.ufunc, values: FloatArray, start: float) -> FloatArray:
    """For each row, the other rows together."""
    edge = np.full_like(values[:1], start)
    before = ufunc.accumulate(np.concatenate([edge, values[:-1]]), axis=0)
    after = ufunc.accumulate(np.concatenate([edge, values[:0:-1]]), axis=0)[::-1]
    return np.asarray(ufunc(before, after))


@dataclass(frozen=True)
class Ordered(_Categories):
    """Ordered categories of a logistic variable: arguments eta, c_1 and log(c_k - c_(k - 1)), K in all.

    With A and B the cutpoints above and below the category, less eta, the log likelihood is the sum of -log(1 + e^-A),
    -log(1 + e^B) and log(1 - e^(B - A)), where there are both; A and B are sums of arguments and of their exponentials.

    Attributes
    ----------
    category : ndarray of int, shape (n,)
        From 0.
    n_arguments : int
        K.
    """

    bounded = False
    density = _loop.Density.ordered

    def log_lik(self, eta: FloatArray) -> FloatArray:
        """Shape (n,)."""
        parts = [side.derivative(0).low for side in self._sides(eta, eta)]
        return np.asarray(sum(parts) + self._gap(0, eta))

    def gradient(self, eta: FloatArray) -> FloatArray:
        """Shape (K, n)."""
        found = sum(side.derivative(1).low * self._slopes(eta, side) for side in self._sides(eta, eta))
        return np.asarray(found + self._is_gap * self._gap(1, eta))

    def hessian(self, eta: FloatArray) -> FloatArray:
        """Shape (K, K, n)."""
        diagonal = self._is_gap * self._gap(2, eta)
        found = np.zeros((self.n_arguments, *eta.shape))
        for side in self._sides(eta, eta):
            slopes = self._slopes(eta, side)
            found += side.derivative(2).low * slopes[:, np.newaxis] * slopes
            diagonal[2:] += side.derivative(1).low * slopes[2:]
        each = np.arange(self.n_arguments)
        found[each, each] += diagonal
        return found

    def largest(self, order: int, centre: FloatArray, lengths: FloatArray, radius: float) -> FloatArray:
        """With each derivative of the three parts at its worst; those of A and B together in what they share."""
        low, high = box(centre, lengths, radius)
        above, below = self._sides(low, high)
        alone = [above.derivative(k) for k in range(1, order + 1)]
        both = [one + below.derivative(k + 1) for k, one in enumerate(alone)]
        shared, all_of_a = (self._moves(order, high, lengths, side) for side in (below, above))
        found = _chained(both, shared) + _chained(alone, all_of_a) - _chained(alone, shared)
        own = Range(self._own_gap(low), self._own_gap(high))
        inner = extremes(lambda at: _gap(order, at), own, _GAP[order]).largest * self._own_gap(lengths) ** order
        return np.asarray(found + np.where(self._inner, inner, 0.0))

    @property
    def _inner(self) -> NDArray[np.bool_]:
        return (self.category > 0) & (self.category < self.n_arguments - 1)

    @property
    def _is_gap(self) -> NDArray[np.bool_]:
        """Which argument is the gap between an observation's two cutpoints, shape (K, n)."""
        return np.asarray((np.arange(self.n_arguments)[:, np.newaxis] == self.category + 1) & self._inner)

    def _own_gap(self, values: FloatArray) -> FloatArray:
        """That argument's value; any other's where there are no two cutpoints."""
        row = np.minimum(self.category + 1, self.n_arguments - 1)
        return np.asarray(np.take_along_axis(values, row[np.newaxis], 0)[0])

    def _gap(self, order: int, eta: FloatArray) -> FloatArray:
        return np.where(self._inner, _gap(order, self._own_gap(eta)), 0.0)

    def _sides(self, low: FloatArray, high: FloatArray) -> tuple[_Side, _Side]:
        """A and B."""
        bottom, top = (_with_sums(np.exp(np.clip(end[2:], -_LOG_MAX, _LOG_MAX))) for end in (low, high))
        sides = []
        for sign, below, there in ((-1, 0, self.category < self.n_arguments - 1), (1, 1, self.category > 0)):
            n_gaps = np.clip(self.category - below, 0, self.n_arguments - 2)
            at = Range(low[1] - high[0] + _taken(bottom, n_gaps), high[1] - low[0] + _taken(top, n_gaps))
            sides.append(_Side(at, sign, n_gaps, there))
        return sides[0], sides[1]

    def _slopes(self, eta: FloatArray, side: _Side) -> FloatArray:
        """Of A or B in the arguments, shape (K, n)."""
        gaps = np.exp(np.clip(eta[2:], -_LOG_MAX, _LOG_MAX))
        gaps = gaps * (np.arange(len(gaps))[:, np.newaxis] < side.n_gaps)
        return np.concatenate([np.full_like(eta[:1], -1.0), np.ones_like(eta[:1]), gaps])

    def _moves(self, order: int, high: FloatArray, lengths: FloatArray, side: _Side) -> list[FloatArray]:
        """Sums of |slope| l, and of |derivative of order k| l^k for k = 2, ..., in A or B."""
        gaps = np.exp(np.clip(high[2:], -_LOG_MAX, _LOG_MAX))
        found = [_taken(_with_sums(gaps * lengths[2:] ** k), side.n_gaps) for k in range(1, order + 1)]
        return [lengths[0] + lengths[1] + found[0], *found[1:]]


@dataclass(frozen=True)
class _Side:
    """A or B on a box: -log(1 + e^(sign at)), with so many gaps between cutpoints in it; 0 where it is not there."""

    at: Range
    sign: int
    n_gaps: NDArray[np.int64]
    there: NDArray[np.bool_]

    def derivative(self, order: int) -> Range:
        one = np.where(self.there, 1.0, 0.0)
        if order < 2:
            factor = -float(self.sign**order)
            return extremes(lambda at: factor * softplus((order,), self.sign * at)[0], self.at).times(one)
        if order == 2:
            return -extremes(lambda at: softplus((2,), at)[0], self.at, (0.0,)).times(one)
        return -extremes(_third, self.at, (-PEAK, PEAK)).times(one)


def _with_sums(rows: FloatArray) -> FloatArray:
    """Sums of the first 0, 1, ... rows."""
    return np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(rows, 0)])


def _taken(rows: FloatArray, which: NDArray[np.int64]) -> FloatArray:
    return np.asarray(np.take_along_axis(rows, which[np.newaxis], 0)[0])


def _chained(f: Sequence[Range], moves: Sequence[FloatArray]) -> FloatArray:
    """Sums of absolute derivatives, times lengths, of F(A) where A is a sum of functions of one argument each.

    By Faa di Bruno's formula, from those of F and from the sums over arguments of the absolute derivatives of A times
    powers of lengths.
    """
    if len(f) == 2:
        return np.asarray(f[1].largest * moves[0] ** 2 + f[0].largest * moves[1])
    return np.asarray(f[2].largest * moves[0] ** 3 + 3 * f[1].largest * moves[0] * moves[1] + f[0].largest * moves[2])


# Where the second and the third derivative of log(1 - exp(-e^d)) are largest in absolute value or change direction.
_GAP = {2: (0.62082965456557214456,), 3: (-0.19894156695829578431, 1.426690653586295307)}


def _gap(order: int, log_gap: FloatArray) -> FloatArray:
    """log(1 - exp(-g)) at g = e^d, or a derivative in d.

    With q = g / (e^g - 1) and e = 1 - g - q these are q, q e and q (e^2 - g - q e).
    """
    g = np.exp(np.clip(log_gap, -_LOG_MAX, _LOG_MAX))
    if order == 0:
        return np.asarray(np.log(-np.expm1(-g)))
    q = g * np.exp(-g) / -np.expm1(-g)
    e = 1 - g - q
    return np.asarray((q, q * e, q * (e**2 - g - q * e))[order - 1])
