"""Tables of outcomes whose rows have parameters: written with a row of data for each cell, or left alone."""

from typing import Any

import numpy as np
import pytest
from evaluate import log_density, transformed_data
from texts import canonical, words

from stansub.stan.analysis import Analysis
from stansub.stan.passes.fixpoint import Rewriting, rewriting
from stansub.stan.passes.series.cells import by_cells, cell_by_cell, cells_apart, with_cell_values
from stansub.stan.passes.series.lags import with_lags
from stansub.stan.sparse import sparse_predictors
from stansub.stan.syntax import Program
from stansub.types import FloatArray

HEAD = """
data {
  int I; int J; int L; matrix[J, I] y; array[J] vector[I] v; array[I] int g; matrix[I, 2] x; vector[J] w; vector[I] t;
  int N; array[J] vector[N] k; matrix[N, 2] z; matrix[2, I] r;
}
parameters {
  vector[J] a; vector[I] b; vector[L] u; vector[2] c; matrix[J, I] e; matrix[2, J] d; real m; real<lower=0> s;
}
"""
LOOPS, APART, VALUES, CELLS = cell_by_cell.name, cells_apart.name, with_cell_values.name, by_cells.name
LAGS = with_lags.name
TABLE, SUMS = "matrix[J, I] n;", "for (j in 1 : J) for (i in 1 : I) n[j, i] = a[j] + b[i];"
PRODUCTS = "real q; q = 2 * m; for (i in 1 : I) for (j in 1 : J) { real p = q * b[i]; n[j, i] = a[j] + p; }"
CELL = "y[j, i] ~ normal(n[j, i], s);"
READ_CELLS = f"for (j in 1 : J) for (i in 1 : I) {CELL}"
FILL = "for (i in 1 : I) { n[i] = a[j]; if (g[i] > 1) n[i] += b[i]; }"
READ_ROWS = "for (j in 1 : J) y[j] ~ normal(n[j], s);"
COLUMNS = "for (i in 1 : I) y[ : , i] ~ normal(a + b[i] * t[i], s);"
PLAIN = "for (j in 1 : J) for (i in 1 : I) y[j, i] ~ normal(a[j] + b[i], s);"


def read(code: str) -> Program:
    return canonical(f"{HEAD} model {{ {code} }}")


def written(code: str) -> Rewriting:
    return rewriting(read(code))


def values() -> tuple[dict[str, Any], dict[str, Any]]:
    rng = np.random.default_rng(1)
    n, k = 4, 3
    data = {
        "I": k,
        "J": n,
        "L": 2,
        "y": rng.normal(size=(n, k)),
        "v": rng.normal(size=(n, k)),
        "g": np.array([1, 2, 1]),
    }
    data |= {"N": 2, "k": rng.normal(size=(n, 2)), "z": rng.normal(size=(2, 2))}
    data |= {"x": rng.normal(size=(k, 2)), "w": rng.normal(size=n), "t": rng.normal(size=k)}
    data["r"] = rng.normal(size=(2, k))
    parameters = {"a": rng.normal(size=n), "b": rng.normal(size=k), "u": rng.normal(size=2), "c": rng.normal(size=2)}
    return data, {**parameters, "e": rng.normal(size=(n, k)), "d": rng.normal(size=(2, n)), "m": 0.3, "s": 0.7}


