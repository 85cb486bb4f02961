"""Sampling anchored at the mode: control variates there, and proposals that a short race chooses.

What is chosen depends on the seed and the data alone, not on the clock, so that the same seed gives the same draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stansub.decision.boundary import Exact, Geometric, NoiseTest, Pocock, Test
from stansub.decision.decide import Decider, Derivative, Range, make_decider
from stansub.decision.normality import Pair, figures, mean_square, try_pairs
from stansub.errors import InputError, RunError
from stansub.kernels.base import FloatArray
from stansub.kernels.metropolis import Control, allocate, run_steps
from stansub.kernels.proposals import Mixture, Proposal, RandomWalk, langevin, laplace_pcn
from stansub.model.gradients import Team, Together
from stansub.model.mode import Mode, find_mode
from stansub.model.posterior import Evaluator, Posterior
from stansub.model.ranges import DERIVATIVES
from stansub.model.taylor import ControlVariates, build, choose_order
from stansub.sampling.trial import pairs_at

Progress = Callable[[str], None]

ORDERS = ("auto", "0", "1", "2")
PROPOSALS = ("auto", "laplace-pcn", "langevin")

# Remainders are small where log likelihoods are not: decisions may fall after a few blocks, as soon as means of so few
# are near normal; where they do not fall, many more blocks are needed at once.
_FIRST_LOOKS, _GROWTH = (5, 10, 20, 50, 100), 1.5
# Noise that is counted in may be so many times as large as it is measured, in squares.
_TOLERATED_SQUARE = 1.1

# Chains start so many sds of the Laplace approximation from the mode, in each direction: further apart than the
# posterior is wide, for R-hat.
_START_SDS = 2.0

# Share of the steps that are a random walk's: where the tails of the posterior are heavier than the approximation's an
# independent proposal alone would stay long where it gets there (Mengersen and Tweedie 1996, theorem 2.1).
_WALK_SHARE = 0.1
# Where so few independent draws from the approximation are accepted, a learned random walk does better.
_LEAST_ACCEPTED = 0.3
# Moves to the other side of the mode (rho below 0) would give better means and worse sds: what is even about the mode
# has autocorrelation rho squared, and rho = 0 is best for the worse of the two.
_RHOS = (0.0, 0.5, 0.8, 0.95)
# Places at which trial decisions are made, steps between them, and pairs at each.
_PLACES, _APART, _PAIRS, _SUBSETS, _WORK = 8, 25, 2, 250, 2_000_000
# Steps of one leg of the race, legs of each candidate, and observations that a step costs beside those it evaluates.
_LEG, _LEGS, _STEP_COST, _LONG = 100, 3, 150.0, 20


class NotNormalError(RunError):
    """Moves about the mode do not suit the posterior, which is too far from normal."""


@dataclass(frozen=True)
class Anchored:
    """What sampling about the mode rests on.

    Attributes
    ----------
    mode : Mode
    variates : ControlVariates or None
        None where they do not pay.
    proposal : Proposal or None
        The winner of the race, with a share of random-walk steps; None where the user has named another.
    name : str
        Of the proposal, for the record.
    choices : dict of str to str
        What was chosen, and why.
    n_obs_evaluated : int
        Observations whose log likelihood the race evaluated.
    """

    mode: Mode
    variates: ControlVariates | None
    proposal: Proposal | None
    name: str
    choices: dict[str, str]
    n_obs_evaluated: int

    @property
    def order(self) -> int:
        """Of the control variates."""
        return self.variates.order if self.variates else 0

    def decider(self, posterior: Posterior, evaluator: Evaluator, test: Test, spread: Any = None) -> Decider:
        """Decisions with these control variates."""
        return _decider(posterior, evaluator, test, self.variates, spread)

    def start(self, posterior: Posterior, rng: np.random.Generator) -> FloatArray:
        """A starting value, shape (dim,), from a wide normal distribution about the mode."""
        for attempt in range(100):
            width = _START_SDS * 0.9**attempt
            theta = self.mode.position + width * self.mode.cholesky @ rng.standard_normal(self.mode.dim)
            if np.isfinite(posterior.full.log_density(theta)):
                return np.asarray(theta)
        return self.mode.position.copy()


@dataclass(frozen=True)
class Candidate:
    """A proposal in the race."""

    name: str
    proposal: Proposal


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
    posterior: Posterior,
    test: Test,
    *,
    order: str = "auto",
    proposal: str = "auto",
    n_steps: int,
    seed: int,
    threads: int,
    looks_given: bool,
    spread: Range | None = None,
    progress: Progress,
) -> tuple[Anchored, Test]:
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
    spread : Range, optional
        Where the range constant comes from, for tests that need one.

    Returns
    -------
    Anchored
    Test
        The test, with looks that suit control variates.

    Raises
    ------
    NoModeError
        Where there is no mode with a normal approximation.
    NotNormalError
        Where everything is left to be chosen, and the posterior is far from the normal approximation.
    InputError
        When the order asked for would take too much memory.
    """
    mode_rng, order_rng, race_rng = (
        np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0, stream))) for stream in range(1, 4)
    )
    mode = find_mode(posterior, mode_rng, threads=threads, progress=progress)
    choices = {"mode": mode.summary()}
    variates: ControlVariates | None = None
    wanted, reason = order, "as asked for"
    if isinstance(spread, Derivative):
        wanted, reason = str(spread.order), f"the program's {DERIVATIVES[spread.order]} bounds the remainders"
    elif order == "auto" and (test.needs_range or isinstance(test, Exact)):
        wanted, reason = "0", f"the {test.name} test looks at the differences themselves"
    elif order == "auto":
        choice = choose_order(posterior, mode, rng=order_rng, n_steps=n_steps, threads=threads)
        wanted, reason = str(choice.order), choice.reason
    if wanted != "0":
        variates = build(
            posterior, mode.position, order=int(wanted), steps=mode.steps, threads=threads, progress=progress
        )
    choices["control variates"] = f"{f'order {wanted}' if variates else 'none'}: {reason}"
    fitting = variates is not None and isinstance(test, Pocock | NoiseTest) and not looks_given
    if fitting:
        test = _at(test, _FIRST_LOOKS[1])
    if proposal not in PROPOSALS:
        return Anchored(mode, variates, None, proposal, choices, 0), _at(test, _FIRST_LOOKS[-1]) if fitting else test
    progress("Trying proposals")
    decider = _decider(posterior, posterior.population.evaluator(), test, variates, spread)
    theta = mode.position + mode.cholesky @ race_rng.standard_normal(mode.dim)
    decider.reset(theta)
    candidates = list(_candidates(mode, proposal))
    winner, told, rate = race(decider, candidates, mode, race_rng)
    if proposal == order == "auto" and rate < _LEAST_ACCEPTED and not isinstance(spread, Derivative):
        raise NotNormalError(
            f"the posterior is far from its normal approximation at the mode: {rate:.0%} of independent draws from it "
            "were accepted"
        )
    walk = RandomWalk(2.38 / np.sqrt(mode.dim) * mode.cholesky)
    mixture = Mixture([winner.proposal, walk], np.array([1 - _WALK_SHARE, _WALK_SHARE]))
    choices["proposal"] = f"{winner.name} and one random-walk step in {round(1 / _WALK_SHARE)}: {told}"
    evaluated = decider.n_evaluated
    if fitting and variates is not None:
        progress("Trying first looks")
        pairs, n_passes = _pairs(posterior, decider, mixture, variates, race_rng, threads)
        choose = choose_noise_looks if isinstance(test, NoiseTest) else choose_looks
        test, choices["first look"] = choose(pairs, test, len(posterior.blocks), race_rng)
        evaluated += n_passes * posterior.blocks.n_observations
    return Anchored(mode, variates, mixture, winner.name, choices, evaluated), test


