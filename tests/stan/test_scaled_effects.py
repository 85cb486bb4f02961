"""Effects that the likelihood multiplies by their scale are declared as variables, and nothing else changes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluate import log_density

from stansub.stan.analysis import Analysis
from stansub.stan.passes.scaled_effects import with_scaled_effects
from stansub.stan.source import read
from stansub.stan.syntax import Declaration, Program

HEAD = """data {
  int N; int J; int K; vector[N] y; vector[N] x; matrix[N, K] c; array[N] int g; array[N] int h; array[J] int level;
}"""
PARAMETERS = """parameters {
  real a; real<lower=0> tau; vector<lower=0>[2] s; vector<lower=0>[J] own; vector[J] z; matrix[J, 2] w; array[J] real q;
  array[2] vector[J] v; matrix[2, J] m; vector[K] b; vector<lower=0>[K] lambda;
}"""
LOOP = "for (n in 1 : N) y[n] ~ normal(a + {}, 1);"
WHOLE = "y ~ normal(a + {}, 1);"


def program(tmp_path: Path, model: str, transformed: str = "") -> Program:
    file = tmp_path / "program.stan"
    block = f"transformed parameters {{ {transformed} }}" if transformed else ""
    file.write_text(f"{HEAD} {PARAMETERS} {block} model {{ z ~ normal(0, 1); tau ~ normal(0, 1); {model} }}")
    return read(file).program


def added(given: Program) -> set[str]:
    """What is declared."""
    blocks = given.transformed_parameters, given.model
    declared = (one for block in blocks for one in block.statements if isinstance(one, Declaration))
    return {f"{one.type} = {one.value}" for one in declared if one.name.startswith("stansub_scaled")}


def values(rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
    n, j, k = 12, 4, 3
    data = {"N": n, "J": j, "K": k, "y": rng.standard_normal(n), "x": rng.standard_normal(n)}
    data |= {"c": rng.standard_normal((n, k)), "g": rng.integers(1, j + 1, n), "h": rng.integers(1, 3, n)}
    data |= {"level": rng.integers(1, j + 1, j)}
    positive = {"tau": (), "s": (2,), "own": (j,), "lambda": (k,)}
    free = {"a": (), "z": (j,), "w": (j, 2), "q": (j,), "v": (2, j), "m": (2, j), "b": (k,)}
    parameters = {name: rng.standard_normal(shape) for name, shape in free.items()}
    return data, parameters | {name: rng.gamma(2, size=shape) for name, shape in positive.items()}


@pytest.mark.parametrize(
    ("model", "found"),
    [
        (WHOLE.format("tau * z[g]"), {"vector[J] = z * tau"}),
        (LOOP.format("z[g[n]] * tau"), {"vector[J] = z * tau"}),
        (WHOLE.format("(w .* rep_matrix(tau, J, 2))[g, 1]"), {"matrix[J, 2] = w .* rep_matrix(tau, J, 2)"}),
        (WHOLE.format("(z .* (own + rep_vector(tau, J)))[g]"), {"vector[J] = z .* (own + rep_vector(tau, J))"}),
        (WHOLE.format("c * (b .* exp(lambda))"), {"vector[K] = b .* exp(lambda)"}),
        (LOOP.format("x[n] * (tau + 1) * z[g[n]]"), {"vector[J] = z * (tau + 1)"}),
        (LOOP.format("z[g[n]] / tau - x[n]"), {"vector[J] = z / tau"}),
        (LOOP.format("(a + exp(s[1]) * z[g[n]]) * x[n]"), {"vector[J] = z * exp(s[1])"}),
        (LOOP.format("s[1] * w[g[n], 1] + x[n] * (w[g[n], 2] * s[2])"),
         {"vector[J] = w[:, 1] * s[1]", "vector[J] = w[:, 2] * s[2]"}),
        (LOOP.format("tau * v[2, g[n]] + s[1] * v[1][g[n]]"),
         {"vector[J] = v[2, :] * tau", "vector[J] = v[1, :] * s[1]"}),
        (LOOP.format("tau * w[g[n], h[n]]"), {"matrix[J, 2] = w * tau"}),
        (WHOLE.format("x .* own[g] .* z[g]"), {"vector[J] = z .* own"}),
        (WHOLE.format("c * (tau * lambda .* b)"), {"vector[K] = b * tau .* lambda"}),
        (LOOP.format("tau * z[g[n]] + x[n] * (tau * z[g[n]])"), {"vector[J] = z * tau"}),
        (WHOLE.format("own[level[g]] .* z[g]"), {"vector[J] = z .* own[level]"}),
        (LOOP.format("own[level[g[n]]] * z[g[n]]"), {"vector[J] = z .* own[level]"}),
        (LOOP.format("s[1] * z[g[n]] + tau * (a * z[g[n]] + square(tau) * w[g[n], 1]) * x[n]"),
         {"vector[J] = z * s[1]", "vector[J] = (a * z + square(tau) * w[:, 1]) * tau"}),
        (LOOP.format("z[g[n]] + tau * z[g[n]]"), {"vector[J] = z * tau"}),
        (LOOP.format("s[1] * z[g[n]] + tau * z[g[n]]"), {"vector[J] = z * s[1]", "vector[J] = z * tau"}),
        (LOOP.format("s[h[n]] * w[g[n], h[n]]"), {"matrix[J, 2] = diag_post_multiply(w, s)"}),
        (LOOP.format("own[g[n]] * w[g[n], h[n]] / s[h[n]]"),
         {"matrix[J, 2] = diag_post_multiply(diag_pre_multiply(own, w), inv(s))"}),
        (LOOP.format("sum(s .* m[, g[n]]) + x[n] * (s[2] * tau * m[2, g[n]])"),
         {"matrix[2, J] = diag_pre_multiply(s, m)", "row_vector[J] = m[2, :] * s[2] * tau"}),
        ("for (n in 1 : N) { for (k in 1 : 2) y[n] ~ normal(s[k] * w[g[n], k], 1); }",
         {"matrix[J, 2] = diag_post_multiply(w, s)"}),
        (LOOP.format("sum(s .* w[g[n]]')"), {"matrix[J, 2] = diag_post_multiply(w, s)"}),
        (LOOP.format("sum(w[g[n]] .* s')"), {"matrix[J, 2] = diag_post_multiply(w, s)"}),
        (LOOP.format("sum(m[, g[n]]' ./ s')"), {"matrix[2, J] = diag_pre_multiply(inv(s), m)"}),
        (LOOP.format("sum(tau * w[g[n]]')"), {"matrix[J, 2] = w * tau"}),
        (WHOLE.format("(tau * z')[g]'"), {"vector[J] = z * tau"}),
        ("real r = s[1] * s[2];" + WHOLE.format("r * z[g]"), {"vector[J] = z * r"}),
    ],
)  # fmt: skip
def test_products_are_declared(model: str, found: set[str], tmp_path: Path) -> None:
    given = program(tmp_path, model)
    written = with_scaled_effects(given, "N")
    assert added(written) == found
    assert Analysis.of(given).hints("N").effects == Analysis.of(written).hints("N").effects != ()
    rng = np.random.default_rng(1)
    for _ in range(3):
        point = values(rng)
        assert log_density(written, *point) == pytest.approx(log_density(given, *point), rel=1e-12)


@pytest.mark.parametrize(
    ("product", "left"),
    [
        ("tau / 2 * z[g[n]]", "(1.0 / 2) * $"),
        ("tau * h[n] / 2 * z[g[n]]", "(1.0 * h[n] / 2) * $"),
        ("h[n] / (2 * tau) * z[g[n]]", "(1.0 * h[n] / 2) * $"),
        ("h[n] / 2 * tau * z[g[n]]", "h[n] / 2) * $"),
    ],
)
def test_integers_are_divided_as_reals_only_where_they_were(product: str, left: str, tmp_path: Path) -> None:
    """Quotients of integers are rounded, which `evaluate` does not do."""
    written = with_scaled_effects(program(tmp_path, LOOP.format(product)), "N")
    assert left.replace("$", "stansub_scaled_1[g[n]]") in written.code
    assert ("1.0" in left) == ("1.0" in written.code)


def test_containers_of_numbers_become_vectors(tmp_path: Path) -> None:
    written = with_scaled_effects(program(tmp_path, LOOP.format("tau * q[g[n]]")), "N")
    assert added(written) == {"vector[J] = to_vector(q) * tau"}


def test_braces_in_a_product(tmp_path: Path) -> None:
    written = with_scaled_effects(program(tmp_path, LOOP.format("tau * {0.5, 1.0}[h[n]] * z[g[n]]")), "N")
    assert added(written) == {"vector[J] = z * tau"}


@pytest.mark.parametrize(
    ("likelihood", "transformed", "product"),
    [
        ("y ~ normal(mu, 1);", "vector[N] mu = a + tau * z[g];", "z * tau"),
        # As in disease mapping with structured and unstructured effects, which share a scale.
        (WHOLE.format("u[g] * tau"), "vector[J] u = exp(s[1]) * z + w[, 1];", "u * tau"),
    ],
)
def test_products_with_transformed_parameters(likelihood: str, transformed: str, product: str, tmp_path: Path) -> None:
    given = program(tmp_path, likelihood, transformed)
    written = with_scaled_effects(given, "N")
    assert added(written) == {f"vector[J] = {product}"}
    point = values(np.random.default_rng(2))
    assert log_density(written, *point) == pytest.approx(log_density(given, *point), rel=1e-12)


def test_scales_may_be_computed_where_effects_are_parameters(tmp_path: Path) -> None:
    given = program(tmp_path, WHOLE.format("u[g] .* z[g]"), "vector[J] u = tau * own;")
    assert added(with_scaled_effects(given, "N")) == {"vector[J] = z .* u"}


@pytest.mark.parametrize(
    ("model", "transformed"),
    [
        (WHOLE.format("u[g] .* t[g]"), "vector[J] u = tau * z; vector[J] t = 2 * own;"),
        (WHOLE.format("u[g]"), "vector[J] u = tau * z;"),
        (WHOLE.format("2 * z[g]"), ""),
        (LOOP.format("tau * z[g[n]] + s[1] * z[g[n]] + z[g[n]]"), ""),
        (LOOP.format("tau * z[g[n]] + s[1] * z[g[n]] + s[2] * z[g[n]]"), ""),
        (LOOP.format("own[h[n]] * z[g[n]]"), ""),
        (LOOP.format("tau * own[g[n]] * 2"), ""),
        (WHOLE.format("tau * (z[g] .* x + w[g, 1])"), ""),
        (WHOLE.format("c * lambda * z[1] .* z[g]"), ""),
        ("for (n in 1 : N) { real r = tau * x[n]; y[n] ~ normal(r * z[g[n]], 1); }", ""),
        ("for (n in 1 : N) { for (k in 1 : 2) y[n] ~ normal(s[k] * z[g[n]], 1); }", ""),
        ("{ real r = tau; y ~ normal(r * z[g], 1); }", ""),
        (f"real r = tau; {WHOLE.format('r * z[g]')} r = 2; {WHOLE.format('r * z[g]')}", ""),
    ],
    ids=[
        *(
            "two computed",
            "declared",
            "data",
            "without",
            "three scales",
            "another index",
            "bounded",
            "sum with data",
            "products of matrices",
            "own local",
        ),
        *("index of a loop", "inner block", "scale that changes"),
    ],
)
def test_other_programs_stay(model: str, transformed: str, tmp_path: Path) -> None:
    given = program(tmp_path, model, transformed)
    assert with_scaled_effects(given, "N") is given


def test_the_product_is_an_argument_of_the_likelihood(tmp_path: Path) -> None:
    """With scale and effects apart, surrogate transitions hardly moved."""
    own = Analysis.of(program(tmp_path, WHOLE.format("tau * z[g]"))).likelihood_split("N")
    assert [one.name for one in own.arguments] == ["a", "stansub_scaled_1"]


@pytest.mark.parametrize(
    ("model", "left"),
    [
        (LOOP.format("s[h[n]] * z[g[n]]"), ("z",)),
        (LOOP.format("tau * z[g[n]] + s[1] * z[g[n]] + s[2] * z[g[n]]"), ("z",)),
        (WHOLE.format("tau * (z[g] .* x + w[g, 1])"), ("w", "z")),
        ("for (n in 1 : N) { real r = tau * x[n]; y[n] ~ normal(r * z[g[n]], 1); }", ("z",)),
        (WHOLE.format("tau * z[g]"), ()),
        (LOOP.format("exp(tau * z[g[n]]) * s[1]"), ()),
        (LOOP.format("exp(z[g[n]]) * s[1]"), ()),
        (LOOP.format("b[1] * exp(-s[1] * x[n])"), ()),
        (LOOP.format("x[n] * z[g[n]]"), ()),
        ("for (n in 1 : N) target += std_normal_lcdf(tau * (y[n] - a - z[g[n]]));", ()),
    ],
)
def test_products_that_stay_are_named(model: str, left: tuple[str, ...], tmp_path: Path) -> None:
    """A declaration in the program would help only these."""
    assert Analysis.of(program(tmp_path, model)).undeclared("N") == left


@pytest.mark.parametrize(
    "model", [LOOP.format("own[h[n]] * (z[g[n]] - m[1, h[n]])"), WHOLE.format("own[h] .* (z[g] - w[h, 1])")]
)
def test_products_of_single_observations_are_not_named(model: str, tmp_path: Path) -> None:
    """As in item response models: no declaration of them would help."""
    analysis = Analysis.of(program(tmp_path, model))
    crossed = {"g": np.repeat(np.arange(1, 7), 2), "h": np.tile([1, 2], 6)}
    nested = {"g": np.repeat([1, 2, 3], 4), "h": np.repeat([1, 1, 2], 4)}
    assert analysis.undeclared("N", crossed) == ()
    effects = ("m", "z") if "m[" in model else ("w", "z")
    assert analysis.undeclared("N", nested) == analysis.undeclared("N", {}) == effects


def test_a_declared_product_is_none(tmp_path: Path) -> None:
    """An amplitude times a curve of declared effects."""
    given = program(tmp_path, LOOP.format("exp(u[g[n]]) * (a * exp(-s[1] * x[n]))"), "vector[J] u = tau * z;")
    assert Analysis.of(given).undeclared("N") == ()
