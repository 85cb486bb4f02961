"""Linear predictors of Stan programs: which are recognised, and that they are proved and not believed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import arviz as az
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.special import expit, log_softmax

import stansub
from stansub.stan.data.data import Data
from stansub.stan.family import recognised
from stansub.stan.observations import containers
from stansub.stan.observations import predictors as proving
from stansub.stan.observations.observation import follow
from stansub.stan.observations.predictors import Compared, Text, predictors_of, proved_predictors
from stansub.stan.observations.row_program import tail_rounding
from stansub.stan.observations.rowwise import NotFollowedError, is_same
from stansub.stan.partition_requests import shape_of
from stansub.stan.syntax import Program, parse
from stansub.stan.toolchain import build
from stansub.target import remainders
from stansub.target.blocks import Blocks
from stansub.target.categories import Categorical, Ordered
from stansub.target.dispersion import Gamma, NegativeBinomial2
from stansub.target.families import Binomial, Logistic, NegativeBinomial, Normal, Poisson, StudentT
from stansub.target.location_scale import LocationScale
from stansub.target.programs import ProgramFamily
from stansub.target.remainders import LinearPredictors, NoPredictorsError
from stansub.target.rows import ColumnRows

Array = NDArray[np.float64]

MODELS = Path(__file__).parents[2] / "stan_models"
PROGRAM = """
functions {{ {functions} }}
data {{
  int<lower=0> N; int<lower=1> K; int<lower=2> C; array[N] int<lower=0> y; matrix[N, K] x; vector[N] z;
  array[N] int trials; array[N] int c; array[N] int few; int prior_only;
}}
parameters {{
  real alpha; vector[K] beta; real<lower=0> scale; vector[C] a; matrix[K, C] b; ordered[C - 1] cut;
  real<lower=0, upper=1> p; real<lower=1> q; vector[3] u; real<offset=2, multiplier=3> shifted;
}}
transformed parameters {{
  vector[N] eta = alpha + x * beta;
}}
model {{ alpha ~ normal(0, 1); beta ~ normal(0, 1); scale ~ normal(0, 1); {likelihood} }}
"""
LOG_LIK = """real log_lik_i(int i, array[] int y, matrix x, real alpha, vector beta) {
  real eta = alpha + x[i] * beta;
  return bernoulli_logit_lpmf(y[i] | eta);
}"""
PARTIAL = """real part(array[] int slice, int start, int end, matrix x, real alpha, vector beta) {
  return poisson_log_lpmf(slice | alpha + x[start:end] * beta);
}"""
SUMMED = """real part(array[] int slice, int start, int end, matrix x, real alpha, vector beta) {
  real ptarget = 0;
  int n = end - start + 1;
  vector[n] mu = rep_vector(0.0, n);
  mu += alpha;
  ptarget += poisson_log_glm_lpmf(slice | x[start:end], mu, beta);
  return ptarget;
}"""
ORDERED = """real log_lik_i(int i, array[] int y, matrix x, vector beta, vector cut) {
  return ordered_logistic_lpmf(y[i] | x[i] * beta, cut);
}"""
CATEGORICAL = """real part(array[] int slice, int start, int end, matrix x, vector a, matrix b) {
  return categorical_logit_glm_lpmf(slice | x[start:end], a, b);
}"""
REDUCED = "target += reduce_sum(part, {}, 1, x, {});"

RNG = np.random.default_rng(6)
N, K, C = 12, 2, 3
X = RNG.standard_normal((N, K))
Z, COUNTS, CATEGORY = RNG.gamma(2.0, 1.0, N), RNG.integers(0, 6, N), RNG.integers(1, C + 1, N)
TRIALS, FEW = COUNTS + 2, (COUNTS > 2) * 1
VALUES: dict[str, Any] = {
    **{"N": N, "K": K, "C": C, "y": COUNTS, "x": X, "z": Z, "trials": TRIALS, "c": CATEGORY, "few": FEW},
    "prior_only": 0,
}
DIM = 1 + K + 1 + C + K * C + C - 1 + 2 + 3 + 1


@pytest.fixture(autouse=True)
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even few observations are looked at in several parts."""
    monkeypatch.setattr(remainders, "_PART", N - 1)


def read(likelihood: str, functions: str = "") -> Program:
    return parse(PROGRAM.format(likelihood=likelihood, functions=functions))


def text_of(program: Program, values: dict[str, Any] = VALUES) -> Text:
    return Text(program, Data(values, program.data.declarations, "data"))


def predictors(likelihood: str, functions: str = "", *, of_family: bool = True) -> LinearPredictors:
    return predictors_of([text_of(read(likelihood, functions))], [N], of_family=of_family)


class Point:
    """Parameters at unconstrained ones."""

    def __init__(self, theta: Array) -> None:
        self.alpha, self.beta, self.scale = theta[0], theta[1:3], np.exp(theta[3])
        self.a, self.b = theta[4:7], theta[7:13].reshape(C, K).T
        self.cut = np.array([theta[13], theta[13] + np.exp(theta[14])])
        self.p = expit(theta[15])
        self.line = X @ self.beta
        self.eta = self.alpha + self.line


def normal(mean: Any, sd: Any, of: Array = Z) -> Array:
    return np.asarray(stats.norm.logpdf(of, mean, sd))


def ordered(eta: Array, cut: Array) -> Array:
    above = expit(np.array([-np.inf, *cut, np.inf]) - eta[:, np.newaxis])
    return np.log(np.diff(above, axis=1)[np.arange(N), CATEGORY - 1])


def categorical(t: Point) -> Array:
    return np.asarray(log_softmax(t.a + X @ t.b, 1)[np.arange(N), CATEGORY - 1])


