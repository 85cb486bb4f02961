"""What the kernel of a chain is bound to: a target, a test, and deciders that take its decisions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial

import numpy as np
from numpy.typing import NDArray

from stansub import streams
from stansub._loop import Decider, Subset, Table
from stansub.acceptance.decide import make_decider
from stansub.acceptance.ranges import Range
from stansub.acceptance.rules import Exact
from stansub.acceptance.stopping import StoppingRule
from stansub.acceptance.subsets import loop_table, subset
from stansub.errors import InputError
from stansub.kernels.proposals import Adapter
from stansub.kernels.recipes import Leaf
from stansub.kernels.sgld import MiniBatches
from stansub.target.factors import Evaluator, Target
from stansub.target.footprints import Footprints, find_footprints
from stansub.target.split import Split
from stansub.target.taylor import ControlVariates
from stansub.tuning.mode_setup import ModeSetup
from stansub.tuning.proposal_names import Surroundings, make_adapter
from stansub.tuning.trial import WarmupTrial
from stansub.types import IntArray, Places


@dataclass(frozen=True)
class Bench:
    """The place where a recipe becomes the kernel of one chain (see `stansub.kernels.recipes.Bench`).

    Attributes
    ----------
    target : Target
    rule : StoppingRule
        Of the decisions that are not exact.
    seed : int
    spread : Range or None
        Where the range comes from, for tests that need it.
    found : ModeSetup or None
        The mode, and control variates there.
    falls : bool
        Whether the error level falls during the run.
    has_gradients : bool
        Whether factors have gradients.
    order : ndarray of int64 or None
        The user's observation at each place; None where they are as the user has them.
    """

    target: Target
    rule: StoppingRule
    seed: int
    spread: Range | None = None
    found: ModeSetup | None = None
    falls: bool = False
    has_gradients: bool = False
    order: Places | None = None

    @cached_property
    def names(self) -> list[str]:
        """Of the unconstrained parameters."""
        return self.target.full.param_unc_names()

    @cached_property
    def decider(self) -> Decider:
        """The chain's own, by the test."""
        return self._decider(self.rule)

    @cached_property
    def exact_decider(self) -> Decider:
        """Takes every decision on all the data."""
        return self.decider if self.rule.exact else self._decider(Exact())

    def _decider(self, rule: StoppingRule) -> Decider:
        if self.found is not None:
            return self.found.decider(self.target, self.evaluator, rule, self.spread)
        return make_decider(self.evaluator, self.target.blocks.sizes, rule, spread=self.spread)

    @cached_property
    def evaluator(self) -> Evaluator:
        """The chain's own."""
        return self.target.population.evaluator()

    @property
    def split(self) -> Split:
        """The posterior in two."""
        return self.target.split()

    @property
    def _variates(self) -> ControlVariates | None:
        variates = self.found.variates if self.found is not None else None
        return variates.blockwise if variates is not None else None

    @property
    def tables(self) -> Callable[[float], Table] | None:
        """From an error level to the looks at that level, where it changes during the run."""
        return partial(loop_table, self.rule, len(self.target.blocks)) if self.falls else None

    @cached_property
    def _footprints(self) -> Footprints:
        """Which blocks depend on which parameters."""
        return find_footprints(self.target.population, streams.generator(self.seed, streams.Run.FOOTPRINTS))

    @cached_property
    def _looks(self) -> dict[bool, Callable[[int], Table]]:
        """Tables for populations of a size, which may change from step to step, by exactness."""
        return {exact: cache(partial(loop_table, Exact() if exact else self.rule)) for exact in (False, True)}

    def touched_by(self, index: NDArray[np.int64], *, exact: bool = False) -> Subset | None:
        """The blocks that depend on any of these parameters, and when a decision among them is clear; None for all."""
        if not self.has_gradients:
            return None
        which = self._footprints.touched_by(index)
        if len(which) == len(self.target.blocks):
            return None
        return subset(which, self._looks[exact])

    def among(self, observations: IntArray, *, exact: bool = False) -> Subset:
        """Some observations, by their numbers from 0, and when a decision among them is clear.

        Raises
        ------
        InputError
            Where blocks have more than one observation, or there are no such observations.
        """
        blocks, which = self.target.blocks, np.asarray(observations, np.int64)
        if not (np.diff(which) > 0).all():
            which = np.unique(which)
        if blocks.size != 1:
            raise InputError("`block_size=1` is needed if the observations change from step to step")
        if which.size and not 0 <= which[0] <= which[-1] < blocks.n_observations:
            last = blocks.n_observations - 1
            raise InputError(f"observations are numbered from 0 to {last}, not from {which[0]} to {which[-1]}")
        return subset(which if self._places is None else self._places[which], self._looks[exact])

    @cached_property
    def _places(self) -> NDArray[np.int64] | None:
        """Where each of the user's observations stands; None where each is in its own place."""
        return None if self.order is None else np.argsort(self.order)

    def adapter(self, leaf: Leaf) -> Adapter:
        """What learns a proposal."""
        if len(leaf.places) < self.target.dim:
            return make_adapter(leaf.proposal, Surroundings(len(leaf.places)))
        about = Surroundings(
            len(leaf.places),
            batches=lambda: MiniBatches(self.evaluator, self.target.blocks.sizes, self._variates),
            cholesky=self.found.mode.cholesky if self.found is not None else None,
        )
        return make_adapter(leaf.proposal, about)

    def trial(self, rng: np.random.Generator) -> WarmupTrial | None:
        """What tries the normality that a t-test relies on; None where the first look takes all the blocks."""
        table = self.rule.table(len(self.target.blocks))
        return WarmupTrial(self.evaluator, table, rng, self._variates) if table.n.size > 1 else None
