"""The likelihood in its own arguments, as far as the text goes: which arguments, and two programs that stanc takes."""

from pathlib import Path

import pytest
from external import accepted

from stansub.stan.analysis import Analysis
from stansub.stan.likelihood import LikelihoodSplit, split_likelihood
from stansub.stan.syntax import parse
from stansub.stan.toolchain import stanc
from stansub.target.remainders import NoPredictorsError

MULTILEVEL = Path(__file__).parents[1] / "run" / "programs" / "multilevel.stan"


def split(code: str) -> LikelihoodSplit:
    return split_likelihood(parse(stanc.canonical_code(code, "model")), "N")


def arguments(code: str) -> list[str]:
    own = split(code)
    accepted(own.surrogate)
    return [f"{one.type} {one.name}" for one in own.arguments]


def program(*, data: str = "", parameters: str, transformed: str = "", model: str, before: str = "") -> str:
    return f"""
data {{ int<lower=0> N; int<lower=1> J; vector[N] y; array[N] int<lower=1, upper=J> g; {data} }}
transformed data {{ {before} }}
parameters {{ {parameters} }}
transformed parameters {{ {transformed} }}
model {{ {model} }}
"""


def test_effects_that_are_a_product_are_arguments() -> None:
    assert arguments(MULTILEVEL.read_text()) == ["real alpha", "real beta", "vector[K] v", "vector[J] u"]


def test_what_observations_have_of_their_own_is_none() -> None:
    code = program(
        parameters="real a; real<lower=0> s; vector[J] z; real<lower=0> tau;",
        transformed="vector[J] u = tau * z; vector[N] mu = a + u[g];",
        model="z ~ std_normal(); y ~ normal(mu, s);",
    )
    assert arguments(code) == ["real a", "real<lower=0> s", "vector[J] u"]
    own = split(code)
    assert "mu" not in own.surrogate
    assert "std_normal" not in own.likelihood.code


def test_a_local_variable_of_another_outcomes_size_belongs_to_the_observations() -> None:
    """As brms writes a covariate with missing values, which is an outcome of its own."""
    code = program(
        data="int<lower=0> N_x; vector[N_x] x; array[J] int<lower=1> missing;",
        parameters="real a; real b; real<lower=0> s; vector[J] u;",
        model="""if (J > 0) {
            vector[N_x] known = x;
            known[missing] = u;
            for (n in 1 : N) y[n] ~ normal(a + b * known[n], s);
            known ~ normal(0, s);
        }""",
    )
    assert arguments(code) == ["real a", "real b", "real<lower=0> s", "vector[J] u"]
    assert "known" not in split(code).surrogate


def test_cutpoints_are_by_their_differences() -> None:
    code = program(
        data="array[N] int<lower=1, upper=4> c;",
        parameters="ordered[3] cut; vector[J] u; real<lower=0> tau;",
        model="cut ~ normal(0, 3); u ~ normal(0, tau); c ~ ordered_logistic(u[g], cut);",
    )
    assert arguments(code) == ["ordered[3] cut", "vector[J] u"]
    assert "log(cut[2 : 3] - cut[1 : 3 - 1])" in split(code).surrogate


def test_probabilities_are_by_their_logit_and_positive_values_by_their_logarithm() -> None:
    code = program(
        data="array[N] int<lower=0> c;",
        parameters="real<lower=0, upper=1> zi; vector[J] z; real<lower=0> tau; vector[J] w;",
        transformed="vector[J] p = inv_logit(tau * w); vector[J] rate; rate[1 : J] = exp(tau * z);",
        model="""for (n in 1:N)
            target += log_mix(zi * p[g[n]], poisson_lpmf(c[n] | rate[g[n]]), poisson_lpmf(c[n] | 2 * rate[g[n]]));""",
    )
    found = ["real<lower=0, upper=1> zi", "vector<lower=0, upper=1>[J] p", "vector<lower=0>[J] rate"]
    assert arguments(code) == found
    own = split(code)
    assert all(f"to_vector({name})" in own.surrogate for name in ("logit(p)", "log(rate)"))


def test_what_counts_observations_sizes_no_parameters() -> None:
    """More data have the size of the categories, which is that of parameters."""
    code = """
data { int K; int I; int J; array[I, J] int<lower=1, upper=K> y; vector[K] a; vector[K] b; }
parameters { simplex[K] p; }
model { p ~ dirichlet(a + b); for (i in 1:I) for (j in 1:J) target += log(p[y[i, j]]); }
"""
    assert Analysis.of(parse(code)).size == "I"


