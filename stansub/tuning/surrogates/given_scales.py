"""Tuning of trajectories given the scales, on a surrogate with normal effects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stansub.kernels.surrogate import GivenScales
from stansub.target.approximation import Approximation
from stansub.target.normal_effects import NormalEffects
from stansub.target.split import Surrogate
from stansub.tuning.effects.normal_effects import Structure
from stansub.tuning.surrogates.gibbs import evaluation_cost, factor_cost
from stansub.tuning.surrogates.hmc import Tuned
from stansub.tuning.surrogates.sampler_runs import (
    ANGLE,
    MOST_STEPS,
    SHOWING,
    SURE,
    TIME,
    Run,
    n_steps_needed,
    n_transitions,
    run,
    slowest_time,
)
from stansub.types import FloatArray

# Draws of a round, and those before them; draws that show how many steps a trajectory needs, and the fewest.
_ROUND, _BEFORE, _TRIED, _FEWEST = 30, 20, 20, 3
# Proposals of scales in a transition (`cpp/surrogate_samplers.hpp`).
_PROPOSALS = 4


@dataclass(frozen=True)
class GivenScalesTuner:
    """Draws of a surrogate by trajectories given the scales; results are None if few of these are accepted."""

    structure: Structure
    rng: np.random.Generator
    check: Callable[[], None]

    def round(self, surrogate: Surrogate, about: Approximation, draws: FloatArray) -> Tuned | None:
        """Draw briefly, from the last of ``draws``."""
        found = self._run(surrogate, self.structure.about(about, draws), draws[-1], _BEFORE + _ROUND)
        return found and Tuned(found[0], found[1].draws[_BEFORE:])

    def finish(self, surrogate: Surrogate, about: Approximation, draws: FloatArray) -> Tuned | None:
        """Return the sampler with its transitions per step.

        Where a scale is uncertain, draws so many transitions apart hardly resemble each other.
        """
        tuned = self._shown(surrogate, self.structure.about(about, draws), draws[-1], SHOWING)
        if tuned is None:
            return None
        effects = self.structure.about(about, tuned.draws)  # with proposals from more draws
        if not self.structure.is_uncertain(tuned.draws):
            return self._shown(surrogate, effects, tuned.draws[-1], SHOWING)
        tuned = self._shown(surrogate, effects, tuned.draws[-1], SURE)
        return tuned and tuned._replace(n=n_transitions(tuned.time, left=1.0))

    def _shown(self, surrogate: Surrogate, effects: NormalEffects, theta: FloatArray, n: int) -> Tuned | None:
        """Return the sampler with its autocorrelation time over n transitions."""
        found = self._run(surrogate, effects, theta, n)
        if found is None:
            return None
        inner, made = found
        time = slowest_time(made.draws)
        n = n_transitions(time, left=TIME)
        return Tuned(inner, made.draws, time, transition_cost(inner), n, made.diverging)

    def _run(
        self, surrogate: Surrogate, effects: NormalEffects, theta: FloatArray, n: int
    ) -> tuple[GivenScales, Run] | None:
        """Return trajectories with the steps that accept nearly all, and their run; None if they are many.

        Short runs show how many steps are needed.
        """
        n_steps, length = _FEWEST, min(n, _TRIED)
        while len(effects.centre) and n_steps <= MOST_STEPS:
            inner = GivenScales(effects, ANGLE / n_steps, n_steps)
            made = run(inner.bound(surrogate), theta, length, self.rng, self.check)
            needed = n_steps_needed(made, n_steps)
            if needed > n_steps:
                n_steps = needed
            elif length == n:
                return inner, made
            else:
                length = n
        return None


def transition_cost(inner: GivenScales) -> float:
    """Return the microseconds of a transition: values of the surrogate, and factors."""
    evaluations, factors = inner.n_steps + _PROPOSALS, 1 + _PROPOSALS
    return evaluations * evaluation_cost(inner.effects) + factors * factor_cost(inner.effects)
