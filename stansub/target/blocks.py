"""Blocks of adjacent observations: the units that a decision draws.

Simple random sampling of blocks without replacement, with block sums as the population, keeps the meaning of every
test. Blocks of one observation give exactly the sampling of Korattikara et al. (2014) and Bardenet et al. (2014).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

# Adjacent observations are read several times faster than scattered ones. An instance of the program costs about a
# microsecond a call, which this many observations amortise.
PLAIN_BLOCK_SIZE = 256
# With control variates, the number of blocks that a decision needs hardly depends on their size, so they are as small
# as a call to the program allows. Bounds on remainders use 7 % of 100,000 observations with blocks of 1, 25 % with 32
# and 36 % with 64, but evaluating single observations costs so much that blocks of 32 are fastest there too.
VARIATES_BLOCK_SIZE = 32
# Tests need units to draw from: at least this many blocks if the data allow it.
_MIN_BLOCKS = 100
# Maximum number of instances that memory and construction time allow (some kilobytes and 10 microseconds each).
_MAX_INSTANCES = 50_000
# Blocks that suffice if decisions use none: a share of the data for the search for modes, and the proof. More than this
# multiple of them justifies its own cut.
_ENOUGH, _WORTH = 1000, 10


def fitting_size(wanted: int, n: int, *, instances: bool, n_blocks: int = _MIN_BLOCKS) -> int:
    """Return the block size: ``wanted``, or less to leave at least ``n_blocks`` blocks of ``n`` observations.

    ``instances`` says whether each block costs an instance of the program.
    """
    least = math.ceil(n / _MAX_INSTANCES) if instances else 1
    return min(n, max(least, min(wanted, max(1, n // n_blocks))))


def coarse_size(size: int, n: int) -> int:
    """Return the block size if decisions use no blocks: ``wanted``, or more if there would be very many blocks."""
    return n // _ENOUGH if n // size > _WORTH * _ENOUGH else size


@dataclass(frozen=True)
class Blocks:
    """Cut of ``0 .. n_observations - 1`` into runs of at most ``size`` observations, few and nearly equal.

    A block much smaller than the others would be an outlier that a few drawn blocks do not show.
    """

    n_observations: int
    size: int
    sums: tuple[int, ...] = ()
    """Numbers of observations, in sequence, across whose ends no block may extend; by default all observations."""

    @classmethod
    def over(cls, sums: Sequence[int], size: int) -> Blocks:
        """Return blocks of the terms of several sums."""
        return cls(sum(sums), size, tuple(sums) if len(sums) > 1 else ())

    @property
    def counts(self) -> tuple[int, ...]:
        """Return the number of observations in each sum."""
        return self.sums or (self.n_observations,)

    @property
    def _edges(self) -> NDArray[np.int64]:
        numbers = [self._number(n) for n in self.counts]
        parts = [
            first + np.arange(number, dtype=np.int64) * n // max(1, number)
            for first, n, number in zip(accumulate(self.counts, initial=0), self.counts, numbers, strict=False)
        ]
        return np.concatenate([*parts, [self.n_observations]]).astype(np.int64)

    @property
    def starts(self) -> NDArray[np.int64]:
        """Return the first observation of each block, counted from 0."""
        return self._edges[:-1]

    @property
    def stops(self) -> NDArray[np.int64]:
        """Return one past the last observation of each block."""
        return self._edges[1:]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Return the number of observations in each block."""
        return np.asarray(np.diff(self._edges))

    def __len__(self) -> int:
        return sum(map(self._number, self.counts))

    def _number(self, n: int) -> int:
        return -(-n // self.size)