@pytest.mark.parametrize(
    ("model", "is_plain"),
    [
        ("y ~ normal(share * x + u[g], 1);", True),
        ("y ~ normal(u[g] - x * (-share), 1);", True),
        ("vector[N] mu = u[g]; mu += share * x; y ~ normal(mu, 1);", True),
        ("for (n in 1:N) y[n] ~ normal(share, exp(u[g[n]]));", True),
        ("for (n in 1:N) y[n] ~ normal(share * x[n], exp(u[g[n]]));", True),
        ("y ~ normal_id_glm(to_matrix(x), u[g], [share]', 1);", True),
        ("for (n in 1:N) c[n] ~ bernoulli(share);", False),
        ("for (n in 1:N) target += log(share + (1 - share) * exp(-exp(u[g[n]])));", False),
        (
            "for (n in 1:N) target += bernoulli_lpmf(0 | share) + poisson_log_lpmf(c[n] | u[g[n]]);",
            False,
        ),
    ],
)
def test_a_bounded_coefficient_is_read_as_it_is(model: str, is_plain: bool) -> None:
    code = program(
        data="vector[N] x; array[N] int<lower=0> c;",
        parameters="real<lower=0, upper=1> share; vector[J] u;",
        model=f"u ~ std_normal(); {model}",
    )
    assert ("real share" in arguments(code)) == is_plain
    assert ("real<lower=0, upper=1> share" in arguments(code)) != is_plain


def test_what_a_density_takes_as_it_is_is_not_read_by_its_logarithm() -> None:
    code = program(
        parameters="vector[J] z;",
        transformed="vector[J] rate = exp(z);",
        model="z ~ std_normal(); y ~ normal(rate[g], 1);",
    )
    assert arguments(code) == ["vector[J] rate"]


@pytest.mark.parametrize(
    ("predictor", "kept"),
    [("a[g] .* (t[g] - b[g])", True), ("a[g] .* t[g]", True), ("b[g] + a[g] .* t[g]", True), ("a[g] + t[g]", False)],
)
def test_a_positive_factor_of_another_parameter_is_read_by_its_logarithm(predictor: str, kept: bool) -> None:
    code = program(
        parameters="vector[J] z; vector[J] t; vector[J] b;",
        transformed="vector[J] a = exp(z);",
        model=f"z ~ std_normal(); t ~ std_normal(); b ~ std_normal(); y ~ normal({predictor}, 1);",
    )
    assert ("vector<lower=0>[J] a" in arguments(code)) == kept
    assert ("vector[J] a" in arguments(code)) != kept


@pytest.mark.parametrize(
    ("predictor", "scaled"),
    [
        ("a[g] .* (t[g] - b[g])", ["t", "b"]),
        ("(x .* t[g] - 2 * b[g]) .* a[g]", ["t", "b"]),
        ("a[g] .* (-t[g])", ["t"]),
        ("a[g] .* (t[g] - x)", []),  # the scale of a term of data is known
        ("a[g] .* t[g] + t[g]", []),
        ("a[g] .* (t[g] .* b[g])", []),
        ("a[g] .* exp(t[g])", []),
    ],
)
def test_a_scale_that_the_likelihood_does_not_show_is_fixed(predictor: str, scaled: list[str]) -> None:
    code = program(
        data="vector[N] x;",
        parameters="vector<lower=0>[J] a; vector[J] t; vector[J] b;",
        model=f"a ~ lognormal(0, 1); t ~ std_normal(); b ~ std_normal(); y ~ normal({predictor}, 1);",
    )
    own = split(code)
    accepted(own.surrogate)
    assert ("log(a) - stansub_fixed_scales * mean(log(a))" in own.surrogate) == bool(scaled)
    found = [
        name for name in ("t", "b") if f"to_vector({name} * exp(stansub_fixed_scales * mean(log(a))))" in own.surrogate
    ]
    assert found == scaled


def test_the_range_of_what_several_statements_write_is_not_assumed() -> None:
    code = program(
        parameters="vector[J] z; real<lower=0> tau;",
        transformed="vector[J] u = exp(tau * z); u[1] = z[1]; vector[J] v = exp(z); v -= 1;",
        model="z ~ std_normal(); y ~ normal(u[g] + v[g], 1);",
    )
    assert arguments(code) == ["vector[J] u", "vector[J] v"]


def test_variables_of_the_model_block_are_arguments() -> None:
    code = program(
        parameters="real a; vector[J] z; real<lower=0> tau;",
        model="vector[J] u = a + tau * z; z ~ std_normal(); y ~ normal(u[g], 1);",
    )
    assert arguments(code) == ["vector[J] u"]


@pytest.mark.parametrize("transformed", ["real k = 2;", "real k; k = 2; real other; other = k * a;"])
def test_a_constant_among_transformed_parameters_is_computed_with_the_likelihood(transformed: str) -> None:
    code = program(
        parameters="real a; vector[J] u;", transformed=transformed, model="a ~ normal(0, k); y ~ normal(a + u[g], k);"
    )
    assert arguments(code) == ["real a", "vector[J] u"]
    assert "k = 2" in split(code).likelihood.code


