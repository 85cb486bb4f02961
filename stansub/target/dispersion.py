"""Log likelihoods of a mean and a dispersion (negative binomial, gamma), with bounds on their derivatives on boxes.

Each derivative is a sum of products of functions of one variable with known extremes on an interval. Interval
arithmetic bounds it: exactly at a point, and more tightly on smaller boxes (docs/reference/families.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy

from stansub import _loop
from stansub.target.families import PEAK, ByArgument, Columns, softplus
from stansub.target.intervals import (
    LOG_MAX,
    Interval,
    binomial_split,
    boxes,
    exponential,
    extremes,
    softplus_third,
    symmetric,
)
from stansub.types import FloatArray

# Multiple of the count beyond which differences of polygamma functions at phi and phi + y are taken from their limits.
_LARGE = 1e4


@dataclass(frozen=True)
class NegativeBinomial2(Columns, ByArgument):
    """Counts from the logs of their mean and of their dispersion phi, both unknown."""

    counts: FloatArray
    """Shape (n,)."""
    n_arguments = 2
    bounded = False
    density = _loop.Density.neg_binomial_2
    nanoseconds = 40.0

    def log_lik(self, eta: FloatArray) -> FloatArray:
        """Return G(log phi) + y x - (y + phi) log(1 + e^x), x = eta - log phi, e^G = Gamma(y + phi) / Gamma(phi)."""
        phi, x = np.exp(np.clip(eta[1], -LOG_MAX, LOG_MAX)), eta[0] - eta[1]
        rising = scipy.special.gammaln(self.counts + phi) - scipy.special.gammaln(phi)
        return np.asarray(rising + self.counts * x - (self.counts + phi) * softplus((0,), x)[0])

    def gradient(self, eta: FloatArray) -> FloatArray:
        """Return gradients, shape (2, n)."""
        phi, x = np.exp(np.clip(eta[1], -LOG_MAX, LOG_MAX)), eta[0] - eta[1]
        slope = self.counts - (self.counts + phi) * scipy.special.expit(x)
        rising = _rising_slope(self.counts, phi)
        return np.array([slope, rising - phi * softplus((0,), x)[0] - slope])

    def hessian(self, eta: FloatArray) -> FloatArray:
        """Return Hessians, shape (2, 2, n)."""
        return symmetric(*(part.low for part in self._derivatives(2, eta, np.zeros_like(eta), 0.0)))

    def by_argument(self, order: int, centre: FloatArray, lengths: FloatArray, radius: float) -> FloatArray:
        """Return bounds with the worst phi and functions of x."""
        found = self._derivatives(order, centre, lengths, radius)
        return binomial_split([part.largest for part in found], *lengths)

    def _derivatives(self, order: int, centre: FloatArray, lengths: FloatArray, radius: float) -> list[Interval]:
        """Return derivatives from all in eta to all in log phi."""
        eta, log_phi = boxes(centre, lengths, radius)
        x, phi, y = eta + -log_phi, exponential(log_phi), self.counts
        rising = _rising(order, y, centre[1], lengths[1] * radius)
        if order == 2:
            slope = extremes(lambda at: softplus((2,), at)[0], x, (0.0,))
            return [
                -(slope * Interval(y + phi.low, y + phi.high)),
                slope.times(y) + -(phi * extremes(lambda at: scipy.special.expit(at) ** 2, x)),
                rising + -slope.times(y) + phi * extremes(_dispersion_2, x, (0.0,)),
            ]
        third = extremes(softplus_third, x, (-PEAK, PEAK))
        return [
            -(third * Interval(y + phi.low, y + phi.high)),
            third.times(y) + -(phi * extremes(_mixed_1, x, (math.log(2),))),
            -third.times(y) + phi * extremes(_mixed_2, x, (-math.log(2),)),
            rising + third.times(y) + phi * extremes(_dispersion_3, x, (-PEAK, PEAK)),
        ]


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
    """Return the first derivative in log phi of log Gamma(y + phi) - log Gamma(phi)."""
    large = phi > _LARGE * np.maximum(counts, 1)
    at = np.where(large, 1.0, phi)
    sums = counts * (counts - 1) / 2, counts * (counts - 1) * (2 * counts - 1) / 6
    expanded = counts - (sums[0] - sums[1] / phi) / phi
    return np.where(large, expanded, at * (scipy.special.digamma(counts + at) - scipy.special.digamma(at)))


def _rising(order: int, counts: FloatArray, log_phi: FloatArray, reach: FloatArray) -> Interval:
    """Return the range of the derivative of order 2 or 3 in log phi of log Gamma(y + phi) - log Gamma(phi).

    With s_2 and s_3 those of log(1 + e^x), they are sums of s_2 and s_3 at log phi - log j over 0 < j < y. Since s_2
    changes by a factor of at most e^t over a distance t, and |s_3'| <= s_2, so do the sums.
    """
    second, third, error = _rising_at(counts, np.clip(log_phi, -LOG_MAX, LOG_MAX))
    growth = np.expm1(np.minimum(reach, LOG_MAX))
    n = np.maximum(counts - 1, 0)
    if order == 2:
        return Interval(second * (1 - error) / (1 + growth), np.minimum(second * (1 + growth), n / 4))
    off, most = second * (growth + error), n / (6 * math.sqrt(3))
    return Interval(np.maximum(third - off, -most), np.minimum(third + off, most))


def _rising_at(counts: FloatArray, log_phi: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return those derivatives, and the relative error of those from the limit of large phi."""
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
class Gamma(Columns, ByArgument):
    """Gamma variables from the logs of their shape alpha and of their rate beta."""

    y: FloatArray
    """Shape (n,)."""
    n_arguments = 2
    bounded = False
    density = _loop.Density.gamma
    nanoseconds = 20.0

    def _at(self, eta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        shape, rate = np.exp(np.clip(eta, -LOG_MAX, LOG_MAX))
        return shape, rate * self.y, eta[1] + np.log(self.y)

    def log_lik(self, eta: FloatArray) -> FloatArray:
        """Return alpha log(beta y) - log Gamma(alpha) - beta y."""
        shape, scaled, log_scaled = self._at(eta)
        return np.asarray(shape * log_scaled - scipy.special.gammaln(shape) - scaled)

    def gradient(self, eta: FloatArray) -> FloatArray:
        """Return gradients, shape (2, n)."""
        shape, scaled, log_scaled = self._at(eta)
        return np.array([shape * (log_scaled - scipy.special.digamma(shape)), shape - scaled])

    def hessian(self, eta: FloatArray) -> FloatArray:
        """Return Hessians, shape (2, 2, n)."""
        shape, scaled, log_scaled = self._at(eta)
        first = shape * (log_scaled - scipy.special.digamma(shape)) - shape**2 * scipy.special.polygamma(1, shape)
        return symmetric(first, shape, -scaled)

    def by_argument(self, order: int, centre: FloatArray, lengths: FloatArray, radius: float) -> FloatArray:
        """Return bounds with the worst value of each part of the derivatives in log alpha."""
        log_shape, log_rate = boxes(centre, lengths, radius)
        with np.errstate(divide="ignore"):
            log_y = np.log(self.y)
        log_scaled = Interval(log_rate.low + log_y, log_rate.high + log_y)
        shape, scaled = exponential(log_shape), exponential(log_scaled)
        in_shape = _shape_times(log_shape, log_scaled) + _stirling(order, shape)
        parts = [in_shape.largest, shape.high, np.zeros_like(self.y), scaled.high]
        return binomial_split(parts if order == 3 else [parts[0], parts[1], parts[3]], *lengths)


def _shape_times(log_shape: Interval, log_scaled: Interval) -> Interval:
    """Return the range of e^a (v - a), which is linear in v and in a rises up to v - 1 and then falls."""

    def at(v: FloatArray) -> Interval:
        return extremes(lambda a: np.exp(np.clip(a, -LOG_MAX, LOG_MAX)) * (v - a), log_shape, (v - 1,))

    return Interval(at(log_scaled.low).low, at(log_scaled.high).high)


def _stirling(order: int, shape: Interval) -> Interval:
    """Return the derivative of order 2 or 3 in a = log alpha of -log Gamma(alpha), without its part -alpha a.

    alpha (log alpha - psi) falls, alpha^2 psi' and -alpha^3 psi'' rise.
    """
    ends = [_at_most_once(end) for end in (shape.low, shape.high)]
    first, second, third = (Interval(*values) for values in zip(*ends, strict=True))
    first = Interval(first.high, first.low)
    return first + -second if order == 2 else first + -second.times(np.asarray(3.0)) + third


def _at_most_once(shape: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the three functions, at one point if all points are equal."""
    if len(shape) > 1 and (shape == shape[0]).all():
        return tuple(np.full(len(shape), value[0]) for value in _at_most_once(shape[:1]))  # type: ignore[return-value]
    # Rounding loses the difference of log alpha and psi if alpha is large, so the first terms of its expansion are
    # used.
    large = shape > 1e5
    at = np.where(large, 1.0, shape)
    first = np.where(large, 0.5 + 1 / (12 * shape), at * (np.log(at) - scipy.special.digamma(at)))
    return first, shape**2 * scipy.special.polygamma(1, shape), -(shape**3) * scipy.special.polygamma(2, shape)
