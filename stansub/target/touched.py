"""Which factors depend on which parameters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stansub.target.factors import Target

# Points at which gradients are looked at, tries to find one, and factors that are looked at together.
_N_POINTS, _MAX_TRIES, _CHUNK = 3, 50, 4096


def touched_by(target: Target, places: NDArray[np.int64], *, seed: int = 0) -> NDArray[np.int32]:
    """Factors whose gradient in any of these parameters is not zero at some of several random points.

    Parameters
    ----------
    target : Target
    places : ndarray of int64
        Of the unconstrained parameters.
    seed : int
        Of the points.

    Returns
    -------
    ndarray of int32
        All factors where no point has a finite gradient.
    """
    rng, evaluator, n = np.random.default_rng(seed), target.population.evaluator(), len(target.blocks)
    touched, found = np.zeros(n, bool), 0
    for attempt in range(_MAX_TRIES):
        theta = rng.uniform(-2, 2, target.dim) * 0.5 ** (attempt // 10)
        try:
            for start in range(0, n, _CHUNK):
                which = np.arange(start, min(start + _CHUNK, n), dtype=np.int32)
                touched[which] |= np.any(evaluator.block_gradients(theta, which)[:, places] != 0, axis=1)
        except ValueError:
            continue
        found += 1
        if found == _N_POINTS:
            break
    return np.flatnonzero(touched if found else np.ones(n, bool)).astype(np.int32)
