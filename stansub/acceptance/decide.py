"""Construction of a chain's decider from an evaluator, a stopping rule and a source of the range."""

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
    block_sizes: NDArray[np.int64],
    test: StoppingRule,
    *,
    spread: Range | None = None,
    surrogate: Surrogate | None = None,
    bounds: RemainderBounds | None = None,
    observations: RemainderSource | None = None,
    quadratic: GlobalQuadratic | None = None,
) -> Decider:
    """Return the decider of one chain.

    Parameters
    ----------
    evaluator : Evaluator
        Must belong to this chain alone.
    block_sizes : ndarray of int64, shape (n_blocks,)
        Observations in each block.
    test : StoppingRule
        The stopping rule; any value that `stansub.acceptance.stopping.as_rule` accepts.
    spread : Range, optional
        Source of the range, for tests that need one. With control variates the test uses remainders, and a `Lipschitz`
        constant or `RangeFunction` must bound those; this is not checked. A `Derivative` needs control variates of its
        order; `Predictors` need these and their bounds.
    surrogate : Surrogate, optional
        Control variates of first or second order.
    bounds : RemainderBounds, optional
        Bounds on the remainders, for decisions by thinning and for `Predictors`.
    observations : RemainderSource, optional
        Expansions and bounds of single observations, instead of those of blocks.
    quadratic : GlobalQuadratic, optional
        The global part as a quadratic about the anchor, if that is known.

    Raises
    ------
    InputError
        If a thinning test has no bounds, a test needs a range and has none, or the control variates have another order
        than a `Derivative` needs.
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
