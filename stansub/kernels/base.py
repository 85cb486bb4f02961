"""What a kernel is: (state, rng) -> (state, info)."""

from __future__ import annotations

from typing import NamedTuple

from stansub.types import FloatArray


class State(NamedTuple):
    """Where a chain is.

    Attributes
    ----------
    position : ndarray, shape (dim,)
        Unconstrained parameters.
    """

    position: FloatArray
