"""Set-up of sampling about the mode: control variates, proposal and test, and starting values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stansub.acceptance.decide import Decider, make_decider
from stansub.acceptance.ranges import Range
from stansub.acceptance.stopping import Exact, StoppingRule
from stansub.errors import InputError
from stansub.kernels.proposals import BuiltIn
from stansub.kernels.surrogate import PosteriorTransition
from stansub.selection import Choices, Chosen, updated
from stansub.target.factors import Evaluator, Target
from stansub.target.quadratic import global_quadratic
from stansub.target.taylor import ControlVariates
from stansub.tuning.mode_variates import Variates
from stansub.tuning.modes.mode import Mode, Modes
from stansub.tuning.surrogates.sampler_runs import spread
from stansub.types import FloatArray
from stansub.variates_selection import NoVariatesForTest

ORDERS = ("auto", "0", "1", "2")

# Chains start this many sds of the Laplace approximation from the mode, in each direction: more dispersed than the
# posterior, for R-hat. If a log density is not finite there, nearer values follow, at most so many.
_START_SDS, _MOST_STARTS = 2.0, 100


@dataclass(frozen=True)
class ModeSetup:
    """Setup of sampling about the mode."""

    modes: Modes
    variates: Variates | None
    """None if they do not pay."""
    proposal: BuiltIn | None
    """The winner of the race mixed with random-walk steps, or an adaptive random walk; None if the user named another
    proposal.
    """
    name: str
    rate: float
    """Acceptance rate of its moves in the race; 0 without a race, and 1 if no proposal has won yet."""
    choices: Choices
    """Choices and their reasons."""
    n_obs_evaluated: int
    """Observations whose log likelihood the race evaluated."""
    merit: float = 0.0
    """Effective draws per observation of the proposal in the race; 0 without a race."""
    independent: float = 1.0
    """Acceptance rate of independent draws from the normal approximation in the race; 1 without a race."""
    trajectories: PosteriorTransition | None = None
    """Trajectories on the posterior itself, if they replace proposals and decisions."""
    draws: FloatArray | None = None
    """Their draws, shape (n, dim), from which chains start: if the posterior is far from normal, values dispersed about
    the mode may be so far in its tails that trajectories with this step size never leave them.
    """
    sticky: bool = False
    """Whether chains stayed in tails for long, so that only local moves suit."""

    @property
    def mode(self) -> Mode:
        """Return the mode with most evidence."""
        return self.modes.best

    @property
    def order(self) -> int:
        """Return the order of the control variates."""
        return self.variates.order if self.variates else 0

    @property
    def blockwise(self) -> ControlVariates | None:
        """Return the control variates if they are those of blocks."""
        return self.variates.blockwise if self.variates is not None else None

    def decider(self, posterior: Target, evaluator: Evaluator, test: StoppingRule, spread: Any = None) -> Decider:
        """Return a decider with these control variates."""
        return decider_with(posterior, evaluator, test, self.variates, spread)

    def noting(self, choice: Chosen) -> ModeSetup:
        """Return the same setup with one more choice."""
        return replace(self, choices=updated(self.choices, choice))

    def without_variates(self, *reasons: Chosen) -> ModeSetup:
        """Return the setup of exact decisions from all observations, with the reasons for them."""
        choices = updated(self.choices, NoVariatesForTest(Exact().name), *reasons)
        choices.pop("first look", None)
        return replace(self, variates=None, choices=choices)

    def evaluating(self, n: int) -> ModeSetup:
        """Return the same setup with ``n`` more observations counted."""
        return replace(self, n_obs_evaluated=self.n_obs_evaluated + n)

    def starts(
        self, posterior: Target, rngs: Sequence[np.random.Generator], places: Sequence[float]
    ) -> list[FloatArray]:
        """Return starting values of chains, each of shape (dim,), from wide normal distributions about the modes.

        A value for each chain is tried in one pass over the data. About a single mode, trajectories start at their
        draws, far apart in their order.

        Parameters
        ----------
        rngs : sequence of Generator
            One for each chain.
        places : sequence of float
            Numbers between 0 and 1 that select modes: each has a share of the interval in proportion to its evidence.
        """
        if self.draws is not None and len(self.modes.found) == 1:
            return list(spread(self.draws, len(rngs)))
        numbers = np.searchsorted(np.cumsum(self.modes.weights[:-1]), np.asarray(places), side="right")
        modes = [self.modes.found[number] for number in numbers.tolist()]
        found: dict[int, FloatArray] = {}
        for attempt in range(_MOST_STARTS):
            width, left = _START_SDS * 0.9**attempt, [k for k in range(len(rngs)) if k not in found]
            if not left:
                break
            tried = [
                modes[k].position + width * modes[k].cholesky @ rngs[k].standard_normal(modes[k].dim) for k in left
            ]
            values = posterior.full.log_densities(tried)
            found |= {k: at for k, at, (value, _) in zip(left, tried, values, strict=True) if np.isfinite(value)}
        return [found.get(k, mode.position.copy()) for k, mode in enumerate(modes)]


def check_order(order: int | str) -> str:
    """Return the order of the control variates as text.

    Raises
    ------
    InputError
        If it is unknown.
    """
    if str(order) not in ORDERS or isinstance(order, bool):
        raise InputError(f"unknown control_variates {order!r}; choose from {', '.join(ORDERS)}")
    return str(order)


def needs_bounds(test: StoppingRule, spread: Range | None) -> bool:
    """Return whether control variates need bounds on their remainders, for the test or for the range that it needs."""
    return test.thins or (test.needs_range and spread is not None and spread.by_predictors)


def decider_with(
    posterior: Target, evaluator: Evaluator, test: StoppingRule, variates: Variates | None, spread: Any = None
) -> Decider:
    """Return the decider of one chain with these control variates."""
    parts = variates.parts(posterior) if variates is not None else {}
    # The global part costs little compared with the blocks of other tests.
    box = variates.box if variates is not None and test.thins else None
    quadratic = global_quadratic(evaluator, *box) if box else None
    return make_decider(evaluator, posterior.blocks.sizes, test, spread=spread, quadratic=quadratic, **parts)
