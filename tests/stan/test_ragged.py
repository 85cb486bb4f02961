"""Groups of different sizes, one after the other: which loops are written row by row, and which are refused."""

import numpy as np
import pytest
from evaluate import log_density
from texts import canonical, words

from stansub.stan.parts import divide
from stansub.stan.passes.ragged import by_rows
from stansub.stan.passes.rewriting import RefusedError
from stansub.stan.syntax import Program

HEAD = """
functions { real path_lpdf(vector y, real s) { return -s * square(sum(y)); } }
data { int N; int J; vector[N] y; vector[N] x; matrix[N, 2] X; array[J] int n; vector[J] w;
  array[J] int from; array[J] int to; array[J + 1] int ptr; array[J] int own; }
parameters { vector[J] a; vector[2] b; real<lower=0> s; }
"""
NEXT = "pos += n[j];"


def read(inside: str, before: str = "int pos = 1;") -> Program:
    code = f"{HEAD} model {{ {before} a ~ normal(0, 1); for (j in 1:J) {{ {inside} }} }}"
    return canonical(code)


@pytest.mark.parametrize(
    ("inside", "density"),
    [
        (f"segment(y, pos, n[j]) ~ normal(a[j], s); {NEXT}", "y[{row}] ~ normal(a[{group}], s);"),
        (f"y[pos : pos + n[j] - 1] ~ normal(a[j], s); {NEXT}", "y[{row}] ~ normal(a[{group}], s);"),
        (f"y[pos : (pos + n[j] - 1)] ~ normal(a[j], s); {NEXT}", "y[{row}] ~ normal(a[{group}], s);"),
        (
            f"segment(y, pos, n[j]) ~ normal(a[j] + w[j] * segment(x, pos, n[j]), s); {NEXT}",
            "y[{row}] ~ normal(a[{group}] + w[{group}] * x[{row}], s);",
        ),
        (
            f"target += normal_lpdf(segment(y, pos, n[j]) | exp(segment(x, pos, n[j])) .* segment(x, pos, n[j]), s);"
            f"{NEXT}",
            "target += normal_lpdf(y[{row}] | exp(x[{row}]) * x[{row}], s);",
        ),
        (
            f"segment(y, pos, n[j]) ~ normal(X[pos : pos + n[j] - 1] * b, s); {NEXT}",
            "y[{row}] ~ normal(X[{row}] * b, s);",
        ),
        (
            f"for (k in 1 : n[j]) y[pos + k - 1] ~ normal(a[j] * x[pos - 1 + k], s); {NEXT}",
            "y[{row}] ~ normal(a[{group}] * x[{row}], s);",
        ),
        (
            "for (i in pos : (pos + n[j] - 1)) { real mu = a[j] * x[i]; y[i] ~ normal(mu, s); } pos = pos + n[j];",
            "real mu = a[{group}] * x[{row}]; y[{row}] ~ normal(mu, s);",
        ),
        (
            "y[from[j] : to[j]] ~ normal(a[j] * w[j] + b[1] * x[from[j] : to[j]], s);",
            "y[{row}] ~ normal(a[{group}] * w[{group}] + b[1] * x[{row}], s);",
        ),
        ("for (i in from[j] : to[j]) y[i] ~ normal(a[j] * x[i], s);", "y[{row}] ~ normal(a[{group}] * x[{row}], s);"),
        ("y[ptr[j] : (ptr[j + 1] - 1)] ~ normal(a[j], s);", "y[{row}] ~ normal(a[{group}], s);"),
        (
            "int k = from[j]; int e = k + n[j] - 1; y[k : e] ~ normal(a[j] * x[k : e], s);",
            "y[{row}] ~ normal(a[{group}] * x[{row}], s);",
        ),
        (
            f"vector[n[j]] m = a[j] * segment(x, pos, n[j]); segment(y, pos, n[j]) ~ normal(m, s); {NEXT}",
            "y[{row}] ~ normal(a[{group}] * x[{row}], s);",
        ),
        (
            "int g = own[j]; int k = from[g]; int m = to[g] - k + 1; vector[m] z = y[k : to[g]];"
            " z ~ normal(a[g] * x[k : to[g]], s);",
            "y[{row}] ~ normal(a[own[{group}]] * x[{row}], s);",
        ),
        (
            "segment(y, from[j], n[j]) ~ normal(a[j] * segment(x, from[j], n[j]), s);",
            "y[{row}] ~ normal(a[{group}] * x[{row}], s);",
        ),
    ],
)
def test_densities_of_segments(inside: str, density: str) -> None:
    program = read(inside)
    found = by_rows(program)
    assert isinstance(found, Program)
    rng = np.random.default_rng(1)
    data = {"N": 8, "J": 3, "y": rng.normal(size=8), "x": rng.normal(size=8), "X": rng.normal(size=(8, 2))}
    data |= {"n": np.array([3, 1, 2]), "w": rng.normal(size=3)}  # no group has the last two rows
    data |= {
        "from": np.array([5, 1, 2]),
        "to": np.array([6, 1, 4]),
        "ptr": np.array([1, 3, 4, 7]),
        "own": np.array([2, 3, 1]),
    }
    values = {"a": rng.normal(size=3), "b": rng.normal(size=2), "s": 0.7}
    assert log_density(found, data, values) == pytest.approx(log_density(program, data, values), rel=1e-12)
    row, group = "stansub_row_1", "stansub_group_1[stansub_row_1]"
    expected = f"for ({row} in 1 : N) {{ if ({group} != 0) {{ {density.format(row=row, group=group)} }} }}"
    assert words(found.text(found.model.inside)).endswith(words(expected))
    parts = divide(found)
    assert parts is not None
    assert "stansub_group_1" in {one.name for one in parts.computed}
    assert "N" in parts.sizes


