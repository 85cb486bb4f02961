"""Terms of third and fourth order along directions that all observations share.

Common coefficients, such as an intercept, slopes, the logarithm of a residual standard deviation or the shape of a
negative binomial, change the curvature of all others. Their products with the squares of m other changes z have a sum
whose standard deviation grows with the square root of m. Corrections of a surrogate's expansion are therefore functions
of coordinates y of a change:

- changes of common coefficients become standardised directions u, sorted by how much the expansion omits along them;
- from the others, their mean change given u under the likelihood alone is subtracted: an intercept that grows by 1
  lets each level's effect fall by 1. What is left for a level are changes of its own arguments, and a direction leaves
  these as they are;
- the coefficients of a level, such as an intercept and a slope, become coordinates that do not compensate each other
  (`stansub.target.elimination`).

Along u_k the expansion's precision P changes. With derivatives A_k = -dP / du_k and B_k = -d^2 P / du_k^2 by these
coordinates, the terms are

    sum_k b_k y' A_k y / 2 + b_k^2 y' B_k y / 4,

where b_k is u_k with a limit, so that the surrogate stays a distribution. Products with several u belong to several
terms; each element of A_k and B_k has the share that makes the sum that of the Taylor series. Fourth derivatives by two
different u are omitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.target.conjugate_gradients import solutions
from stansub.target.elimination import Elimination
from stansub.target.groupings import Means, Pairs, Recentred, joined_columns
from stansub.target.sparse import SparsePredictors
from stansub.types import FloatArray

Real = TypeVar("Real", float, FloatArray)

# In sds: nodes on either side of the point; sizes of u beyond which b, and of coordinates beyond which functions of two
# of them, are nearly constant.
_NODE, REACH, LIMIT = 1.5, 4.0, 6.0
# Elements of a grouping up to which they are common coefficients; most common coefficients; most directions, because
# each makes a gradient of the surrogate dearer; sd of what is omitted below which a direction has no terms.
_FEW, _MOST, _DIRECTIONS, _LITTLE = 4, 32, 8, 0.01
# Eigenvalue of the correlations of common coefficients below which they do not change in this direction.
_FIXED = 1e-8
# Precision beside the likelihood's in the mean changes of other coefficients, relative to that of the draws. It decides
# what the likelihood does not, such as which of two crossed groupings moves.
_BESIDE = 0.1


@dataclass(frozen=True)
class Frame:
    """Coordinates y of changes of phi."""

    means: Means
    """Weighted means that are subtracted first: shifts that cancel in every predictor."""
    common: NDArray[np.int32]
    """Shape (c,): places of the common coefficients, whose coordinates are u."""
    inward: FloatArray
    """Shape (c, c): from changes of common coefficients to u."""
    along: FloatArray
    """Shape (m, c): mean changes of the others for a unit of u under the likelihood; 0 for common coefficients."""
    within: Elimination
    """Coordinates of the coefficients of a level."""

    @classmethod
    def plain(cls, means: Means) -> Frame:
        """Return the frame without directions, which subtracts means only."""
        m = len(means.of)
        return cls(means, np.empty(0, np.int32), np.empty((0, 0)), np.empty((m, 0)), Elimination.none())

    def __call__(self, change: FloatArray) -> FloatArray:
        """Return y, shape (m,)."""
        y = self.means.removed(change)
        u = self.inward @ y[self.common]
        y -= self.along @ u
        y[self.common] = u
        return self.within(y)

    def back(self, slopes: FloatArray) -> FloatArray:
        """Return the gradient by changes of phi from that by y, shape (m,)."""
        slopes = self.within.back(slopes)
        found = slopes.copy()
        found[self.common] = self.inward.T @ (slopes[self.common] - self.along.T @ slopes)
        of_means = np.bincount(self.means.of, found, minlength=self.means.n).astype(float)
        return np.asarray(found - self.means.back(of_means, len(found)), np.float64)

    @property
    def outward(self) -> sp.csr_array:
        """Return the matrix from y to changes of phi, shape (m, m)."""
        m, c = self.along.shape
        columns = self.along.copy()
        columns[self.common] = np.linalg.pinv(self.inward)
        rows, places = np.repeat(np.arange(m), c), np.tile(self.common, m)
        others = (~np.isin(np.arange(m), self.common)).astype(float)
        found = sp.diags_array(others) + sp.csr_array((columns.ravel(), (rows, places)), shape=(m, m))
        return sp.csr_array(found @ self.within.inverse(m))


@dataclass(frozen=True)
class DirectionalTerms:
    """The terms of the first r directions; all matrices share their places of entries."""

    means: FloatArray
    """Shape (r,): means of y' A_k y / 2, which are subtracted. Their part of a term is linear in u_k and would, since
    it ends at the limit, leave another mode beyond. A slope represents it (`stansub.target.approximation`).
    """
    values: FloatArray
    """Shape (2 r, n_entries): entries of each A_k, then those of each B_k, by rows."""
    columns: NDArray[np.int32]
    starts: NDArray[np.int32]
    """Columns of the entries, and the start of each row."""

    @classmethod
    def none(cls, m: int) -> DirectionalTerms:
        """Return no terms."""
        return cls(np.empty(0), np.empty((0, 0)), np.empty(0, np.int32), np.zeros(m + 1, np.int32))

    @classmethod
    def of(cls, cubic: Sequence[sp.csr_array], quartic: Sequence[sp.csr_array], ys: FloatArray) -> DirectionalTerms:
        """Return terms with these matrices and their means over coordinates ``ys``, shape (n, m)."""
        means = [np.mean(np.sum(ys * (ys @ one), axis=1)) / 2 for one in cubic]
        return cls(np.array(means), *_in_same_places([*cubic, *quartic]))

    @cached_property
    def matrices(self) -> list[sp.csr_array]:
        """Return each A_k, then each B_k."""
        m = len(self.starts) - 1
        return [sp.csr_array((own, self.columns, self.starts), shape=(m, m)) for own in self.values]

    def value(self, y: FloatArray, u: FloatArray) -> float:
        """Return the sum."""
        b, _ = limited(u[: len(self.means)], REACH)
        cubic, quartic = np.split(np.array([y @ (one @ y) for one in self.matrices]), 2)
        return float(b @ (cubic / 2 - self.means) + b**2 @ quartic / 4)

    def gradient(self, y: FloatArray, u: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the gradient by y other than through b, shape (m,), and that by u through b, shape (r,)."""
        b, slopes = limited(u[: len(self.means)], REACH)
        products = np.reshape([one @ y for one in self.matrices], (-1, len(y)))
        cubic, quartic = np.split(products @ y, 2)
        through = slopes * (cubic / 2 - self.means + b * quartic / 2)
        return np.concatenate([b, b**2 / 2]) @ products, through


