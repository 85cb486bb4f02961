"""Linear predictors of Stan programs: which are recognised, and that they are proved and not believed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stansub
from stansub.stan import stanc
from stansub.stan.predictors import _parts
from stansub.stan.recognise import recognise
from stansub.stan.sizes import main_size
from stansub.stan.syntax import parse
from stansub.target.remainders import NoPredictorsError

MODELS = Path(__file__).parents[2] / "stan_models"
PROGRAM = """
functions {{ {functions} }}
data {{ int<lower=0> N; int<lower=1> K; array[N] int<lower=0> y; matrix[N, K] x; vector[N] z; array[N] int trials; }}
parameters {{ real alpha; vector[K] beta; real<lower=0> scale; }}
model {{ alpha ~ normal(0, 1); beta ~ normal(0, 1); scale ~ normal(0, 1); {likelihood} }}
"""
LOG_LIK = """real log_lik_i(int i, array[] int y, matrix x, real alpha, vector beta) {
  real eta = alpha + x[i] * beta;
  return bernoulli_logit_lpmf(y[i] | eta);
}"""
PARTIAL = """real part(array[] int slice, int start, int end, matrix x, real alpha, vector beta) {
  return poisson_log_lpmf(slice | alpha + x[start:end] * beta);
}"""


def family_of(folder: Path, likelihood: str, functions: str = "") -> str:
    (folder / "program.stan").write_text(PROGRAM.format(likelihood=likelihood, functions=functions))
    program = parse(stanc.canonical(folder / "program.stan"))
    return _parts(program, recognise(program), main_size(program)).family


@pytest.mark.parametrize(
    ("likelihood", "functions", "family"),
    [
        ("y ~ bernoulli_logit(alpha + x * beta);", "", "bernoulli_logit"),
        ("y ~ bernoulli_logit_glm(x, alpha, beta);", "", "bernoulli_logit"),
        ("target += poisson_log_glm_lupmf(y | x, alpha, beta);", "", "poisson_log"),
        ("y ~ binomial_logit(trials, alpha + x * beta);", "", "binomial_logit"),
        ("z ~ student_t(4, alpha + x * beta, 0.5);", "", "student_t"),
        ("z ~ normal(alpha + x * beta, 0.5);", "", "normal"),
        ("for (n in 1:N) y[n] ~ poisson_log(alpha + x[n] * beta);", "", "poisson_log"),
        ("for (i in 1:N) target += log_lik_i(i, y, x, alpha, beta);", LOG_LIK, "bernoulli_logit"),
        ("target += reduce_sum(part, y, 1, x, alpha, beta);", PARTIAL, "poisson_log"),
    ],
)
def test_read_off_the_text(tmp_path: Path, likelihood: str, functions: str, family: str) -> None:
    assert family_of(tmp_path, likelihood, functions) == family


@pytest.mark.parametrize(
    ("likelihood", "reason"),
    [
        ("z ~ normal(alpha + x * beta, scale);", "more than one argument of its density depends on parameters"),
        ("z ~ double_exponential(alpha + x * beta, 1);", "double_exponential is none of"),
        ("y ~ poisson_log(alpha + x * beta); z ~ normal(alpha, 1);", "not exactly one likelihood statement"),
        (
            "for (n in 1:N) target += log_sum_exp(normal_lpdf(z[n] | alpha, 1), normal_lpdf(z[n] | 0, 1));",
            "one density",
        ),
    ],
)
def test_not_recognised(tmp_path: Path, likelihood: str, reason: str) -> None:
    with pytest.raises(NoPredictorsError, match=reason):
        family_of(tmp_path, likelihood)


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    rng = np.random.default_rng(2)
    n = 2000
    x = rng.standard_normal((n, 2))
    y = (rng.random(n) < 1 / (1 + np.exp(-(0.3 + x @ [0.8, -0.5])))).astype(int)
    return {"N": n, "K": 2, "y": y, "x": x}


@pytest.fixture(scope="module")
def posterior(data: dict[str, Any]) -> stansub.Posterior:
    return stansub.compile_model(MODELS / "logistic.stan").with_data(data, block_size=8, seed=3)


def test_of_a_program(posterior: stansub.Posterior, data: dict[str, Any]) -> None:
    """In the order in which the data have been brought."""
    found = posterior.predictors()
    order = posterior.order
    assert order is not None
    np.testing.assert_allclose(found.design[0], np.column_stack([np.ones(2000), data["x"]])[order], atol=1e-12)
    np.testing.assert_allclose(found.offset[0], 0, atol=1e-12)


def test_sampling_is_exact_and_says_so(posterior: stansub.Posterior) -> None:
    """Against importance sampling from a wide t about the mode: means and sds in Monte Carlo standard errors."""
    idata = stansub.sample(posterior, test="factorised", seed=4, chains=2, iter_sampling=6000)
    assert idata.attrs["guarantee"] == "exact by proved bounds"
    chains = idata["chain_stats"]
    assert int(chains["n_audited"].sum()) == 0
    assert 0 < float(chains["bound_tightness"].max()) < 1
    assert float(chains["n_obs_used"].sum()) < 0.2 * 2000 * float(chains["n_steps"].sum())
    assert not idata.attrs["warnings"]
    draws = np.asarray(idata["unconstrained_posterior"]["theta"]).reshape(-1, 3)
    rng = np.random.default_rng(1)
    centre, factor = draws.mean(0), np.linalg.cholesky(np.cov(draws.T))
    z = rng.standard_normal((4000, 3)) / np.sqrt(rng.chisquare(8, 4000) / 8)[:, np.newaxis]
    proposed = centre + z @ factor.T
    log_weights = np.array([posterior.full.log_density(theta) for theta in proposed])
    log_weights += 0.5 * (8 + 3) * np.log1p((z**2).sum(1) / 8)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    mean = weights @ proposed
    sd = np.sqrt(weights @ (proposed - mean) ** 2)
    error = np.sqrt(1 / (weights**2).sum() ** -1 + 1 / 8000)
    assert np.abs((draws.mean(0) - mean) / sd).max() < 4.5 * error
    assert np.abs(draws.std(0) / sd - 1).max() < 4.5 * error
