"""Hessians of densities in which most parameters do not interact, from few gradients.

One gradient per parameter determines, once, which parameters interact. Afterwards columns without a common row are
differenced together (Curtis, Powell and Reid 1974). The few parameters that interact with many, such as fixed effects
and scales, have a difference each, and their rows follow by symmetry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.target.split import Differentiable
from stansub.types import FloatArray

# Step sizes of differences; entries this far below their diagonals are rounding.
_STEP, _ROUNDING = 1e-4, 1e-7
# Columns with more entries than this multiple of the median have a difference of their own.
_MANY = 4


class Differences:
    """Minus the Hessian of a log density as a function of the position.

    Parameters
    ----------
    theta : ndarray, shape (dim,)
        Position at which interactions are determined.
    check : callable, optional
        Called at intervals; may raise an exception to stop.
    """

    def __init__(self, density: Differentiable, theta: FloatArray, check: Callable[[], None] = lambda: None) -> None:
        self._dim, self._check = density.dim, check
        here = self._gradient(density, theta)
        rows, values = [], []
        for k in range(density.dim):
            column = self._difference(density, theta, here, np.array([k]))
            rows.append(np.flatnonzero(column))
            values.append(column[rows[-1]])
        starts = np.cumsum([0, *map(len, rows)])
        whole = sp.csc_array((np.concatenate(values), np.concatenate(rows), starts), shape=(self._dim, self._dim))
        self._pattern = _without_rounding(sp.csc_array((whole + whole.T) / 2)).astype(bool)
        counts = np.diff(self._pattern.indptr)
        self._alone = np.flatnonzero(counts > max(_MANY * np.median(counts), 2 * _MANY))
        self._groups = _groups(self._pattern, self._alone)

    @property
    def n_gradients(self) -> int:
        """Return the number of gradients per Hessian."""
        return 1 + len(self._alone) + len(self._groups)

    def __call__(self, density: Differentiable, theta: FloatArray) -> sp.csc_array:
        """Return minus the Hessian of a density with the same interactions, shape (dim, dim)."""
        rows: list[NDArray[Any]] = []
        columns: list[NDArray[Any]] = []
        values: list[FloatArray] = []
        here = self._gradient(density, theta)
        others = np.ones(self._dim, bool)
        others[self._alone] = False
        for k in self._alone:
            own = self._difference(density, theta, here, np.array([k]))
            rows += [np.arange(self._dim), np.full(self._dim, k)]
            columns += [np.full(self._dim, k), np.arange(self._dim)]
            halves = np.where(others, own, own / 2)  # entries given by two such columns are averaged
            values += [halves, halves]
        for group in self._groups:
            together = self._difference(density, theta, here, group)
            for k in group:
                places = self._pattern.indices[self._pattern.indptr[k] : self._pattern.indptr[k + 1]]
                places = places[others[places]]
                rows.append(places)
                columns.append(np.full(len(places), k))
                values.append(together[places])
        place = np.concatenate(rows), np.concatenate(columns)
        found = sp.coo_array((np.concatenate(values), place), shape=(self._dim, self._dim)).tocsc()
        return _without_rounding(sp.csc_array((found + found.T) / 2))

    def _difference(
        self, density: Differentiable, theta: FloatArray, here: FloatArray, which: NDArray[np.int64]
    ) -> FloatArray:
        """Return the change of the gradient, each row over the step of the one parameter that affects it."""
        moved = theta.copy()
        moved[which] += _STEP
        with np.errstate(invalid="ignore"):  # if gradients overflow
            return np.asarray((here - self._gradient(density, moved)) / _STEP)

    def _gradient(self, density: Differentiable, theta: FloatArray) -> FloatArray:
        self._check()
        return density.log_density_gradient(theta)[1]


def _groups(pattern: sp.csc_array, alone: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Return the other columns in groups without a common row, except for the rows of ``alone``."""
    left = np.setdiff1d(np.arange(pattern.shape[0]), alone)
    own = sp.csr_array(pattern[left][:, left].astype(np.int32))
    near = sp.csr_array(own @ own.T)
    colours = np.full(len(left), -1)
    for k in range(len(left)):
        taken = set(colours[near.indices[near.indptr[k] : near.indptr[k + 1]]].tolist())
        colours[k] = next(colour for colour in range(len(left)) if colour not in taken)
    return [left[colours == colour] for colour in range(colours.max(initial=-1) + 1)]


def _without_rounding(matrix: sp.csc_array) -> sp.csc_array:
    """Return the matrix without entries that are rounding compared with their diagonals."""
    found = matrix.tocoo()
    scale = np.sqrt(np.abs(matrix.diagonal()))
    keep = np.abs(found.data) > _ROUNDING * np.maximum(scale[found.row] * scale[found.col], 1e-12)
    return sp.csc_array((found.data[keep], (found.row[keep], found.col[keep])), shape=matrix.shape)
