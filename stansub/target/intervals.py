"""Extremes of functions on intervals and sums of derivatives on boxes, for likelihoods of several arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from stansub.target.families import box, power
from stansub.types import FloatArray

# Exponents are limited to this, so that no product of powers below overflows; bounds are useless long before.
LOG_MAX = 150.0

Function = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class Interval:
    """Smallest and largest value, shape (n,) each."""

    low: FloatArray
    high: FloatArray

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.high + other.high)

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low)

    def __mul__(self, other: Interval) -> Interval:
        corners = [self.low * other.low, self.low * other.high, self.high * other.low, self.high * other.high]
        return Interval(np.minimum.reduce(corners), np.maximum.reduce(corners))

    def times(self, factor: FloatArray) -> Interval:
        """Return the interval scaled by nonnegative numbers."""
        return Interval(self.low * factor, self.high * factor)

    @property
    def largest(self) -> FloatArray:
        """Return the largest absolute value."""
        return np.maximum(np.abs(self.low), np.abs(self.high))


def extremes(function: Function, over: Interval, critical: Sequence[FloatArray | float] = ()) -> Interval:
    """Return the range of a function of one variable that is monotone between its critical points."""
    ends = function(over.low), function(over.high)
    least, most = np.minimum(*ends), np.maximum(*ends)
    for point in critical:
        there, value = np.atleast_1d(point), function(np.atleast_1d(point))
        inside = (over.low < there) & (there < over.high)
        least, most = np.where(inside, np.minimum(least, value), least), np.where(inside, np.maximum(most, value), most)
    return Interval(least, most)


def exponential(over: Interval) -> Interval:
    return Interval(np.exp(np.clip(over.low, -LOG_MAX, LOG_MAX)), np.exp(np.clip(over.high, -LOG_MAX, LOG_MAX)))


def boxes(centre: FloatArray, lengths: FloatArray, radius: float) -> list[Interval]:
    low, high = box(centre, lengths, radius)
    return [Interval(*ends) for ends in zip(low, high, strict=True)]


def binomial_split(derivatives: Sequence[FloatArray], a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the shares of two arguments, shape (2, n), in sum_j C(p, j) |f_j| a^(p - j) b^j.

    f_j is the derivative p - j times in one argument, j in the other, which are their shares of a term: by the
    inequality of the means, x^(p - j) y^j <= (p - j) / p x^p + j / p y^p.
    """
    order = len(derivatives) - 1
    terms = [math.comb(order, j) * f * power(a, order - j) * power(b, j) for j, f in enumerate(derivatives)]
    return np.array(
        [sum(share(j) / order * term for j, term in enumerate(terms)) for share in (lambda j: order - j, int)]
    )


def symmetric(first: FloatArray, mixed: FloatArray, second: FloatArray) -> FloatArray:
    return np.array([[first, mixed], [mixed, second]])


def softplus_third(x: FloatArray) -> FloatArray:
    return np.asarray(-scipy.special.expit(x) * scipy.special.expit(-x) * np.tanh(x / 2))
