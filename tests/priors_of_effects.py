"""Posteriors given by their prior and the likelihood's arguments, for the search for normal effects."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.target.approximation import Approximation
from stansub.target.sparse import Quadratic
from stansub.tuning.effects.coordinates import find_effects
from stansub.tuning.effects.normal_effects import Structure, find_normal_effects

Array = NDArray[np.float64]


class Model:
    """A log density with gradients by differences."""

    def __init__(self, of: Callable[[Array], float], dim: int) -> None:
        self.log_density, self.dim = of, dim

    def log_density_gradient(self, theta: Array) -> tuple[float, Array]:
        steps = 1e-4 * np.eye(self.dim)
        ends = [[self.log_density(theta + n * one) for n in (-2, -1, 1, 2)] for one in steps]
        return self.log_density(theta), np.array([(a - 8 * b + 8 * c - d) / 12e-4 for a, b, c, d in ends])


def expansion(m: int) -> Approximation:
    """Of any likelihood with m arguments."""
    rng = np.random.default_rng(1)
    root = rng.standard_normal((m, m))
    precision = sp.csr_array(root @ root.T + np.eye(m))
    return Approximation.plain(Quadratic.of(rng.standard_normal(m), 0.0, rng.standard_normal(m), precision))


def found(prior: Callable[[Array], float], draws: Array, phi: Callable[[Array], Array], m: int) -> Structure | None:
    """The normal effects of a prior and the likelihood's arguments."""
    split = SimpleNamespace(
        prior=lambda: SimpleNamespace(model=Model(prior, draws.shape[1])),
        surrogate=lambda about: SimpleNamespace(phi=phi),
    )
    rng = np.random.default_rng(2)
    full = find_effects(phi, draws[-1], rng).full
    return find_normal_effects(cast(Any, split), expansion(m), full, draws, rng)
