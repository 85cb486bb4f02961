"""Rows of a design that are computed from columns of the data on request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stansub.types import FloatArray, Places

# Types that may hold 64-bit numbers in less memory, the smallest first, and their ranges.
_SMALLER = {
    "u1": (0.0, 255.0),
    "i2": (-(2.0**15), 2.0**15 - 1),
    "i4": (-(2.0**31), 2.0**31 - 1),
    "f4": (-3.4e38, 3.4e38),
}


@dataclass(frozen=True)
class DataColumn:
    """A column of a data variable: its name, and the index among each row's elements in memory order."""

    name: str
    index: int


# A column of the data, or a number common to all rows.
Column = DataColumn | float


@dataclass(frozen=True)
class ColumnRows:
    """A design of shape (n, dim) that needs no memory besides the columns of the data."""

    shape: tuple[int, int]
    runs: tuple[tuple[slice, NDArray[Any] | float], ...]
    """Slices of adjacent columns with their values: an array of shape (n, k), or a number common to all rows."""
    columns: tuple[Column, ...] = ()
    """Which columns these are, if they are columns of data."""

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Rows) -> FloatArray:
        """Return some rows, shape (k, dim)."""
        out = np.empty((count(rows, len(self)), self.shape[1]))
        for place, source in self.runs:
            out[:, place] = source[rows] if isinstance(source, np.ndarray) else source
        return out

    def __matmul__(self, coefficients: FloatArray) -> FloatArray:
        """Return the products of all rows with coefficients, shape (n,), without a copy of the rows."""
        found = np.zeros(len(self))
        for place, source in self.runs:
            own = coefficients[place]
            found += source @ own if isinstance(source, np.ndarray) else source * own.sum()
        return found

    def weighted_sum(self, weights: FloatArray) -> FloatArray:
        """Return the sum of all rows with weights, shape (dim,), without a copy of the rows."""
        found = np.empty(self.shape[1])
        for place, source in self.runs:
            found[place] = weights @ source if isinstance(source, np.ndarray) else weights.sum() * source
        return found

    def part(self, rows: slice) -> ColumnRows:
        """Return some rows, computed from the same columns."""
        runs = tuple((place, one[rows] if isinstance(one, np.ndarray) else one) for place, one in self.runs)
        return ColumnRows((count(rows, len(self)), self.shape[1]), runs, self.columns)

    @property
    def nbytes(self) -> int:
        """Return the memory that all rows would take, in bytes."""
        return self.shape[0] * self.shape[1] * np.dtype(np.float64).itemsize

    def any(self) -> bool:
        """Return whether any number is not 0."""
        return any(np.any(source) for _, source in self.runs)


def runs_of(
    columns: Sequence[Column | FloatArray], source: Callable[[str], NDArray[Any]]
) -> tuple[tuple[slice, NDArray[Any] | float], ...]:
    """Return the runs of `ColumnRows`; columns that are adjacent in the data are joined.

    Parameters
    ----------
    columns : sequence
        Columns of the data, numbers common to all rows, or numbers of all rows, shape (n,).
    source : callable
        From the name of a data variable to its rows, as a view.
    """
    runs: list[tuple[slice, NDArray[Any] | float]] = []
    first = 0
    while first < len(columns):
        one, last = columns[first], first + 1
        if isinstance(one, DataColumn):
            while last < len(columns) and _is(columns[last], DataColumn(one.name, one.index + last - first)):
                last += 1
            runs.append((slice(first, last), source(one.name)[:, one.index : one.index + last - first]))
        else:
            runs.append((slice(first, last), one[:, np.newaxis] if isinstance(one, np.ndarray) else one))
        first = last
    return tuple(runs)


def _is(one: Column | FloatArray, column: DataColumn) -> bool:
    return isinstance(one, DataColumn) and one == column


Design: TypeAlias = FloatArray | ColumnRows
# Some observations: a range, or their indices.
Rows: TypeAlias = slice | Places


def count(rows: Rows, n: int) -> int:
    """Return how many of n observations these are."""
    return len(range(*rows.indices(n))) if isinstance(rows, slice) else len(rows)


def compact(values: NDArray[Any]) -> NDArray[Any]:
    """Return the same numbers in less memory: one number repeated, or a type that represents each of them exactly."""
    if not values.size:
        return values
    if (values == values[0]).all():
        return np.broadcast_to(values[0], values.shape)
    least, most = values.min(), values.max()
    for kind, (lower, upper) in _SMALLER.items():
        if lower <= least and most <= upper:
            found = values.astype(kind)
            if (found == values).all():
                return found
    return values


def shortest(values: FloatArray) -> FloatArray:
    """Return one entry, or row, if all are equal."""
    return values[:1].copy() if len(values) and (values == values[0]).all() else values
