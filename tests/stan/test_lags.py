"""Programs that read data beside an observation, over rows of data: how they read, and which are left alone."""

import numpy as np
import pytest
from evaluate import log_density
from texts import canonical, words

from stansub.stan.passes.fixpoint import Rewriting, rewriting
from stansub.stan.passes.rewriting import RefusedError
from stansub.stan.passes.series.lags import with_lags
from stansub.stan.syntax import Block, Program

HEAD = """
data {
  int<lower=1> N; int<lower=1> K; int D; int J; vector[N] y; array[N] real z; array[N] int c; array[N] int g;
  matrix[N, K] x; array[N] vector[D] v; matrix[D, N] w; matrix[J, N] p; array[J] int seen; vector[K] known;
}
parameters {
  real a; real b; vector[K] beta; vector[J] level; vector[N] h; matrix[D, D] A; real<lower=0> s;
}
"""


def read(code: str, head: str = HEAD) -> Program:
    inside = code if "model {" in code else f"model {{ {code} }}"
    return canonical(head + inside)


def inside(program: Program | RefusedError | None, block: str) -> str:
    assert isinstance(program, Program)
    found = getattr(program, block)
    assert isinstance(found, Block)
    return words(program.text(found.inside))


def model_of(code: str) -> str:
    return inside(with_lags(read(code)), "model")


def data_of(code: str) -> str:
    return inside(with_lags(read(code)), "transformed_data")


LOOP = words("""
for (stansub_i in 1 : stansub_t) { stansub_y_1[stansub_i] ~ normal(a + b * stansub_y_2[stansub_i], s); }""")


@pytest.mark.parametrize(
    "code",
    [
        "for (t in 2:N) y[t] ~ normal(a + b * y[t-1], s);",
        "for (t in 2 : N) { y[t] ~ normal(a + b * y[t - 1], s); }",
        "for (time in (1 + 1):(N)) { // a comment\n y[time] ~ normal((a + b * y[(time - 1)]), s); }",
        "for (i in 1:(N - 1)) { y[i + 1] ~ normal(a + b * y[i], s); }",
        "for (i in 1:N-1) y[1 + i] ~ normal(a + b * y[i], s);",
    ],
)
def test_loops(code: str) -> None:
    assert model_of(code) == LOOP
    assert data_of(code).startswith(words("int stansub_t = max(0, N - 1); vector[stansub_t] stansub_y_1"))


def test_rows_are_filled_from_the_data() -> None:
    assert data_of("for (t in 3:N) y[t] ~ normal(b * y[t-2], s);") == words("""
        int stansub_t = max(0, N - 2);
        vector[stansub_t] stansub_y_1 = rep_vector(0, stansub_t);
        vector[stansub_t] stansub_y_2 = rep_vector(0, stansub_t);
        {
          int stansub_row = 0;
          for (t in 3 : N) {
            stansub_row += 1;
            stansub_y_1[stansub_row] = y[t];
            stansub_y_2[stansub_row] = y[t - 2];
          }
        }""")


SLICES = words("stansub_y_1 ~ normal(a + b * stansub_y_2, s);")


@pytest.mark.parametrize(
    "code",
    [
        "y[2:N] ~ normal(a + b * y[1:N-1], s);",
        "y[2:N] ~ normal(a + b * y[1:(N-1)], s);",
        "y[2 : ] ~ normal(a + b * y[ : (N - 1)], s);",
        "y[(1 + 1) : N] ~ normal((a + b * (y[1 : (N - 1)])), s);",
        "y[2:size(y)] ~ normal(a + b * y[1:num_elements(y) - 1], s);",
        "tail(y, N - 1) ~ normal(a + b * head(y, N - 1), s);",
        "segment(y, 2, N - 1) ~ normal(a + b * segment(y, 1, N - 1), s);",
    ],
)
def test_slices(code: str) -> None:
    assert model_of(code) == SLICES
    assert data_of(code) == words("""
        int stansub_t = max(0, N - 1);
        vector[stansub_t] stansub_y_1 = y[2 : N];
        vector[stansub_t] stansub_y_2 = y[1 : N - 1];""")


