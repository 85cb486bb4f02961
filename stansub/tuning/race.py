"""Race of proposals about a normal approximation, and choice of the first look that suits the winner.

The choices depend on the seed and the data alone, not on timing, so the same seed gives the same draws.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stansub.acceptance.decide import Decider
from stansub.acceptance.looks import Geometric
from stansub.acceptance.normality import Pair, figures, mean_square, try_pairs, without_longest
from stansub.acceptance.stopping import StoppingRule
from stansub.decision_selection import (
    FirstLookFits,
    FirstLookNotNormal,
    FirstLookOfNoise,
    FirstLookUntried,
    LookTrial,
)
from stansub.kernels.base import BatchControl, Records
from stansub.kernels.metropolis import MetropolisHastings
from stansub.kernels.proposals import BuiltIn, Mixture, Proposal, langevin, laplace_pcn, optimal_walk
from stansub.kernels.trajectories import trajectory
from stansub.progress import Progress
from stansub.selection import Chosen, RaceOutcome, RaceWon, Rival
from stansub.target.factors import Target
from stansub.target.gradients import ParallelEvaluator, Team
from stansub.target.taylor import ControlVariates
from stansub.tuning.trial import pairs_at
from stansub.types import FloatArray

# Remainders are small where log likelihoods are not, so a decision may stop after a few blocks, once means of so few
# are nearly normal. Otherwise it needs many more blocks at once.
FIRST_LOOKS, _GROWTH = (5, 10, 20, 50, 100), 1.5
# Tolerated ratio of actual to measured noise, squared.
_TOLERATED_SQUARE = 1.1

# Share of random-walk steps. If the tails of the posterior are heavier than the approximation's, an independence
# proposal alone would stay there for long (Mengersen and Tweedie 1996, theorem 2.1). The larger share is for proposals
# with an acceptance rate below the last number, which suggests such tails.
_WALK_SHARE, _LARGER_SHARE, _FEW_ACCEPTED = 0.1, 0.5, 0.5
# A move to the other side of the mode (rho -1/4) gives 1.7 times as many effective draws for means as rho 0, if all
# moves are accepted, as many for the quantiles of `ess_tail`, and 0.9 times as many for sds. It takes a nearly normal
# posterior: from a heavy tail it leads to the side of a light one, and is rejected for long.
_RHOS = (0.0, -0.25, 0.5, 0.8, 0.95)
# A trajectory ends after a third of a circle (`stansub.tuning.surrogates.hmc`), in so many steps; with more terms of
# the cubic it would take too long.
_ANGLE, _STEPS, _MOST_TERMS = 2 * np.pi / 3, (1, 2, 4), 200_000
# Expected squared jump, in variances, of such a move that is always accepted.
_LARGEST_JUMP = 2 * (1 - np.cos(_ANGLE))
# Squares of l in the scale l dim^(-1/6): 1.65 is best for independent normals (Roberts and Rosenthal 1998).
_LANGEVIN_STEPS = (2.7, 1.0)
# If the acceptance rate of independent draws from the approximation is below this, far moves about it are excluded: a
# race is too short to see how long they stay in the tails.
LEAST_ACCEPTED, _FAR_RHO = 0.3, 0.5
# The same for moves to the other side, and for trajectories: for those of several steps less if decisions by candidates
# lose some moves whatever the trajectory.
_LEAST_ACROSS, _LEAST_FOLLOWED, _LEAST_BY_CANDIDATES = 0.8, 0.9, 0.6
# Positions of trial decisions, steps between them, and pairs at each.
_PLACES, _APART, _PAIRS, _SUBSETS, _WORK = 8, 25, 2, 250, 2_000_000
# Steps per leg of the race, legs per candidate, and the costs in observations of a step, besides those that it
# evaluates, and of a number that it screens.
_LEG, _LEGS, STEP_COST, _SCREENED_COST = 100, 3, 150.0, 1 / 2000
# Steps of a leg between two checks of the time limit.
_PIECE = 10
# Steps of a leg that starts at its own draw, of which the later half counts: draws may not be from the posterior yet,
# and a chain that leaves them at once moves far only once.
_SHORT_LEG = 50


class Normal(Protocol):
    """Normal approximation of the posterior, such as a `stansub.tuning.modes.mode.Mode`."""

    @property
    def position(self) -> FloatArray:
        """Return its mean, shape (dim,)."""

    @property
    def cholesky(self) -> FloatArray:
        """Return the lower triangular factor of its covariance, shape (dim, dim)."""

    @property
    def hessian(self) -> FloatArray:
        """Return the Hessian of its log density, shape (dim, dim)."""

    @property
    def third(self) -> FloatArray:
        """Return the third derivatives of the posterior's log density there; empty if unknown."""


