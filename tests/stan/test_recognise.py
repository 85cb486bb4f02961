"""What is taken for the likelihood of a program, and what users read about it."""

import re
from pathlib import Path

import pytest
from texts import canonical

from stansub.errors import InputError
from stansub.stan import stanc
from stansub.stan.analysis import Analysis, explain
from stansub.stan.recognise import Form, recognise
from stansub.stan.remarks import find_line
from stansub.stan.sizes import observations_in, size_candidates
from stansub.stan.syntax import Call, For, parse

PROGRAMS = Path(__file__).parent / "programs"


def located(stem: str) -> tuple[Form, int | None]:
    file = PROGRAMS / f"{stem}.stan"
    form = recognise(parse(stanc.canonical(file)))
    return form, find_line(file.read_text(), form.statement)


def test_generated_threading_program() -> None:
    form, line = located("threading_brms_style")
    assert (form.kind, form.n, line) == ("reduce_sum", "size(seq)", 93)
    assert isinstance(form.likelihood, Call)
    assert [str(one) for one in form.likelihood.arguments[:3]] == ["partial_log_lik_lpmf", "seq", "grainsize"]
    assert form.warnings == ()


def test_log_lik_loop() -> None:
    form, line = located("log_lik_plain")
    assert (form.kind, form.n, line) == ("log_lik_i", "N", 28)
    assert form.statement == "for (i in 1 : N) {\n    target += log_lik_i(i, y, x, alpha, beta);\n  }"


def test_log_lik_loop_in_a_branch_from_another_lower_bound_with_included_functions() -> None:
    form, line = located("log_lik_overloaded")
    assert (form.kind, form.n, line) == ("log_lik_i", "(N - 1) - (first + 1) + 1", 24)
    assert isinstance(form.likelihood, For)
    assert form.likelihood.variable == "n"


def test_reduce_sum_through_a_local_variable() -> None:
    form, line = located("expressions")
    assert (form.kind, form.n, line) == ("reduce_sum", "size(y[training])", 26)


PARTIAL = """
functions {
  real f_lpdf(array[] real y, int start, int end, real mu) { return normal_lupdf(y | mu, 1); }
  real g(array[] real y, int start, int end, real mu) { return normal_lpdf(y | mu, 1); }
  real log_lik_i(int i, array[] real y, real mu) { return normal_lpdf(y[i] | mu, 1); }
  real log_lik_i(array[] real y, int i) { return 0; }
  real h_lp(real mu) { mu ~ normal(0, 1); return mu; }
}
data { int<lower=0> N; array[N] real y; }
parameters { real mu; }
"""


@pytest.mark.parametrize(
    "statement",
    [
        "target += reduce_sum(f_lpdf, y, 1, mu);",
        "target += reduce_sum(f_lupdf, y, N, mu);",
        "target += reduce_sum_static(g, y, 1, mu);",
        "target += normal_lpdf(mu | 0, 1) + reduce_sum(g, y, 1, mu) - 2;",
        "real s = reduce_sum(g, y, 1, mu); target += s;",
        "real s; s = reduce_sum(g, y, 1, mu); s -= 1; target += 1 + s;",
        'profile("a") { { target += reduce_sum(g, y, 1, mu); } }',
        "if (N > 2) { mu ~ normal(0, 1); } else if (N > 1) { target += reduce_sum(g, y, 1, mu); }",
    ],
)
def test_ways_to_write_a_reduce_sum(statement: str) -> None:
    form = recognise(canonical(f"{PARTIAL} model {{ mu ~ normal(0, 1); {statement} }}"))
    assert form.kind == "reduce_sum"
    assert form.n == "size(y)"
    assert "reduce_sum" in form.statement


