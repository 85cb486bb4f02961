"""Trials of surrogate transitions: their acceptance rate, and that of normal moves.

If few transitions are accepted, the surrogate omits too much of the density. Its coordinates and its metric are good
all the same: in these, the no-U-turn sampler on the posterior itself takes a few gradients of all the data for a draw,
without a long warmup.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import NamedTuple

import numpy as np

from stansub import clock
from stansub.errors import RunError
from stansub.kernels.surrogate import Gibbs, GivenScales, NoUTurn
from stansub.progress import Progress
from stansub.selection import StepCost
from stansub.target.split import Split
from stansub.tuning.surrogates.hmc import CHECKS_ON_POSTERIOR, POINTS, Tuned
from stansub.tuning.surrogates.normal import of_surrogate
from stansub.tuning.surrogates.sampler_runs import spread
from stansub.tuning.surrogates.surrogate import TunedSurrogate
from stansub.types import FloatArray

# Transitions tried, after as many that do not count: the first, which start at draws of the surrogate, are accepted too
# often.
N_TRIED = 60
# Acceptance rate below which trajectories become of random length; sd of the remainders above which that is no help.
_OFTEN, _TOO_NOISY = 0.5, 3.0
# Acceptance rate below which, transitions rejected in a row from which, and sd of the remainders above which
# trajectories on the posterior itself are taken; share of these that may diverge. A trial is too short to see how long
# chains stay where the surrogate omits most.
_RARELY, _IN_A_ROW, _NOISY, _DIVERGING = 0.6, 10, 0.8, 0.1
# Seconds of tuning trajectories on the posterior after which their cost is estimated for the first time.
_SOON = 60.0
# Sd of the remainders above which some steps are such trajectories, and their share: a chain in a tail of the posterior
# that the surrogate does not have leaves it by these.
_FAIR, _SHARE = 0.2, 0.1
# Their share if transitions of a sampler of effects, which crosses funnels of scales, are accepted more often than
# this, but rarely.
_HALF, _SOMETIMES = 0.5, 0.3


class Trial(NamedTuple):
    """Result of a trial."""

    tuned: TunedSurrogate
    """Setup with the sampler that suits the posterior."""
    accepted: float
    """Share of its transitions that moved."""
    of_surrogate: float | None = None
    """Share of surrogate transitions that were accepted, if the sampler moves on the posterior itself instead."""
    cost: StepCost | None = None
    """Cost of a step, if trajectories on the posterior make all or some of them."""


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
    split: Split,
    tuned: TunedSurrogate,
    rng: np.random.Generator,
    progress: Progress,
    *,
    on_posterior: bool = True,
    forecast: Callable[[StepCost], None] = lambda cost: None,
) -> Trial:
    """Return the setup with the sampler that suits it, and the acceptance rate of its transitions in a trial.

    Where a surrogate omits much of the density, a chain rejects all distant points and would stay for long. But of
    trajectories of random length, some end nearby. If few of these are accepted, either, the sampler moves on the
    posterior itself, or half of the steps do, if a sampler of effects is accepted sometimes: trajectories do not cross
    funnels. If more are, but the surrogate omits more than little, a tenth of the steps do.

    Parameters
    ----------
    on_posterior : bool
        Whether it may.
    forecast : callable
        Called with the cost of a step on the posterior, as far as it is known, if tuning takes long.
    """
    if tuned.transition.share == 1:
        moves = _moves(split, tuned, rng, progress)
        return Trial(tuned, moves.accepted, cost=StepCost(moves.n_steps, moves.seconds))
    tuned, moves = _with_length(split, tuned, rng, progress)
    sticks = moves.accepted < _RARELY or moves.n_in_a_row >= _IN_A_ROW or tuned.noise > _NOISY
    found, share = None, 1.0
    if on_posterior and (sticks or tuned.noise > _FAIR):
        crosses = isinstance(tuned.transition.inner, Gibbs | GivenScales) and moves.accepted > _SOMETIMES
        share = (_HALF if crosses else 1.0) if sticks else _SHARE
        found = _on_posterior(
            split, tuned, progress, lambda seconds: forecast(StepCost(None, share * seconds)), sticks=sticks
        )
    if found is None:
        return Trial(tuned, moves.accepted)
    assert isinstance(found.inner, NoUTurn)
    transition = replace(tuned.transition, on_posterior=found.inner, share=share)
    if share < 1:
        seconds = share * found.seconds + (1 - share) * moves.seconds
        cost = StepCost(share * found.n_steps, seconds)
        return Trial(replace(tuned, transition=transition), moves.accepted, cost=cost)
    transition = replace(transition, inner=found.inner, joint=None, n=1, share=1.0)
    tuned = replace(tuned, transition=transition, draws=found.draws, diverging=found.diverging)
    accepted, cost = _moves(split, tuned, rng, progress).accepted, StepCost(found.n_steps, found.seconds)
    return Trial(tuned, accepted, moves.accepted, cost)


def _with_length(
    split: Split, tuned: TunedSurrogate, rng: np.random.Generator, progress: Progress
) -> tuple[TunedSurrogate, _Moves]:
    """Return the setup with trajectories of fixed or of random length, and their moves."""
    progress("Trying surrogate transitions")
    moves = _moves(split, tuned, rng, progress)
    inner = tuned.transition.inner.of_random_length()
    if moves.accepted >= _OFTEN or tuned.noise > _TOO_NOISY or inner is tuned.transition.inner:
        return tuned, moves
    tuned = replace(tuned, transition=replace(tuned.transition, inner=inner))
    return tuned, _moves(split, tuned, rng, progress)


def _on_posterior(
    split: Split, tuned: TunedSurrogate, progress: Progress, forecast: Callable[[float], None], *, sticks: bool
) -> Tuned | None:
    """Return trajectories on the posterior itself; None if they are impossible, or hardly move.

    Their metric is that of the surrogate, whose gradients cost less, unless chains stick on it.
    """
    posterior, tuner = split.posterior(), tuned.tuner
    if posterior is None or tuner is None:
        return None
    progress("Tuning trajectories on the posterior")
    done, began, told = count(), clock.now(), False

    def check() -> None:
        nonlocal told
        n, seconds = next(done), clock.now() - began
        progress.advance(n, CHECKS_ON_POSTERIOR)
        if not told and n > 1 and seconds > _SOON:
            told = True
            forecast(seconds / n)

    tuner = replace(tuner, check=check)
    about, points = tuned.transition.approximation, spread(tuned.draws, POINTS)
    metric_of = None if sticks else split.surrogate(about)
    found = tuner.finish_on_posterior(posterior, about.precision, tuned.draws[-1:], points, metric_of)
    return found if found.diverging <= _DIVERGING else None


class _Moves(NamedTuple):
    """Share of the transitions tried that were accepted, the most that were rejected in a row, and the mean seconds and
    integrator steps of one.
    """

    accepted: float
    n_in_a_row: int = 0
    seconds: float = 0.0
    n_steps: float = 0.0


def _moves(split: Split, tuned: TunedSurrogate, rng: np.random.Generator, progress: Progress) -> _Moves:
    kernel = tuned.transition.kernel(split)
    state, n_accepted, rejected, most = kernel.init(tuned.draws[-1]), 0, 0, 0
    began, n_steps = clock.now(), 0
    for k in range(2 * N_TRIED):
        progress.advance(k, 2 * N_TRIED)
        state, info = kernel.step(rng, state, None)
        n_steps += info["n_steps"]
        rejected = 0 if info["accepted"] else rejected + 1
        n_accepted, most = n_accepted + (k >= N_TRIED and bool(info["accepted"])), max(most, rejected)
    return _Moves(n_accepted / N_TRIED, most, (clock.now() - began) / (2 * N_TRIED), n_steps / (2 * N_TRIED))
