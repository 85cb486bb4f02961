"""Search for combinations of effects in which precisions are sparse.

All later observations read the first step of a random walk, so that the precision of the likelihood is dense in its
steps. Each observation reads one level, the sum of the steps up to it: in levels, the precision is as sparse as the
observations' rows, and that of the prior has few more entries than the map from levels to steps. Factors, Hessians by
differences and steps of trajectories take a fraction of the time.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.target.coordinates import Combination
from stansub.tuning.effects.components import square_components
from stansub.types import FloatArray

# Fewest and most effects that are combined with each other: the inverse is that of a dense matrix.
_FEWEST, _MOST = 3, 2000
# Size of an entry of the inverse, relative to the largest, up to which it is rounding, and of an error of the inverse.
_ROUNDING, _SAME = 1e-12, 1e-9


def combined(images: sp.csc_array, places: NDArray[np.int64], dim: int) -> tuple[sp.csc_array, sp.csr_array]:
    """Return a map A of all parameters and its inverse, shape (dim, dim): the identity except for combined effects.

    Effects are combined to the arguments that they reach if they alone reach these, if there are as many arguments as
    effects, and if the map back has fewer entries.

    Parameters
    ----------
    images : csc_array, shape (m, n)
        Change of the arguments of the likelihood with each effect.
    places : ndarray, shape (n,)
        Places of the effects among the parameters.
    """
    rest, found = np.ones(dim, bool), list[tuple[NDArray[np.int64], FloatArray, FloatArray]]()
    for effects, rows in square_components(images):
        if not _FEWEST <= len(effects) <= _MOST:
            continue
        into = images[:, effects].tocsr()[rows].toarray()
        if (back := _inverse(into)) is not None and np.count_nonzero(back) < np.count_nonzero(into):
            found.append((places[effects], into, back))
            rest[places[effects]] = False
    kept = np.flatnonzero(rest)
    return (
        sp.csc_array(_matrix(kept, [(own, into) for own, into, _ in found], dim)),
        sp.csr_array(_matrix(kept, [(own, back) for own, _, back in found], dim)),
    )


def averaged(weights: FloatArray, places: NDArray[np.int32], combination: Combination) -> FloatArray:
    """Return weights of effects, shape (n,): of those that are combined with each other, the mean.

    If they differed, combinations would not be arguments of the likelihood, and precisions would not be sparse in them.
    """
    if combination.is_none:
        return weights
    starts, rows, values = combination.columns
    _, labels = sp.csgraph.connected_components(sp.csc_array((values, rows, starts)), directed=False)
    own = labels[places]
    return np.asarray((np.bincount(own, weights) / np.maximum(np.bincount(own), 1))[own], np.float64)


def _inverse(matrix: FloatArray) -> FloatArray | None:
    """Return the inverse without entries that are rounding; None if there is none, or if it is inexact."""
    try:
        found = np.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        return None
    found[np.abs(found) <= _ROUNDING * np.abs(found).max()] = 0.0
    error = np.abs(matrix @ found - np.eye(len(matrix))).max()
    return np.asarray(found, np.float64) if error <= _SAME else None


def _matrix(kept: NDArray[np.int64], blocks: list[tuple[NDArray[np.int64], FloatArray]], dim: int) -> sp.coo_array:
    """Return the identity with blocks in the places of some parameters."""
    rows, columns, values = [kept], [kept], [np.ones(len(kept))]
    for places, block in blocks:
        row, column = np.nonzero(block)
        rows.append(places[row])
        columns.append(places[column])
        values.append(block[row, column])
    return sp.coo_array((np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=(dim, dim))
