"""Likelihoods whose probabilities Stan rounds far from the mode, such as those of discrete-time survival."""

from typing import Any

import numpy as np
import pytest

from stansub import CompiledModel, compile_model
from stansub.stan import surrogate

PROGRAM = """
data {
  int<lower=1> N;
  int<lower=1> J;
  array[N] int<lower=1, upper=J> clinic;
  vector[N] x;
  array[N] int<lower=0, upper=1> event;
  int<lower=0, upper=1> discounts;
}
parameters {
  real alpha;
  real beta;
  real<lower=0> tau;
  vector[J] z;
}
transformed parameters {
  vector[J] u = tau * z;
  vector<lower=0, upper=1>[J] k;
  for (j in 1:J) k[j] = Phi_approx(alpha + tau * z[j]);
}
model {
  alpha ~ normal(-1, 1);
  beta ~ normal(0, 1);
  tau ~ exponential(1);
  z ~ std_normal();
  for (n in 1:N) {
    if (discounts) {
      event[n] ~ bernoulli_logit(beta * x[n] / (1 + k[clinic[n]]));
    } else {
      event[n] ~ bernoulli(inv_cloglog(alpha + beta * x[n] + u[clinic[n]]));
    }
  }
}
"""


def hazards(discounts: int, n: int = 2000, j: int = 12) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    x, clinic = rng.standard_normal(n), rng.integers(j, size=n)
    log_hazard = -1 + 0.5 * x + 0.4 * rng.standard_normal(j)[clinic]
    event = rng.random(n) < -np.expm1(-np.exp(log_hazard))
    return {"N": n, "J": j, "clinic": clinic + 1, "x": x, "event": event.astype(int), "discounts": discounts}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> CompiledModel:
    file = tmp_path_factory.mktemp("programs") / "rounded.stan"
    file.write_text(PROGRAM)
    return compile_model(file)


@pytest.mark.parametrize(("discounts", "log_tau"), [(0, 0.0), (1, 8.0)], ids=["probability", "argument"])
def test_the_surrogate_is_proved_where_nothing_is_rounded(
    program: CompiledModel, discounts: int, log_tau: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proof failed, and chains hardly moved: far from zero, Stan's 1 - exp(-exp(x)), or an argument, is 1."""
    posterior = program.with_data(hazards(discounts))
    far = [np.random.default_rng(k).uniform(-8, 8, posterior.dim) for k in range(3)]
    for theta in far:
        theta[2] += log_tau
    kept = posterior.split()
    found = surrogate._proved(kept, posterior.full, far, lambda at: posterior.full.log_density_gradient(at)[1])
    assert found.predictors.constant == pytest.approx(kept.predictors.constant, abs=1e-6)
    monkeypatch.setattr(surrogate, "_MOST_MOVED", 0)
    with pytest.raises(surrogate.NoPredictorsError):
        surrogate._proved(kept, posterior.full, far, lambda at: posterior.full.log_density_gradient(at)[1])
