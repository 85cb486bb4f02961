"""Interface of a split posterior: the part without data, and the likelihood in its own arguments.

The interface is independent of Stan. `stansub.stan.surrogate.Split` implements it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from stansub.target.approximation import Approximation
from stansub.target.coordinates import Coordinates
from stansub.target.metric import Metric
from stansub.target.normal_effects import NormalEffects
from stansub.target.sparse import SparsePredictors
from stansub.target.symmetries import Symmetry
from stansub.types import FloatArray


class Transition(Protocol):
    """Result of a transition on a surrogate."""

    @property
    def acceptance_rate(self) -> float: ...

    @property
    def n_steps(self) -> int: ...

    @property
    def tree_depth(self) -> int: ...

    @property
    def diverging(self) -> bool: ...


class HamiltonianSampler(Protocol):
    """Hamiltonian Monte Carlo on a surrogate, for one thread at a time; updates theta in place."""

    def nuts(
        self, bits: Any, theta: FloatArray, n: int = 1, *, step_size: float, max_tree_depth: int
    ) -> Transition: ...

    def hmc(self, bits: Any, theta: FloatArray, n: int = 1, *, step_size: float, n_steps: int) -> Transition: ...

    def random_length_hmc(
        self, bits: Any, theta: FloatArray, n: int = 1, *, step_size: float, n_steps: int
    ) -> Transition: ...

    def log_ratio(self, theta: FloatArray) -> float:
        """Return log p - log q, where log q is -|z|^2 / 2 in white coordinates."""


class Slices(Protocol):
    """Slices of a density along moves, for one thread at a time; updates x, scale and shift in place."""

    def __call__(
        self,
        bits: Any,
        x: FloatArray,
        scale: FloatArray,
        shift: FloatArray,
        widths: FloatArray,
        lengths: FloatArray,
    ) -> None: ...


class Sampler(Protocol):
    """A sampler of a surrogate, likewise. A transition of a Gibbs sampler is a sweep."""

    def __call__(self, bits: Any, theta: FloatArray, n: int = 1) -> Transition: ...


class EffectsSampler(Protocol):
    """Samplers of a surrogate with normal effects, likewise."""

    def gibbs(self, bits: Any, theta: FloatArray, n: int = 1) -> Transition: ...

    def given_scales(
        self, bits: Any, theta: FloatArray, n: int = 1, *, step_size: float, n_steps: int
    ) -> Transition: ...


class Differentiable(Protocol):
    """Log density with gradients."""

    @property
    def dim(self) -> int: ...

    def log_density(self, theta: FloatArray) -> float: ...

    def log_density_gradient(self, theta: FloatArray) -> tuple[float, FloatArray]: ...


class Dynamics(Protocol):
    """Density on which Hamiltonian Monte Carlo moves: that of a surrogate, or of the posterior itself."""

    @property
    def model(self) -> Differentiable: ...

    def hamiltonian(
        self, centre: FloatArray, metric: Metric, coordinates: Coordinates, *, power: float = 1.0
    ) -> HamiltonianSampler:
        """Return a sampler of the density in these coordinates, with a metric there.

        With a power t, it samples p^t q^(1 - t), where q is the normal density of centre and metric.
        """


class Surrogate(Dynamics, Protocol):
    """Surrogate posterior: everything but the likelihood, and an approximation of the likelihood."""

    def phi(self, theta: FloatArray) -> FloatArray:
        """Return the likelihood's arguments."""

    def slices(self, coordinates: Coordinates, moves: Sequence[Symmetry]) -> Slices:
        """Return a sampler along moves of these coordinates."""

    def of_effects(self, effects: NormalEffects) -> EffectsSampler:
        """Return samplers of effects and their scales, which need not be exactly those of the surrogate."""


class Split(Protocol):
    """What a surrogate and decisions about it are made from."""

    @property
    def predictors(self) -> SparsePredictors: ...

    def surrogate(self, approximation: Approximation) -> Surrogate:
        """Return the surrogate with an approximation of the likelihood."""

    def prior(self) -> Surrogate:
        """Return the posterior without its likelihood, whose arguments have no scale fixed."""

    def posterior(self) -> Dynamics | None:
        """Return the posterior itself; None if this process cannot evaluate it at once."""