@dataclass(frozen=True)
class Candidate:
    """A proposal in the race."""

    name: str
    proposal: BuiltIn
    least: float = 0.0
    """Acceptance rate below which it does not win while others do better."""
    least_by_candidates: float = 0.0
    """The same for decisions by candidates; 0 if it is no other."""
    replaces: str = ""
    """Name of the candidate that it replaces as the winner if it is accepted that often: it is better then, but a race
    is too short to show it.
    """
    is_local: bool = True
    """Whether it leaves tails that are heavier than those of a normal distribution."""


@dataclass(frozen=True)
class Result:
    """Result of a race."""

    winner: Candidate
    outcome: RaceOutcome
    """Why the winner won."""
    rate: float
    first_rate: float
    """Acceptance rates of the winner and of the first candidate."""
    merit: float
    """Effective draws per observation of the winner."""


def pcn_moves(about: Normal, kind: str) -> Iterator[Candidate]:
    """Yield Crank-Nicolson moves about a normal approximation, far moves first."""
    name = "{} pCN with rho {:g}".format
    for rho in _RHOS:
        move = laplace_pcn(about.position, about.cholesky, rho)
        least = _LEAST_ACROSS if rho < 0 else LEAST_ACCEPTED if rho <= _FAR_RHO else 0.0
        yield Candidate(name(kind, rho), move, least, replaces=name(kind, 0) if rho < 0 else "", is_local=False)


def langevin_moves(about: Normal, kind: str, steps: Sequence[float] = _LANGEVIN_STEPS) -> Iterator[Candidate]:
    """Yield Langevin moves on a normal approximation."""
    name, dim = "Langevin" if kind == "Laplace" else f"{kind} Langevin", len(about.position)
    for step in steps:
        scaled = step * dim ** (-1 / 3)
        move = langevin(about.position, np.zeros(dim), about.hessian, about.cholesky, scaled)
        yield Candidate(f"{name} with step {scaled:.2g}", move)


def trajectories(about: Normal) -> Iterator[Candidate]:
    """Yield Hamiltonian trajectories if third derivatives are known and not too many."""
    if not 0 < len(about.third) <= _MOST_TERMS:
        return
    for n_steps in _STEPS:
        move = trajectory(about.position, about.cholesky, about.third, angle=_ANGLE, n_steps=n_steps)
        name = f"Hamiltonian trajectory of {n_steps} step{'s' * (n_steps > 1)}"
        yield Candidate(name, move, _LEAST_FOLLOWED, _LEAST_BY_CANDIDATES if n_steps > 1 else 0.0, is_local=False)


def all_moves(about: Normal, kind: str) -> Iterator[Candidate]:
    """Yield all candidates about a normal approximation; a random walk comes last."""
    yield from pcn_moves(about, kind)
    if np.any(about.third):  # otherwise they are Crank-Nicolson moves
        yield from trajectories(about)
    yield from langevin_moves(about, kind, _LANGEVIN_STEPS[:1])
    yield Candidate("random walk" if kind == "Laplace" else f"{kind} random walk", optimal_walk(about.cholesky))


def mixed(result: Result, cholesky: FloatArray, *, sticky: bool = False) -> tuple[Mixture, RaceWon]:
    """Return the winner mixed with random-walk steps, more of them in heavy tails; and the choice with its reason."""
    share = _WALK_SHARE if result.rate > _FEW_ACCEPTED and not sticky else _LARGER_SHARE
    mixture = Mixture([result.winner.proposal, optimal_walk(cholesky)], np.array([1 - share, share]))
    return mixture, RaceWon(result.outcome, walk_every=round(1 / share), sticky=sticky)


