"""The models: programs in ``models/``, and what draws their parameters from the prior and data given these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FOLDER = Path(__file__).resolve().parent / "models"

Values = dict[str, Any]
Simulate = Callable[[np.random.Generator], tuple[Values, Values]]
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Workload:
    """A program with its prior and likelihood as numpy draws from them.

    Attributes
    ----------
    name : str
        Also of the program's file.
    simulate : callable
        From a generator to parameters and data.
    block_size : int
        So small that a decision has some hundred blocks to draw from.
    """

    name: str
    simulate: Simulate
    block_size: int = 4

    @property
    def path(self) -> Path:
        """The Stan program."""
        return FOLDER / f"{self.name}.stan"


def _covariates(rng: np.random.Generator, n: int, k: int) -> Array:
    return np.asarray(rng.standard_normal((n, k)))


def _normal(rng: np.random.Generator, n: int = 800) -> tuple[Values, Values]:
    values = {"mu": rng.normal(), "sigma": rng.lognormal(0, 0.4)}
    return values, {"N": n, "y": rng.normal(values["mu"], values["sigma"], n)}


def _linear(rng: np.random.Generator, n: int = 800, k: int = 3) -> tuple[Values, Values]:
    values = {"alpha": rng.normal(), "beta": rng.normal(0, 1, k), "sigma": rng.lognormal(0, 0.4)}
    x = _covariates(rng, n, k)
    y = values["alpha"] + x @ values["beta"] + values["sigma"] * rng.standard_normal(n)
    return values, {"N": n, "K": k, "x": x, "y": y}


def _logistic(rng: np.random.Generator, n: int = 1200, k: int = 3) -> tuple[Values, Values]:
    values = {"alpha": rng.normal(), "beta": rng.normal(0, 0.7, k)}
    x = _covariates(rng, n, k)
    success = 1 / (1 + np.exp(-values["alpha"] - x @ values["beta"]))
    return values, {"N": n, "K": k, "x": x, "y": (rng.random(n) < success).astype(int)}


def _poisson(rng: np.random.Generator, n: int = 800, k: int = 3) -> tuple[Values, Values]:
    values = {"alpha": rng.normal(0.5, 0.5), "beta": rng.normal(0, 0.3, k)}
    x = _covariates(rng, n, k)
    return values, {"N": n, "K": k, "x": x, "y": rng.poisson(np.exp(values["alpha"] + x @ values["beta"]))}


def _negative_binomial(rng: np.random.Generator, n: int = 800, k: int = 2) -> tuple[Values, Values]:
    """Counts as Poisson variables whose means are gamma variables of shape phi."""
    values = {"alpha": rng.normal(1, 0.5), "beta": rng.normal(0, 0.3, k), "phi": rng.lognormal(0.7, 0.4)}
    x = _covariates(rng, n, k)
    mean = np.exp(values["alpha"] + x @ values["beta"])
    return values, {"N": n, "K": k, "x": x, "y": rng.poisson(mean * rng.gamma(values["phi"], 1 / values["phi"], n))}


def _hierarchical(rng: np.random.Generator, n: int = 800, groups: int = 8) -> tuple[Values, Values]:
    values = {"mu": rng.normal(), "tau": rng.lognormal(0, 0.4)}
    values["effect"] = rng.normal(values["mu"], values["tau"], groups)
    group = rng.integers(groups, size=n)
    return values, {"N": n, "J": groups, "group": group + 1, "y": rng.normal(values["effect"][group], 1)}


def _ordered_logistic(rng: np.random.Generator, n: int = 800) -> tuple[Values, Values]:
    """A category is passed where a logistic variable about the predictor is above its cutpoint."""
    values = {"beta": rng.normal(), "cut": _in_order(rng, np.array([-1.5, 0.0, 1.5]), 0.5)}
    x = rng.standard_normal(n)
    latent = x * values["beta"] + rng.logistic(size=n)
    return values, {"N": n, "x": x, "y": 1 + (latent[:, np.newaxis] > values["cut"]).sum(axis=1)}


def _student_t(rng: np.random.Generator, n: int = 1000) -> tuple[Values, Values]:
    values = {"alpha": rng.normal(), "beta": rng.normal(), "sigma": rng.lognormal(0, 0.4)}
    values["nu"] = _above(rng, 1.0)
    x = rng.standard_normal(n)
    y = values["alpha"] + values["beta"] * x + values["sigma"] * rng.standard_t(values["nu"], n)
    return values, {"N": n, "x": x, "y": y}


def _mixture(rng: np.random.Generator, n: int = 800) -> tuple[Values, Values]:
    values = {
        "weight": rng.beta(5, 5),
        "mu": _in_order(rng, np.array([-1.5, 1.5]), 0.4),
        "sigma": rng.lognormal(-0.4, 0.2, 2),
    }
    component = (rng.random(n) >= values["weight"]).astype(int)
    return values, {"N": n, "y": rng.normal(values["mu"][component], values["sigma"][component])}


def _gamma(rng: np.random.Generator, n: int = 800) -> tuple[Values, Values]:
    values = {"alpha": rng.normal(), "beta": rng.normal(0, 0.5), "shape": rng.lognormal(0.7, 0.4)}
    x = rng.standard_normal(n)
    mean = np.exp(values["alpha"] + values["beta"] * x)
    return values, {"N": n, "x": x, "y": rng.gamma(values["shape"], mean / values["shape"])}


def _in_order(rng: np.random.Generator, mean: Array, sd: float) -> Array:
    """Normal variables given that they are in ascending order, as Stan's ``ordered`` has them."""
    while True:
        values = rng.normal(mean, sd)
        if (np.diff(values) > 0).all():
            return np.asarray(values)


def _above(rng: np.random.Generator, least: float) -> float:
    """A lognormal number of degrees of freedom given that it is above a bound."""
    while True:
        value = rng.lognormal(1.5, 0.4)
        if value > least:
            return float(value)


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("normal", _normal),
        Workload("linear", _linear),
        Workload("logistic", _logistic, block_size=6),
        Workload("poisson", _poisson),
        Workload("negative_binomial", _negative_binomial),
        Workload("hierarchical", _hierarchical),
        Workload("ordered_logistic", _ordered_logistic),
        Workload("student_t", _student_t, block_size=5),
        Workload("mixture", _mixture),
        Workload("gamma", _gamma),
    )
}
