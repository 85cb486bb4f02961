"""What the kernel of one chain is bound to: target, test and deciders."""

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
from stansub.target.split import Dynamics, Split
from stansub.target.taylor import ControlVariates
from stansub.tuning.mode_setup import ModeSetup
from stansub.tuning.proposal_names import AdapterContext, make_adapter
from stansub.tuning.trial import WarmupTrial
from stansub.types import IntArray, Places


@dataclass(frozen=True)
class ChainContext:
    """Target, test and deciders of one chain (see `stansub.kernels.recipes.Context`)."""

    target: Target
    rule: StoppingRule
    """Test of the decisions that are not exact."""
    seed: int
    spread: Range | None = None
    """Source of the range, for tests that need one."""
    found: ModeSetup | None = None
    """The mode, and control variates there."""
    level_decreases: bool = False
    """Whether the error level decreases during the run."""
    has_gradients: bool = False
    """Whether factors have gradients."""
    order: Places | None = None
    """The user's observation at each place; None for the user's order."""

    @cached_property
    def names(self) -> list[str]:
        """Return names of the unconstrained parameters."""
        return self.target.full.param_unc_names()

    @cached_property
    def decider(self) -> Decider:
        """Return the chain's own decider, which uses the test."""
        return self._decider(self.rule)

    @cached_property
    def exact_decider(self) -> Decider:
        """Return a decider that uses all the data for every decision."""
        return self.decider if self.rule.exact else self._decider(Exact())

    def _decider(self, rule: StoppingRule) -> Decider:
        if self.found is not None:
            return self.found.decider(self.target, self.evaluator, rule, self.spread)
        return make_decider(self.evaluator, self.target.blocks.sizes, rule, spread=self.spread)

    @cached_property
    def evaluator(self) -> Evaluator:
        """Return the chain's own evaluator."""
        return self.target.population.evaluator()

    @property
    def split(self) -> Split:
        """Return the posterior split into prior and likelihood."""
        return self.target.split()

    @property
    def dynamics(self) -> Dynamics | None:
        """Return the posterior itself for trajectories; None if this process cannot evaluate it at once."""
        return self.target.dynamics()

    @property
    def n_observations(self) -> int:
        """Return the number of observations."""
        return self.target.blocks.n_observations

    @property
    def _variates(self) -> ControlVariates | None:
        return self.found.blockwise if self.found is not None else None

    @property
    def tables(self) -> Callable[[float], Table] | None:
        """Return the function from an error level to its looks, if the level changes during the run."""
        return partial(loop_table, self.rule, len(self.target.blocks)) if self.level_decreases else None

    @cached_property
    def _footprints(self) -> Footprints:
        """Return which blocks depend on which parameters."""
        return find_footprints(self.target.population, streams.generator(self.seed, streams.Run.FOOTPRINTS))

    @cached_property
    def _looks(self) -> dict[bool, Callable[[int], Table]]:
        """Return, by exactness, tables for populations whose size may change from step to step."""
        return {exact: cache(partial(loop_table, Exact() if exact else self.rule)) for exact in (False, True)}

    def touched_by(self, index: NDArray[np.int64], *, exact: bool = False) -> Subset | None:
        """Return the blocks that depend on any of these parameters, with the looks for them; None for all blocks."""
        if not self.has_gradients:
            return None
        which = self._footprints.touched_by(index)
        if len(which) == len(self.target.blocks):
            return None
        return subset(which, self._looks[exact])

    def among(self, observations: IntArray, *, exact: bool = False) -> Subset:
        """Return some observations, given by number from 0, with the looks for a decision among them.

        Raises
        ------
        InputError
            If blocks have more than one observation, or there are no such observations.
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
        """Return the place of each of the user's observations; None for the user's order."""
        return None if self.order is None else np.argsort(self.order)

    def adapter(self, leaf: Leaf) -> Adapter:
        """Return the adapter of a proposal."""
        if len(leaf.places) < self.target.dim:
            return make_adapter(leaf.proposal, AdapterContext(len(leaf.places)))
        about = AdapterContext(
            len(leaf.places),
            batches=lambda: MiniBatches(self.evaluator, self.target.blocks.sizes, self._variates),
            cholesky=self.found.mode.cholesky if self.found is not None else None,
        )
        return make_adapter(leaf.proposal, about)

    def trial(self, rng: np.random.Generator) -> WarmupTrial | None:
        """Return the normality trial of a t-test; None if the first look uses all the blocks."""
        table = self.rule.table(len(self.target.blocks))
        return WarmupTrial(self.evaluator, table, rng, self._variates) if table.n.size > 1 else None