def race(
    decider: Decider,
    runners: Sequence[Candidate],
    cholesky: FloatArray,
    rng: np.random.Generator,
    starts: FloatArray | None = None,
    *,
    progress: Progress | None = None,
) -> Result:
    """Return the candidate with the most effective draws for the data it uses.

    The expected squared jump J of a step is measured in variances, in the direction of the normal approximation in
    which it is smallest (Pasarica and Gelman 2010). It gives the autocorrelation r = 1 - J / 2 and, for an
    autoregression, (1 - r) / (1 + r) effective draws. These are divided by the observations drawn. The few longest
    decisions, which would dominate the mean, are capped.

    Parameters
    ----------
    cholesky : ndarray, shape (dim, dim)
        Covariance factor of the normal approximation.
    starts : ndarray, shape (n, dim), optional
        Draws from which all candidates run a short leg each; without them, candidates run legs in turn from the
        decider's position.
    """
    progress = progress or Progress()
    dim, leg = len(cholesky), _LEG if starts is None else _SHORT_LEG
    jumps, accepted = np.zeros((len(runners), dim)), np.zeros(len(runners))
    used: list[list[NDArray[np.int64]]] = [[] for _ in runners]
    kernel = MetropolisHastings(decider)
    out, n_legs, first = (
        Records.allocate(leg, dim, kernel.stats),
        _LEGS if starts is None else len(starts),
        0 if starts is None else leg // 2,
    )
    for number in range(n_legs):
        for k, candidate in enumerate(runners):
            if starts is not None:
                decider.reset(starts[number])
            began = np.array(decider.theta)
            for first_row in range(0, leg, _PIECE):
                rows = out.rows(slice(first_row, first_row + _PIECE))
                kernel.batch(rng, kernel.current_state, candidate.proposal, rows, len(rows), BatchControl.none())
                progress.check()
            progress.advance(number * len(runners) + k + 1, n_legs * len(runners))
            moves = np.diff(out.theta, axis=0, prepend=began[np.newaxis])[first:]
            jumps[k] += np.sum(np.linalg.solve(cholesky, moves.T) ** 2, axis=1)
            accepted[k] += out["accepted"][first:].sum()
            used[k].append(out["n_obs_used"][first:].copy())
    steps = (leg - first) * n_legs
    step = np.minimum(jumps.min(axis=1) / steps, _LARGEST_JUMP) / 2
    each = STEP_COST + _SCREENED_COST * decider.n_screened
    drawn = [without_longest(np.concatenate(one)) for one in used]
    cost = np.array([each + one.proposal.cost + n for one, n in zip(runners, drawn, strict=True)])
    merit = step / (2 - step) / cost
    by_candidates = decider.n_candidates > 0
    fit = accepted / steps >= [(by_candidates and one.least_by_candidates) or one.least for one in runners]
    if fit.any():
        merit = np.where(fit, merit, 0.0)
    best = int(np.argmax(merit))
    best = next((k for k, one in enumerate(runners) if one.replaces == runners[best].name and fit[k]), best)
    rivals = []
    others = [k for k, one in enumerate(runners) if k != best and one.name != runners[best].replaces]
    if others and merit[best] > 0:
        second, last = max(others, key=lambda k: merit[k]), len(runners) - 1
        rivals.append(Rival(runners[second].name, float(merit[best] / max(merit[second], 1e-300))))
        if second != last and best != last and merit[last] > 0:
            rivals.append(Rival(runners[last].name, float(merit[best] / merit[last])))
    rate = float(accepted[best] / steps)
    outcome = RaceOutcome(runners[best].name, rate, tuple(rivals))
    return Result(runners[best], outcome, rate, float(accepted[0] / steps), merit=float(merit[best]))


def at_first_look(test: StoppingRule, first: int) -> StoppingRule:
    """Return the test with a schedule for remainders."""
    return test.with_looks(Geometric(first=first, growth=_GROWTH))


