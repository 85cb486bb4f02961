"""What is taken for the likelihood of a program, and why it is no sum, with lines of the user's file."""

import re

import pytest
from texts import canonical

from stansub.stan.analysis import NO_SIZE, Analysis, explain
from stansub.stan.reading.remarks import find_line
from stansub.stan.reading.sizes import observations_in, size_candidates


def test_statements_that_read_observations_are_the_likelihood() -> None:
    program = canonical(
        "data { int N; array[N] real y; } parameters { real mu; } "
        "model { mu ~ normal(0, 1); if (N > 1) { y ~ normal(mu, 1); } }"
    )
    assert [program.text(statement.span) for statement in observations_in(program, "N")] == ["y ~ normal(mu, 1);"]


def test_functions_that_add_to_the_target_are_the_likelihood_if_they_read_observations() -> None:
    functions = "functions { void prior_lp(real a) { a ~ normal(0, 1); } void f_lp(vector z) { z ~ normal(0, 1); } }"
    program = canonical(f"""{functions}
        data {{ int N; vector[N] y; }}
        parameters {{ real a; }}
        model {{ prior_lp(a); f_lp(y - a); }}""")
    assert [program.text(statement.span) for statement in observations_in(program, "N")] == ["f_lp(y - a);"]


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
    why = "in parts: line 16: `vector[N] u;` makes it a model with a parameter for each observation"
    assert why in str(error)
    assert str(error).endswith(" (numerical check: off by 0.1); `stansub reference` samples it by NUTS")


def test_explanation_points_at_statements() -> None:
    source = OBSTACLES.replace("vector[N] u; ", "").replace(" + u", "")
    text = str(explain(Analysis.of(canonical(source)), "off by 0.1", source=source))
    assert "\n" not in text
    assert re.findall(r"[:;] line (\d+): `", text) == ["18", "19", "25"]


def test_explanation_without_a_size_variable() -> None:
    program = canonical("data { real y; } parameters { real mu; } model { y ~ normal(mu, 1); }")
    assert "nothing counts observations (numerical" in str(explain(Analysis.of(program), "no observations"))
    assert "nothing counts observations; `stansub" in str(explain(Analysis.of(program), NO_SIZE))


def test_a_bound_that_all_observations_determine_is_named() -> None:
    """It changes with the rows of a block; one that is a summary of the data alone is computed from all of them."""
    source = """functions {
      real most(vector u, array[] int g, vector y) { return min(y - u[g]); }
    }
    data { int N; int J; vector[N] y; array[N] int g; }
    parameters { vector[J] u; real<upper=most(u, g, y)> t; real<upper=min(y)> below; }
    model { u ~ normal(0, 1); y - u[g] - t ~ lognormal(below, 1); }
    """
    (remark,) = Analysis.of(canonical(source)).doubts()
    assert (
        remark.located(source) == "line 5: `real<upper=most(u, g, y)> t;` has a bound that depends on all observations"
    )
