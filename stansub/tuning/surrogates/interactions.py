"""Which parameters of a density interact: the pattern of its Hessian."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.target.approximation import Approximation
from stansub.target.coordinates import Coordinates
from stansub.target.inner_density import InnerDensity
from stansub.target.sparse import Quadratic
from stansub.target.split import Differentiable, Split
from stansub.types import FloatArray

# Step of differences; entries this far below their diagonals are rounding.
STEP, _ROUNDING = 1e-4, 1e-7


def interactions(density: Differentiable, theta: FloatArray, check: Callable[[], None] = lambda: None) -> sp.csc_array:
    """Return the pattern of the Hessian of a log density at a position, from one gradient per parameter.

    Parameters
    ----------
    theta : ndarray, shape (dim,)
        Position.
    check : callable, optional
        Called at intervals; may raise an exception to stop.
    """
    here = density.log_density_gradient(theta)[1]

    def changes() -> Iterable[FloatArray]:
        for moved in _moved(theta):
            check()
            with np.errstate(invalid="ignore"):  # if gradients overflow
                yield (here - density.log_density_gradient(moved)[1]) / STEP

    whole = _in_columns(changes(), density.dim)
    return without_rounding(sp.csc_array((whole + whole.T) / 2)).astype(bool)


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
    here = surrogate.phi(density.outward(theta))
    jacobian = _in_columns((surrogate.phi(density.outward(one)) - here for one in _moved(theta)), m).astype(bool)
    precision = without_rounding(sp.csc_array(about.precision)).astype(bool)
    return sp.csc_array(others + jacobian.T @ precision @ jacobian)


def without_rounding(matrix: sp.csc_array) -> sp.csc_array:
    """Return the matrix without entries that are rounding compared with their diagonals."""
    found = matrix.tocoo()
    scale = np.sqrt(np.abs(matrix.diagonal()))
    keep = np.abs(found.data) > _ROUNDING * np.maximum(scale[found.row] * scale[found.col], 1e-12)
    return sp.csc_array((found.data[keep], (found.row[keep], found.col[keep])), shape=matrix.shape)


def _moved(theta: FloatArray) -> Iterable[FloatArray]:
    """Yield the position with one coordinate moved by a step, for each of them."""
    for k in range(len(theta)):
        moved = theta.copy()
        moved[k] += STEP
        yield moved


def _in_columns(columns: Iterable[FloatArray], dim: int) -> sp.csc_array:
    """Return the sparse matrix with these columns, which have ``dim`` elements."""
    rows, values = list[NDArray[np.int64]](), list[FloatArray]()
    for column in columns:
        rows.append(np.flatnonzero(column))
        values.append(column[rows[-1]])
    starts = np.cumsum([0, *map(len, rows)])
    return sp.csc_array((np.concatenate(values), np.concatenate(rows), starts), shape=(dim, len(rows)))
