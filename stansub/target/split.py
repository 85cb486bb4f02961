"""A posterior in two: what costs no data, and the likelihood in its own arguments; what it is to the layers above.

Nothing here knows of Stan. `stansub.stan.surrogate.Split` is such a posterior.
"""

from __future__ import annotations

from typing import Any, Protocol

from stansub.target.approximation import Approximation
from stansub.target.cholesky import Factor
from stansub.target.coordinates import Coordinates
from stansub.target.sparse import SparsePredictors
from stansub.types import FloatArray


class Transition(Protocol):
    """What a transition on a surrogate came to."""

    @property
    def acceptance_rate(self) -> float: ...

    @property
    def n_steps(self) -> int: ...

    @property
    def tree_depth(self) -> int: ...

    @property
    def diverging(self) -> bool: ...


class Nuts(Protocol):
    """The no-U-turn sampler on a surrogate, for one thread at a time; theta becomes where it ends."""

    def __call__(
        self, bits: Any, theta: FloatArray, *, step_size: float, max_tree_depth: int, n: int = 1
    ) -> Transition: ...


class Differentiable(Protocol):
    """A log density with gradients."""

    @property
    def dim(self) -> int: ...

    def log_density_gradient(self, theta: FloatArray) -> tuple[float, FloatArray]: ...


class Surrogate(Protocol):
    """A surrogate posterior: all but the likelihood, and an approximation of that."""

    @property
    def model(self) -> Differentiable: ...

    def phi(self, theta: FloatArray) -> FloatArray:
        """The likelihood's arguments."""
        ...

    def nuts(self, centre: FloatArray, factor: Factor, coordinates: Coordinates) -> Nuts:
        """Return a sampler of it that moves in some coordinates, with the metric of a precision there."""
        ...


class Split(Protocol):
    """What a surrogate and decisions about it are made from."""

    @property
    def predictors(self) -> SparsePredictors: ...

    def surrogate(self, approximation: Approximation) -> Surrogate:
        """With an approximation in the likelihood's place."""
        ...
