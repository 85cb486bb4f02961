"""Starting values of surrogate transitions that the user gives.

Far from a surrogate's draws it omits so much of the density that a chain would reject every move, or trajectories
diverge. The chain then begins at a draw of the surrogate about the maximum of the likelihood to which a climb from the
given values leads. So these still choose between modes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stansub.progress import Progress
from stansub.target.split import Split
from stansub.tuning.surrogates import omissions as surrogate_errors
from stansub.tuning.surrogates.maxima import about, is_same
from stansub.tuning.surrogates.mode_shares import overlap
from stansub.tuning.surrogates.ridge import Region, ridge_mode
from stansub.tuning.surrogates.sampler_runs import spread
from stansub.tuning.surrogates.surrogate import TunedSurrogate
from stansub.types import FloatArray

# Excess of the remainder over its median at draws up to which a chain leaves a point: it accepts one move in e^5. The
# surrogate's log density may be as much, and the range of the draws, below theirs: from elsewhere trajectories diverge.
_MOST, _COMPARED = 5.0, 16


def begun(
    split: Split, tuned: TunedSurrogate, given: Sequence[FloatArray], rng: np.random.Generator, progress: Progress
) -> tuple[tuple[FloatArray, ...], tuple[int, ...]]:
    """Return where chains begin that should start at given values, and the indices of those that begin elsewhere.

    Raises
    ------
    RunError
        If the user interrupts, or the time limit is reached.
    """
    approximation, predictors = tuned.transition.approximation, split.predictors
    posterior = split.surrogate(approximation)

    def measured(points: FloatArray | Sequence[FloatArray]) -> tuple[FloatArray, FloatArray]:
        """Return the remainders and the surrogate's log densities."""
        densities = np.array([posterior.model.log_density(theta) for theta in points])
        return surrogate_errors.remainders(split, approximation, points, progress), densities

    remainders, densities = measured(spread(tuned.draws, _COMPARED))
    most, least = np.median(remainders) + _MOST, densities.min() - np.ptp(densities) - _MOST
    remainders, densities = measured(given)
    far = tuple(map(int, np.flatnonzero(~((remainders < most) & (densities > least)))))
    starts = list(given)
    if not far:
        return tuple(starts), far
    region = Region.of_split(split, len(given[0]), rng.spawn(1)[0])
    known = [(ridge_mode(predictors, progress, approximation.point, region=region)[0], tuned)]
    for chain in far:
        progress("Approaching the posterior from the inits")
        end, _ = ridge_mode(predictors, progress, posterior.phi(given[chain]), region=region)
        own = next((one for other, one in known if is_same(end, other, region)), None)
        if own is None:
            found = about(split, len(given[chain]), end, region, rng, progress)
            own = found if found is not None and not overlap(found, tuned) else tuned
            known.append((end, own))
        starts[chain] = own.draws[rng.integers(len(own.draws))]
    return tuple(starts), far
