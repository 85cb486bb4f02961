"""Coordinates of the coefficients of a level that do not compensate each other.

An intercept and a slope of a covariate far from 0 change together, almost without a change of the predictors of their
level. With the level's precision H = L D L', in which L has ones on its diagonal, a change x has the coordinates
y = L' x, by which the expansion is a sum of squares: an intercept becomes that at the mean of the covariate, weighted
by curvature, and a slope changes the predictors about this mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.target.groupings import Pairs, joined_columns
from stansub.target.sparse import Column, SparsePredictors, slices
from stansub.types import FloatArray


@dataclass(frozen=True)
class Elimination:
    """y_i = x_i + sum of shares times x_j, over coefficients j after i in the order of a level."""

    into: NDArray[np.int32]
    others: NDArray[np.int32]
    """Shape (k,): places i and j."""
    shares: FloatArray
    """Shape (k,)."""

    @classmethod
    def none(cls) -> Elimination:
        """Return coordinates that are the changes themselves."""
        return cls(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0))

    @classmethod
    def of(
        cls,
        predictors: SparsePredictors,
        levels: Sequence[Pairs],
        precision: sp.csr_array,
        variances: FloatArray,
        share: float,
    ) -> Elimination:
        """Return the coordinates for an expansion.

        Parameters
        ----------
        levels : sequence of Pairs
            All pairs of coefficients (`stansub.target.groupings.pairs`).
        precision : csr_array, shape (m, m)
            That of the likelihood.
        variances : ndarray, shape (m,)
            Those of draws; levels with coefficients of variance 0 are left as they are.
        share : float
            What is added to the likelihood's precision, relative to that of the draws.
        """
        found = [cls.none()]
        for places in _levels(predictors, levels):
            own = places[:, (variances[places] > 0).all(axis=0)]
            n, moved = len(own), np.moveaxis(own, 0, -1)
            rows, columns = np.broadcast_arrays(moved[:, :, np.newaxis], moved[:, np.newaxis, :])
            matrices = np.reshape(precision[rows.ravel(), columns.ravel()], (-1, n, n))
            matrices += np.eye(n) * (share / variances[moved])[:, np.newaxis]
            proper = np.flatnonzero(np.isfinite(matrices).all(axis=(1, 2)))
            proper = proper[np.linalg.eigvalsh(matrices[proper])[:, 0] > 0]
            roots = np.linalg.cholesky(matrices[proper])
            for j, i in zip(*np.tril_indices(n, -1), strict=True):
                into, others = own[:, proper][[i, j]].astype(np.int32)
                found.append(cls(into, others, roots[:, j, i] / roots[:, i, i]))
        return cls(
            np.concatenate([one.into for one in found]),
            np.concatenate([one.others for one in found]),
            np.concatenate([one.shares for one in found]),
        )

    def __call__(self, x: FloatArray) -> FloatArray:
        """Return y, shape (m,)."""
        return np.asarray(x + np.bincount(self.into, self.shares * x[self.others], minlength=len(x)), np.float64)

    def back(self, slopes: FloatArray) -> FloatArray:
        """Return the gradient by x from that by y, shape (m,)."""
        added = np.bincount(self.others, self.shares * slopes[self.into], minlength=len(slopes))
        return np.asarray(slopes + added, np.float64)

    def inverse(self, m: int) -> sp.csr_array:
        """Return the matrix from y to x, shape (m, m)."""
        power = sp.csr_array((-self.shares, (self.into, self.others)), shape=(m, m))
        found, step = sp.eye_array(m) + power, power
        while (power := sp.csr_array(power @ step)).nnz:
            found = found + power
        return sp.csr_array(found)


def _levels(predictors: SparsePredictors, levels: Sequence[Pairs]) -> Iterator[NDArray[np.int64]]:
    """Yield places of coefficients that the same observations read in one argument, shape (n, n_levels).

    Columns that share coefficients have none: a level would overlap another, as a team's matches with two others do.
    """
    found, joined = dict[tuple[int, int], list[NDArray[np.int64]]](), set[tuple[int, int]]()
    groupings = [(k, one.which) for k, row in enumerate(predictors.rows) for one in joined_columns(row)]
    alone = {(k, which[0]) for k, which in groupings if len(which) == 1}
    for one in levels:
        (k, other_k), (i, j) = one.arguments, one.columns
        if k != other_k or not {(k, i), (k, j)} <= alone or (k, i) in joined:
            continue
        if not _is_one_to_one(one) or not _read_together(*one.of(predictors)):
            continue
        joined.add((k, j))
        found.setdefault((k, i), [one.places[0]]).append(one.places[1])
    yield from map(np.stack, found.values())


def _is_one_to_one(level: Pairs) -> bool:
    return all(len(np.unique(places)) == len(places) for places in level.places)


def _read_together(one: Column, other: Column) -> bool:
    """Return whether each observation reads both or neither."""
    parts = slices(len(one.places))
    return all(np.array_equal(one.places[rows] >= 0, other.places[rows] >= 0) for rows in parts)
