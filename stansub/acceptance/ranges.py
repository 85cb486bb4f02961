"""Where the range of what a concentration bound averages comes from.

The range is the largest less the smallest of the blocks' log likelihood differences or, with control variates, of their
remainders.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from stansub import _loop
from stansub.errors import InputError
from stansub.target.remainders import RemainderBounds

# Functions of a program that bound the derivative of order p + 1 of an observation's log likelihood, by p.
DERIVATIVES = {1: "log_lik_second_derivative_i", 2: "log_lik_third_derivative_i"}


class Range(Protocol):
    """A source of the range."""

    @property
    def order(self) -> int:
        """Order of the control variates that it presumes; 0 where it presumes none."""
        ...

    @property
    def estimated(self) -> bool:
        """Whether it is estimated, which voids the guarantee of a bound."""
        ...

    @property
    def by_predictors(self) -> bool:
        """Whether it needs control variates whose remainders have proved bounds, block by block."""
        ...

    def compiled(self, surrogate: _loop.Surrogate | None, bounds: RemainderBounds | None) -> _loop.Range:
        """The range as the decision loop takes it, for decisions with such control variates and their bounds."""
        ...


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
    order = 0
    estimated = False
    by_predictors = False

    def __post_init__(self) -> None:
        if not 0 <= self.constant < np.inf:
            raise InputError(f"a Lipschitz constant must be finite and not negative, not {self.constant}")

    def compiled(self, surrogate: _loop.Surrogate | None, bounds: RemainderBounds | None) -> _loop.Range:
        return _loop.LipschitzRange(self.constant)


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
    order = 0
    estimated = False
    by_predictors = False

    def compiled(self, surrogate: _loop.Surrogate | None, bounds: RemainderBounds | None) -> _loop.Range:
        return _loop.FunctionRange(self.address, self.self_address, self.factor)


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
    estimated = False
    by_predictors = False

    def __post_init__(self) -> None:
        if not 0 <= self.constant < np.inf:
            raise InputError(f"a bound on a derivative must be finite and not negative, not {self.constant}")

    def compiled(self, surrogate: _loop.Surrogate | None, bounds: RemainderBounds | None) -> _loop.Range:
        """Raise InputError where the control variates are not of this order."""
        order = 0 if surrogate is None else surrogate.order
        if order != self.order:
            raise InputError(
                f"this bound on a derivative is for control variates of order {self.order}, not of order {order}"
            )
        return _loop.DerivativeRange(self.constant)


@dataclass(frozen=True)
class Predictors:
    """With control variates of order p, for likelihoods of linear predictors: twice the largest bound on a remainder.

    The bounds are those of `stansub.target.remainders`, in the metric of the posterior's covariance; beyond their last
    radius there is none, and everything is evaluated. What rounding adds is added.

    Attributes
    ----------
    order : {1, 2}
        p.
    """

    order: int
    estimated = False
    by_predictors = True

    def compiled(self, surrogate: _loop.Surrogate | None, bounds: RemainderBounds | None) -> _loop.Range:
        """Raise InputError where there are no proved bounds of this order."""
        if bounds is None or not bounds.proved or bounds.order != self.order:
            raise InputError("this range needs control variates with proved bounds on their remainders")
        return _loop.RemainderRange(bounds.compiled())


@dataclass(frozen=True)
class Scan:
    """The exact range, from an evaluation of all blocks: for audits, it saves nothing."""

    order = 0
    estimated = False
    by_predictors = False

    def compiled(self, surrogate: _loop.Surrogate | None, bounds: RemainderBounds | None) -> _loop.Range:
        return _loop.ScannedRange()


@dataclass(frozen=True)
class Estimate:
    """The range of the differences drawn so far, which voids the guarantee of a bound."""

    order = 0
    estimated = True
    by_predictors = False

    def compiled(self, surrogate: _loop.Surrogate | None, bounds: RemainderBounds | None) -> _loop.Range:
        return _loop.EstimatedRange()
