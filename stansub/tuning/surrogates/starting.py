"""Parameters from which explorations of surrogates start."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from stansub.errors import RunError
from stansub.target.approximation import Approximation
from stansub.target.sparse import Quadratic
from stansub.target.split import Differentiable, Split
from stansub.tuning.modes.climbing import lbfgs
from stansub.types import FloatArray

# Random values to try.
_TRIED = 50
# Precision of a normal density of arguments about given ones, and iterations until a density is largest.
_PINNED, _ITERATIONS = 100.0, 200


def find_start(density: Differentiable, dim: int, rng: np.random.Generator, *, radius: float = 0.5) -> FloatArray:
    """Return unconstrained parameters where a density is defined, uniform within a radius or less.

    Raises
    ------
    RunError
        If none are found.
    """
    for attempt in range(_TRIED):
        theta = rng.uniform(-radius, radius, dim) * 0.9**attempt
        try:
            value, gradient = density.log_density_gradient(theta)
        except RunError:
            continue
        if np.isfinite(value) and np.isfinite(gradient).all():
            return np.asarray(theta)
    raise RunError("the density is not defined at any of the parameter values tried; choose another proposal")


def highest(density: Differentiable, start: FloatArray, *, ridge: float = 0.0) -> FloatArray:
    """Return where a density times a normal density about 0, whose precision is the ridge, is largest near a start."""

    def objective(theta: FloatArray) -> tuple[float, FloatArray]:
        try:
            value, gradient = density.log_density_gradient(theta)
        except RunError:
            return -np.inf, np.zeros_like(theta)
        return value - 0.5 * ridge * float(theta @ theta), gradient - ridge * theta

    theta, _ = lbfgs(objective, start, max_iterations=_ITERATIONS)
    return theta


def pinned(split: Split, phi: FloatArray) -> Differentiable:
    """Return the prior times a narrow normal density of the likelihood's arguments about given ones."""
    about = Quadratic.of(phi, 0.0, np.zeros_like(phi), _PINNED * sp.eye_array(len(phi), format="csr"))
    return split.surrogate(Approximation.plain(about)).model
