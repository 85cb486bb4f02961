"""Targets made of numpy functions, for what needs no Stan program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stansub._loop import Decider, Surrogate
from stansub.acceptance.decide import make_decider
from stansub.acceptance.rules import Exact, StoppingRule
from stansub.target.functions import FunctionFactors
from stansub.target.taylor import ControlVariates

Array = NDArray[np.float64]


def decider(
    dim: int,
    blocks: Callable[[Array, NDArray[np.int32]], Array],
    *,
    n_blocks: int = 1,
    test: StoppingRule | None = None,
    anchor: Array | None = None,
    coefficients: NDArray[np.float32] | None = None,
) -> Decider:
    """A decider at 0 for ``blocks(theta, which)``, log likelihoods of blocks of one observation, and a flat prior."""
    factors = FunctionFactors([f"theta.{k}" for k in range(1, dim + 1)], n_blocks, blocks)
    surrogate = None if anchor is None or coefficients is None else Surrogate([anchor], (coefficients,))
    made = make_decider(factors.evaluator(), factors.blocks.sizes, test or Exact(), surrogate=surrogate)
    made.reset(np.zeros(dim))
    return made


def gaussian(covariance: Array) -> Decider:
    """Exact decisions on a centred Gaussian."""
    precision = np.linalg.inv(covariance)
    return decider(len(covariance), lambda theta, which: np.array([-0.5 * theta @ precision @ theta]))


def normal_mean(y: Array, test: StoppingRule) -> Decider:
    """The mean of unit normals, each observation a block, and a flat prior."""
    return decider(1, lambda theta, which: -0.5 * (y[which] - theta[0]) ** 2, n_blocks=len(y), test=test)


def logistic(x: Array, test: StoppingRule, anchor: Array, *, order: int = 2) -> Decider:
    """Regression of successes, shape (n, dim), on themselves and failures alike, with control variates."""
    p = 1 / (1 + np.exp(-x @ anchor))
    rows, columns = np.tril_indices(x.shape[1])
    gradient, hessian = (0.5 - p)[:, np.newaxis] * x, -(p * (1 - p))[:, np.newaxis] * x[:, rows] * x[:, columns]
    coefficients = np.hstack([gradient, hessian][:order]).astype(np.float32) if order else None

    def blocks(theta: Array, which: NDArray[np.int32]) -> Array:
        eta = x[which] @ theta
        return 0.5 * eta - np.logaddexp(0, eta)

    return decider(
        x.shape[1],
        blocks,
        n_blocks=len(x),
        test=test,
        anchor=anchor if order else None,
        coefficients=coefficients,
    )


def with_own_rows(variates: ControlVariates) -> ControlVariates:
    """The same control variates with a copy of the coefficients, which a test may spoil."""
    first = replace(variates.first, coefficients=variates.first.coefficients.copy())
    return replace(variates, expansions=(first,))
