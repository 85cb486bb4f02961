"""Choices about the mode: control variates, a proposal by a short race, and a test.

If the posterior is far from its normal approximation, chains start with an adaptive random walk, and the result of the
adaptation is used when they pool their draws (`stansub.run.cross_chain`).

The choices depend on the seed and the data alone, not on timing, so the same seed gives the same draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from stansub import streams
from stansub.acceptance.decide import Decider
from stansub.acceptance.noise import Penalty
from stansub.acceptance.stopping import Exact, Factorised, Poisson, StoppingRule
from stansub.decision_selection import (
    ExactByAll,
    ExactLost,
    ExactOfFew,
    ExactOfSmall,
    ExactTaken,
    ExactWon,
    JointTaken,
    KappaTaken,
    NoBounds,
    TestStays,
    TestTaken,
)
from stansub.errors import InputError
from stansub.kernels.between_modes import LaplaceMixture, NearestWalk
from stansub.kernels.proposals import Mixture, optimal_scale, optimal_walk
from stansub.progress import as_progress
from stansub.selection import BetweenModes, Chosen, WalkSinceFewAccepted, updated
from stansub.target.factors import CutTarget
from stansub.target.foreseeing import SURELY
from stansub.target.remainders import NoPredictorsError
from stansub.tuning.adapt import FirstWalk
from stansub.tuning.mode_setup import ModeSetup, decider_with
from stansub.tuning.mode_variates import ModeRequest, Variates, VariatesTuner
from stansub.tuning.modes.mode import Modes
from stansub.tuning.modes.mode_search import search
from stansub.tuning.proposal_names import named, without_race
from stansub.tuning.race import (
    FIRST_LOOKS,
    LEAST_ACCEPTED,
    STEP_COST,
    Candidate,
    Result,
    at_first_look,
    choose_looks,
    counts_rightly,
    mixed,
    pairs_along,
    race,
)
from stansub.tuning.third_order import with_differences, with_third
from stansub.types import FloatArray

# Minimum probability with which every mode is proposed, however small its estimated evidence, and share of steps that
# stay about the current mode.
_LEAST_PROPOSED, _LOCAL_SHARE = 0.02, 0.5

# Candidates per decision from which joint decisions are tried, and how many times the effective draws of factorised
# ones they must make.
_LEAST_TO_SAVE, _WORTH_JOINT = 1.0, 1.2

# Blocks below which decisions use all of them: a t-test needs five or more, and its quantiles are then large. And
# evaluations of single observations, in all steps, that take no longer than what other tests need besides.
_FEWEST_BLOCKS, _FEW_EVALUATIONS = 20, 2e8
# Factors of effective draws per observation: that an approximate test must be worth beside decisions from all
# observations; that bounds must be worth if there are few, because decisions by bounds are slower away from the mode,
# where races are not; and that an approximate test must be worth beside decisions by bounds.
WORTH_ERROR, _WORTH_BOUNDS, _WORTH_PROOF = 5.0, 5.0, 2.5
# Observations up to which all are evaluated where nothing is known of other decisions, and the most effective draws
# that a decision from all of them makes.
MOST_BY_ALL, _MOST_EFFECTIVE = 20_000, 2.0
# Parameters above which independent draws are tried before other candidates.
_MANY = 50
# Factor of effective draws that another approximate test must reach, and share of the best value's below which no
# further value of a setting is tried.
_WORTH, _PAST_THE_BEST = 2.0, 0.75


def anchor(
    posterior: CutTarget,
    test: StoppingRule,
    request: ModeRequest,
    progress: Callable[[str], None],
    modes: Modes | None = None,
) -> tuple[ModeSetup, StoppingRule]:
    """Find the mode, make control variates there, and choose a proposal.

    ``modes`` from an earlier search replace the search.

    Returns
    -------
    ModeSetup
    StoppingRule
        The test, with looks that suit control variates, or its replacement.

    Raises
    ------
    NoModeError
        If there is no mode with a normal approximation.
    InputError
        If the requested order would take too much memory.
    """
    seed, threads, log = request.seed, request.threads, as_progress(progress)
    mode_rng, order_rng, race_rng = (
        streams.generator(seed, stream) for stream in (streams.Run.MODES, streams.Run.ORDER, streams.Run.RACE)
    )
    if modes is None:
        modes = search(posterior, mode_rng, request.exact_free or test.thins, threads, log, request.points)
    tuner = _ModeTuner(posterior, test, request, modes, log, order_rng, race_rng)
    return tuner.tune_exact() if request.exact_free else tuner.tune()


def foreseen_at_mode(posterior: CutTarget, request: ModeRequest, progress: Callable[[str], None]) -> float | None:
    """Return about how many observations a decision by proved bounds will pick; None if that is not known beforehand.

    Raises
    ------
    NoModeError
        If there is no mode with a normal approximation.
    """
    log = as_progress(progress)
    modes = search(posterior, streams.generator(request.seed, streams.Run.MODES), True, request.threads, log)
    return VariatesTuner(posterior, Factorised(), request, modes, log).foreseen()


@dataclass(frozen=True)
class _ModeTuner(VariatesTuner):
    """Modes, and the choices to make there: control variates, a proposal and a test."""

    order_rng: np.random.Generator
    race_rng: np.random.Generator
    """Generators for the choices of control variates and of a proposal."""

    def first_look(self, variates: Variates | None, first: int) -> StoppingRule:
        """Return the test with this first look, if there are control variates for it to fit."""
        fitted = variates is not None and self.request.fits_looks(self.test)
        return at_first_look(self.test, first) if fitted else self.test

    def untried(self, variates: Variates | None) -> StoppingRule:
        """Return the test with the latest of the first looks, for use without trials."""
        return self.first_look(variates, FIRST_LOOKS[-1])

    def tune(self) -> tuple[ModeSetup, StoppingRule]:
        """Return the setup with control variates and a proposal, and the test with its looks or its replacement."""
        tuner = self if self.test.thins and not self.test.learns_bounds else self.of_blocks()
        variates, choice = tuner.variates(self.order_rng)
        return tuner.suiting(variates)._expanded(variates)._tune_with(variates, choice)

    def tune_exact(self) -> tuple[ModeSetup, StoppingRule]:
        """Like `tune`, but with exact decisions by proved bounds if they use the data better than the test."""
        if self.posterior.pilot is not None:
            return self._by_bounds(*self.proved())
        n = self.posterior.blocks.n_observations
        if (picked := self.foreseen()) is not None and picked > SURELY * n:
            return self.of_blocks()._differenced_if_few()._besides_bounds(picked)
        try:
            variates, choice = self.proved()
        except NoPredictorsError as error:
            tuner = self.of_blocks()._differenced_if_few()
            found, test = tuner._or_by_all(*tuner._without_bounds(tuner._few()))
            return found.noting(NoBounds(str(error))), test
        return self._expanded(variates)._differenced_if_few()._tune_beside(variates, choice)

    def _expanded(self, variates: Variates | None) -> Self:
        """Return the tuner with third derivatives if control variates have them or the proposal needs them."""
        found = self if variates is None else replace(self, modes=with_third(self.modes, variates.third))
        return found._differenced() if named(self.request.proposal).needs_third else found

    def _differenced_if_few(self) -> Self:
        """Return the tuner with third derivatives at the mode if observations are few and the proposal can use them."""
        few = few_evaluations(self.request.n_steps, self.posterior.blocks.n_observations)
        return self._differenced() if few and named(self.request.proposal).expands else self

    def _differenced(self) -> Self:
        """Return the tuner with third derivatives at the mode, unless they are many."""
        threads = self.request.threads
        return replace(self, modes=with_differences(self.modes, self.posterior, threads=threads, log=self.log))

    def _tune_beside(self, variates: Variates, choice: Chosen) -> tuple[ModeSetup, StoppingRule]:
        """Return exact decisions by proved bounds, or the test if it is worth more."""
        few, picked = self._few(), variates.candidates(self.posterior)
        n_observations = self.posterior.blocks.n_observations
        if picked > n_observations or (few and _WORTH_BOUNDS * (STEP_COST + picked) > STEP_COST + n_observations):
            return self._besides_bounds(picked)
        exact, by_bounds = self._by_bounds(variates, choice)
        size = self.posterior.decision_size or self.posterior.blocks.size
        least = min(FIRST_LOOKS[0] * size, n_observations)
        raced = named(self.request.proposal).race is not None
        if exact.merit * (STEP_COST + least) >= 1 or (not raced and picked <= FIRST_LOOKS[-1] * size):
            return exact.noting(ExactTaken(by_bounds.name, least)), by_bounds
        found, test = self._without_bounds(few)
        gain = exact.merit / found.merit if raced and found.merit else None
        least_merit = _WORTH_BOUNDS * (found.merit or math.inf) if few else found.merit / _WORTH_PROOF
        if raced and exact.merit > 0 and exact.merit >= least_merit:
            return exact.evaluating(found.n_obs_evaluated).noting(ExactWon(by_bounds.name, test.name, gain)), by_bounds
        lost = ExactLost(by_bounds.name, test.name, gain, min(picked, n_observations))
        return self._or_by_all(found.evaluating(exact.n_obs_evaluated).noting(lost), test)

    def _besides_bounds(self, picked: float) -> tuple[ModeSetup, StoppingRule]:
        """Return other decisions, because those by proved bounds would pick so many observations."""
        found, test = self._without_bounds(self._few())
        lost = ExactLost(Factorised().name, test.name, None, min(picked, self.posterior.blocks.n_observations))
        return self._or_by_all(found.noting(lost), test)

    def _few(self) -> ExactOfFew | ExactOfSmall | None:
        """Return why decisions use all observations or blocks, if there are few."""
        n_blocks, n_observations = len(self.posterior.blocks), self.posterior.blocks.n_observations
        if n_blocks < _FEWEST_BLOCKS:
            return ExactOfFew(n_blocks)
        return ExactOfSmall(n_observations) if few_evaluations(self.request.n_steps, n_observations) else None

    def _without_bounds(self, few: Chosen | None) -> tuple[ModeSetup, StoppingRule]:
        """Return the setup and the test without bounds: of exact decisions from all observations if they are few."""
        if few is None:
            return self.tune()
        found, test = replace(self, test=Exact()).tune()
        return found.noting(few), test

    def _or_by_all(self, found: ModeSetup, test: StoppingRule) -> tuple[ModeSetup, StoppingRule]:
        """Return this setup, or that of exact decisions from all observations if they cost little more."""
        most = _MOST_EFFECTIVE / (STEP_COST + self.posterior.blocks.n_observations)
        if test.exact or not found.merit or found.merit > WORTH_ERROR * most:
            return found, test
        rng, mode, by_all = streams.generator(self.request.seed, streams.Run.ALL), found.mode, Exact()
        theta = mode.position + mode.cholesky @ rng.standard_normal(mode.dim)
        result, n = self._tried(found, None, by_all, theta, rng)
        found = found.evaluating(n)
        gain = found.merit / result.merit if result.merit else math.inf
        if gain > WORTH_ERROR:
            return found, test
        found = found.without_variates(ExactByAll(test.name, gain))
        return replace(found, rate=result.rate, merit=result.merit), by_all

    def _by_bounds(self, variates: Variates, choice: Chosen) -> tuple[ModeSetup, StoppingRule]:
        """Return the setup and test of factorised decisions, or of joint ones if these use the data better."""
        tuner = self.suiting(variates)
        factors, test = tuner._with(Factorised(), streams.Run.FACTORISED)._tune_with(variates, choice)
        # Factorised decisions lose at most half the share of expected candidates, compared with Metropolis-Hastings.
        if variates.candidates(self.posterior) < _LEAST_TO_SAVE or named(self.request.proposal).race is None:
            return factors, test
        joint, poisson = tuner._with(Poisson(), streams.Run.JOINT)._tune_with(variates, choice)
        if joint.merit > _WORTH_JOINT * factors.merit:
            gain = joint.merit / factors.merit if factors.merit else None
            return joint.evaluating(factors.n_obs_evaluated).noting(JointTaken(gain)), poisson
        return factors.evaluating(joint.n_obs_evaluated), test

    def _with(self, test: StoppingRule, stream: streams.Run) -> Self:
        """Return the tuner of another test, with random numbers of its own."""
        rng = streams.generator(self.request.seed, stream)
        return replace(self, test=test, order_rng=rng, race_rng=rng)

    def _tune_with(self, variates: Variates | None, choice: Chosen) -> tuple[ModeSetup, StoppingRule]:
        modes, request = self.modes, self.request
        choices = updated({}, modes.choice(), choice)
        found = ModeSetup(modes, variates, None, request.proposal, 0.0, choices, 0)
        moves = named(request.proposal)
        if moves.race is None:
            return found, self.untried(variates)
        if len(modes.found) > 1:
            choices = updated(choices, BetweenModes(len(modes.found)))
            found = replace(found, proposal=between_modes(modes), name="laplace-mixture", choices=choices)
            return found, self.untried(variates)
        runners = list(moves.race(modes.best, "Laplace"))
        if not runners:
            raise InputError(
                f"the proposal {request.proposal} needs third derivatives at the mode, and there are too "
                "many parameters for them, or data in partitions; choose another proposal"
            )
        self.log("Trying proposals")
        return self.race(found, runners)

    def race(self, found: ModeSetup, runners: list[Candidate]) -> tuple[ModeSetup, StoppingRule]:
        """Choose one of several proposals, then looks and a test that suit it."""
        mode, rng, test = found.mode, self.race_rng, self.first_look(found.variates, FIRST_LOOKS[1])
        decider, walks = self._decider(found.variates, test), bool(named(self.request.proposal).fallback)
        theta = mode.position + mode.cholesky @ rng.standard_normal(mode.dim)
        decider.reset(theta)
        # With many parameters independent draws are rarely accepted, and then no other candidate counts.
        for some in (runners[:1], runners) if walks and mode.dim > _MANY else (runners,):
            result = race(decider, some, mode.cholesky, rng, progress=self.log)
            if is_rare := walks and result.first_rate < LEAST_ACCEPTED:
                break
        found = replace(found, n_obs_evaluated=decider.n_evaluated, independent=result.first_rate)
        if is_rare:
            return self._walking(found, result.first_rate)
        mixture, won = mixed(result, mode.cholesky)
        choices = updated(found.choices, won)
        found = replace(
            found, proposal=mixture, name=result.winner.name, rate=result.rate, choices=choices, merit=result.merit
        )
        if test.variants:
            return self._with_variant(found, theta)
        if (variates := found.blockwise) is None or not self.request.fits_looks(self.test):
            return found, test
        self.log("Trying first looks")
        n_blocks, threads = len(self.posterior.blocks), self.request.threads
        pairs, n_passes = pairs_along(self.posterior, decider, mixture, variates, rng, threads, progress=self.log)
        test, look = choose_looks(pairs, test, n_blocks, rng)
        evaluated = found.n_obs_evaluated + n_passes * self.posterior.blocks.n_observations
        found = replace(found, choices=updated(choices, look), n_obs_evaluated=evaluated)
        if self.request.test_free and self.test.error is not None:
            penalty, looked = choose_looks(pairs, Penalty(epsilon=self.test.error.value), n_blocks, rng)
            if counts_rightly(pairs, penalty, rng):
                return self._compare(found, (test, penalty), looked, theta)
        return found, test

    def _walking(self, found: ModeSetup, accepted: float) -> tuple[ModeSetup, StoppingRule]:
        """Return the setup of an adaptive random walk, because moves about the mode are rarely accepted."""
        mode, variates, choices = found.mode, found.variates, found.choices
        if variates is None and self.request.order_is_free(self.test):
            variates, choice = self.that_pay(self.order_rng, step=optimal_scale(mode.dim))
            choices = updated(choices, choice)
        choices = updated(choices, WalkSinceFewAccepted(accepted))
        walk, name = FirstWalk(optimal_walk(mode.cholesky).cholesky), without_race(self.request.proposal)
        found = replace(found, variates=variates, proposal=walk, name=name, rate=1.0, choices=choices)
        return found, self.untried(variates)

    def _with_variant(self, found: ModeSetup, theta: FloatArray) -> tuple[ModeSetup, StoppingRule]:
        """Choose one of the values of a setting that the test leaves open, which are ordered by the cost of a decision.

        All are tried with the same random numbers, until one is worse than the best by a quarter.
        """
        self.log("Trying settings of the test")
        seeds = streams.sequence(self.request.seed, streams.Run.KAPPA)
        tried: list[tuple[StoppingRule, Result]] = []
        most = 0.0
        for test in self.test.variants:
            result, n = self._tried(found, found.variates, test, theta, np.random.default_rng(seeds))
            tried, found, most = [*tried, (test, result)], found.evaluating(n), max(most, result.merit)
            if result.merit < _PAST_THE_BEST * most:
                break
        best, result = max(tried, key=lambda one: one[1].merit)
        values = {one: value for one, _ in tried if (value := one.joint) is not None}
        found = found.noting(KappaTaken(values[best], tuple(values.values())))
        return replace(found, rate=result.rate, merit=result.merit), best

    def _compare(
        self, found: ModeSetup, tests: tuple[StoppingRule, StoppingRule], looked: Chosen, theta: FloatArray
    ) -> tuple[ModeSetup, StoppingRule]:
        """Use the second of two tests, with its looks, if it is worth it."""
        results: list[Result] = []
        for one in tests:
            result, n = self._tried(found, found.variates, one, theta, self.race_rng)
            results, found = [*results, result], found.evaluating(n)
        (test, other), (first, second) = tests, results
        gain = second.merit / max(first.merit, 1e-300)
        if gain >= _WORTH:
            found = found.noting(TestTaken(other.name, instead_of=test.name, gain=gain)).noting(looked)
            return replace(found, rate=second.rate, merit=second.merit), other
        found = found.noting(TestStays(test.name, other.name, gain, wanted=_WORTH))
        return replace(found, rate=first.rate, merit=first.merit), test

    def _tried(
        self,
        found: ModeSetup,
        variates: Variates | None,
        test: StoppingRule,
        theta: FloatArray,
        rng: np.random.Generator,
    ) -> tuple[Result, int]:
        """Return the result of a test with the chosen proposal, and the observations evaluated."""
        assert found.proposal is not None
        decider = self._decider(variates, test)
        decider.reset(theta)
        runner = Candidate(found.name, found.proposal)
        return race(decider, [runner], found.mode.cholesky, rng, progress=self.log), decider.n_evaluated

    def _decider(self, variates: Variates | None, test: StoppingRule) -> Decider:
        evaluator = self.posterior.population.evaluator()
        return decider_with(self.posterior, evaluator, test, variates, self.request.spread)


def few_evaluations(n_steps: int, n_observations: int) -> bool:
    """Return whether decisions from all observations take little in so many steps."""
    return n_steps * n_observations <= _FEW_EVALUATIONS


def between_modes(modes: Modes) -> Mixture:
    """Return a mixture of moves between modes and about each."""
    weights = np.maximum(modes.weights, _LEAST_PROPOSED)
    mixture = LaplaceMixture(
        np.array([mode.position for mode in modes.found]),
        np.array([mode.cholesky for mode in modes.found]),
        weights / weights.sum(),
    )
    local = NearestWalk(mixture, optimal_scale(modes.best.dim))
    return Mixture([mixture, local], np.array([1 - _LOCAL_SHARE, _LOCAL_SHARE]))
