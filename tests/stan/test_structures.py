"""Likelihoods that are no sum over observations are named as what they are, and sums are not."""

from pathlib import Path

import pytest
from texts import canonical

from stansub.stan.reading.sizes import main_size, outcome_sizes
from stansub.stan.structures import STRUCTURES, named
from stansub.stan.syntax import Program, parse
from stansub.stan.toolchain import stanc

PROGRAMS = Path(__file__).parent / "programs"
NO_SUMS = {
    "arma": ("an ARMA model", "err[t] = y[t] - nu[t];"),
    "arma_carried": ("an ARMA model", "err = y[t] - (mu + phi * y[t - 1] + theta * err);"),
    "change_point": ("a marginalised change point", "target += log_sum_exp(lp);"),
    "cox": ("a model with risk sets (Cox partial likelihood)", "target += eta[n] - log_sum_exp(eta[n : N]);"),
    "cox_running": ("a model with risk sets (Cox partial likelihood)", "at_risk = log_sum_exp(at_risk, eta[n]);"),
    "differential_equation": ("a differential equation", "array[T] vector[2] z = ode_rk45(sho, y0, t0, ts, th);"),
    "forward_algorithm": ("a hidden Markov model", "gamma[t, k] = log_sum_exp(acc);"),
    "forward_function": ("a hidden Markov model", "target += forward(y, theta, mu);"),
    "garch": (
        "a GARCH model",
        "sigma[t] = sqrt(alpha0 + alpha1 * pow(r[t - 1] - mu, 2) + beta1 * pow(sigma[t - 1], 2));",
    ),
    "gaussian_process": ("a Gaussian process", "matrix[N, N] K = gp_exp_quad_cov(x, alpha, rho);"),
    "gaussian_process_latent": ("a Gaussian process", "vector[N] f = gp(x, alpha, rho, eta);"),
    "groups_as_observations": ("a model with a parameter for each observation", "vector[J] theta;"),
    "hmm_marginal": ("a hidden Markov model", "target += hmm_marginal(lo, Gamma, rho);"),
    "icar": ("a spatial model (CAR)", "target += -0.5 * dot_self(phi[n1] - phi[n2]);"),
    "mean_and_sd": ("a density of a summary of the data", "mean(y) ~ student_t(N - 1, mu, sigma / sqrt(N));"),
    "moving_average": ("an ARMA model", "err[n] = Y[n] - mu[n];"),
    "one_each": ("a model with a parameter for each observation", "vector[N] z;"),
    "random_walk_state": ("a state-space model", "vector[T] x = q * cumulative_sum(z);"),
    "state_space": ("a state-space model", "x[t] ~ normal(phi * x[t - 1], q);"),
    "stochastic_volatility": ("a state-space model", "h[t] += phi * (h[t - 1] - mu);"),
}
QUALIFYING = [
    *sorted((PROGRAMS / "sums").glob("*.stan")),
    *sorted((PROGRAMS.parents[2] / "stan_models").glob("*.stan")),
    *(
        PROGRAMS.parents[1] / "programs" / f"{name}.stan"
        for name in (
            "categorical",
            "centred",
            "groups",
            "missing_values",
            "mixture",
            "multivariate",
            "varying_dispersion",
        )
    ),
]


def read(file: Path) -> Program:
    return parse(stanc.canonical(file))


def test_each_program_has_its_case() -> None:
    assert {file.stem for file in (PROGRAMS / "no_sums").glob("*.stan")} == set(NO_SUMS)


@pytest.mark.parametrize("name", NO_SUMS)
def test_what_is_no_sum_is_named(name: str) -> None:
    found = named(read(PROGRAMS / "no_sums" / f"{name}.stan"))
    assert found is not None
    assert (found.structure.name, found.evidence) == NO_SUMS[name]


@pytest.mark.parametrize("file", QUALIFYING, ids=lambda file: file.stem)
def test_sums_are_not_named(file: Path) -> None:
    assert named(read(file)) is None


