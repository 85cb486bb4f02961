"""Write a data JSON for one of the example programs, from its own prior-like parameters.

python stan_models/simulate.py logistic data.json --observations 100000 --seed 1
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson

Data = dict[str, Any]


def _expit(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def logistic(rng: np.random.Generator, n: int, k: int) -> Data:
    x = rng.standard_normal((n, k))
    beta = rng.normal(0.0, 0.5, k)
    y = rng.random(n) < _expit(-0.5 + x @ beta)
    return {"N": n, "K": k, "y": y.astype(int), "x": x}


def normal(rng: np.random.Generator, n: int, _: int) -> Data:
    return {"N": n, "y": rng.normal(1.0, 2.0, n)}


def normal_mean(rng: np.random.Generator, n: int, _: int) -> Data:
    return {"N": n, "y": rng.normal(1.0, 2.0, n), "sigma": 2.0}


def linear(rng: np.random.Generator, n: int, k: int) -> Data:
    x = rng.standard_normal((n, k))
    y = 0.3 + x @ rng.standard_normal(k) + rng.normal(0.0, 0.7, n)
    return {"N": n, "K": k, "y": y, "x": x}


def poisson(rng: np.random.Generator, n: int, k: int) -> Data:
    x = rng.standard_normal((n, k))
    exposure = rng.gamma(4.0, 0.25, n)
    y = rng.poisson(exposure * np.exp(0.2 + x @ rng.normal(0.0, 0.2, k)))
    return {"N": n, "K": k, "y": y, "x": x, "log_exposure": np.log(exposure)}


def hierarchical_logistic(rng: np.random.Generator, n: int, k: int) -> Data:
    groups = 20
    x = rng.standard_normal((n, k))
    group = rng.integers(0, groups, n)
    effect = rng.normal(0.0, 0.6, groups)
    y = rng.random(n) < _expit(-0.5 + x @ rng.normal(0.0, 0.5, k) + effect[group])
    return {"N": n, "K": k, "J": groups, "y": y.astype(int), "x": x, "group": group + 1}


GENERATORS: dict[str, Callable[[np.random.Generator, int, int], Data]] = {
    "logistic": logistic,
    "logistic_log_lik_i": logistic,
    "logistic_reduce_sum": logistic,
    "logistic_third_derivative": logistic,
    "normal": normal,
    "normal_mean": normal_mean,
    "linear": linear,
    "poisson": poisson,
    "hierarchical_logistic": hierarchical_logistic,
}


def simulate(program: str, *, observations: int, covariates: int, seed: int) -> Data:
    """Data for an example program, as its data block declares them."""
    return GENERATORS[program](np.random.default_rng(seed), observations, covariates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", choices=GENERATORS)
    parser.add_argument("output", type=Path)
    parser.add_argument("--observations", type=int, default=100_000)
    parser.add_argument("--covariates", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    data = simulate(
        options.program, observations=options.observations, covariates=options.covariates, seed=options.seed
    )
    options.output.write_bytes(orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY))


if __name__ == "__main__":
    main()