def _at(test: Test, first: int) -> Test:
    changed: Test = replace(test, looks=Geometric(first=first, growth=_GROWTH))  # type: ignore[type-var]
    return changed


def _pairs(
    posterior: Posterior,
    decider: Decider,
    proposal: Proposal,
    variates: ControlVariates,
    rng: np.random.Generator,
    threads: int,
) -> tuple[list[Pair], int]:
    """Trial decisions along a chain, and the passes over the data that they took."""
    out = allocate(_APART, posterior.dim)
    pairs: list[Pair] = []
    n_passes = 0
    with Team(posterior.population, threads=threads) as team:
        for _ in range(_PLACES):
            run_steps(decider, proposal, rng, out, _APART, _control(rng))
            more, n = pairs_at(Together(team), np.array(decider.theta), proposal, _PAIRS, rng, variates)
            pairs, n_passes = pairs + more, n_passes + n
    return pairs, n_passes


def choose_looks(pairs: list[Pair], test: Test, n_blocks: int, rng: np.random.Generator) -> tuple[Test, str]:
    """The earliest first look at which means of remainders are near enough to normal, and what was seen of it.

    Where none is, it is the one with the fewest wrong decisions; the trial at the end of warmup then warns.
    """
    tried: list[tuple[float, int, dict[str, Any]]] = []
    for first in _FIRST_LOOKS:
        table = _at(test, first).table(n_blocks)
        if not pairs or table.n.size < 2:
            break
        trial = try_pairs(pairs, table, n_subsets=_SUBSETS, rng=rng, decision_work=_WORK)
        seen = figures(trial, test, by_decisions=True)
        tried.append((seen["wrong"], first, seen))
        if not seen["tail_fails"] and not seen["decisions_fail"]:
            return _at(test, first), f"{first} blocks: {_told(seen)}"
    if not tried:
        return _at(test, _FIRST_LOOKS[-1]), "as late as it gets: nothing could be tried"
    _, first, seen = min(tried, key=lambda one: one[:2])
    return _at(test, first), f"{first} blocks, though means of remainders are not normal: {_told(seen)}"


