"""Inner coordinates: u = S z replaces effects z that a scale multiplies, which avoids a curved ridge.

A kernel for a density p moves in coordinates x(theta) with the density p(theta(x)) |d theta / d x|. The coordinates
change its moves but not its stationary distribution. Formulas: ``cpp/coordinates.hpp``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub import _loop
from stansub.target.soft_minima import SoftMinima
from stansub.types import FloatArray


@dataclass(frozen=True)
class Coordinates:
    """Blocks of effects z replaced by u = S z, with S lower triangular and a function of other parameters.

    Row i of S has the norm exp(f_ii) and the partial correlations tanh(f_ij), j < i; each f is a soft minimum of affine
    functions.
    """

    dim: int
    sizes: NDArray[np.int32]
    places: NDArray[np.int32]
    counts: NDArray[np.int32]
    starts: NDArray[np.int32]
    columns: NDArray[np.int32]
    coefficients: FloatArray
    constants: FloatArray
    """The functions f, block by block and by rows of lower triangles: how many affine functions each is the minimum of,
    and these in compressed row format.
    """

    @classmethod
    def plain(cls, dim: int) -> Coordinates:
        """Return coordinates that are the parameters themselves."""
        none = np.empty(0, np.int32)
        return cls.of(none, none, SoftMinima.none(dim))

    @classmethod
    def of(cls, sizes: NDArray[np.integer], places: NDArray[np.integer], functions: SoftMinima) -> Coordinates:
        """Return coordinates with these functions f."""
        rows, blocks = functions.rows, (sizes.astype(np.int32), places.astype(np.int32))
        counts, starts, columns = (one.astype(np.int32) for one in (functions.counts, rows.indptr, rows.indices))
        return cls(rows.shape[1], *blocks, counts, starts, columns, rows.data, functions.constants)

    @property
    def functions(self) -> SoftMinima:
        """Return the functions f."""
        parts = self.coefficients, self.columns, self.starts
        rows = sp.csr_array(parts, shape=(len(self.constants), self.dim))
        return SoftMinima(self.counts.astype(np.int64), rows, self.constants)

    @property
    def is_plain(self) -> bool:
        """Return whether they are the parameters themselves."""
        return not len(self.sizes)

    def compiled(self) -> _loop.Coordinates:
        """Return the coordinates for the sampler, for one thread."""
        parts = self.counts, self.starts, self.columns, self.coefficients, self.constants
        return _loop.Coordinates(self.sizes, self.places, *parts, self.dim)

    def inward(self, theta: FloatArray) -> FloatArray:
        """Return inner coordinates of parameters, shape (dim,) or (n, dim)."""
        own, inner = self.compiled(), np.empty_like(theta)
        for row, out in zip(np.atleast_2d(theta), np.atleast_2d(inner), strict=True):
            own.inward(row, out)
        return inner
