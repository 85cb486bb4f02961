"""The program in parts: which statements stand together, and what comes along."""

import re
from pathlib import Path

import pytest
from texts import canonical

from stansub.stan import source
from stansub.stan.parts import Parts, divide

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "stan_models"
PROGRAMS = ROOT / "tests" / "programs"


HEAD = """
functions { void refuse(real x) { if (x > 9) reject("large"); } }
data { int N; int M; int J; vector[N] y; vector[M] z; array[N] int g; }
parameters { real a; real<lower=0> s; vector[J] u; }
"""


def divided(code: str) -> Parts | None:
    """A program in parts, all of which stanc takes."""
    parts = divide(canonical(code))
    for text in (parts.code, parts.exporting) if parts else ():
        canonical(text or "model { }")
    return parts


def switched(parts: Parts | None, *sizes: str) -> list[str]:
    """Lines of the group that depends on these sizes."""
    assert parts is not None
    groups = re.split(r"^if \(stansub_parts\[\d+\]\) \{\n", parts.code, flags=re.MULTILINE)[1:]
    return [line for line in groups[parts.groups.index(frozenset(sizes))].splitlines() if line.strip("{} ")]


def test_a_group_has_what_it_needs_and_no_more() -> None:
    parts = divided(
        HEAD
        + """
transformed parameters {
  vector[J] scaled = s * u;
  real b = 2 * a;
}
model {
  real c, d;
  c = b + 1;
  d = exp(a);
  u ~ normal(c, 1);
  y ~ normal(scaled[g], d);
  target += normal_lpdf(z | c, s);
}
"""
    )
    assert parts is not None
    assert parts.sizes == ("N", "M")
    assert [set(group) for group in parts.groups] == [set(), {"N"}, {"M"}]
    assert switched(parts) == ["real b = 2 * a;", "real c;", "c = b + 1;", "u ~ normal(c, 1);"]
    assert switched(parts, "N") == [
        "vector[J] scaled = s * u;",
        "real d;",
        "d = exp(a);",
        "y ~ normal(scaled[g], d);",
    ]
    assert switched(parts, "M") == [
        "real b = 2 * a;",
        "real c;",
        "c = b + 1;",
        "target += normal_lpdf(z | c, s);",
    ]
    assert "transformed parameters" not in parts.code


def test_statements_stay_in_their_loops_and_branches() -> None:
    parts = divided(
        HEAD
        + """
model {
  if (J > 3) {
    a ~ std_normal();
    for (n in 1 : N) {
      real mu = a + u[g[n]];
      if (y[n] > 0) { target += normal_lpdf(y[n] | mu, s); } else { target += normal_lcdf(0 | mu, s); }
    }
  } else {
    profile("other") { z ~ normal(a, s); }
  }
  for (j in 1 : J) u[j] ~ normal(0, s);
}
"""
    )
    assert switched(parts) == [
        "if (J > 3) {",
        "a ~ std_normal();",
        "for (j in 1 : J) {",
        "u[j] ~ normal(0, s);",
    ]
    assert switched(parts, "N") == [
        "if (J > 3) {",
        "for (n in 1 : N) {",
        "real mu = a + u[g[n]];",
        "if (y[n] > 0) {",
        "target += normal_lpdf(y[n] | mu, s);",
        "} else {",
        "target += normal_lcdf(0 | mu, s);",
    ]
    assert switched(parts, "M") == ["if (J > 3) {", "} else {", "z ~ normal(a, s);"]


def test_variables_of_one_name_in_two_scopes() -> None:
    parts = divided(
        HEAD
        + """
model {
  { vector[N] mu = a + u[g]; y ~ normal(mu, s); }
  { vector[M] mu = rep_vector(a, M); z ~ normal(mu, s); }
}
"""
    )
    assert switched(parts, "N") == ["vector[N] mu = a + u[g];", "y ~ normal(mu, s);"]
    assert switched(parts, "M") == ["vector[M] mu = rep_vector(a, M);", "z ~ normal(mu, s);"]


def test_what_reads_observations_by_way_of_others_stands_with_them() -> None:
    parts = divided(
        HEAD
        + """
transformed parameters {
  real total = 0;
  for (n in 1 : N) total += y[n];
}
model {
  a ~ normal(total, 1);
  s ~ normal(M, 1);
  z ~ normal(a, s);
  y ~ normal(u[g], s);
}
"""
    )
    assert "a ~ normal(total, 1);" in switched(parts, "N")
    assert "s ~ normal(M, 1);" in switched(parts, "M")
    assert switched(parts) == []


