"""Tuning of Hamiltonian Monte Carlo on a surrogate: coordinates, metric, step size, and transitions per decision.

On a standard normal distribution, a trajectory turns by its length as an angle. After a third of a circle the
correlation with its start is cos 120 = -1/2 for means and 1/4 for squares, so draws estimate means better than
independent ones and sds nearly as well. Surrogates far from normal take the no-U-turn sampler.

Tuning needs no data. The result is fixed after set-up, so that a step is reversible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from stansub import clock
from stansub.kernels.surrogate import MAX_TREE_DEPTH, FixedLength, Gibbs, GivenScales, NoUTurn
from stansub.target.coordinates import Coordinates
from stansub.target.inner_density import InnerDensity
from stansub.target.metric import Metric
from stansub.target.split import Dynamics, Sampler
from stansub.tuning.effects.effects import Effects
from stansub.tuning.surrogates.differences import Differences
from stansub.tuning.surrogates.sampler_runs import (
    ANGLE,
    MOST_STEPS,
    SHOWING,
    SURE,
    TARGET,
    TIME,
    UNSURE,
    Run,
    adapted,
    n_steps_needed,
    n_transitions,
    run,
    slowest_time,
    spread,
)
from stansub.types import FloatArray

# Draws over which precisions are averaged, in a round and at the end.
POINTS, _FINAL_POINTS = 4, 16
# Transitions per round, and those that tune a step size at the end.
_ROUND, _ADAPTING = 60, 100
# Target acceptance rates; the next one is used if more than this share of the transitions diverge, or if the acceptance
# rate is lower than the target by more than this, and then steps adapt for this many autocorrelation times.
_TARGETS, _DIVERGING, _LOWER, _TIMES = (TARGET, 0.9, 0.95, 0.98), 0.005, 0.1, 8
# Share of the transitions whose trees have the maximum depth above which smaller steps would only move less.
_DEEP = 0.5
# Fewest steps of a trajectory of fixed length.
_FEWEST = 5
# On the posterior itself: transitions of rounds with a new metric, the last of which sets the step size of all chains;
# those that test the sampler; and calls of `Tuner.check`.
_DEAR_ROUNDS, _DEAR = (60, 200), 40
CHECKS_ON_POSTERIOR = sum(1 + n for n in _DEAR_ROUNDS) + _DEAR
# Autocorrelation time above which another sampler is preferred if it costs less. Independent draws have 1.
SLOW = 1.5
# Angle of the longest tree below which draws resemble each other, and what is omitted at them varies too little.
_SHORT = 1.0


class Tuned(NamedTuple):
    """Tuned sampler of a surrogate, and draws of it."""

    inner: NoUTurn | FixedLength | Gibbs | GivenScales
    """The sampler."""
    draws: FloatArray
    """Shape (n, dim)."""
    time: float = np.inf
    """Autocorrelation time of the slowest parameter, in transitions; infinite if not measured."""
    transition_cost: float = np.inf
    """Microseconds of a transition, by a rule of thumb; infinite if not measured."""
    n: int = 1
    """Transitions per step."""
    diverging: float = 0.0
    """Share of the transitions that diverged."""
    accepted: float = 1.0
    """Share of the sweeps of the Gibbs sampler that were accepted."""
    n_steps: float = 0.0
    seconds: float = 0.0
    """Gradients and seconds of a transition on the posterior itself."""

    @property
    def cost(self) -> float:
        """Return the microseconds for an effective draw of the slowest parameter."""
        return self.time * self.transition_cost

    @property
    def is_stuck(self) -> bool:
        """Return whether steps are so small that draws are hardly apart."""
        return isinstance(self.inner, NoUTurn) and self.inner.step_size * 2**MAX_TREE_DEPTH < _SHORT

    @property
    def diverges(self) -> bool:
        """Return whether more transitions diverge than should."""
        return self.diverging > _DIVERGING

    @property
    def is_slow(self) -> bool:
        """Return whether draws of some parameter resemble each other, or transitions diverge."""
        return self.time > SLOW or self.diverges


@dataclass(frozen=True)
class Tuner:
    """Alternates between draws and the coordinates and metric computed from them; checks before each of either."""

    effects: Effects
    differences: Differences
    rng: np.random.Generator
    check: Callable[[], None]

    def round(
        self,
        surrogate: Dynamics,
        precision: sp.csr_array,
        draws: FloatArray,
        points: FloatArray,
        metric_of: Dynamics | None = None,
        n: int = _ROUND,
    ) -> Tuned:
        """Draw briefly, from the last of ``draws``, with the metric at ``points``; ``precision`` is the data's.

        The metric is that of another density if there is one.
        """
        coordinates, metric = self._metric(metric_of or surrogate, precision, points)
        system = surrogate.hamiltonian(coordinates.inward(draws).mean(axis=0), metric, coordinates)
        made = adapted(system, draws[-1], n, self.rng, self.check)
        kept = made.draws[n // 2 :]
        inner = NoUTurn(coordinates, coordinates.inward(kept).mean(axis=0), metric, made.step_size)
        return Tuned(inner, kept)

    def finish(
        self,
        surrogate: Dynamics,
        precision: sp.csr_array,
        draws: FloatArray,
        inner: NoUTurn,
        is_beaten: Callable[[Tuned], bool] = lambda tuned: False,
        metric_of: Dynamics | None = None,
        slow: float = SLOW,
    ) -> Tuned:
        """Return the sampler with a metric from more draws: trajectories of fixed length where they suit.

        They do not if draws of some parameter have an autocorrelation time above ``slow``.
        """
        draws = self._run(inner.bound(surrogate), draws[-1], _ADAPTING).draws
        own = self.about(metric_of or surrogate, precision, draws, step_size=inner.step_size)
        cost = step_cost(precision, own.metric)
        return self._fixed_length(surrogate, own, draws[-1], cost, slow) or self._no_u_turn(
            surrogate, own, draws[-1], cost, is_beaten
        )

    def about(
        self, surrogate: Dynamics, precision: sp.csr_array, draws: FloatArray, *, step_size: float = 1.0
    ) -> NoUTurn:
        """Return the no-U-turn sampler in coordinates and with a metric that suit draws of a surrogate."""
        coordinates, metric = self._metric(surrogate, precision, spread(draws, _FINAL_POINTS))
        return NoUTurn(coordinates, coordinates.inward(draws).mean(axis=0), metric, step_size)

    def drawn(self, sampler: Sampler, theta: FloatArray, n: int, *, apart: int) -> FloatArray:
        """Return draws of a sampler from a place, so many transitions apart, shape (n, dim)."""
        return self._run(partial(sampler, n=apart), theta, n).draws

    def finish_on_posterior(
        self,
        posterior: Dynamics,
        precision: sp.csr_array,
        draws: FloatArray,
        points: FloatArray,
        metric_of: Dynamics | None = None,
    ) -> Tuned:
        """Return the no-U-turn sampler of the posterior itself, whose gradients are dear; parameters as of `round`.

        On posteriors that no surrogate describes, tails mix slowly by trajectories of a fixed length.
        """
        for n in _DEAR_ROUNDS:
            tuned = self.round(posterior, precision, draws, points, metric_of, n)
            draws, points = tuned.draws, spread(tuned.draws, POINTS)
        inner = tuned.inner
        assert isinstance(inner, NoUTurn)
        began = clock.now()
        made = self._run(inner.bound(posterior), draws[-1], _DEAR)
        seconds = (clock.now() - began) / _DEAR
        diverging = 1.0 if made.deep > _DEEP else made.diverging
        draws = np.vstack([draws, made.draws])
        return tuned._replace(draws=draws, diverging=diverging, n_steps=made.n_steps, seconds=seconds)

    def _fixed_length(
        self, surrogate: Dynamics, own: NoUTurn, theta: FloatArray, cost: float, slow: float
    ) -> Tuned | None:
        """Return trajectories with the steps that accept nearly all; None if they are many, or draws are slow.

        Errors of the energy, and so rejections, decrease with the square of the step size.
        """
        n_steps, n = _FEWEST, SHOWING
        while n_steps <= MOST_STEPS:
            inner = FixedLength(own.coordinates, own.centre, own.metric, ANGLE / n_steps, n_steps)
            made = self._run(inner.bound(surrogate), theta, n)
            needed = n_steps_needed(made, n_steps)
            if needed > n_steps:
                n_steps = needed
                continue
            time = slowest_time(made.draws)
            found = Tuned(inner, made.draws, time, made.n_steps * cost, diverging=made.diverging)
            if time <= slow and not found.diverges:
                return found
            if n == SURE:
                return None
            n = SURE  # the longest of many noisy times
        return None

    def _no_u_turn(
        self,
        surrogate: Dynamics,
        own: NoUTurn,
        theta: FloatArray,
        cost: float,
        is_beaten: Callable[[Tuned], bool],
    ) -> Tuned:
        """Return a step size with few divergent transitions, and the transitions per step.

        In the neck of a funnel, a step size that suits the rest diverges. If draws resemble each other, steps may adapt
        to a part of the density, and chains then stick elsewhere: a longer run shows a lower acceptance rate.
        Transitions that hardly move some parameter are repeated within a step, because they cost nothing compared with
        a decision. Step sizes are not reduced for a sampler that is beaten by another one.
        """
        n_adapting = _ADAPTING
        for target in _TARGETS:
            first = adapted(own.on(surrogate), theta, n_adapting, self.rng, self.check, target)
            inner = replace(own, step_size=first.step_size)
            made = self._run(inner.bound(surrogate), first.draws[-1], SHOWING)
            theta, time = made.draws[-1], slowest_time(made.draws)
            if time > UNSURE and made.deep <= _DEEP:
                made = self._run(inner.bound(surrogate), theta, SURE)
                theta, time = made.draws[-1], slowest_time(made.draws)
            n = n_transitions(time, left=TIME)
            found = Tuned(inner, made.draws, time, made.n_steps * cost, n, made.diverging)
            sticks = made.acceptance < target - _LOWER
            if (made.diverging <= _DIVERGING and not sticks) or made.deep > _DEEP or is_beaten(found):
                break
            n_adapting = int(np.clip(_TIMES * time, _ADAPTING, SURE)) if sticks else _ADAPTING
        return found

    def _run(self, sampler: Sampler, theta: FloatArray, n: int) -> Run:
        return run(sampler, theta, n, self.rng, self.check)

    def _metric(self, surrogate: Dynamics, precision: sp.csr_array, points: FloatArray) -> tuple[Coordinates, Metric]:
        self.check()
        coordinates = self.effects.matching(precision, points)
        density = InnerDensity(surrogate.model, coordinates)
        return coordinates, self.differences.metric(density, coordinates.inward(points))


def step_cost(precision: sp.csr_array, metric: Metric) -> float:
    """Return the microseconds of a step: autodiff, the expansion's gradient, and products with the metric."""
    return 2 + 0.1 * metric.dim + 0.0005 * (precision.nnz / 2 + 2 * metric.n_elements)