@pytest.mark.parametrize(
    ("statement", "remark"),
    [
        ("y ~ normal(mu, 1);", ""),
        ("for (i in 1:N) { target += log_lik_i(i, y, mu); mu ~ normal(0, 1); }", "inside a loop"),
        ("for (i in 1:N) target += 2 * log_lik_i(i, y, mu);", "inside a loop"),
        ("for (i in 1:N) target += log_lik_i(N + 1 - i, y, mu);", "inside a loop"),
        ("for (i in 1:N) target += log_lik_i(y, i);", "inside a loop"),
        ("for (k in 1:2) for (i in 1:N) target += log_lik_i(i, y, mu);", "inside a loop"),
        ("target += log_lik_i(1, y, mu);", "form that stansub cannot rewrite"),
        ("target += 2 * reduce_sum(g, y, 1, mu);", "form that stansub cannot rewrite"),
        ("target += -reduce_sum(g, y, 1, mu);", "form that stansub cannot rewrite"),
        ("target += 1 - reduce_sum(g, y, 1, mu);", "form that stansub cannot rewrite"),
        ("target += N > 2 ? reduce_sum(g, y, 1, mu) : 0;", "form that stansub cannot rewrite"),
        ("target += reduce_sum(g, y, 1, mu) + reduce_sum(f_lpdf, y, 1, mu);", "form that stansub cannot rewrite"),
        ("target += reduce_sum(g, y, 1, mu); target += reduce_sum(g, y, 1, mu);", "one of several"),
        ("target += reduce_sum(g, y, 1, mu); for (i in 1:N) target += log_lik_i(i, y, mu);", "one of several"),
        ("for (k in 1:2) target += reduce_sum(g, y, 1, mu);", "inside a loop"),
        ("real s = reduce_sum(g, y, 1, mu); target += exp(s);", "form that stansub cannot rewrite"),
        ("real s = reduce_sum(g, y, 1, mu); target += s; target += s;", "form that stansub cannot rewrite"),
        ("real s = reduce_sum(g, y, 1, mu); s = 1; target += s;", "form that stansub cannot rewrite"),
        ("real s = reduce_sum(g, y, 1, mu); s *= 2; target += s;", "form that stansub cannot rewrite"),
        ("real s = reduce_sum(g, y, 1, mu); if (N > 2) target += s;", "form that stansub cannot rewrite"),
        ("real s = 2; s *= reduce_sum(g, y, 1, mu); target += s;", "form that stansub cannot rewrite"),
        ("real s = reduce_sum(g, y, 1, mu);", "form that stansub cannot rewrite"),
        ("real r = 1, s = reduce_sum(g, y, 1, r); target += s;", "form that stansub cannot rewrite"),
        ("real s = target(); target += reduce_sum(g, y, 1, mu) + s;", "target()"),
        ("real s = h_lp(mu); target += reduce_sum(g, y, 1, s);", "*_lp"),
        ("mu ~ normal(reduce_sum(g, y, 1, mu), 1);", "form that stansub cannot rewrite"),
    ],
)
def test_what_is_left_to_the_numerical_proof(statement: str, remark: str) -> None:
    form = recognise(canonical(f"{PARTIAL} model {{ {statement} }}"))
    assert form.kind == "sum"
    assert form.likelihood is None
    assert (remark in str(form.warnings[0])) if remark else form.warnings == ()


def test_no_model_block() -> None:
    with pytest.raises(InputError, match="no model block"):
        recognise(canonical("generated quantities { real x = 1; }"))


def test_plain_programs_show_their_likelihood() -> None:
    program = canonical(f"{PARTIAL} model {{ mu ~ normal(0, 1); if (N > 1) {{ y ~ normal(mu, 1); }} }}")
    assert recognise(program).statement == "y ~ normal(mu, 1);"
    assert [program.text(statement.span) for statement in observations_in(program, "N")] == ["y ~ normal(mu, 1);"]
    assert recognise(canonical("parameters { real x; } model { x ~ normal(0, 1); }")).statement == ""


def test_functions_that_add_to_the_target_are_the_likelihood_if_they_read_observations() -> None:
    functions = "functions { void prior_lp(real a) { a ~ normal(0, 1); } void f_lp(vector z) { z ~ normal(0, 1); } }"
    program = canonical(f"""{functions}
        data {{ int N; vector[N] y; }}
        parameters {{ real a; }}
        model {{ prior_lp(a); f_lp(y - a); }}""")
    assert [program.text(statement.span) for statement in observations_in(program, "N")] == ["f_lp(y - a);"]
    assert recognise(program).statement == "f_lp(y - a);"


def test_an_explicit_form_beside_densities_of_the_same_observations_is_one_of_several() -> None:
    """These would be computed for all observations at every evaluation; a prior of as many parameters remains."""
    text = """
        functions { real f(array[] real y, int start, int end, vector u) { return normal_lpdf(y | u[start:end], 1); } }
        data { int N; array[N] real y; vector[N] z; }
        parameters { vector[N] u; real<lower=0> s; }
        model { %s u ~ normal(0, 1); target += reduce_sum(f, y, 1, u); }"""
    assert recognise(canonical(text % "z[1] ~ normal(0, s);")).kind == "reduce_sum"
    form = recognise(canonical(text % "z ~ normal(0, s);"))
    assert form.kind == "sum"
    assert [one.statement for one in form.warnings] == ["target += reduce_sum(f, y, 1, u);", "z ~ normal(0, s);"]


