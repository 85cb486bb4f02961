"""Slice sampling of one number (Neal 2003, section 4)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

# Steps by which a slice is extended at most.
_MOST = 32


def slice_sample(log_density: Callable[[float], float], width: float, rng: np.random.Generator) -> float:
    """Return a draw that leaves the density invariant, from 0: by stepping out and shrinkage (figures 3 and 5)."""
    level = log_density(0.0) + np.log1p(-rng.random())
    low = -width * rng.random()
    high = low + width
    below = rng.integers(_MOST)
    above = _MOST - 1 - below
    while below > 0 and log_density(low) >= level:
        low, below = low - width, below - 1
    while above > 0 and log_density(high) >= level:
        high, above = high + width, above - 1
    while True:
        found = low + (high - low) * rng.random()
        if log_density(found) >= level:
            return found
        low, high = (found, high) if found < 0 else (low, found)
