"""Stopping rules from Student's t: Korattikara et al. (2014) and Pocock (1977)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import scipy

from stansub.acceptance.looks import Geometric, Schedule, Table, looks_at
from stansub.acceptance.ranges import Range
from stansub.acceptance.stopping import Exact, Guarantee, StoppingRule, check_level
from stansub.errors import InputError
from stansub.types import FloatArray, IntArray

# Student's t needs means of units that are nearly normal.
T_LOOKS = Geometric(first=50)
# With an error budget for the whole decision, many looks cost little and let a decision stop early.
POCOCK_LOOKS = Geometric(first=50, growth=1.1)
# More looks than this gain less than the error budget they use.
MAX_POCOCK_LOOKS = 200
# A crossing probability is computed as 1 less its complement. For smaller error budgets rounding matters, so
# Bonferroni's critical value, which is hardly larger there, is used.
_SMALLEST_SOLVED = 1e-10


@dataclass(frozen=True, kw_only=True)
class _Student(StoppingRule):
    """Base of the t-tests: error level and schedule of looks."""

    epsilon: float
    looks: Schedule
    rests_on_t = True

    def __post_init__(self) -> None:
        check_level("epsilon", self.epsilon, zero=True)

    @property
    def exact(self) -> bool:
        return self.epsilon == 0

    def guarantee(self, source: Range | None) -> Guarantee:
        return Guarantee.EXACT if self.exact else Guarantee.ASYMPTOTIC

    def _epsilon(self, level: float | None) -> float:
        if level is None:
            return self.epsilon
        check_level("epsilon", level, zero=True)
        return level


@dataclass(frozen=True, kw_only=True)
class Austerity(_Student):
    """Student's t-test at every look (Korattikara et al. 2014, algorithm 1).

    ``epsilon`` is the level of each look: the test decides when the tail probability of
    t = (m - mu0) / (s / sqrt(n) * sqrt(1 - (n - 1) / (M - 1))) with n - 1 degrees of freedom is below it (their eq. 3
    and 4, with the correction for drawing without replacement that belongs to the population variance with divisor
    M). The error of a whole decision is larger, because there are several looks. At 0.05 the draws of a random walk at
    equilibrium are visibly too wide, hence the small default. 0 is exact Metropolis-Hastings.

    Raises
    ------
    InputError
        If ``epsilon`` is not in [0, 1) or the schedule's first look has fewer than 2 units.
    """

    epsilon: float = 0.001
    looks: Schedule = T_LOOKS
    name = "austerity"
    level_of_a_look = True

    def table(self, n_units: int, level: float | None = None) -> Table:
        epsilon = self._epsilon(level)
        if epsilon == 0:
            return Exact().table(n_units)
        return _t_table(looks_at(self.looks, n_units, at_least=2), epsilon)

    def of_a_decision(self, error: float, n_units: int) -> Austerity:
        return replace(self, epsilon=level_of_looks(error, self.looks, n_units))

    def promised_error(self, n_units: int) -> float:
        """Return the sum of epsilon over the looks: every look spends epsilon."""
        return min(0.5, self.epsilon * (self.table(n_units).n.size - 1))


@dataclass(frozen=True, kw_only=True)
class Pocock(_Student):
    """Student's t-test with one critical value for all looks and an error budget per decision (Pocock 1977).

    ``epsilon`` bounds the probability that the decision differs from the decision on all data, for any mean mu of the
    population. If the mean of the units drawn is normal, the statistics at the looks are a standardised Brownian motion
    at times n / (M - n), so their correlations are known. The error is largest as mu approaches the threshold: a
    decision before the last look is then wrong with probability 1/2, and a decision at the last look is right. The
    critical value c therefore solves ``P(|Z_k| > c at some look before the last) = 2 epsilon``. For few units, c is
    replaced by the quantile of Student's t with the same tail probability. 0 is exact Metropolis-Hastings.

    Raises
    ------
    InputError
        If ``epsilon`` is not in [0, 1), the schedule's first look has fewer than 2 units, or there are more looks than
        `MAX_POCOCK_LOOKS`.
    """

    epsilon: float = 0.005
    looks: Schedule = POCOCK_LOOKS
    name = "pocock"
    fits_looks = True

    def table(self, n_units: int, level: float | None = None) -> Table:
        epsilon = self._epsilon(level)
        if epsilon == 0:
            return Exact().table(n_units)
        n = looks_at(self.looks, n_units, at_least=2)
        if n.size > MAX_POCOCK_LOOKS:
            raise InputError(
                f"the pocock test allows at most {MAX_POCOCK_LOOKS} looks, not {n.size}: use geometric looks, or "
                "larger ones"
            )
        critical = pocock_critical_value(epsilon, tuple(n.tolist())) if n.size > 1 else np.inf
        return _t_table(n, float(scipy.special.ndtr(-critical)))

    def promised_error(self, n_units: int) -> float:
        return self.epsilon


def level_of_looks(error: float, looks: Schedule, n_units: int) -> float:
    """Return the level of t-tests at single looks that keeps the error of a decision at most ``error``.

    The level is Pocock's (see `Pocock`) or, for more looks than `MAX_POCOCK_LOOKS`, Bonferroni's.
    """
    n = looks_at(looks, n_units, at_least=2)
    if n.size <= 2:
        return error
    if n.size > MAX_POCOCK_LOOKS:
        return error / (n.size - 1)
    return float(scipy.special.ndtr(-pocock_critical_value(error, tuple(n.tolist()))))


@lru_cache(maxsize=64)
def pocock_critical_value(epsilon: float, n: tuple[int, ...]) -> float:
    """Return the critical value c with P(|Z_k| > c at some look but the last) = 2 epsilon (see `Pocock`).

    From an epsilon of 0.5 on, c is 0. ``n`` are the units at each look, of which there are two or more; the last is the
    size of the population.
    """
    if epsilon >= 0.5:
        return 0.0
    early = np.array(n[:-1], float)
    times = early / (n[-1] - early)
    correlations = np.sqrt(times[:-1] / times[1:])

    def excess(critical: float) -> float:
        return _crossing_probability(critical, correlations) - 2 * epsilon

    # A single look needs the normal quantile; K looks need at most the quantile of an error K times smaller.
    low, high = -float(scipy.special.ndtri(epsilon)), -float(scipy.special.ndtri(epsilon / early.size))
    if early.size == 1:
        return low
    if epsilon < _SMALLEST_SOLVED:
        return high
    return float(scipy.optimize.brentq(excess, low - 1e-6, high + 1e-6, xtol=1e-8))


def _crossing_probability(critical: float, correlations: FloatArray) -> float:
    """Return P(|Z_k| > critical for some k) of a Gaussian Markov chain of standard normals with these correlations.

    Quadrature carries the density of Z_k, restricted to no crossing before, from look to look.
    """
    narrowest = float(np.sqrt(1 - correlations.max() ** 2)) if correlations.size else 1.0
    nodes, weights = np.polynomial.legendre.leggauss(40 + int(8 * critical / narrowest))
    nodes, weights = critical * nodes, critical * weights
    density = _normal_density(nodes)
    for rho in correlations:
        width = np.sqrt(1 - rho**2)
        density = _normal_density((nodes[:, None] - rho * nodes) / width) @ (weights * density) / width
    return 1 - float(weights @ density)


def _normal_density(z: FloatArray) -> FloatArray:
    return np.asarray(np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi))


def _t_table(n: IntArray, tail: float) -> Table:
    """Return looks that decide when Student's t statistic exceeds its quantile of the given upper tail probability."""
    early, n_units = n[:-1].astype(float), float(n[-1])
    # with an upper tail of 1/2 or more, any distance decides
    quantile = np.maximum(-scipy.special.stdtrit(early - 1, tail), 0.0)
    correction = np.sqrt(1 - (early - 1) / (n_units - 1)) if early.size else early
    return Table(n, np.append(quantile * correction / np.sqrt(early), 0.0), np.zeros(n.size))