@pytest.mark.parametrize(
    ("code", "passes"),
    [
        (PLAIN, [CELLS]),
        ("for (i in 1 : I) { for (j in 1 : J) { y[j, i] ~ normal(a[j] + b[i] * w[j], s); } }", [CELLS]),
        ("for (j in 1 : J) for (i in 1 : I) if (y[j, i] > 0) target += normal_lpdf(y[j, i] | a[j], s);", [CELLS]),
        ("for (j in 1 : J) for (i in 1 : I) { real n = a[j] - b[i]; y[j, i] ~ normal(n, s); }", [CELLS]),
        ("for (j in 1 : J) { real n; for (i in 1 : I) { n = a[j] - b[i]; y[j, i] ~ normal(n, s); } }", [CELLS]),
        ("for (j in 1 : J) { real n = exp(a[j]); for (i in 1 : I) y[j, i] ~ normal(n * b[i], s); }", [CELLS]),
        (
            "for (j in 1 : J) { real n; real q; n = a[j]; for (i in 1 : I) { q = n * b[i]; y[j, i] ~ normal(q, s); } }",
            [CELLS],
        ),
        ("for (j in 1 : J) for (i in 1 : I) y[j, i] ~ normal(d[2, j] - b[i], s);", [CELLS]),
        ("for (j in 1 : J) y[j] ~ normal(d[1, j] + b', s);", [LOOPS, CELLS]),
        ("for (j in 1 : J) y[j] ~ normal(a[j] + b', s);", [LOOPS, CELLS]),
        ("for (j in 1 : J) v[j] ~ normal(a[j] + (b + u[g] .* (x * c)) * w[j], s);", [LOOPS, CELLS]),
        ("for (i in 1 : I) y[ : , i] ~ normal(a + b[i] * t[i], s);", [LOOPS, CELLS]),
        ("for (j in 1 : J) y[j] ~ normal(a[j] - (-to_row_vector(b)), s);", [LOOPS, CELLS]),
        ("for (j in 1 : J) y[j] ~ normal(a[j] + c' * r, s);", [LOOPS, CELLS]),
        ("for (j in 1 : J) target += normal_lpdf(v[j] | exp(a[j]) * t, exp(b));", [LOOPS, CELLS]),
        ("for (j in 1 : J) { vector[I] n = a[j] + b; v[j] ~ normal(n, s); }", [LOOPS, CELLS]),
        ("for (j in 1 : J) v[j] ~ normal(a[j] + mean(b), s);", [LOOPS, CELLS]),
        ("for (j in 1 : J) { a[j] ~ normal(m, 1); v[j] ~ normal(a[j] + rep_vector(m, I), s); }", [LOOPS, APART, CELLS]),
        # The first cells of each row, and other terms beside those of cells.
        ("for (j in 1 : J) y[j, 1 : I - 1] ~ normal(a[j] + b[1 : I - 1]', s);", [LOOPS, CELLS]),
        (
            "for (j in 1 : J) { v[j, 1 : I - 1] ~ normal(a[j] + b[1 : I - 1], s); y[j, I] ~ normal(a[j], s); }",
            [LOOPS, APART, CELLS],
        ),
        # Cells from another one on, and each with the one before.
        ("for (j in 1 : J) v[j, 2 : I] ~ normal(a[j] + b[1 : I - 1], s);", [LOOPS, LAGS]),
        ("for (j in 1 : J) y[j, 2 : I] ~ normal(a[j] + m * y[j, 1 : I - 1], s);", [LOOPS, LAGS]),
        ("for (j in 1 : J) segment(v[j], 2, I - 1) ~ normal(a[j] + m * head(v[j], I - 1), s);", [LOOPS, LAGS]),
        ("for (j in 1 : J) to_vector(y[j, 2 : I]) ~ normal(a[j] + m * to_vector(y[j, 1 : I - 1]), s);", [LOOPS, LAGS]),
        ("for (i in 2 : I) col(y, i) ~ normal(a + m * col(y, i - 1), s);", [LOOPS, LAGS]),
        ("for (i in 2 : I) y[ : , i] ~ normal(a + m * y[ : , i - 1], s);", [LOOPS, LAGS]),
        ("for (j in 1 : J) row(y, j) ~ normal(a[j] + b', s);", [LOOPS, CELLS]),
        (
            "for (j in 1 : J) { a[j] ~ normal(m, 1); for (i in 1 : I) y[j, i] ~ normal(a[j] + b[i], s); }",
            [APART, CELLS],
        ),
        (
            "for (j in 1 : J) { for (i in 1 : I) y[j, i] ~ normal(a[j] + b[i], s); v[j] ~ normal(a[j], s); }",
            [LOOPS, APART, CELLS],
        ),
        # Values that other statements compute, of cells or of rows.
        (f"{TABLE} {SUMS} {READ_CELLS}", [VALUES, CELLS]),
        (f"{TABLE} {SUMS} {READ_ROWS}", [LOOPS, CELLS]),
        (f"{TABLE} for (j in 1 : J) n[j] = exp(a[j]) + b' * w[j]; {READ_ROWS}", [LOOPS, CELLS]),
        (f"{TABLE} {PRODUCTS} {READ_CELLS}", [VALUES, CELLS]),
        (
            f"{TABLE} for (j in 1 : J) for (i in 1 : I) {{ n[j, i] = a[j] - b[i]; y[j, i] ~ normal(n[j, i], s); }}",
            [VALUES, CELLS],
        ),
        (
            f"{TABLE} array[J, I, 2] real o; for (j in 1 : J) for (i in 1 : I) {{ for (l in 1 : 2) o[j, i, l] = a[j];"
            " n[j, i] = o[j, i, 1]; n[j, i] += o[j][i][2] * b[i]; y[j, i] ~ normal(n[j, i], s); }",
            [VALUES, CELLS],
        ),
        (
            f"{TABLE} {SUMS} matrix[J, I] o; for (j in 1 : J) for (i in 1 : I) o[j, i] = exp(n[j, i]);"
            " for (j in 1 : J) for (i in 1 : I) y[j, i] ~ normal(o[j, i], s);",
            [VALUES, CELLS],
        ),
        ("for (j in 1 : J) { vector[I] n; for (i in 1 : I) n[i] = a[j] + b[i]; v[j] ~ normal(n, s); }", [LOOPS, CELLS]),
        (f"for (j in 1 : J) {{ vector[I] n; {FILL} v[j] ~ normal(n, s); }}", [LOOPS, CELLS]),
        (f"vector[I] n; for (j in 1 : J) {{ {FILL} v[j] ~ normal(n, s); }}", [LOOPS, CELLS]),
        (
            f"for (j in 1 : J) {{ vector[I] n; vector[I] o; {FILL} for (q in 1 : I) {{ o[q] = n[q]; o[q] *= w[j]; }}"
            " v[j] ~ normal(o, exp(n)); }",
            [LOOPS, CELLS],
        ),
    ],
)
def test_cells_are_rows_of_data(code: str, passes: list[str]) -> None:
    found = written(code)
    assert list(found.passes) == passes
    data, parameters = values()
    assert log_density(found.program, data, parameters) == pytest.approx(log_density(read(code), data, parameters))
    parts = Analysis.of(read(code)).over_rows
    assert parts is not None
    assert parts.sizes == ("stansub_t",)


