"""Sources of the range that concentration bounds need.

The range is the largest less the smallest of the blocks' log likelihood differences or, with control variates, of their
remainders.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np

from stansub import _loop
from stansub.errors import InputError
from stansub.target.remainders import RemainderBounds

# Functions of a program that bound the derivative of order p + 1 of an observation's log likelihood, by p.
DERIVATIVES = {1: "log_lik_second_derivative_i", 2: "log_lik_third_derivative_i"}


class Range(ABC):
    """A source of the range.

    Attributes
    ----------
    order : int
        Order of the control variates that it requires; 0 if it requires none.
    estimated : bool
        Whether the range is estimated, which voids the guarantee of a bound.
    by_predictors : bool
        Whether it needs control variates whose remainders have proved bounds for each block.
    """

    order = 0
    estimated = False
    by_predictors = False

    @abstractmethod
    def compiled(self, surrogate: _loop.Surrogate | None, bounds: RemainderBounds | None) -> _loop.Range:
        """Return the range for the decision loop, given the control variates and their bounds."""


@dataclass(frozen=True)
class Lipschitz(Range):
    """Range of at most 2 L ||theta' - theta||; with control variates, L is that of the remainders.

    Raises
    ------
    InputError
        If the constant is negative or not finite.
    """

    constant: float
    """L, the largest over the blocks of the summed Lipschitz constants of their observations."""

    def __post_init__(self) -> None:
        if not 0 <= self.constant < np.inf:
            raise InputError(f"a Lipschitz constant must be finite and not negative, not {self.constant}")

    def compiled(self, surrogate: _loop.Surrogate | None, bounds: RemainderBounds | None) -> _loop.Range:
        return _loop.LipschitzRange(self.constant)


@dataclass(frozen=True)
class RangeFunction(Range):
    """Range from a C function of two parameter values, times ``factor``.

    With control variates the function must return the range of the remainders.
    """

    address: int
    """Of ``int (*)(void *self, const double *theta, const double *theta_new, double *out)``, which returns 0."""
    factor: float = 1.0
    """Multiplier of the value, such as the number of observations in the largest block."""
    owner: object = field(default=None, repr=False, compare=False)
    """What keeps the function alive."""

    def compiled(self, surrogate: _loop.Surrogate | None, bounds: RemainderBounds | None) -> _loop.Range:
        return _loop.FunctionRange(self.address, factor=self.factor, owner=self.owner)


@dataclass(frozen=True)
class Derivative(Range):
    """Range from a bound L on the derivative of order p + 1, with control variates of order p at m.

    By Taylor's theorem a remainder is at most L / (p + 1)! (|theta' - m|^(p + 1) + |theta - m|^(p + 1)) in absolute
    value (Bardenet, Doucet and Holmes 2017, section 7), and the range is twice that. The range includes the rounding
    error of the coefficients, which are in single precision.

    Raises
    ------
    InputError
        If the constant is negative or not finite.
    """

    constant: float
    """L, the largest over the blocks of the sums of their observations' bounds on the operator norm."""
    order: int = field()
    """p, 1 or 2."""

    def __post_init__(self) -> None:
        if not 0 <= self.constant < np.inf:
            raise InputError(f"a bound on a derivative must be finite and not negative, not {self.constant}")

    def compiled(self, surrogate: _loop.Surrogate | None, bounds: RemainderBounds | None) -> _loop.Range:
        """Return the range for the decision loop; raise InputError if the control variates have another order."""
        order = 0 if surrogate is None else surrogate.order
        if order != self.order:
            raise InputError(
                f"this bound on a derivative is for control variates of order {self.order}, not of order {order}"
            )
        return _loop.DerivativeRange(self.constant)


@dataclass(frozen=True)
class Predictors(Range):
    """Range from proved bounds for linear predictors: twice the largest bound on a remainder of order p.

    The bounds are those of `stansub.target.remainders`, in the metric of the posterior's covariance. Beyond their
    largest radius there is no bound, and every block is evaluated. The range includes rounding errors.
    """

    order: int = field()
    """p, 1 or 2."""
    by_predictors = True

    def compiled(self, surrogate: _loop.Surrogate | None, bounds: RemainderBounds | None) -> _loop.Range:
        """Return the range for the decision loop; raise InputError if there are no proved bounds of this order."""
        if bounds is None or not bounds.proved or bounds.order != self.order:
            raise InputError("this range needs control variates with proved bounds on their remainders")
        return _loop.RemainderRange(bounds.compiled())


@dataclass(frozen=True)
class Scan(Range):
    """Exact range from evaluating all blocks; for audits, because it saves nothing."""

    def compiled(self, surrogate: _loop.Surrogate | None, bounds: RemainderBounds | None) -> _loop.Range:
        return _loop.ScannedRange()


@dataclass(frozen=True)
class Estimate(Range):
    """Range of the differences drawn so far; voids the guarantee of a bound."""

    estimated = True

    def compiled(self, surrogate: _loop.Surrogate | None, bounds: RemainderBounds | None) -> _loop.Range:
        return _loop.EstimatedRange()
