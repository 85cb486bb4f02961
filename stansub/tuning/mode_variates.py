"""Control variates at the modes: as requested, as a test or its range needs them, or as they pay."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from stansub.acceptance.ranges import DERIVATIVES, Range
from stansub.acceptance.stopping import StoppingRule
from stansub.errors import InputError
from stansub.progress import Progress
from stansub.selection import Chosen
from stansub.target.factors import CutTarget, Target, known_predictors
from stansub.target.observations import ObservationVariates, foreseen, memory_needed
from stansub.target.partitioned import Predictors
from stansub.target.remainders import LinearPredictors, NoPredictorsError
from stansub.target.taylor import ControlVariates, build_at_modes, max_memory_default
from stansub.target.variates_order import choose_order
from stansub.tuning.bound_learning import DRAWS, learn
from stansub.tuning.modes.mode import Modes
from stansub.tuning.proposal_names import named
from stansub.types import FloatArray
from stansub.variates_selection import NoVariatesForTest, VariatesAsAsked, VariatesForBounds, VariatesOfObservations

Variates = ControlVariates | ObservationVariates


@dataclass(frozen=True, kw_only=True)
class ModeRequest:
    """Requested control variates, proposals and tests."""

    order: str = "auto"
    """Order of the control variates. One of "auto", "0", "1", "2"."""
    proposal: str = "auto"
    """Its name (see `stansub.tuning.proposal_names.PROPOSALS`); any other text for a proposal that was passed."""
    n_steps: int
    """Approximate number of steps of all chains together."""
    seed: int
    threads: int
    looks_given: bool
    """Whether the user set the schedule of looks, so that it stays unchanged."""
    test_free: bool = False
    """Whether the penalty method may replace the test if it pays."""
    exact_free: bool = False
    """Whether exact decisions by proved bounds may replace the test if they pay."""
    spread: Range | None = None
    """Source of the range, for tests that need one."""
    points: tuple[FloatArray, ...] = ()
    """Points from which the search for modes starts, besides those it draws."""

    def fits_looks(self, test: StoppingRule) -> bool:
        """Return whether the looks of a test are fitted to control variates."""
        return test.fits_looks and not self.looks_given

    def order_is_free(self, test: StoppingRule) -> bool:
        """Return whether the order of control variates is chosen by its saving."""
        return self.order == "auto" and not (test.needs_range or test.exact or test.thins)


@dataclass(frozen=True)
class VariatesTuner:
    """Modes, and the control variates to make there."""

    posterior: CutTarget
    test: StoppingRule
    """The test as passed."""
    request: ModeRequest
    modes: Modes
    log: Progress

    def suiting(self, variates: Variates | None) -> Self:
        """Return the tuner with blocks for decisions, unless control variates are those of single observations."""
        return self if variates is not None and variates.blockwise is None else self.of_blocks()

    def of_blocks(self) -> Self:
        """Return the tuner for decisions from blocks."""
        return replace(self, posterior=self.posterior.for_decisions(self.log))

    def variates(self, rng: np.random.Generator) -> tuple[Variates | None, Chosen]:
        """Return control variates as requested, as the range needs them, or as they pay; and the reason."""
        order, spread = self.request.order, self.request.spread
        if spread is not None and spread.by_predictors:
            return self._required(spread.order, "another `range_source`", single=False)
        if spread is not None and spread.order:
            return self._made(spread.order), VariatesAsAsked(spread.order, function=DERIVATIVES[spread.order])
        if self.test.thins:
            return self._for_thinning(2 if order == "auto" else int(order), rng)
        if self.request.order_is_free(self.test):
            return self.that_pay(rng)
        if order == "auto":
            return None, NoVariatesForTest(self.test.name)
        return self._made(int(order)), VariatesAsAsked(int(order))

    def that_pay(self, rng: np.random.Generator, step: float | None = None) -> tuple[Variates | None, Chosen]:
        """Return control variates that pay, for independent proposals or random-walk steps; and why."""
        request = self.request
        choice = choose_order(
            self.posterior,
            self.modes.best,
            rng=rng,
            n_steps=request.n_steps,
            threads=request.threads,
            progress=self.log,
            step=step,
        )
        return self._made(choice.order), choice.reason

    def _for_thinning(self, order: int, rng: np.random.Generator) -> tuple[Variates, Chosen]:
        if not order:
            raise InputError(f"the {self.test.name} test needs control variates: leave out `control_variates=0`")
        if self.test.learns_bounds:
            return self._learned(order, rng)
        return self._required(order, "`bounds='learned'`, which makes it approximate")

    def _required(self, order: int, otherwise: str, *, single: bool = True) -> tuple[Variates, Chosen]:
        """Return control variates with proved bounds, without which the test needs another choice."""
        try:
            return self.proved(order, single=single)
        except NoPredictorsError as error:
            raise InputError(
                f"the {self.test.name} test has no proved bounds here: {error}; choose another test, or {otherwise}"
            ) from error

    def _learned(self, order: int, rng: np.random.Generator) -> tuple[Variates, Chosen]:
        """Return control variates of blocks with bounds learned from draws."""
        if len(self.modes.found) > 1:
            raise InputError(
                "learned bounds need a posterior with one mode, but this one has several: choose another test"
            )
        made, mode, threads = self._made(order), self.modes.best, self.request.threads
        assert made is not None
        bounds = learn(self.posterior, made, mode.cholesky, rng=rng, threads=threads, progress=self.log)
        return replace(made, bounds=bounds), VariatesForBounds(order, DRAWS)

    def proved(self, order: int = 2, *, single: bool = True) -> tuple[Variates, Chosen]:
        """Return control variates with proved bounds on their remainders.

        They are of single observations. If these are not wanted, or if memory or mini-batch gradients need blocks, they
        are of blocks.

        Raises
        ------
        NoPredictorsError
            If there are no such bounds; the message says why.
        """
        if len(self.modes.found) > 1:
            raise NoPredictorsError("the posterior has several modes")
        mode, predictors = self.modes.best, known_predictors(self.posterior, self.log)
        if single and order == 2 and predictors is not None and self._fits(predictors):
            self.log("Control variates of single observations")
            of_each = ObservationVariates.at(predictors, mode.position, mode.cholesky, threads=self.request.threads)
            return of_each, of_observations(of_each, self.posterior)
        tuner = self.of_blocks()
        bounds = tuner.posterior.remainder_bounds(mode.position, mode.cholesky, order, progress=self.log)
        made = tuner._made(order)
        assert made is not None
        function = "" if predictors is not None else DERIVATIVES[order]
        return replace(made, bounds=bounds), VariatesForBounds(order, function=function)

    def foreseen(self) -> float | None:
        """Return about how many observations an exact decision will pick; None if that is not known beforehand."""
        predictors = known_predictors(self.posterior, self.log)
        if len(self.modes.found) > 1 or not isinstance(predictors, LinearPredictors) or not self._fits(predictors):
            return None
        return foreseen(predictors, self.modes.best.position, self.modes.best.cholesky)

    def _fits(self, predictors: Predictors) -> bool:
        """Return whether decisions can use single observations."""
        return not named(self.request.proposal).batches and memory_needed(predictors) <= max_memory_default()

    def _made(self, order: int) -> ControlVariates | None:
        if not order:
            return None
        return build_at_modes(
            self.posterior, self.modes.found, order=order, threads=self.request.threads, progress=self.log
        )


def of_observations(variates: ObservationVariates, target: Target) -> VariatesOfObservations:
    """Return the choice of control variates of single observations."""
    expected, n = variates.candidates(target), target.blocks.n_observations
    return VariatesOfObservations(variates.order, expected, n, screened=variates.screened)
