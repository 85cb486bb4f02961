"""Predictions for a decreasing error level, from the fixed levels of a pilot.

Every level between the first and the last has the same share of the steps (`DecreasingLevel`). If the level changes
slowly compared with the memory of the chains, the mean of all draws is the mean over the levels. Its bias is therefore
the mean of their biases, with their signs, and so are autocorrelation times and seconds per step. Between levels that
were tried, all are interpolated linearly in the level's logarithm.

A mean over levels is no better than a fixed level with that mean as its bias wherever the seconds per step are a convex
function of the bias (Jensen). A decreasing level can gain in early steps, far from the posterior, and where that
function is not convex.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from stansub.acceptance.decreasing_level import DecreasingLevel
from stansub.planning.pilot import Measurement
from stansub.types import FloatArray

# Equally spaced steps at which the level is evaluated: a multiple of the number of levels.
_STEPS = 1000


@dataclass(frozen=True)
class Mixture(Measurement):
    """Prediction for a run that spends shares of its steps at several levels.

    Attributes
    ----------
    parts : tuple of Measurement
        Measurements at fixed levels.
    shares : ndarray, shape (n_parts,)
        Shares of the steps.
    """

    parts: tuple[Measurement, ...]
    shares: FloatArray

    @property
    def predicted_from(self) -> dict[str, float]:
        """Return the share of the steps at each level."""
        return {f"{one.method.epsilon:g}": float(share) for one, share in zip(self.parts, self.shares, strict=True)}

    @property
    def bias(self) -> tuple[FloatArray, FloatArray]:
        """Return the means of the levels' biases and of their standard errors, as if all had the same sign.

        Independent errors would add up to less, but a mixture would then look better than each of its parts only
        because more decisions were audited.
        """
        values, errors = zip(*(part.bias for part in self.parts), strict=True)
        return self.shares @ np.array(values), self.shares @ np.array(errors)


def shares(tried: Sequence[float], first: float, last: float) -> FloatArray:
    """Return the share of the steps that each tried level represents, shape (n_tried,), under a decreasing level.

    The tried levels increase, and ``first`` and ``last`` are between their ends.
    """
    decreasing = DecreasingLevel(first, last, _STEPS)
    at = np.log([decreasing.level(step) for step in range(_STEPS)])
    return np.asarray(np.array([np.interp(at, np.log(tried), one) for one in np.eye(len(tried))]).mean(1))


def schedules(measured: Sequence[Measurement]) -> Iterator[Mixture]:
    """Yield every decrease from one tried level to a lower one of the same test.

    If several were tried with one level, the first counts.
    """
    levels = {one.method.epsilon: one for one in reversed(measured) if one.method.epsilon is not None}
    tried = sorted(levels)
    parts = tuple(levels[level] for level in tried)
    for last, first in combinations(tried, 2):
        yield _mixed(parts, shares(tried, first, last), first, last)


def _mixed(parts: tuple[Measurement, ...], weights: FloatArray, first: float, last: float) -> Mixture:
    def mean(values: Sequence[float]) -> float:
        return float(weights @ np.array(values))

    seconds = mean([one.seconds for one in parts])
    begins = next(one for one in parts if one.method.epsilon == first)
    return Mixture(
        method=replace(begins.method, final_epsilon=last),
        n_steps=sum(one.n_steps for one in parts),
        seconds=seconds,
        seconds_error=math.hypot(*(weights * [one.seconds * one.seconds_error for one in parts])) / seconds,
        tau=weights @ np.array([one.tau for one in parts]),
        tau_error=max(one.tau_error for one in parts),
        acceptance=mean([one.acceptance for one in parts]),
        share=mean([one.share for one in parts]),
        audits=None,
        parts=parts,
        shares=weights,
    )