def test_lags_that_an_inner_loop_runs_over() -> None:
    code = "for (t in (K+1):N) { real m = a; for (k in 1:K) m += beta[k] * y[t-k]; y[t] ~ normal(m, s); }"
    assert model_of(code) == words("""
        for (stansub_i in 1 : stansub_t) {
          real m = a;
          for (k in 1 : K) { m += beta[k] * stansub_y_1[stansub_i, k]; }
          stansub_y_2[stansub_i] ~ normal(m, s);
        }""")
    filled = data_of(code)
    assert words("int stansub_t = max(0, N - K); matrix[stansub_t, K] stansub_y_1") in filled
    assert words("for (k in 1 : K) { stansub_y_1[stansub_row, k] = y[t - k]; }") in filled


def test_inner_loops_of_other_bounds() -> None:
    assert words("matrix[stansub_t, max(0, K - 1)] stansub_y_1") in data_of(
        "for (t in (K+1):N) { real m = a; for (k in 2:K) m += beta[k] * y[t-k]; y[t] ~ normal(m, s); }"
    )
    shorter = data_of("for (t in 1:N) { real m = a; for (k in 1:min(t-1, K)) m += y[t-k]; y[t] ~ normal(m, s); }")
    assert words("stansub_k_3 = max(stansub_k_3, min(t - 1, K));") in shorter
    assert words("if (t - k >= 1) { stansub_y_2[stansub_row, k] = y[t - k]; }") in shorter


def test_what_may_be_outside_the_data_is_only_read_within() -> None:
    code = "for (t in 1:N) { if (t > 1) y[t] ~ normal(b * y[t-1], s); else y[t] ~ normal(0, s); }"
    assert words("if (t - 1 >= 1) { stansub_y_3[stansub_row] = y[t - 1]; }") in data_of(code)
    assert words("if (stansub_t_1[stansub_i] > 1)") in model_of(code)


@pytest.mark.parametrize(
    ("term", "declared", "filled"),
    [
        ("z[t] ~ normal(z[t-1], s)", "vector[stansub_t] stansub_z_2", "z[t - 1]"),
        ("c[t] ~ poisson(c[t-1] + 1)", "array[stansub_t] int stansub_c_2", "c[t - 1]"),
        ("y[t] ~ normal(x[t-1] * beta, s)", "matrix[stansub_t, K] stansub_x_2", "x[t - 1]"),
        ("y[t] ~ normal(x[t-1, 2], s)", "vector[stansub_t] stansub_x_2", "x[t - 1, 2]"),
        ("y[t] ~ normal(x[t-1, ] * beta, s)", "matrix[stansub_t, K] stansub_x_2", "x[t - 1]"),
        ("y[t] ~ normal(v[t-1][2], s)", "vector[stansub_t] stansub_v_2", "v[t - 1, 2]"),
        ("y[t] ~ normal(v[t-1, 2], s)", "vector[stansub_t] stansub_v_2", "v[t - 1, 2]"),
        ("y[t] ~ normal(sum(v[t-1]), s)", "array[stansub_t] vector[D] stansub_v_2", "v[t - 1]"),
        ("y[t] ~ normal(sum(w[ , t-1]), s)", "array[stansub_t] vector[D] stansub_w_2", "w[1 : D, t - 1]"),
        ("y[t] ~ normal(sum(y[t-1:t]), s)", "array[stansub_t] vector[2] stansub_y_2", "y[t - 1 : t]"),
        ("y[t] ~ normal(sum(z[t-1:t]), s)", "array[stansub_t, 2] real stansub_z_2", "z[t - 1 : t]"),
        ("y[t] ~ normal(sum(segment(y, t-1, 2)), s)", "array[stansub_t] vector[2] stansub_y_2", "y[t - 1 : t]"),
        ("y[t] ~ normal(known[g[t-1]], s)", "array[stansub_t] int stansub_g_2", "g[t - 1]"),
        ("y[t] ~ normal(y[g[t]] + y[t-1], s)", "vector[stansub_t] stansub_y_2", "y[g[t]]"),
    ],
)
def test_types_of_rows(term: str, declared: str, filled: str) -> None:
    found = data_of(f"for (t in 2:N) {term};")
    assert f"{words(declared)} =" in found
    assert words(f"[stansub_row] = {filled};") in found


def test_rows_that_data_name() -> None:
    code = "for (t in 1:N) { real last = y[g[t]]; y[t] ~ normal(a + b * last, s); }"
    assert model_of(code) == words("""
        for (stansub_i in 1 : stansub_t) {
          real last = stansub_y_1[stansub_i];
          stansub_y_2[stansub_i] ~ normal(a + b * last, s);
        }""")
    assert words("if (g[t] >= 1 && g[t] <= N) { stansub_y_1[stansub_row] = y[g[t]]; }") in data_of(code)


