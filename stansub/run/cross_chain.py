"""Warmup in stages, after each of which the chains pool their draws.

The posterior's mean may be far from its mode, and its covariance far from the curvature there. At the end of a stage
the draws of all chains are pooled. If it saves enough, new control variates are made at the pooled mean. If it may
gain, proposals about the pooled mean and covariance race with the current one. Nothing is adapted after warmup.

The choices depend on the seed and the data alone, not on timing or the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from stansub import clock, selection, streams, variates_selection
from stansub.acceptance.rules import StoppingRule
from stansub.acceptance.subsets import loop_table
from stansub.autocorrelation import autocorrelation_times
from stansub.errors import InputError
from stansub.kernels.metropolis import MetropolisHastings
from stansub.kernels.proposals import BuiltIn, optimal_walk
from stansub.progress import Progress
from stansub.run.chain import WARMUP_BATCH, Chain
from stansub.run.moments import Moments, n_effective, pool, r_hat, stickiness
from stansub.run.state import AdaptationState
from stansub.stan.posterior import Posterior
from stansub.target import taylor, variates_order
from stansub.target.gradients import differenced, scaled_steps
from stansub.target.laplace import Mode
from stansub.target.observations import ObservationVariates
from stansub.target.variates_order import Pilot
from stansub.tuning.adapt import FirstWalk
from stansub.tuning.bound_learning import DRAWS, learn
from stansub.tuning.mode_setup import ModeSetup, needs_bounds
from stansub.tuning.mode_variates import ModeRequest, Variates, of_observations
from stansub.tuning.proposal_names import named
from stansub.tuning.race import (
    FIRST_LOOKS,
    Candidate,
    at_first_look,
    choose_looks,
    mixed,
    pairs_along,
    race,
)
from stansub.types import FloatArray

# Shares of warmup after which the chains pool their draws, and the shortest warmup for which they do.
_POOLED_AFTER, _LEAST_WARMUP = (0.125, 0.25, 0.5, 0.75), 100

# Nothing is changed while the pooled mean is within this many sds of the current approximation's, the sds are within
# this factor of its sds, and proposals are accepted nearly as often as in the race.
_NEAR, _ALIKE, _AS_OFTEN = 0.5, 1.25, 0.75
# Stickiness and autocorrelation time above which only local moves race, the latter in steps and as a share of the
# number of parameters, because local moves are slower the more there are; and the share of warmup from which they are
# measured, because chains start in the tails. Four regressions that mixed badly with moves about the mode had 3.0 to
# 8.5 and 3.8 to 53 at one of two looks. Those that suit had one of the two below the limit.
_STICKY, _SLOW, _SLOW_SHARE, _SETTLED = 2.5, 3.5, 0.5, 0.45
# Chains with a larger R-hat may be about different modes, if the log density between them is lower by more than this.
_R_HAT, _DROP = 1.5, 2.0
# Pairs of pooled draws with which anchors are compared, and the saving that a new anchor needs.
_PAIRS, _SAVED = 32, 0.9
# Draws from which the candidates of a race start.
_STARTS = 12
# If the curvature at the mean, in units of the pooled sds, is below this, the pooled variance is used.
_FLAT = 0.25


@dataclass(frozen=True)
class AdaptationOptions:
    """What the user left open, and what follows from the run."""

    test: StoppingRule
    """The test before its looks were fitted."""
    request: ModeRequest
    iter_warmup: int
    iter_sampling: int
    """Steps per chain."""


@dataclass(frozen=True)
class _CostComparison:
    """Cost of control variates at the pooled mean compared with the current ones or none."""

    order: int
    """Order of those at the pooled mean with the smallest cost; 0 if there can be none."""
    moved: bool
    given_up: bool
    """Whether those at the pooled mean save enough, or none would."""
    needed: float
    """Blocks that a decision needs with the current ones."""
    needed_there: tuple[float, float, float]
    """Blocks that a decision needs at the pooled mean, by order."""


def chains_near_one_mode(posterior: Posterior, draws: Sequence[FloatArray]) -> list[int]:
    """Return the chains that may be about one mode: all, if their means are near, else the most without a valley.

    About one mode the log density is concave, and half-way between two chains it is higher than on average at their
    means (Jensen's inequality), however slowly they mix. Half-way between two normal modes that are s sds apart it is
    lower by s^2 / 8.
    """
    if r_hat(draws) < _R_HAT:
        return list(range(len(draws)))
    means, value = [one.mean(axis=0) for one in draws], posterior.full.log_density
    own = [value(mean) for mean in means]
    near = [
        [
            k
            for k in range(len(draws))
            if k == number or value((means[number] + means[k]) / 2) >= (own[number] + own[k]) / 2 - _DROP
        ]
        for number in range(len(draws))
    ]
    return max(near, key=len)


def _sticks(draws: Sequence[FloatArray]) -> bool:
    """Return whether chains stay in tails for so long that local moves are better."""
    if stickiness(draws) <= _STICKY:
        return False
    n, dim = min(map(len, draws)), draws[0].shape[1]
    slowest = autocorrelation_times(np.stack([one[-n:] for one in draws]))[0].max()
    return bool(slowest > max(_SLOW, _SLOW_SHARE * dim))


class CrossChainAdaptation:
    """Adaptation of control variates, test and proposal to the pooled draws of all chains.

    Parameters
    ----------
    progress : Progress, optional
        Shows what is done with the pooled draws; its errors, such as that of a stopping run, end that work.

    Attributes
    ----------
    at : tuple of int
        Steps of warmup after which the chains pool their draws.
    last : int
        Steps after which they last did so.
    """

    def __init__(
        self,
        posterior: Posterior,
        found: ModeSetup,
        test: StoppingRule,
        asked: AdaptationOptions,
        progress: Progress | None = None,
    ) -> None:
        self._posterior, self._asked, self._progress = posterior, asked, progress or Progress()
        self.found, self.test = found, test
        self._about: Mode | Moments = found.mode
        self._moved_at: list[int] = []
        self.last = 0
        steps = [int(share * asked.iter_warmup) // WARMUP_BATCH * WARMUP_BATCH for share in _POOLED_AFTER]
        long_enough = asked.iter_warmup >= _LEAST_WARMUP
        self.at = tuple(sorted({n for n in steps if n})) if long_enough else ()

    def save(self) -> AdaptationState:
        """Return the results so far."""
        return AdaptationState(self.found, self.test, self._about, tuple(self._moved_at), self.last)

    def restore(self, saved: AdaptationState) -> None:
        """Restore what `save` returned."""
        self.found, self.test, self._about, self.last = saved.found, saved.test, saved.about, saved.last
        self._moved_at = list(saved.moved_at)

    def adapt(self, chains: Sequence[Chain], n_steps: int) -> Iterator[None]:
        """Evaluate the draws of the stage that ended after ``n_steps`` and update the chains, in pieces."""
        began = clock.now()
        rng = streams.generator(self._asked.request.seed, streams.Run.POOLING, number=n_steps)
        draws = [chain.recent for chain in chains]
        evaluated = 0
        for so_far in self._decide(chains, draws, n_steps, rng):
            evaluated = so_far
            yield
        seconds = clock.now() - began
        for number, chain in enumerate(chains):
            share, rest = divmod(evaluated, len(chains))
            chain.charge(share + (number < rest), seconds / len(chains))
        self.last = n_steps
        self._progress.end()

    def _decide(
        self, chains: Sequence[Chain], draws: list[FloatArray], n_steps: int, rng: np.random.Generator
    ) -> Iterator[int]:
        """Run the steps of `adapt`; yields the observations evaluated so far."""
        asked, found, posterior = self._asked, self.found, self._posterior
        moments = pool(draws)
        if moments is None:
            self._keep(variates_selection.KeptForFewDraws(n_steps))
            return
        distance = float(np.abs((moments.position - self._about.position) / moments.sds).max())
        ratio = moments.sds / np.sqrt(np.sum(self._about.cholesky**2, axis=1))
        alike = bool(np.all((ratio < _ALIKE) & (ratio > 1 / _ALIKE)))
        accepted = float(np.mean([chain.recent_acceptance for chain in chains]))
        anchor = found.variates.anchor if found.variates is not None else self._about.position
        away = float(np.abs((moments.position - anchor) / moments.sds).max())
        settled = n_steps >= _SETTLED * asked.iter_warmup and len(found.modes.found) == 1
        sticks = settled and _sticks(draws)
        if sticks:
            found = self.found = replace(found, sticky=True)
        if distance < _NEAR and alike and accepted >= _AS_OFTEN * found.rate and not sticks:
            if self._about is found.mode:
                self._keep(variates_selection.KeptSinceNear(n_steps, away))
            return
        evaluated = 0
        apart, group = r_hat(draws), chains_near_one_mode(posterior, draws)
        if len(group) < len(chains):
            draws = [draws[number] for number in group]
            moments = pool(draws)
        together = np.concatenate(draws)
        if moments is None or 2 * len(group) <= len(chains):
            self._keep(variates_selection.KeptSinceApart(n_steps))
            return
        free = asked.request.order_is_free(asked.test)
        if posterior.pilot is None and asked.request.order != "0" and (found.variates is not None or free):
            away = float(np.abs((moments.position - anchor) / moments.sds).max())
            evaluated += self._anchor(moments, together, len(chains), n_steps, away, rng)
            yield evaluated
        anew = self.found.variates is not found.variates
        if found.proposal is not None:
            one_mode = settled and len(group) == len(chains)
            evaluated += self._race(moments, together, apart, one_mode, n_effective(draws), anew, rng)
            yield evaluated
        if anew or self.found.proposal is not found.proposal:
            self._exchange(chains)
        yield evaluated

    def _anchor(
        self,
        moments: Moments,
        draws: FloatArray,
        n_chains: int,
        n_steps: int,
        distance: float,
        rng: np.random.Generator,
    ) -> int:
        """Keep the control variates, remake them at the pooled mean or drop them; return the observations evaluated."""
        population, present = self._posterior.population, self.found.variates
        measure, steps = self._measuring(moments, draws, rng), scaled_steps(moments.position, moments.hessian)
        self._progress("Pooling the chains: control variates on a few blocks")
        try:
            there = measure(moments.position, steps)
        except ValueError as error:
            self._keep(variates_selection.KeptSinceUndefined(n_steps, distance, str(error)))
            return 0
        here = there
        if present is not None:
            here = measure(present.anchor, scaled_steps(present.anchor, self._about.hessian))
        evaluated = there.n_obs_evaluated + here.n_obs_evaluated
        left = n_chains * (self._asked.iter_warmup + self._asked.iter_sampling - n_steps)
        weighed, n_blocks = self._weigh(here, there, left), len(population.blocks)
        order, needed_there = weighed.order, weighed.needed_there
        if weighed.moved:
            try:
                variates = self._make(moments, steps, order, rng)
            except InputError as error:
                self._keep(variates_selection.KeptSinceUndefined(n_steps, distance, f"there are {error}"))
                return evaluated
            moved = variates_selection.Moved(
                n_steps, distance, tuple(self._moved_at), needed_there[order], weighed.needed, n_blocks
            )
            self._moved_at.append(n_steps)
            choice: selection.Chosen = variates_selection.VariatesMoved(order, needed_there, n_blocks)
            if isinstance(variates, ObservationVariates):
                choice = of_observations(variates, self._posterior)
            self._take(variates, moved, choice)
            evaluated += int(variates_order.n_gradients(n_blocks, population.dim)[order]) * population.blocks.size
            evaluated += (DRAWS + 1) * population.blocks.n_observations if self.test.learns_bounds else 0
        elif weighed.given_up:
            given_up = variates_selection.VariatesGivenUp(n_steps, weighed.needed, needed_there[0], n_blocks)
            self._take(None, variates_selection.GivenUp(n_steps), given_up)
        else:
            there_too = needed_there[order] if order else None
            self._keep(variates_selection.KeptForCost(n_steps, distance, weighed.needed, there_too, n_blocks))
        return evaluated

    def _measuring(
        self, moments: Moments, draws: FloatArray, rng: np.random.Generator
    ) -> Callable[[FloatArray, FloatArray], Pilot]:
        """Return a function that measures remainders about an anchor, with steps for differences.

        It always uses the same pairs of draws and the same blocks.
        """
        population, proposal = self._posterior.population, self.found.proposal
        theta, other = draws[rng.integers(0, len(draws), (2, _PAIRS))]
        if proposal is not None and proposal.is_walk:
            steps = rng.standard_normal((_PAIRS, population.dim))
            other = theta + steps @ optimal_walk(moments.cholesky).cholesky.T
        which = variates_order.some_blocks(population, np.random.default_rng(int(rng.integers(1 << 32))))

        def measure(anchor: FloatArray, steps: FloatArray) -> Pilot:
            return variates_order.measure_pairs(population, anchor, steps, theta, other, which, self._progress)

        return measure

    def _weigh(self, here: Pilot, there: Pilot, left: int) -> _CostComparison:
        """Compare the cost of the remaining steps with control variates here, there and without any."""
        population, found = self._posterior.population, self.found
        free = self._asked.request.order_is_free(self._asked.test)
        present = min(found.order, 2)  # a cubic costs no more blocks
        n_blocks, dim = len(population.blocks), population.dim
        fits_in = [taylor.memory_needed(n_blocks, dim, order) <= taylor.max_memory_default() for order in range(3)]
        setup, decisions = variates_order.setup_cost(n_blocks, dim), variates_order.decision_cost(there, dim, left)
        costs = {order: setup[order] + decisions[order] for order in (1, 2) if free or order == present}
        costs = {order: cost for order, cost in costs.items() if fits_in[order]}
        new = min(costs, key=lambda order: costs[order], default=0)
        now = variates_order.decision_cost(here, dim, left)[present]
        return _CostComparison(
            order=new,
            moved=bool(new and costs[new] < _SAVED * min(now, decisions[0] if free else np.inf)),
            given_up=bool(found.variates is not None and free and decisions[0] < _SAVED * now),
            needed=variates_order.blocks_by_order(here)[present],
            needed_there=variates_order.blocks_by_order(there),
        )

    def _make(self, moments: Moments, steps: FloatArray, order: int, rng: np.random.Generator) -> Variates:
        """Return control variates about the mean of moments; raise InputError if they are undefined."""
        posterior, log, threads = self._posterior, self._progress, self._asked.request.threads
        at, cholesky = moments.position, moments.cholesky
        if self.found.variates is not None and self.found.variates.blockwise is None:
            return ObservationVariates.at(posterior.predictors(log), at, cholesky, threads=threads)
        made = taylor.build(posterior, at, order=order, steps=steps, threads=threads, progress=log)
        if self.test.learns_bounds:
            return replace(made, bounds=learn(posterior, made, cholesky, rng=rng, threads=threads, progress=log))
        if needs_bounds(self.test, self._asked.request.spread):
            return replace(made, bounds=posterior.remainder_bounds(made.anchor, cholesky, order, progress=log))
        return made

    def _race(
        self,
        moments: Moments,
        draws: FloatArray,
        apart: float,
        one_mode: bool,
        effective: float,
        anew: bool,
        rng: np.random.Generator,
    ) -> int:
        """Race the current proposal with others about the pooled moments; return the observations evaluated."""
        asked, found, posterior, progress = self._asked, self.found, self._posterior, self._progress
        present, moves = found.proposal, named(asked.request.proposal).race
        if present is None or moves is None:
            return 0
        progress("Pooling the chains: trying proposals")
        variates = found.blockwise
        fitted = variates is not None and asked.request.fits_looks(asked.test)
        test = at_first_look(asked.test, FIRST_LOOKS[1]) if fitted else asked.test
        decider = found.decider(posterior, posterior.population.evaluator(), test, asked.request.spread)
        if (local := self._local(moments)) is not None:
            weight = 2 * posterior.dim / (2 * posterior.dim + effective)
            moments = Moments(moments.position, (1 - weight) * moments.covariance + weight * local.covariance)
        pooled = runners = list(moves(moments, "pooled"))
        walks = [one for one in runners if one.proposal.is_walk]
        if walks and apart > _R_HAT:
            # Moves about wrong moments would keep the chains where they are. Those about the mode return after a walk:
            # chains may have begun in the tails only.
            back = moves(found.mode, "Laplace") if one_mode and present.is_walk and not found.sticky else ()
            runners = [*(one for one in back if not one.proposal.is_walk), *walks]
        elif found.sticky:
            runners = [one for one in runners if one.is_local]
        elif not present.is_walk:
            runners = [Candidate(found.name, present), *pooled]
        if not runners:
            return 0
        starts = draws[rng.integers(0, len(draws), _STARTS)]
        result = race(decider, runners, moments.cholesky, rng, starts, progress=progress)
        winner, n_passes = result.winner, 0
        if winner.proposal is present and not anew:
            return decider.n_evaluated
        choice: selection.Chosen
        proposal: BuiltIn
        if winner.proposal is present:
            proposal, name, choice = winner.proposal, found.name, selection.ProposalStays(result.outcome)
        elif winner.proposal.is_walk:
            proposal, name = FirstWalk(optimal_walk(moments.cholesky).cholesky, covariance=False), "random-walk"
            choice = selection.WalkWon(result.outcome)
            self._about = moments
        else:
            proposal, choice = mixed(result, moments.cholesky, sticky=found.sticky)
            name = winner.name
            self._about = moments if any(one is winner for one in pooled) else found.mode
        choices = selection.updated(found.choices, choice)
        self.test = test
        if fitted and variates is not None:
            progress("Pooling the chains: trying first looks")
            decider.reset(starts[0])
            pairs, n_passes = pairs_along(
                posterior, decider, proposal, variates, rng, asked.request.threads, progress=progress
            )
            self.test, look = choose_looks(pairs, test, len(posterior.blocks), rng)
            choices = selection.updated(choices, look)
        else:
            choices.pop("first look", None)
        self.found = replace(found, proposal=proposal, name=name, rate=result.rate, choices=choices)
        return decider.n_evaluated + n_passes * posterior.blocks.n_observations

    def _local(self, moments: Moments) -> Moments | None:
        """Return the pooled mean with the curvature at the anchor, if known; pooled variances where it is flat."""
        variates = self.found.variates
        if variates is None or variates.hessian is None:
            return None
        evaluator, at = self._posterior.population.evaluator(), variates.anchor

        def gradient(theta: FloatArray) -> FloatArray:
            self._progress.check()
            return evaluator.global_gradient(theta)

        try:
            hessian = variates.hessian + differenced(gradient, at, scaled_steps(at, moments.hessian))
        except ValueError:
            return None
        scales = moments.sds
        values, vectors = np.linalg.eigh(-scales[:, np.newaxis] * hessian * scales)
        scaled = moments.covariance / np.outer(scales, scales)
        pooled = np.sum(vectors * (scaled @ vectors), axis=0)
        variances = np.where(values > _FLAT, 1 / np.maximum(values, _FLAT), pooled)
        covariance = scales[:, np.newaxis] * (vectors * variances) @ vectors.T * scales
        return Moments(moments.position, (covariance + covariance.T) / 2)

    def _exchange(self, chains: Sequence[Chain]) -> None:
        """Give every chain a new decider at its position and, if there is one, the new proposal."""
        found, posterior = self.found, self._posterior
        table = self.test.table(len(posterior.blocks))
        for chain in chains:
            evaluator = posterior.population.evaluator()
            decider = found.decider(posterior, evaluator, self.test, self._asked.request.spread)
            adapter = found.proposal.adapter(posterior.dim) if found.proposal is not None else None
            tables = partial(loop_table, self.test, len(posterior.blocks)) if chain.plan.levels is not None else None
            trial = chain.trial.renewed(evaluator, table, found.blockwise) if chain.trial is not None else None
            chain.replace_kernel(MetropolisHastings(decider, tables), adapter, trial)

    def _take(
        self, variates: Variates | None, point: variates_selection.ExpansionPoint, choice: selection.Chosen
    ) -> None:
        asked = self._asked
        if variates is None:
            self.test = asked.test
        elif self.found.variates is None and asked.request.fits_looks(asked.test):
            self.test = at_first_look(asked.test, FIRST_LOOKS[-1])
        self._choose(point, choice)
        self.found = replace(self.found, variates=variates)

    def _keep(self, kept: variates_selection.ExpansionPoint) -> None:
        """Record that the expansion point stays or, if it moved before, that it moved."""
        if not self._moved_at:
            self._choose(kept)

    def _choose(self, point: variates_selection.ExpansionPoint, *others: selection.Chosen) -> None:
        """Record choices, with that of the expansion point after that of the mode."""
        mode, *rest = self.found.choices.values()
        self.found = replace(
            self.found, choices=selection.updated(selection.updated({}, mode, point, *rest), point, *others)
        )
