"""Log likelihoods of ordered and unordered categories, with bounds on their derivatives on boxes.

Each derivative is a sum of products of functions of one variable with known extremes on an interval. Interval
arithmetic bounds it: exactly at a point, and more tightly on smaller boxes (docs/reference/families.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from stansub import _loop
from stansub.target.families import PEAK, Separate, box, softplus, softplus_derivative
from stansub.target.intervals import (
    LOG_MAX,
    Interval,
    extremes,
    softplus_third,
)
from stansub.target.rows import Rows, compact
from stansub.types import FloatArray


@dataclass(frozen=True)
class _Categories(Separate):
    """Base of families with categories from 0 and as many arguments as categories."""

    category: NDArray[np.int64]
    n_arguments: int
    per_argument: ClassVar[float]
    """Nanoseconds of a log likelihood for each argument."""

    @property
    def nanoseconds(self) -> float:
        """Return the time of a log likelihood."""
        return self.per_argument * self.n_arguments

    @property
    def data(self) -> tuple[NDArray[Any], ...]:
        """Return the categories, one column of shape (n,)."""
        return (self.category,)

    def part(self, rows: Rows) -> Self:
        """Return the family of some observations."""
        return replace(self, category=self.category[rows].astype(np.int64, copy=False))

    def compacted(self) -> Self:
        """Return the family in less memory."""
        return replace(self, category=compact(self.category))


@dataclass(frozen=True)
class Categorical(_Categories):
    """Categories from the logs of their probabilities, up to a constant: arguments eta_1, ..., eta_K.

    Attributes
    ----------
    category : ndarray of int, shape (n,)
        Categories from 0.
    n_arguments : int
        K.
    """

    bounded = True
    density = _loop.Density.categorical
    per_argument = 5.0

    def log_lik(self, eta: FloatArray) -> FloatArray:
        """Return eta_y - log sum e^eta_k."""
        own = np.take_along_axis(eta, self.category[np.newaxis], 0)[0]
        return np.asarray(own - np.logaddexp.reduce(eta, 0))

    def gradient(self, eta: FloatArray) -> FloatArray:
        """Return gradients, shape (K, n)."""
        own = np.arange(self.n_arguments)[:, np.newaxis] == self.category
        return np.asarray(own - np.exp(eta - np.logaddexp.reduce(eta, 0)))

    def hessian(self, eta: FloatArray) -> FloatArray:
        """Return Hessians, shape (K, K, n)."""
        p = np.exp(eta - np.logaddexp.reduce(eta, 0))
        return np.asarray(p[:, np.newaxis] * p - np.eye(self.n_arguments)[..., np.newaxis] * p)

    def largest(self, order: int, centre: FloatArray, lengths: FloatArray, radius: float) -> FloatArray:
        """Return bounds with the worst probability of each category, at most those on the whole space."""
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
        p = Interval(scipy.special.expit(logit_low), scipy.special.expit(logit_high))
        twice = extremes(lambda at: at * (1 - 2 * at), p, (0.25,)).largest
        others = np.minimum(twice * _all_but(np.add, probable, 0.0), own * _all_but(np.maximum, lengths, 0.0))
        distinct = np.maximum(sums[0] ** 3 - 3 * sums[0] * sums[1] + 2 * sums[2], 0)
        distinct = np.minimum(distinct, (1 - 1 / k) * (1 - 2 / k) * most**3)
        return np.asarray((own * lengths**3 + 3 * others * lengths**2).sum(0) + 2 * distinct)


def _all_but(ufunc: np.ufunc, values: FloatArray, start: float) -> FloatArray:
    """Return, for each row, the other rows combined."""
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
        Categories from 0.
    n_arguments : int
        K.
    """

    bounded = False
    density = _loop.Density.ordered
    per_argument = 8.0

    def log_lik(self, eta: FloatArray) -> FloatArray:
        """Return log likelihoods, shape (n,)."""
        parts = [side.derivative(0).low for side in self._sides(eta, eta)]
        return np.asarray(sum(parts) + self._gap(0, eta))

    def gradient(self, eta: FloatArray) -> FloatArray:
        """Return gradients, shape (K, n)."""
        found = sum(side.derivative(1).low * self._slopes(eta, side) for side in self._sides(eta, eta))
        return np.asarray(found + self._is_gap * self._gap(1, eta))

    def hessian(self, eta: FloatArray) -> FloatArray:
        """Return Hessians, shape (K, K, n)."""
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
        """Return bounds with the worst value of each part's derivatives; A and B share common terms."""
        low, high = box(centre, lengths, radius)
        above, below = self._sides(low, high)
        alone = [above.derivative(k) for k in range(1, order + 1)]
        both = [one + below.derivative(k + 1) for k, one in enumerate(alone)]
        shared, all_of_a = (self._moves(order, high, lengths, side) for side in (below, above))
        found = _chained(both, shared) + _chained(alone, all_of_a) - _chained(alone, shared)
        own = Interval(self._own_gap(low), self._own_gap(high))
        inner = extremes(lambda at: _gap(order, at), own, _GAP[order]).largest * self._own_gap(lengths) ** order
        return np.asarray(found + np.where(self._inner, inner, 0.0))

    @property
    def _inner(self) -> NDArray[np.bool_]:
        return (self.category > 0) & (self.category < self.n_arguments - 1)

    @property
    def _is_gap(self) -> NDArray[np.bool_]:
        """Return which argument is the gap between an observation's two cutpoints, shape (K, n)."""
        return np.asarray((np.arange(self.n_arguments)[:, np.newaxis] == self.category + 1) & self._inner)

    def _own_gap(self, values: FloatArray) -> FloatArray:
        """Return that argument's value; that of any other if there are not two cutpoints."""
        row = np.minimum(self.category + 1, self.n_arguments - 1)
        return _taken(values, row)

    def _gap(self, order: int, eta: FloatArray) -> FloatArray:
        return np.where(self._inner, _gap(order, self._own_gap(eta)), 0.0)

    def _sides(self, low: FloatArray, high: FloatArray) -> tuple[_Side, _Side]:
        """Return A and B."""
        bottom, top = (_with_sums(np.exp(np.clip(end[2:], -LOG_MAX, LOG_MAX))) for end in (low, high))
        sides = []
        for sign, below, there in ((-1, 0, self.category < self.n_arguments - 1), (1, 1, self.category > 0)):
            n_gaps = np.clip(self.category - below, 0, self.n_arguments - 2)
            at = Interval(low[1] - high[0] + _taken(bottom, n_gaps), high[1] - low[0] + _taken(top, n_gaps))
            sides.append(_Side(at, sign, n_gaps, there))
        return sides[0], sides[1]

    def _slopes(self, eta: FloatArray, side: _Side) -> FloatArray:
        """Return derivatives of A or B in the arguments, shape (K, n)."""
        gaps = np.exp(np.clip(eta[2:], -LOG_MAX, LOG_MAX))
        gaps = gaps * (np.arange(len(gaps))[:, np.newaxis] < side.n_gaps)
        return np.concatenate([np.full_like(eta[:1], -1.0), np.ones_like(eta[:1]), gaps])

    def _moves(self, order: int, high: FloatArray, lengths: FloatArray, side: _Side) -> list[FloatArray]:
        """Return sums of |slope| l, and of |derivative of order k| l^k for k = 2, ..., in A or B."""
        gaps = np.exp(np.clip(high[2:], -LOG_MAX, LOG_MAX))
        found = [_taken(_with_sums(gaps * lengths[2:] ** k), side.n_gaps) for k in range(1, order + 1)]
        return [lengths[0] + lengths[1] + found[0], *found[1:]]