def test_the_place_of_an_observation() -> None:
    code = "for (t in 1:N) y[t] ~ normal(a + b * t, s);"
    assert model_of(code) == words("""
        for (stansub_i in 1 : stansub_t) { stansub_y_1[stansub_i] ~ normal(a + b * stansub_t_2[stansub_i], s); }""")


@pytest.mark.parametrize(
    "code",
    [
        "for (t in 1:N) y[t] ~ normal(known[g[t]], s);",
        "for (t in 1:N) y[t] ~ normal(level[g[t]], s);",
        "y ~ normal(a, s); for (j in 1:K) known[j] ~ normal(a * j, s);",
    ],
)
def test_what_only_its_own_row_decides_is_left_alone(code: str) -> None:
    assert with_lags(read(code)) is None


def test_units_with_series_of_different_lengths() -> None:
    code = "for (j in 1:J) for (t in 2:seen[j]) p[j, t] ~ normal(level[j] + b * p[j, t-1], s);"
    assert words("int stansub_t = 0; for (j in 1 : J) { stansub_t += max(0, seen[j] - 1); }") in data_of(code)
    assert model_of(code) == words("""
        for (stansub_i in 1 : stansub_t) {
          stansub_p_1[stansub_i] ~ normal(level[stansub_j_2[stansub_i]] + b * stansub_p_3[stansub_i], s);
        }""")


def test_units_of_which_more_is_read() -> None:
    assert model_of("""
        for (j in 1:J) {
          real start = level[j] + a;
          p[j, 1] ~ normal(start, 1);
          level[j] ~ normal(0, 1);
          for (t in 2:N) p[j, t] ~ normal(start + b * p[j, t-1], s);
        }""") == words("""
        for (stansub_i in 1 : stansub_t) {
          real start = level[stansub_j_1[stansub_i]] + a;
          stansub_p_2[stansub_i] ~ normal(start + b * stansub_p_3[stansub_i], s);
        }
        for (stansub_i in 1 : stansub_t2) {
          real start = level[stansub_j_4[stansub_i]] + a;
          stansub_p_5[stansub_i] ~ normal(start, 1);
          level[stansub_j_4[stansub_i]] ~ normal(0, 1);
        }""")


def test_first_observations_apart() -> None:
    code = "for (t in 2:N) y[t] ~ normal(b * y[t-1], s); y[1] ~ normal(a, 1); y[1:K] ~ normal(a, 1);"
    assert model_of(code).endswith(words("stansub_y_4 ~ normal(a, 1); stansub_y_3 ~ normal(a, 1);"))
    assert data_of(code).endswith(words("vector[K] stansub_y_3 = y[1 : K]; real stansub_y_4 = y[1];"))


def test_a_fixed_place_that_is_data() -> None:
    model = model_of("for (t in 2:N) y[t] ~ normal(y[t-1] + known[g[t-1]], s); y[g[1]] ~ normal(a, 1);")
    assert model.endswith(words("stansub_y_4 ~ normal(a, 1);"))


def test_statements_over_the_same_rows_share_them() -> None:
    model = model_of("for (t in 2:N) y[t] ~ normal(b * y[t-1], s); for (t in 2:N) z[t] ~ normal(b * y[t-1], s);")
    assert words("stansub_z_3[stansub_i] ~ normal(b * stansub_y_2[stansub_i], s);") in model
    assert "stansub_t2" not in model


@pytest.mark.parametrize(
    "mean",
    [
        "vector[N - 1] mu = a + b * y[1 : N - 1]; y[2 : N] ~ normal(mu, s);",
        "vector[N - 1] mu; mu = a + b * y[1 : N - 1]; y[2 : N] ~ normal(mu, s);",
        "vector[N] mu; mu[2 : N] = a + b * y[1 : N - 1]; y[2 : N] ~ normal(mu[2 : N], s);",
    ],
)
def test_means_that_are_computed_first(mean: str) -> None:
    model = model_of(mean)
    assert words("= a + b * stansub_y_3;") in model
    assert model.endswith(words("stansub_y_1 ~ normal(stansub_mu_2, s);"))
    assert "N" not in model.split()