def test_costs_of_all_observations_are_told() -> None:
    program = canonical("""
        functions { real f(array[] real y, int start, int end, vector mu, real s) {
          return normal_lpdf(y | mu[start:end], s); } }
        data { int N; int K; array[N] real y; matrix[N, K] x; }
        parameters { vector[K] beta; vector[N] u; real<lower=0> s; }
        transformed parameters { vector[N] eta = x * beta; real v = square(s); }
        model {
          vector[N] mu = eta + u;
          for (n in 1:N) { mu[n] += 1; }
          beta ~ normal(0, 1);
          u ~ normal(0, 1);
          { target += reduce_sum(f, y, 1, mu + x[, 1] * s, v); }
        }""")
    told = [(remark.statement.split(" {")[0], remark.message) for remark in recognise(program).warnings]
    computed = "is computed for all observations at every evaluation"
    assert told == [
        ("vector[N] u;", "has a value for every observation, so its prior costs O(N)"),
        ("vector[N] eta = x * beta;", computed),
        ("vector[N] mu = eta + u;", computed),
        ("for (n in 1 : N)", "loops over all observations at every evaluation"),
        ("u ~ normal(0, 1);", computed),
        (
            "target += reduce_sum(f, y, 1, mu + x[ : , 1] * s, v);",
            "computes `mu + x[ : , 1] * s` for all observations at every evaluation",
        ),
    ]


def test_costs_where_the_loop_ends_at_the_length_of_a_variable() -> None:
    program = canonical("""
        functions { real log_lik_i(int i, array[] real y, vector mu) { return normal_lpdf(y[i] | mu[i], 1); } }
        data { int N; array[N] real y; }
        parameters { real a; }
        transformed parameters { vector[N] mu = rep_vector(a, N); }
        model { for (i in 1:size(y)) target += log_lik_i(i, y, mu); }""")
    form = recognise(program)
    assert form.n == "size(y)"
    assert [remark.statement for remark in form.warnings] == ["vector[N] mu = rep_vector(a, N);"]


SOURCE = """// y ~ normal(mu, 1);
model {
  y   ~ normal((mu), 1) /* twice */ ; // y ~ normal(mu, 2);
  for(i in 1:N)
    target += log_lik_i(i,
                        y);
}
"""


@pytest.mark.parametrize(
    ("statement", "line"),
    [
        ("y ~ normal(mu, 1);", 3),
        ("y ~ normal(mu, 2);", None),
        ("for (i in 1 : N) {\n  target += log_lik_i(i, y);\n}", 4),
        ("target += log_lik_i(i, y);", 5),
        ("", None),
    ],
)
def test_lines_are_found_whatever_the_layout(statement: str, line: int | None) -> None:
    assert find_line(SOURCE, statement) == line


def test_lines_of_a_file_that_is_not_stan() -> None:
    assert find_line("y ~ normal(mu, 1); @", "y ~ normal(mu, 1);") is None


def test_size_candidates() -> None:
    program = canonical("""
        data {
          int N; int K; array[2] int sizes; int lonely;
          array[N, K] vector[N] a; matrix[K, N] b; vector[N + 1] c; vector[N * K] d;
          tuple(int, vector[N]) t; real r;
        }
        model { }""")
    assert list(size_candidates(program).items()) == [("N", 2), ("K", 2)]


OBSTACLES = """data {
  int<lower=0> N;
  int K;
  vector[N] y;
  matrix[K, N] x;
  matrix[N, N] distances;
  vector[N - 1] gap;
}
transformed data {
  real m = mean(y); // centred
  vector[N] z = (y - m) / sd(y);
  vector[K] means;
  vector[N] harmless = 2 * y;
  for (k in 1:K) means[k] = mean(x[k]);
}
parameters { real a; vector[N] u; vector[K] beta; }
transformed parameters {
  vector[N] mu = a + distances * z;
  real middle = log_sum_exp(x' * beta);
}
model {
  y ~ normal(x' * beta + u, middle);
  z ~ normal(harmless, 1);
  for (n in 1:N) y[n] ~ normal(mu[n], 1);
  target += normal_lpdf(reverse(y) | a, 1);
}
"""


def test_explanation_names_what_is_no_sum() -> None:
    error = explain(Analysis.of(canonical(OBSTACLES)), "off by 0.1", source=OBSTACLES)
    assert error.reason == "off by 0.1"
    why = "(off by 0.1): line 16: `vector[N] u;` makes it a model with a parameter for each observation"
    assert why in str(error)


def test_explanation_points_at_statements() -> None:
    source = OBSTACLES.replace("vector[N] u; ", "").replace(" + u", "")
    text = str(explain(Analysis.of(canonical(source)), "off by 0.1", source=source))
    assert "\n" not in text
    assert re.findall(r"[:;] line (\d+): `", text) == ["18", "19", "25"]


def test_explanation_without_a_size_variable() -> None:
    program = canonical("data { real y; } parameters { real mu; } model { y ~ normal(mu, 1); }")
    assert "there is nothing that counts observations" in str(explain(Analysis.of(program), "no observations"))