@dataclass(frozen=True)
class _Side:
    """A or B on a box, with its number of gaps between cutpoints: -log(1 + e^(sign at)); 0 if absent."""

    at: Interval
    sign: int
    n_gaps: NDArray[np.int64]
    there: NDArray[np.bool_]

    def derivative(self, order: int) -> Interval:
        one = np.where(self.there, 1.0, 0.0)
        if order < 2:
            factor = -float(self.sign**order)
            return extremes(lambda at: factor * softplus((order,), self.sign * at)[0], self.at).times(one)
        if order == 2:
            return -extremes(lambda at: softplus((2,), at)[0], self.at, (0.0,)).times(one)
        return -extremes(softplus_third, self.at, (-PEAK, PEAK)).times(one)


def _with_sums(rows: FloatArray) -> FloatArray:
    """Return sums of the first 0, 1, ... rows."""
    return np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(rows, 0)])


def _taken(rows: FloatArray, which: NDArray[np.int64]) -> FloatArray:
    return np.asarray(np.take_along_axis(rows, which[np.newaxis], 0)[0])


def _chained(f: Sequence[Interval], moves: Sequence[FloatArray]) -> FloatArray:
    """Return sums of absolute derivatives, times lengths, of F(A), where A is a sum of functions of one argument each.

    The sums follow by Faa di Bruno's formula from those of F and from the sums over arguments of the absolute
    derivatives of A times powers of lengths.
    """
    if len(f) == 2:
        return np.asarray(f[1].largest * moves[0] ** 2 + f[0].largest * moves[1])
    return np.asarray(f[2].largest * moves[0] ** 3 + 3 * f[1].largest * moves[0] * moves[1] + f[0].largest * moves[2])


# Points at which the second and third derivatives of log(1 - exp(-e^d)) have their largest absolute value or turn.
_GAP = {2: (0.62082965456557214456,), 3: (-0.19894156695829578431, 1.426690653586295307)}


def _gap(order: int, log_gap: FloatArray) -> FloatArray:
    """Return log(1 - exp(-g)) at g = e^d, or a derivative in d.

    With q = g / (e^g - 1) and e = 1 - g - q these are q, q e and q (e^2 - g - q e).
    """
    g = np.exp(np.clip(log_gap, -LOG_MAX, LOG_MAX))
    if order == 0:
        return np.asarray(np.log(-np.expm1(-g)))
    q = g * np.exp(-g) / -np.expm1(-g)
    e = 1 - g - q
    return np.asarray((q, q * e, q * (e**2 - g - q * e))[order - 1])
