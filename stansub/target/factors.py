"""The target interface: a global log density plus factors, the log likelihoods of blocks of observations.

The interface is independent of Stan. `stansub.stan.posterior.Posterior` implements it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from stansub._loop import Evaluator
from stansub.target.blocks import Blocks
from stansub.target.partitioned import Predictors
from stansub.target.remainders import NoPredictorsError, RemainderBounds
from stansub.target.split import Dynamics, Split
from stansub.types import FloatArray

__all__ = ["CutTarget", "Density", "Evaluator", "Population", "Target", "known_predictors"]


class Population(Protocol):
    """Factors from which a decision draws."""

    @property
    def kind(self) -> str:
        """Return how the factors are evaluated, as named by option, output and checkpoints."""

    @property
    def blocks(self) -> Blocks: ...

    @property
    def dim(self) -> int: ...

    def evaluator(self) -> Evaluator:
        """Return a new evaluator, for one thread at a time."""

    def in_passing(self) -> Population:
        """Return the population for evaluating each block once or twice, in less memory if possible."""

    def in_bulk(self) -> Population:
        """Return the population for evaluating all blocks, with larger blocks if each costs a call."""


class Density(Protocol):
    """The whole log density, with the names and values of its parameters for the user."""

    @property
    def dim(self) -> int: ...

    def log_density(self, theta: FloatArray) -> float: ...

    def log_densities(self, points: Sequence[FloatArray]) -> list[tuple[float, str]]: ...

    def param_unc_names(self) -> list[str]: ...

    def param_names(self) -> list[str]: ...

    def param_constrain(self, theta: FloatArray) -> FloatArray: ...

    def param_unconstrain_json(self, values: bytes) -> FloatArray: ...


class Target(Protocol):
    """A posterior, whole and cut into factors."""

    def predictors(self, progress: Callable[[str], None] | None = None) -> Predictors:
        """Return the linear predictors of the observations; raise NoPredictorsError if there are none."""

    def split(self, progress: Callable[[str], None] | None = None) -> Split:
        """Return the split into prior and likelihood in its own arguments; raise NoPredictorsError if there is none."""

    def dynamics(self, progress: Callable[[str], None] | None = None) -> Dynamics | None:
        """Return the posterior itself for trajectories; None if this process cannot evaluate it at once."""

    def remainder_bounds(
        self, anchor: FloatArray, cholesky: FloatArray, order: int, *, progress: Callable[[str], None] | None = None
    ) -> RemainderBounds:
        """Return bounds on the remainders of control variates of an order, in the metric of a covariance.

        Raise NoPredictorsError if there are none.
        """

    @property
    def full(self) -> Density: ...

    @property
    def population(self) -> Population: ...

    @property
    def blocks(self) -> Blocks: ...

    @property
    def dim(self) -> int: ...

    @property
    def pilot(self) -> Target | None:
        """Return the target of a random sample of the observations, if this process does not hold all of them."""


class CutTarget(Target, Protocol):
    """A target whose factors may be larger than decisions need."""

    def for_decisions(self, progress: Callable[[str], None] | None = None) -> CutTarget:
        """Return the target with smaller factors; itself if they are small enough."""

    @property
    def decision_size(self) -> int | None:
        """Return the observations per smaller factor; None if the factors are small enough."""


def known_predictors(posterior: Target, log: Callable[[str], None]) -> Predictors | None:
    """Return the posterior's linear predictors, if any."""
    try:
        return posterior.predictors(log)
    except NoPredictorsError:
        return None
