"""Calls of a program's own functions are replaced by what the functions do, with the same log density."""

from pathlib import Path

import numpy as np
import pytest
from evaluate import log_density
from texts import canonical, words

from stansub.stan.analysis import Analysis
from stansub.stan.passes.fixpoint import FUNCTIONS as FUNCTIONS_IN_PLACE
from stansub.stan.passes.fixpoint import rewriting
from stansub.stan.passes.inlining import inlined
from stansub.stan.passes.scaled_effects import with_scaled_effects
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
        "target += part_lpdf(y | 1, N, same(a), sum, z, g);",
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
    ["target += either(a, sum);", "y ~ normal(a, sum);", "target += normal_lpdf(y | a, 1);"],
)
def test_other_programs_stay(model: str, tmp_path: Path) -> None:
    given = program(tmp_path, model)
    assert inlined(given) is given


MERGE = """
  vector merge_missing(array[] int gone, vector x_obs, vector x_miss) {
    int N = dims(x_obs)[1];
    int M = num_elements(x_miss);
    vector[N] merged;
    merged = x_obs;
    for (i in 1:M) merged[gone[i]] = x_miss[i];
    return merged;
  }"""
SHORT = """
  vector merge_missing(array[] int gone, vector x_obs, vector x_miss) {
    vector[rows(x_obs)] merged = x_obs;
    merged[gone] = x_miss;
    for (i in 1:size(gone)) merged[gone[i]] = x_miss[i];
    return merged;
  }"""
FILLED = """
functions {{ {function} }}
data {{ int N; int M; vector[N] x; vector[N] y; array[M] int gone; }}
parameters {{ real a; real b; vector[M] guess; real<lower=0> s; }}
model {{ {model} v ~ normal(a, 1); y ~ normal(b * v, s); }}
"""
MERGED = "merge_missing(gone, to_vector(x), guess)"


def filled(function: str, model: str) -> Program:
    return inlined(canonical(FILLED.format(function=function, model=model)))


def model_of(program: Program) -> str:
    return words(program.text(program.model.inside)).removesuffix(words("v ~ normal(a, 1); y ~ normal(b * v, s);"))


@pytest.mark.parametrize("model", [f"vector[N] v; v = {MERGED};", f"vector[N] v = {MERGED};"])
def test_values_are_assigned_to_the_variable_of_the_call(model: str) -> None:
    loop = "for (stansub_i_1 in 1 : M) { v[gone[stansub_i_1]] = guess[stansub_i_1]; }"
    assert model_of(filled(MERGE, model)).strip() == words(f"vector[N] v; v = to_vector(x); {loop}")


@pytest.mark.parametrize("function", [MERGE, SHORT])
def test_observations_then_find_their_values(function: str) -> None:
    found = rewriting(canonical(FILLED.format(function=function, model=f"vector[N] v = {MERGED};")))
    assert FUNCTIONS_IN_PLACE in found.passes
    assert "v[stansub_row_0] = guess[stansub_place_1[stansub_row_0]]" in found.program.code
    assert "gone" not in model_of(found.program)


@pytest.mark.parametrize(
    ("function", "model"),
    [
        (MERGE, f"vector[N] v = 2 * {MERGED};"),
        (MERGE, "vector[N] v = x; v = merge_missing(gone, v, guess);"),
        (MERGE.replace("merged = x_obs;", "if (N > 3) return x_obs; merged = x_obs;"), f"vector[N] v = {MERGED};"),
        (MERGE.replace("x_miss[i];", "x_miss[i] + mean(x_obs);"), f"vector[N] v = {MERGED};"),
    ],
    ids=["within an expression", "of its own variable", "with two ends", "with an expression evaluated in a loop"],
)
def test_other_calls_stay(function: str, model: str) -> None:
    assert "merge_missing (" in model_of(filled(function, model))


SUMS = """
  real part(array[] int units, int start, int end, array[] real y, real a) {
    int n = end - start + 1;
    real total = 0;
    for (u in units) total += normal_lpdf(y[u] | a, n);
    total += normal_lpdf(y[start:end] | 0, 1);
    return total;
  }"""


def test_a_sum_is_added_term_by_term() -> None:
    code = "data {{ int N; array[N] real y; array[N] int place; }} parameters {{ real a; }} model {{ {} }}"
    given = canonical(f"functions {{ {SUMS} }} {code.format('target += reduce_sum(part, place, 1, y, a);')}")
    expected = """
      for (stansub_u_1 in 1 : N) { target += normal_lpdf(y[place[stansub_u_1]] | a, N); }
      target += normal_lpdf(y | 0, 1);"""
    assert model_of(inlined(given)).strip() == words(expected)
    data = {"N": 3, "y": np.array([0.5, -1.0, 2.0]), "place": np.array([2, 3, 1])}
    plain = canonical(code.format("y ~ normal(a, 3); y ~ normal(0, 1);"))
    assert log_density(inlined(given), data, {"a": 0.3}) == pytest.approx(
        log_density(plain, data, {"a": 0.3}), rel=1e-12
    )


@pytest.mark.parametrize("change", ["total -= 1;", "total += total;", "total = 2 * total;"])
def test_other_sums_stay_variables(change: str) -> None:
    code = "data { int N; array[N] real y; array[N] int place; } parameters { real a; } model { %s }"
    given = f"functions {{ {SUMS.replace('return', change + ' return')} }} {code}"
    written = model_of(inlined(canonical(given % "target += reduce_sum(part, place, 1, y, a);")))
    assert "target += stansub_total_1 ;" in written
