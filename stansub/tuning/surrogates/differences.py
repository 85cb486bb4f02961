"""Hessians of densities in which most parameters do not interact, from few gradients.

Columns without a common row are differenced together (Curtis, Powell and Reid 1974). Some parameters have a difference
each, and their rows follow by symmetry: fixed effects and scales, which interact with many, and the smaller of two
crossed groupings.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.target.metric import Metric, has_directions
from stansub.target.separated import coloured
from stansub.target.split import Differentiable
from stansub.tuning.surrogates.interactions import STEP, without_rounding
from stansub.tuning.surrogates.sampler_runs import spread
from stansub.types import FloatArray

# Gradients of a Hessian from which it is averaged over fewer draws.
_FEW = 250


class Differences:
    """Minus the Hessian of a log density as a function of the position.

    Parameters
    ----------
    pattern : sparse array, shape (dim, dim)
        Which parameters interact (`stansub.tuning.surrogates.interactions`).
    check : callable, optional
        Called at intervals; may raise an exception to stop.
    """

    def __init__(self, pattern: sp.csc_array, check: Callable[[], None] = lambda: None) -> None:
        self._dim, self._check, self._pattern = pattern.shape[0], check, pattern
        self._alone, self._groups = _fewest(pattern)

    @property
    def n_gradients(self) -> int:
        """Return the number of gradients per Hessian."""
        return 1 + len(self._alone) + len(self._groups)

    @cached_property
    def pattern_metric(self) -> Metric:
        """Return a metric with the pattern of Hessians."""
        return Metric.of(sp.csc_array(self._pattern + sp.diags_array(1.0 + self._pattern.sum(axis=0))))

    @cached_property
    def _independent(self) -> list[NDArray[np.int64]] | None:
        """Return groups of columns that do not interact, if a factor is dear and these groups are few."""
        if not has_directions(self._pattern):
            return None
        return coloured(sp.csr_array(self._pattern), self.n_gradients // 2)

    def metric(self, density: Differentiable, points: FloatArray) -> Metric:
        """Return the metric of minus the mean Hessian over draws, shape (n, dim).

        Where its factor is dear, the diagonal and products are sufficient, and take fewer gradients than the Hessian.
        """
        if self._independent is not None:
            hessian = _MeanHessian(density, points, self._check)
            if few := Metric.along_directions(hessian.diagonal(self._independent), hessian.product):
                return few
        return Metric.of(self.mean(density, points))

    def mean(self, density: Differentiable, points: FloatArray) -> sp.csc_array:
        """Return minus the mean Hessian over draws, shape (dim, dim); over fewer if one takes many gradients.

        It is on average the covariance of the gradient, and so positive definite, while that of a few draws may not be.
        """
        if (few := len(points) * _FEW // self.n_gradients) < len(points):
            points = spread(points[::-1], max(few, 1))  # the last one, if it is one
        found = sp.csc_array((self._dim, self._dim))
        for theta in points:
            found = sp.csc_array(found + self(density, theta) / len(points))
        return found

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
        return without_rounding(sp.csc_array((found + found.T) / 2))

    def _places(self, k: int) -> NDArray[np.int32]:
        """Return the rows of a column."""
        return self._pattern.indices[self._pattern.indptr[k] : self._pattern.indptr[k + 1]]

    def _difference(
        self, density: Differentiable, theta: FloatArray, here: FloatArray, which: NDArray[np.int64]
    ) -> FloatArray:
        """Return the change of the gradient, each row over the step of the one parameter that affects it."""
        moved = theta.copy()
        moved[which] += STEP
        with np.errstate(invalid="ignore"):  # if gradients overflow
            return np.asarray((here - self._gradient(density, moved)) / STEP)

    def _gradient(self, density: Differentiable, theta: FloatArray) -> FloatArray:
        self._check()
        return density.log_density_gradient(theta)[1]


class _MeanHessian:
    """Products with minus the mean Hessian over draws, from one gradient a draw."""

    def __init__(self, density: Differentiable, points: FloatArray, check: Callable[[], None]) -> None:
        self._density, self._points, self._check = density, points, check
        self._gradient = self._mean_gradient(0.0)

    def product(self, direction: FloatArray) -> FloatArray:
        """Return the product with a vector."""
        step = STEP / np.abs(direction).max()
        return np.asarray((self._gradient - self._mean_gradient(step * direction)) / step)

    def diagonal(self, groups: Sequence[NDArray[np.int64]]) -> FloatArray:
        """Return the diagonal, from groups of columns that do not interact."""
        found = np.empty(self._points.shape[1])
        for group in groups:
            chosen = np.zeros(len(found))
            chosen[group] = 1.0
            found[group] = self.product(chosen)[group]
        return found

    def _mean_gradient(self, change: FloatArray | float) -> FloatArray:
        self._check()
        gradients = [self._density.log_density_gradient(theta + change)[1] for theta in self._points]
        return np.asarray(np.mean(gradients, axis=0))


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
    groups = coloured(sp.csr_array(own @ own.T), most - 1)
    return None if groups is None else [left[group] for group in groups]