def test_integers_that_change_stay() -> None:
    loop = "for (j in 1 : J) { int k = to[j]; k += 1; y[from[j] : k] ~ normal(a[j], s); }"
    assert by_rows(canonical(f"{HEAD} model {{ {loop} }}")) is None


def test_what_else_the_loop_does_stays() -> None:
    found = by_rows(read(f"a[j] ~ normal(w[j], 1); segment(y, pos, n[j]) ~ normal(a[j], s); {NEXT}"))
    assert isinstance(found, Program)
    assert words("for (j in 1 : J) { a[j] ~ normal(w[j], 1); } for") in words(found.text(found.model.inside))


@pytest.mark.parametrize(
    ("inside", "odd"),
    [
        ("segment(y, pos, n[j]) ~ normal(a[j] * mean(segment(x, pos, n[j])), s);", "mean(segment(x, pos, n[j]))"),
        ("vector[2] m = x[pos] * b; segment(y, pos, n[j]) ~ normal(a[j] + m[1], s);", "vector[2] m ="),
        (
            "segment(y, pos, n[j]) ~ multi_normal(rep_vector(a[j], n[j]), diag_matrix(rep_vector(s, n[j])));",
            "segment(y, pos, n[j]) ~ multi_normal",
        ),
        ("segment(y, pos, n[j]) - a[j] ~ path(s);", "segment(y, pos, n[j]) - a[j] ~ path(s)"),
        ("real m = a[j]; segment(y, pos, n[j]) ~ normal(m, s);", "segment(y, pos, n[j]) ~ normal(m, s)"),
        (
            "target += segment(x, pos, n[j])' * segment(y, pos, n[j]); segment(y, pos, n[j]) ~ normal(0, s);",
            "target +=",
        ),
        ("segment(y, pos, n[j]) ~ normal(y[pos], s);", "y[pos]"),
        (
            "segment(y, pos, n[j]) ~ normal(0, s); for (k in 1 : n[j]) target += k * y[pos + k - 1];",
            "for (k in 1 : n[j])",
        ),
    ],
)
def test_what_takes_the_rows_of_a_group_together_is_refused(inside: str, odd: str) -> None:
    program = read(f"{inside} {NEXT}")
    refused = by_rows(program)
    assert isinstance(refused, RefusedError)
    assert f"(`{odd}" in refused.reason
    assert program.text(refused.span).startswith("for (j in 1 : J)")


@pytest.mark.parametrize(
    ("inside", "written"),
    [
        (
            "real m = mean(segment(x, pos, n[j])); segment(y, pos, n[j]) ~ normal(m, s);",
            "real m = mean(segment(x, {start}, n[j])); segment(y, {start}, n[j]) ~ normal(m, s);",
        ),
        ("target += y[pos] * s;", "target += y[{start}] * s;"),
        ("segment(y, pos, n[j]) ~ path(s);", "segment(y, {start}, n[j]) ~ path(s);"),
    ],
)
def test_groups_without_parameters_are_the_observations(inside: str, written: str) -> None:
    head, model = HEAD.replace("vector[J] a", "real a"), "int pos = 1; a ~ normal(0, 1); for (j in 1 : J)"
    program = canonical(f"{head} model {{ {model} {{ {inside} {NEXT} }} }}")
    found = by_rows(program)
    assert isinstance(found, Program)
    rng = np.random.default_rng(1)
    data = {"N": 8, "J": 3, "y": rng.normal(size=8), "x": rng.normal(size=8), "X": rng.normal(size=(8, 2))}
    data |= {"n": np.array([3, 1, 2]), "w": rng.normal(size=3)}
    values = {"a": 0.4, "b": rng.normal(size=2), "s": 0.7}
    assert log_density(found, data, values) == pytest.approx(log_density(program, data, values), rel=1e-12)
    loop = f"for (j in 1 : J) {{ {written.format(start='stansub_start_1[j]')} }}"
    assert words(found.text(found.model.inside)).endswith(words(loop))


def test_groups_without_parameters_stay_where_data_say_which_rows_are_theirs() -> None:
    head = HEAD.replace("vector[J] a", "real a")
    assert by_rows(canonical(f"{head} model {{ for (j in 1 : J) y[from[j] : to[j]] ~ normal(a, s); }}")) is None


@pytest.mark.parametrize(
    ("inside", "before"),
    [
        (f"segment(y, pos, n[j]) ~ normal(a[j], s); {NEXT}", "int pos = 2;"),
        (f"segment(y, pos, n[j]) ~ normal(a[j], s); {NEXT}", "int pos = 1; pos = 2;"),
        ("segment(y, pos, n[j]) ~ normal(a[j], s); pos += n[1];", "int pos = 1;"),
        (f"segment(y, pos, n[1]) ~ normal(a[j], s); {NEXT}", "int pos = 1;"),
        (f"y[j] ~ normal(a[j], s); {NEXT}", "int pos = 1;"),
        ("y[from[j] : to[j]] ~ normal(w[j] * sum(y[from[j] : to[j]]), s);", ""),
        ("y[from[j] : to[j]] ~ normal(a[j] + from[j], s);", ""),
        ("y[from[j] : to[j]] ~ normal(a[j], s); y[from[j]] ~ normal(0, 1);", ""),
    ],
)
def test_other_loops_are_left_alone(inside: str, before: str) -> None:
    assert by_rows(read(inside, before)) is None