def test_a_variable_inside_a_branch_is_computed_with_the_likelihood() -> None:
    """As brms writes the location and scale of `skew_normal` responses; a prior that reads it stays with the rest."""
    code = program(
        parameters="real a; real<lower=0> s; vector[J] u;",
        model="""if (J > 1) {
            real d;
            d = a / sqrt(1 + square(a));
            for (n in 1 : N) y[n] ~ skew_normal(u[g[n]] - s * d, s, a);
            d ~ normal(0, 1);
        }""",
    )
    assert arguments(code) == ["real a", "real<lower=0> s", "vector[J] u"]
    own = split(code)
    assert "d ~ normal" in own.surrogate
    assert "d ~ normal" not in own.likelihood.code


def test_a_surrogate_needs_no_data_of_observations() -> None:
    code = program(
        data="vector[N] x;",
        before="real m = mean(x); int M = J + 1;",
        parameters="real a; vector[M] b;",
        model="b ~ normal(m, 1); y ~ normal(a * x + b[g], 1);",
    )
    own = split(code)
    accepted(own.surrogate)
    assert [one.name for one in own.declarations] == ["N", "J", "x"]  # the mean is of all of them
    own = split(code.replace("normal(m, 1)", "normal(0, 1)"))
    accepted(own.surrogate)
    assert [one.name for one in own.declarations] == ["J"]


def test_arrays_and_matrices_are_laid_out() -> None:
    code = program(
        parameters="array[2] vector[J] u; matrix[J, 2] v; array[2, 3] real w;",
        model="for (n in 1:N) y[n] ~ normal(u[1, g[n]] + v[g[n], 2] + w[1, 2], 1);",
    )
    assert arguments(code) == ["array[2] vector[J] u", "matrix[J, 2] v", "array[2, 3] real w"]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (program(parameters="real a;", model="a ~ std_normal();"), "no statement of the model adds"),
        (
            program(parameters="vector[N] e;", model="e ~ std_normal(); y ~ normal(e, 1);"),
            r"grows with the observations \(N\)",
        ),
        (program(parameters="real a;", model="y ~ std_normal();"), "reads no parameters"),
    ],
)
def test_why_not(code: str, reason: str) -> None:
    with pytest.raises(NoPredictorsError, match=reason):
        split(code)


def test_a_lower_limit_other_than_zero_is_part_of_the_link() -> None:
    """Unlike a limit that is no number, which has no link."""
    code = program(
        parameters="real a; real<lower=1> nu; real<lower=0> s; vector[J] u; real<lower=a> b;",
        model="u ~ normal(0, s); for (n in 1 : N) y[n] ~ student_t(nu, a + u[g[n]], s + b);",
    )
    assert set(arguments(code)) == {"real a", "real<lower=1> nu", "real<lower=0> s", "vector[J] u", "real b"}
    assert "log(nu - 1)" in split(code).surrogate


def test_an_interval_is_part_of_the_link() -> None:
    code = program(
        data="real most;",
        parameters="real a; real<lower=-1, upper=1> r; vector<lower=0, upper=most>[J] u; real<lower=0, upper=a> s;",
        model="for (n in 1 : N) y[n] ~ student_t(3, (1 - u[g[n]]) * a, sqrt(1 - square(r)) * s);",
    )
    assert {"real<lower=-1, upper=1> r", "vector<lower=0, upper=most>[J] u", "real s"} < set(arguments(code))
    surrogate = split(code).surrogate
    assert all(link in surrogate for link in ("logit((r - (-1)) / (1 - (-1)))", "logit((u - (0)) / (most - (0)))"))


def test_values_that_functions_keep_positive_are_by_their_logarithm() -> None:
    code = program(
        data="array[N] int<lower=0> c;",
        parameters="vector[J] z; real k;",
        transformed="real phi = inv_square(k);",
        model="for (n in 1 : N) c[n] ~ neg_binomial_2_log(z[g[n]], phi);",
    )
    assert set(arguments(code)) == {"vector[J] z", "real<lower=0> phi"}


def test_a_number_of_the_data_as_lower_limit_is_part_of_the_link() -> None:
    """Unlike that of a location, which a density takes as it is, or a number for each element."""
    code = program(
        data="real least; vector[J] each;",
        parameters="real<lower=least> nu; vector<lower=each>[J] s; vector[J] u; real<lower=least> a;",
        model="u ~ std_normal(); for (n in 1 : N) y[n] ~ student_t(nu, a + u[g[n]], s[g[n]]);",
    )
    assert arguments(code) == ["real<lower=least> nu", "vector[J] s", "vector[J] u", "real a"]
    own = split(code)
    assert "log(nu - least)" in own.surrogate
    assert "least" in [one.name for one in own.declarations]
