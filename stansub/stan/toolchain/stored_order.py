"""The order of unconstrained values.

Stan lists the names of unconstrained elements with the last index slowest, but stores those of arrays with the first
index slowest: ``array[2] vector[3] x`` is x[1, 1], x[1, 2], x[1, 3], x[2, 1] ..., and listed as x.1.1, x.2.1, x.1.2 ...
Names do not say which indices are those of arrays; changes of single values do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from stansub.errors import RunError
from stansub.output.layout import Layout
from stansub.types import FloatArray, Places

# Values of a parameter that are changed, and by how much.
_CHANGED, _STEP = 8, 0.1


def in_stored_order(
    listed: Sequence[str], names: Sequence[str], constrain: Callable[[FloatArray], FloatArray]
) -> list[str]:
    """Return names of unconstrained values in the order of the values.

    Parameters
    ----------
    listed, names : sequence of str
        Names of the unconstrained and of the constrained parameters, as Stan lists them.
    constrain : callable
        Function from unconstrained to constrained parameters.
    """
    found, own = list(listed), Layout.from_names(names).columns
    theta = np.random.default_rng(1).uniform(-0.5, 0.5, len(listed))
    for name, columns in Layout.from_names(listed).columns.items():
        if sum(side > 1 for side in columns.shape) > 1 and name in own:
            stored = _stored(columns, own[name], theta, constrain)
            for column, place in zip(columns.ravel().tolist(), stored.ravel().tolist(), strict=True):
                found[place] = listed[column]
    return found


def _stored(columns: Places, own: Places, theta: FloatArray, constrain: Callable[[FloatArray], FloatArray]) -> Places:
    """Return places of a parameter's unconstrained values, in its shape; as they are listed if nothing shows them."""
    some = np.linspace(0, columns.size - 1, min(_CHANGED, columns.size)).astype(int)
    try:
        here = constrain(theta)[own]
        changed = {}
        for k in some:
            moved = theta.copy()
            moved[columns.min() + k] += _STEP
            changed[k] = constrain(moved)[own] != here
    except RunError:
        return columns
    for n_arrays in reversed(range(columns.ndim + 1)):
        stored = _with_arrays(columns, n_arrays)
        if all(_explains(stored, n_arrays, columns.min() + k, one) for k, one in changed.items()):
            return stored
    return columns


def _with_arrays(columns: Places, n_arrays: int) -> Places:
    """Return the places if so many of the first indices are those of arrays."""
    found = np.empty(columns.shape, np.int64)
    axes = (*range(n_arrays), *reversed(range(n_arrays, columns.ndim)))
    by_speed = found.transpose(axes)
    by_speed[...] = columns.min() + np.arange(columns.size).reshape(by_speed.shape)
    return found


def _explains(stored: Places, n_arrays: int, place: int, changed: NDArray[np.bool_]) -> bool:
    """Return whether a change of the value at a place changes its element, and no other container of arrays."""
    (index,) = np.argwhere(stored == place)
    inside = changed[tuple(index[:n_arrays])]
    is_own = changed.shape != stored.shape or bool(changed[tuple(index)])
    return bool(inside.any()) and int(inside.sum()) == int(changed.sum()) and is_own
