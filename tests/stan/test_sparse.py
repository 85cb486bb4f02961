"""Sparse rows of likelihoods of no known family, in their own arguments."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from recording import Limited
from scipy import stats
from scipy.special import expit

from stansub.progress import TimeLimitError
from stansub.stan import sparse
from stansub.stan.analysis import Analysis
from stansub.stan.data.data import Data, load
from stansub.stan.observations import parameters
from stansub.stan.observations.observation import follow
from stansub.stan.observations.predictors import Text, arguments_of, predictors_of
from stansub.stan.observations.row_program import in_program
from stansub.stan.sparse import cutting, is_cut, sparse_predictors
from stansub.stan.syntax import parse
from stansub.target.groupings import Recentred
from stansub.target.programs import ProgramFamily
from stansub.target.rows import ColumnRows
from stansub.target.sparse import SparsePredictors

N, LEVELS = 60, 12
CODE = """
functions {
  real zi_lpmf(int y, real eta, real p) {
    if (y == 0) {
      return log_sum_exp(bernoulli_lpmf(1 | p), bernoulli_lpmf(0 | p) + poisson_log_lpmf(0 | eta));
    }
    return bernoulli_lpmf(0 | p) + poisson_log_lpmf(y | eta);
  }
}
data { int N; int J; array[N] int y; vector[N] x; array[N] int g; }
parameters { real a; real b; real<lower=0, upper=1> p; vector[J] z; real<lower=0> tau; }
transformed parameters { vector[J] u = tau * z; }
model {
  z ~ normal(0, 1);
  tau ~ normal(0, 1);
  for (n in 1 : N) target += zi_lpmf(y[n] | a + b * x[n] + u[g[n]], p);
}
"""


@pytest.fixture
def data() -> dict[str, Any]:
    rng = np.random.default_rng(4)
    own = {"y": rng.poisson(1.0, N), "x": rng.standard_normal(N), "g": rng.integers(1, LEVELS + 1, N)}
    return {"N": N, "J": LEVELS, **own}


@pytest.mark.parametrize("dense", [True, False])
def test_rows_of_a_program_are_sparse(data: dict[str, Any], monkeypatch: pytest.MonkeyPatch, dense: bool) -> None:
    """The likelihood in a, b, logit p and u is that of the formula, however slopes are kept while it is followed."""
    if not dense:
        monkeypatch.setattr(parameters, "_MOST_DENSE", 0)
    own = Analysis.of(parse(CODE)).likelihood_split("N")
    order = [one.name for one in own.arguments]
    assert sorted(order) == ["a", "b", "p", "u"]
    found = sparse_predictors(own, data, N)
    assert isinstance(found.family, ProgramFamily)
    assert len(found.rows) == 2
    assert sorted(one.gathered.nnz for one in found.rows) == [0, N]
    rng = np.random.default_rng(5)
    for _ in range(3):
        values = {"a": rng.standard_normal(1), "b": rng.standard_normal(1), "u": 0.5 * rng.standard_normal(LEVELS)}
        values["p"] = rng.standard_normal(1)
        phi = np.concatenate([values[name] for name in order])
        mean, p = np.exp(values["a"] + values["b"] * data["x"] + values["u"][data["g"] - 1]), expit(values["p"])
        each = p * (data["y"] == 0) + (1 - p) * stats.poisson.pmf(data["y"], mean)
        assert found.log_lik(phi) == pytest.approx(np.log(each).sum(), rel=1e-10)


def test_a_probability_is_an_argument_where_an_expansion_can_begin(data: dict[str, Any]) -> None:
    found = sparse_predictors(Analysis.of(parse(CODE)).likelihood_split("N"), data, N)
    here = found.expansion(np.zeros(found.dim))
    assert np.isfinite(here.value)
    assert np.isfinite(here.gradient).all()
    assert np.isfinite(here.values).all()


SELECTION = """
data { int N; matrix[N, 3] x; array[N] int d; vector[N] y; }
parameters { vector[3] a; vector[3] b; real<lower=0> s; }
model {
  vector[N] mu = x * a;
  vector[N] eta = x * b;
  for (n in 1 : N) {
    if (d[n] == 1) {
      y[n] ~ normal(mu[n], s);
      target += log(Phi(eta[n] + (y[n] - mu[n]) / s));
    } else {
      target += log(Phi(-eta[n]));
    }
  }
}
"""


def test_rows_of_groups_in_all_parameters_are_sparse() -> None:
    """Dense ones take 40 times as much memory, and most of a minute in `stansub check`."""
    n, levels = 40_000, 200
    rng = np.random.default_rng(5)
    values = {"y": rng.poisson(1.0, n), "x": rng.standard_normal(n), "g": rng.integers(1, levels + 1, n)}
    _, arguments = arguments_of([follow(parse(CODE), {"N": n, "J": levels, **values}, n)], [n])
    assert any(sp.issparse(one.slopes) and one.slopes.shape == (n, levels + 4) for one in arguments)


def test_predictors_that_branches_read_in_several_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sparse slopes that are equal up to a sign share indices, whose order is that of each of them."""
    monkeypatch.setattr(parameters, "_MOST_DENSE", 0)
    rng = np.random.default_rng(7)
    x, d, y = rng.standard_normal((N, 3)), rng.integers(0, 2, N), rng.standard_normal(N)
    own = Analysis.of(parse(SELECTION)).likelihood_split("N")
    found = sparse_predictors(own, {"N": N, "x": x, "d": d, "y": y}, N)
    assert len(found.rows) == 3
    a, b, log_s = rng.standard_normal(3), rng.standard_normal(3), rng.standard_normal(1)
    phi = np.concatenate([{"a": a, "b": b, "s": log_s}[one.name] for one in own.arguments])
    mu, eta, s = x @ a, x @ b, np.exp(log_s)
    selected = stats.norm.logpdf(y, mu, s) + stats.norm.logcdf(eta + (y - mu) / s)
    assert found.log_lik(phi) == pytest.approx(np.where(d == 1, selected, stats.norm.logcdf(-eta)).sum(), rel=1e-9)


