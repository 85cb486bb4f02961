"""Choice of the sampler of a surrogate for steps: trajectories, or a sampler of effects."""

from __future__ import annotations

from functools import cache

from stansub.kernels.surrogate import NoUTurn
from stansub.target.approximation import Approximation
from stansub.target.split import Surrogate
from stansub.tuning.surrogates.hmc import POINTS, Tuned, Tuner
from stansub.tuning.surrogates.of_effects import EffectsTuner
from stansub.tuning.surrogates.sampler_runs import spread
from stansub.types import FloatArray


def choose_sampler(
    surrogate: Surrogate, about: Approximation, tuned: Tuned, tuner: Tuner, effects: EffectsTuner | None
) -> Tuned:
    """Return the sampler for steps, given that of the last round.

    Successive draws without U-turns are often further apart than independent ones. Samplers of effects are therefore
    only better in funnels, or if draws of some parameter resemble each other or transitions diverge.
    """
    draws, precision = tuned.draws, about.precision

    def in_funnel(draws: FloatArray) -> Tuned | None:
        return effects.in_funnel(surrogate, about, draws) if effects else None

    @cache
    def of_effects() -> Tuned | None:
        return effects.finish(surrogate, about, draws) if effects else None

    def is_beaten(tuned: Tuned) -> bool:
        return tuned.is_slow and (other := of_effects()) is not None and other.cost <= tuned.cost

    if (first := in_funnel(draws)) is not None:
        return first
    if not isinstance(tuned.inner, NoUTurn):
        tuned = tuner.round(surrogate, precision, draws, spread(draws, POINTS))
    assert isinstance(tuned.inner, NoUTurn)
    tuned = tuner.finish(surrogate, precision, tuned.draws, tuned.inner, is_beaten)
    other = in_funnel(tuned.draws) or (of_effects() if is_beaten(tuned) else None)
    return other or tuned