def test_the_first_cells_of_panels_are_rows_of_their_own() -> None:
    code = "for (j in 1 : J) { y[j, 1] ~ normal(a[j], 1); y[j, 2 : I] ~ normal(a[j] + m * y[j, 1 : I - 1], s); }"
    found = written(code)
    assert list(found.passes) == [LOOPS, LAGS]
    data, parameters = values()
    assert log_density(found.program, data, parameters) == pytest.approx(log_density(read(code), data, parameters))
    parts = Analysis.of(read(code)).over_rows
    assert parts is not None
    assert parts.sizes == ("stansub_t", "stansub_t2")


def test_each_cell_has_its_place() -> None:
    found = written("for (j in 1 : J) v[j] ~ normal(a[j] + b, s);").program
    assert words(found.text(found.model.inside)) == words("""
        for (stansub_i in 1 : stansub_t) {
          stansub_v_1[stansub_i] ~ normal(a[stansub_j_2[stansub_i]] + b[stansub_cell_1_3[stansub_i]], s);
        }""")


def test_the_head_of_a_row_is_its_first_cells() -> None:
    heads = "for (j in 1 : J) head(v[j], I - 1) ~ normal(a[j] + head(b, I - 1) .* head(x[ : , 2], I - 1), s);"
    ranges = "for (j in 1 : J) v[j, 1 : I - 1] ~ normal(a[j] + b[1 : I - 1] .* x[1 : I - 1, 2], s);"
    one, other = (cell_by_cell(read(code)) for code in (heads, ranges))
    assert isinstance(one, Program)
    assert isinstance(other, Program)
    assert one.code == other.code


@pytest.mark.parametrize("other", ["a[j] ~ normal(m, 1);", "t ~ normal(a[j] + b, s);", "v[1] ~ normal(a[j] + b, s);"])
def test_what_else_a_loop_does_stays(other: str) -> None:
    found = by_cells(cells_apart(cell_by_cell(read(f"for (j in 1 : J) {{ {other} y[j] ~ normal(a[j], s); }}"))))
    assert isinstance(found, Program)
    assert words(f"for (j in 1 : J) {{ {other} }}") in words(found.text(found.model.inside))


