"""Rows of an argument, collected from parts of the observations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stansub.stan.design import CollectedNumbers, Cut
from stansub.target.remainders import NoPredictorsError
from stansub.target.sparse import Column, SparseRows
from stansub.types import FloatArray

# Place among the variables of those of which few observations read an element: variables that no observation reads
# together share a column.
TOGETHER = -1


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
    _dense: dict[int, dict[int, CollectedNumbers]] = field(default_factory=dict)
    _columns: dict[int, list[tuple[NDArray[np.int32], CollectedNumbers]]] = field(default_factory=dict)
    _offset: CollectedNumbers = field(init=False)

    def __post_init__(self) -> None:
        self._offset = self._numbers()

    def _numbers(self) -> CollectedNumbers:
        return CollectedNumbers(self.n, self.cut, self.cut.real_columns)

    @property
    def is_changing(self) -> bool:
        """Return whether any coefficient is read."""
        return bool(self._dense.keys() | self._columns.keys() - {TOGETHER})

    def add(self, rows: slice, part: Part) -> None:
        """Add the next observations; NoPredictorsError if a variable is dense in one part and not in another."""
        for k, (elements, block) in part.dense.items():
            own = self._dense.setdefault(k, {})
            for element, values in zip(elements.tolist(), block.T, strict=True):
                own.setdefault(element, self._numbers()).add(rows, values)
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