TALL = """
data { int N; int J; array[N] int y; matrix[N, 3] x; array[N] int g; }
parameters { real a; vector[3] b; vector[J] z; real<lower=0> tau; }
model {
  z ~ normal(0, tau);
  y ~ bernoulli_logit(a + x * b + z[g]);
}
"""


@pytest.fixture
def tall(monkeypatch: pytest.MonkeyPatch) -> Data:
    monkeypatch.setattr(sparse, "_ROWS", 2_000)
    rng, n, j = np.random.default_rng(6), 12_000, 200
    x = rng.standard_normal((n, 3))
    x[:3_000, 2] = 0.0  # nothing is read there in the first parts
    own = {"y": rng.integers(0, 2, n), "x": x, "g": rng.integers(1, j + 1, n)}
    program = parse(TALL)
    return load({"N": n, "J": j, **own}).checked(program.data.declarations)


def of_tall(tall: Data, *, cut: bool) -> SparsePredictors:
    own = Analysis.of(parse(TALL)).likelihood_split("N")
    return sparse_predictors(own, tall.values, tall.integer("N"), cut=cutting(tall, "N") if cut else None)


def test_rows_followed_by_parts_are_those_of_all_at_once(tall: Data) -> None:
    parts, whole = of_tall(tall, cut=True), of_tall(tall, cut=False)
    assert parts.rows[0].places.tolist() == whole.rows[0].places.tolist()
    np.testing.assert_array_equal(parts.rows[0].matrix, whole.rows[0].matrix)
    assert (parts.rows[0].gathered != whole.rows[0].gathered).nnz == 0
    np.testing.assert_array_equal(parts.family.data, whole.family.data)
    phi = np.random.default_rng(7).standard_normal(parts.dim)
    assert parts.log_lik(phi) == pytest.approx(whole.log_lik(phi), rel=1e-13)


