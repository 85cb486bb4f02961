"""Blocks of adjacent observations: the units that a decision draws.

Simple random sampling of blocks without replacement, with block sums as the population, keeps every test's meaning;
blocks of one observation are the sampling of Korattikara et al. (2014) and Bardenet et al. (2014) exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Adjacent observations are read several times faster than scattered ones, and an instance of the program costs about a
# microsecond a call, which this many observations make up for.
DEFAULT_BLOCK_SIZE = 256


@dataclass(frozen=True)
class Blocks:
    """Cut of ``0 .. n_observations - 1`` into runs of at most ``size`` observations, as few and as even as can be.

    A block much smaller than the others would be an outlier among them, which a few drawn blocks do not show.
    """

    n_observations: int
    size: int

    @property
    def _edges(self) -> NDArray[np.int32]:
        edges = np.arange(len(self) + 1, dtype=np.int64) * self.n_observations // max(1, len(self))
        return edges.astype(np.int32)

    @property
    def starts(self) -> NDArray[np.int32]:
        """First observation of each block, counted from 0."""
        return self._edges[:-1]

    @property
    def stops(self) -> NDArray[np.int32]:
        """One past the last observation of each block."""
        return self._edges[1:]

    @property
    def sizes(self) -> NDArray[np.int32]:
        """Number of observations in each block."""
        sizes: NDArray[np.int32] = np.diff(self._edges)
        return sizes

    def __len__(self) -> int:
        return -(-self.n_observations // self.size)