def choose_noise_looks(pairs: list[Pair], test: Test, n_blocks: int, rng: np.random.Generator) -> tuple[Test, str]:
    """The earliest first look, of 10 blocks or more, at which estimates are off by what their standard errors say.

    Skewed remainders make mean and sd of a few depend on each other, which the tests that count noise in take
    for independent. Where no look will do, it is the last that leaves blocks to be drawn; the audit then warns.
    """
    found, told = _FIRST_LOOKS[1], "nothing could be tried"
    for first in _FIRST_LOOKS[1:]:
        if not pairs or 2 * first > n_blocks:
            break
        square = mean_square(pairs, first, _SUBSETS, rng)
        n = len(pairs) * _SUBSETS
        found = first
        told = f"{n:,} trial estimates off by {np.sqrt(square):.2f} standard errors (root mean square; 1 expected)"
        if not square > _TOLERATED_SQUARE:
            break
    return _at(test, found), f"{found} blocks: {told}"


def _told(seen: dict[str, Any]) -> str:
    return (
        f"|t| beyond its critical value in {seen['observed']:.2g} of {seen['n_subsets']:,} trial subsets "
        f"({seen['nominal']:.2g} expected), {seen['wrong']:.2g} of {seen['n_decisions']:,} trial decisions wrong"
    )


def race(
    decider: Decider, candidates: list[Candidate], mode: Mode, rng: np.random.Generator
) -> tuple[Candidate, str, float]:
    """The candidate that makes most effective draws for the data it uses, why, and the first one's acceptance rate.

    From the expected squared jump J of a step, in variances and in the direction of the Laplace approximation in which
    it is least (Pasarica and Gelman 2010), follow the autocorrelation r = 1 - J / 2 and, were it that of an
    autoregression, (1 - r) / (1 + r) effective draws. They are set against the observations drawn, of which the few
    longest decisions would hide everything else and are capped.
    """
    dim = mode.dim
    jumps, accepted = np.zeros((len(candidates), dim)), np.zeros(len(candidates))
    used: list[list[NDArray[np.int64]]] = [[] for _ in candidates]
    out = allocate(_LEG, dim)
    for _ in range(_LEGS):
        for k, candidate in enumerate(candidates):
            began = np.array(decider.theta)
            run_steps(decider, candidate.proposal, rng, out, _LEG, _control(rng))
            moves = np.diff(out.theta, axis=0, prepend=began[np.newaxis])
            jumps[k] += np.sum(np.linalg.solve(mode.cholesky, moves.T) ** 2, axis=1)
            accepted[k] += out.accepted.sum()
            used[k].append(out.n_obs_used.copy())
    steps = _LEG * _LEGS
    step = np.minimum(jumps.min(axis=1) / steps, 2.0) / 2
    cost = np.array(
        [_STEP_COST + np.minimum(all_, _LONG * np.median(all_)).mean() for all_ in map(np.concatenate, used)]
    )
    merit = step / (2 - step) / cost
    best = int(np.argmax(merit))
    told = f"{accepted[best] / steps:.0%} accepted"
    others = [k for k in range(len(candidates)) if k != best]
    if others and merit[best] > 0:
        second = max(others, key=lambda k: merit[k])
        told += f", {merit[best] / max(merit[second], 1e-300):.2g} times the effective draws per observation of"
        told += f" {candidates[second].name}"
        walk = len(candidates) - 1
        if second != walk and best != walk and merit[walk] > 0:
            told += f" and {merit[best] / merit[walk]:.2g} times that of {candidates[walk].name}"
    return candidates[best], told, float(accepted[0] / steps)


def _candidates(mode: Mode, proposal: str) -> Iterator[Candidate]:
    dim, gradient = mode.dim, np.zeros(mode.dim)
    if proposal in ("auto", "laplace-pcn"):
        for rho in _RHOS:
            yield Candidate(f"Laplace pCN with rho {rho:g}", laplace_pcn(mode.position, mode.cholesky, rho))
    if proposal in ("auto", "langevin"):
        # 1.65 squared: best for independent normals (Roberts and Rosenthal 1998).
        for step in (2.7, 1.0) if proposal == "langevin" else (2.7,):
            scaled = step * dim ** (-1 / 3)
            move = langevin(mode.position, gradient, mode.hessian, mode.cholesky, scaled)
            yield Candidate(f"Langevin with step {scaled:.2g}", move)
    if proposal == "auto":
        yield Candidate("random walk", RandomWalk(2.38 / np.sqrt(dim) * mode.cholesky))


def _control(rng: np.random.Generator) -> Control:
    """Steps without audits that nobody stops."""
    return Control(rng, 0.0, np.zeros(1, np.int32), np.zeros(4, np.int64))


def _decider(
    posterior: Posterior, evaluator: Evaluator, test: Test, variates: ControlVariates | None, spread: Any = None
) -> Decider:
    if variates is None:
        return make_decider(evaluator, posterior.blocks.sizes, test, spread=spread)
    return make_decider(
        evaluator,
        posterior.blocks.sizes,
        test,
        spread=spread,
        anchor=variates.anchor,
        coefficients=variates.coefficients,
    )
