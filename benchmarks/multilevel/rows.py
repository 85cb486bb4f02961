"""Multilevel programs, with data for each that follow from a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from scipy.special import expit

from stansub.stan import source

PROGRAMS = Path(__file__).resolve().parent / "programs"
# Shares of the observations and, of these again, of the levels of groupings.
SIZES = {"small": (0.004, 0.1), "reduced": (0.1, 0.2), "full": (1.0, 1.0)}

Array = NDArray[np.float64]
Rng = np.random.Generator
Data = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """A program, and what its data are made by.

    Attributes
    ----------
    name : str
    n : int
        Observations at the full size.
    make : callable
        From a generator, a number of observations, and a function that scales numbers of levels.
    long_tailed : tuple of str
        Scales with tails so long that sds of draws do not settle; they are compared by their logarithms.
    """

    name: str
    n: int
    make: Callable[[Rng, int, Callable[[int], int]], Data]
    long_tailed: tuple[str, ...] = ()

    @property
    def program(self) -> Path:
        """Its file."""
        return PROGRAMS / f"{self.name}.stan"

    @property
    def parameters(self) -> list[str]:
        """The names of its parameters."""
        return [one.name for one in source.read(self.program).program.parameters.declarations]

    def stored(self, data: Data, folder: str | Path) -> Path:
        """Write data to a JSON file in a folder."""
        file = Path(folder) / f"{self.name}.json"
        file.write_bytes(orjson.dumps(data, default=np.ndarray.tolist, option=orjson.OPT_SERIALIZE_NUMPY))
        return file

    def data(self, size: str, seed: int = 1) -> Data:
        """Its data at a size."""
        share, levels = SIZES[size]
        return self.make(np.random.default_rng(seed), round(self.n * share), lambda j: max(4, round(j * levels)))


def _crossed(rng: Rng, n: int, levels: Callable[[int], int]) -> Data:
    j, m, k = levels(50), levels(500), 10
    x, g, h = rng.standard_normal((n, k)), rng.integers(j, size=n), rng.integers(m, size=n)
    effects = 0.5 * rng.standard_normal(j)[g] + 0.3 * rng.standard_normal(m)[h]
    y = rng.random(n) < expit(-0.5 + x @ (0.3 * rng.standard_normal(k)) + effects)
    return {"N": n, "K": k, "J": j, "M": m, "y": y.astype(int), "x": x, "g": g + 1, "h": h + 1}


def _poisson(rng: Rng, n: int, levels: Callable[[int], int]) -> Data:
    j = levels(40)
    x, g = rng.standard_normal(n), rng.integers(j, size=n)
    y = rng.poisson(np.exp(0.2 + 0.3 * x + 0.5 * rng.standard_normal(j)[g]))
    return {"N": n, "J": j, "y": y, "x": x, "g": g + 1}


def _negative_binomial(rng: Rng, n: int, levels: Callable[[int], int]) -> Data:
    j, m = levels(100), levels(95)
    x, g, h = np.c_[np.ones(n), rng.standard_normal((n, 3))], rng.integers(j, size=n), rng.integers(m, size=n)
    slopes = rng.standard_normal((m, 2)) @ np.array([[0.5, 0.1], [0.0, 0.2]])
    eta = 1 + x[:, 1:] @ [0.2, -0.1, 0.3] + 0.4 * rng.standard_normal(j)[g] + slopes[h, 0] + slopes[h, 1] * x[:, 1]
    return {
        "N": n, "Y": rng.poisson(np.exp(eta) * rng.gamma(2.0, 0.5, n)), "K": 4, "X": x, "Kc": 3, "prior_only": 0,
        "N_1": j, "M_1": 1, "J_1": g + 1, "Z_1_1": np.ones(n),
        "N_2": m, "M_2": 2, "J_2": h + 1, "Z_2_1": np.ones(n), "Z_2_2": x[:, 1], "NC_2": 1,
    }  # fmt: skip


def _groups(rng: Rng, n: int, levels: Callable[[int], int]) -> Data:
    j, k = max(4, n // 100), 10
    x, g = rng.standard_normal((n, k)), rng.integers(j, size=n)
    y = rng.random(n) < expit(-0.5 + x @ (0.3 * rng.standard_normal(k)) + 0.5 * rng.standard_normal(j)[g])
    return {"N": n, "K": k, "J": j, "y": y.astype(int), "x": x, "g": g + 1}


def _cumulative(rng: Rng, n: int, levels: Callable[[int], int]) -> Data:
    j, k, cut = levels(200), 5, np.array([-1.5, -0.3, 0.6, 1.8])
    x, g = rng.standard_normal((n, k)), rng.integers(j, size=n)
    eta = x @ (0.3 * rng.standard_normal(k)) + 0.5 * rng.standard_normal(j)[g]
    y = 1 + np.sum(eta[:, np.newaxis] + rng.logistic(size=(n, 1)) > cut, axis=1)
    return {"N": n, "C": len(cut) + 1, "K": k, "J": j, "y": y, "x": x, "g": g + 1}


def _horseshoe(rng: Rng, n: int, levels: Callable[[int], int]) -> Data:
    k = levels(300)
    x, beta = rng.standard_normal((n, k)), np.where(np.arange(k) < k // 20 + 1, 0.5, 0.0)
    return {"N": n, "K": k, "x": x, "y": 0.3 + x @ beta + rng.standard_normal(n)}


def _smooths(rng: Rng, n: int, levels: Callable[[int], int], *, logistic: bool) -> Data:
    """Basis functions are cosines of falling size, as eigenvectors of a penalty are."""
    x1, x2, f, k = rng.random(n), rng.random(n), rng.integers(2, size=n), 20

    def basis(x: Array) -> Array:
        places = np.arange(2, k + 2)
        return np.asarray(np.cos(np.pi * np.outer(x, places)) / places)

    eta = np.sin(6 * x1) + np.where(f == 1, np.cos(5 * x2), x2) + 0.2 * f
    y = (rng.random(n) < expit(eta)).astype(int) if logistic else eta + rng.standard_normal(n)
    return {
        "N": n, "Y": y, "K": 2, "X": np.c_[np.ones(n), f.astype(float)], "Kc": 1, "prior_only": 0,
        "Ks": 3, "Xs": np.c_[x1, x2 * (f == 0), x2 * (f == 1)] - 0.5,
        "knots_1": k, "Zs_1_1": basis(x1), "knots_2": k, "Zs_2_1": basis(x2) * (f == 0)[:, np.newaxis],
        "knots_3": k, "Zs_3_1": basis(x2) * (f == 1)[:, np.newaxis],
    }  # fmt: skip


def _smooths_linear(rng: Rng, n: int, levels: Callable[[int], int]) -> Data:
    return _smooths(rng, n, levels, logistic=False)


def _smooths_logistic(rng: Rng, n: int, levels: Callable[[int], int]) -> Data:
    return _smooths(rng, n, levels, logistic=True)


def _item_response(rng: Rng, n: int, levels: Callable[[int], int]) -> Data:
    i, p = levels(200), levels(300)
    item, person = rng.integers(i, size=n), rng.integers(p, size=n)
    a, b, theta = np.exp(0.3 * rng.standard_normal(i)), rng.standard_normal(i), rng.standard_normal(p)
    y = rng.random(n) < expit(a[item] * (theta[person] - b[item]))
    return {"N": n, "I": i, "P": p, "y": y.astype(int), "item": item + 1, "person": person + 1}


ROWS = {
    row.name: row
    for row in (
        Row("crossed", 300_000, _crossed),
        Row("poisson", 80_000, _poisson),
        Row("negative_binomial", 200_000, _negative_binomial),
        Row("groups", 500_000, _groups),
        Row("cumulative", 100_000, _cumulative),
        Row("horseshoe", 200_000, _horseshoe, long_tailed=("lambda", "tau")),
        Row("smooths_linear", 200_000, _smooths_linear),
        Row("smooths_logistic", 200_000, _smooths_logistic),
        Row("item_response", 60_000, _item_response),
    )
}
