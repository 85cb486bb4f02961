"""Ranks of true values among draws, with simultaneous bands and exact p-values for their uniformity.

Ranks follow Talts et al. (2018); the band and its p-value follow Säilynoja, Bürkner and Vehtari (2022).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, xlogy
from scipy.stats import binom

from stansub.types import FloatArray

# Equal intervals at whose ends distribution functions are compared; more give no visible gain.
_INTERVALS = 100
_POINTS: FloatArray = np.arange(1, _INTERVALS) / _INTERVALS
# Tail probabilities of mirrored counts are equal up to rounding.
_ROUNDING = 1 + 1e-9


class Rank(NamedTuple):
    """Rank of a value among draws."""

    rank: int
    """From 0 to ``of``."""
    of: int
    """Draws after thinning."""

    def uniform(self, rng: np.random.Generator) -> float:
        """Return a number that is uniform between 0 and 1 if the rank is uniform, for any number of draws."""
        return float((self.rank + rng.random()) / (self.of + 1))


def rank(draws: FloatArray, value: float, ess: float, rng: np.random.Generator, *, most: int) -> Rank:
    """Return the rank of a value among draws thinned until they are nearly independent.

    Half the effective sample size is kept, evenly spread over the chains. With the autocorrelation of a first-order
    process, neighbours then have a correlation of exp(-4). Draws equal to the value are placed on either side at
    random, with all places equally probable.

    Parameters
    ----------
    draws : ndarray, shape (chain, draw)
    ess : float
        Effective sample size of ``draws``; nan if they never moved, which counts as one draw.
    most : int
        Maximum number of draws kept.
    """
    pooled = draws.ravel()
    kept = int(min(most, max(1.0, ess / 2), pooled.size)) if math.isfinite(ess) else 1
    thinned = pooled[((np.arange(kept) + 0.5) * pooled.size / kept).astype(int)]
    below, ties = int((thinned < value).sum()), int((thinned == value).sum())
    return Rank(below + int(rng.integers(ties + 1)), kept)


class Band(NamedTuple):
    """Simultaneous band of the empirical distribution function of independent uniform numbers."""

    at: FloatArray
    """Shape (points,)."""
    low: FloatArray
    high: FloatArray
    """Shape (points,): ends of the band at these points, less the distribution function itself."""


def difference(uniforms: FloatArray, at: FloatArray) -> FloatArray:
    """Return the empirical distribution function less that of the uniform distribution, at some points."""
    counts = np.searchsorted(np.sort(uniforms), at, side="right")
    return np.asarray(counts / len(uniforms) - at)


def band(n: int, error: float) -> Band:
    """Return the simultaneous band that ``n`` uniform numbers leave with a probability of at most ``error``.

    At each point the band holds the counts whose two-sided binomial tail probability exceeds a common level (Säilynoja
    et al. 2022, section 2.2), the lowest that keeps the error.
    """
    tails = _tails(n)
    levels = np.unique(tails[tails <= error])
    low, high = 0, len(levels)  # the largest level at which the probability of leaving is at most `error`
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if _leaving(n, float(levels[middle])) <= error else (low, middle)
    inside = tails > (levels[low - 1] * _ROUNDING if low else 0.0)
    counts = np.arange(n + 1)
    lowest = np.where(inside, counts, n).min(axis=1)
    highest = np.where(inside, counts, 0).max(axis=1)
    return Band(_POINTS, lowest / n - _POINTS, highest / n - _POINTS)


def p_value(uniforms: FloatArray) -> float:
    """Return the exact probability that independent uniform numbers leave a band at least as far as these."""
    n = len(uniforms)
    counts = np.searchsorted(np.sort(uniforms), _POINTS, side="right")
    return _leaving(n, float(_tails(n)[np.arange(len(counts)), counts].min()))


@lru_cache(maxsize=8)
def _tails(n: int) -> FloatArray:
    """Return two-sided tail probabilities of counts below each point, shape (points, n + 1)."""
    at, counts = _POINTS[:, np.newaxis], np.arange(n + 1)
    below, above = binom.cdf(counts, n, at), binom.sf(counts - 1, n, at)
    return np.asarray(np.minimum(1.0, 2 * np.minimum(below, above)))


@lru_cache(maxsize=4096)
def _leaving(n: int, level: float) -> float:
    """Return the probability that the tail probability of ``n`` uniform numbers is at most ``level`` at some point.

    Counts in intervals are independent Poisson variables given their sum, so convolutions sum the paths that stay
    inside, point by point.
    """
    inside = _tails(n) > level * _ROUNDING
    step = _poisson(np.arange(n + 1), n / _INTERVALS)
    paths = step
    for row in inside:
        paths = np.convolve(np.where(row, paths, 0.0), step)[: n + 1]
    return float(np.clip(1 - paths[n] / _poisson(np.array([n]), float(n))[0], 0.0, 1.0))


def _poisson(counts: NDArray[np.int64], mean: float) -> FloatArray:
    return np.asarray(np.exp(xlogy(counts, mean) - mean - gammaln(counts + 1)))
