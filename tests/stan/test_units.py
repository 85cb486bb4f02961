"""Units with parameters of their own and a state that their outcomes change: written with a row of data for each."""

from typing import Any

import numpy as np
import pytest
from evaluate import log_density, transformed_data
from texts import canonical

from stansub.stan.analysis import Analysis
from stansub.stan.passes.fixpoint import rewriting
from stansub.stan.passes.series.units import by_units
from stansub.stan.sparse import sparse_predictors
from stansub.types import FloatArray

HEAD = """
data { int S; int T; array[S] int<upper=T> n; array[S, T] int y; array[S, T] real gain; matrix[S, T] x; }
parameters { vector[S] a; vector[S] b; vector[T] c; real m; real<lower=0> s; }
"""
UPDATE = "q[y[j, t]] += a[j] * (gain[j, t] - q[y[j, t]]);"
BANDIT = (
    "vector[2] q = rep_vector(0, 2);"
    f" for (t in 1 : n[j]) {{ target += categorical_logit_lpmf(y[j, t] | b[j] * q); {UPDATE} }}"
)
ADDED = f"target += categorical_logit_lpmf(y[j, t] | b[j] * q); {UPDATE}"
CODES = {
    "trials of a subject's own number": f"for (j in 1 : S) {{ {BANDIT} }}",
    "added, with a state set before": (
        f"for (j in 1 : S) {{ vector[2] q; q[1] = m; q[2] = 0; for (t in 1 : T) {{ {ADDED} }} }}"
    ),
    "branches": (
        f"for (j in 1 : S) {{ vector[2] q = rep_vector(0, 2); for (t in 1 : T) if (gain[j, t] > 0) {{ {ADDED} }} }}"
    ),
    "lagged outcomes": (
        "for (j in 1 : S) { real n1 = a[j];"
        " for (t in 1 : T) { x[j, t] ~ normal(n1, s); n1 = m * n1 + b[j] * x[j, t]; } }"
    ),
    "sums": (
        "for (j in 1 : S) { real n1 = a[j]; real l = 0;"
        " for (t in 1 : T) { l += normal_lpdf(x[j, t] | n1, s); n1 = m * x[j, t]; } target += l; }"
    ),
}


def values() -> tuple[dict[str, Any], dict[str, Any]]:
    rng = np.random.default_rng(1)
    shape = k, n = 5, 4
    data = {"S": k, "T": n, "n": np.array([4, 3, 1, 2, 4]), "y": rng.integers(1, 3, shape)}
    data |= {"gain": rng.choice([-1.0, 1.0], shape), "x": rng.normal(size=shape)}
    parameters = {"a": rng.random(k), "b": rng.normal(size=k), "c": rng.normal(size=n)}
    return data, {**parameters, "m": 0.3, "s": 0.7}


@pytest.mark.parametrize("code", CODES.values(), ids=CODES)
def test_units_are_rows_of_data(code: str) -> None:
    """With the user's log density, and a likelihood in its own arguments that has a row for each unit."""
    program = canonical(f"{HEAD} model {{ a ~ normal(0, 1); {code} }}")
    analysis, (data, parameters) = Analysis.of(program), values()
    assert analysis.rewriting.passes == (by_units.name,)
    assert (analysis.size, analysis.table) == ("S", frozenset())
    rows = transformed_data(analysis.rewriting.program, data)
    expected = log_density(program, data, parameters)
    assert log_density(analysis.rewriting.program, rows, parameters) == pytest.approx(expected, rel=1e-12)
    own = analysis.likelihood_split()
    found = sparse_predictors(own, rows, data["S"])
    assert found.n_observations == data["S"]
    other = {**parameters, "b": 0.5 * parameters["b"], "m": 0.4}

    def phi(given: dict[str, Any]) -> FloatArray:
        return np.hstack([np.log(given["s"]) if one.name == "s" else given[one.name] for one in own.arguments])

    change = expected - log_density(program, data, other)
    assert found.log_lik(phi(parameters)) - found.log_lik(phi(other)) == pytest.approx(change, rel=1e-9)


OTHERS = {
    "units without parameters": f"for (j in 1 : n[1]) {{ {BANDIT} }}",
    "no state": "for (j in 1 : S) { real r = a[j]; for (t in 1 : T) x[j, t] ~ normal(r + c[t], s); }",
    "a state set for each outcome": (
        "for (j in 1 : S) { real r; for (t in 1 : T) { r = a[j] + c[t]; x[j, t] ~ normal(r, s); } }"
    ),
    "a state of all units": (
        "real r = 0; for (j in 1 : S) { for (t in 1 : T) { x[j, t] ~ normal(r + a[j], s); r = x[j, t]; } }"
    ),
    "data of another unit": (
        "for (j in 1 : S) { real r = a[j]; for (t in 1 : T) { x[1, t] ~ normal(r, s); r = x[1, t]; } }"
    ),
    "no data": "for (j in 1 : S) { real r = a[j]; for (t in 1 : T) r += c[t]; r ~ normal(0, 1); }",
}


@pytest.mark.parametrize("code", OTHERS.values(), ids=OTHERS)
def test_other_loops_are_left_alone(code: str) -> None:
    assert by_units.name not in rewriting(canonical(f"{HEAD} model {{ {code} }}")).passes
