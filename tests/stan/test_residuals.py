"""Residuals that are kept for later observations: how they are computed from rows of data, and which are left alone."""

from pathlib import Path

import pytest
from texts import canonical, words

from stansub.stan import source
from stansub.stan.analysis import Analysis
from stansub.stan.parts import divide
from stansub.stan.passes.rewriting import RefusedError
from stansub.stan.passes.series.residuals import with_residuals
from stansub.stan.syntax import Program

PROGRAMS = Path(__file__).parents[2] / "benchmarks" / "reach" / "programs"

HEAD = """
data {
  int N; int K; int L; int J; vector[N] y; matrix[N, K] X; array[N] int lags; array[N] int g; vector[N] w;
  matrix[K, N] Z;
}
parameters { real a; vector[K] b; vector[L] ar; vector[J] u; vector[N] each; real<lower=0> s; }
"""
BEFORE = "matrix[N, L] kept = rep_matrix(0, N, L); vector[N] e; vector[N] mu = a + X * b;"
RESIDUAL = "e[n] = y[n] - mu[n];"
KEEPING = "for (i in 1:lags[n]) kept[n + 1, i] = e[n + 1 - i];"
ADDED = "mu[n] += kept[n, 1:L] * ar;"
LIKELIHOOD = "y ~ normal(mu, s);"


def read(before: str, *loop: str, after: str = LIKELIHOOD) -> Program:
    code = f"{HEAD} model {{ {before} for (n in 1:N) {{ {' '.join(loop)} }} {after} }}"
    return canonical(code)


def test_residuals_from_rows() -> None:
    before = f"{BEFORE} for (n in 1:N) mu[n] += u[g[n]] * w[n];"
    found = with_residuals(read(before, RESIDUAL, KEEPING, ADDED))
    assert found is not None
    model, data = (words(found.text(block.inside)) for block in (found.model, found.transformed_data))
    assert (
        words("""
        for (stansub_lag in 1 : L) {
          vector[N] stansub_lagged_mu = a + stansub_lagged_X[stansub_lag] * b;
          for (n in 1 : N) {
            stansub_lagged_mu[n] += u[stansub_lagged_g[stansub_lag][n]] * stansub_lagged_w[stansub_lag][n];
          }
          for (n in 1 : N) {
            if (stansub_lag <= stansub_kept[n]) {
              kept[n, stansub_lag] = stansub_lagged_y[stansub_lag][n] - stansub_lagged_mu[n];
            }
          }
        }
        for (n in 1 : N) { mu[n] += kept[n, 1 : L] * ar; }
        y ~ normal(mu, s);""")
        in model
    )
    assert words("array[L, N] int stansub_lagged_g = rep_array(g, L);") in data
    assert words("array[L] matrix[N, K] stansub_lagged_X = rep_array(X, L);") in data
    assert words("stansub_lagged_X[stansub_lag, stansub_row] = X[stansub_row - stansub_lag];") in data
    assert words("for (n in 2 : N) { stansub_kept[n] = lags[n - 1]; }") in data
    assert with_residuals(found) is None


def test_variables_that_are_declared_together() -> None:
    found = with_residuals(read(BEFORE.replace("e; vector[N] mu", "e, mu"), RESIDUAL, KEEPING, ADDED))
    assert found is not None
    assert words("{ vector[N] stansub_lagged_mu = a + stansub_lagged_X[stansub_lag] * b;") in words(found.code)


@pytest.mark.parametrize(
    ("before", "loop"),
    [
        (BEFORE, (ADDED, RESIDUAL, KEEPING)),  # a moving average
        (BEFORE, (RESIDUAL, KEEPING)),
        (BEFORE, (RESIDUAL, KEEPING.replace("n + 1, i", "n + 2, i"), ADDED)),
        (BEFORE, (RESIDUAL, KEEPING.replace("n + 1 - i", "n - i"), ADDED)),
        (BEFORE, (RESIDUAL, KEEPING.replace("lags[n]", "L"), ADDED)),
    ],
)
def test_what_is_left_alone(before: str, loop: tuple[str, ...]) -> None:
    assert with_residuals(read(before, *loop)) is None


@pytest.mark.parametrize(
    ("before", "residual"),
    [
        (BEFORE, RESIDUAL.replace("mu[n]", "mu[n] - kept[n, 1]")),
        (BEFORE, RESIDUAL.replace("mu[n]", "mu[n] - each[n]")),
        (BEFORE.replace("X * b", "Z' * b"), RESIDUAL),
    ],
)
def test_residuals_of_more_than_an_observation_are_refused(before: str, residual: str) -> None:
    program = read(before, residual, KEEPING, ADDED)
    refused = with_residuals(program)
    assert isinstance(refused, RefusedError)
    assert refused.reason == "computes a residual from data of other observations"
    assert program.text(refused.span) == residual


def test_errors_as_brms_writes_them() -> None:
    autoregressive, moving = (source.read(PROGRAMS / f"brms_{name}.stan").program for name in ("ar", "ma"))
    assert with_residuals(moving) is None
    found = with_residuals(autoregressive)
    parts = divide(found) if found else None
    assert parts is not None
    assert parts.sizes[0] == "N"
    assert {"stansub_lagged_Xc", "stansub_lagged_Y", "stansub_kept"} <= {one.name for one in parts.computed}
    assert "J_lag" not in {one.name for one in parts.declarations}


def test_the_likelihood_of_effects_is_split_from_the_rest_over_rows_at_each_lag() -> None:
    effects = "for (n in 1:N) mu[n] += u[g[n]] * w[n];"
    code = read(f"{BEFORE} {effects}", RESIDUAL, KEEPING, ADDED, after="y ~ normal(mu, s); u ~ normal(0, s);")
    own = Analysis.of(canonical(code.code.replace("vector[N] each;", ""))).likelihood_split("N")
    assert [one.name for one in own.arguments] == ["a", "b", "ar", "u", "s"]
    assert "stansub_lagged_mu" in own.likelihood.code
    assert "e[n + 1 - i]" not in own.likelihood.code
    assert "stansub_lagged" not in own.surrogate


def test_effects_and_what_reads_no_rows_are_not_computed_again() -> None:
    before = f"{BEFORE} vector[J] r = s * u; vector[J] sum = r + a; for (n in 1:N) mu[n] += sum[g[n]] * w[n];"
    found = with_residuals(read(before, RESIDUAL, KEEPING, ADDED))
    assert found is not None
    assert words("stansub_lagged_mu[n] += sum[stansub_lagged_g[stansub_lag][n]]") in words(found.code)
    assert "stansub_lagged_sum" not in found.code
    assert found.code.count("s * u") == 1