@pytest.mark.parametrize("place", ["transformed parameters { MEAN } model { USE }", "model { MEAN USE }"])
@pytest.mark.parametrize("use", ["y ~ normal(mu, s);", "for (t in 1:N) y[t] ~ normal(mu[t], s);"])
def test_means_of_which_the_first_are_computed_in_another_way(place: str, use: str) -> None:
    mean = "vector[N] mu; mu[1] = a; for (t in 2:N) mu[t] = a + b * y[t-1];"
    model = model_of(place.replace("MEAN", mean).replace("USE", use))
    assert words("vector[1] stansub_mu_4; stansub_mu_4[1] = a;") in model
    assert words("vector[stansub_t] stansub_mu_6;") in model
    assert model.count("~") == 2
    assert "N" not in model.split()


@pytest.mark.parametrize(
    "model",
    [
        "vector[N] m; for (t in 2:N) { m[t] = a + b * y[t-1]; y[t] ~ normal(m[t], s); }",
        "vector[N] m = rep_vector(a, N); for (t in 2:N) { m[t] += b * y[t-1]; y[t] ~ normal(m[t], s); }",
        "vector[N] m; vector[N] k; for (t in 2:N) { m[t] = a + b * y[t-1]; k[t] = 2 * m[t]; }"
        "y[2:N] ~ normal(k[2:N], s);",
        "vector[N] m; m[1:2] = rep_vector(a, 2); for (t in 3:N) m[t] = b * y[t-2]; y ~ normal(m, s);",
        "vector[N] m = rep_vector(0, N); for (t in 2:N) m[t] = a + b * y[t-1]; m = m + 1; y[2:N] ~ normal(m[2:N], s);",
        "y[1] ~ normal(a, s); y[2:N] ~ normal(a + b * y[1:N-1] + y[3], s);",
    ],
)
def test_the_log_density_is_that_of_the_program(model: str) -> None:
    program = read(f"model {{ {model} }}")
    written = with_lags(program)
    assert isinstance(written, Program)
    data = {"N": 6, "y": np.random.default_rng(1).standard_normal(6)}
    values = {"a": 0.3, "b": -0.4, "s": 0.8}
    assert log_density(written, data, values) == pytest.approx(log_density(program, data, values), rel=1e-12)


def test_means_of_regressions_with_autoregressive_errors() -> None:
    model = model_of(
        "vector[N] mu = rep_vector(a, N) + x * beta; for (t in 2:N) y[t] ~ normal(mu[t] + b * (y[t-1] - mu[t-1]), s);"
    )
    assert model.count(words("rep_vector(a, stansub_t) + stansub_x_")) == 2
    assert words("stansub_mu_2[stansub_i] + b * (stansub_y_4[stansub_i] - stansub_mu_5[stansub_i])") in model


def test_means_that_branches_compute() -> None:
    model = model_of("""
        vector[N] mu; if (K > 1) { mu = a + x * beta; } else { mu[1] = a; for (t in 2:N) mu[t] = b * y[t-1]; }
        y ~ normal(mu, s);""")
    for part in (
        "if (K > 1) { stansub_mu_5 = a + stansub_x_6 * beta; } else { stansub_mu_5[1] = a; }",
        "if (K > 1) { stansub_mu_8 = a + stansub_x_9 * beta; } else { for (stansub_i in 1 : stansub_t) {",
        "{ stansub_mu_8[stansub_i] = b * stansub_y_10[stansub_i]; } }",
    ):
        assert words(part) in model
    assert "N" not in model.split()


def test_variables_that_are_declared_together_stay_by_themselves() -> None:
    model = model_of(
        "vector[N] mu = a + x * beta, e; for (t in 1:N) e[t] = y[t] - a;"
        "for (t in 2:N) y[t] ~ normal(mu[t] + b * y[t-1], s); e[2:4] ~ normal(0, 1);"
    )
    assert model.startswith(words("vector[N] e; for (t in 1 : N) { e[t] = y[t] - a; }"))
    assert words("vector[stansub_t] stansub_mu_2 = a + stansub_x_3 * beta;") in model


def test_bounds_of_computed_variables_are_kept() -> None:
    model = model_of("""
        transformed parameters {
          vector<lower=0, upper=K>[N - 1] sd_y = s + b * y[1 : N - 1];
        }
        model { y[2:N] ~ normal(0, sd_y); }""")
    assert words("if (!(stansub_sd_y_2[stansub_i] >= 0)) { reject") in model
    assert words("if (!(stansub_sd_y_2[stansub_i] <= K)) { reject") in model


