"""Rows that a phase of a chain keeps, in blocks in memory or in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from stansub.kernels.base import Records, Stat
from stansub.types import FloatArray

# Bytes of a block, and number of a block's positions that stay in memory once a file holds it.
_BLOCK_BYTES, _SKETCH = 1 << 22, 64

Read = Callable[[], Records]


class _Stored(NamedTuple):
    """A block in a file: a thinned set of its positions, and a function that reads it."""

    sketch: FloatArray
    read: Read


class Rows:
    """Rows in the order in which they were kept.

    Parameters
    ----------
    capacity : int
        Maximum number of rows.

    Attributes
    ----------
    per_block : int
        Rows per block; the last one may have fewer.
    """

    def __init__(self, capacity: int, dim: int, stats: Iterable[Stat]) -> None:
        self._capacity, self._dim, self._stats = capacity, dim, tuple(stats)
        self._none = Records.allocate(0, dim, self._stats)
        self.row_bytes = Records.allocate(1, dim, self._stats).row_bytes
        self.per_block = max(_SKETCH, _BLOCK_BYTES // max(self.row_bytes, 1))
        self._blocks: list[Records | _Stored] = []
        self._n = 0

    def __len__(self) -> int:
        return self._n

    @property
    def n_bytes(self) -> int:
        """Return the bytes of the rows in memory."""
        n_stored = sum(isinstance(one, _Stored) for one in self._blocks)
        return self.row_bytes * (self._n - n_stored * self.per_block)

    def append(self, records: Records) -> None:
        """Append copies of rows."""
        start = 0
        while start < len(records):
            place = self._n % self.per_block
            if not place:
                n = min(self.per_block, max(self._capacity - self._n, len(records) - start))
                self._blocks.append(Records.allocate(n, self._dim, self._stats))
            block = self._blocks[-1]
            assert isinstance(block, Records)  # blocks that are not full stay in memory
            part = records.rows(slice(start, start + len(block) - place))
            block.put(place, part)
            self._n, start = self._n + len(part), start + len(part)

    def attach(self, records: Records, read: Read) -> None:
        """Append rows that ``read`` can read again; a full block is not kept in memory."""
        if len(records) == self.per_block and self._n % self.per_block == 0:
            self._blocks.append(_Stored(_sketch(records), read))
            self._n += len(records)
        else:
            self.append(records)

    @property
    def has_stored(self) -> bool:
        """Return whether some rows are only in a file."""
        return any(isinstance(one, _Stored) for one in self._blocks)

    @property
    def n_full(self) -> int:
        """Return the number of full blocks."""
        return self._n // self.per_block

    def reader(self, number: int) -> Read | None:
        """Return the function that reads a block from its file; None for a block in memory."""
        block = self._blocks[number]
        return block.read if isinstance(block, _Stored) else None

    def store(self, number: int, read: Read) -> None:
        """Release a full block that a file holds and ``read`` reads."""
        block = self._blocks[number]
        self._blocks[number] = _Stored(block.sketch if isinstance(block, _Stored) else _sketch(block), read)

    def block(self, number: int) -> Records:
        """Return the rows of a block; those in memory are a view."""
        block = self._blocks[number]
        if isinstance(block, _Stored):
            return block.read()
        return block.rows(slice(0, self._n - number * self.per_block))

    def read(self, start: int = 0, end: int | None = None, *, every: int = 1) -> Records:
        """Return the last of every ``every`` rows from ``start`` up to ``end``; a view if one block in memory has them.

        By default ``end`` is the number of rows.
        """
        end = self._n if end is None else end
        if end <= start:
            return self._none
        parts = []
        for number in range(start // self.per_block, -(-end // self.per_block)):
            first = number * self.per_block
            low = max(start - first, 0)
            low += (start - first - low - 1) % every
            parts.append(self.block(number).rows(slice(low, end - first, every)))
        return parts[0] if len(parts) == 1 else Records.together(parts)

    def parts(self) -> Iterator[Records]:
        """Yield all rows, a block at a time."""
        yield from (self.block(number) for number in range(-(-self._n // self.per_block)))

    def sketch(self) -> FloatArray:
        """Return all positions or, once a file holds blocks, a thinned set of them, shape (n, dim)."""
        n, blocks = self._n, list(self._blocks)
        if not any(isinstance(one, _Stored) for one in blocks):
            return self.read(0, n).theta
        last = blocks[-1]
        parts = [one.sketch if isinstance(one, _Stored) else _sketch(one) for one in blocks[: n // self.per_block]]
        if n % self.per_block and isinstance(last, Records):
            parts.append(last.theta[: n % self.per_block : self.per_block // _SKETCH])
        return np.concatenate(parts)


def _sketch(records: Records) -> FloatArray:
    return records.theta[:: len(records) // _SKETCH].copy()
