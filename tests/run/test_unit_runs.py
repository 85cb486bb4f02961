"""A model of learning, whose subjects have parameters and a state, runs as it stands."""

from typing import Any

import numpy as np
import pytest
from agreement import z_scores
from scipy.special import expit

import stansub
from stansub.output.inference_data import attrs

SUBJECTS, TRIALS = 60, 15
PROGRAM = """
data { int S; int T; array[S, T] int<lower=0, upper=1> y; matrix[S, T] gain; }
parameters { real a; real<lower=0> b; vector[S] z; real<lower=0> tau; }
model {
  a ~ normal(0, 1); b ~ normal(2, 1); z ~ std_normal(); tau ~ normal(0, 1);
  for (s in 1:S) {
    vector[2] q = [0, 0]';
    for (t in 1:T) {
      y[s, t] ~ bernoulli_logit(b * (q[2] - q[1]));
      q[y[s, t] + 1] += inv_logit(a + tau * z[s]) * (gain[s, t] - q[y[s, t] + 1]);
    }
  }
}
"""
OPTIONS: dict[str, Any] = {"seed": 2, "show_progress": False, "iter_sampling": 2_000}


@pytest.mark.slow
def test_draws_are_those_of_nuts(tmp_path: Any) -> None:
    rng = np.random.default_rng(4)
    y, gain, q = np.zeros((SUBJECTS, TRIALS), int), np.zeros((SUBJECTS, TRIALS)), np.zeros((SUBJECTS, 2))
    rate, subjects = expit(-0.5 + 0.8 * rng.standard_normal(SUBJECTS)), np.arange(SUBJECTS)
    for t in range(TRIALS):
        y[:, t] = rng.random(SUBJECTS) < expit(2 * (q[:, 1] - q[:, 0]))
        gain[:, t] = rng.random(SUBJECTS) < np.where(y[:, t] == 1, 0.8, 0.3)
        q[subjects, y[:, t]] += rate * (gain[:, t] - q[subjects, y[:, t]])
    program = tmp_path / "learning.stan"
    program.write_text(PROGRAM)
    data = {"S": SUBJECTS, "T": TRIALS, "y": y, "gain": gain}
    found = stansub.sample(program, data, **OPTIONS)
    assert attrs(found)["n_observations"] == SUBJECTS
    assert attrs(found)["guarantee"] == "exact"
    nuts = stansub.reference(program, data, engine="nutpie", **{**OPTIONS, "seed": 3})
    assert max(z_scores(found, nuts, ["a", "b", "z", "tau"])) < 4.5
    assert max(z_scores(found, nuts, ["a", "b", "tau"], wider=1.3)) > 4.5