def test_values_of_unknown_types_are_left_alone() -> None:
    """Stan's list of signatures has none of functions that take functions."""
    code = f"""functions {{ real f(real u, real v, array[] real w, array[] real x, array[] int i) {{ return u; }} }}
    {HEAD} model {{
      for (j in 1 : J) v[j] ~ normal(a[j] + integrate_1d(f, 0, 1, {{m}}, {{1.0}}, {{1}}), s);
    }}"""
    assert cell_by_cell(canonical(code)) is None


OTHERS = [
    "for (j in 1 : J) for (i in 1 : I) y[j, i] ~ normal(m + w[j], s);",  # no row has parameters
    "for (j in 1 : J) for (i in 1 : I) y[j, i] ~ normal(a[j] + e[j, i], s);",  # each cell has one
    # Computed for each column, and columns have no parameters.
    "vector[N] eta = z * c; for (j in 1 : J) k[j] ~ normal(a[j] + eta, s);",
    "vector[N] eta = z * c; for (j in 1 : J) for (n in 1 : N) k[j, n] ~ normal(a[j] + eta[n], s);",
    "for (j in 1 : J) y[j] ~ normal(a[j] + e[j], s);",
    "for (j in 1 : J) v[j] ~ multi_normal(a[j] + b, diag_matrix(b));",
    "for (j in 1 : J) v[j] ~ normal(a[j] + cumulative_sum(b), s);",
    "for (j in 1 : J) v[j] ~ normal(a[j] + diag_matrix(b) * t, s);",
    "for (j in 1 : J) v[j] ~ normal(a[j] + to_vector(x * to_matrix(c)), s);",
    "for (j in 1 : J) { vector[I] n = a[j] + b; v[j] ~ normal(n, sd(n)); }",
    "for (j in 1 : J) { vector[I] n = a[j] + b; n[1] = 0; v[j] ~ normal(n, s); }",
    "real n = 0; for (j in 1 : J) { n = n + a[j]; for (i in 1 : I) { y[j, i] ~ normal(a[j] + n, s); } }",
    # A single outcome, some rows, another row, joint densities, and what another statement computes for all cells.
    "for (j in 1 : J) y[j, 1] ~ normal(a[j], s);",
    "for (j in 2 : J) v[j] ~ normal(a[j] + b, s);",
    "for (j in 1 : J - 1) v[j] ~ normal(a[j] + b, s);",
    "for (j in 1 : J) v[1] ~ normal(a[j] + b, s);",
    "for (j in 1 : J) k[j] ~ dirichlet(exp(a[j] + c));",
    "for (j in 1 : J) k[j] ~ normal_id_glm(z, a[j], c, s);",
    "real n; for (j in 1 : J) { n = m * w[j]; v[j] ~ normal(a[j] + n + b, s); }",
    "for (j in 1 : J) { vector[I] n = exp(b); v[j] ~ normal(a[j] + n[g], s); }",
    "for (j in 1 : J) { b[1] ~ normal(a[j], 1); for (i in 1 : I) { y[j, i] ~ normal(m + w[j], s); } }",
    "for (j in 1 : J) head(v[j], I - 1) ~ normal(a[j] + tail(b, I - 1), s);",
    "for (j in 1 : J) head(v[j][g], 2) ~ normal(a[j] + b[1 : 2], s);",
    "for (j in 1 : J) { int n = I - 1; for (i in 1 : n) { y[j, i] ~ normal(a[j] + b[i], s); } }",
    "real n; for (j in 1 : J) { n = exp(a[j]); for (i in 1 : I) { y[j, i] ~ normal(n + b[i], s); } }",
    # Values of a computed table that change later, depend on the order, or are computed several times.
    f"{TABLE} {SUMS} n[1, 1] = m; {READ_CELLS}",
    f"{TABLE} {SUMS} n[1, 1] = m; {READ_ROWS}",
    f"{TABLE} for (j in 1 : J) for (i in 1 : I) {{ n[j, i] = a[j]; {CELL} }} n[1, 1] ~ std_normal();",
    f"{TABLE} n[1, 1] = m; for (j in 1 : J) for (i in 1 : I) {{ n[j, i] = a[j] + n[1, 1]; {CELL} }}",
    f"for (j in 1 : J) {{ vector[I] n; {FILL} v[j] ~ normal(n, sd(n)); }}",
    f"for (j in 1 : J) {{ vector[I] n; {FILL} n[1] = m; v[j] ~ normal(n, s); }}",
    f"for (j in 1 : J) {{ vector[I] n; {FILL} v[j] ~ normal(n, s); n ~ normal(0, 1); }}",
    "for (j in 1 : J) { vector[I] n; for (i in 1 : I) { n[1] = a[j]; n[i] = b[i]; } v[j] ~ normal(n, s); }",
    "for (j in 1 : J) { vector[I] n; real q = 0; for (i in 1 : I) { q += b[i]; n[i] = a[j]; n[i] += q; }"
    " v[j] ~ normal(n, s); }",
    f"{TABLE} real q = m; for (j in 1 : J) for (i in 1 : I) n[j, i] = a[j] * q; q = s; {READ_CELLS}",
    f"{TABLE} real q = 0; for (j in 1 : J) for (i in 1 : I) {{ q += a[j]; n[j, i] = q; }} {READ_CELLS}",
    f"{TABLE} for (l in 1 : L) for (j in 1 : J) for (i in 1 : I) n[j, i] = a[j] * u[l]; {READ_CELLS}",
    f"{TABLE} for (j in 1 : J) for (i in 1 : I) if (m > 0) n[j, i] = a[j]; {READ_CELLS}",
    f"{TABLE} for (j in 1 : J) for (i in 1 : I) n[j, i] = a[j] + e[j, i]; {READ_CELLS}",
    "real q; for (j in 1 : J) { vector[I] n; q = a[j]; for (i in 1 : I) n[i] = q + b[i]; v[j] ~ normal(n, s); }",
    "real q = 0; for (j in 1 : J) { real n = q; for (i in 1 : I) { y[j, i] ~ normal(a[j] + n, s); q = y[j, i]; } }",
]