def coin(eta: Array) -> Array:
    return np.asarray(stats.bernoulli.logpmf(FEW, expit(eta)))


def trials(eta: Array) -> Array:
    return np.asarray(stats.binom.logpmf(COUNTS, TRIALS, expit(eta)))


def negative_binomial(mean: Array, phi: float) -> Array:
    return np.asarray(stats.nbinom.logpmf(COUNTS, phi, phi / (phi + mean)))


def weibull(shape: float, unit: Array) -> Array:
    return np.asarray(stats.weibull_min.logpdf(Z, shape, scale=unit))


def gamma(shape: float, rate: Array) -> Array:
    return np.asarray(stats.gamma.logpdf(Z, shape, scale=1 / rate))


# A likelihood, the functions that it has, its logarithm by other means, the family, and how many arguments that has.
Row = tuple[str, str, Callable[[Point], Array], type, int]
CHOSEN: list[Row] = [
    ("few ~ bernoulli_logit(eta);", "", lambda t: coin(t.eta), Binomial, 1),
    (
        "few ~ bernoulli_logit_glm(x, alpha, beta);",
        "",
        lambda t: coin(t.eta),
        Binomial,
        1,
    ),
    ("few ~ bernoulli(inv_logit(eta));", "", lambda t: coin(t.eta), Binomial, 1),
    ("few ~ bernoulli(1 - inv_logit(eta));", "", lambda t: coin(-t.eta), Binomial, 1),
    ("few ~ bernoulli(p);", "", lambda t: stats.bernoulli.logpmf(FEW, t.p), Binomial, 1),
    (
        "y ~ binomial(trials, inv_logit(eta));",
        "",
        lambda t: trials(t.eta),
        Binomial,
        1,
    ),
    ("y ~ binomial_logit(trials, eta);", "", lambda t: trials(t.eta), Binomial, 1),
    ("y ~ poisson(exp(eta));", "", lambda t: stats.poisson.logpmf(COUNTS, np.exp(t.eta)), Poisson, 1),
    ("y ~ poisson(scale);", "", lambda t: stats.poisson.logpmf(COUNTS, t.scale), Poisson, 1),
    (
        "target += poisson_log_glm_lupmf(y | x, alpha, beta);",
        "",
        lambda t: stats.poisson.logpmf(COUNTS, np.exp(t.eta)),
        Poisson,
        1,
    ),
    (
        "for (n in 1:N) y[n] ~ poisson_log(alpha + x[n] * beta);",
        "",
        lambda t: stats.poisson.logpmf(COUNTS, np.exp(t.eta)),
        Poisson,
        1,
    ),
    (
        "for (i in 1:N) target += log_lik_i(i, few, x, alpha, beta);",
        LOG_LIK,
        lambda t: coin(t.eta),
        Binomial,
        1,
    ),
    (REDUCED.format("y", "alpha, beta"), PARTIAL, lambda t: stats.poisson.logpmf(COUNTS, np.exp(t.eta)), Poisson, 1),
    (REDUCED.format("y", "alpha, beta"), SUMMED, lambda t: stats.poisson.logpmf(COUNTS, np.exp(t.eta)), Poisson, 1),
    ("z ~ normal(eta, scale);", "", lambda t: normal(t.eta, t.scale), LocationScale, 2),
    ("z ~ normal_id_glm(x, alpha, beta, scale);", "", lambda t: normal(t.eta, t.scale), LocationScale, 2),
    ("z ~ normal(eta, 0.7);", "", lambda t: normal(t.eta, 0.7), Normal, 1),
    ("z ~ normal(0.2, scale);", "", lambda t: normal(0.2, t.scale), LocationScale, 2),
    ("z ~ lognormal(eta, scale);", "", lambda t: normal(t.eta, t.scale, np.log(Z)), LocationScale, 2),
    ("z ~ student_t(4, eta, scale);", "", lambda t: stats.t.logpdf(Z, 4, t.eta, t.scale), LocationScale, 2),
    ("z ~ student_t(4, eta, 0.5);", "", lambda t: stats.t.logpdf(Z, 4, t.eta, 0.5), StudentT, 1),
    ("z ~ cauchy(eta, scale);", "", lambda t: stats.cauchy.logpdf(Z, t.eta, t.scale), LocationScale, 2),
    ("z ~ logistic(eta, scale);", "", lambda t: stats.logistic.logpdf(Z, t.eta, t.scale), LocationScale, 2),
    ("z ~ logistic(eta, 0.5);", "", lambda t: stats.logistic.logpdf(Z, t.eta, 0.5), Logistic, 1),
    (
        "y ~ neg_binomial_2_log(eta, scale);",
        "",
        lambda t: negative_binomial(np.exp(t.eta), t.scale),
        NegativeBinomial2,
        2,
    ),
    (
        "y ~ neg_binomial_2(exp(eta), scale);",
        "",
        lambda t: negative_binomial(np.exp(t.eta), t.scale),
        NegativeBinomial2,
        2,
    ),
    ("y ~ neg_binomial_2(exp(eta), 1.4);", "", lambda t: negative_binomial(np.exp(t.eta), 1.4), NegativeBinomial, 1),
    ("z ~ gamma(scale, scale / exp(eta));", "", lambda t: gamma(t.scale, t.scale / np.exp(t.eta)), Gamma, 2),
    ("z ~ gamma(2.5, exp(eta));", "", lambda t: gamma(2.5, np.exp(t.eta)), Poisson, 1),
    ("z ~ weibull(scale, exp(eta));", "", lambda t: weibull(t.scale, np.exp(t.eta)), LocationScale, 2),
    ("z ~ exponential(exp(eta));", "", lambda t: gamma(1.0, np.exp(t.eta)), Poisson, 1),
    ("c ~ categorical_logit_glm(x, a, b);", "", categorical, Categorical, 3),
    (
        "for (i in 1:N) { vector[C] e = a + (x[i] * b)'; c[i] ~ categorical_logit(e); }",
        "",
        categorical,
        Categorical,
        3,
    ),
    (REDUCED.format("c", "a, b"), CATEGORICAL, categorical, Categorical, 3),
    (
        "for (i in 1:N) c[i] ~ categorical_logit([0, alpha, x[i] * beta]');",
        "",
        lambda t: log_softmax(np.column_stack([np.zeros(N), np.full(N, t.alpha), t.line]), 1)[
            np.arange(N), CATEGORY - 1
        ],
        Categorical,
        3,
    ),
    ("c ~ ordered_logistic_glm(x, beta, cut);", "", lambda t: ordered(t.line, t.cut), Ordered, 3),
    (
        "for (i in 1:N) target += log_lik_i(i, c, x, beta, cut);",
        ORDERED,
        lambda t: ordered(t.line, t.cut),
        Ordered,
        3,
    ),
]


