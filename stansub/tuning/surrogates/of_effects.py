"""Tuning of the samplers of a surrogate with normal effects: the Gibbs sampler, or trajectories given the scales."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from stansub.target.approximation import Approximation
from stansub.target.split import Surrogate
from stansub.tuning.effects.normal_effects import Structure
from stansub.tuning.surrogates.gibbs import GibbsTuner
from stansub.tuning.surrogates.given_scales import GivenScalesTuner
from stansub.tuning.surrogates.hmc import Tuned
from stansub.tuning.surrogates.sampler_runs import MOST_TRANSITIONS
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
        swept, least = self.gibbs.round(surrogate, about, draws), _OFTEN if self.structure.is_uncertain(draws) else 0.0
        if swept is not None and swept.accepted >= least:
            return swept
        return self.given_scales.round(surrogate, about, draws) or swept

    def in_funnel(self, surrogate: Surrogate, about: Approximation, draws: FloatArray) -> Tuned | None:
        """Return the sampler for steps if a scale is uncertain; None otherwise, or if none suits.

        Other samplers may miss the neck of its funnel, and do not show it.
        """
        if not self.structure.is_uncertain(draws):
            return None
        found = [one for one in self._finished(surrogate, about, draws) if one.time <= MOST_TRANSITIONS]
        return min((one for one in found if one.accepted >= _OFTEN), key=_cost, default=None)

    def finish(self, surrogate: Surrogate, about: Approximation, draws: FloatArray) -> Tuned | None:
        """Return the sampler for steps with the cheapest effective draw; None if none suits."""
        return min(self._finished(surrogate, about, draws), key=_cost, default=None)

    def _finished(self, surrogate: Surrogate, about: Approximation, draws: FloatArray) -> Iterator[Tuned]:
        for one in (self.given_scales, self.gibbs):
            tuned = one.finish(surrogate, about, draws)
            if tuned is not None:
                yield tuned


def _cost(tuned: Tuned) -> float:
    return tuned.cost
