"""Rows of an argument, collected from parts of the observations.

Numbers that are a column of the data, or equal for all observations, take no memory: the data hold them already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stansub.stan.data import Data
from stansub.target.remainders import NoPredictorsError
from stansub.target.rows import ColumnRows, DataColumn, Design, runs_of
from stansub.target.sparse import Column, SparseRows
from stansub.types import FloatArray

# A column of the data, or a number common to all observations.
Known: TypeAlias = DataColumn | float


@dataclass(frozen=True)
class Cut:
    """Data that can be cut along a size."""

    data: Data
    size: str
    axes: Mapping[str, int]

    def part(self, rows: slice) -> Mapping[str, Any]:
        """Return the data of some rows."""
        return self.data.rows(self.axes, (self.size,), rows).values

    @cached_property
    def columns(self) -> tuple[DataColumn, ...]:
        """Return the columns of real numbers."""
        values = ((name, axis, self.data.values[name]) for name, axis in self.axes.items())
        real = ((name, value.size // max(1, value.shape[axis])) for name, axis, value in values if _is_real(value))
        return tuple(DataColumn(name, k) for name, width in real for k in range(width))

    def rows_of(self, name: str) -> FloatArray:
        """Return a variable with a row for each observation, as a view."""
        found: FloatArray = np.moveaxis(self.data.values[name], self.axes[name], 0)
        return found[:, np.newaxis] if found.ndim == 1 else found

    def values(self, known: Known, rows: slice) -> FloatArray | float:
        """Return numbers of some observations, as a view, or the one of all."""
        return self.rows_of(known.name)[rows, known.index] if isinstance(known, DataColumn) else known


def _is_real(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.float64 and value.ndim <= 2


class Part(NamedTuple):
    """Rows of an argument for some observations.

    Attributes
    ----------
    n : int
        Number of observations.
    dense : dict
        By variable: the elements read and their factors, shape (n or 1, number of elements).
    columns : tuple of Column
        Factors of variables of which each observation reads one element.
    sparse : frozenset of int
        These variables.
    offset : ndarray, shape (n,) or (1,)
    """

    n: int
    dense: dict[int, tuple[NDArray[np.int64], FloatArray]]
    columns: tuple[Column, ...]
    sparse: frozenset[int]
    offset: FloatArray


class CollectedNumbers:
    """A number of each of n observations, collected part by part; 0 before the first part."""

    def __init__(self, n: int, cut: Cut) -> None:
        self._n, self._cut, self._end = n, cut, 0
        # What all numbers so far may be; where nothing is left, the numbers.
        self._known: list[Known] = [0.0, *cut.columns]
        self._values: FloatArray | None = None

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


def _equal(values: FloatArray, other: FloatArray | float) -> bool:
    few = slice(0, 64)
    first = other if isinstance(other, float) else other[few]
    return bool((values[few] == first).all() and (values == other).all())


@dataclass
class CollectedRows:
    """Rows of an argument of n observations, with m coefficients."""

    n: int
    m: int
    cut: Cut
    _dense: dict[int, dict[int, CollectedNumbers]] = field(default_factory=dict)
    _places: list[NDArray[np.int32]] = field(default_factory=list)
    _factors: list[CollectedNumbers] = field(default_factory=list)
    _sparse: set[int] = field(default_factory=set)
    _offset: CollectedNumbers = field(init=False)

    def __post_init__(self) -> None:
        self._offset = self._numbers()

    def _numbers(self) -> CollectedNumbers:
        return CollectedNumbers(self.n, self.cut)

    @property
    def is_changing(self) -> bool:
        """Return whether any coefficient is read."""
        return bool(self._dense or self._sparse)

    def add(self, rows: slice, part: Part) -> None:
        """Add the next observations.

        Raises
        ------
        NoPredictorsError
            If a variable is dense in one part and not in another.
        """
        self._sparse |= part.sparse
        for k, (elements, block) in part.dense.items():
            own = self._dense.setdefault(k, {})
            for element, values in zip(elements.tolist(), block.T, strict=True):
                own.setdefault(element, self._numbers()).add(rows, values)
        if self._sparse & self._dense.keys():
            raise NoPredictorsError("the form of its rows differs between parts of the data")
        for k, column in enumerate(part.columns):
            if k == len(self._places):
                self._places.append(np.full(self.n, -1, np.int32))
                self._factors.append(self._numbers())
            self._places[k][rows] = column.places
            self._factors[k].add(rows, column.factors)
        self._offset.add(rows, part.offset)

    def offset(self) -> FloatArray:
        """Return the offsets, shape (n,)."""
        return self._offset.array()

    def rows(self) -> SparseRows:
        """Return the rows of all observations."""
        read = sorted((k, element) for k, own in self._dense.items() for element in own)
        places = np.array([element for _, element in read], np.int64)
        dense = self._design([self._dense[k][element].found() for k, element in read])
        columns = tuple(Column(*one) for one in zip(self._places, (one.array() for one in self._factors), strict=True))
        offset = self._offset.found()
        shortest = np.array([offset]) if isinstance(offset, float) else self._offset.array()
        return SparseRows(dense, places, columns, shortest, self.n, self.m)

    def _design(self, found: list[Known | FloatArray]) -> Design:
        """Return numbers side by side; columns that are adjacent in the data are joined."""
        if all(isinstance(one, float) for one in found):
            return np.array([found], np.float64)
        return ColumnRows((self.n, len(found)), runs_of(found, self.cut.rows_of))