@pytest.mark.parametrize(
    ("data", "parameters", "model", "expected"),
    [
        ("", "vector[N] f; cov_matrix[N] S;", "f ~ multi_normal(y, S); y ~ normal(f, 1);", "a multivariate normal"),
        ("", "cov_matrix[N] S;", "y ~ multi_student_t(4, rep_vector(0, N), S);", "a covariance of all"),
        ("cov_matrix[N] V;", "real m;", "y ~ multi_normal(rep_vector(m, N), 2 * V);", "a multivariate normal"),
        ("", "cov_matrix[N] S;", "target += multi_normal_lpdf(y | rep_vector(0, N), S);", "a multivariate normal"),
        (
            "",
            "real<lower=0> s;",
            "matrix[N, N] K = identity_matrix(N) * s; y ~ multi_normal(rep_vector(0, N), K);",
            "a Gaussian process",
        ),
        ("matrix[N, N] W;", "vector[N] f;", "f ~ multi_normal_prec(y, W); y ~ normal(f, 1);", "a spatial model (CAR)"),
        (
            "",
            "real b;",
            "vector[N] eta = y * b; for (i in 1:N) { real d = 0; for (j in i:N) d += exp(eta[j]); target += -log(d); }",
            "a model with risk sets (Cox partial likelihood)",
        ),
        (
            "",
            "real<lower=0, upper=1> a; real<lower=0> s;",
            "vector[N] level; level[1] = 0; for (t in 2:N) { level[t] = a * level[t - 1] + 1; } y ~ normal(level, s);",
            "a recursion over all observations",
        ),
        (
            "vector[N] spend;",
            "real<lower=0, upper=1> a; real<lower=0> s;",
            "vector[N] v = spend; for (t in 2:N) v[t] = spend[t] + a * v[t - 1]; y ~ normal(v, s);",
            "a recursion over all observations",
        ),
        (
            "array[N] int count;",
            "real<lower=0> a;",
            "vector[N] v = y; for (t in 2:N) v[t] = a * count[t - 1] + a * v[t - 1]; count ~ poisson(v);",
            "a recursion over all observations",
        ),
        (
            "array[N] int choice;",
            "real<lower=0, upper=1> a;",
            "vector[N] v = y; for (t in 2:N) v[t] = v[t - 1] + a * (y[t - 1] - v[t - 1]); choice ~ bernoulli_logit(v);",
            "a recursion over all observations",
        ),
        ("", "array[N] simplex[3] p;", "for (n in 1:N) y[n] ~ normal(p[n][1], 1);", "parameter for each observation"),
    ],
)
def test_other_ways_to_write_them(data: str, parameters: str, model: str, expected: str) -> None:
    code = f"data {{ int N; vector[N] y; {data} }} parameters {{ {parameters} }} model {{ {model} }}"
    found = named(canonical(code))
    assert found is not None
    assert expected in found.structure.name


@pytest.mark.parametrize(
    "model",
    [
        "for (t in 2:N) y[t] ~ normal(a * y[t - 1], s);",
        "real sum_ = 0; for (n in 1:N) sum_ += normal_lpdf(y[n] | a, s); target += sum_;",
        "real m; for (n in 1:N) { m = a * y[n]; y[n] ~ normal(m, s); }",
        "mean(y) ~ normal(a, s); y ~ normal(a, s);",
        "for (n in 1:N) { vector[T] v; for (t in 1:T) v[t] = normal_lpdf(y[n] | u[t], s); target += log_sum_exp(v); }",
        "vector[T] h; h[1] = a; for (t in 2:T) h[t] = 0.9 * h[t - 1] + u[t]; y ~ normal(h[bin], s);",
        "target += -0.5 * dot_self(u[from_] - u[to_]); y ~ normal(u[bin], s);",
        "vector[N] w; w[1] = 0; for (t in 2:N) w[t] = 0.9 * w[t - 1] + y[t - 1]; y ~ normal(a * w, s);",
        "matrix[T, T] K = gp_exp_quad_cov(place, a, s); u ~ multi_normal(rep_vector(0, T), K); y ~ normal(u[bin], s);",
    ],
)
def test_what_is_of_groups_or_only_added_up_is_not_named(model: str) -> None:
    data = "int N; int T; int E; vector[N] y; array[N] int bin; array[E] int from_; array[E] int to_;"
    data += " array[T] real place;"
    program = canonical(f"data {{ {data} }} parameters {{ real a; real<lower=0> s; vector[T] u; }} model {{ {model} }}")
    assert named(program) is None


@pytest.mark.parametrize("density", ["multi_normal_prec", "multi_normal"])
def test_rows_with_a_mean_each_have_parameters_and_no_neighbours(density: str) -> None:
    program = canonical(f"""
        data {{ int N; int K; array[N] vector[K] y; matrix[K, K] W; }}
        parameters {{ array[N] vector[K] m; }}
        model {{ y ~ {density}(m, W); }}""")
    found = named(program, "N")
    assert found is not None
    assert found.structure.name == "a model with a parameter for each observation"


def test_the_size_named_by_the_user_is_the_one_that_is_looked_at() -> None:
    program = canonical("""
        data { int N; int J; vector[N] y; vector[J] m; array[N] int g; }
        parameters { vector[J] theta; }
        model { theta ~ normal(0, 1); y ~ normal(theta[g], 1); m ~ normal(theta, 2); }""")
    assert outcome_sizes(program) == ("N", "J")
    assert named(program) is None
    assert named(program, "J") is not None


def test_what_sizes_parameters_is_not_what_counts_observations() -> None:
    program = canonical("""
        data { int K; int N; array[N, K] int y; }
        parameters { simplex[K] theta; }
        model { for (n in 1:N) y[n] ~ multinomial(theta); }""")
    assert outcome_sizes(program) == ("N", "K")
    assert named(program) is None


def test_groups_are_not_read_as_observations() -> None:
    program = read(PROGRAMS / "sums" / "centred_groups.stan")
    assert (main_size(program), outcome_sizes(program)) == ("N", ("N",))


def test_the_page_about_programs_names_each_structure() -> None:
    page = (PROGRAMS.parents[2] / "docs" / "reference" / "programs.md").read_text()
    assert [one.name for one in STRUCTURES if f"| {one.name} | {one.why} |" not in page] == []


def test_a_number_is_an_outcome_whose_data_are_in_the_arguments() -> None:
    """As BUGS needs it for censored times, which were part of what every decision evaluates."""
    program = parse(
        "data { int N; int M; vector[N] y; array[M] real t; } parameters { real<lower=0> rate; } model {"
        " y ~ exponential(rate); for (m in 1:M) 1 ~ bernoulli(exp(-rate * t[m])); }"
    )
    assert outcome_sizes(program) == ("N", "M")