def test_everything_else_is_kept() -> None:
    program = read(
        """
        functions { real twice(real x) { return 2 * x; } }
        data { int N; vector[N] y; }
        transformed data { real middle = mean(y); }
        parameters { real b; real<lower=0> s; }
        transformed parameters { real c = twice(b); }
        model { b ~ normal(0, 1); if (N > 2) { for (t in 2:N) y[t] ~ normal(middle + c * y[t-1], s); } }
        generated quantities { real last = y[N] * b; }""",
        head="",
    )
    found = with_lags(program)
    assert found is not None
    for block in ("functions_block", "data", "parameters", "transformed_parameters", "generated_quantities"):
        assert inside(found, block) == inside(program, block)
    assert inside(found, "transformed_data").startswith(inside(program, "transformed_data"))
    assert inside(found, "model").startswith(words("b ~ normal(0, 1); if (N > 2) { for (stansub_i in 1 : stansub_t) {"))
    assert with_lags(found) is None


@pytest.mark.parametrize(
    "code",
    [
        "y ~ normal(x * beta, s);",
        "for (n in 1:N) y[n] ~ normal(x[n] * beta, s);",
        "for (n in 1:N) y[n] ~ normal(x[n, 2:K] * beta[2:K] + known[g[n]], s);",
        "y ~ normal(x[ , 2:K] * beta[2:K], s);",
        "y[1:N] ~ normal(a, s);",
        "vector[N] mu = x * beta; y[g[1:K]] ~ normal(mu[g[1:K]], s);",
        "for (j in 1:J) { real m = level[j]; for (t in 2:N) m += p[j, t]; m ~ normal(0, s); }",
        "for (k in 2:K) beta[k] ~ normal(beta[k-1], 1); y ~ normal(x * beta, s);",
        "for (k in 2:K) beta[k] ~ normal(known[k-1], 1); y ~ normal(x * beta, s);",
        "for (n in 1:N) { vector[K] lps; for (k in 1:K) lps[k] = normal_lpdf(y[n] | beta[k], s); "
        "target += log_sum_exp(lps); }",
        "vector[K] lps; for (n in 1:N) { for (k in 1:K) lps[k] = normal_lpdf(y[n] | beta[k], s); "
        "target += log_sum_exp(lps); }",
        "real total = 0; for (n in 1:N) total += normal_lpdf(y[n] | a, s); target += total;",
        "vector[N] mu = rep_vector(a, N); for (n in 1:N) mu[n] += level[g[n]]; y ~ normal(mu, s);",
    ],
)
def test_programs_that_read_no_lags(code: str) -> None:
    program = read(code)
    assert with_lags(program) is None


