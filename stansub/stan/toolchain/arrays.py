"""Data in memory for libraries that extend BridgeStan's C API."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Variable(ctypes.Structure):
    """``stansub_variable`` of the C API."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("values", ctypes.c_void_p),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
        ("rank", ctypes.c_int),
        ("is_integer", ctypes.c_int),
        ("axis", ctypes.c_int),
        ("counts_rows", ctypes.c_int),
    ]


@dataclass(frozen=True)
class Arrays:
    """Variables of the data block, all of them or some rows of which make a model's data."""

    values: Mapping[str, NDArray[np.int64] | NDArray[np.float64] | int | float]
    """Numbers of int64 or float64; complex ones as pairs."""
    axes: Mapping[str, int]
    """The dimension, of the variables that have one, with an element for each row."""
    counts: Collection[str]
    """Integers that are the number of rows."""

    @cached_property
    def _held(self) -> dict[str, NDArray[Any]]:
        """The values as the library reads them; copies only of what is not laid out so."""
        held = {}
        for name, value in self.values.items():
            array = np.asarray(value)
            held[name] = np.asarray(array, np.int64 if array.dtype.kind in "biu" else np.float64, order="C")
        return held

    @cached_property
    def variables(self) -> ctypes.Array[Variable]:
        """The variables; the pointers in it are good as long as this object lives."""
        described = [
            Variable(
                name.encode(),
                array.ctypes.data,
                (ctypes.c_int64 * array.ndim)(*array.shape),
                array.ndim,
                array.dtype.kind == "i",
                self.axes.get(name, -1),
                name in self.counts,
            )
            for name, array in self._held.items()
        ]
        return (Variable * len(described))(*described)
