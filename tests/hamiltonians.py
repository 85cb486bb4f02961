"""Hamiltonian Monte Carlo on functions in place of compiled programs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from stansub._loop import SurrogateHamiltonian
from stansub.target.cholesky import Factor
from stansub.target.coordinates import Coordinates
from stansub.target.metric import Metric

Array = NDArray[np.float64]
Density = Callable[[Array], tuple[float, Array]]


def independent(widths: Array) -> Metric:
    """A metric of independent parameters."""
    rows = np.arange(len(widths) + 1, dtype=np.int32)
    return Metric.of_factor(Factor(rows, rows[:-1], 1 / widths, rows[:-1]))


def sampler(
    density: Density, metric: Metric, coordinates: Coordinates, centre: Array | None = None, power: float = 1.0
) -> SurrogateHamiltonian:
    """A sampler of a log density with its gradient, by default about 0."""
    dim, pointer = len(metric.factor.order), ctypes.POINTER(ctypes.c_double)
    kind = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_bool, ctypes.c_bool, pointer, pointer, pointer, ctypes.c_void_p
    )

    def called(model, propto, jacobian, theta, value, gradient, error):  # type: ignore[no-untyped-def]
        try:
            with np.errstate(all="ignore"):  # trees may run far off
                found, slope = density(np.ctypeslib.as_array(theta, (dim,)))
        except OverflowError:
            return 1
        value[0] = found
        np.ctypeslib.as_array(gradient, (dim,))[:] = slope
        return 0

    function = kind(called)
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    compiled = coordinates.compiled()
    centre = np.zeros(dim) if centre is None else centre
    own = {"owner": function, "power": power}
    return SurrogateHamiltonian(address, address, address, centre, *metric.compiled, compiled, **own)
