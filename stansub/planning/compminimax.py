"""The approximation with the smallest worst-case error within a budget.

Johndrow et al. (2015), section 3. In the time of t exact steps, a kernel within epsilon of the exact one makes
t s(epsilon) steps, where s(epsilon) = tau(0) / tau(epsilon) is the speed-up of a step (equation 7). The compminimax
epsilon has the smallest bound on the error of t s(epsilon) states. Time besides steps is not included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from scipy.optimize import minimize_scalar

from stansub.errors import InputError
from stansub.planning.theory import Numbers, average_bound, risk_bound
from stansub.types import FloatArray

# Gains below this share are rounding.
_ROUNDING = 1e-9

SpeedUp: TypeAlias = Callable[[FloatArray], FloatArray]

# Shares of the largest epsilon among which the best is refined: an even grid, and small ones far below its first.
_GRID = np.unique(np.concatenate([[0.0], np.geomspace(1e-10, 1.0, 201), np.linspace(0.0, 1.0, 201)]))


def logarithmic(largest: float, factor: float = 100.0) -> SpeedUp:
    """Return a speed-up that rises steeply at first: the mirror image of the exponential one.

    It is 1 at epsilon 0 and ``factor`` at ``largest``.
    """
    return lambda epsilon: 1 + (factor - 1) * np.log1p((factor - 1) * epsilon / largest) / math.log(factor)


def linear(largest: float, factor: float = 100.0) -> SpeedUp:
    """Return a speed-up proportional to epsilon (see `logarithmic`)."""
    return lambda epsilon: 1 + (factor - 1) * epsilon / largest


def quadratic(largest: float, factor: float = 100.0) -> SpeedUp:
    """Return a speed-up proportional to the square of epsilon (see `logarithmic`)."""
    return lambda epsilon: 1 + (factor - 1) * (epsilon / largest) ** 2


def exponential(largest: float, factor: float = 100.0) -> SpeedUp:
    """Return a speed-up whose logarithm is proportional to epsilon (see `logarithmic`)."""
    return lambda epsilon: np.exp(math.log(factor) * epsilon / largest)


SPEED_UPS = {"logarithmic": logarithmic, "linear": linear, "quadratic": quadratic, "exponential": exponential}


def measured(epsilon: Sequence[float] | FloatArray, step_time: Sequence[float] | FloatArray) -> SpeedUp:
    """Return a speed-up from measurements: its logarithm is interpolated, and constant beyond the last.

    Parameters
    ----------
    epsilon : array_like, shape (k,)
        Increasing from 0: distances of the kernels, such as shares of wrong decisions; not error levels of tests.
    step_time : array_like, shape (k,)
        Time of a step, in any unit.

    Raises
    ------
    InputError
        If their numbers differ, the epsilons do not increase from 0, or times are not positive.
    """
    levels, times = np.asarray(epsilon, np.float64), np.asarray(step_time, np.float64)
    if levels.ndim != 1 or levels.shape != times.shape or len(levels) < 2:
        raise InputError("a measured speed-up needs at least two values of epsilon with a step time each")
    if levels[0] != 0 or not (np.diff(levels) > 0).all():
        raise InputError("the values of epsilon of a measured speed-up must increase from 0 (the exact kernel)")
    if not ((times > 0) & np.isfinite(times)).all():
        raise InputError("the step times of a measured speed-up must be positive and finite")
    logs = np.log(times[0] / times)
    return lambda given: np.exp(np.interp(given, levels, logs))


class Error(Protocol):
    """Bound on the error of averages over n states, for kernels with the same alpha.

    Attributes
    ----------
    alpha : float
        Constant of Doeblin's condition.
    """

    @property
    def alpha(self) -> float: ...

    def bound(self, n: Numbers, epsilon: Numbers) -> Numbers:
        """Return the bound at a distance epsilon of the kernels, at most alpha / 2."""

    def exact(self, n: Numbers) -> Numbers:
        """Return the bound of the exact kernel."""


@dataclass(frozen=True)
class TotalVariation:
    """Bound for the average distribution of the states (theorem 2.4)."""

    alpha: float
    start: float = 1.0
    """Total variation between the posterior and the distribution of the first state."""

    def bound(self, n: Numbers, epsilon: Numbers) -> Numbers:
        return average_bound(n, epsilon, self.alpha, start=self.start)

    def exact(self, n: Numbers) -> Numbers:
        return self.bound(n, 0.0)


@dataclass(frozen=True)
class MeanSquare:
    """Bound for a function with values in [-1, 1], from any start: `risk_bound`, the same for all kernels."""

    alpha: float
    start: float = 1.0
    """Total variation between the distribution of the first state and the stationary distribution of the kernel that
    runs; that of an approximation may be another epsilon / alpha away from the posterior.
    """
    unchanged: bool = False
    """Whether approximations are assumed to mix like the exact kernel, as in section 3.1; otherwise as slowly as
    possible (remark 2.1).
    """

    def bound(self, n: Numbers, epsilon: Numbers) -> Numbers:
        start = np.minimum(1.0, self.start + np.divide(epsilon, self.alpha))
        mixing = self.alpha if self.unchanged else None
        return risk_bound(n, epsilon, self.alpha, mixing=mixing, start=start)

    def exact(self, n: Numbers) -> Numbers:
        return self.bound(n, 0.0)


class Optimum(NamedTuple):
    """The choice with the smallest worst-case error within a budget."""

    epsilon: float
    """0 if the exact kernel is best."""
    n: float
    """Steps within the budget."""
    bound: float
    """Bound on the error of their average."""
    exact: float
    """The same bound of the exact kernel."""


def compminimax(error: Error, budget: float, speed_up: SpeedUp, *, largest: float | None = None) -> Optimum:
    """Return the epsilon with the smallest bound on the error of the states within a budget.

    Parameters
    ----------
    budget : float
        In steps of the exact kernel, 1 or more.
    speed_up : callable
        s(epsilon), for arrays; bounds are not evaluated where it is below 1 / budget.
    largest : float, optional
        The largest epsilon of any available kernel; by default alpha / 2.

    Raises
    ------
    InputError
        If the budget is below 1, or the largest epsilon is not in (0, alpha / 2].
    """
    top = error.alpha / 2 if largest is None else largest
    if not 0 < top <= error.alpha / 2:
        raise InputError(f"the largest epsilon must be above 0 and at most alpha / 2 = {error.alpha / 2:g}")

    def bound(epsilon: FloatArray) -> FloatArray:
        n = budget * speed_up(epsilon)
        return np.where(n < 1, np.inf, error.bound(np.maximum(n, 1.0), epsilon))

    exact = float(error.exact(budget))
    grid = top * _GRID
    values = bound(grid)
    best = int(np.argmin(values[1:])) + 1
    between = (grid[best - 1], grid[min(best + 1, len(grid) - 1)])
    found = minimize_scalar(
        lambda epsilon: float(bound(np.asarray(epsilon))),
        bounds=between,
        method="bounded",
        options={"xatol": 1e-4 * between[1]},
    )
    epsilon, value = min(
        (float(grid[best]), float(values[best])), (float(found.x), float(found.fun)), key=lambda one: one[1]
    )
    if value > exact * (1 - _ROUNDING):
        return Optimum(0.0, budget, exact, exact)
    return Optimum(epsilon, float(budget * speed_up(np.asarray(epsilon))), value, exact)