def common_coefficients(predictors: SparsePredictors) -> NDArray[np.int64]:
    """Return the places of common coefficients; if these are many, those of arguments that read few of them."""
    found = list[set[int]]()
    for row in predictors.rows:
        groupings = [one.places.tolist() for one in joined_columns(row)]
        found.append({*row.places.tolist(), *(k for own in groupings if len(own) <= _FEW for k in own)})
    every = set().union(*found)
    chosen = every if len(every) <= _MOST else set().union(*(own for own in found if len(own) <= _FEW))
    return np.array(sorted(chosen) if len(chosen) <= _MOST else [], np.int64)


def coordinates(
    predictors: SparsePredictors,
    levels: Sequence[Pairs],
    point: FloatArray,
    precision: sp.csr_array,
    phis: Sequence[FloatArray],
) -> Frame:
    """Return coordinates in which common coefficients are themselves.

    Parameters
    ----------
    levels : sequence of Pairs
        All pairs of coefficients (`stansub.target.groupings.pairs`).
    point : ndarray, shape (m,)
        The expansion point.
    precision : csr_array, shape (m, m)
        The expansion's precision.
    phis : sequence of ndarray, shape (m,)
        Arguments at draws of a surrogate.
    """
    means, common = Recentred(predictors, point).means(), common_coefficients(predictors)
    changes = np.array([means.removed(phi - point) for phi in phis])
    variances = changes.var(axis=0)
    along = _mean_changes(variances, precision, common)
    variances[common] = 0.0
    return _frame(means, common, along, Elimination.of(predictors, levels, precision, variances, _BESIDE))


def directional(
    predictors: SparsePredictors, point: FloatArray, precision: sp.csr_array, phis: Sequence[FloatArray], frame: Frame
) -> tuple[Frame, DirectionalTerms, int]:
    """Return coordinates, terms, and the passes over the data that they took; parameters as of `coordinates`."""
    means, common = frame.means, frame.common.astype(np.int64)
    changes = np.array([means.removed(phi - point) for phi in phis])
    along = np.empty((len(point), 0))
    if len(changes) > 2 * len(common) > 0:
        along = frame.outward[:, common].toarray() @ _directions(changes[:, common])

    def precisions(along: FloatArray) -> list[tuple[sp.csr_array, sp.csr_array]]:
        nodes = [point + s * _NODE * one for one in along.T for s in (1, -1)]
        found = [one.precision for one in predictors.expansions(nodes)]
        return list(zip(found[::2], found[1::2], strict=True))

    first = [(up - down) / (-2 * _NODE) for up, down in precisions(along)]
    omitted = np.reshape([np.sum(changes * (changes @ one), axis=1) / 2 for one in first], (-1, len(changes)))
    none = DirectionalTerms.none(len(point))
    if not along.size or not np.isfinite(omitted).all():
        return frame, none, 2 * along.shape[1]
    variances, turn = np.linalg.eigh(np.atleast_2d(np.cov(omitted)))
    turn = turn[:, ::-1]
    n = min(int(np.count_nonzero(variances > _LITTLE**2)), _DIRECTIONS)
    if not n:
        return frame, none, 2 * along.shape[1]
    frame = _frame(means, common, along @ turn, frame.within)
    cubic, quartic = list[sp.csr_array](), list[sp.csr_array]()
    outward, shares = frame.outward, _Shares(len(point), common[:n])
    for k, (up, down) in enumerate(precisions(along @ turn[:, :n])):
        cubic.append(shares.cubic(outward.T @ ((up - down) / (-2 * _NODE)) @ outward))
        quartic.append(shares.quartic(k, outward.T @ ((up + down - 2 * precision) / -(_NODE**2)) @ outward))
    ys = np.array([frame(phi - point) for phi in phis])
    return frame, DirectionalTerms.of(cubic, quartic, ys), 2 * (along.shape[1] + n)


