"""Linear predictors of observations that are held in partitions, which answer requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeAlias, TypeVar

import numpy as np
from threadpoolctl import threadpool_limits

from stansub.target.remainders import Family, LinearPredictors
from stansub.target.requests import Holders, Request, ask_all
from stansub.target.rows import Design
from stansub.types import FloatArray

A = TypeVar("A")


class HasPredictors(Protocol):
    """A partition of the data."""

    def predictors(self) -> Predictors:
        """Return the predictors of its observations."""
        ...


@dataclass(frozen=True)
class OfPredictors(Generic[A]):
    """A request to the predictors of a partition."""

    request: Request[LinearPredictors, A]

    def answer(self, holder: HasPredictors, *, threads: int = 1) -> A:
        """Return the predictors' answer."""
        predictors = holder.predictors()
        assert isinstance(predictors, LinearPredictors)
        return self.request.answer(predictors, threads=threads)


@dataclass(frozen=True)
class Hessian:
    """Request for the Hessian of the sum of log likelihoods at ``theta``."""

    theta: FloatArray

    def answer(self, holder: LinearPredictors, *, threads: int = 1) -> FloatArray:
        """Return the Hessian for the holder's observations, shape (dim, dim)."""
        # With parts this small, BLAS's threads would wait for each other, and round differently from a worker's one.
        with np.errstate(over="ignore", invalid="ignore"), threadpool_limits(limits=1, user_api="blas"):
            return holder.hessian_at(self.theta, threads=threads)


@dataclass(frozen=True)
class PartitionedPredictors:
    """Predictors of observations in partitions; like `LinearPredictors`, they answer requests.

    Attributes
    ----------
    holders : Holders
        The partitions.
    counts : tuple of int
        Number of observations in each.
    like : LinearPredictors
        Predictors of no observations, which show what all observations share.
    """

    holders: Holders[HasPredictors] = field(repr=False)
    counts: tuple[int, ...]
    like: LinearPredictors = field(repr=False)
    _latest: list[tuple[FloatArray, FloatArray]] = field(default_factory=list, init=False, repr=False, compare=False)

    # Whether this process holds the designs.
    is_in_memory = False

    @property
    def n_observations(self) -> int:
        """Return the number of all observations."""
        return sum(self.counts)

    @property
    def design(self) -> tuple[Design, ...]:
        """Return the rows that all observations share, and no rows of other designs."""
        return self.like.design

    @property
    def family(self) -> Family:
        """Return the family, without data."""
        return self.like.family

    def radii(self) -> FloatArray:
        """Return the radii of bounds, as in `LinearPredictors.radii`."""
        return self.like.radii()

    def ask(self, request: Request[LinearPredictors, A], *, threads: int = 1) -> list[A]:
        """Return the answers of all partitions, in order; ``threads`` is the partitions' own choice."""
        return ask_all(self.holders, OfPredictors(request))

    def ask_some(self, requests: Mapping[int, Request[LinearPredictors, A]]) -> list[A]:
        """Return the answers of some partitions, given by number, each to its own request."""
        wrapped = {number: OfPredictors(request) for number, request in requests.items()}
        return self.holders.answers(wrapped)

    def hessian_at(self, theta: FloatArray, *, threads: int = 1) -> FloatArray:
        """Return the Hessian of the sum of all log likelihoods, shape (dim, dim); the latest is kept."""
        for there, hessian in self._latest:
            if np.array_equal(there, theta):
                return hessian
        hessian = np.asarray(np.sum(self.ask(Hessian(theta), threads=threads), axis=0))
        self._latest[:] = [(theta.copy(), hessian)]
        return hessian


Predictors: TypeAlias = LinearPredictors | PartitionedPredictors