@pytest.mark.parametrize(("likelihood", "functions", "log_density", "family", "q"), CHOSEN)
def test_the_family_is_chosen_by_what_varies(
    likelihood: str, functions: str, log_density: Callable[[Point], Array], family: type, q: int
) -> None:
    """And has the density's log likelihoods, up to constants; the text alone shows that there is a family."""
    assert recognised(read(likelihood, functions))
    found = predictors(likelihood, functions)
    assert isinstance(found.family, family)
    assert found.family.n_arguments == len(found.design) == q
    assert found.n_observations == N
    points = RNG.uniform(-1, 1, (2, DIM))
    own = [found.family.log_lik(found.at(theta)) for theta in points]
    expected = [log_density(Point(theta)) for theta in points]
    np.testing.assert_allclose(np.subtract(*own), np.subtract(*expected), rtol=1e-9, atol=1e-11)


def test_what_all_observations_share_has_one_row() -> None:
    """A design has the columns of the data themselves."""
    found = predictors("z ~ normal(1.5 + alpha + x * beta, 2 * scale);")
    np.testing.assert_array_equal(found.design[0], np.column_stack([np.ones(N), X, np.zeros((N, DIM - 3))]))
    np.testing.assert_array_equal(found.design[1], np.eye(DIM)[3:4])
    np.testing.assert_allclose(found.offset[0], np.full(N, 1.5), atol=1e-15)
    np.testing.assert_allclose(found.offset[1], [np.log(2)], atol=1e-15)
    lengths = found.lengths(2 * np.eye(DIM))
    np.testing.assert_allclose(lengths[0], 2 * np.linalg.norm(np.column_stack([np.ones(N), X]), axis=1))
    np.testing.assert_allclose(lengths[1], np.full(N, 2.0))


@pytest.mark.parametrize(
    "likelihood",
    [
        "z ~ student_t(scale, eta, 1);",
        "beta ~ normal(z[1:K], 1);",
        "z ~ double_exponential(eta, 1);",
        "y ~ poisson_log(eta); z ~ normal(alpha, 1);",
        "for (n in 1:N) target += log_sum_exp(normal_lpdf(z[n] | alpha, 1), normal_lpdf(z[n] | 0, 1));",
    ],
)
def test_no_family_in_the_text(likelihood: str) -> None:
    assert not recognised(read(likelihood))


@pytest.mark.parametrize(
    "change",
    [
        ("ptarget = 0", "ptarget = 1"),
        ("return ptarget", "return 2 * ptarget"),
        ("ptarget += poisson", "ptarget -= poisson"),
    ],
)
def test_a_local_sum_of_more_than_a_density_is_not_recognised(change: tuple[str, str]) -> None:
    assert change[0] in SUMMED
    program = read(REDUCED.format("y", "alpha, beta"), SUMMED.replace(*change))
    assert not recognised(program)


@pytest.mark.parametrize(
    ("likelihood", "reason"),
    [
        ("z ~ normal(square(eta), scale);", "^argument 1 of normal is not affine"),
        ("z ~ normal(eta, 0.5 + scale);", "^the log of argument 2 of normal is not affine"),
        ("z ~ student_t(scale, eta, scale);", "^argument 1 of student_t depends on parameters, but must be data"),
        ("few ~ bernoulli(0.5 * inv_logit(eta));", "^the logit of argument 1 of bernoulli is not affine"),
        ("few ~ bernoulli(Phi(eta));", "^the logit of argument 1 of bernoulli is not affine"),
        ("for (i in 1:N) c[i] ~ ordered_logistic(eta[i], 2 * cut);", "^the first, or the log of a difference, of arg"),
        ("for (n in 1:N) x[n] ~ normal(alpha, scale);", "^the density is not of one number for each observation"),
        ("target += 2 * normal_lpdf(z | eta, scale);", "not exactly one density"),
        ("target += normal_lpdf(z | eta, scale) + normal_lpdf(z | alpha, 1);", "not exactly one density"),
        ("for (n in 1:N) z[n] ~ normal(eta[n], scale) T[0, ];", "not exactly one density"),
        ("for (n in 1:N) { if (few[n] == 1) { z[n] ~ normal(eta[n], scale); } }", "not exactly one density"),
    ],
)
def test_what_is_of_no_family_is_a_program(likelihood: str, reason: str) -> None:
    with pytest.raises(NoPredictorsError, match=reason):
        predictors(likelihood)
    assert isinstance(predictors(likelihood, of_family=False).family, ProgramFamily)


