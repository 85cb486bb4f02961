"""Search for modes of a target: in a part of its data first if these are in partitions, and with smoothed kinks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from stansub.progress import Progress
from stansub.target.factors import Target, known_predictors
from stansub.target.partitioned import Predictors
from stansub.tuning.modes.mode import Mode, Modes, NoModeError, find_modes
from stansub.types import FloatArray


def search(
    posterior: Target,
    rng: np.random.Generator,
    by_bounds: bool,
    threads: int,
    log: Progress,
    points: Sequence[FloatArray] = (),
) -> Modes:
    """Return the modes.

    Parameters
    ----------
    by_bounds : bool
        Whether decisions may be exact by bounds. If not, and the search fails, another one smooths kinks, if any.
    points : sequence of ndarray, shape (dim,)
        Starts besides those drawn.

    Raises
    ------
    NoModeError
        If there is no mode with a normal approximation.
    """
    known = known_predictors(posterior, log) if by_bounds else None
    find = partial(_find, posterior, rng, points, threads=threads, log=log)
    try:
        return find(predictors=known)
    except NoModeError:
        known = None if by_bounds else known_predictors(posterior, log)
        if known is None or not known.family.floor:
            raise
    return find(predictors=known)


def _find(
    posterior: Target,
    rng: np.random.Generator,
    points: Sequence[FloatArray],
    *,
    predictors: Predictors | None,
    threads: int,
    log: Progress,
) -> Modes:
    """Return the modes; if this process does not hold all observations, those that the pilot's maxima lead to."""
    find = partial(find_modes, threads=threads, progress=log)
    if posterior.pilot is None:
        return find(posterior, rng, points=points, predictors=predictors)
    first = find(posterior.pilot, rng, points=points, predictors=known_predictors(posterior.pilot, log))
    share = posterior.pilot.blocks.n_observations / posterior.blocks.n_observations
    modes = [replace(mode, hessian=mode.hessian / share) for mode in first.found]
    ends: list[FloatArray | Mode] = [*modes, *(position for position, _ in first.lower)]
    found = find(posterior, rng, points=ends, starts=0, predictors=predictors)
    n_passes, seconds = found.n_passes + share * first.n_passes, found.seconds + first.seconds
    return replace(found, starts=first.starts, n_passes=n_passes, seconds=seconds)
