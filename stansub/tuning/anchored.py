"""Sampling anchored at the mode: control variates there, and proposals that a short race chooses.

Where the posterior is far from its normal approximation chains start with a random walk that learns, and what they have
learned is taken up when they meet (`stansub.run.stages`).

What is chosen depends on the seed and the data alone, not on the clock, so that the same seed gives the same draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from stansub import streams
from stansub.acceptance.decide import Decider, make_decider
from stansub.acceptance.noise import Penalty
from stansub.acceptance.ranges import DERIVATIVES, Range
from stansub.acceptance.stopping import StoppingRule
from stansub.chosen import (
    BetweenModes,
    Choices,
    Chosen,
    NoVariatesForTest,
    VariatesAsAsked,
    WalkSinceFewAccepted,
    updated,
)
from stansub.errors import InputError
from stansub.kernels.between_modes import LaplaceMixture, NearestWalk
from stansub.kernels.proposals import BuiltIn, Mixture, optimal_scale, optimal_walk
from stansub.progress import as_progress
from stansub.target.factors import Evaluator, Target
from stansub.target.taylor import ControlVariates, build_at_modes, choose_order
from stansub.tuning.adapt import FirstWalk
from stansub.tuning.mode import Mode, Modes, find_modes
from stansub.tuning.named import named, without_race
from stansub.tuning.race import (
    FIRST_LOOKS,
    LEAST_ACCEPTED,
    Candidate,
    at_first_look,
    choose_looks,
    choose_test,
    counts_rightly,
    mixed,
    pairs_along,
    race,
)
from stansub.types import FloatArray

Progress = Callable[[str], None]

ORDERS = ("auto", "0", "1", "2")

# Every mode is proposed with at least this probability, be its evidence as small as it is estimated to be, and so many
# steps stay about the mode where they are.
_LEAST_PROPOSED, _LOCAL_SHARE = 0.02, 0.5

# Chains start so many sds of the Laplace approximation from the mode, in each direction: further apart than the
# posterior is wide, for R-hat.
_START_SDS = 2.0


@dataclass(frozen=True)
class Anchored:
    """What sampling about the mode rests on.

    Attributes
    ----------
    modes : Modes
    variates : ControlVariates or None
        None where they do not pay.
    proposal : BuiltIn or None
        The winner of the race, with a share of random-walk steps, or a random walk that learns; None where the user has
        named another.
    name : str
        Of the proposal, for the record.
    rate : float
        Share of its moves that were accepted in the race; 0 without one, and 1 where nothing has won it yet.
    choices : mapping of str to Chosen
        What was chosen, and why.
    n_obs_evaluated : int
        Observations whose log likelihood the race evaluated.
    """

    modes: Modes
    variates: ControlVariates | None
    proposal: BuiltIn | None
    name: str
    rate: float
    choices: Choices
    n_obs_evaluated: int

    @property
    def mode(self) -> Mode:
        """The one with most evidence."""
        return self.modes.best

    @property
    def order(self) -> int:
        """Of the control variates."""
        return self.variates.order if self.variates else 0

    def decider(self, posterior: Target, evaluator: Evaluator, test: StoppingRule, spread: Any = None) -> Decider:
        """Decisions with these control variates."""
        return decider_with(posterior, evaluator, test, self.variates, spread)

    def start(self, posterior: Target, rng: np.random.Generator, place: float = 0.0) -> FloatArray:
        """A starting value, shape (dim,), from a wide normal distribution about a mode.

        ``place`` between 0 and 1 says which: each has a share of the interval in proportion to its evidence.
        """
        number = int(np.searchsorted(np.cumsum(self.modes.weights[:-1]), place, side="right"))
        mode = self.modes.found[number]
        for attempt in range(100):
            width = _START_SDS * 0.9**attempt
            theta = mode.position + width * mode.cholesky @ rng.standard_normal(mode.dim)
            if np.isfinite(posterior.full.log_density(theta)):
                return np.asarray(theta)
        return mode.position.copy()


def check_order(order: int | str) -> str:
    """The order of control variates as text.

    Raises
    ------
    InputError
        When it is unknown.
    """
    if str(order) not in ORDERS or isinstance(order, bool):
        raise InputError(f"control_variates {order!r} is unknown; choose from {', '.join(ORDERS)}")
    return str(order)


def anchor(
    posterior: Target,
    test: StoppingRule,
    *,
    order: str = "auto",
    proposal: str = "auto",
    n_steps: int,
    seed: int,
    threads: int,
    looks_given: bool,
    test_free: bool = False,
    spread: Range | None = None,
    progress: Progress,
) -> tuple[Anchored, StoppingRule]:
    """Find the mode, make control variates there, and choose a proposal.

    Parameters
    ----------
    order : {"auto", "0", "1", "2"}
        Of the control variates.
    proposal : {"auto", "laplace-pcn", "langevin"} or another
        Whether and between which proposals to have a race.
    n_steps : int
        That all chains together will take, about.
    looks_given : bool
        Whether the schedule of looks is the user's, and stays as it is.
    test_free : bool
        Whether the penalty method may take the test's place, where it pays.
    spread : Range, optional
        Where the range constant comes from, for tests that need one.

    Returns
    -------
    Anchored
    StoppingRule
        The test, with looks that suit control variates, or another in its place.

    Raises
    ------
    NoModeError
        Where there is no mode with a normal approximation.
    InputError
        When the order asked for would take too much memory.
    """
    mode_rng, order_rng, race_rng = (
        streams.generator(seed, stream) for stream in (streams.Run.MODES, streams.Run.ORDER, streams.Run.RACE)
    )
    say = as_progress(progress)
    modes = find_modes(posterior, mode_rng, threads=threads, progress=say)
    mode, choices = modes.best, updated({}, modes.choice())
    choose = partial(choose_order, posterior, mode, rng=order_rng, n_steps=n_steps, threads=threads, progress=say)

    def make(wanted: int, choice: Chosen) -> ControlVariates | None:
        choices.update(updated({}, choice))
        if not wanted:
            return None
        return build_at_modes(posterior, modes.found, order=wanted, threads=threads, progress=say)

    free = free_order(test, order)
    if spread is not None and spread.order:
        variates = make(spread.order, VariatesAsAsked(spread.order, function=DERIVATIVES[spread.order]))
    elif free:
        choice = choose()
        variates = make(choice.order, choice.reason)
    elif order == "auto":
        variates = make(0, NoVariatesForTest(test.name))
    else:
        variates = make(int(order), VariatesAsAsked(int(order)))
    fitted, given = fits(test, looks_given), test
    if variates is not None and fitted:
        test = at_first_look(given, FIRST_LOOKS[1])
    moves = named(proposal)
    if moves.race is None:
        return Anchored(modes, variates, None, proposal, 0.0, choices, 0), _late(given, variates, fitted)
    if len(modes.found) > 1:
        choices = updated(choices, BetweenModes(len(modes.found)))
        return Anchored(modes, variates, between_modes(modes), "laplace-mixture", 0.0, choices, 0), _late(
            given, variates, fitted
        )
    say("Trying proposals")

    def deciding(one: StoppingRule) -> Decider:
        return decider_with(posterior, posterior.population.evaluator(), one, variates, spread)

    decider = deciding(test)
    theta = mode.position + mode.cholesky @ race_rng.standard_normal(mode.dim)
    decider.reset(theta)
    result = race(decider, list(moves.race(mode, "Laplace")), mode.cholesky, race_rng, progress=say)
    if moves.fallback and result.first_rate < LEAST_ACCEPTED:
        if variates is None and free:
            choice = choose(step=optimal_scale(mode.dim))
            variates = make(choice.order, choice.reason)
        choices = updated(choices, WalkSinceFewAccepted(result.first_rate))
        first = FirstWalk(optimal_walk(mode.cholesky).cholesky)
        found = Anchored(modes, variates, first, without_race(proposal), 1.0, choices, decider.n_evaluated)
        return found, _late(given, variates, fitted)
    mixture, won = mixed(result, mode.cholesky)
    choices = updated(choices, won)
    evaluated, rate = decider.n_evaluated, result.rate
    if fitted and variates is not None:
        say("Trying first looks")
        pairs, n_passes = pairs_along(posterior, decider, mixture, variates, race_rng, threads, progress=say)
        test, look = choose_looks(pairs, test, len(posterior.blocks), race_rng)
        choices = updated(choices, look)
        evaluated += n_passes * posterior.blocks.n_observations
        if test_free and given.error is not None:
            penalty = Penalty(epsilon=given.error.value)
            other, looked = choose_looks(pairs, penalty, len(posterior.blocks), race_rng)
            if counts_rightly(pairs, other, race_rng):
                better, compared, rate, n = choose_test(
                    test, other, Candidate(result.winner.name, mixture), mode, deciding, theta, race_rng, progress=say
                )
                evaluated += n
                choices = updated(choices, compared)
                if better:
                    test, choices = other, updated(choices, looked)
    return Anchored(modes, variates, mixture, result.winner.name, rate, choices, evaluated), test


def between_modes(modes: Modes) -> Mixture:
    """Moves between modes and about each."""
    weights = np.maximum(modes.weights, _LEAST_PROPOSED)
    mixture = LaplaceMixture(
        np.array([mode.position for mode in modes.found]),
        np.array([mode.cholesky for mode in modes.found]),
        weights / weights.sum(),
    )
    local = NearestWalk(mixture, optimal_scale(modes.best.dim))
    return Mixture([mixture, local], np.array([1 - _LOCAL_SHARE, _LOCAL_SHARE]))


def _late(test: StoppingRule, variates: ControlVariates | None, fitted: bool) -> StoppingRule:
    """The test with the latest of the first looks, where nothing has been tried."""
    return at_first_look(test, FIRST_LOOKS[-1]) if variates is not None and fitted else test


def fits(test: StoppingRule, looks_given: bool) -> bool:
    """Whether the schedule of looks is chosen to fit control variates."""
    return test.fits_looks and not looks_given


def free_order(test: StoppingRule, order: str) -> bool:
    """Whether the order of control variates is chosen by what they save."""
    return order == "auto" and not test.needs_range and not test.exact


def decider_with(
    posterior: Target, evaluator: Evaluator, test: StoppingRule, variates: ControlVariates | None, spread: Any = None
) -> Decider:
    """Decisions of one chain with such control variates."""
    surrogate = variates.surrogate if variates is not None else None
    return make_decider(evaluator, posterior.blocks.sizes, test, spread=spread, surrogate=surrogate)