@pytest.mark.parametrize("code", OTHERS)
def test_other_loops_are_left_alone(code: str) -> None:
    """Also beside a loop that is not."""
    found, beside = written(code), written(f"{code} {COLUMNS}")
    assert not {LOOPS, APART, CELLS} & set(found.passes)
    assert {LOOPS, CELLS} <= set(beside.passes)
    text = words(beside.program.text(beside.program.model.inside))
    assert text.count("for ( j in 1 : J )") == words(read(code).code).count("for ( j in 1 : J )")


def test_ordered_outcomes_keep_their_cutpoints() -> None:
    code = """
    data { int I; int J; array[J, I] int y; }
    parameters { vector[J] a; vector[I] b; ordered[3] k; }
    model { for (j in 1 : J) y[j] ~ ordered_logistic(a[j] - b, k); }"""
    found = rewriting(canonical(code)).program
    assert ", k);" in found.text(found.model.inside)
    assert "a[stansub_j_2[stansub_i]] - b[stansub_cell_1_3[stansub_i]]" in found.text(found.model.inside)


@pytest.mark.parametrize(
    "code", [PLAIN, "for (j in 1 : J) v[j] ~ normal(a[j] + (b + u[g] .* (x * c)) * w[j], s);"], ids=["plain", "rows"]
)
def test_surrogates_are_of_the_cells(code: str) -> None:
    """The likelihood in its own arguments has a row for each cell, which reads few of them."""
    analysis = Analysis.of(read(f"a ~ normal(0, 1); {code}"))
    data, parameters = values()
    own = analysis.likelihood_split()
    found = sparse_predictors(own, transformed_data(analysis.rewriting.program, data), 12)
    other = {**parameters, "a": parameters["a"] + 0.3, "b": 0.5 * parameters["b"]}

    def phi(given: dict[str, Any]) -> FloatArray:
        return np.hstack([np.log(given["s"]) if one.name == "s" else given[one.name] for one in own.arguments])

    expected = log_density(read(code), data, parameters) - log_density(read(code), data, other)
    assert found.log_lik(phi(parameters)) - found.log_lik(phi(other)) == pytest.approx(expected, rel=1e-9)
