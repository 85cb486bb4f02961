"""Search for inner coordinates that suit a posterior, from how the likelihood's arguments depend on parameters.

Effects z with phi = S z, where other parameters determine the matrix S, form a narrow curved ridge with those
parameters if the data are informative about phi; u = S z does not. If the data are uninformative, z itself is better.
Each block therefore has a weight w between 0 and 1, which multiplies the functions that S is made of: w = 0 is z, w = 1
is u. The weight is the share of the posterior precision of z that comes from the data.

The search does not read the program's text: evaluations of phi, which need no data, determine S, and random points
prove it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.errors import RunError
from stansub.target.coordinates import Coordinates
from stansub.types import FloatArray

Map = Callable[[FloatArray], FloatArray]
Places = NDArray[np.int64]

# Distance of points from the first, and number of points for the proof.
_SPREAD, _PROVED = 0.5, 3
# Relative changes below which a value is constant, and by which functions may differ.
_ROUNDING, _SAME = 1e-9, 1e-6


@dataclass(frozen=True)
class Effects:
    """Blocks of effects z that a matrix S of other parameters maps to arguments of the likelihood, phi = S z + ....

    Attributes
    ----------
    full : Coordinates
        Coordinates with S z in their place.
    rows : ndarray of int64
        The arguments to which S maps each effect, ordered as `Coordinates.places`.
    """

    full: Coordinates
    rows: Places

    @property
    def n_blocks(self) -> int:
        """Return the number of blocks."""
        return len(self.full.sizes)

    def weighted(self, weights: FloatArray) -> Coordinates:
        """Return coordinates with a weight for each block, shape (n_blocks,)."""
        full = self.full
        own = np.repeat(weights, full.sizes * (full.sizes + 1) // 2)
        by_entry = np.repeat(own, np.diff(full.starts))
        parts = full.dim, full.sizes, full.places, full.starts, full.columns
        return Coordinates(*parts, full.coefficients * by_entry, full.constants * own)

    def matching(self, precision: sp.csr_array, points: FloatArray) -> Coordinates:
        """Return coordinates that suit a precision of the likelihood in its arguments.

        Parameters
        ----------
        precision : csr_array, shape (m, m)
        points : ndarray, shape (n, dim)
            Draws over which the shares of precision are averaged.
        """
        if self.full.is_plain:
            return self.full
        sizes = self.full.sizes
        block = np.full(precision.shape[0], -1)
        block[self.rows] = np.repeat(np.arange(len(sizes)), sizes)
        entries = precision.tocoo()
        same = (block[entries.row] == block[entries.col]) & (block[entries.row] >= 0)
        own = sp.csr_array((entries.data[same], (entries.row[same], entries.col[same])), shape=precision.shape)
        first, shares = np.cumsum(sizes) - sizes, np.zeros(len(sizes))
        for theta in points:
            for slot in range(sizes.max(initial=0)):
                some = np.flatnonzero(sizes > slot)
                unit = theta.copy()
                unit[self.full.places] = 0
                unit[self.full.places[first[some] + slot]] = 1
                column = np.zeros(len(block))
                column[self.rows] = self.full.inward(unit)[self.full.places]
                products = np.bincount(block[self.rows], (column * (own @ column))[self.rows])[some]
                informed = np.maximum(products, 0.0)
                shares[some] += informed / (1 + informed) / sizes[some]
        return self.weighted(shares / len(points))


def find_effects(
    phi: Map, start: FloatArray, rng: np.random.Generator, check: Callable[[], None] = lambda: None
) -> Effects:
    """Return blocks of effects, proved at random points; there are none if phi is affine.

    Parameters
    ----------
    phi : callable
        From parameters to arguments of the likelihood, shape (m,).
    start : ndarray, shape (dim,)
        A point near which phi is defined.
    check : callable, optional
        Called at each evaluation; may raise an exception to stop.
    """

    def checked(theta: FloatArray) -> FloatArray:
        check()
        return phi(theta)

    none = Effects(Coordinates.plain(len(start)), np.empty(0, np.int64))
    try:
        if not _changes(checked, start, rng.standard_normal(len(start))).any():
            return none
        effects, others, reads = _kinds(checked, start, rng)
        blocks = _blocks(reads)
        return _proved(checked, start, rng, effects, others, blocks) if blocks else none
    except RunError:  # phi is not defined there
        return none


def _changes(phi: Map, at: FloatArray, step: FloatArray) -> NDArray[np.bool_]:
    """Return which arguments are not affine along a step, shape (m,)."""
    values = np.array([phi(at - 0.5 * step), phi(at), phi(at + 0.5 * step)])
    return np.asarray(np.abs(values[0] - 2 * values[1] + values[2]) > _ROUNDING * (1 + np.abs(values).max(axis=0)))


def _kinds(phi: Map, start: FloatArray, rng: np.random.Generator) -> tuple[Places, Places, sp.csc_array]:
    """Return parameters of three kinds with respect to phi.

    They are the parameters in which phi is affine with slopes that others change, those in which it is not affine, and
    the arguments that the first reach, shape (m, n_effects).
    """
    dim = len(start)
    here, there = start + rng.uniform(-_SPREAD, _SPREAD, (2, dim))
    bases = phi(here), phi(there)
    effects, others, reached = [], [], []
    for k in range(dim):
        unit = np.zeros(dim)
        unit[k] = 1.0
        first, second = phi(here + unit) - bases[0], phi(there + unit) - bases[1]
        if np.abs(first - second).max() <= _ROUNDING * (1 + np.abs(first).max()):
            continue
        if _changes(phi, here, unit).any():
            others.append(k)
        else:
            effects.append(k)
            reached.append(sp.csc_array((np.abs(first) + np.abs(second) > _ROUNDING)[:, np.newaxis]))
    reads = sp.csc_array(sp.hstack(reached)) if reached else sp.csc_array((len(bases[0]), 0))
    return np.array(effects, np.int64), np.array(others, np.int64), reads


def _blocks(reads: sp.csc_array) -> list[tuple[Places, Places]]:
    """Return effects, by index, with an equal number of arguments that they alone reach."""
    m, n = reads.shape
    entries = reads.tocoo()
    graph = sp.csr_array((np.ones(entries.nnz), (entries.row, m + entries.col)), shape=(m + n, m + n))
    _, labels = sp.csgraph.connected_components(graph, directed=False)
    own = {label: np.flatnonzero(labels[m:] == label) for label in np.unique(labels[m:])}
    rows = {label: np.flatnonzero(labels[:m] == label) for label in own}
    return [(own[label], rows[label]) for label in own if len(own[label]) == len(rows[label])]


class _Matrices:
    """S of all blocks as a function of the parameters."""

    def __init__(self, phi: Map, effects: Places, blocks: list[tuple[Places, Places]]) -> None:
        self._phi = phi
        self._places, self._rows = [effects[own] for own, _ in blocks], [rows for _, rows in blocks]
        self.sizes = np.array([len(rows) for rows in self._rows])

    def __call__(self, theta: FloatArray) -> list[FloatArray]:
        """Return the matrices, shape (size, size) each."""
        base, found = self._phi(theta), [np.zeros((k, k)) for k in self.sizes]
        for slot in range(self.sizes.max()):
            shifted = theta.copy()
            for places in self._places:
                shifted[places[slot : slot + 1]] += 1
            column = self._phi(shifted) - base
            for matrix, rows in zip(found, self._rows, strict=True):
                if slot < len(rows):
                    matrix[:, slot] = column[rows]
        return found

    def functions(self, theta: FloatArray) -> list[FloatArray]:
        """Return the functions of the lower triangles, shape (size (size + 1) / 2,) each; NaN if not triangular."""
        return [_functions(matrix) for matrix in self(theta)]


def _functions(matrix: FloatArray) -> FloatArray:
    """Return logarithms of rows' norms, and inverse hyperbolic tangents of partial correlations, by rows."""
    k = len(matrix)
    if np.abs(np.triu(matrix, 1)).max(initial=0) > _ROUNDING or not (np.diag(matrix) > 0).all():
        return np.full(k * (k + 1) // 2, np.nan)
    found = []
    for i, row in enumerate(matrix):
        rests = np.sqrt(np.cumsum(row[i::-1] ** 2))[::-1]  # norms of the rest of each row from each entry on
        found += [*np.arctanh(row[:i] / rests[:i]), np.log(rests[0])]
    return np.array(found)


def _proved(
    phi: Map,
    start: FloatArray,
    rng: np.random.Generator,
    effects: Places,
    others: Places,
    blocks: list[tuple[Places, Places]],
) -> Effects:
    """Return the blocks whose functions are affine at random points."""
    matrices = _Matrices(phi, effects, blocks)
    here = matrices.functions(start)
    slopes = [np.zeros((len(own), len(others))) for own in here]
    for k, which in enumerate(others):
        moved = start.copy()
        moved[which] += _SPREAD
        for slope, own, there in zip(slopes, here, matrices.functions(moved), strict=True):
            slope[:, k] = (there - own) / _SPREAD
    keep = [bool(np.isfinite(own).all() and np.isfinite(slope).all()) for own, slope in zip(here, slopes, strict=True)]
    for _ in range(_PROVED):
        theta = start + rng.uniform(-_SPREAD, _SPREAD, len(start))
        for j, there in enumerate(matrices.functions(theta)):
            gap = there - here[j] - slopes[j] @ (theta - start)[others]
            keep[j] = keep[j] and bool(np.abs(gap).max() < _SAME)
    kept = [j for j, good in enumerate(keep) if good]
    if not kept:
        return Effects(Coordinates.plain(len(start)), np.empty(0, np.int64))
    coefficients = np.concatenate([slopes[j] for j in kept])
    coefficients[np.abs(coefficients) < _SAME] = 0
    rows = sp.csr_array(coefficients)
    constants = np.concatenate([here[j] for j in kept]) - coefficients @ start[others]
    full = Coordinates(
        len(start),
        matrices.sizes[kept].astype(np.int32),
        np.concatenate([effects[blocks[j][0]] for j in kept]).astype(np.int32),
        rows.indptr.astype(np.int32),
        others[rows.indices].astype(np.int32),
        rows.data,
        constants,
    )
    return Effects(full, np.concatenate([blocks[j][1] for j in kept]))
