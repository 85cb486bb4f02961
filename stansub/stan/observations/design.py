"""Designs and sparse rows, collected part by part; their columns that are columns of the data.

Each number of a design is compared with all columns of the data, and with the number that the first rows have in
common. What still equals it on the next rows is kept. Columns of the data take no memory: the data hold them already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stansub.stan.data.data import Data
from stansub.target.remainders import NoPredictorsError
from stansub.target.rows import ColumnRows, DataColumn, Design, runs_of
from stansub.target.sparse import Column, SparseRows
from stansub.types import FloatArray

# A column of the data, or a number common to all observations.
Known: TypeAlias = DataColumn | float
# Place among the variables of those of which few observations read an element: variables that no observation reads
# together share a column.
TOGETHER = -1


@dataclass(frozen=True)
class Cut:
    """Data that can be cut along some sizes."""

    data: Data
    sizes: tuple[str, ...]
    axes: Mapping[str, int]
    """The variables along these, with their axes."""

    @classmethod
    def of(cls, data: Data, *sizes: str) -> Cut:
        """Return data cut along sizes; InputError if they cannot be."""
        return cls(data, sizes, data.axes(sizes))

    def part(self, rows: slice) -> Mapping[str, Any]:
        """Return the data of some rows."""
        return self.data.rows(self.axes, self.sizes, rows).values

    @cached_property
    def columns(self) -> tuple[DataColumn, ...]:
        """Return the columns of numbers."""
        values = ((name, self.data.values[name]) for name in self.axes)
        widths = ((name, self.rows_of(name).shape[1]) for name, value in values if isinstance(value, np.ndarray))
        return tuple(DataColumn(name, k) for name, width in widths for k in range(width))

    @cached_property
    def real_columns(self) -> tuple[DataColumn, ...]:
        """Return the columns of real numbers."""
        return tuple(one for one in self.columns if self.data.values[one.name].dtype == np.float64)

    def rows_of(self, name: str) -> NDArray[Any]:
        """Return a variable with all elements of an observation side by side; a view if observations come first."""
        value, axis = self.data.values[name], self.axes[name]
        rows: NDArray[Any] = np.moveaxis(value, axis, 0).reshape(value.shape[axis], -1)
        return rows

    def values(self, known: Known, rows: slice) -> NDArray[Any] | float:
        """Return numbers of some observations, as a view, or the one of all."""
        return self.rows_of(known.name)[rows, known.index] if isinstance(known, DataColumn) else known

    def design(self, found: Sequence[Known | FloatArray], n: int) -> Design:
        """Return numbers of n observations side by side, or one row if all are common; adjacent columns are joined."""
        known = [one for one in found if not isinstance(one, np.ndarray)]
        if all(isinstance(one, float) for one in found):
            return np.array([known], np.float64)
        columns = tuple(known) if len(known) == len(found) else ()
        return ColumnRows((n, len(found)), runs_of(found, self.rows_of), columns)


class CollectedNumbers:
    """A number of each of n observations, collected part by part; 0 before the first part.

    Parameters
    ----------
    columns : sequence of DataColumn
        Columns of the data that it may be.
    """

    def __init__(self, n: int, cut: Cut, columns: Sequence[DataColumn]) -> None:
        self._n, self._cut, self._end = n, cut, 0
        # What all numbers so far may be; where nothing is left, the numbers.
        self._known: list[Known] = [0.0, *columns]
        self._values: FloatArray | None = None

    @property
    def is_known(self) -> bool:
        """Return whether all numbers so far are a column of the data, or equal."""
        return self._values is None

    def add(self, rows: slice, values: FloatArray) -> None:
        """Add the numbers of the next observations, or the one of all of them; those left out before are 0."""
        if self._end < rows.start:
            self.add(slice(self._end, rows.start), np.zeros(1))
        if self._values is None:
            known = [float(values[0]), *self._known] if not rows.start else self._known
            left = [one for one in known if _equal(values, self._cut.values(one, rows))]
            if left:
                self._known, self._end = left, rows.stop
                return
            self._values, before = np.zeros(self._n), slice(0, rows.start)
            self._values[before] = self._cut.values(self._known[0], before)
        self._values[rows] = values
        self._end = rows.stop

    def found(self) -> Known | FloatArray:
        """Return what all numbers are, or the numbers."""
        if self._end < self._n:
            self.add(slice(self._end, self._n), np.zeros(1))
        return self._known[0] if self._values is None else self._values

    def array(self) -> FloatArray:
        """Return the numbers, shape (n,), as a view if they are known."""
        found = self.found()
        values = found if isinstance(found, np.ndarray) else self._cut.values(found, slice(None))
        return np.broadcast_to(values, self._n)


def _equal(values: FloatArray, other: NDArray[Any] | float) -> bool:
    few = slice(0, 64)
    first = other if isinstance(other, float) else other[few]
    return bool((values[few] == first).all() and (values == other).all())


class Part(NamedTuple):
    """Rows of an argument for some observations."""

    n: int
    """Number of observations."""
    dense: dict[int, tuple[NDArray[np.int64], FloatArray]]
    """By variable: the elements read and their factors, shape (n or 1, number of elements)."""
    columns: dict[int, tuple[Column, ...]]
    """By variable, if it is not dense: the few elements that each observation reads, with their factors."""
    offset: FloatArray
    """Shape (n,) or (1,)."""


@dataclass
class CollectedRows:
    """Rows of an argument of n observations, with m coefficients."""

    n: int
    m: int
    cut: Cut
    columns: Sequence[DataColumn] | None = None
    """If given, each number must be one of these columns of the data, or common to all observations."""
    _dense: dict[int, dict[int, CollectedNumbers]] = field(default_factory=dict)
    _columns: dict[int, list[tuple[NDArray[np.int32], CollectedNumbers]]] = field(default_factory=dict)
    _offset: CollectedNumbers = field(init=False)

    def __post_init__(self) -> None:
        self._offset = CollectedNumbers(self.n, self.cut, self.cut.real_columns)

    def _numbers(self) -> CollectedNumbers:
        return CollectedNumbers(self.n, self.cut, self.cut.real_columns if self.columns is None else self.columns)

    @property
    def is_changing(self) -> bool:
        """Return whether any coefficient is read."""
        return any(self._dense.values()) or bool(self._columns.keys() - {TOGETHER})

    def add(self, rows: slice, part: Part) -> None:
        """Add the next observations; NoPredictorsError if a variable is dense in one part and not in another."""
        for k, (elements, block) in part.dense.items():
            own = self._dense.setdefault(k, {})
            for element, values in zip(elements.tolist(), block.T, strict=True):
                own.setdefault(element, self._numbers()).add(rows, values)
            if self.columns is not None and not all(one.is_known for one in own.values()):
                raise NoPredictorsError("a number of its rows is no column of the data")
        for k, columns in part.columns.items():
            several = self._columns.setdefault(k, [])
            several += [(np.full(self.n, -1, np.int32), self._numbers()) for _ in columns[len(several) :]]
            for column, (places, factors) in zip(columns, several, strict=False):
                places[rows] = column.places
                factors.add(rows, column.factors)
        if self._columns.keys() & self._dense.keys():
            raise NoPredictorsError("the form of its rows differs between parts of the data")
        self._offset.add(rows, part.offset)

    def offset(self) -> FloatArray:
        """Return the offsets, shape (n,)."""
        return self._offset.array()

    def design(self) -> Design:
        """Return all coefficients of rows that are of one dense variable."""
        own = self._dense[0]
        return self.cut.design([own[k].found() if k in own else 0.0 for k in range(self.m)], self.n)

    def rows(self) -> SparseRows:
        """Return the rows of all observations."""
        read = sorted((k, element) for k, own in self._dense.items() for element in own)
        places = np.array([element for _, element in read], np.int64)
        dense = self.cut.design([self._dense[k][element].found() for k, element in read], self.n)
        several = (one for _, own in sorted(self._columns.items()) for one in own)
        columns = tuple(Column(places, factors.array()) for places, factors in several)
        offset = self._offset.found()
        shortest = np.array([offset]) if isinstance(offset, float) else self._offset.array()
        return SparseRows(dense, places, columns, shortest, self.n, self.m)