def test_what_may_reject_is_kept() -> None:
    parts = divided(
        HEAD
        + """
transformed parameters {
  real<upper=5> bounded = a;
  real root = cholesky_decompose(rep_matrix(a, 1, 1))[1, 1];
  real unread = root + 1;
  if (a > 7) reject("too large");
}
model {
  refuse(s);
  z ~ normal(0, s);
  y ~ normal(u[g], s);
}
"""
    )
    assert parts is not None
    kept = parts.code.partition("transformed parameters {\n")[2].partition("model {")[0]
    assert "real<upper=5> bounded = a;" in kept
    assert 'reject("too large");' in kept
    assert switched(parts)[0].startswith("real root = cholesky_decompose")
    assert switched(parts)[1:] == ["real unread = root + 1;", "refuse(s);"]


def test_transformed_data_are_data() -> None:
    parts = divided(
        """
data { int<lower=1> N; int<lower=1> K; matrix[N, K] X; vector<lower=0>[N] y; int N_new; vector[N_new] y_new; }
transformed data {
  int<lower=0> Kc = K - 1;
  matrix[N, Kc] Xc;
  array[2] cov_matrix[Kc] S = rep_array(identity_matrix(Kc), 2);
  vector[Kc] means;
  real unread = 1;
  for (k in 2 : K) { means[k - 1] = mean(X[ , k]); Xc[ , k - 1] = X[ , k] - means[k - 1]; }
}
parameters { vector[Kc] b; real<lower=0> s; }
model {
  b ~ multi_normal(zeros_vector(Kc), S[2]);
  y ~ normal_id_glm(Xc, 0, b, s);
}
generated quantities { real at_0 = -dot_product(means, b); }
"""
    )
    assert parts is not None
    assert [one.name for one in parts.declarations] == ["N", "y", "Kc", "Xc", "S"]
    assert [one.name for one in parts.computed] == ["Kc", "Xc", "S"]
    assert "matrix[N, Kc] Xc;" in parts.code
    assert "array[2] matrix[Kc, Kc] S;" in parts.code
    assert "int N;" in parts.code
    assert "vector[N] y;" in parts.code
    assert "array[2] matrix[Kc, Kc] stansub_2 = S;" in parts.exporting
    assert parts.sizes == ("N",)


@pytest.mark.parametrize(
    "model",
    [
        "z ~ normal(a, s); y ~ normal(u[g], s); print(target());",
        "real t = target(); z ~ normal(t, s); y ~ normal(u[g], s);",
        "z ~ normal(a, s); for (n in 1 : N) { if (n > 5) break; y[n] ~ normal(u[g[n]], s); }",
        "a ~ std_normal(); u ~ normal(a, s);",
    ],
    ids=["target printed", "target read", "break", "no observations"],
)
def test_what_is_left_whole(model: str) -> None:
    assert (divided(f"{HEAD} model {{ {model} }}") is None) == ("print" not in model)


@pytest.mark.parametrize(
    ("file", "gains"),
    [
        (EXAMPLES / "logistic.stan", False),
        (EXAMPLES / "normal.stan", False),
        (PROGRAMS / "mixture.stan", False),
        (PROGRAMS / "multivariate.stan", False),
        (EXAMPLES / "hierarchical_logistic.stan", True),
        (PROGRAMS / "item_response.stan", True),
        (PROGRAMS / "survival.stan", True),
        (PROGRAMS / "brms_gaussian.stan", True),
        (PROGRAMS / "one_each.stan", False),
    ],
    ids=lambda value: value.stem if isinstance(value, Path) else "",
)
def test_nothing_is_compiled_where_nothing_is_gained(file: Path, gains: bool) -> None:
    assert (divide(source.read(file).program) is not None) == gains


def test_lists_of_rows_are_made_anew_for_some_rows() -> None:
    parts = divided(
        """
data { int N; vector[N] y; array[N] int censored; }
transformed data {
  int n_events = 0;
  array[N] int events;
  array[N] int time;
  real centre = mean(y);
  for (n in 1:N) {
    time[n] = n;
    if (!censored[n]) {
      n_events += 1;
      events[n_events] = n;
    }
  }
}
parameters { real a; real b; }
model {
  vector[N] mu = a + b * to_vector(time) - centre;
  a ~ normal(0, 1);
  y[events[1:n_events]] ~ normal(mu[events[1:n_events]], 1);
}
"""
    )
    assert parts is not None
    assert {one.name for one in parts.computed} == {"time", "centre"}
    assert {"censored", "time"} <= {one.name for one in parts.declarations}
    assert not {"events", "n_events"} & {one.name for one in parts.declarations}
    made = parts.code.partition("transformed data")[2].partition("parameters")[0]
    assert "events[n_events] = n;" in made
    assert "time[n] = n;" not in made
    assert parts.groups == (frozenset(), frozenset({"N"}))


def test_what_a_loop_skips_is_no_obstacle() -> None:
    """What leaves a loop is: statements after it depend on it."""
    loop = "for (n in 1:N) { if (g[n] > J) %s; y[n] ~ normal(u[g[n]], s); }"
    code = HEAD + f"model {{ u ~ normal(0, s); z ~ normal(a, s); {loop} }}"
    assert divided(code % "break") is None
    assert any("u[g[n]]" in line for line in switched(divided(code % "continue"), "N"))
