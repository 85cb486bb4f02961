"""Sparse rows of likelihoods of no known family, in their own arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from stansub.stan import parameters
from stansub.stan.analysis import Analysis
from stansub.stan.sparse import sparse_predictors
from stansub.stan.syntax import parse
from stansub.target.programs import ProgramFamily
from stansub.target.remainders import NoPredictorsError

N, LEVELS = 60, 12
CODE = """
functions {
  real zi_lpmf(int y, real eta, real p) {
    if (y == 0) {
      return log_sum_exp(bernoulli_lpmf(1 | p), bernoulli_lpmf(0 | p) + poisson_log_lpmf(0 | eta));
    }
    return bernoulli_lpmf(0 | p) + poisson_log_lpmf(y | eta);
  }
}
data { int N; int J; array[N] int y; vector[N] x; array[N] int g; }
parameters { real a; real b; real<lower=0, upper=1> p; vector[J] z; real<lower=0> tau; }
transformed parameters { vector[J] u = tau * z; }
model {
  z ~ normal(0, 1);
  tau ~ normal(0, 1);
  for (n in 1 : N) target += zi_lpmf(y[n] | a + b * x[n] + u[g[n]], p);
}
"""


@pytest.fixture
def data() -> dict[str, Any]:
    rng = np.random.default_rng(4)
    own = {"y": rng.poisson(1.0, N), "x": rng.standard_normal(N), "g": rng.integers(1, LEVELS + 1, N)}
    return {"N": N, "J": LEVELS, **own}


@pytest.mark.parametrize("dense", [True, False])
def test_rows_of_a_program_are_sparse(data: dict[str, Any], monkeypatch: pytest.MonkeyPatch, dense: bool) -> None:
    """The likelihood in a, b, logit p and u is that of the formula, however slopes are kept while it is followed."""
    if not dense:
        monkeypatch.setattr(parameters, "_MOST_DENSE", 0)
    own = Analysis.of(parse(CODE)).halves("N")
    order = [one.name for one in own.arguments]
    assert sorted(order) == ["a", "b", "p", "u"]
    with pytest.raises(NoPredictorsError, match="not exactly one density"):
        sparse_predictors(own, data, N)
    found = sparse_predictors(own, data, N, of_family=False)
    assert isinstance(found.family, ProgramFamily)
    assert len(found.rows) == 2
    assert sorted(one.gathered.nnz for one in found.rows) == [0, N]
    rng = np.random.default_rng(5)
    for _ in range(3):
        values = {"a": rng.standard_normal(1), "b": rng.standard_normal(1), "u": 0.5 * rng.standard_normal(LEVELS)}
        values["p"] = rng.standard_normal(1)
        phi = np.concatenate([values[name] for name in order])
        mean, p = np.exp(values["a"] + values["b"] * data["x"] + values["u"][data["g"] - 1]), expit(values["p"])
        each = p * (data["y"] == 0) + (1 - p) * stats.poisson.pmf(data["y"], mean)
        assert found.log_lik(phi) == pytest.approx(np.log(each).sum(), rel=1e-10)


def test_a_probability_is_an_argument_where_an_expansion_can_begin(data: dict[str, Any]) -> None:
    found = sparse_predictors(Analysis.of(parse(CODE)).halves("N"), data, N, of_family=False)
    here = found.expansion(np.zeros(found.dim))
    assert np.isfinite(here.value)
    assert np.isfinite(here.gradient).all()
    assert np.isfinite(here.values).all()