def _directions(changes: FloatArray) -> FloatArray:
    """Return changes of the common coefficients for a unit of each standardised direction, shape (c, c')."""
    sds = changes.std(axis=0)
    scaled = (changes - changes.mean(axis=0)) / np.where(sds > 0, sds, 1.0)
    eigenvalues, axes = np.linalg.eigh(scaled.T @ scaled / len(changes))
    moves = eigenvalues > _FIXED
    return np.asarray(sds[:, np.newaxis] * axes[:, moves] * np.sqrt(eigenvalues[moves]))


def _mean_changes(variances: FloatArray, precision: sp.csr_array, common: NDArray[np.int64]) -> FloatArray:
    """Return mean changes of all coefficients for a unit of each common one under the likelihood, shape (m, c).

    ``variances`` are those of the coefficients over draws.
    """
    m = len(variances)
    others = np.setdiff1d(np.flatnonzero(variances), common)
    found = np.zeros((m, len(common)))
    found[common] = np.eye(len(common))
    if others.size and common.size:
        beside = sp.diags_array(_BESIDE / variances[others])
        together = sp.csc_array(precision[others][:, common]).toarray()
        found[others] = -solutions(sp.csc_array(precision[others][:, others] + beside), together)
    return found


def _frame(means: Means, common: NDArray[np.int64], along: FloatArray, within: Elimination) -> Frame:
    """Return the frame with these directions; common coefficients do not change in others."""
    full = np.zeros((len(along), len(common)))
    full[:, : along.shape[1]] = along
    inward = np.asarray(np.linalg.pinv(full[common]), np.float64)
    full[common] = 0.0
    return Frame(means, common.astype(np.int32), inward, full, within)


class _Shares:
    """Shares of elements of A_k and B_k, of which products with several u have several.

    Parameters
    ----------
    places : ndarray, shape (r,)
        Places of the directions with terms.
    """

    def __init__(self, m: int, places: NDArray[np.int64]) -> None:
        self._places, self._has = places, np.zeros(m)
        self._has[places] = 1.0

    def cubic(self, matrix: sp.csr_array) -> sp.csr_array:
        """Return A_k with its shares: 1 / (1 + the number of u among both indices)."""
        own = sp.coo_array(matrix)
        return _with(own, own.data / (1 + self._has[own.row] + self._has[own.col]))

    def quartic(self, k: int, matrix: sp.csr_array) -> sp.csr_array:
        """Return B_k with its shares: 1 / 3 and 1 / 6 if one or both indices are k, 1 / 2 for another u's square."""
        own = sp.coo_array(matrix)
        n_own = (own.row == self._places[k]).astype(int) + (own.col == self._places[k])
        share = np.array([1.0, 1 / 3, 1 / 6])[n_own]
        share[(own.row == own.col) & (self._has[own.row] > 0) & (n_own == 0)] = 0.5
        return _with(own, own.data * share)


def _with(matrix: sp.coo_array, values: FloatArray) -> sp.csr_array:
    return sp.csr_array(sp.coo_array((values, (matrix.row, matrix.col)), shape=matrix.shape))


def _in_same_places(matrices: Sequence[sp.csr_array]) -> tuple[FloatArray, NDArray[np.int32], NDArray[np.int32]]:
    """Return the entries of each matrix wherever one of them has one, with their columns and the starts of rows."""
    ones = [sp.csr_array((np.ones(one.nnz), one.indices, one.indptr), one.shape) for one in matrices]
    places = sp.csr_array(sum(ones[1:], start=ones[0]))
    places.sort_indices()
    codes, values = _codes(places), np.zeros((len(matrices), places.nnz))
    for own, one in zip(values, matrices, strict=True):
        own[np.searchsorted(codes, _codes(one))] = one.data
    return values, places.indices.astype(np.int32), places.indptr.astype(np.int32)


def _codes(matrix: sp.csr_array) -> NDArray[np.int64]:
    """Return the places of the entries as numbers, by rows."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return np.asarray(rows * matrix.shape[1] + matrix.indices, np.int64)


def limited(x: Real, most: float) -> tuple[Real, Real]:
    """Return x (1 + (x / most)^8)^(-1/8) and its derivative; inside the limit, it is nearly x."""
    root = (1 + (x / most) ** 8) ** -0.125
    return x * root, root**9
