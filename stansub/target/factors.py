"""What a target is: a global log density plus factors, the log likelihoods of blocks of observations.

Nothing here knows of Stan. `stansub.stan.posterior.Posterior` is such a target.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from stansub._loop import Evaluator
from stansub.target.blocks import Blocks
from stansub.target.remainders import LinearPredictors, RemainderBounds
from stansub.target.split import Split
from stansub.types import FloatArray

__all__ = ["CutTarget", "Density", "Evaluator", "Population", "Target"]


class Population(Protocol):
    """Factors that can be evaluated: those that a decision draws from."""

    @property
    def kind(self) -> str:
        """How they are evaluated, as option, output and checkpoints name it."""
        ...

    @property
    def blocks(self) -> Blocks: ...

    @property
    def dim(self) -> int: ...

    def evaluator(self) -> Evaluator:
        """A new evaluator, for one thread at a time."""
        ...

    def in_passing(self) -> Population:
        """The same to evaluate each block once or twice, in less memory where that is known."""
        ...

    def in_bulk(self) -> Population:
        """The same for evaluations of all of them: of larger blocks where each costs a call, or itself."""
        ...


class Density(Protocol):
    """The whole log density, and the names and values that its parameters have for the user."""

    @property
    def dim(self) -> int: ...

    def log_density(self, theta: FloatArray) -> float: ...

    def param_unc_names(self) -> list[str]: ...

    def param_names(self) -> list[str]: ...

    def param_constrain(self, theta: FloatArray) -> FloatArray: ...


class Target(Protocol):
    """A posterior, whole and cut into factors."""

    def predictors(self, progress: Callable[[str], None] | None = None) -> LinearPredictors:
        """How observations depend on the parameters by linear predictors; NoPredictorsError where they do not."""
        ...

    def split(self, progress: Callable[[str], None] | None = None) -> Split:
        """In what costs no data and the likelihood in its own arguments; NoPredictorsError where it cannot be split."""
        ...

    def remainder_bounds(
        self, anchor: FloatArray, cholesky: FloatArray, order: int, *, progress: Callable[[str], None] | None = None
    ) -> RemainderBounds:
        """Bounds on what control variates of an order leave, in the metric of a covariance; NoPredictorsError where
        there are none."""
        ...

    @property
    def full(self) -> Density: ...

    @property
    def population(self) -> Population: ...

    @property
    def blocks(self) -> Blocks: ...

    @property
    def dim(self) -> int: ...


class CutTarget(Target, Protocol):
    """A target whose factors may be larger than what decisions should look at."""

    def for_decisions(self, progress: Callable[[str], None] | None = None) -> CutTarget:
        """The same with smaller factors: itself, where they are small enough."""
        ...

    @property
    def decision_size(self) -> int | None:
        """Observations in such a factor; None where they are small enough."""
        ...
