"""Stopping rules from concentration bounds, which hold for any data if the range of the differences is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stansub.acceptance.looks import Geometric, Schedule, Table, looks_at
from stansub.acceptance.ranges import Range
from stansub.acceptance.stopping import Guarantee, StoppingRule, check_level
from stansub.types import FloatArray, IntArray

# The bounds have no minimum sample size, so looks may start early.
BOUND_LOOKS = Geometric(first=16)


@dataclass(frozen=True, kw_only=True)
class _Bound(StoppingRule):
    """Base of the concentration bounds: error level of a decision and schedule of looks."""

    delta: float = 0.01
    looks: Schedule = BOUND_LOOKS
    needs_range = True

    def __post_init__(self) -> None:
        check_level("delta", self.delta)

    def guarantee(self, source: Range | None) -> Guarantee:
        return Guarantee.VOID if source is not None and source.estimated else Guarantee.BOUND

    def _delta(self, level: float | None) -> float:
        if level is None:
            return self.delta
        check_level("delta", level)
        return level


@dataclass(frozen=True, kw_only=True)
class Hoeffding(_Bound):
    """Hoeffding's inequality without replacement, in the form of Bardenet and Maillard 2015 (Hoeffding-Serfling).

    With probability 1 - d each side, ``|m - mu|`` is at most R sqrt(rho_n log(1 / d) / (2 n)). ``delta`` bounds the
    probability of a wrong decision: look k spends delta / (2 k^2), over both sides (Bardenet et al. 2014, section 2.2
    with p = 2).

    Raises
    ------
    InputError
        If ``delta`` is not in (0, 1).
    """

    name = "hoeffding"

    def table(self, n_units: int, level: float | None = None) -> Table:
        n = looks_at(self.looks, n_units)
        logs = np.log(2 / _spend(self._delta(level), n.size))
        return _closed(n, np.zeros(n.size), np.sqrt(_rho(n) * logs / (2 * n)))


@dataclass(frozen=True, kw_only=True)
class Bernstein(_Bound):
    """The empirical Bernstein bound (Bardenet et al. 2014, eq. 9, where R is at most 2 C).

    ``|m - mu|`` is at most sd sqrt(2 log(3 / d) / n) + 3 R log(3 / d) / n with probability 1 - d, sd with divisor n.
    ``delta`` bounds the probability of a wrong decision; look k spends d = delta / (2 k^2).

    Raises
    ------
    InputError
        If ``delta`` is not in (0, 1).
    """

    name = "bernstein"

    def table(self, n_units: int, level: float | None = None) -> Table:
        n = looks_at(self.looks, n_units)
        logs = np.log(3 / _spend(self._delta(level), n.size))
        return _closed(n, np.sqrt(2 * logs / n) * _divisor_n(n), 3 * logs / n)


@dataclass(frozen=True, kw_only=True)
class BernsteinSerfling(_Bound):
    """The empirical Bernstein-Serfling bound for draws without replacement (Bardenet and Maillard 2015).

    On each side ``|m - mu|`` is at most sd sqrt(2 rho_n log(1 / d) / n) + kappa R log(1 / d) / n with probability
    1 - 5 d, kappa = 7/3 + 3/sqrt(2), sd with divisor n. ``delta`` bounds the probability of a wrong decision; look k
    spends 10 d = delta / (2 k^2), over both sides.

    Raises
    ------
    InputError
        If ``delta`` is not in (0, 1).
    """

    name = "bernstein-serfling"

    def table(self, n_units: int, level: float | None = None) -> Table:
        n = looks_at(self.looks, n_units)
        logs = np.log(10 / _spend(self._delta(level), n.size))
        kappa = 7 / 3 + 3 / np.sqrt(2)
        return _closed(n, np.sqrt(2 * _rho(n) * logs / n) * _divisor_n(n), kappa * logs / n)


def _closed(n: IntArray, scale: FloatArray, offset: FloatArray) -> Table:
    """Return a table whose last look always decides."""
    return Table(n, np.append(scale[:-1], 0.0), np.append(offset[:-1], 0.0))


def _spend(delta: float, n_looks: int) -> FloatArray:
    """Return the share of delta at each look: (p - 1) / (p k^p) with p = 2, which sums to less than delta."""
    return delta / (2 * np.arange(1.0, n_looks + 1) ** 2)


def _rho(n: IntArray) -> FloatArray:
    """Return rho_n, the gain from drawing without replacement (Bardenet and Maillard 2015)."""
    few, n_units = n.astype(np.float64), float(n[-1])
    return np.where(few <= n_units / 2, 1 - (few - 1) / n_units, (1 - few / n_units) * (1 + 1 / few))


def _divisor_n(n: IntArray) -> FloatArray:
    """Return the factor from a standard deviation with divisor n - 1 to one with divisor n."""
    few = n.astype(np.float64)
    return np.asarray(np.sqrt((few - 1) / few))
