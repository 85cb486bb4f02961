"""Draws of a program's parameters, and the figures of the slowest of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import arviz
import numpy as np
from numpy.typing import NDArray

Draws = Mapping[str, NDArray[Any]]


class Slowest(NamedTuple):
    """The smallest bulk ESS and its parameter, and the largest R-hat of all parameters."""

    ess: float
    name: str
    r_hat: float


def parameters(draws: Draws, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Elements of the program's parameters that vary, shape (chain, draw) each."""
    found = {}
    for name in names:
        values = np.asarray(draws[name], np.float64)
        flat = values.reshape(*values.shape[:2], -1)
        for k in range(flat.shape[2]):
            if np.ptp(flat[:, :, k]) > 0:
                found[name if flat.shape[2] == 1 else f"{name}[{k + 1}]"] = flat[:, :, k]
    return found


def slowest(draws: Draws) -> Slowest:
    """The figures of draws of parameters."""
    ess = {name: float(arviz.ess(values, method="bulk")) for name, values in draws.items()}
    name = min(ess, key=lambda one: ess[one])
    return Slowest(ess[name], name, max(float(arviz.rhat(values)) for values in draws.values()))