def pairs_along(
    posterior: Target,
    decider: Decider,
    proposal: Proposal,
    variates: ControlVariates,
    rng: np.random.Generator,
    threads: int,
    *,
    progress: Progress | None = None,
) -> tuple[list[Pair], int]:
    """Return trial decisions along a chain, and the passes over the data that they took.

    ``progress`` receives counts.
    """
    progress = progress or Progress()
    kernel = MetropolisHastings(decider)
    out = Records.allocate(_APART, posterior.dim, kernel.stats)
    pairs: list[Pair] = []
    n_passes = 0
    with Team(posterior.population, threads=threads, progress=progress) as team:
        for place in range(_PLACES):
            kernel.batch(rng, kernel.current_state, proposal, out, _APART, BatchControl.none())
            more, n = pairs_at(ParallelEvaluator(team), np.array(decider.theta), proposal, _PAIRS, rng, variates)
            pairs, n_passes = pairs + more, n_passes + n
            progress.advance(place + 1, _PLACES)
    return pairs, n_passes


def choose_looks(
    pairs: list[Pair], test: StoppingRule, n_blocks: int, rng: np.random.Generator
) -> tuple[StoppingRule, Chosen]:
    """Return the first look that suits the remainders, and what the trial showed."""
    choose = _choose_noise_looks if test.counts_noise else _choose_t_looks
    return choose(pairs, test, n_blocks, rng)


def _choose_t_looks(
    pairs: list[Pair], test: StoppingRule, n_blocks: int, rng: np.random.Generator
) -> tuple[StoppingRule, Chosen]:
    """Return the first look with the shortest decisions among those at which means of remainders are nearly normal.

    A later first look may make decisions shorter: the standard deviation of a few blocks is estimated so badly that
    only clear cases are decided. If no look qualifies, the one with the fewest wrong decisions is chosen; the trial at
    the end of warmup then warns.
    """
    tried: list[tuple[float, int, dict[str, Any]]] = []
    passed: list[tuple[float, int, dict[str, Any]]] = []
    for first in FIRST_LOOKS:
        table = at_first_look(test, first).table(n_blocks)
        if not pairs or table.n.size < 2:
            break
        trial = try_pairs(pairs, table, n_subsets=_SUBSETS, rng=rng, decision_work=_WORK)
        seen = figures(trial, test, by_decisions=True)
        tried.append((seen["wrong"], first, seen))
        if not seen["tail_fails"] and not seen["decisions_fail"]:
            passed.append((trial.typical_drawn, first, seen))
            if len(passed) > 1 and passed[-1][0] >= passed[-2][0]:
                break
    if passed:
        drawn, first, seen = min(passed, key=lambda one: one[:2])
        return at_first_look(test, first), FirstLookFits(first, drawn, _trial(seen))
    if not tried:
        return at_first_look(test, FIRST_LOOKS[-1]), FirstLookUntried(FIRST_LOOKS[-1])
    _, first, seen = min(tried, key=lambda one: one[:2])
    return at_first_look(test, first), FirstLookNotNormal(first, _trial(seen))


def _choose_noise_looks(
    pairs: list[Pair], test: StoppingRule, n_blocks: int, rng: np.random.Generator
) -> tuple[StoppingRule, Chosen]:
    """Return the earliest first look, from 10 blocks on, at which errors of estimates match their standard errors.

    Skewed remainders make mean and sd of a few blocks dependent, but the tests that account for noise assume
    independence. If no look qualifies, the last that leaves blocks to draw is chosen; the audit then warns.
    """
    chosen = FirstLookOfNoise(FIRST_LOOKS[1], n_estimates=0, off=None)
    for first in FIRST_LOOKS[1:]:
        if not pairs or 2 * first > n_blocks:
            break
        square = mean_square(pairs, first, _SUBSETS, rng)
        chosen = FirstLookOfNoise(first, len(pairs) * _SUBSETS, off=float(np.sqrt(square)))
        if not square > _TOLERATED_SQUARE:
            break
    return at_first_look(test, chosen.first), chosen


def counts_rightly(pairs: list[Pair], test: StoppingRule, rng: np.random.Generator) -> bool:
    """Return whether errors of estimates at the first look are within the standard errors that a test uses."""
    first = int(test.table(pairs[0].differences.size).n[0]) if pairs else 0
    return bool(pairs) and mean_square(pairs, first, _SUBSETS, rng) <= _TOLERATED_SQUARE


def _trial(seen: dict[str, Any]) -> LookTrial:
    return LookTrial(**{name: seen[name] for name in ("observed", "nominal", "n_subsets", "wrong", "n_decisions")})
