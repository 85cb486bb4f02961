"""Trials of surrogate transitions: their acceptance rate, and that of normal moves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stansub.errors import RunError
from stansub.progress import Progress
from stansub.target.split import Split
from stansub.tuning.normal import of_surrogate
from stansub.tuning.surrogate import TunedSurrogate
from stansub.types import FloatArray

# Transitions tried, after as many that do not count: the first, which start at draws of the surrogate, are accepted too
# often.
N_TRIED = 60
# Acceptance rate below which trajectories become of random length; sd of the remainders above which that is no help.
_OFTEN, _TOO_NOISY = 0.5, 3.0


def normal_rate(split: Split, tuned: TunedSurrogate, rng: np.random.Generator) -> float:
    """Return the share of independent normal moves that would be accepted on the surrogate, without data."""
    draws, density = tuned.draws, split.surrogate(tuned.transition.approximation).model
    normal = of_surrogate(split, tuned.transition, draws)

    def log_weight(theta: FloatArray) -> float:
        try:
            value = density.log_density_gradient(theta)[0]
        except RunError:
            return -np.inf
        return value - normal.log_density(theta)

    own, new = (np.array([log_weight(theta) for theta in some]) for some in (draws, normal.draw(rng, len(draws))))
    return float(np.exp(np.minimum(0.0, new[np.newaxis] - own[:, np.newaxis])).mean())


def tried(
    split: Split, tuned: TunedSurrogate, rng: np.random.Generator, progress: Progress
) -> tuple[TunedSurrogate, float]:
    """Return the setup with the sampler that suits it, and the acceptance rate of its transitions in a trial.

    Where a surrogate omits much of the density, a chain rejects all distant points and would stay for long. But of
    trajectories of random length, some end nearby.
    """
    progress("Trying surrogate transitions")
    accepted = _accepted_rate(split, tuned, rng, progress)
    inner = tuned.transition.inner.of_random_length()
    if accepted >= _OFTEN or tuned.noise > _TOO_NOISY or inner is tuned.transition.inner:
        return tuned, accepted
    tuned = replace(tuned, transition=replace(tuned.transition, inner=inner))
    return tuned, _accepted_rate(split, tuned, rng, progress)


def _accepted_rate(split: Split, tuned: TunedSurrogate, rng: np.random.Generator, progress: Progress) -> float:
    kernel = tuned.transition.kernel(split)
    state, accepted = kernel.init(tuned.draws[-1]), 0
    for k in range(2 * N_TRIED):
        progress.advance(k, 2 * N_TRIED)
        state, info = kernel.step(rng, state, None)
        accepted += k >= N_TRIED and bool(info["accepted"])
    return accepted / N_TRIED
