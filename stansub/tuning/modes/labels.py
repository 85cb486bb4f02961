"""Label switching: parameters whose elements can be permuted without changing the posterior."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy

from stansub.output.layout import Layout
from stansub.types import FloatArray

# Values that differ by less than this, in units of 1 + their size, are equal.
_ALIKE = 0.02


def interchanged(names: Sequence[str], one: FloatArray, other: FloatArray) -> tuple[str, ...]:
    """Return the parameters whose elements are permuted between two points; empty if anything else differs.

    There must be a permutation of 1, ..., K, not the identity, that maps every parameter with a side of length K to
    that of the other point, while all other parameters are equal.

    Parameters
    ----------
    names : sequence of str
        Names of constrained parameters with indices, as in BridgeStan: ``mu.1``, ``beta.2.1``.
    one, other : ndarray, shape (len(names),)
        Constrained values.
    """
    arrays = Layout.from_names(names).columns
    for side in sorted({n for index in arrays.values() for n in index.shape if n > 1}):
        axes = {name: index.shape.index(side) for name, index in arrays.items() if side in index.shape}
        rows, columns = (
            np.concatenate(
                [np.moveaxis(point[arrays[name]], axis, 0).reshape(side, -1) for name, axis in axes.items()], axis=1
            )
            for point in (one, other)
        )
        scale = 1 + np.abs(rows).max(axis=0)
        distance = np.abs(rows[:, np.newaxis] - columns[np.newaxis]) / scale
        _, places = scipy.optimize.linear_sum_assignment(distance.sum(axis=2))
        rest = [index.ravel() for name, index in arrays.items() if name not in axes]
        fixed = np.concatenate([np.empty(0, np.intp), *rest])
        unchanged = np.abs(one[fixed] - other[fixed]) <= _ALIKE * (1 + np.abs(one[fixed]))
        matched = distance[np.arange(side), places].max() <= _ALIKE
        if matched and unchanged.all() and (places != np.arange(side)).any():
            return tuple(axes)
    return ()
