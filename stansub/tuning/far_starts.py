"""Starting values of surrogate transitions that the user gives.

Far from a surrogate's draws it omits so much of the density that a chain would reject every move, or trajectories
diverge. The chain then begins at a draw of the surrogate about the maximum of the likelihood to which a climb from the
given values leads. So these still choose between modes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stansub.errors import RunError
from stansub.progress import Progress
from stansub.target.sparse import Quadratic
from stansub.target.split import Split
from stansub.tuning import surrogate
from stansub.tuning.maxima import is_same, overlap
from stansub.tuning.surrogate import TunedSurrogate
from stansub.tuning.surrogate_hmc import spread
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
    about, predictors = tuned.transition.approximation, split.predictors
    posterior = split.surrogate(about)

    def measured(theta: FloatArray) -> tuple[float, float]:
        """Return the remainder and the surrogate's log density."""
        phi = posterior.phi(theta)
        return predictors.log_lik(phi) - about(phi), posterior.model.log_density(theta)

    remainders, densities = np.transpose([measured(theta) for theta in spread(tuned.draws, _COMPARED)])
    most, least = np.median(remainders) + _MOST, densities.min() - np.ptp(densities) - _MOST

    def is_far(theta: FloatArray) -> bool:
        remainder, density = measured(theta)
        return not (remainder < most and density > least)

    far = tuple(chain for chain, theta in enumerate(given) if is_far(theta))
    starts = list(given)
    known = [(surrogate.ridge_mode(predictors, progress, about.point)[0], tuned)] if far else []
    for chain in far:
        progress("Approaching the posterior from the inits")
        end, _ = surrogate.ridge_mode(predictors, progress, posterior.phi(given[chain]))
        own = next((one for other, one in known if is_same(end, other)), None)
        if own is None:
            own = _about(split, tuned, end, rng, progress)
            known.append((end, own))
        starts[chain] = own.draws[rng.integers(len(own.draws))]
    return tuple(starts), far


def _about(
    split: Split, tuned: TunedSurrogate, end: Quadratic, rng: np.random.Generator, progress: Progress
) -> TunedSurrogate:
    """Return the surrogate about another end of a climb; the first one if that fails or is about the same mode."""
    try:
        found = surrogate.tune(split, len(tuned.draws[0]), rng, progress, begin=end)
    except RunError as error:
        if type(error) is not RunError:  # an interrupt, or the time limit
            raise
        return tuned
    return tuned if overlap(found, tuned) else found
