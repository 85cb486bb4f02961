"""Whether draws are wrong, and whether their warnings say so.

A posterior mean that is off by half a sd makes a 90 % interval one that holds 86 % of the posterior; an sd that is 0.7
of the right one, 75 %. A user would call results beyond that wrong and these right. Runs that pass stansub's own checks
have an ESS of 400 and more, with which means are known to 0.05 sd and sds to 4 %: ten times better than these limits.
Draws whose own Monte Carlo error explains what they are off by are called imprecise instead of wrong; they too must be
warned of.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from correctness.truth import Truth

MEAN_LIMIT_SD, SD_RATIO_LIMITS, ERRORS = 0.5, (0.7, 1.4), 4.0

# Warnings about what draws cost, and notes, which say nothing against them.
_OF_COST = (
    "means and sds average over these modes",
    "subsampling saved little",
    "was too large for the",
    "the steps are too short to explore well",
)


@dataclass(frozen=True)
class Verdict:
    """What comes of holding draws against the truth.

    Attributes
    ----------
    state : {"right", "imprecise", "wrong"}
    worst : str
        The quantity that is furthest off its limits.
    mean_diff : float
        Of that quantity, in sds of the posterior.
    sd_ratio : float
        Of that quantity, draws over truth.
    """

    state: Literal["right", "imprecise", "wrong"]
    worst: str
    mean_diff: float
    sd_ratio: float


def judge(draws: Mapping[str, NDArray[Any]], truth: Truth) -> Verdict:
    """Hold draws of shape (chain, draw, ...) against the truth; quantities that it does not have are left out."""
    from stansub.output import inference_data
    from stansub.output.statistics import table

    own = table(inference_data.build(posterior=dict(draws), sample_stats={}, attrs={}), percentiles=())
    own = own.loc[list(truth.mean)]
    mean, sd, mcse_mean, mcse_sd = (
        np.array([one[name] for name in own.index]) for one in (truth.mean, truth.sd, truth.mcse_mean, truth.mcse_sd)
    )
    shift = np.abs(own["mean"].to_numpy() - mean) / sd
    shift_error = np.hypot(_known(own["mcse_mean"]), mcse_mean) / sd
    ratio = own["sd"].to_numpy() / sd
    ratio_error = np.hypot(_known(own["mcse_sd"]), ratio * mcse_sd) / sd
    low, high = SD_RATIO_LIMITS
    # How far beyond its limits, in widths of what is allowed.
    beyond = np.maximum(shift / MEAN_LIMIT_SD, np.where(ratio < 1, (1 - ratio) / (1 - low), (ratio - 1) / (high - 1)))
    off = ~(beyond <= 1)  # draws that are not finite are off
    surely = (
        ((shift > MEAN_LIMIT_SD) & (shift > ERRORS * shift_error))
        | (ratio + ERRORS * ratio_error < low)
        | (ratio - ERRORS * ratio_error > high)
        | ~np.isfinite(beyond)
    )
    worst = int(np.argmax(np.nan_to_num(beyond, nan=np.inf)))
    state: Literal["right", "imprecise", "wrong"] = "wrong" if surely.any() else "imprecise" if off.any() else "right"
    return Verdict(state, str(own.index[worst]), float(shift[worst]), float(ratio[worst]))


def _known(errors: Any) -> NDArray[np.float64]:
    """Monte Carlo errors; those of draws that never move do not exist, and excuse nothing."""
    return np.nan_to_num(np.asarray(errors, dtype=float), nan=0.0)


def against(warnings: str) -> list[str]:
    """The lines among a run's warnings that speak against its draws."""
    return [line for line in warnings.splitlines() if not any(text in line for text in _OF_COST)]


def names_cause(lines: Sequence[str], cause: str) -> bool:
    """Whether one of the lines names the cause, given as a regular expression."""
    return any(re.search(cause, line) for line in lines)
