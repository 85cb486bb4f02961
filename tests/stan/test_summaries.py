"""Summaries of data within the model: what is computed once of all the data, and what is left alone."""

import pytest
from texts import canonical, words

from stansub.stan.passes.rewriting import RefusedError
from stansub.stan.passes.summaries import with_summaries
from stansub.stan.syntax import Program

HEAD = """
functions { real middle(vector v) { return mean(v); } real f_lpdf(real u, vector v) { return -mean(v) * square(u); } }
data {
  int N; int K; vector[N] x; vector[N] y; matrix[N, K] X; array[N] int count; array[N] int partner; vector[K] scale;
  real w;
}
transformed data { vector[N] z = x / 2; }
parameters { real a; real b; vector[N] each; vector[K] c; real<lower=0> s; }
"""


def read(model: str, before: str = "") -> Program:
    code = f"{HEAD} transformed parameters {{ {before} }} model {{ {model} }}"
    return canonical(code)


@pytest.mark.parametrize(
    ("model", "written", "declared"),
    [
        (
            "y ~ normal(a + b * (x - mean(x)) / sd(x), s);",
            "y ~ normal(a + b * (x - stansub_summary_1) / stansub_summary_2, s);",
            "real stansub_summary_1 = mean(x); real stansub_summary_2 = sd(x);",
        ),
        (
            "for (n in 1:N) y[n] ~ normal(a + b * (z[n] - mean(z)) + mean(z), s);",
            "for (n in 1 : N) { y[n] ~ normal(a + b * (z[n] - stansub_summary_1) + stansub_summary_1, s); }",
            "real stansub_summary_1 = mean(z);",
        ),
        (
            "y ~ normal(a + b * x / max({mean(x), sum(square(x)) / N}), s);",
            "y ~ normal(a + b * x / stansub_summary_1, s);",
            "real stansub_summary_1 = max({mean(x), sum(square(x)) / N});",
        ),
        (
            "y ~ normal(a + b * x[partner] + c[1] * X[partner, 2], s);",
            "y ~ normal(a + b * stansub_summary_1 + c[1] * stansub_summary_2, s);",
            "vector[N] stansub_summary_1 = x[partner]; vector[N] stansub_summary_2 = X[partner, 2];",
        ),
        (
            "y ~ normal(X[partner] * c + X[partner, :] * c + count[1], s);",
            "y ~ normal(stansub_summary_1 * c + stansub_summary_2 * c + stansub_summary_3, s);",
            "matrix[N, K] stansub_summary_1 = X[partner]; matrix[N, K] stansub_summary_2 = X[partner,  : ];"
            "int stansub_summary_3 = count[1];",
        ),
        (
            "a ~ normal(middle(x), 1); y ~ normal(a + x[1] * b, s);",
            "a ~ normal(stansub_summary_1, 1); y ~ normal(a + stansub_summary_2 * b, s);",
            "real stansub_summary_1 = middle(x); real stansub_summary_2 = x[1];",
        ),
        (
            "a ~ normal(0, w / (K - w) * s / sqrt(1.0 * N)); y ~ normal(a, s / max(N, 1));",
            "a ~ normal(0, w / (K - w) * s / stansub_summary_1); y ~ normal(a, s / stansub_summary_2);",
            "real stansub_summary_1 = sqrt(1.0 * N); int stansub_summary_2 = max(N, 1);",
        ),
        (
            "target += log(N) * s - sqrt(N * s) + s ^ (1.0 / N); y ~ normal(x - sum(x) / N, s);",
            "target += stansub_summary_1 * s - sqrt(stansub_summary_2 * s) + s ^ stansub_summary_3;"
            "y ~ normal(x - stansub_summary_4, s);",
            "real stansub_summary_1 = log(N); int stansub_summary_2 = N; real stansub_summary_3 = 1.0 / N;"
            "real stansub_summary_4 = sum(x) / N;",
        ),
    ],
)
def test_summaries_of_data_are_transformed_data(model: str, written: str, declared: str) -> None:
    found = with_summaries(read(model))
    assert found is not None
    assert words(found.text(found.model.inside)) == words(written)
    assert words(declared) in words(found.text(found.transformed_data.inside))


