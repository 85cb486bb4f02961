"""What a kernel is: (state, rng) -> (state, info)."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from stansub.decision.decide import Decision

FloatArray = NDArray[np.float64]


class State(NamedTuple):
    """Where a chain is.

    Attributes
    ----------
    position : ndarray, shape (dim,)
        Unconstrained parameters.
    """

    position: FloatArray


class Kernel(Protocol):
    """One transition of a Markov chain."""

    def __call__(self, rng: np.random.Generator, state: State) -> tuple[State, Decision]:
        """Move from ``state``; the second value says what the decision took."""
        ...