REFUSED = [
    ("for (t in 2:N) y[t] ~ normal(h[t-1] * y[t-1], s);", "y[t] ~ normal(", "reads `h[t - 1]`, which depends on"),
    ("for (t in 2:N) y[t] ~ normal(h[t] * y[t-1], s);", "y[t] ~ normal(", "reads `h[t]`, a parameter with a value"),
    ("y[2:N] ~ normal(y[1:N-1] + h[1:N-1], s);", "y[2 : N] ~ normal(", "reads `h`, which has a value"),
    ("y[2:N] ~ normal(y[1:N-1] + h[2:N], s);", "y[2 : N] ~ normal(", "reads `h`, which has a value"),
    (
        "vector[N] e; e[1] = 0; for (t in 2:N) e[t] = y[t] - a - b * y[t-1] - s * e[t-1]; e ~ normal(0, s);",
        "e[t] = y[t] - ",
        "reads `e[t - 1]`, which depends on parameters",
    ),
    (
        "vector[N] m; vector[N] e; m[1] = a; e[1] = y[1] - m[1];"
        "for (t in 2:N) { m[t] = a + b * y[t-1] + s * e[t-1]; e[t] = y[t] - m[t]; } e ~ normal(0, s);",
        "m[t] = a + ",
        "reads `e[t - 1]`, which depends on parameters",
    ),
    (
        "real e = 0; for (t in 2:N) { e = y[t] - b * y[t-1] - a * e; e ~ normal(0, s); }",
        "e = y[t] - ",
        "carries the value of `e` from one observation to others",
    ),
    (
        "array[N] real v2; v2[1] = s; for (t in 2:N) v2[t] = a + b * square(y[t-1]) + a * v2[t-1]; y ~ normal(0, v2);",
        "v2[t] = a + ",
        "reads `v2[t - 1]`, which depends on parameters",
    ),
    (
        "for (j in 1:J) { real e = 0; for (t in 2:N) { e = p[j,t] - b * p[j,t-1] - a * e; e ~ normal(0, s); } }",
        "for (t in 2 : N)",
        "carries the value of `e` from one observation to others",
    ),
    ("for (t in 2:N) y[t] ~ normal(mean(y[1:t-1]), s);", "y[t] ~ normal(", "slice of `y` whose length varies"),
    ("for (t in 2:N) y[t] ~ normal(y[t-1] + sum(y[g[1:t]]), s);", "y[t] ~ normal(", "at several indices at once"),
    ("for (t in 2:N) y[t] ~ normal(y[t-1] + mean(y), s);", "y[t] ~ normal(", "at indices that are not rows"),
    ("y ~ normal(append_row(0, y[1:N-1]) * b, s);", "y ~ normal(", "at indices that are not rows"),
    (
        "vector[N] m; m[1] = a; for (t in 2:N) m[t] = b * y[t-1]; y ~ multi_normal(m, diag_matrix(rep_vector(s, N)));",
        "y ~ multi_normal(",
        "is a single density of all observations",
    ),
    (
        "int n = 3; for (t in 2:n) y[t] ~ normal(a + b * y[t-1], s);",
        "for (t in 2 : n)",
        "has bounds computed in the model",
    ),
    (
        "real q = a; for (t in 2:N) { while (q > 5) q -= 1; y[t] ~ normal(a + b * y[t-1], s); }",
        "while (q > 5)",
        "runs a different number of times",
    ),
    (
        "for (t in 2:N) { if (target() < 0) y[t] ~ normal(a + b * y[t-1], s); }",
        "if (target() < 0)",
        "reads target(), which contains the terms of earlier observations",
    ),
    (
        "vector[N] m; for (t in 2:N) { int q = t; m[q] = a + b * y[t-1]; } y[2:N] ~ normal(m[2:N], s);",
        "m[q] = a + ",
        "assigns to `m` in a way",
    ),
    (
        "vector[N] m; { m = a + b * y; } y[2:N] ~ normal(m[2:N] + y[1:N-1], s);",
        "{",
        "assigns to `m` in a way",
    ),
    # without lagged data
    ("for (t in 2:N) h[t] ~ normal(b * h[t-1], s); y ~ normal(0, exp(h));", "h[t] ~", "reads `h[t - 1]`, which"),
    ("h[2:N] ~ normal(b * h[1:N-1], s); y ~ normal(0, exp(h));", "h[2 : N] ~", "reads `h[1 : N - 1]`, which"),
    (
        "array[N] vector[K] f; f[1] = beta; for (t in 2:N) for (k in 1:K) { vector[K] acc;"
        "for (j in 1:K) acc[j] = f[t-1, j] + normal_lpdf(y[t] | beta[k], s); f[t, k] = log_sum_exp(acc); }"
        "target += log_sum_exp(f[N]);",
        "acc[j] = f[t - 1, j] + ",
        "reads `f[t - 1, j]`, which depends on parameters",
    ),
    (
        "real level2 = s; for (t in 1:N) { level2 = a + b * level2; y[t] ~ normal(0, level2); }",
        "level2 = a + ",
        "carries the value of `level2` from one observation to others",
    ),
]


@pytest.mark.parametrize(("code", "statement", "message"), REFUSED)
def test_statements_that_read_more_than_data_are_named(code: str, statement: str, message: str) -> None:
    program = read(code)
    refused = with_lags(program)
    assert isinstance(refused, RefusedError)
    assert program.text(refused.span).startswith(statement)
    assert message in refused.reason
    found = rewriting(program)
    assert found.passes or refused.remark(program) in found.refusals


def test_names_of_rows_are_left_to_programs_that_have_them() -> None:
    program = read("real stansub_t = a; for (t in 2:N) y[t] ~ normal(stansub_t * y[t-1], s);")
    assert rewriting(program) == Rewriting(program)


def test_a_loop_over_what_counts_no_observations_is_none_over_positions() -> None:
    """Its index is read, but it is a category or an interval, not the place of an observation."""
    code = """
    data { int N; int C; array[N] int d; vector[N] x; }
    parameters { vector[C] h; real b; }
    model {
      for (n in 1:N) for (k in 1:C) target += (d[n] == k) * (h[k] + b * x[n]) - exp(h[k] + b * x[n]);
    }
    """
    assert with_lags(canonical(code)) is None
