"""Runs whose likelihood is of no recognised family: decisions are exact by bounds that the program gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stansub
from stansub.output.inference_data import attrs
from stansub.stan.compilation import CompiledModel

ZERO_INFLATED = """
functions {
  real zi_lpmf(int y, real eta, real p) {
    if (y == 0) {
      return log_sum_exp(bernoulli_lpmf(1 | p), bernoulli_lpmf(0 | p) + poisson_log_lpmf(0 | eta));
    }
    return bernoulli_lpmf(0 | p) + poisson_log_lpmf(y | eta);
  }
}
data { int<lower=0> N; array[N] int y; vector[N] x; }
parameters { real a; real b; real<lower=0, upper=1> p; }
model {
  a ~ normal(0, 2);
  b ~ normal(0, 2);
  for (n in 1 : N) target += zi_lpmf(y[n] | a + b * x[n], p);
}
"""
N = 3000


@pytest.fixture(scope="module")
def zero_inflated(tmp_path_factory: pytest.TempPathFactory) -> CompiledModel:
    path = Path(tmp_path_factory.mktemp("programs")) / "zero_inflated.stan"
    path.write_text(ZERO_INFLATED)
    return stansub.compile_model(path)


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    rng = np.random.default_rng(5)
    x = rng.standard_normal(N)
    counts = rng.poisson(np.exp(0.4 + 0.3 * x))
    return {"N": N, "x": x, "y": np.where(rng.random(N) < 0.3, 0, counts)}


def moments(draws: Any) -> dict[str, tuple[float, float, float]]:
    """Mean, sd and standard error of each parameter, by the variance of the chains' means."""
    found = {}
    for name in ("a", "b", "p"):
        values = draws.posterior[name].to_numpy()
        parts = values.reshape(-1, 250).mean(axis=1)
        found[name] = (values.mean(), values.std(), parts.std(ddof=1) / np.sqrt(len(parts)))
    return found


def test_decisions_are_exact_and_agree_with_those_of_all_the_data(
    zero_inflated: CompiledModel, data: dict[str, Any]
) -> None:
    """By default exact from few observations; the same posterior as from all of them, and not that of other data."""
    draws = stansub.sample(zero_inflated, data, seed=1, chains=4, iter_warmup=500, iter_sampling=4000)
    facts = attrs(draws)
    assert facts["test"] in ("factorised", "poisson")
    assert np.mean(facts["n_obs_evaluated"]) < 0.01 * N * 4000
    whole = stansub.sample(zero_inflated, data, seed=2, test="exact", chains=4, iter_warmup=500, iter_sampling=1000)
    other = stansub.sample(
        zero_inflated, data | {"y": np.minimum(data["y"], 3)}, seed=1, chains=4, iter_warmup=500, iter_sampling=1000
    )
    own, truth, wrong = moments(draws), moments(whole), moments(other)

    def distance(one: dict[str, tuple[float, float, float]]) -> float:
        return max(abs(own[name][0] - one[name][0]) / np.hypot(own[name][2], one[name][2]) for name in own)

    assert distance(truth) < 5
    assert distance(wrong) > 10
    assert all(abs(own[name][1] / truth[name][1] - 1) < 0.15 for name in own)


STEPPED = """
data { int<lower=0> N; vector[N] y; vector[N] x; }
parameters { real a; real b; real<lower=0> p; }
model {
  a ~ normal(0, 2);
  b ~ normal(0, 2);
  p ~ exponential(1);
  for (n in 1 : N) {
    real mu = a + b * x[n];
    if (mu > 1.3) mu += 0.1;
    y[n] ~ normal(mu, p);
  }
}
"""


def test_observations_near_a_step_are_in_every_decision(tmp_path: Path) -> None:
    """Default decisions agree with those of all the data, and not with those of other data."""
    (tmp_path / "stepped.stan").write_text(STEPPED)
    program, rng = stansub.compile_model(tmp_path / "stepped.stan"), np.random.default_rng(6)
    x = rng.standard_normal(N)
    mu = 0.4 + 0.3 * x
    y = mu + 0.1 * (mu > 1.3) + rng.standard_normal(N)
    data = {"N": N, "x": x, "y": y}
    draws = stansub.sample(program, data, seed=1, chains=4, iter_warmup=500, iter_sampling=4000)
    whole = stansub.sample(program, data, seed=2, test="exact", chains=4, iter_warmup=500, iter_sampling=4000)
    shifted = data | {"y": np.minimum(y, 2.0)}
    other = stansub.sample(program, shifted, seed=1, test="exact", chains=4, iter_warmup=500, iter_sampling=1000)
    facts = attrs(draws)
    assert facts["test"] in ("factorised", "poisson")
    assert 10 < np.mean(facts["n_obs_evaluated"]) / 4000 < 0.1 * N
    own, truth, wrong = moments(draws), moments(whole), moments(other)
    distances = [
        max(abs(own[name][0] - one[name][0]) / np.hypot(own[name][2], one[name][2]) for name in own)
        for one in (truth, wrong)
    ]
    assert distances[0] < 5
    assert distances[1] > 10
    assert all(abs(own[name][1] / truth[name][1] - 1) < 0.15 for name in own)
