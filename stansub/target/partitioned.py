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
class Derivatives:
    """Request for the sum of log likelihoods at ``theta``, up to a constant, its gradient and its Hessian.

    A partition may have to be opened for an answer, which takes longer than a Hessian: one request is for all three.
    """

    theta: FloatArray

    def answer(self, holder: LinearPredictors, *, threads: int = 1) -> tuple[float, FloatArray, FloatArray]:
        """Return value, gradient, shape (dim,), and Hessian, (dim, dim), of the sum over the holder's observations."""

        def of(part: LinearPredictors, eta: FloatArray) -> tuple[float, FloatArray, FloatArray]:
            values, slopes, curves = part.family.derivatives((0, 1, 2), eta)
            return float(values.sum()), part.gradient(slopes), part.hessian(curves)

        # With parts this small, BLAS's threads would wait for each other, and round differently from a worker's one.
        with threadpool_limits(limits=1, user_api="blas"):
            values, gradients, hessians = zip(*holder.map_at(self.theta, of, threads=threads), strict=True)
        hessian = np.asarray(np.sum(hessians, axis=0))
        holder.keep("hessian", self.theta.tobytes(), lambda: hessian)  # for the expansion at the mode
        return sum(values), np.asarray(np.sum(gradients, axis=0)), hessian


@dataclass(frozen=True)
class PartitionedPredictors:
    """Predictors of observations in partitions; like `LinearPredictors`, they answer requests."""

    holders: Holders[HasPredictors] = field(repr=False)
    counts: tuple[int, ...]
    like: LinearPredictors = field(repr=False)
    """Predictors of no observations, which show what all observations share."""
    constant: float | None
    """What the sum of all log likelihoods lacks to the program's, if known."""
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

    def hessian_passes(self) -> float:
        """Return the cost of a Hessian where the gradient is known, in passes over the observations."""
        return 0.0

    def gradient_at(self, theta: FloatArray, *, threads: int = 1) -> tuple[float, FloatArray]:
        """Return the sum of all log likelihoods, up to a constant, and its gradient; the Hessian there is kept."""
        values, gradients, hessians = zip(*self.ask(Derivatives(theta), threads=threads), strict=True)
        self._latest[:] = [(theta.copy(), np.asarray(np.sum(hessians, axis=0)))]
        return float(sum(values)), np.asarray(np.sum(gradients, axis=0))

    def hessian_at(self, theta: FloatArray, *, threads: int = 1) -> FloatArray:
        """Return the Hessian of the sum of all log likelihoods, shape (dim, dim); the latest is kept."""
        if not any(np.array_equal(there, theta) for there, _ in self._latest):
            self.gradient_at(theta, threads=threads)
        return self._latest[0][1]


Predictors: TypeAlias = LinearPredictors | PartitionedPredictors
