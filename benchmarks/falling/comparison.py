"""The best falling level against the best fixed one: chosen with half of the replicates, compared with the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Resamples of the bootstrap.
_RESAMPLES = 10_000

Array = NDArray[np.float64]


class Runs(NamedTuple):
    """Replicates of one strategy.

    Attributes
    ----------
    errors : ndarray, shape (n_replicates, n_steps, dim)
        Of the draws, in posterior sds.
    passes : ndarray, shape (n_steps,)
        Over the data that the steps so far have used, the mean of the replicates.
    seconds : float
        Of a chain, mean.
    """

    errors: Array
    passes: Array
    seconds: float

    def steps(self, passes: float) -> int:
        """How many steps so many passes pay for."""
        return max(2, int(np.searchsorted(self.passes, passes, side="right")))

    def losses(self, n_steps: int, *, half: bool) -> Array:
        """Squared error of each replicate's mean of so many draws, or of their later half; shape (n_replicates,)."""
        kept = self.errors[:, n_steps // 2 if half else 0 : n_steps]
        return np.asarray((kept.mean(1) ** 2).mean(1))


class Choice(NamedTuple):
    """A level or a fall, and the draws that are averaged.

    Attributes
    ----------
    name : str
    half : bool
        Whether the first half of the draws is left out.
    """

    name: str
    half: bool

    def __str__(self) -> str:
        return f"{self.name}, later half" if self.half else self.name


@dataclass(frozen=True)
class Outcome:
    """What was best of both kinds, and how the risks compare on the replicates that did not choose.

    Attributes
    ----------
    fixed, falling : Choice
    passes : float
        That either has used.
    fixed_risk, falling_risk, ratio, low, high : float
        Risks, the falling one's in those of the fixed one, and the interval of this.
    seconds : tuple of float
        Of a chain: fixed, falling.
    """

    fixed: Choice
    falling: Choice
    passes: float
    fixed_risk: float
    falling_risk: float
    ratio: float
    low: float
    high: float
    seconds: tuple[float, float]

    @property
    def verdict(self) -> str:
        """What the interval says."""
        if self.low > 1:
            return "the fixed level is better"
        return "the decreasing level is better" if self.high < 1 else "no significant difference"


def compare(fixed: Mapping[str, Runs], falling: Mapping[str, Runs], alarm: float, rng: np.random.Generator) -> Outcome:
    """The best of both kinds in hindsight, at the cost of the falling one.

    Each fall is held against the fixed levels after as many passes as it has used itself. The pair with the lowest
    ratio of risks is taken for the best fall; of the fixed levels always that with the lowest risk.

    Parameters
    ----------
    alarm : float
        Probability that the interval of the ratio misses it.
    """
    chosen, best = None, np.inf
    for name, runs in falling.items():
        passes, n = float(runs.passes[-1]), len(runs.passes)
        rivals = {
            Choice(level, half): one.losses(one.steps(passes), half=half)
            for level, one in fixed.items()
            for half in (False, True)
        }
        rival = min(rivals, key=lambda key: _risk(rivals[key], 0))
        for half in (False, True):
            losses = runs.losses(n, half=half)
            ratio = _risk(losses, 0) / _risk(rivals[rival], 0)
            if ratio < best:
                best, chosen = ratio, (Choice(name, half), rival, losses, rivals[rival], passes)
    assert chosen is not None
    own, rival, losses, rival_losses, passes = chosen
    ratio, low, high = interval(losses[1::2], rival_losses[1::2], alarm, rng)
    level = fixed[rival.name]
    seconds = level.seconds * level.steps(passes) / len(level.passes), falling[own.name].seconds
    return Outcome(rival, own, passes, _risk(rival_losses, 1), _risk(losses, 1), ratio, low, high, seconds)


def _risk(losses: Array, part: int) -> float:
    """Mean of every second replicate."""
    return float(losses[part::2].mean())


def interval(losses: Array, others: Array, alarm: float, rng: np.random.Generator) -> tuple[float, float, float]:
    """Ratio of two risks with its bootstrap interval; replicates with the same start are drawn together."""
    drawn = rng.integers(len(losses), size=(_RESAMPLES, len(losses)))
    ratios = losses[drawn].mean(1) / others[drawn].mean(1)
    low, high = np.quantile(ratios, [alarm / 2, 1 - alarm / 2])
    return float(losses.mean() / others.mean()), float(low), float(high)


def predicted_risk(parts: Sequence[Runs], shares: Array, n_steps: int) -> float:
    """Of the mean of all draws of a fall, from fixed levels that stand for such shares of its steps.

    Biases are averaged with their signs, and variances of a step (`stansub.planning.level_mixture`).
    """
    means = [one.errors.mean(1) for one in parts]
    bias = shares @ np.array([one.mean(0) for one in means])
    variance = shares @ np.array(
        [one.var(0, ddof=1) * len(runs.passes) for one, runs in zip(means, parts, strict=True)]
    )
    return float((bias**2 + variance / n_steps).mean())
