"""Trajectories on the posterior itself, in the metric of the curvature at its mode.

They are for posteriors of few observations that are far from normal and have no surrogate: moves about the mode stay in
tails for long, and decisions from subsets save little of what that costs. The no-U-turn sampler then takes some
gradients of all the data for nearly independent draws.

Where it takes hundreds, its trial and its run would take hours, so the trial ends early. It is limited by gradients,
not by time: the same seed gives the same draws.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from stansub import clock, streams
from stansub.acceptance.stopping import Exact, StoppingRule
from stansub.decision_selection import ExactAlong
from stansub.kernels.surrogate import NoUTurn, PosteriorTransition
from stansub.progress import Progress
from stansub.selection import StepCost, TrajectoriesLeft, TrajectoriesTaken
from stansub.target.coordinates import Coordinates
from stansub.target.factors import CutTarget
from stansub.target.laplace import Mode
from stansub.target.metric import Metric
from stansub.target.split import Dynamics, Transition
from stansub.tuning.adapt import shrunk
from stansub.tuning.mode_setup import ModeSetup, decider_with
from stansub.tuning.mode_tuner import WORTH_ERROR
from stansub.tuning.mode_variates import ModeRequest
from stansub.tuning.race import Candidate, race
from stansub.tuning.surrogates.sampler_runs import TARGET, adapted, run, slowest_time, spread
from stansub.types import FloatArray

# Transitions that tune the step size, and those that test it.
_ADAPTING, _TESTED = 100, 100
# Target acceptance rates; the next one is used if more than this share of the transitions diverge.
_TARGETS, _DIVERGING = (TARGET, 0.95), 0.02
# Cost of a gradient in evaluations of the log likelihood, and draws from which moves about the mode are raced.
_GRADIENT, _PLACES = 2.0, 12
# Share of the transitions with a full tree, or that diverge, above which trajectories do not suit.
_MOST_FULL, _MOST_DIVERGING = 0.5, 0.1
# Mean number of gradients above which they do not suit, either, and gradients that early transitions may take besides.
_MOST_STEPS, _EARLY = 60, 3000


class _Trajectories(NamedTuple):
    """Tuned trajectories on the posterior itself, and draws by them."""

    transition: PosteriorTransition
    draws: FloatArray
    """Shape (n, dim)."""
    time: float
    """Autocorrelation time of the slowest parameter, in transitions."""
    n_steps: float
    """Gradients of a transition."""
    seconds: float
    """Seconds of a transition."""

    def merit(self, n_observations: int) -> float:
        """Return the effective draws per observation evaluated."""
        return 1 / (self.n_steps * max(self.time, 1.0) * _GRADIENT * n_observations)


class _TooLongError(Exception):
    """Transitions of a trial take too many gradients."""


@dataclass
class _Meter:
    """Counts the transitions of a trial and their gradients, and ends it if these are too many."""

    progress: Progress
    n_gradients: int = 0
    """Gradients for all targets."""
    n_for_target: int = 0
    n_transitions: int = 0
    """Gradients and transitions for the current target."""
    done: int = 0
    """The count that progress shows: transitions, or the share of the gradients that they may take."""

    def begin(self) -> None:
        """Begin the transitions for another target."""
        self.n_for_target = self.n_transitions = self.done = 0

    def count(self, made: Transition) -> None:
        """Count a transition; raise `_TooLongError` if there were too many gradients."""
        self.n_gradients += made.n_steps
        self.n_for_target += made.n_steps
        self.n_transitions += 1
        most, total = _EARLY + _MOST_STEPS * self.n_transitions, _ADAPTING + _TESTED
        if self.n_for_target > most:
            raise _TooLongError
        self.done = max(self.done, self.n_transitions, total * self.n_for_target // most)
        self.progress.advance(self.done, total)

    @property
    def n_steps(self) -> float:
        """Return the mean number of gradients of a transition for the current target."""
        return self.n_for_target / max(self.n_transitions, 1)


def or_along(
    posterior: CutTarget, found: ModeSetup, test: StoppingRule, request: ModeRequest, progress: Progress
) -> tuple[ModeSetup, StoppingRule]:
    """Return a setup with its test, or that of trajectories if they make more effective draws for the data.

    Moves about the mode are raced from draws of the trajectories: from the mode, a race does not see how long they stay
    in tails. The approximate test must be worth `WORTH_ERROR` times as much.
    """
    n, worth = posterior.blocks.n_observations, 1.0 if test.exact else WORTH_ERROR
    if (dynamics := posterior.dynamics(progress)) is None:
        return found, test
    progress("Trying trajectories on the posterior")
    rng, meter = streams.generator(request.seed, streams.Run.ALONG), _Meter(progress)
    made = _tuned(dynamics, found.mode, rng, meter)
    found, gain = found.evaluating(meter.n_gradients * n), None
    if isinstance(made, TrajectoriesLeft):
        return found.noting(made), test
    if found.merit and found.proposal is not None:
        decider = decider_with(posterior, posterior.population.evaluator(), test, found.variates, request.spread)
        cholesky = np.linalg.cholesky(shrunk(np.atleast_2d(np.cov(made.draws, rowvar=False)), len(made.draws)))
        runner, starts = Candidate(found.name, found.proposal), spread(made.draws, _PLACES)
        merit = race(decider, [runner], np.asarray(cholesky), rng, starts, progress=progress).merit
        found = found.evaluating(decider.n_evaluated)
        if merit >= worth * made.merit(n):
            return found, test
        gain = made.merit(n) / merit if merit else None
    taken = TrajectoriesTaken(made.n_steps, found.name, gain)
    found = found.without_variates(ExactAlong(), taken, StepCost(made.n_steps, made.seconds))
    return replace(found, trajectories=made.transition, draws=made.draws, name=made.transition.name), Exact()


def _tuned(
    posterior: Dynamics, mode: Mode, rng: np.random.Generator, meter: _Meter
) -> _Trajectories | TrajectoriesLeft:
    """Return trajectories on a posterior about its mode, or why not: they are long, hardly move, or many diverge."""
    coordinates = Coordinates.plain(mode.dim)
    metric, theta = Metric.of(sp.csc_array(-mode.hessian)), mode.position
    for target in _TARGETS:
        meter.begin()
        system = posterior.hamiltonian(mode.position, metric, coordinates)
        try:
            first = adapted(system, theta, _ADAPTING, rng, meter.progress.check, target, meter.count)
            inner, began = NoUTurn(coordinates, mode.position, metric, first.step_size), clock.now()
            made = run(inner.bound(posterior), first.draws[-1], _TESTED, rng, meter.progress.check, meter.count)
        except _TooLongError:
            return TrajectoriesLeft(meter.n_steps)
        theta, seconds = made.draws[-1], (clock.now() - began) / _TESTED
        if made.diverging <= _DIVERGING or made.deep > _MOST_FULL:
            break
    if made.deep > _MOST_FULL or made.diverging > _MOST_DIVERGING:
        return TrajectoriesLeft(made.n_steps, made.diverging)
    return _Trajectories(PosteriorTransition(inner), made.draws, slowest_time(made.draws), made.n_steps, seconds)
