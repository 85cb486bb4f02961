"""From a model, a test and a range of differences to the decisions of one chain."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from stansub._loop import Decider, Decision, Evaluator, Surrogate
from stansub.acceptance.rules import Barker, Penalty, Test
from stansub.errors import InputError

__all__ = [
    "Decider",
    "Decision",
    "Derivative",
    "Estimate",
    "Lipschitz",
    "Range",
    "RangeFunction",
    "Scan",
    "Surrogate",
    "make_decider",
]


# Functions of a program that bound the derivative of order p + 1 of an observation's log likelihood, by p.
DERIVATIVES = {1: "log_lik_second_derivative_i", 2: "log_lik_third_derivative_i"}


@dataclass(frozen=True)
class Lipschitz:
    """The range is at most 2 L ||theta' - theta||; with control variates L is that of the remainders.

    Attributes
    ----------
    constant : float
        L, the largest over the blocks of the summed Lipschitz constants of their observations.

    Raises
    ------
    InputError
        When the constant is negative or not finite.
    """

    constant: float
    kind = "lipschitz"

    def __post_init__(self) -> None:
        if not 0 <= self.constant < np.inf:
            raise InputError(f"a Lipschitz constant must be finite and not negative, not {self.constant}")


@dataclass(frozen=True)
class RangeFunction:
    """The range is ``factor`` times what a C function gives for a pair of parameter values.

    With control variates it must be the range of the remainders.

    Attributes
    ----------
    address : int
        Of ``int (*)(void *self, const double *theta, const double *theta_new, double *out)``, which returns 0.
    self_address : int
        First argument of the function.
    factor : float
        Multiplies the value, such as the number of observations of the largest block.

    The caller keeps the function alive.
    """

    address: int
    self_address: int = 0
    factor: float = 1.0
    kind = "callback"


@dataclass(frozen=True)
class Derivative:
    """With control variates of order p at m: a bound L on the derivative of order p + 1 of the blocks' log likelihoods.

    By Taylor's theorem a remainder is at most L / (p + 1)! (|theta' - m|^(p + 1) + |theta - m|^(p + 1)) in absolute
    value (Bardenet, Doucet and Holmes 2017, section 7), and the range is twice that. What rounding adds, for
    coefficients are kept in single precision, is added.

    Attributes
    ----------
    constant : float
        L, the largest over the blocks of the sums of their observations' bounds on the operator norm.
    order : {1, 2}
        p.

    Raises
    ------
    InputError
        When the constant is negative or not finite.
    """

    constant: float
    order: int
    kind = "derivative"

    def __post_init__(self) -> None:
        if not 0 <= self.constant < np.inf:
            raise InputError(f"a bound on a derivative must be finite and not negative, not {self.constant}")


@dataclass(frozen=True)
class Scan:
    """The exact range, from an evaluation of all blocks: for audits, it saves nothing."""

    kind = "scan"


@dataclass(frozen=True)
class Estimate:
    """The range of the differences drawn so far, which voids the guarantee of a bound."""

    kind = "estimate"


Range = Lipschitz | RangeFunction | Derivative | Scan | Estimate


def make_decider(
    evaluator: Evaluator,
    block_sizes: NDArray[np.int32],
    test: Test,
    *,
    spread: Range | None = None,
    surrogate: Surrogate | None = None,
) -> Decider:
    """The decisions of one chain.

    Parameters
    ----------
    evaluator : Evaluator
        Used by no other chain.
    block_sizes : ndarray of int32, shape (n_blocks,)
        Observations in each block.
    test : Test
        When a decision is clear.
    spread : Range, optional
        Where the range of the differences comes from, for tests that need it. With control variates the test looks at
        remainders; a `Lipschitz` constant or a `RangeFunction` is then taken for theirs, and whoever gives it vouches
        for it. A `Derivative` needs control variates of its order.
    surrogate : Surrogate, optional
        Control variates of first or second order.

    Raises
    ------
    InputError
        When the test needs a range and none is given, or the control variates are not those of a `Derivative`.
    """
    table = test.table(evaluator.n_blocks)
    decider = partial(Decider, evaluator, block_sizes, table.n, table.scale, table.offset, surrogate=surrogate)
    if isinstance(test, Barker | Penalty):
        rule = test.rule
        return decider(
            noise_kind=rule.kind,
            noise_limit=rule.limit,
            noise_share=rule.share,
            correction_points=rule.points,
            correction_bounds=rule.bounds,
        )
    if not test.needs_range:
        return decider()
    if spread is None:
        raise InputError(
            f"the {test.name} test needs the range of the log likelihood differences: give Lipschitz constants or a "
            "range, or have it estimated or scanned"
        )
    if isinstance(spread, Derivative):
        order = 0 if surrogate is None else surrogate.order
        if order != spread.order:
            raise InputError(
                f"this bound on a derivative is for control variates of order {spread.order}, not of order {order}"
            )
    constant, self_address, address = 0.0, 0, 0
    if isinstance(spread, Lipschitz | Derivative):
        constant = spread.constant
    elif isinstance(spread, RangeFunction):
        constant, self_address, address = spread.factor, spread.self_address, spread.address
    return decider(
        range_kind=spread.kind,
        range_constant=constant,
        range_self=self_address,
        range_function=address,
    )