def test_transformed_parameters_too() -> None:
    found = with_summaries(read("y ~ normal(mu, s);", "vector[N] mu = a + b * (x - mean(x));"))
    assert found is not None
    assert "x - stansub_summary_1" in found.text(found.transformed_parameters.inside)


@pytest.mark.parametrize(
    "model",
    [
        pytest.param("y ~ normal(a + b * (each - mean(each)), s);", id="of a parameter"),
        pytest.param("y ~ normal(a + b * mean(x * s), s);", id="of what depends on one"),
        pytest.param("for (n in 1:N) y[n] ~ normal(a + mean(X[n]) * b, s);", id="of an observation"),
        pytest.param("y ~ normal(a + b * fmax(w, 1), s);", id="of no container"),
        pytest.param("y ~ normal(a + scale[1] * x, s);", id="an element of what is not of observations"),
        pytest.param("y ~ normal(each[partner], s);", id="rows of a parameter"),
        pytest.param("for (n in 1:N) y[n] ~ normal(a + b * middle(X[n]'), s);", id="a function of an observation"),
        pytest.param("target += f_lpdf(1.5 | x); y ~ normal(a, s);", id="a density"),
        pytest.param("target += -N * log(s) - (N - 1) / 2.0 * a; y ~ normal(a, s);", id="linear in their number"),
        pytest.param(
            "for (k in 1 : N %/% 2) y[K * k / N + 1 : N / K] ~ normal(sqrt(x[N - 1]), s);",
            id="integers that may be places",
        ),
        pytest.param("y ~ normal(a * rep_vector(s, N) / sqrt(K), s);", id="sizes"),
        pytest.param("for (n in 1:N) y[n] ~ normal(a * max(n, 2), s);", id="of a place"),
        pytest.param("target += sum(y) * a + dot_product(x, y) * b - sum(exp(a + b * x));", id="sums"),
    ],
)
def test_what_is_left_alone(model: str) -> None:
    assert with_summaries(read(model)) is None


@pytest.mark.parametrize("model", ["target += N * mean(y) * log(s) - N * s;", "mean(y) ~ normal(a, s);"])
def test_a_model_of_nothing_but_summaries_is_refused(model: str) -> None:
    program = read(model)
    refused = with_summaries(program)
    assert isinstance(refused, RefusedError)
    assert refused.reason == "reads the observations only through `mean(y)`"
    assert program.text(refused.span) == program.text(program.model.statements[0].span)


def test_a_summary_in_the_limit_of_a_parameter_alone_is_refused() -> None:
    program = canonical("data { int N; vector[N] y; } parameters { real<lower=max(y)> a; } model { a ~ normal(0, 1); }")
    refused = with_summaries(program)
    assert isinstance(refused, RefusedError)
    assert program.text(refused.span) == "real<lower=max(y)> a;"


def test_limits_of_parameters_and_integers_that_summarise_are_computed_once() -> None:
    code = """
    data { int N; vector[N] y; array[N] int<lower=1> g; array[N] int<lower=0> count; }
    parameters { real<upper=min(y)> shift; vector[max(g)] u; real<lower=0> s; }
    model { for (n in 1:N) { y[n] - shift ~ lognormal(u[g[n]], s); target += count[n] * s / max(count); } }
    """
    found = with_summaries(canonical(code))
    assert found is not None
    assert not isinstance(found, RefusedError)
    declared = "real stansub_summary_1 = min(y); int stansub_summary_2 = max(g); int stansub_summary_3 = max(count);"
    assert words(declared) in words(found.code)
    assert words("real<upper=stansub_summary_1> shift; vector[stansub_summary_2] u;") in words(found.code)
