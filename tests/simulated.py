"""The programs of `programs` and `stan_models`, with data of sizes that blocks do not divide."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stansub.stan.compilation import CompiledModel

ROOT = Path(__file__).parents[1]
# A compilation takes half a minute; what these have the others have too.
_SLOW_EXAMPLES = ("logistic_log_lik_i", "logistic_reduce_sum", "normal", "poisson")
EXAMPLES = [
    pytest.param(file, marks=pytest.mark.slow if file.stem in _SLOW_EXAMPLES else (), id=file.stem)
    for file in sorted((ROOT / "stan_models").glob("*.stan"))
]
PROGRAMS = Path(__file__).parent / "programs"
BRMS = ROOT / "tests" / "stan" / "programs" / "threading_brms_style.stan"

Data = dict[str, Any]
Compiled = Callable[[Path], CompiledModel]

_simulate = runpy.run_path(str(ROOT / "stan_models" / "simulate.py"))["simulate"]


def example(file: Path, *, observations: int = 103, seed: int = 1) -> Data:
    """Data of one of the example programs."""
    data: Data = _simulate(file.stem, observations=observations, covariates=3, seed=seed)
    return data


def simulated(file: Path, *, seed: int = 1) -> Data:
    """Data of one of the programs here."""
    return _GENERATORS[file.stem](np.random.default_rng(seed))


def _varying_dispersion(rng: np.random.Generator) -> Data:
    return {"N": 53, "K": 2, "x": rng.standard_normal((53, 2)), "y": rng.standard_normal(53)}


def _mixture(rng: np.random.Generator) -> Data:
    return {"N": 103, "K": 3, "y": rng.normal(rng.choice([-3.0, 0.0, 3.0], 103), 1.0)}


def _multivariate(rng: np.random.Generator) -> Data:
    n, d, k = 47, 3, 2
    y, z, x = (rng.standard_normal(shape) for shape in ((n, d), (n, d), (n, d, k)))
    return {"N": n, "D": d, "K": k, "y": y, "z": z, "x": x}


def _groups(rng: np.random.Generator, n: int = 61, j: int = 7) -> Data:
    return {
        "N": n,
        "J": j,
        "K": 2,
        "T": 3,
        "u": rng.standard_normal(j),
        "x": rng.standard_normal((2, n)),
        "count": rng.poisson(2.0, (3, n)),
        "group": 1 + rng.permutation(n) % j,
        "exposure": rng.gamma(4.0, 0.25, n),
    }


def _groups_as_many(rng: np.random.Generator) -> Data:
    return _groups(rng, 23, 23)


def _groups_more(rng: np.random.Generator) -> Data:
    return _groups(rng, 23, 40)


def _capture(rng: np.random.Generator) -> Data:
    length = rng.integers(1, 6, 37)
    records = int(length.sum())
    return {
        "U": 37,
        "R": records,
        "unit": np.arange(1, 38),
        "first": 1 + np.cumsum(length) - length,
        "length": length,
        "seen": rng.integers(0, 2, records),
        "covariate": rng.standard_normal(37),
    }


def _training(rng: np.random.Generator) -> Data:
    return {
        "N": 60,
        "K": 2,
        "T": 43,
        "training": np.sort(rng.permutation(60)[:43]) + 1,
        "y": rng.standard_normal(60),
        "x": rng.standard_normal((60, 2)),
        "prior_only": 0,
    }


def _sliced_parameters(rng: np.random.Generator) -> Data:
    return {"J": 11, "K": 2, "M": 5, "y": rng.integers(0, 2, (11, 5)), "x": rng.standard_normal((11, 5, 2))}


def _series(rng: np.random.Generator) -> Data:
    return {"N": 53, "y": np.cumsum(rng.standard_normal(53))}


def _centred(rng: np.random.Generator) -> Data:
    return {"N": 53, "K": 2, "x": rng.normal(1.0, 1.0, (53, 2)), "y": rng.standard_normal(53)}


def _panel(rng: np.random.Generator) -> Data:
    return {"I": 120, "T": 5, "y": rng.standard_normal((120, 5)), "x": rng.standard_normal((120, 5))}


def _many_series(rng: np.random.Generator) -> Data:
    n = {"N": 23, "K": 3, "D": 2, "J": 4}
    series = {"y": rng.standard_normal(23), "z": rng.standard_normal(23), "c": rng.poisson(2.0, 23)}
    several = {"x": rng.standard_normal((23, 3)), "v": rng.standard_normal((23, 2))}
    return {**n, **series, **several, "panel": rng.standard_normal((4, 23)), "n_seen": np.array([23, 5, 1, 2])}


def _one_each(rng: np.random.Generator) -> Data:
    return {"N": 23, "y": rng.poisson(2.0, 23)}


def _threading_brms_style(rng: np.random.Generator) -> Data:
    n, groups, subjects = 71, 5, 4
    return {
        "N": n,
        "Y": rng.standard_normal(n),
        "K": 3,
        "Kc": 2,
        "X": np.column_stack([np.ones(n), rng.normal(1.0, 1.0, (n, 2))]),
        "grainsize": 10,
        "N_1": groups,
        "M_1": 1,
        "J_1": 1 + np.arange(n) % groups,
        "Z_1_1": np.ones(n),
        "N_2": subjects,
        "M_2": 2,
        "J_2": 1 + np.arange(n) % subjects,
        "Z_2_1": np.ones(n),
        "Z_2_2": rng.standard_normal(n),
        "NC_2": 1,
        "prior_only": 0,
    }


def _brms_gaussian(rng: np.random.Generator) -> Data:
    n, groups = 107, 6
    x = np.column_stack([np.ones(n), rng.normal(1.0, 1.0, (n, 2))])
    group = 1 + rng.permutation(n) % groups
    y = x @ [0.5, 1.0, -0.5] + rng.normal(0.0, 0.7, groups)[group - 1] + rng.standard_normal(n)
    grouping = {"N_1": groups, "M_1": 1, "J_1": group, "Z_1_1": np.ones(n)}
    return {"N": n, "Y": y, "K": 3, "X": x, "Kc": 2, **grouping, "prior_only": 0}


def _survival(rng: np.random.Generator) -> Data:
    sums, data = {"obs": 131, "cen": 104, "left": 9}, {}
    for name, n in sums.items():
        data |= {f"N_{name}": n, f"t_{name}": rng.weibull(1.5, n), f"x_{name}": rng.standard_normal((n, 2))}
    return {**data, "K": 2}


def _item_response(rng: np.random.Generator) -> Data:
    persons, items = 13, 11
    person, item = (1 + grid.ravel() for grid in np.mgrid[:persons, :items])
    y = rng.integers(0, 2, persons * items)
    return {"I": items, "J": persons, "N": persons * items, "item": item, "person": person, "y": y}


def _partial_sums(rng: np.random.Generator) -> Data:
    n, m = 121, 109
    return {"N": n, "M": m, "y": rng.standard_normal(n), "x": rng.standard_normal(n), "count": rng.poisson(1.0, m)}


def _missing_values(rng: np.random.Generator) -> Data:
    n = 83
    order = 1 + rng.permutation(n)
    seen, gone, no_x = order[:74], order[74:], 1 + rng.permutation(n)[:7]
    no_z = rng.choice(2 * n, 11, replace=False)  # of both columns, some of the same row
    return {
        "N": n,
        **{"N_seen": 74, "seen": seen, "y_seen": rng.standard_normal(74), "N_gone": 9, "gone": gone},
        **{"x": rng.standard_normal(n), "M": 7, "no_x": no_x, "z": rng.standard_normal((n, 2))},
        **{"L": 11, "no_z": 1 + no_z // 2, "which_z": 1 + no_z % 2},
    }


def brms_missing(rng: np.random.Generator, n: int = 107, missing: int = 9) -> Data:
    """A predictor with missing values."""
    x = rng.normal(1.0, 1.0, n)
    y = rng.normal(0.5 + 0.7 * x, 0.5)
    gone = rng.choice(n, missing, replace=False)
    x[gone] = 0.0
    return {"N": n, "Y_y": y, "Y_x": x, "Nmi_x": missing, "Jmi_x": 1 + gone, "prior_only": 0}


def _brms_ar(rng: np.random.Generator) -> Data:
    n, lags = 64, 2
    kept = np.minimum(np.arange(n) % 23 + 1, lags)  # three series, of which each begins without residuals
    kept[[22, 45, 63]] = 0
    x = np.column_stack([np.ones(n), rng.normal(1.0, 1.0, (n, 2))])
    y = np.cumsum(rng.standard_normal(n)) / 3 + x @ [0.5, 1.0, -0.5]
    return {"N": n, "Y": y, "K": 3, "X": x, "Kc": 2, "Kar": lags, "Kma": 0, "J_lag": kept, "prior_only": 0}


def _log_lik_overloaded(rng: np.random.Generator) -> Data:
    return {"N": 30, "first": 4, "y": rng.standard_normal(30), "prior_only": 0}


_GENERATORS: dict[str, Callable[[np.random.Generator], Data]] = {
    "varying_dispersion": _varying_dispersion,
    "mixture": _mixture,
    "multivariate": _multivariate,
    "groups": _groups,
    "groups_as_many": _groups_as_many,
    "groups_more": _groups_more,
    "capture": _capture,
    "training": _training,
    "sliced_parameters": _sliced_parameters,
    "autoregression": _series,
    "random_walk": _series,
    "centred": _centred,
    "centred_prior": _series,
    "brms_gaussian": _brms_gaussian,
    "survival": _survival,
    "missing_values": _missing_values,
    "brms_missing": brms_missing,
    "brms_ar": _brms_ar,
    "partial_sums": _partial_sums,
    "item_response": _item_response,
    "dependent": _series,
    "lagged": _series,
    "series": _many_series,
    "panel": _panel,
    "one_each": _one_each,
    "threading_brms_style": _threading_brms_style,
    "log_lik_overloaded": _log_lik_overloaded,
}
