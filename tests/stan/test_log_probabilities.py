"""Logarithms of probabilities that a likelihood adds up are declared as variables, and nothing else changes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluate import log_density

from stansub.stan.analysis import Analysis
from stansub.stan.passes.log_probabilities import added_up, with_log_probabilities
from stansub.stan.source import read
from stansub.stan.sparse import sparse_predictors
from stansub.stan.syntax import Declaration, Program

HEAD = """data {
  int N; int I; int C; int V; array[N, I] int y; array[N, I] int t; array[N] int x; array[N] int g;
  array[N, V] int many;
}
parameters {
  simplex[C] nu; array[C] vector<lower=0, upper=1>[I] p; matrix[C, I] a; array[C] simplex[V] q;
  vector<lower=0, upper=1>[I] one; vector<lower=0, upper=1>[C] zero; real<lower=0, upper=1> share; vector[C] rate;
}
"""
ITEMS, WHOLE = (
    f"for (n in 1:N) {{{{ vector[C] lp = log(nu); for (c in 1:C) {{{{ {loop} lp[c] += {{}}; }}}} "
    "target += log_sum_exp(lp); }}"
    for loop in ("for (i in 1:I)", "")
)
NU = "vector[C] = log(nu)"
P, A, Q = (
    {NU, "array[C] vector[I] = log(p)", "array[C] vector[I] = log1m(p)"},
    {NU, "matrix[C, I] = log_inv_logit(a)", "matrix[C, I] = log1m_inv_logit(a)"},
    {NU, "array[C] vector[V] = log(q)"},
)
ONE = {"vector[I] = log(one)", "vector[I] = log1m(one)"}


def program(tmp_path: Path, model: str) -> Program:
    file = tmp_path / "program.stan"
    file.write_text(f"{HEAD} model {{ one ~ beta(2, 2); rate ~ normal(0, 1); {model} }}")
    return read(file).program


def added(given: Program) -> set[str]:
    """What is declared."""
    declared = (one for one in given.model.statements if isinstance(one, Declaration))
    return {f"{one.type} = {one.value}" for one in declared if one.name.startswith("stansub_log")}


def values(rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
    n, i, c, v = 12, 4, 3, 5
    data = {"N": n, "I": i, "C": c, "V": v, "y": rng.integers(0, 2, (n, i)), "t": rng.integers(1, 4, (n, i))}
    data |= {"x": rng.integers(1, v + 1, n), "g": rng.integers(1, c + 1, n), "many": rng.integers(0, 4, (n, v))}
    parameters = {"nu": rng.dirichlet(np.ones(c)), "p": rng.random((c, i)), "a": rng.standard_normal((c, i))}
    parameters |= {"q": rng.dirichlet(np.ones(v), c), "one": rng.random(i), "zero": rng.random(c), "share": 0.3}
    return data, parameters | {"rate": rng.standard_normal(c)}


@pytest.mark.parametrize(
    ("model", "found"),
    [
        (ITEMS.format("bernoulli_lpmf(y[n, i] | p[c, i])"), P),
        (ITEMS.format("bernoulli_lupmf(y[n, i] | p[c][i])"), P),
        (ITEMS.format("y[n, i] * log(p[c, i]) + (1 - y[n, i]) * log1m(p[c, i])"), P),
        (ITEMS.format("y[n, i] == 1 ? log(p[c, i]) : log(1 - p[c, i])"), P),
        (ITEMS.format("binomial_lpmf(y[n, i] | t[n, i], p[c, i])"), P),
        (ITEMS.format("bernoulli_logit_lpmf(y[n, i] | a[c, i])"), A),
        (ITEMS.format("binomial_logit_lpmf(y[n, i] | t[n, i], a[c, i])"), A),
        (WHOLE.format("bernoulli_lpmf(y[n] | p[c])"), P),
        (WHOLE.format("binomial_lpmf(y[n] | t[n], p[c])"), P),
        (WHOLE.format("bernoulli_logit_lpmf(y[n] | a[c])"), A),
        (WHOLE.format("bernoulli_lpmf(y[n] | zero[c])"), {NU, "vector[C] = log(zero)", "vector[C] = log1m(zero)"}),
        (WHOLE.format("categorical_lpmf(x[n] | q[c])"), Q),
        (WHOLE.format("categorical_lpmf(many[n, 1:2] | q[c])"), Q),
        (WHOLE.format("log(q[c, x[n]])"), Q),
        (WHOLE.format("multinomial_lpmf(many[n] | q[c])"), Q),
        ("for (n in 1:N) target += log_sum_exp(log(nu[g[n]]), sum(log(q[1])[many[n, 1:2]]));", Q),
        ("for (n in 1:N) target += log_mix(share, bernoulli_lpmf(y[n] | one), -rate[g[n]]);", ONE),
        ("for (n in 1:N) target += log_sum_exp(log(share) + bernoulli_lpmf(y[n] | one), log1m(share));", ONE),
        ("for (n in 1:N) target += log(q[1, x[n]]);", {"array[C] vector[V] = log(q)"}),
        # Probabilities without complements, of a single outcome, of a term of the likelihood, and those read otherwise.
        (
            "for (n in 1:N) target += log_sum_exp(bernoulli_lpmf(1 | zero[g[n]]), bernoulli_lpmf(0 | zero[g[n]]));",
            set(),
        ),
        (ITEMS.format("y[n, i] * log(p[c, i])"), {NU}),
        ("for (n in 1:N) for (i in 1:I) target += bernoulli_lpmf(y[n, i] | p[1, i]);", set()),
        ("for (n in 1:N) target += bernoulli_lpmf(y[n] | one);", set()),
        (ITEMS.format("bernoulli_lpmf(y[n, i] | p[c, i]) + p[c, i]"), {NU}),
        (ITEMS.format("bernoulli_lpmf(y[n, i] | p[c, i] * share)"), {NU}),
        ("for (n in 1:N) target += log(nu[1] + q[1, x[n]]);", set()),
    ],
)
def test_logarithms_are_declared(model: str, found: set[str], tmp_path: Path) -> None:
    given, rng = program(tmp_path, model), np.random.default_rng(1)
    declared = with_log_probabilities(given, "N")
    assert added(declared) == found
    for _ in range(3):
        data, parameters = values(rng)
        one, other = log_density(given, data, parameters), log_density(declared, data, parameters)
        assert np.isclose(one, other, rtol=1e-12)


def split(tmp_path: Path, model: str) -> tuple[Analysis, int]:
    analysis = Analysis.of(program(tmp_path, model))
    data, _ = values(np.random.default_rng(1))
    return analysis, len(sparse_predictors(analysis.likelihood_split(), data, data["N"]).rows)


@pytest.mark.parametrize("each", ["bernoulli_lpmf(y[n] | p[c])", "multinomial_lpmf(many[n] | q[c])"])
def test_each_class_has_one_argument(each: str, tmp_path: Path) -> None:
    analysis, n_arguments = split(tmp_path, WHOLE.format(each))
    assert n_arguments == values(np.random.default_rng(1))[0]["C"]
    assert analysis.hints().adds_logarithms


@pytest.mark.parametrize(
    ("model", "found"),
    [
        (ITEMS.format("bernoulli_lpmf(y[n, i] | p[c, i])"), ("p",)),
        (WHOLE.format("log(q[c, x[n]])"), ("q",)),
        (WHOLE.format("normal_lpdf(x[n] | rate[c], 1)"), ()),
        ("vector[C] own = log(zero); vector[C] no = log1m(zero); "
         "for (n in 1:N) target += log_sum_exp(x[n] * own[1] + (1 - x[n]) * no[1], own[2]);", ("zero",)),
        ("for (n in 1:N) target += poisson_lpmf(x[n] | exp(rate[g[n]]));", ()),
    ],
    ids=["items", "simplex", "weights", "by_hand", "rates"],
)  # fmt: skip
def test_probabilities_of_outcomes(model: str, found: tuple[str, ...], tmp_path: Path) -> None:
    given = program(tmp_path, model)
    assert added_up(with_log_probabilities(given, "N"), "N") == found
