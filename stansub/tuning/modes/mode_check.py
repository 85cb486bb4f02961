"""Check after sampling for modes that no chain visited.

R-hat compares chains with each other, so it cannot show a part of the posterior that all of them missed. The check
therefore searches for modes again, from fresh starts, and compares those that hold a share of the evidence with the
draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from stansub.mode_findings import MissedMode
from stansub.target.factors import Target
from stansub.target.partitioned import Predictors
from stansub.tuning.modes.climbing import NoModeError
from stansub.tuning.modes.labels import interchanged
from stansub.tuning.modes.mode import Mode, Modes, find_other_modes, indexed
from stansub.types import FloatArray

# A mode counts as visited if a draw is within this many sds of it, beyond the square root of the dimension that is
# typical of draws about a mode; and number of draws checked per chain.
_NEAR, _LOOKED_AT = 4.0, 500
# Number of fresh starts.
_STARTS = 12
# Share of the evidence from which an unvisited mode is reported.
_SHARE = 1e-3
# Maximum number of parameters named for each mode.
_NAMED = 3


@dataclass(frozen=True)
class ModeCheck:
    """Result of the search after sampling."""

    n_starts: int = 0
    """Number of fresh starts."""
    n_modes: int = 0
    """Modes that hold a share of the posterior."""
    missed: tuple[MissedMode, ...] = ()
    """Missed modes, the most serious first."""
    interchangeable: tuple[str, ...] = ()
    """Parameters whose labels switch between modes."""
    reason: str = ""
    """Why nothing could be checked; empty if the check ran."""
    failed: bool = False
    """Whether the search failed, as opposed to not applying to the posterior."""

    def record(self) -> dict[str, Any]:
        """Return the result as stored in the output."""
        return asdict(self)


def check_modes(
    posterior: Target,
    draws: Sequence[FloatArray],
    rng: np.random.Generator,
    *,
    predictors: Predictors | None = None,
    threads: int = 1,
    progress: Callable[[str], None] | None = None,
) -> ModeCheck:
    """Search for modes from fresh starts and from the chains; return those that no draw is near.

    If this process does not hold all observations, the search uses those that it has.

    Parameters
    ----------
    draws : sequence of ndarray, shape (n, dim)
        Unconstrained draws of each chain.
    predictors : Predictors, optional
        How observations depend on the parameters, if the log likelihood has kinks, which are then smoothed.
    """
    posterior = posterior.pilot or posterior
    search = partial(find_other_modes, predictors=predictors, starts=_STARTS, threads=threads, progress=progress)
    try:
        ends = [one[-1] for one in draws]
        modes = search(posterior, rng, points=ends)
    except NoModeError as error:
        return ModeCheck(reason=str(error))
    if isinstance(modes, int):
        return ModeCheck(_STARTS, modes)
    cloud = np.concatenate([one[:: max(1, len(one) // _LOOKED_AT)] for one in draws])
    near = [_is_near(mode, cloud) for mode in modes.found]
    visited = [mode for mode, seen in zip(modes.found, near, strict=True) if seen]
    names = posterior.full.param_names()
    constrained = {id(mode): posterior.full.param_constrain(mode.position) for mode in modes.found}
    missed, switching = [], dict.fromkeys(modes.interchangeable)
    for mode, share, seen in zip(modes.found, modes.weights, near, strict=True):
        if seen or share < _SHARE:
            continue
        switched = [interchanged(names, constrained[id(other)], constrained[id(mode)]) for other in visited]
        if any(switched):
            switching |= dict.fromkeys(next(filter(None, switched)))
        else:
            missed.append(_missed(posterior, modes, mode, float(share), cloud, visited))
    return ModeCheck(len(modes.starts) - len(ends), len(modes.found), tuple(missed), tuple(switching))


def _is_near(mode: Mode, cloud: FloatArray) -> bool:
    return bool((mode.distance_to(cloud) < np.sqrt(mode.dim) + _NEAR).any())


def _missed(
    posterior: Target, modes: Modes, mode: Mode, share: float, cloud: FloatArray, visited: Sequence[Mode]
) -> MissedMode:
    names = [indexed(name) for name in posterior.full.param_names()]
    there = posterior.full.param_constrain(mode.position)
    values = np.array([posterior.full.param_constrain(theta) for theta in cloud[:: max(1, len(cloud) // 100)]])
    low, high = values.min(axis=0), values.max(axis=0)
    away = np.maximum(low - there, there - high) / (values.std(axis=0) + 1e-12 * (1 + np.abs(there)))
    worst = np.argsort(-away, kind="stable")[:_NAMED]
    return MissedMode(
        share=share,
        log_density=mode.log_density,
        above=mode.log_density - max((one.log_density for one in visited), default=_highest_elsewhere(modes)),
        values={names[k]: [float(there[k]), float(low[k]), float(high[k])] for k in worst if away[k] > 0},
    )


def _highest_elsewhere(modes: Modes) -> float:
    """Return the highest log density that the chains' own starts reached; nan if they reached none."""
    reached = [one.log_density for one in modes.starts if one.kind == "given" and np.isfinite(one.log_density)]
    return max(reached, default=float("nan"))