def test_columns_of_the_data_are_read_in_place(tall: Data) -> None:
    (row,) = of_tall(tall, cut=True).rows
    assert isinstance(row.dense, ColumnRows)
    (_, intercept), (_, x) = row.dense.runs
    assert intercept == 1.0
    assert isinstance(x, np.ndarray)
    assert np.shares_memory(x, tall.values["x"])
    assert row.columns[0].factors.strides == (0,)
    assert len(row.offset) == 1


@pytest.mark.parametrize("cut", [True, False])
def test_the_time_limit_ends_what_follows_a_text(tall: Data, cut: bool) -> None:
    """It is checked throughout: before each statement, and for each parameter."""
    own = Analysis.of(parse(TALL)).likelihood_split("N")
    options = {"cut": cutting(tall, "N") if cut else None}
    counting = Limited()
    sparse_predictors(own, tall.values, tall.integer("N"), **options, progress=counting)
    assert counting.n_checks > 200, "one for each level"
    for n in range(0, counting.n_checks, 23):
        with pytest.raises(TimeLimitError, match="in the stage 'Following the likelihood"):
            sparse_predictors(own, tall.values, tall.integer("N"), **options, progress=Limited(max(n, 1)))


def test_the_time_limit_ends_the_choice_of_arguments() -> None:
    """Sparse rows of many observations are compared with those of all earlier arguments."""
    text = "data { int N; matrix[N, 3] x; array[N] int y; } parameters { vector[3] a; real<lower=0> s; } model { "
    text += "for (n in 1:N) target += log_mix(inv_logit(a[1] * x[n, 1]), bernoulli_logit_lpmf(y[n] | a[2] * x[n, 2]), "
    text += "bernoulli_logit_lpmf(y[n] | a[3] * x[n, 3])); }"
    rng = np.random.default_rng(9)
    term = follow(parse(text), {"N": 50, "x": rng.standard_normal((50, 3)), "y": rng.integers(0, 2, 50)}, 50).term
    counting = Limited()
    _, arguments = in_program(term, 50, check=counting.check)
    assert len(arguments) == 3 <= counting.n_checks - 1
    for n in range(counting.n_checks):
        with pytest.raises(TimeLimitError):
            in_program(term, 50, check=Limited(n).check)


