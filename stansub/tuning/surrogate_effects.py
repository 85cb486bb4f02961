"""Tuning of the samplers of a surrogate with normal effects: the Gibbs sampler, or trajectories given the scales."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stansub.target.approximation import Approximation
from stansub.target.split import Surrogate
from stansub.tuning.normal_effects import Structure
from stansub.tuning.sampler_runs import MOST_TRANSITIONS
from stansub.tuning.surrogate_gibbs import GibbsTuner
from stansub.tuning.surrogate_given_scales import GivenScalesTuner
from stansub.tuning.surrogate_hmc import Tuned
from stansub.types import FloatArray

# Share of the sweeps accepted below which the Gibbs sampler may stay in tails that short runs do not show.
_OFTEN = 0.5


@dataclass(frozen=True)
class EffectsTuner:
    """Draws of a surrogate by a sampler of its normal effects and their scales."""

    structure: Structure
    gibbs: GibbsTuner
    given_scales: GivenScalesTuner

    @classmethod
    def of(cls, structure: Structure, rng: np.random.Generator, check: Callable[[], None]) -> EffectsTuner:
        """Return the tuner of a structure; ``check`` is called before each transition."""
        return cls(structure, GibbsTuner(structure, rng, check), GivenScalesTuner(structure, rng, check))

    def round(self, surrogate: Surrogate, about: Approximation, draws: FloatArray) -> Tuned | None:
        """Draw briefly, from the last of ``draws``; None if most proposals are rejected."""
        swept = self.gibbs.round(surrogate, about, draws)
        if swept is not None and swept.accepted >= _OFTEN:
            return swept
        return self.given_scales.round(surrogate, about, draws) or swept

    def finish(self, surrogate: Surrogate, about: Approximation, draws: FloatArray) -> Tuned | None:
        """Return the sampler for steps; None if neither suits.

        Successive trajectories are often further apart than independent draws. The Gibbs sampler is therefore only
        better if their draws resemble each other.
        """
        moved = self.given_scales.finish(surrogate, about, draws)
        if moved is not None and not moved.is_slow:
            return moved
        swept = self.gibbs.finish(surrogate, about, draws)
        found = [one for one in (moved, swept) if one is not None]
        if not self.structure.is_uncertain(draws, *(one.draws for one in found)):
            return min(found, key=lambda one: one.cost, default=None)
        found = [one for one in found if one.time <= MOST_TRANSITIONS and one.accepted >= _OFTEN]
        return min(found, key=lambda one: one.cost)._replace(is_of_funnel=True) if found else moved
