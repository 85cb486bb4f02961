"""Design matrices whose columns are columns of the data, recognised on a few rows.

What an argument of a density gains for a step of each parameter is its row of the design. Asked for on all rows that is
a pass over the data for each parameter; but mostly a column is one of the data, or the same for all observations, and
on a few rows it shows which. A guess, to be proved on all rows like any other design.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stansub.stan.data import Data
from stansub.target.rows import ColumnRows, Design
from stansub.types import FloatArray

# Rows on which columns are told from each other, beside those where they first change; the relative rounding of a step.
_FEW = 64
_ROUNDING = 1e-9
# Rows that are searched at once.
_SEARCHED = 1 << 12


@dataclass(frozen=True)
class DataColumn:
    """A column of a data variable: its name, and which of the elements that each row has, counted as they lie."""

    name: str
    index: int


# A column of the data, or a whole number that all rows have.
Column = DataColumn | float


def telling_rows(values: Data, axes: Mapping[str, int], n: int) -> NDArray[np.int64]:
    """A few of n rows, on which no column of the data is constant that is not constant throughout."""
    rows = set(range(min(_FEW, n)))
    for name, axis in axes.items():
        value = values.values[name]
        if isinstance(value, np.ndarray):
            rows.update(_first_change(column) for column in _by_row(value, axis).T)
    return np.array(sorted(rows), np.int64)


def guessed(steps: FloatArray, few: Data, axes: Mapping[str, int]) -> list[Column] | None:
    """What the columns of a design are, from its first rows; None where one of them is nothing that is known.

    Parameters
    ----------
    steps : ndarray, shape (dim, n)
        What an argument of each of a few observations gains for a step of each parameter.
    few : Data
        The data of these observations.
    axes : mapping of str to int
        Its variables along the observations, with the axis of these.
    """
    known = list(_columns(few, axes))
    found: list[Column] = []
    for step in steps:
        allowed = _ROUNDING * (1 + np.abs(step))
        whole = float(np.round(step[0]))
        if (np.abs(step - whole) <= allowed).all():
            found.append(whole)
            continue
        alike = next((column for column, own in known if (np.abs(step - own) <= allowed).all()), None)
        if alike is None:
            return None
        found.append(alike)
    return found


def design_of(columns: Sequence[Column], values: Data, axes: Mapping[str, int], n: int) -> Design:
    """Return the design of all rows of the data, computed from their columns, or the one row that all of them have."""
    runs = tuple(_runs(columns, values, axes))
    if any(isinstance(one, DataColumn) for one in columns):
        return ColumnRows((n, len(columns)), runs)
    return ColumnRows((1, len(columns)), runs)[:]


def _runs(
    columns: Sequence[Column], values: Data, axes: Mapping[str, int]
) -> Iterator[tuple[slice, NDArray[Any] | float]]:
    """Where columns stand, and what they are; columns that lie side by side in the data, too, together."""
    first = 0
    while first < len(columns):
        one, last = columns[first], first + 1
        if not isinstance(one, DataColumn):
            yield slice(first, last), one
        else:
            while last < len(columns) and columns[last] == DataColumn(one.name, one.index + last - first):
                last += 1
            source = _by_row(values.values[one.name], axes[one.name])
            yield slice(first, last), source[:, one.index : one.index + last - first]
        first = last


def _first_change(column: NDArray[Any]) -> int:
    """The first place where there is another value than at the beginning, or the beginning."""
    for first in range(0, len(column), _SEARCHED):
        other = np.flatnonzero(column[first : first + _SEARCHED] != column[0])
        if other.size:
            return first + int(other[0])
    return 0


def _columns(data: Data, axes: Mapping[str, int]) -> Iterator[tuple[DataColumn, FloatArray]]:
    for name, axis in axes.items():
        value = data.values[name]
        if isinstance(value, np.ndarray):
            for index, column in enumerate(_by_row(value, axis).T):
                yield DataColumn(name, index), column.astype(np.float64)


def _by_row(value: NDArray[Any], axis: int) -> NDArray[Any]:
    """All that a row has, in a row; a view where rows come first."""
    return np.moveaxis(value, axis, 0).reshape(value.shape[axis], -1)
