"""The epsilon that does best in the worst case, from what a pilot has measured (`compminimax`).

Measured are seconds of a step and, for each level of a test, the share of decisions that differ from exact ones: the
distance of the kernels, of which the upper limit of an audit is taken. **Not measured** is alpha of Doeblin's
condition. For reversible kernels, as those of Metropolis and Hastings are, no autocorrelation at lag k is above
(1 - alpha)^k, so that an autocorrelation time tau leaves alpha at most 2 / (tau + 1). That limit is taken for alpha,
which is the most favourable case: with the true one bounds are larger and the best epsilon is smaller. Where alpha is
0, as for random walks on a space without bounds, there is no bound at all.

Besides, the share is a mean over the states of the chain where the theory has the largest distance of any state,
approximations are taken to mix as exact decisions do (section 3.1 of Johndrow et al. 2015), and all steps for those of
one chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stansub.output.record import audit_of
from stansub.planning.compminimax import MeanSquare, Optimum, compminimax, measured
from stansub.planning.pilot import Measured


@dataclass(frozen=True)
class WorstCase:
    """What has the smallest bound on its mean-square error, of functions with values in [-1, 1].

    Attributes
    ----------
    alpha : float
        Assumed: the largest that the pilot's autocorrelations allow.
    optimum : Optimum
        Its epsilon is a share of differing decisions.
    nearest : str or None
        The way whose share is the nearest; None where exact decisions are best.
    """

    alpha: float
    optimum: Optimum
    nearest: str | None

    def facts(self) -> dict[str, Any]:
        """The same in values that JSON has."""
        best = self.optimum
        return {
            "epsilon": best.epsilon,
            "nearest": self.nearest,
            "bound": best.bound,
            "bound_of_exact": best.exact,
            "assumed": {"alpha": self.alpha, "mixing": "that of exact decisions", "distance": "mean over the states"},
        }


def largest_alpha(tau: float) -> float:
    """The largest constant of Doeblin's condition that a reversible kernel with such an autocorrelation time can have.

    Its chains' times are at most 2 / alpha - 1, which two-state chains attain.
    """
    return min(1.0, 2 / (tau + 1))


def worst_case(ways: Sequence[Measured], seconds: float) -> WorstCase | None:
    """The compminimax epsilon for so many seconds of steps; None where they are less than one exact step.

    Parameters
    ----------
    ways : sequence of Measured
        Error levels of a test, and exact ways, of which the fastest counts.
    seconds : float
    """
    exact = min((one for one in ways if one.way.exact), key=lambda one: one.seconds)
    steps = seconds / exact.seconds
    if steps < 1:
        return None
    alpha = largest_alpha(float(exact.tau.max()))
    error, known = MeanSquare(alpha, unchanged=True), faster(ways, exact.seconds)
    if not known:
        bound = float(np.asarray(error.exact(steps)))
        return WorstCase(alpha, Optimum(0.0, steps, bound, bound), None)
    distances = [distance for distance, _ in known]
    speed_up = measured([0.0, *distances], [exact.seconds, *(one.seconds for _, one in known)])
    best = compminimax(error, steps, speed_up, largest=min(distances[-1], alpha / 2))
    near = min(known, key=lambda one: abs(one[0] - best.epsilon))[1]
    return WorstCase(alpha, best, f"{near.way.name} {near.way.epsilon:g}" if best.epsilon else None)


def faster(ways: Sequence[Measured], seconds: float) -> list[tuple[float, Measured]]:
    """Levels with their distances from exact decisions, increasing, each faster than all that are nearer to them."""
    limits = [
        (audit_of(one.audits.n, one.audits.differing).high, one)
        for one in ways
        if one.way.epsilon is not None and one.audits is not None
    ]
    kept: list[tuple[float, Measured]] = []
    for distance, one in sorted(limits, key=lambda pair: (pair[0], pair[1].seconds)):
        if one.seconds < seconds:
            kept, seconds = [*kept, (distance, one)], one.seconds
    return kept
