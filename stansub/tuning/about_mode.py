"""Trajectories on the posterior itself, in the metric of the curvature at its mode.

They are for posteriors of few observations that are far from normal and have no surrogate: moves about the mode stay in
tails for long, and decisions from subsets save little of what that costs. The no-U-turn sampler then takes some
gradients of all the data for nearly independent draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from stansub import streams
from stansub.acceptance.stopping import Exact, StoppingRule
from stansub.decision_selection import ExactAlong
from stansub.kernels.surrogate import NoUTurn, PosteriorTransition
from stansub.progress import Progress
from stansub.selection import TrajectoriesTaken
from stansub.target.cholesky import of_metric
from stansub.target.coordinates import Coordinates
from stansub.target.factors import CutTarget
from stansub.target.laplace import Mode
from stansub.target.split import Dynamics
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


class _Trajectories(NamedTuple):
    """Tuned trajectories on the posterior itself, and draws by them."""

    transition: PosteriorTransition
    draws: FloatArray
    """Shape (n, dim)."""
    time: float
    """Autocorrelation time of the slowest parameter, in transitions."""
    n_steps: float
    """Gradients of a transition."""
    n_gradients: float
    """Gradients that tuning took."""

    def merit(self, n_observations: int) -> float:
        """Return the effective draws per observation evaluated."""
        return 1 / (self.n_steps * max(self.time, 1.0) * _GRADIENT * n_observations)


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
    rng = streams.generator(request.seed, streams.Run.ALONG)
    made = _tuned(dynamics, found.mode, rng, progress.advance)
    if made is None:
        return found, test
    found, gain = found.evaluating(round(made.n_gradients * n)), None
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
    found = found.without_variates(ExactAlong(), taken)
    return replace(found, trajectories=made.transition, draws=made.draws, name=made.transition.name), Exact()


def _tuned(
    posterior: Dynamics, mode: Mode, rng: np.random.Generator, advance: Callable[[int, int], None]
) -> _Trajectories | None:
    """Return trajectories on a posterior about its mode; None if they hardly move, or if many diverge.

    ``advance`` is called with the number of transitions, and the most of them; it may raise an exception to stop.
    """
    coordinates, done, n_gradients = Coordinates.plain(mode.dim), 0, 0.0
    factor, theta = of_metric(sp.csc_array(-mode.hessian)), mode.position

    def check() -> None:
        nonlocal done
        done += 1
        advance(done, len(_TARGETS) * (_ADAPTING + _TESTED))

    for target in _TARGETS:
        system = posterior.hamiltonian(mode.position, factor, coordinates)
        first = adapted(system, theta, _ADAPTING, rng, check, target)
        inner = NoUTurn(coordinates, mode.position, factor, first.step_size)
        made = run(inner.bound(posterior), first.draws[-1], _TESTED, rng, check)
        theta, n_gradients = made.draws[-1], n_gradients + (_ADAPTING + _TESTED) * made.n_steps
        if made.diverging <= _DIVERGING or made.deep > _MOST_FULL:
            break
    if made.deep > _MOST_FULL or made.diverging > _MOST_DIVERGING:
        return None
    time = slowest_time(made.draws)
    return _Trajectories(PosteriorTransition(inner), made.draws, time, made.n_steps, n_gradients)
