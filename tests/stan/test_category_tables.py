"""Functions of parameters and an integer of the data are declared as tables, and nothing else changes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evaluate import log_density

from stansub.stan.analysis import Analysis
from stansub.stan.passes.category_tables import with_category_tables
from stansub.stan.source import read
from stansub.stan.sparse import sparse_predictors
from stansub.stan.syntax import Assign, Declaration, Program, find
from stansub.target.families import Normal

FUNCTIONS = """functions {
  real mo(vector scale, int i) {
    if (i == 0) {
      return 0;
    } else {
      return rows(scale) * sum(scale[1:i]);
    }
  }
  real decayed(real rate, real start, int t) {
    real value = start;
    for (k in 1:t) value *= rate;
    return value;
  }
  real paired(vector first, vector second, int i) {
    real value = first[i];
    value *= second[i];
    return value;
  }
}"""
DATA = """data {
  int N; int D; int G; int T; int T0; array[2] int sizes; vector[N] y; vector[N] u; array[N] int x; array[N] int w;
  array[N] int<lower=1, upper=G> g; array[N] int<lower=T0, upper=T> t; array[N] int<upper=sum(x)> odd;
}"""
PARAMETERS = """parameters {
  real a; vector[2] b; simplex[D] p; array[2] simplex[sizes[2]] q; vector[G] r; vector[G] s; vector[3] free;
}"""
EACH = "mu[n] += {};"


def program(tmp_path: Path, each: str, *, before: str = "", after: str = "") -> Program:
    file = tmp_path / "program.stan"
    loop = f"vector[N] mu = rep_vector(a, N); {before} for (n in 1 : N) {{ {EACH.format(each)} }} {after}"
    model = f"model {{ b ~ normal(0, 1); {loop} y ~ normal(mu, 1); }}"
    file.write_text(f"{FUNCTIONS} {DATA} {PARAMETERS} {model}")
    return read(file).program


def tables(given: Program) -> set[tuple[str, str]]:
    """The sizes of what is declared, and the elements."""
    declared = [one for one in given.model.statements if isinstance(one, Declaration)]
    sizes = {one.name: str(one.type) for one in declared if one.name.startswith("stansub_table")}
    return {
        (sizes[name], str(one.expression))
        for one in find(Assign, [given.model])
        if (name := str(one.place).partition("[")[0]) in sizes
    }


def data(n: int) -> dict[str, Any]:
    rng = np.random.default_rng(n)
    found = {"N": n, "D": 4, "G": 3, "T": 6, "T0": 2, "sizes": np.array([5, 4]), "y": rng.standard_normal(n)}
    found |= {"u": rng.standard_normal(n), "x": np.r_[0, 4, rng.integers(0, 5, n - 2)], "w": rng.integers(1, 4, n)}
    return found | {"g": rng.integers(1, 4, n), "t": np.r_[2, 6, rng.integers(2, 7, n - 2)], "odd": np.arange(n)}


def parameters(rng: np.random.Generator) -> dict[str, Any]:
    free = {"a": (), "b": (2,), "r": (3,), "s": (3,), "free": (3,)}
    simplices = {"p": rng.dirichlet(np.ones(4)), "q": rng.dirichlet(np.ones(4), 2)}
    return {name: rng.standard_normal(shape) for name, shape in free.items()} | simplices


@pytest.mark.parametrize(
    ("each", "found"),
    [
        ("b[1] * mo(p, x[n])", {("vector[D + 1]", "b[1] * mo(p, stansub_category)")}),
        ("(b[1]) * mo(p, x[n]) * u[n] + r[g[n]]", {("vector[D + 1]", "b[1] * mo(p, stansub_category)")}),
        ("b[1] * mo(p, x[n]) + (b[2] * mo(q[2], x[n]) - mo(p, x[n]) * b[1]) * u[n]",
         {("vector[D + 1]", "b[1] * mo(p, stansub_category)"), ("vector[D + 1]", "mo(p, stansub_category) * b[1]"),
          ("vector[sizes[2] + 1]", "b[2] * mo(q[2], stansub_category)")}),
        ("b[1] * mo(p, w[n] - 1)", {("vector[D + 1]", "b[1] * mo(p, stansub_category)")}),
        ("exp(b[1] * sum(p[1 : x[n]]))", {("vector[D + 1]", "exp(b[1] * sum(p[1 : stansub_category]))")}),
        ("decayed(b[1], a, t[n])", {("vector[T - T0 + 1]", "decayed(b[1], a, stansub_category)")}),
        ("(b[1] + r[g[n]]) * mo(p, x[n]) * u[n]",
         {("vector[D + 1]", "mo(p, stansub_category)"),
          ("matrix[G, D + 1]", "(b[1] + r[stansub_category]) * stansub_table_1[stansub_other + 1]")}),
        ("b[1] * mo(p, x[n]) + b[2] * mo(q[1], w[n]) * mo(p, x[n])",
         {("vector[D + 1]", "b[1] * mo(p, stansub_category)"),
          ("vector[sizes[2] + 1]", "b[2] * mo(q[1], stansub_category)"), ("vector[D + 1]", "mo(p, stansub_category)"),
          ("matrix[sizes[2] + 1, D + 1]",
           "stansub_table_2[stansub_category + 1] * stansub_table_3[stansub_other + 1]")}),
        ("u[n] * (a + b[1] * mo(p, x[n]) + mo(p, w[n]) / b[2])",
         {("vector[D + 1]", "b[1] * mo(p, stansub_category)"), ("vector[D + 1]", "mo(p, stansub_category) / b[2]")}),
    ],
)  # fmt: skip
def test_tables_are_declared(each: str, found: set[tuple[str, str]], tmp_path: Path) -> None:
    given = program(tmp_path, each)
    written = with_category_tables(given, "N")
    assert tables(written) == found
    rng = np.random.default_rng(1)
    for _ in range(3):
        point = data(12), parameters(rng)
        assert log_density(written, *point) == pytest.approx(log_density(given, *point), rel=1e-12)


@pytest.mark.parametrize(
    "each",
    [
        "b[1] * r[g[n]]",
        "mo(p, x[n])",
        "paired(r, s, g[n])",
        "decayed(b[1], a, x[n])",
        "decayed(b[1], a, odd[n])",
        "decayed(b[1], u[n], t[n])",
        "b[1] * mo(free[1 : 2], x[n])",
        "b[1] * u[n] * p[g[n]]",
    ],
    ids=[
        *("element", "one parameter", "elements", "no limit"),
        *("limit of all data", "other data", "part", "data before"),
    ],
)
def test_other_programs_stay(each: str, tmp_path: Path) -> None:
    given = program(tmp_path, each)
    assert with_category_tables(given, "N") is given


def test_variables_that_change_later_stay(tmp_path: Path) -> None:
    after = "c = b[2]; for (n in 1 : N) mu[n] += c;"
    given = program(tmp_path, "c * mo(p, x[n])", before="real c = b[1];", after=after)
    assert with_category_tables(given, "N") is given


@pytest.mark.parametrize(
    "likelihood",
    [
        "target += reduce_sum(part_lpdf, y, 1, x, a, b, p);",
        "target += part_lpdf(y | 1, N, x, a, b, p);",
    ],
)
def test_functions_of_slices(likelihood: str, tmp_path: Path) -> None:
    """As brms writes them with threads."""
    part = """real part_lpdf(array[] real y, int start, int end, array[] int x, real a, vector b, vector p) {
      real total = 0; int n_part = end - start + 1; vector[n_part] mu = rep_vector(a, n_part);
      for (n in 1 : n_part) { int m = n + start - 1; mu[n] += b[1] * mo(p, x[m]); }
      total += normal_lpdf(y | mu, 1);
      return total;
    } }"""
    head = f"{FUNCTIONS.removesuffix('}')} {part} {DATA.replace('vector[N] y', 'array[N] real y')} {PARAMETERS}"
    file = tmp_path / "slices.stan"
    file.write_text(f"{head} model {{ b ~ normal(0, 1); {likelihood} }}")
    given = read(file).program
    assert tables(with_category_tables(given, "N")) == {("vector[D + 1]", "b[1] * mo(p, stansub_category)")}


def test_the_likelihood_is_affine_in_tables(tmp_path: Path) -> None:
    """With the coefficient and the simplex apart, it was a product of them."""
    n = 200
    analysis = Analysis.of(program(tmp_path, "b[1] * mo(p, x[n]) * u[n] + r[g[n]]"))
    own = analysis.likelihood_split("N")
    assert [one.name for one in own.arguments] == ["a", "r", "stansub_table_1"]
    values = data(n)
    found = sparse_predictors(own, values, n)
    assert isinstance(found.family, Normal)
    phi = np.random.default_rng(2).standard_normal(found.dim)
    own_mean = phi[0] + phi[values["g"]] + phi[4 + values["x"]] * values["u"]
    np.testing.assert_allclose(found.at(phi)[0], own_mean, rtol=1e-12)