def test_rows_followed_by_parts_take_little_memory(tall: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one thread: how far the parts of several overlap differs between runs."""
    monkeypatch.setattr(sparse, "THREADS", 1)
    peaks = {}
    of_tall(tall, cut=True)  # what is imported or kept by the first use does not count
    for cut in (True, False):
        tracemalloc.start()
        found = of_tall(tall, cut=cut)
        peaks[cut] = tracemalloc.get_traced_memory()[1] / found.n_observations
        tracemalloc.stop()
    assert peaks[True] < 110 < 0.5 * peaks[False]


def test_rows_followed_by_parts_keep_few_bytes_an_observation(tall: Data) -> None:
    """An int32 for the level, a byte for the outcome: the data hold everything else."""
    of_tall(tall, cut=True)  # imports and caches
    tracemalloc.start()
    found = of_tall(tall, cut=True)
    gc.collect()  # followed text has cycles, which are not kept, but freed when it suits
    kept = tracemalloc.get_traced_memory()[0] / found.n_observations
    tracemalloc.stop()
    assert kept < 12


def test_data_that_a_part_does_not_know_are_not_cut() -> None:
    mean = "transformed data { real m = mean(x[, 1]); }\nparameters {"
    computed = TALL.replace("parameters {", mean).replace("a +", "a + m +")
    assert is_cut(Analysis.of(parse(TALL)).likelihood_split("N"), 10**6)
    assert not is_cut(Analysis.of(parse(computed)).likelihood_split("N"), 10**6)


def test_elements_of_a_table_take_memory_for_the_observations_alone() -> None:
    n, rows, columns = 2000, 20, 60
    program = parse("""
    data { int N; int R; int C; array[N] int y; array[N] int r; array[N] int c; }
    parameters { vector[R] a; vector[C] b; }
    transformed parameters {
      matrix[R, C] eta;
      for (k in 1:R) for (l in 1:C) eta[k, l] = a[k] + b[l];
    }
    model { for (n in 1:N) y[n] ~ poisson_log(eta[r[n], c[n]]); }
    """)
    rng = np.random.default_rng(1)
    r, c = rng.integers(rows, size=n), rng.integers(columns, size=n)
    data = {"N": n, "R": rows, "C": columns, "y": rng.poisson(1, n), "r": r + 1, "c": c + 1}
    tracemalloc.start()
    found = predictors_of([Text(program, load(data).checked(program.data.declarations))], [n], of_family=True)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    expected = np.zeros((n, rows + columns))
    expected[np.arange(n), r] = expected[np.arange(n), rows + c] = 1
    np.testing.assert_array_equal(found.design[0], expected)
    assert peak < 10 * 8 * n * (rows + columns)


RATINGS = """
data { int N; int R; int J; int K; array[N] int start; array[N] int size; array[R] int j; array[R] int y; }
parameters { vector[K] prevalence; array[J, K] vector[K] logit_p; }
model {
  for (n in 1 : N) {
    vector[K] lp = prevalence;
    for (r in start[n] : (start[n] + size[n] - 1)) {
      for (k in 1 : K) lp[k] += log_inv_logit(logit_p[j[r], k, y[r]]);
    }
    target += log_sum_exp(lp);
  }
}
"""


def test_ratings_of_each_item_from_where_they_start() -> None:
    """A loop over an observation's own part of an array has as many iterations as the longest part has elements."""
    rng, n_raters, n_classes = np.random.default_rng(11), 5, 2
    size = rng.integers(0, 4, 1000)
    start, n_ratings = np.cumsum(size) - size + 1, int(size.sum())
    j, y = rng.integers(1, n_raters + 1, n_ratings), rng.integers(1, n_classes + 1, n_ratings)
    data = {"N": 1000, "R": n_ratings, "J": n_raters, "K": n_classes, "start": start, "size": size, "j": j, "y": y}
    own = Analysis.of(parse(RATINGS)).likelihood_split("N")
    found = sparse_predictors(own, data, 1000)
    pi, logit_p = rng.standard_normal(n_classes), rng.standard_normal((n_raters, n_classes, n_classes))
    phi = np.concatenate([{"prevalence": pi, "logit_p": logit_p.ravel()}[one.name] for one in own.arguments])
    each = np.tile(pi, (1000, 1))
    np.add.at(each, np.repeat(np.arange(1000), size), -np.log1p(np.exp(-logit_p[j - 1, :, y - 1])))
    assert found.log_lik(phi) == pytest.approx(np.logaddexp.reduce(each, axis=1).sum(), rel=1e-12)


MATCHES = """
data { int N; int K; array[N] int y; array[N] int i; array[N] int j; vector[N] w; array[N] int h; }
parameters { real a; vector[K] theta; vector[30] v; real<lower=0> tau; }
model {
  theta ~ normal(0, tau);
  v ~ normal(0, tau);
  for (n in 1 : N) y[n] ~ poisson_log(a + WEIGHTED + v[h[n]]);
}
"""
WEIGHTED = {
    "difference": ("theta[i[n]] - theta[j[n]]", lambda w, i, j: i - j),
    "sum": ("theta[i[n]] + theta[j[n]]", lambda w, i, j: i + j),
    "memberships": ("w[n] * theta[i[n]] + (1 - w[n]) * theta[j[n]]", lambda w, i, j: w * i + (1 - w) * j),
    "of each twice": ("theta[i[n]] - 0.5 * theta[i[n]]", lambda w, i, j: 0.5 * i),
}


@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize("name", list(WEIGHTED))
def test_observations_that_read_several_elements_of_a_variable(
    name: str, cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether they read one element twice or two; each variable has columns of its own."""
    monkeypatch.setattr(sparse, "_ROWS", 500)
    text, function = WEIGHTED[name]
    rng, n, k = np.random.default_rng(8), 2_000, 20
    i, j, h = rng.integers(k, size=(3, n))
    data = {"N": n, "K": k, "y": rng.poisson(1.0, n), "i": i + 1, "j": j + 1, "w": rng.random(n), "h": h + 1}
    program = parse(MATCHES.replace("WEIGHTED", text))
    values, own = load(data).checked(program.data.declarations), Analysis.of(program).likelihood_split("N")
    found = sparse_predictors(own, values.values, n, cut=cutting(values, "N") if cut else None)
    (row,) = found.rows
    assert row.places.size == 1
    assert len(row.columns) == (2 if name == "of each twice" else 3)
    read = [set(column.places[column.places >= 0].tolist()) for column in row.columns]
    assert read[0].isdisjoint(read[-1])
    parts = {"a": rng.standard_normal(1), "theta": rng.standard_normal(k), "v": rng.standard_normal(30)}
    phi = np.concatenate([parts[one.name] for one in own.arguments])
    eta = parts["a"] + function(data["w"], parts["theta"][i], parts["theta"][j]) + parts["v"][h]
    np.testing.assert_allclose(found.at(phi)[0], eta, atol=1e-13)
    assert found.log_lik(phi) == pytest.approx((data["y"] * eta - np.exp(eta)).sum(), rel=1e-12)


def test_numbers_of_two_sides_take_no_memory() -> None:
    rng, n, k = np.random.default_rng(8), 500, 20
    i = rng.integers(k, size=n)
    j = (i + 1 + rng.integers(k - 1, size=n)) % k
    data = {"N": n, "K": k, "y": rng.poisson(1.0, n), "i": i + 1, "j": j + 1, "w": rng.random(n), "h": i + 1}
    own = Analysis.of(parse(MATCHES.replace("WEIGHTED", WEIGHTED["difference"][0]))).likelihood_split("N")
    (row,) = sparse_predictors(own, data, n).rows
    assert [column.factors.strides for column in row.columns] == [(0,), (0,), (0,)]
    assert [column.factors[0] for column in row.columns] == [-1.0, 1.0, 1.0]


SLOPES = """
data { int N; int J; int K; array[N] int y; vector[N] x; array[N] int g; array[N] int h; }
parameters { real a; vector[J] b; vector[K] u; real<lower=0> tau; }
model { b ~ normal(0, tau); u ~ normal(0, tau); y ~ poisson_log(a + b[g] .* x + u[h]); }
"""


def test_a_covariate_that_is_zero_does_not_mix_groupings() -> None:
    """If they shared columns, levels would take the place of slopes there, and their shifts would not cancel."""
    rng, n, j, k = np.random.default_rng(8), 2_000, 20, 30
    x, g, h = rng.integers(-3, 4, n) / 3, rng.integers(j, size=n), rng.integers(k, size=n)
    data = {"N": n, "J": j, "K": k, "y": rng.poisson(1.0, n), "x": x, "g": g + 1, "h": h + 1}
    found = sparse_predictors(Analysis.of(parse(SLOPES)).likelihood_split("N"), data, n)
    slopes, levels = found.rows[0].columns
    np.testing.assert_array_equal(levels.places, 1 + j + h)
    np.testing.assert_array_equal(slopes.factors, x)
    (shift,) = Recentred(found, np.zeros(found.dim)).shifts
    np.testing.assert_array_equal(shift.places, 1 + j + np.arange(k))


@pytest.mark.parametrize(("k", "places"), [(17, 1), (16, 17)])
def test_variables_of_which_most_elements_are_read_are_dense(k: int, places: int) -> None:
    rng, n = np.random.default_rng(8), 500
    i, j, h = rng.integers(k, size=(3, n))
    data = {"N": n, "K": k, "y": rng.poisson(1.0, n), "i": i + 1, "j": j + 1, "w": rng.random(n), "h": h + 1}
    own = Analysis.of(parse(MATCHES.replace("WEIGHTED", WEIGHTED["memberships"][0]))).likelihood_split("N")
    (row,) = sparse_predictors(own, data, n).rows
    assert row.places.size == places
