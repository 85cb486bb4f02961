"""Calls of a program's own functions are replaced by what the functions do, with the same log density."""

from pathlib import Path

import numpy as np
import pytest
from evaluate import log_density

from stansub.stan.analysis import Analysis
from stansub.stan.inlining import inlined
from stansub.stan.scaled_effects import with_scaled_effects
from stansub.stan.source import read
from stansub.stan.syntax import Program

FUNCTIONS = """
  real twice(real x) { return 2 * x; }
  vector eta(real a, real tau, vector z, array[] int g) { return a + twice(tau) * z[g]; }
  real part_lpdf(array[] real slice, int start, int end, real a, real tau, vector z, array[] int g) {
    real sum = 0;
    for (n in start : end) {
      real mu = a + tau * z[g[n]];
      sum += normal_lpdf(slice[n - start + 1] | mu, 1);
    }
    return sum;
  }
  real whole(array[] real y, vector mu) { return normal_lpdf(y | mu, 1); }
  real half(real x) { return x / 2; }
  real same(real x) { return x; }
  real same(vector x) { return sum(x); }
  real either(real x, real y) { if (x > 0) return y; return x; }
"""
REDUCED = "target += reduce_sum(part_lupdf, y, 1, a, sum, z, g);"


def program(tmp_path: Path, model: str) -> Program:
    file = tmp_path / "program.stan"
    file.write_text(
        f"functions {{ {FUNCTIONS} }} data {{ int N; int J; array[N] real y; array[N] int g; }}"
        "parameters { real a; real<lower=0> sum; vector[J] z; }"
        f"model {{ z ~ normal(0, 1); sum ~ normal(0, 1); {model} }}"
    )
    return read(file).program


@pytest.mark.parametrize(
    "model",
    [
        REDUCED,
        "target += reduce_sum_static(part_lpdf, y, 1, a, sum, z, g);",
        "target += part_lpdf(y | 1, N, a, sum, z, g);",
        "target += whole(y, eta(a, sum / 2, z, g));",
        "y ~ normal(eta(a, sum / 2, z, g), 1);",
        "vector[N] mu = eta(a, sum / 2, z, g); y ~ normal(mu, 1);",
        "for (n in 1 : N) y[n] ~ normal(a + twice(sum / 2) * z[g[n]], 1);",
    ],
)
def test_functions_are_replaced_and_their_products_seen(model: str, tmp_path: Path) -> None:
    """Variables of a function may have the names of parameters."""
    given = program(tmp_path, model)
    written = inlined(given)
    own = {one.name for one in written.functions}
    assert not any(f"{name}(" in written.text(written.model.span) for name in own)
    scaled = with_scaled_effects(written, "N")
    assert [one.name for one in Analysis.of(given).likelihood_split("N").arguments] == ["a", "stansub_scaled_1"]
    plain = program(tmp_path, "for (n in 1 : N) y[n] ~ normal(a + sum * z[g[n]], 1);")
    rng = np.random.default_rng(1)
    data = {"N": 12, "J": 4, "y": rng.standard_normal(12), "g": rng.integers(1, 5, 12)}
    for _ in range(3):
        values = {"a": rng.standard_normal(), "sum": rng.gamma(2), "z": rng.standard_normal(4)}
        expected = log_density(plain, data, values)
        for one in (written, scaled):
            assert log_density(one, data, values) == pytest.approx(expected, rel=1e-12)


def test_an_index_of_a_slice_is_one_of_the_whole(tmp_path: Path) -> None:
    code = inlined(program(tmp_path, REDUCED)).code
    assert "normal_lpdf(y[stansub_n_1] | stansub_mu_1, 1)" in code
    assert "for (stansub_n_1 in 1 : N)" in code


def test_integers_become_real_where_the_function_takes_reals(tmp_path: Path) -> None:
    assert "half" not in (code := inlined(program(tmp_path, "y ~ normal(half(1) * a, 1);")).code).split("model")[1]
    assert "1.0 / 2 * a" in code


@pytest.mark.parametrize(
    "model",
    ["target += same(a);", "target += either(a, sum);", "y ~ normal(a, sum);", "target += normal_lpdf(y | a, 1);"],
)
def test_other_programs_stay(model: str, tmp_path: Path) -> None:
    given = program(tmp_path, model)
    assert inlined(given) is given
