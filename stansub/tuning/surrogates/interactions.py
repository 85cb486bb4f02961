"""Which parameters of a density interact: the pattern of its Hessian."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.target.approximation import Approximation
from stansub.target.coordinates import Coordinates
from stansub.target.inner_density import InnerDensity
from stansub.target.separated import Separated
from stansub.target.sparse import Quadratic
from stansub.target.split import Differentiable, Split
from stansub.types import FloatArray

# Step of differences; entries this far below their diagonals are rounding.
STEP, _ROUNDING = 1e-4, 1e-7


def interactions(density: Differentiable, theta: FloatArray, check: Callable[[], None] = lambda: None) -> sp.csc_array:
    """Return the pattern of the Hessian of a log density at a position, from one gradient per parameter or fewer.

    Parameters
    ----------
    theta : ndarray, shape (dim,)
        Position.
    check : callable, optional
        Called at intervals; may raise an exception to stop.
    """

    def gradient(at: FloatArray) -> FloatArray:
        check()
        return density.log_density_gradient(at)[1]

    steps = np.full(density.dim, STEP)
    separated = Separated.of(gradient, theta, steps, symmetric=True)
    with np.errstate(invalid="ignore"):  # if gradients overflow
        whole = (separated.changes(gradient, theta, steps) / -STEP).tocoo()
    of_row, of_column = separated.shared[whole.row], separated.shared[whole.col]
    both, one = (_kept(whole, own) for own in (of_row == of_column, of_column & ~of_row))
    return without_rounding(sp.csc_array((both + both.T) / 2 + one + one.T)).astype(bool)


def surrogate_interactions(
    split: Split, about: Approximation, coordinates: Coordinates, theta: FloatArray, check: Callable[[], None]
) -> sp.csc_array:
    """Return the pattern of a surrogate's Hessian in inner coordinates; parameters as of `interactions`.

    With J = d phi / d theta and the expansion's precision P, the Hessian is -J' P J and that of the density with a
    linear function in place of the likelihood. Gradients of the latter cost much less if P has many entries.
    """
    quadratic, rng = about.quadratic, np.random.default_rng(0)
    m = len(quadratic.point)
    linear = Quadratic.of(quadratic.point, 0.0, rng.standard_normal(m), sp.csr_array((m, m)))
    surrogate = split.surrogate(Approximation.plain(linear))
    density = InnerDensity(surrogate.model, coordinates)
    others = interactions(density, theta, check)
    steps = np.full(len(theta), STEP)

    def phi(at: FloatArray) -> FloatArray:
        check()
        return surrogate.phi(density.outward(at))

    jacobian = Separated.of(phi, theta, steps).changes(phi, theta, steps).astype(bool)
    precision = without_rounding(sp.csc_array(about.precision)).astype(bool)
    return sp.csc_array(others + jacobian.T @ precision @ jacobian)


def _kept(matrix: sp.coo_array, which: NDArray[np.bool_]) -> sp.csc_array:
    """Return the matrix with some of its entries."""
    return sp.csc_array((matrix.data[which], (matrix.row[which], matrix.col[which])), shape=matrix.shape)


def without_rounding(matrix: sp.csc_array) -> sp.csc_array:
    """Return the matrix without entries that are rounding compared with their diagonals."""
    found = matrix.tocoo()
    scale = np.sqrt(np.abs(matrix.diagonal()))
    keep = np.abs(found.data) > _ROUNDING * np.maximum(scale[found.row] * scale[found.col], 1e-12)
    return sp.csc_array((found.data[keep], (found.row[keep], found.col[keep])), shape=matrix.shape)
