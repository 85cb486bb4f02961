"""Passes over programs: applied until none applies, what one writes is read by the next."""

import pytest
from texts import canonical

from stansub.stan.parts import divide
from stansub.stan.passes import fixpoint
from stansub.stan.passes.fixpoint import PASSES, Rewriting, rewriting
from stansub.stan.passes.rewriting import Edits, Pass, RefusedError, Symbols
from stansub.stan.syntax import Program, names, parse

CELL_BY_CELL, LAGS, LISTED, RAGGED, RESIDUALS, _, _, BY_CELLS, *_, SUMMARIES, TERMS = (one.name for one in PASSES)

CENTRED_SERIES = """
data { int N; vector[N] x; vector[N] y; }
parameters { real a; real b; real c; real<lower=0> s; }
model { for (n in 2 : N) y[n] ~ normal(a + b * (x[n] - mean(x)) + c * y[n - 1], s); }
"""
CENTRED = CENTRED_SERIES.replace(" + c * y[n - 1]", "").replace("2 : N", "1 : N")
# In the shape of a generated program: an outcome with missing values, and autoregressive residuals.
MISSING_SERIES = """
data {
  int N; vector[N] Y; int M; array[M] int gone; matrix[N, 2] X; int lags; array[N] int J_lag;
}
parameters { vector[M] guess; real a; vector[2] b; vector[lags] ar; real<lower=0> s; }
model {
  vector[N] Yl = Y;
  matrix[N, lags] Err = rep_matrix(0, N, lags);
  vector[N] err;
  vector[N] mu = rep_vector(0.0, N);
  Yl[gone] = guess;
  mu += a + X * b;
  for (n in 1:N) {
    err[n] = Yl[n] - mu[n];
    for (i in 1:J_lag[n]) { Err[n + 1, i] = err[n + 1 - i]; }
    mu[n] += Err[n, 1:lags] * ar;
  }
  target += normal_lpdf(Yl | mu, s);
}
"""


def read(code: str) -> Program:
    return canonical(code)


@pytest.mark.parametrize(
    ("code", "applied"),
    [
        (CENTRED_SERIES, (SUMMARIES, LAGS)),
        (MISSING_SERIES, (LISTED, RESIDUALS)),
        (CENTRED_SERIES.replace(" - mean(x)", ""), (LAGS,)),
        (CENTRED, (SUMMARIES,)),
        (CENTRED.replace("(x[n] - mean(x))", "x[n]"), ()),
    ],
    ids=["centred series", "missing values in a series", "a series", "centred", "a regression"],
)
def test_passes_apply_one_after_the_other(code: str, applied: tuple[str, ...]) -> None:
    found = rewriting(read(code))
    assert found.passes == applied
    assert (divide(found.program) is None) == (not applied)
    assert rewriting(parse(found.program.code)).passes == (), "names are only written once"


FUNCTIONS = """
functions {
  real lagged_lpdf(array[] real part, int start, int end, array[] real y, real b, real s) {
    real total = 0;
    for (t in start:end) total += normal_lpdf(part[t - start + 1] | t > 1 ? b * y[t - 1] : 0, s);
    return total;
  }
  real of_units(array[] int units, int start, int end, array[] int first, array[] int n, array[] real y, real b) {
    real total = 0;
    for (u in units) total += normal_lpdf(segment(y, first[u], n[u]) | b, 1);
    return total;
  }
  real of_rows(array[] vector effects, int start, int end, array[] vector table) {
    real total = 0.0;
    for (j in 1:size(effects)) total += normal_lpdf(table[start + j - 1] | effects[j, 1], 1);
    return total;
  }
  real each(int n, array[] real y, real b) { return normal_lpdf(y[n] | b * y[n - 1], 1); }
}
data {
  int N; int U; int J; int K; array[N] real y; array[U] int units; array[U] int first; array[U] int n;
  array[J] vector[K] table;
}
parameters { real b; real<lower=0> s; array[J] vector[K] u; }
model { %s }
"""


@pytest.mark.parametrize(
    ("statement", "applied"),
    [
        ("target += reduce_sum(lagged_lpdf, y, 1, y, b, s);", (LAGS,)),
        ("for (t in 2:N) target += each(t, y, b);", (LAGS,)),
        ("target += reduce_sum(of_units, units, 1, first, n, y, b);", (LAGS,)),
        ("target += reduce_sum(of_rows, u, 1, table);", (CELL_BY_CELL, BY_CELLS)),
    ],
)
def test_functions_of_the_likelihood_are_opened(statement: str, applied: tuple[str, ...]) -> None:
    assert rewriting(read(FUNCTIONS % statement)).passes[: 1 + len(applied)] == (fixpoint.FUNCTIONS, *applied)


def test_no_pass_alone_takes_the_likelihood_apart() -> None:
    """A series of which only the mean was taken out is still read beside its observations."""
    program = read(CENTRED_SERIES)
    by_name = {one.name: one(program) for one in PASSES}
    assert isinstance(by_name[LAGS], RefusedError)
    assert by_name[LAGS].reason == "reads `x` at indices that are not rows"
    summaries = by_name[SUMMARIES]
    assert isinstance(summaries, Program)
    assert "y[n - 1]" in summaries.code


def test_a_program_with_names_of_ours_is_left_alone() -> None:
    program = read(CENTRED_SERIES.replace("real c;", "real stansub_c;").replace("c * y", "stansub_c * y"))
    assert rewriting(program) == Rewriting(program)


def test_passes_that_undo_each_other_end(monkeypatch: pytest.MonkeyPatch) -> None:
    program = read(CENTRED_SERIES)
    there_and_back = Pass("there and back", lambda one: Edits([], [(one.model.inside.before, "")]))
    monkeypatch.setattr(fixpoint, "PASSES", (there_and_back,))
    rewriting.cache_clear()
    try:
        assert len(rewriting(program).passes) == fixpoint._MOST
    finally:
        rewriting.cache_clear()


def test_what_a_pass_leaves_unused_is_removed_but_what_was_unused_before_may_reject() -> None:
    head = "data { int N; int J; vector[N] y; array[J] int n; } parameters { real a; }"
    loop = "int at = 1; for (j in 1 : J) { segment(y, at, n[j]) ~ normal(a, 1); at += n[j]; }"
    found = rewriting(read(f"{head} model {{ real b = 2 * a; real odd = sqrt(b); {loop} }}"))
    assert found.passes == (RAGGED,)
    assert {"b", "odd"} <= names(found.program.model)
    assert "at" not in names(found.program.model)


def test_symbols_are_free() -> None:
    symbols = Symbols.of(read(CENTRED_SERIES.replace("real c;", "real c; real stansub_x_1;")))
    assert [symbols.fresh("stansub_x") for _ in range(2)] == ["stansub_x_2", "stansub_x_3"]


def test_what_is_added_twice_has_different_names() -> None:
    twice = CENTRED_SERIES.replace("mean(x)", "mean(x) / sd(x)")
    program = rewriting(read(twice)).program
    assert {"stansub_summary_1", "stansub_summary_2"} <= names(program)
