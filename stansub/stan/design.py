"""Design matrices whose columns are columns of the data, recognised on a few rows.

The gain of a density's argument per step of each parameter is its row of the design. For all rows, this takes a pass
over the data per parameter. Mostly, however, a column is one of the data or common to all observations, which a few
rows show. The result is a guess that is proved on all rows like any other design.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stansub.stan.data import Data
from stansub.target.rows import Column, ColumnRows, DataColumn, Design, runs_of
from stansub.types import FloatArray

# Rows that distinguish columns, besides those where they first change; the relative rounding of a step.
_FEW = 64
_ROUNDING = 1e-9
# Rows searched at once.
_SEARCHED = 1 << 12


def telling_rows(values: Data, axes: Mapping[str, int], n: int) -> NDArray[np.int64]:
    """Return a few of n rows on which no column of the data is constant unless it is constant throughout."""
    rows = set(range(min(_FEW, n)))
    for name, axis in axes.items():
        value = values.values[name]
        if isinstance(value, np.ndarray):
            rows.update(_first_change(column) for column in _by_row(value, axis).T)
    return np.array(sorted(rows), np.int64)


def guessed(steps: FloatArray, few: Data, axes: Mapping[str, int]) -> list[Column] | None:
    """Return the columns of a design, guessed from a few rows; None if one of them is not recognised.

    Parameters
    ----------
    steps : ndarray, shape (dim, n)
        Gain of an argument of each of a few observations per step of each parameter.
    axes : mapping of str to int
        Its variables along the observations, with their axes.
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
    """Return the design of all rows of the data, computed from columns, or the one row common to all."""
    runs = runs_of(columns, lambda name: _by_row(values.values[name], axes[name]))
    if any(isinstance(one, DataColumn) for one in columns):
        return ColumnRows((n, len(columns)), runs, tuple(columns))
    return ColumnRows((1, len(columns)), runs)[:]


def _first_change(column: NDArray[Any]) -> int:
    """Return the first place whose value differs from the first value; 0 if there is none."""
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
    """Return all elements of each row side by side; a view if rows come first."""
    return np.moveaxis(value, axis, 0).reshape(value.shape[axis], -1)