def test_what_stan_loses_of_a_complement_is_no_difference() -> None:
    """Stan takes 1 - p of p = inv_cloglog(eta), near 1: the text's exact logarithm differs by rounding."""
    rng = np.random.default_rng(3)
    eta = rng.uniform(-2, 3.5, 500)
    found = predictors("for (n in 1:N) target += bernoulli_lpmf(few[n] | inv_cloglog(eta[n]));", of_family=False)
    assert isinstance(found.family, ProgramFamily)
    lost = tail_rounding(found.family)
    with np.errstate(divide="ignore"):
        own, stans = -np.exp(eta), np.log1p(-(1 - np.exp(-np.exp(eta))))
    seen = np.isfinite(stans)
    assert (np.abs(own - stans)[seen] > 1e-8).any()
    assert (np.abs(own - stans)[seen & (own > -32)] <= lost(own)[seen & (own > -32)] + 1e-12).all()
    assert (lost(own)[own > -10] < 1e-10).all()


AFFINE = (
    *("alpha", "eta", "x * beta", "alpha + x[ : , 1] .* u[c] - 2", "-alpha", "z / 2 + alpha", "(alpha + beta[1]) * 3"),
    *("rep_vector(alpha, N)", "sum(u)", "log(scale)", "2 * log(scale) + alpha", "logit(p)", "shifted", "log(exp(eta))"),
    *("dot_product(x[1], beta)", "beta[1] + u[c]", "eta - alpha", "log(scale ^ 2 / exp(u[c]))", "-log(sqrt(scale))"),
    *("append_row(u, beta)[c]", "to_vector(rep_row_vector(alpha, N))", "log(1 / scale)", "log(inv_square(scale))"),
)
NONLINEAR = (
    *("alpha * beta[1]", "scale * u[c]", "alpha + scale * u[c]", "Phi(eta)", "inv_cloglog(eta)", "log(q)", "alpha / q"),
    *("exp(eta) / tgamma(1 + 1 / scale)", "lgamma(q)", "alpha + alpha * beta[1]", "Phi_approx(alpha)", "sin(eta)"),
)


@pytest.mark.parametrize(("argument", "expected"), [*((one, 1) for one in AFFINE), *((one, 0) for one in NONLINEAR)])
def test_affine_arguments(argument: str, expected: bool) -> None:
    found = predictors(f"z ~ normal({argument}, 1);", of_family=False)
    assert isinstance(found.family, Normal if expected else ProgramFamily)


def test_integers_are_numbers_in_a_vector() -> None:
    """Stan divides integers without a remainder, but not elements of a vector made of them."""
    offsets = [
        predictors(f"z ~ normal(alpha + {one}, 1);").offset[0] for one in ("to_vector(c) / 4", "0.25 * to_vector(c)")
    ]
    np.testing.assert_allclose(*offsets)
    assert (offsets[0] % 1 != 0).any()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("(v * v')[1, 3]", 16),
        ("(v' * v)", 84),
        ("to_matrix(v)[3, 1]", 8),
        ("to_matrix(v')[1, 3]", 8),
        ("(to_matrix(v)' * m)[1, 2]", 2 * 2 + 4 * 4 + 8 * 6),
        ("to_matrix(m)[3, 1]", 5),
        ("to_matrix(m, 2, 3)[1, 2]", 5),
        ("to_matrix(m, 2, 3, 0)[1, 2]", 3),
        ("to_matrix(m', 2, 3)[1, 2]", 3),
        ("to_matrix({1, 2, 3, 4}, 2, 2)[2, 1] / 4", 0.5),
        ("to_matrix({{1, 2}, {3, 4}})[2, 1] / 4", 0.75),
    ],
)
def test_vectors_are_rows_or_columns_as_their_types_say(value: str, expected: Array) -> None:
    lines = "vector[3] v = [2, 4, 8]'; matrix[3, 2] m = [[1, 2], [3, 4], [5, 6]];"
    found = predictors(f"{lines} z ~ normal(alpha + {value}, 1);")
    np.testing.assert_allclose(found.offset[0], expected)


