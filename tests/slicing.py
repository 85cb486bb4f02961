"""Slices of densities in Python, which the extension calls like a compiled program."""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stansub import _loop
from stansub.errors import RunError
from stansub.target.coordinates import Coordinates
from stansub.target.symmetries import Symmetry

Array = NDArray[np.float64]


def sampler(log_density: Callable[[Array], float], coordinates: Coordinates, moves: Sequence[Symmetry]) -> _loop.Slices:
    """Return slices along moves of some coordinates."""
    pointer = ctypes.POINTER(ctypes.c_double)

    def value(model: int, propto: bool, jacobian: bool, theta: Any, out: Any, error: int) -> int:
        try:
            out[0] = log_density(np.ctypeslib.as_array(theta, (coordinates.dim,)))
        except RunError:
            return 1
        return 0

    call = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_size_t, ctypes.c_bool, ctypes.c_bool, pointer, pointer, ctypes.c_size_t
    )
    functions = call(value), ctypes.CFUNCTYPE(None, ctypes.c_size_t)(lambda error: None)
    addresses = (ctypes.cast(one, ctypes.c_void_p).value or 0 for one in functions)
    directions, scaled = [one.direction for one in moves], [one.scaled.astype(np.int32) for one in moves]
    return _loop.Slices(1, *addresses, coordinates.compiled(), directions, scaled, owner=functions)
