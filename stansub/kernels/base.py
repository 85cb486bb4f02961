"""What a kernel is: (state, rng) -> (state, info)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


class State(NamedTuple):
    """Where a chain is.

    Attributes
    ----------
    position : ndarray, shape (dim,)
        Unconstrained parameters.
    """

    position: FloatArray