@pytest.mark.parametrize(
    ("place", "value", "expected"),
    [
        ("m[{3, 1}, {1, 2}]", "[[1, 2], [3, 4]]", [3, 4, 0, 0, 1, 2]),
        ("m[2 : 3, : ]", "[[1, 2], [3, 4]]", [0, 0, 1, 2, 3, 4]),
        ("m[2, {2, 1}]", "[1, 2]", [0, 0, 2, 1, 0, 0]),
        ("m[ : , 2]", "[1, 2, 3]'", [0, 1, 0, 2, 0, 3]),
    ],
)
def test_parts_of_matrices_are_assigned(place: str, value: str, expected: list[float]) -> None:
    lines = f"matrix[3, 2] m = rep_matrix(0, 3, 2); {place} = {value};"
    found = [predictors(f"{lines} z ~ normal(alpha + m[{i}, {j}], 1);").offset[0][0] for i in (1, 2, 3) for j in (1, 2)]
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("trials[n] / 4", TRIALS // 4),
        ("(-trials[n]) / 4", -(TRIALS // 4)),
        ("trials[n] %/% 4", TRIALS // 4),
        ("(-trials[n]) %/% 4", -(TRIALS // 4)),
        ("abs(-trials[n]) / 4", TRIALS // 4),
        ("trials[n] % 4", TRIALS % 4),
        ("(2 * trials[n] + 1) / 4", (2 * TRIALS + 1) // 4),
        ("trials[n] / 4.0", TRIALS / 4),
    ],
)
def test_integers_are_divided_as_by_stan(value: str, expected: Array) -> None:
    found = predictors(f"for (n in 1:N) {{ target += normal_lpdf(z[n] | alpha + {value}, 1); }}")
    np.testing.assert_allclose(found.offset[0], expected)


def test_loops_over_the_elements_of_data() -> None:
    found = predictors(
        "real m = 0; for (one in z) { m += one; } for (one in {1, 2}) { m += one; } z ~ normal(eta + m, 1);"
    )
    np.testing.assert_allclose(found.offset[0], Z.sum() + 3)


@pytest.mark.parametrize(
    ("loop", "mean"),
    [
        ("real m = 0; for (one in beta) { m = 2 * m + one; }", lambda t: 2 * t.beta[0] + t.beta[1]),
        ("real m = 0; for (one in b) { m = 2 * m + one; }", lambda t: t.b.T.ravel() @ 2.0 ** np.arange(5, -1, -1)),
        (
            "real m = 0; array[2] vector[C] v = {a, a + 1}; for (one in v) { m = 3 * m + one[2]; }",
            lambda t: 4 * t.a[1] + 1,
        ),
    ],
)
def test_loops_over_the_elements_of_parameters(loop: str, mean: Callable[[Point], float]) -> None:
    """Those of a matrix are numbers, column by column; those of an array are vectors."""
    found = predictors(f"{loop} z ~ normal(eta + m, 1);")
    theta = RNG.uniform(-1, 1, DIM)
    np.testing.assert_allclose(found.at(theta)[0], Point(theta).eta + mean(Point(theta)))


@pytest.mark.parametrize(
    "loop",
    [
        "for (one in z) one ~ normal(alpha, scale);",
        "for (one in eta) one ~ normal(alpha, scale);",
        "real m = 0; for (one in z) { m += normal_lpdf(one | alpha, scale); } target += m;",
    ],
)
def test_loops_over_values_of_observations(loop: str) -> None:
    found = predictors(loop, of_family=False)
    thetas = RNG.uniform(-1, 1, (2, DIM))
    own = [found.family.log_lik(found.at(theta)) for theta in thetas]
    expected = [normal(t.alpha, t.scale, t.eta if "eta" in loop else Z) for t in map(Point, thetas)]
    np.testing.assert_allclose(np.subtract(*own), np.subtract(*expected), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("for (n in 1:N) target += sum(eta);", "a sum over observations is added once per observation"),
        ("target += eta[1];", "the value of one observation is read by others"),
        ("z ~ normal(x' * eta, 1);", "a product over observations is not supported"),
        ("real m = sum(eta); z ~ normal(m * eta, 1);", "a function of a sum over observations is not supported"),
        ("target += sum(eta) .* eta;", "a function of a sum over observations is not supported"),
        ("z ~ normal(alpha, scale) T[0, ];", "the truncation of a container is not supported"),
        ("z ~ normal(append_row(eta[1 : 3], eta[4 : N]), 1);", "containers of observations are concatenated"),
        ("target += log_sum_exp(eta);", "the log of a sum over observations is not supported"),
        ("target += sum({eta, eta});", "an array of containers of observations is not supported"),
        ("for (n in 1:N) z[n] ~ normal(eta[N - n + 1], 1);", "an observation reads the value of another"),
        ("z ~ normal(eta[c], 1);", "observations are added more than once"),
        ("real m; real v; (m, v) = (1, 2); z ~ normal(m, 1);", r"`\(m, v\) = \(1, 2\);` is not supported"),
        (
            "{ vector[1] v = [1]'; z ~ normal(to_matrix(v)[1, 1], 1); } { row_vector[1] v = [1]; target += v[1]; }",
            "a vector may be a row or a column",
        ),
        ("z ~ normal(sort_asc(eta), 1);", "the function sort_asc is not supported"),
        ("vector[N] m = eta; m[1 : 2] = u[1 : 2]; z ~ normal(m, 1);", "only some observations are assigned"),
        ("z ~ normal(u[4], 1);", "an index is out of range, or depends on parameters"),
        ("z ~ normal(dot_product(u, beta), 1);", "vectors of different sizes are multiplied"),
        ("c[1 : 3] ~ categorical_logit(u);", "the categories do not have one value per observation"),
    ],
)
def test_what_is_not_followed_has_a_reason(text: str, reason: str) -> None:
    with pytest.raises(NotFollowedError, match=reason):
        predictors(text, of_family=False)


@pytest.mark.parametrize(
    ("text", "of"),
    [
        ("z[1 : 5] ~ normal(eta[1 : 5], 1);", lambda t: normal(t.eta, 1) * (np.arange(N) < 5)),
        (
            "array[N] vector[2] m; for (n in 1:N) m[n] = x[n]' * alpha; for (n in 1:N) m[n] ~ normal(0, 1);",
            lambda t: normal(0, 1, X * t.alpha).sum(1),
        ),
        (
            "matrix[N, K] s; for (k in 1:K) s[, k] = rep_vector(k * scale, N);"
            "to_vector(x) ~ normal(to_vector(z * beta'), to_vector(s));",
            lambda t: normal(np.outer(Z, t.beta), t.scale * np.array([1, 2]), X).sum(1),
        ),
        (
            "vector[N * K] all = to_vector(x); all ~ normal(to_vector(rep_matrix(eta, K)), 1);",
            lambda t: normal(t.eta[:, np.newaxis], 1, X).sum(1),
        ),
    ],
)
def test_densities_of_parts_and_of_vectors_are_programs(text: str, of: Callable[[Point], Array]) -> None:
    found = predictors(text, of_family=False)
    thetas = RNG.uniform(-1, 1, (2, DIM))
    own = [found.family.log_lik(found.at(theta)) for theta in thetas]
    np.testing.assert_allclose(np.subtract(*own), np.subtract(*map(of, map(Point, thetas))), atol=1e-11)
    with pytest.raises(NoPredictorsError, match=r"not of one number for each observation|depends on parameters"):
        predictors(text)


def test_a_loop_over_values_of_other_observations_is_not_followed() -> None:
    with pytest.raises(NotFollowedError, match="runs over values of other observations"):
        predictors("for (n in 1:N) { real m = 0; for (one in eta) { m += one; } z[n] ~ normal(m, 1); }")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("N / 5", 2),
        ("(-N) / 5", -2),
        ("(-N) % 5", -2),
        ("(-2 * N) / 5", -4),
        ("(-N) / 5.0", -2.4),
        ("sqrt(N / 3.0)", 2),
        ("2 * N * z", 24 * Z),
    ],
)
def test_the_number_of_observations_is_a_number_where_nothing_is_summed(value: str, expected: Any) -> None:
    found = predictors(f"z ~ normal(eta + {value}, 1);")
    np.testing.assert_allclose(found.offset[0], np.broadcast_to(expected, N))


@pytest.mark.parametrize(("factor", "each"), [("-2 * N", -2), ("-N / 2.0", -0.5), ("-(N / 2.0)", -0.5)])
def test_a_multiple_of_the_number_of_observations_sums_over_them(factor: str, each: float) -> None:
    found = predictors(f"target += {factor} * log(scale); z ~ normal(eta, 1);", of_family=False)
    thetas = RNG.uniform(-1, 1, (2, DIM))
    own = [found.family.log_lik(found.at(theta)) for theta in thetas]
    expected = [normal(t.eta, 1) + each * np.log(t.scale) for t in map(Point, thetas)]
    np.testing.assert_allclose(np.subtract(*own), np.subtract(*expected), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    ("filled", "expected"),
    [
        ("matrix[N, 2] m; m[ : , 1] = eta; m[ : , 2] = z;", Z),
        ("matrix[N, 2] m = rep_matrix(eta, 2); m[ : , 1] = z;", Z),
        ("matrix[N, 2] m = x; m[ : , 1] = eta + z;", X[:, 1] + Z),
    ],
)
def test_columns_are_assigned_for_all_observations(filled: str, expected: Array) -> None:
    found = predictors(f"{filled} z ~ normal(m[ : , 1] + m[ : , 2], 1);")
    np.testing.assert_allclose(found.offset[0], expected)


@pytest.mark.parametrize(
    ("filled", "reason"),
    [
        ("matrix[N, 2] m = rep_matrix(eta, 2); m[1] = x[2];", "only some observations are assigned"),
        ("vector[N] m = eta; m[1] = alpha;", "only some observations are assigned"),
        ("vector[N + 1] m = rep_vector(0, N + 1); m[1 : N] = eta;", "observations are assigned to elements of others"),
    ],
)
def test_elements_of_some_observations_are_not_assigned(filled: str, reason: str) -> None:
    with pytest.raises(NotFollowedError, match=reason):
        predictors(f"{filled} z ~ normal(sum(m), 1);")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("vector[N] mu = rep_vector(0, N); mu += alpha + x * beta;", True),
        ("vector[N] mu; for (n in 1:N) { mu[n] = alpha + u[c[n]]; }", True),
        ("vector[N] mu = eta; for (n in 1:N) { mu[n] += scale * u[c[n]]; }", False),
        ("vector[N] mu = eta; mu = exp(mu);", False),
        ("vector[N] mu = eta; mu = log(exp(mu));", True),
        ("vector[N] mu = Phi(eta); mu = eta;", True),
        ("vector[N] mu = eta; if (C > 1) { mu = exp(mu); }", False),
        ("vector[N] mu = eta; if (C > 1) { mu += alpha; } else { mu = exp(mu); }", True),
        ('vector[N] mu = eta; profile("m") { mu *= scale; }', False),
    ],
)
def test_statements_are_followed_in_their_order(lines: str, expected: bool) -> None:
    found = predictors(f"if (!prior_only) {{ {lines} z ~ normal(mu, 1); }}", of_family=False)
    assert isinstance(found.family, Normal if expected else ProgramFamily)


def test_nothing_is_compiled_and_what_is_wrong_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof compares the text with log likelihoods of blocks: here with right ones, and with others."""
    monkeypatch.setattr(build, "compile_library", lambda *_, **__: pytest.fail("it was compiled"))
    text, blocks = text_of(read("z ~ normal(eta, scale);")), Blocks(N, 3)
    points = list(RNG.uniform(-1, 1, (3, DIM)))
    terms = [np.add.reduceat(normal(t.eta, t.scale), blocks.starts) for t in map(Point, points)]
    assert proved_predictors([text], blocks, order=None, points=points, terms=terms).design[0].shape == (N, DIM)
    wrong = [terms[0], terms[1] + 1e-4, terms[2]]
    with pytest.raises(NoPredictorsError, match="differs from that of the compiled program"):
        proved_predictors([text], blocks, order=None, points=points, terms=wrong)


def test_a_function_that_returns_early_for_some_observations_is_followed_for_all() -> None:
    """Where it is not followed for all at once, it is for each value of an integer of the data."""
    functions = """real first(vector w, int i) {
      if (i == 0) { return 0; } else { return rows(w) * sum(w[1:i]); }
    }"""
    found = predictors("for (n in 1:N) z[n] ~ normal(alpha + first(u, c[n] - 1), scale);", functions)
    points = RNG.uniform(-1, 1, (2, DIM))
    sums = [3 * np.array([0, theta[17], theta[17] + theta[18]])[CATEGORY - 1] for theta in points]
    first, second = (normal(t.alpha + one, t.scale) for t, one in zip(map(Point, points), sums, strict=True))
    np.testing.assert_allclose(found.log_lik(points[1]) - found.log_lik(points[0]), second - first, atol=1e-12)


@pytest.mark.parametrize(
    "likelihood",
    [
        "for (n in 1:N) target += normal_lpdf(x[n, 1 : few[n] + 1] | alpha, scale);",
        "for (n in 1:N) x[n, 1 : few[n] + 1] ~ normal(alpha, scale);",
        "for (n in 1:N) for (k in 1 : few[n] + 1) x[n, k] ~ normal(alpha, scale);",
        "matrix[N, K] mu = rep_matrix(rep_vector(alpha, N), K);"
        "for (n in 1:N) target += normal_lpdf(x[n, 1 : few[n] + 1] | mu[n, 1 : few[n] + 1], scale);",
    ],
)
def test_the_first_values_of_an_observation_are_followed(likelihood: str) -> None:
    """Visits of a site, as many as its own number says."""
    found = predictors(likelihood, of_family=False)
    points = RNG.uniform(-1, 1, (2, DIM))
    terms = [np.column_stack([normal(t.alpha, t.scale, X[:, k]) for k in range(K)]) for t in map(Point, points)]
    first, second = (term[:, 0] + FEW * term[:, 1] for term in terms)
    np.testing.assert_allclose(found.log_lik(points[1]) - found.log_lik(points[0]), second - first, atol=1e-12)


def test_what_stan_loses_of_small_probabilities_is_no_other_likelihood() -> None:
    """Of 1 less a number near 1; a likelihood that differs elsewhere, or by more, is another."""
    text, blocks = text_of(read("few ~ bernoulli(inv_cloglog(eta));")), Blocks(N, 1)
    points = [np.zeros(DIM), 0.1 * np.ones(DIM), np.array([3.4, *np.zeros(DIM - 1)])]
    shares = [1 - np.exp(-np.exp(t.eta)) for t in map(Point, points)]
    terms = [np.where(FEW == 1, np.log(p), np.log1p(-p)) for p in shares]
    exactly = -np.exp(Point(points[2]).eta)
    assert np.abs(terms[2] - exactly)[FEW == 0].max() > 1e-5
    assert isinstance(proved_predictors([text], blocks, order=None, points=points, terms=terms).family, ProgramFamily)
    for k, change in ((1, 1e-6), (2, 0.02)):
        wrong = [term + change * (FEW == 0) * (place == k) for place, term in enumerate(terms)]
        with pytest.raises(NoPredictorsError, match="differs from that of the compiled program"):
            proved_predictors([text], blocks, order=None, points=points, terms=wrong)


@pytest.mark.parametrize(("predictor", "in_columns"), [("x[ : , 2]", True), ("(x[ : , 2] - mean(x[ : , 2]))", False)])
def test_designs_of_tall_data_are_their_columns(
    predictor: str, in_columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of the data are followed; what is computed of all the data differs between them, as the proof shows."""
    monkeypatch.setattr(proving, "_ROWS", 5)
    monkeypatch.setattr(proving, "_FOLLOWED", 5)
    monkeypatch.setattr(proving, "_COMPUTED", 0)
    program = read(f"z ~ normal(alpha + {predictor} * beta[1], scale);")
    blocks, points = Blocks(N, 3), list(RNG.uniform(-1, 1, (3, DIM)))
    x = X[:, 1] if in_columns else X[:, 1] - X[:, 1].mean()
    terms = [np.add.reduceat(normal(t.alpha + x * t.beta[0], t.scale), blocks.starts) for t in map(Point, points)]
    found = proved_predictors([text_of(program)], blocks, sizes=["N"], order=None, points=points, terms=terms)
    assert isinstance(found.design[0], ColumnRows) == in_columns
    np.testing.assert_allclose(found.design[0][:][:, 1], x, atol=1e-15)
    whole = predictors_of([text_of(program)], [N])
    for theta in points:
        np.testing.assert_allclose(found.log_lik(theta), whole.log_lik(theta), rtol=1e-12)


@pytest.mark.parametrize("likelihood", ["z ~ weibull(scale, exp(eta));", "z ~ normal(eta, inv(scale));"])
def test_partitions_and_a_sample_of_their_rows_have_the_same_shape(
    likelihood: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that all observations share has zeros of either sign if it is that of minus a parameter."""
    for name in ("_ROWS", "_FOLLOWED"):
        monkeypatch.setattr(proving, name, 5)
    monkeypatch.setattr(proving, "compare", lambda *_, **__: Compared(True))
    text, points = text_of(read(likelihood)), [np.zeros(DIM)]
    computed = proved_predictors(
        [text], Blocks(N, 3), sizes=["N"], order=None, points=points, terms=points, computed=True
    )
    assert isinstance(computed.design[0], ColumnRows)
    assert shape_of(computed) == shape_of(predictors_of([text], [N]))


@pytest.mark.parametrize("coefficients", ["beta", "scale * beta", "exp(beta)"])
def test_a_design_that_is_stored_by_columns_is_followed_at_once(
    coefficients: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Element by element, many observations take minutes."""
    sizes = []
    dot = containers.dot
    monkeypatch.setattr(containers, "dot", lambda a, b: sizes.append(len(a)) or dot(a, b))  # type: ignore[func-returns-value]
    by_columns, by_rows = (
        follow(read(f"z ~ normal({mean}, 1);"), VALUES, N).term
        for mean in (f"to_vector(({coefficients})' * x')", f"x * ({coefficients})")
    )
    assert len(sizes) <= 2
    assert is_same(by_columns, by_rows)


def test_values_of_transformed_data_may_be_given() -> None:
    """What computes them is not followed then."""
    code = """data { int N; vector[N] z; } transformed data { vector[N] w = sort_asc(z); }
      parameters { real a; } model { z ~ normal(a * w, 1); }"""
    program, own = parse(code), {"N": N, "z": Z}
    with pytest.raises(stansub.InputError, match="is not supported"):
        predictors_of([text_of(program, own)], [N])
    found = predictors_of([text_of(program, {**own, "w": np.sort(Z)})], [N])
    np.testing.assert_array_equal(found.design[0][:, 0], np.sort(Z))


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    rng = np.random.default_rng(2)
    n = 2000
    x = rng.standard_normal((n, 2))
    y = (rng.random(n) < 1 / (1 + np.exp(-(0.3 + x @ [0.8, -0.5])))).astype(int)
    return {"N": n, "K": 2, "y": y, "x": x}


@pytest.fixture(scope="module")
def posterior(data: dict[str, Any]) -> stansub.Posterior:
    return stansub.compile_model(MODELS / "logistic.stan").with_data(data, block_size=8, seed=3)


@pytest.mark.slow
def test_of_a_program(posterior: stansub.Posterior, data: dict[str, Any]) -> None:
    """In the order of the data, with that of the population beside it."""
    found = posterior.predictors()
    np.testing.assert_allclose(found.design[0], np.column_stack([np.ones(2000), data["x"]]), atol=1e-12)
    np.testing.assert_allclose(found.offset[0], 0, atol=1e-12)
    assert found.order is posterior.order is not None
    theta = np.array([0.2, -0.4, 0.1])
    sums = found.sums(found.log_lik(theta), posterior.blocks)
    np.testing.assert_allclose(sums, posterior.population.evaluator().block_log_lik(theta), rtol=1e-10)


def test_sampling_is_exact_and_says_so(posterior: stansub.Posterior) -> None:
    """Against importance sampling from a wide t about the mode: means and sds in Monte Carlo standard errors."""
    idata = stansub.sample(posterior, test="factorised", seed=4, chains=2, iter_sampling=6000)
    assert idata.attrs["guarantee"] == "exact by proved bounds"
    chains = idata["chain_stats"]
    assert int(chains["n_audited"].sum()) == 0
    assert 0 < float(chains["bound_tightness"].max()) < 1
    assert float(chains["n_obs_used"].sum()) < 0.2 * 2000 * float(chains["n_steps"].sum())
    assert not idata.attrs["warnings"]
    draws = np.asarray(idata["unconstrained_posterior"]["theta"]).reshape(-1, 3)
    mean, sd, n_weighted = moments(posterior, draws)
    error = np.sqrt(1 / n_weighted + 1 / 8000)
    assert np.abs((draws.mean(0) - mean) / sd).max() < 4.5 * error
    assert np.abs(draws.std(0) / sd - 1).max() < 4.5 * error


def simulated(name: str) -> tuple[Path, dict[str, Any]]:
    rng = np.random.default_rng(4)
    x = rng.standard_normal((2000, 2))
    if name == "linear":
        return MODELS / "linear.stan", {
            "N": 2000,
            "K": 2,
            "x": x,
            "y": 0.3 + x @ [0.5, -0.4] + rng.normal(0, 0.7, 2000),
        }
    eta = np.column_stack([np.zeros(2000), 0.3 + x @ [0.5, -0.2], -0.2 + x @ [0.1, 0.6]])
    category = 1 + (eta + rng.gumbel(size=(2000, 3))).argmax(1)
    return Path(__file__).parents[1] / "programs" / "categorical.stan", {
        "N": 2000,
        "K": 2,
        "C": 3,
        "x": x,
        "y": category,
    }


@pytest.mark.parametrize(
    ("name", "family", "q"),
    [("linear", LocationScale, 2), pytest.param("categorical", Categorical, 3, marks=pytest.mark.slow)],
)
def test_several_arguments_are_exact_too(name: str, family: type, q: int) -> None:
    """A regression with an unknown standard deviation, and one of categories, against importance sampling."""
    file, values = simulated(name)
    posterior = stansub.compile_model(file).with_data(values, block_size=8, seed=3)
    found = posterior.predictors()
    assert isinstance(found.family, family)
    assert len(found.design) == q
    idata = stansub.sample(posterior, test="factorised", seed=4, chains=2, iter_sampling=5000)
    chains = idata["chain_stats"]
    assert idata.attrs["guarantee"] == "exact by proved bounds"
    assert int(chains["n_bound_violated"].sum()) == 0
    assert 0 < float(chains["n_candidates"].sum()) < 15 * float(chains["n_steps"].sum())
    draws = np.asarray(idata["unconstrained_posterior"]["theta"])
    mean, sd, n_weighted = moments(posterior, draws.reshape(-1, draws.shape[-1]))
    ess = np.array([_ess(draws[..., k]) for k in range(draws.shape[-1])])
    error = np.sqrt(1 / ess + 1 / n_weighted)
    assert np.abs((draws.mean((0, 1)) - mean) / sd / error).max() < 4.5
    assert np.abs((draws.std((0, 1)) / sd - 1) / error).max() < 4.5


def moments(posterior: stansub.Posterior, draws: Array) -> tuple[Array, Array, float]:
    """Means and sds by importance sampling from a t about the draws, and the effective number of its draws."""
    rng, dim = np.random.default_rng(1), draws.shape[1]
    centre, factor = draws.mean(0), np.linalg.cholesky(np.cov(draws.T))
    z = rng.standard_normal((8000, dim)) / np.sqrt(rng.chisquare(8, 8000) / 8)[:, np.newaxis]
    proposed = centre + z @ factor.T
    log_weights = np.array([posterior.full.log_density(theta) for theta in proposed])
    log_weights += 0.5 * (8 + dim) * np.log1p((z**2).sum(1) / 8)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    mean = weights @ proposed
    return mean, np.sqrt(weights @ (proposed - mean) ** 2), float(1 / (weights**2).sum())


def _ess(values: Array) -> float:
    return float(min(az.ess(values), az.ess((values - values.mean()) ** 2)))
