"""Runs whose log likelihoods have kinks: quantile regression in the way of brms, and absolute errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import arviz as az
import numpy as np
import pytest
from kinked import ASYM_LAPLACE

import stansub
from stansub.cli import main
from stansub.output.inference_data import attrs
from stansub.stan.compilation import CompiledModel

N = 3000
QUANTILE = (
    f"functions {{{ASYM_LAPLACE}\n}}"
    + """
data {
  int<lower=1> N;
  vector[N] Y;
  int<lower=1> Kc;
  matrix[N, Kc] Xc;
  int prior_only;
}
parameters { vector[Kc] b; real Intercept; real<lower=0> sigma; }
transformed parameters {
  real quantile = 0.25;
  real lprior = 0;
  lprior += student_t_lpdf(Intercept | 3, 0, 2.5);
  lprior += student_t_lpdf(sigma | 3, 0, 2.5) - 1 * student_t_lccdf(0 | 3, 0, 2.5);
}
model {
  if (!prior_only) {
    vector[N] mu = rep_vector(0.0, N);
    mu += Intercept + Xc * b;
    for (n in 1:N) {
      target += asym_laplace_lpdf(Y[n] | mu[n], sigma, quantile);
    }
  }
  target += lprior;
}
"""
)
ABSOLUTE = """
data { int<lower=0> N; int<lower=1> K; matrix[N, K] X; vector[N] Y; }
parameters { vector[K] beta; real<lower=0> sigma; }
model {
  beta ~ normal(0, 5);
  sigma ~ normal(0, 5);
  Y ~ double_exponential(X * beta, sigma);
}
"""


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    rng = np.random.default_rng(5)
    x = np.column_stack([np.ones(N), rng.standard_normal((N, 2))])
    y = x @ [0.5, 1.0, -0.7] + 1.3 * rng.standard_normal(N)
    return {"N": N, "K": 3, "X": x, "Kc": 2, "Xc": x[:, 1:], "Y": y, "prior_only": 0}


def written(folder: Path, text: str) -> Path:
    path = folder / "program.stan"
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def quantile(tmp_path_factory: pytest.TempPathFactory) -> CompiledModel:
    return stansub.compile_model(written(tmp_path_factory.mktemp("quantile"), QUANTILE))


def largest_z(one: Any, other: Any) -> float:
    """Of means and of sds, in Monte Carlo standard errors of both."""
    names, found = ["b", "Intercept", "sigma"], []
    for kind in ("mean", "sd"):
        tables = [az.summary(each, var_names=names, kind="all", round_to="none") for each in (one, other)]
        values, errors = ([table[column].to_numpy() for table in tables] for column in (kind, f"mcse_{kind}"))
        found.append(np.max(np.abs(values[0] - values[1]) / np.hypot(*errors)))
    return float(max(found))


def test_quantile_regression_is_exact_and_agrees_with_all_the_data(
    quantile: CompiledModel, data: dict[str, Any]
) -> None:
    """A random walk that evaluates everything, without control variates, has the same posterior."""
    draws = stansub.sample(quantile, data, seed=1, chains=4, iter_warmup=500, iter_sampling=2000)
    facts = attrs(draws)
    assert facts["test"] in ("factorised", "poisson")
    assert np.mean(facts["n_obs_evaluated"]) < 0.1 * N * 2000
    settings: dict[str, Any] = {"chains": 4, "iter_warmup": 1000, "iter_sampling": 5000}
    whole = stansub.sample(quantile, data, seed=2, test="exact", control_variates=0, **settings)
    moved = data | {"Y": data["Y"] + 0.02}
    other = stansub.sample(quantile, moved, seed=2, chains=4, iter_warmup=500, iter_sampling=2000)
    assert largest_z(draws, whole) < 5
    assert largest_z(draws, other) > 10


@pytest.mark.slow
def test_check_says_that_decisions_are_exact(
    tmp_path: Path, data: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    given = tmp_path / "data.json"
    given.write_text(json.dumps({name: np.asarray(value).tolist() for name, value in data.items()}))
    with pytest.raises(SystemExit) as stopped:
        main(["check", str(written(tmp_path, ABSOLUTE)), str(given)])
    assert stopped.value.code in (0, None)
    assert "Exact         yes (2 arguments per observation)" in capsys.readouterr().out
