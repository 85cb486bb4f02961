"""Means of effects that are linear functions of other parameters, and may have means themselves.

Effects of classes may be normal about those of their schools, and these about a regression on the schools' sizes.
Formulas: ``cpp/prior_means.hpp``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.types import FloatArray

Places = NDArray[np.int32]


@dataclass(frozen=True)
class PriorMeans:
    """x = theta - D theta, where each row of D gives the mean of one effect."""

    dim: int
    places: Places
    """The effects with means; each stands after those that its mean reads."""
    starts: Places
    columns: Places
    values: FloatArray
    """Their rows of D, in compressed row format."""

    @classmethod
    def none(cls, dim: int) -> PriorMeans:
        """Return means that are 0."""
        return cls.of(sp.csr_array((dim, dim)))

    @classmethod
    def of(cls, matrix: sp.csr_array) -> PriorMeans:
        """Return means given D, shape (dim, dim).

        Raises
        ------
        ValueError
            If an effect's mean depends on the effect.
        """
        dim = matrix.shape[0]
        depth, below, sizes = np.zeros(dim, np.int64), np.ones(dim, bool), abs(matrix)
        for k in range(dim + 1):
            if not below.any():
                break
            depth[below] = k
            below = sizes @ below > 0
        else:
            raise ValueError("the mean of an effect depends on this effect")
        places = np.flatnonzero(depth)
        places = places[np.argsort(depth[places], kind="stable")]
        rows = sp.csr_array(matrix[places])
        rows.eliminate_zeros()
        starts, columns = (one.astype(np.int32) for one in (rows.indptr, rows.indices))
        return cls(dim, places.astype(np.int32), starts, columns, rows.data.astype(np.float64))

    @property
    def arrays(self) -> tuple[Places, Places, Places, FloatArray]:
        """Return the effects and their rows of D."""
        return self.places, self.starts, self.columns, self.values

    @property
    def matrix(self) -> sp.csr_array:
        """Return D."""
        rows = np.repeat(self.places, np.diff(self.starts))
        return sp.csr_array(sp.coo_array((self.values, (rows, self.columns)), shape=(self.dim, self.dim)))

    @property
    def inverse(self) -> sp.csr_array:
        """Return the matrix that maps x to theta."""
        power, found = sp.eye_array(self.dim, format="csr"), sp.csr_array((self.dim, self.dim))
        while power.nnz:
            found, power = found + power, sp.csr_array(power @ self.matrix)
            power.eliminate_zeros()
        return sp.csr_array(found)

    def removed(self, theta: FloatArray) -> FloatArray:
        """Return x, shape (dim,) or (n, dim), given theta."""
        return np.asarray(theta - theta @ self.matrix.T)

    def joined(self, other: PriorMeans) -> PriorMeans:
        """Return these means and those of other effects."""
        return PriorMeans.of(sp.csr_array(self.matrix + other.matrix))

    def scaled(self, factors: FloatArray) -> PriorMeans:
        """Return means times a factor for each effect, shape (dim,)."""
        return PriorMeans.of(sp.csr_array(sp.diags_array(factors) @ self.matrix))
