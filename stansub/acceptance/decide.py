"""From a model, a stopping rule and a range of differences to the decisions of one chain."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stansub._loop import Decider, Decision, Evaluator, GlobalQuadratic, RemainderSource, Surrogate
from stansub.acceptance.ranges import Range
from stansub.acceptance.stopping import StoppingRule, as_rule
from stansub.acceptance.subsets import loop_table
from stansub.errors import InputError
from stansub.target.remainders import RemainderBounds

__all__ = ["Decider", "Decision", "Surrogate", "make_decider"]


def make_decider(
    evaluator: Evaluator,
    block_sizes: NDArray[np.int32],
    test: StoppingRule,
    *,
    spread: Range | None = None,
    surrogate: Surrogate | None = None,
    bounds: RemainderBounds | None = None,
    observations: RemainderSource | None = None,
    quadratic: GlobalQuadratic | None = None,
) -> Decider:
    """The decisions of one chain.

    Parameters
    ----------
    evaluator : Evaluator
        Used by no other chain.
    block_sizes : ndarray of int32, shape (n_blocks,)
        Observations in each block.
    test : StoppingRule
        When a decision is clear; any value that `stansub.acceptance.stopping.as_rule` takes.
    spread : Range, optional
        Where the range of the differences comes from, for tests that need it. With control variates the test looks at
        remainders; a `Lipschitz` constant or a `RangeFunction` is then taken for theirs, and whoever gives it vouches
        for it. A `Derivative` needs control variates of its order, `Predictors` those and their bounds.
    surrogate : Surrogate, optional
        Control variates of first or second order.
    bounds : RemainderBounds, optional
        Bounds on their remainders, for decisions by thinning and the range of `Predictors`.
    observations : RemainderSource, optional
        In their place, expansions and bounds of single observations.
    quadratic : GlobalQuadratic, optional
        What the global part is about the anchor, where that is known.

    Raises
    ------
    InputError
        When a test that thins has no bounds, another needs a range and has none, or the control variates are not those
        of a `Derivative`.
    """
    rule = as_rule(test)
    if rule.needs_range and spread is None:
        raise InputError(
            f"the {rule.name} test needs the range of the log likelihood differences: give Lipschitz constants or a "
            "range, or choose `range_source='scan'` or `range_source='estimate'`"
        )
    if rule.thins and bounds is None and observations is None:
        raise InputError(
            f"the {rule.name} test needs control variates with bounds on their remainders, which exist only for a "
            "recognised family with a linear predictor; choose another test"
        )
    return Decider(
        evaluator,
        block_sizes,
        loop_table(rule, evaluator.n_blocks),
        range=spread.compiled(surrogate, bounds) if rule.needs_range and spread is not None else None,
        noise=rule.noise_rule(),
        surrogate=surrogate,
        bounds=bounds.compiled() if rule.thins and bounds is not None else None,
        observations=observations if rule.thins else None,
        quadratic=quadratic,
        kappa=rule.joint,
    )
