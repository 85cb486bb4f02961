"""Inner coordinates: u = S z replaces effects z that a scale multiplies, which avoids a curved ridge.

A kernel for a density p moves in coordinates x(theta) with the density p(theta(x)) |d theta / d x|. The coordinates
change its moves but not its stationary distribution. Formulas: ``cpp/coordinates.hpp``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub import _loop
from stansub.target.prior_means import PriorMeans
from stansub.target.soft_minima import SoftMinima
from stansub.types import FloatArray


@dataclass(frozen=True)
class Combination:
    """Constant linear map of effects, v = A u, and its inverse, u = R v: of the steps of a random walk to its levels.

    Where many observations read many of the effects, and each reads one of the combinations, a precision is dense in
    u but sparse in v.
    """

    column_starts: NDArray[np.int32]
    column_places: NDArray[np.int32]
    column_values: FloatArray
    """A in compressed columns."""
    row_starts: NDArray[np.int32]
    row_places: NDArray[np.int32]
    row_values: FloatArray
    """R in compressed rows."""

    @classmethod
    def none(cls) -> Combination:
        """Return the map v = u, without entries."""
        nothing = np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0)
        return cls(*nothing, *nothing)

    @classmethod
    def of(cls, columns: sp.csc_array, rows: sp.csr_array) -> Combination:
        """Return the map of a matrix and its inverse."""
        parts = [(one.indptr.astype(np.int32), one.indices.astype(np.int32), one.data) for one in (columns, rows)]
        return cls(*parts[0], *parts[1])

    @property
    def is_none(self) -> bool:
        """Return whether v = u."""
        return not len(self.column_starts)

    @property
    def columns(self) -> tuple[NDArray[np.int32], NDArray[np.int32], FloatArray]:
        """Return A in compressed columns."""
        return self.column_starts, self.column_places, self.column_values

    @property
    def rows(self) -> tuple[NDArray[np.int32], NDArray[np.int32], FloatArray]:
        """Return R in compressed rows."""
        return self.row_starts, self.row_places, self.row_values


@dataclass(frozen=True)
class Coordinates:
    """Blocks of effects z replaced by u = S z, or u by z, with S lower triangular and a function of other parameters.

    Row i of S has the norm exp(f_ii) and the partial correlations tanh(f_ij), j < i; each f is a soft minimum of affine
    functions. Effects may be parameters less their means. What this gives may be combined by a constant map.
    """

    dim: int
    sizes: NDArray[np.int32]
    places: NDArray[np.int32]
    divided: NDArray[np.uint8]
    """Shape (n_blocks,): whether the parameters of a block are u."""
    counts: NDArray[np.int32]
    starts: NDArray[np.int32]
    columns: NDArray[np.int32]
    coefficients: FloatArray
    constants: FloatArray
    """The functions f, block by block and by rows of lower triangles: how many affine functions each is the minimum of,
    and these in compressed row format.
    """
    means: PriorMeans
    combination: Combination = field(default_factory=Combination.none)

    @classmethod
    def plain(cls, dim: int) -> Coordinates:
        """Return coordinates that are the parameters themselves."""
        none = np.empty(0, np.int32)
        return cls.of(none, none, SoftMinima.none(dim))

    @classmethod
    def of(
        cls,
        sizes: NDArray[np.integer],
        places: NDArray[np.integer],
        functions: SoftMinima,
        *,
        divided: NDArray[np.bool_] | None = None,
        means: PriorMeans | None = None,
        combination: Combination | None = None,
    ) -> Coordinates:
        """Return coordinates with these functions f, about means, divided and combined if these are given."""
        which = np.zeros(len(sizes), bool) if divided is None else divided
        rows, blocks = functions.rows, (sizes.astype(np.int32), places.astype(np.int32), which.astype(np.uint8))
        counts, starts, columns = (one.astype(np.int32) for one in (functions.counts, rows.indptr, rows.indices))
        dim, constants = rows.shape[1], functions.constants
        means, combination = means or PriorMeans.none(dim), combination or Combination.none()
        return cls(dim, *blocks, counts, starts, columns, rows.data, constants, means, combination)

    @property
    def functions(self) -> SoftMinima:
        """Return the functions f."""
        parts = self.coefficients, self.columns, self.starts
        rows = sp.csr_array(parts, shape=(len(self.constants), self.dim))
        return SoftMinima(self.counts.astype(np.int64), rows, self.constants)

    @property
    def is_plain(self) -> bool:
        """Return whether they are the parameters themselves."""
        return not len(self.sizes) and self.combination.is_none

    def compiled(self) -> _loop.Coordinates:
        """Return the coordinates for the sampler, for one thread."""
        functions = self.counts, self.starts, self.columns, self.coefficients, self.constants
        maps = *self.means.arrays, *self.combination.columns, *self.combination.rows
        parts = self.sizes, self.places, self.divided, *functions, *maps
        return _loop.Coordinates(*parts, self.dim)

    def inward(self, theta: FloatArray) -> FloatArray:
        """Return inner coordinates of parameters, shape (dim,) or (n, dim)."""
        own, inner = self.compiled(), np.empty_like(theta)
        for row, out in zip(np.atleast_2d(theta), np.atleast_2d(inner), strict=True):
            own.inward(row, out)
        return inner
