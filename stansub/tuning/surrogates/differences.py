"""Hessians of densities in which most parameters do not interact, from few gradients.

One gradient per parameter determines, once, which parameters interact. Afterwards columns without a common row are
differenced together (Curtis, Powell and Reid 1974). Some parameters have a difference each, and their rows follow by
symmetry: fixed effects and scales, which interact with many, and the smaller of two crossed groupings.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.target.metric import Metric
from stansub.target.split import Differentiable
from stansub.types import FloatArray

# Step sizes of differences; entries this far below their diagonals are rounding.
_STEP, _ROUNDING = 1e-4, 1e-7


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
        self._alone, self._groups = _fewest(self._pattern)

    @property
    def n_gradients(self) -> int:
        """Return the number of gradients per Hessian."""
        return 1 + len(self._alone) + len(self._groups)

    @cached_property
    def metric(self) -> Metric:
        """Return a metric with the pattern of Hessians."""
        return Metric.of(sp.csc_array(self._pattern + sp.diags_array(1.0 + self._pattern.sum(axis=0))))

    def __call__(self, density: Differentiable, theta: FloatArray) -> sp.csc_array:
        """Return minus the Hessian of a density with the same interactions, shape (dim, dim)."""
        rows: list[NDArray[Any]] = []
        columns: list[NDArray[Any]] = []
        values: list[FloatArray] = []
        here = self._gradient(density, theta)
        others = np.ones(self._dim, bool)
        others[self._alone] = False
        for k in self._alone:
            own, places = self._difference(density, theta, here, np.array([k])), self._places(k)
            same = np.full(len(places), k)
            rows += [places, same]
            columns += [same, places]
            halves = own[places] / np.where(others[places], 1, 2)  # entries given by two such columns are averaged
            values += [halves, halves]
        for group in self._groups:
            together = self._difference(density, theta, here, group)
            for k in group:
                places = self._places(k)
                places = places[others[places]]
                rows.append(places)
                columns.append(np.full(len(places), k))
                values.append(together[places])
        place = np.concatenate(rows), np.concatenate(columns)
        found = sp.coo_array((np.concatenate(values), place), shape=(self._dim, self._dim)).tocsc()
        return _without_rounding(sp.csc_array((found + found.T) / 2))

    def _places(self, k: int) -> NDArray[np.int32]:
        """Return the rows of a column."""
        return self._pattern.indices[self._pattern.indptr[k] : self._pattern.indptr[k + 1]]

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


def _fewest(pattern: sp.csc_array) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
    """Return columns with a difference of their own, and groups of the others, that make differences few."""
    order, most = _in_order(pattern)
    alone, groups = np.arange(pattern.shape[0]), list[NDArray[np.int64]]()
    for limit in 2 ** np.arange(int(most[-1]).bit_length() + 1):
        n = int(np.searchsorted(most, limit, side="right")) - 1
        rest = np.sort(order[n:])
        n_left = len(alone) + len(groups) - len(rest)
        if most[n] < n_left and (found := _groups(pattern, rest, n_left)) is not None:
            alone, groups = rest, found
    return alone, groups


def _in_order(pattern: sp.csc_array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return columns, those with the fewest entries in rows of earlier ones first, and the most entries of a row.

    The latter are of a row among the first n columns, in these: as many groups are necessary, and often more.
    """
    dim, sizes = pattern.shape[0], np.diff(pattern.indptr).tolist()
    chosen, counts, order, most = np.zeros(dim, bool), np.zeros(dim, int), list[int](), [0]
    queue = [(0, size, k) for k, size in enumerate(sizes)]
    heapq.heapify(queue)
    while queue:
        count, _, k = heapq.heappop(queue)
        if chosen[k] or count < counts[k]:
            continue
        rows = pattern.indices[pattern.indptr[k] : pattern.indptr[k + 1]]
        chosen[k] = True
        counts[rows] += 1
        order.append(k)
        most.append(max(most[-1], int(counts[rows[chosen[rows]]].max(initial=1))))
        for row in rows[~chosen[rows]].tolist():
            heapq.heappush(queue, (int(counts[row]), sizes[row], row))
    return np.array(order, np.int64), np.array(most)


def _groups(pattern: sp.csc_array, alone: NDArray[np.int64], most: int) -> list[NDArray[np.int64]] | None:
    """Return the other columns in groups without a common row, except for the rows of ``alone``; None if not fewer."""
    left = np.setdiff1d(np.arange(pattern.shape[0]), alone)
    own = sp.csr_array(pattern[left][:, left].astype(np.int32))
    near = sp.csr_array(own @ own.T)
    colours = np.full(len(left), -1)
    for k in range(len(left)):
        taken = set(colours[near.indices[near.indptr[k] : near.indptr[k + 1]]].tolist())
        colours[k] = next(colour for colour in range(len(left)) if colour not in taken)
        if colours[k] >= most - 1:
            return None
    return [left[colours == colour] for colour in range(colours.max(initial=-1) + 1)]


def _without_rounding(matrix: sp.csc_array) -> sp.csc_array:
    """Return the matrix without entries that are rounding compared with their diagonals."""
    found = matrix.tocoo()
    scale = np.sqrt(np.abs(matrix.diagonal()))
    keep = np.abs(found.data) > _ROUNDING * np.maximum(scale[found.row] * scale[found.col], 1e-12)
    return sp.csc_array((found.data[keep], (found.row[keep], found.col[keep])), shape=matrix.shape)
