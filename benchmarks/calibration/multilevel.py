"""Multilevel programs, and simulations of their parameters and data.

Groupings have at least nine levels: the elements of shorter variables are read as covariates (`stansub.stan.sparse`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

Values = dict[str, Any]
Simulate = Callable[[np.random.Generator], tuple[Values, Values]]

_HERE = Path(__file__).resolve().parent
_MULTILEVEL = _HERE.parent / "multilevel" / "programs"


@dataclass(frozen=True)
class Multilevel:
    """A multilevel program with its prior and likelihood in numpy.

    Attributes
    ----------
    simulate : callable
        From a generator to parameters and data.
    quantities : tuple of str
        Scalars to rank: scales, correlations, and elements of each variable.
    """

    name: str
    path: Path
    simulate: Simulate
    quantities: tuple[str, ...]


def _crossed(rng: np.random.Generator, n: int = 200, j: int = 9, m: int = 10) -> tuple[Values, Values]:
    values: Values = {"alpha": rng.normal(0, 2), "beta": rng.normal(0, 1, 1)}
    values |= {"tau": abs(rng.normal()), "omega": abs(rng.normal())}
    values |= {"u": rng.normal(0, values["tau"], j), "v_raw": rng.standard_normal(m)}
    x, g, h = rng.standard_normal((n, 1)), rng.integers(j, size=n), rng.integers(m, size=n)
    eta = values["alpha"] + x @ values["beta"] + values["u"][g] + values["omega"] * values["v_raw"][h]
    y = (rng.random(n) < expit(eta)).astype(int)
    return values, {"N": n, "K": 1, "J": j, "M": m, "y": y, "x": x, "g": g + 1, "h": h + 1}


def _correlated(rng: np.random.Generator, n: int = 200, j: int = 9, k: int = 9) -> tuple[Values, Values]:
    """A correlation with the density of LKJ(2) is 2 b - 1, with b of a beta distribution."""
    values: Values = {"alpha": rng.normal(0.5, 0.5), "beta": rng.normal(0, 0.3), "shape": rng.lognormal(0.7, 0.4)}
    values |= {"sigma": rng.lognormal(-0.7, 0.4, 2), "tau": rng.lognormal(-0.7, 0.4)}
    correlation = 2 * rng.beta(2, 2) - 1
    values["L"] = np.array([[1, 0], [correlation, np.sqrt(1 - correlation**2)]])
    values |= {"z": rng.standard_normal((2, j)), "v": rng.normal(0, values["tau"], k)}
    u = (values["sigma"][:, np.newaxis] * values["L"] @ values["z"]).T
    x, g, h = rng.standard_normal(n), rng.integers(j, size=n), rng.integers(k, size=n)
    mean = np.exp(values["alpha"] + values["beta"] * x + u[g, 0] + u[g, 1] * x + values["v"][h])
    y = rng.poisson(mean * rng.gamma(values["shape"], 1 / values["shape"], n))
    return values, {"N": n, "J": j, "K": k, "x": x, "g": g + 1, "h": h + 1, "y": y}


def _item_response(rng: np.random.Generator, n: int = 1800, items: int = 9, persons: int = 10) -> tuple[Values, Values]:
    values: Values = {"sigma_a": abs(rng.normal()), "sigma_b": abs(rng.normal()), "theta": rng.standard_normal(persons)}
    values |= {"log_a": rng.normal(0, values["sigma_a"], items), "b": rng.normal(0, values["sigma_b"], items)}
    item, person = np.arange(n) % items, np.arange(n) // items % persons
    eta = np.exp(values["log_a"])[item] * (values["theta"][person] - values["b"][item])
    y = (rng.random(n) < expit(eta)).astype(int)
    return values, {"N": n, "I": items, "P": persons, "y": y, "item": item + 1, "person": person + 1}


def _horseshoe(rng: np.random.Generator, n: int = 200, k: int = 4, j: int = 9) -> tuple[Values, Values]:
    values: Values = {"alpha": rng.normal(), "z": rng.standard_normal(k), "lambda": abs(rng.standard_t(3, k))}
    values |= {"tau": abs(rng.normal(0, 0.5)), "slab": rng.lognormal(0.5, 0.3), "omega": abs(rng.normal())}
    values["v"] = rng.normal(0, values["omega"], j)
    plain = values["tau"] * values["lambda"]
    beta = plain * values["z"] / np.sqrt(1 + (plain / values["slab"]) ** 2)
    x, g = rng.standard_normal((n, k)), rng.integers(j, size=n)
    y = (rng.random(n) < expit(values["alpha"] + x @ beta + values["v"][g])).astype(int)
    return values, {"N": n, "K": k, "J": j, "y": y, "x": x, "g": g + 1}


MODELS = {
    model.name: model
    for model in (
        Multilevel(
            "crossed", _MULTILEVEL / "crossed.stan", _crossed, ("alpha", "beta.1", "tau", "omega", "u.1", "v.1")
        ),
        Multilevel(
            "correlated",
            _HERE / "models" / "correlated.stan",
            _correlated,
            ("alpha", "beta", "shape", "sigma.1", "sigma.2", "L.2.1", "u.1.1", "u.1.2", "tau", "v.1"),
        ),
        Multilevel(
            "horseshoe",
            _HERE / "models" / "horseshoe.stan",
            _horseshoe,
            ("alpha", "beta.1", "beta.2", "lambda.1", "tau", "slab", "omega", "v.1"),
        ),
        Multilevel(
            "item_response",
            _MULTILEVEL / "item_response.stan",
            _item_response,
            ("sigma_a", "sigma_b", "log_a.1", "b.1", "theta.1"),
        ),
    )
}
