"""Programs with a table of outcomes, whose rows have parameters, run as they stand."""

from typing import Any

import numpy as np
import pytest
from agreement import z_scores
from scipy.special import expit

import stansub
from stansub.errors import InputError
from stansub.output.inference_data import attrs

PERSONS, ITEMS = 60, 25
PROGRAM = """
data { int<lower=1> J; int<lower=1> I; array[J, I] int<lower=0, upper=1> y; }
parameters { vector[I] b; vector[J] z; real<lower=0> tau; }
transformed parameters { vector[J] theta = tau * z; vector[I] easy = -b; }
model {
  b ~ normal(0, 2); z ~ std_normal(); tau ~ normal(0, 1);
  for (j in 1:J) y[j] ~ bernoulli_logit(theta[j] - b);
}
generated quantities {
  array[J, I] int y_rep;
  for (j in 1:J) for (i in 1:I) y_rep[j, i] = bernoulli_logit_rng(theta[j] - b[i]);
}
"""
OPTIONS: dict[str, Any] = {"seed": 2, "show_progress": False}


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    rng = np.random.default_rng(4)
    eta = 0.8 * rng.standard_normal((PERSONS, 1)) - rng.standard_normal(ITEMS)
    return {"J": PERSONS, "I": ITEMS, "y": (rng.random(eta.shape) < expit(eta)).astype(int)}


@pytest.mark.slow
def test_draws_are_those_of_nuts(data: dict[str, Any], tmp_path: Any) -> None:
    program = tmp_path / "answers.stan"
    program.write_text(PROGRAM)
    found = stansub.sample(program, data, **OPTIONS, iter_sampling=4_000)
    facts = attrs(found)
    assert facts["settings"]["proposal"] == "surrogate"
    assert facts["n_observations"] == PERSONS * ITEMS
    assert facts["guarantee"] == "exact"
    assert found.observed_data["y"].shape == (PERSONS, ITEMS)
    assert set(found.posterior) == {"b", "z", "tau", "theta", "easy"}  # not y_rep, which has a value for each cell
    with pytest.raises(InputError, match="cells of a table"):
        stansub.ppc(found, data=data)
    nuts = stansub.reference(program, data, engine="nutpie", seed=3, iter_sampling=4_000, show_progress=False)
    assert max(z_scores(found, nuts, ["b", "theta", "tau"])) < 4.5
    assert max(z_scores(found, nuts, ["b", "theta", "tau"], wider=1.1)) > 6


PANEL = """
data { int J; int T; array[J] vector[T] y; }
parameters { real mu; real b; vector[J] u; real<lower=0> tau; real<lower=0> s; }
model {
  mu ~ normal(0, 1); b ~ normal(0, 1); u ~ normal(0, tau); tau ~ exponential(1); s ~ exponential(1);
  for (j in 1:J) for (t in 2:T) y[j, t] ~ normal(mu + u[j] + b * y[j, t - 1], s);
}
"""


@pytest.mark.slow
def test_series_of_units_have_surrogate_transitions(tmp_path: Any) -> None:
    """Each term reads the time before, and the effect of its unit."""
    n_units, n_times, rng = 60, 30, np.random.default_rng(5)
    u, y = 0.5 * rng.standard_normal(n_units), np.zeros((n_units, n_times))
    for t in range(1, n_times):
        y[:, t] = 0.2 + u + 0.4 * y[:, t - 1] + rng.standard_normal(n_units)
    data, program = {"J": n_units, "T": n_times, "y": y}, tmp_path / "panel.stan"
    program.write_text(PANEL)
    found = stansub.sample(program, data, **OPTIONS, iter_sampling=4_000)
    assert attrs(found)["settings"]["proposal"] == "surrogate"
    assert attrs(found)["n_observations"] == n_units * (n_times - 1)
    nuts = stansub.reference(program, data, engine="nutpie", seed=3, iter_sampling=4_000, show_progress=False)
    assert max(z_scores(found, nuts, ["mu", "b", "u", "tau", "s"])) < 4.5
    assert max(z_scores(found, nuts, ["mu", "b", "u", "tau", "s"], wider=1.1)) > 6
