"""Sums over observations of arrays of different lengths, as rows of one likelihood in its own arguments."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import stats

from stansub.stan.analysis import Analysis
from stansub.stan.data.data import load
from stansub.stan.sparse import Followed, follow_likelihood
from stansub.stan.syntax import parse

N, M, J = 400, 150, 20
CODE = """
data {
  int N; int M; int J; int L;
  vector<lower=0>[N] t; vector<lower=0>[M] c; vector<lower=0>[L] e;
  array[N] int g; array[M] int h; array[L] int k;
}
parameters { real a; real<lower=0> shape; vector[J] u; real<lower=0> tau; }
model {
  a ~ normal(0, 1);
  u ~ normal(0, tau);
  t ~ weibull(shape, exp(a + u[g]));
  for (m in 1 : M) target += weibull_lccdf(c[m] | shape, exp(a + u[h[m]]));
  MORE
}
"""
EARLY = "target += weibull_lcdf(e | shape, exp(a + u[k]));"


def data(n_early: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    sizes = {"t": (N, "g"), "c": (M, "h"), "e": (n_early, "k")}
    found: dict[str, Any] = {"N": N, "M": M, "J": J, "L": n_early}
    for name, (n, level) in sizes.items():
        found |= {name: rng.weibull(1.3, n) + 0.1, level: rng.integers(1, J + 1, n)}
    return found


def followed(code: str, values: dict[str, Any], *, alone: bool = False) -> Followed:
    program = parse(code)
    analysis = Analysis.of(program)
    return follow_likelihood(analysis, load(values).checked(program.data.declarations), analysis.size, alone=alone)


def log_lik(values: dict[str, Any], a: float, log_shape: float, u: np.ndarray, names: str) -> Any:
    shape, found = np.exp(log_shape), []
    for name, level, of in (("t", "g", "logpdf"), ("c", "h", "logsf"), ("e", "k", "logcdf")):
        if name in names:
            scale = np.exp(a + u[values[level] - 1])
            found.append(getattr(stats.weibull_min, of)(values[name], shape, scale=scale))
    return np.concatenate(found)


@pytest.mark.parametrize(
    ("n_early", "alone", "sums", "names"),
    [
        (0, False, ("N", "M"), "tc"),
        (120, False, ("N", "M", "L"), "tce"),
        (M, False, ("N", "M", "L"), "tce"),  # as many as of another
        (99, False, ("N", "M"), "tc"),  # too few, so evaluated with the prior
        (120, True, ("N",), "t"),
    ],
)
def test_rows_of_all_sums(n_early: int, alone: bool, sums: Any, names: str) -> None:
    """Log likelihoods of observations change as those of the formula, one sum after the other."""
    values = data(n_early)
    found = followed(CODE.replace("MORE", EARLY), values, alone=alone)
    assert found.sums.sizes == sums
    assert len(found.predictors.rows) == 2
    order = [one.name for one in found.sums.own.arguments]
    rng, changes = np.random.default_rng(3), []
    for _ in range(2):
        given = {"a": rng.standard_normal(), "shape": 0.3 * rng.standard_normal(), "u": rng.standard_normal(J)}
        phi = np.concatenate([np.atleast_1d(given[name]) for name in order])
        own = found.predictors.family.log_lik(found.predictors.at(phi))
        expected = log_lik(values, given["a"], given["shape"], given["u"], names)
        assert len(own) == len(expected) == found.predictors.n_observations
        changes.append((own, expected))
    (first, one), (second, other) = changes
    np.testing.assert_allclose(second - first, other - one, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "more",
    [
        "target += normal_lpdf(e | u[g[1 : L]], 1);",  # rows of two arrays in one term
        "e ~ normal(mean(u[g]), 1);",
        "{ vector[L] m = u[k]; m[1] += t[1]; e ~ normal(m, 1); }",
    ],
)
def test_sums_that_read_rows_of_others_are_left_out(more: str) -> None:
    """The main sum is taken alone if the text of all, each without the rows of the others, cannot be followed."""
    assert followed(CODE.replace("MORE", more), data(120)).sums.sizes == ("N",)


def test_the_mean_of_rows_that_are_left_out() -> None:
    """Data may be centred by their means, as brms does. The mean of no rows gives no warning."""
    centred = CODE.replace("parameters {", "transformed data { vector[M] d = c - mean(c) + 2; } parameters {", 1)
    code = centred.replace("MORE", "").replace("c[m] |", "d[m] |")
    values = data()
    values["c"] = np.full(M, 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert followed(code, values).sums.sizes == ("N", "M")


def test_sums_of_threads_as_brms_writes_them() -> None:
    """Each `reduce_sum` has the data of all outcomes as arguments, and its function those of its own."""
    function = """
    real part_K_lpmf(array[] int seq, int start, int end, vector t, array[] int g, vector c, array[] int h,
                     real a, real shape, vector u) {
      real sum = 0;
      for (n in start : end) sum += weibull_DENSITY(OUTCOME[n] | shape, exp(a + u[LEVEL[n]]));
      return sum;
    }
    """
    own = {"N": ("lpdf", "t", "g"), "M": ("lccdf", "c", "h")}
    functions, calls, rows = "", "", ""
    for size, (density, outcome, level) in own.items():
        written = function.replace("K", size).replace("DENSITY", density)
        functions += written.replace("OUTCOME", outcome).replace("LEVEL", level)
        calls += f"target += reduce_sum(part_{size}_lpmf, seq_{size}, 1, t, g, c, h, a, shape, u);\n"
        rows += f"array[{size}] int seq_{size} = linspaced_int_array({size}, 1, {size});\n"
    start, end = CODE.index("  t ~ weibull"), CODE.index("  MORE")
    code = CODE[:start] + calls + CODE[end:].replace("MORE", "")
    code = f"functions {{ {functions} }}\n" + code.replace(
        "parameters {", f"transformed data {{ {rows} }}\nparameters {{"
    )
    values = data()
    found, plain = followed(code, values), followed(CODE.replace("MORE", ""), values)
    assert found.sums.sizes == plain.sums.sizes == ("N", "M")
    assert [one.name for one in found.sums.own.arguments] == [one.name for one in plain.sums.own.arguments]
    phi = np.random.default_rng(6).standard_normal(found.predictors.dim)
    of_both = [one.family.log_lik(one.at(phi)) for one in (found.predictors, plain.predictors)]
    np.testing.assert_allclose(*of_both, rtol=1e-12, atol=1e-12)
