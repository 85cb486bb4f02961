"""The epsilon with the smallest worst-case error, from the measurements of a pilot (`compminimax`).

The pilot measures seconds per step and, for each level of a test, the share of decisions that differ from exact ones.
The distance of the kernels is the upper limit of that share from an audit. alpha of Doeblin's condition is **not
measured**. For reversible kernels, such as Metropolis-Hastings, no autocorrelation at lag k is above
(1 - alpha)^k, so an autocorrelation time tau implies alpha at most 2 / (tau + 1). That limit is used as alpha, which is
the most favourable case: with the true alpha, bounds are larger and the best epsilon is smaller. If alpha is 0, as for
random walks on an unbounded space, there is no bound at all.

Further approximations: the share is a mean over the states of the chain, while the theory uses the largest distance of
any state; approximations are assumed to mix like exact decisions (section 3.1 of Johndrow et al. 2015); and all steps
count as those of one chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stansub.output.record import audit_of
from stansub.planning.compminimax import MeanSquare, Optimum, compminimax, measured
from stansub.planning.pilot import Measurement


@dataclass(frozen=True)
class WorstCase:
    """The choice with the smallest bound on its mean-square error, for functions with values in [-1, 1]."""

    alpha: float
    """Assumed: the largest value that the pilot's autocorrelations allow."""
    optimum: Optimum
    """Its epsilon is a share of differing decisions."""
    nearest: str | None
    """The method with the nearest share; None if exact decisions are best."""

    def facts(self) -> dict[str, Any]:
        """Return the choice as JSON values."""
        best = self.optimum
        return {
            "epsilon": best.epsilon,
            "nearest": self.nearest,
            "bound": best.bound,
            "bound_of_exact": best.exact,
            "assumed": {"alpha": self.alpha, "mixing": "that of exact decisions", "distance": "mean over the states"},
        }


def largest_alpha(tau: float) -> float:
    """Return the largest Doeblin constant of a reversible kernel with this autocorrelation time.

    Autocorrelation times of such a kernel are at most 2 / alpha - 1, which two-state chains attain.
    """
    return min(1.0, 2 / (tau + 1))


def worst_case(methods: Sequence[Measurement], seconds: float) -> WorstCase | None:
    """Return the compminimax epsilon for ``seconds`` of steps; None if they are less than one exact step.

    The methods are error levels of a test, and exact methods, of which the fastest is used.
    """
    exact = min((one for one in methods if one.method.exact), key=lambda one: one.seconds)
    steps = seconds / exact.seconds
    if steps < 1:
        return None
    alpha = largest_alpha(float(exact.tau.max()))
    error, known = MeanSquare(alpha, unchanged=True), faster(methods, exact.seconds)
    if not known:
        bound = float(np.asarray(error.exact(steps)))
        return WorstCase(alpha, Optimum(0.0, steps, bound, bound), None)
    distances = [distance for distance, _ in known]
    speed_up = measured([0.0, *distances], [exact.seconds, *(one.seconds for _, one in known)])
    best = compminimax(error, steps, speed_up, largest=min(distances[-1], alpha / 2))
    near = min(known, key=lambda one: abs(one[0] - best.epsilon))[1]
    return WorstCase(alpha, best, f"{near.method.name} {near.method.epsilon:g}" if best.epsilon else None)


def faster(methods: Sequence[Measurement], seconds: float) -> list[tuple[float, Measurement]]:
    """Return levels with their distances from exact decisions, increasing, each faster than all that are closer."""
    limits = [
        (audit_of(one.audits.n, one.audits.differing).high, one)
        for one in methods
        if one.method.epsilon is not None and one.audits is not None
    ]
    kept: list[tuple[float, Measurement]] = []
    for distance, one in sorted(limits, key=lambda pair: (pair[0], pair[1].seconds)):
        if one.seconds < seconds:
            kept, seconds = [*kept, (distance, one)], one.seconds
    return kept
