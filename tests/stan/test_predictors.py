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
from stansub.stan import data as data_module
from stansub.stan import predictors as proving
from stansub.stan import source, stanc
from stansub.stan.arguments import ArgumentProgram, argument_program
from stansub.stan.densities import SPECS
from stansub.stan.predictors import Columns, _affine, _joined, _steps, guess_predictors
from stansub.stan.recognise import recognise
from stansub.stan.sizes import main_size
from stansub.stan.syntax import parse
from stansub.target import remainders
from stansub.target.categories import Categorical, Ordered
from stansub.target.dispersion import Gamma, NegativeBinomial2
from stansub.target.families import Binomial, Logistic, NegativeBinomial, Normal, Poisson, StudentT
from stansub.target.location_scale import LocationScale
from stansub.target.remainders import LinearPredictors, NoPredictorsError

Array = NDArray[np.float64]

MODELS = Path(__file__).parents[2] / "stan_models"
PROGRAM = """
functions {{ {functions} }}
data {{
  int<lower=0> N; int<lower=1> K; int<lower=2> C; array[N] int<lower=0> y; matrix[N, K] x; vector[N] z;
  array[N] int trials;
}}
parameters {{
  real alpha; vector[K] beta; real<lower=0> scale; vector[C] a; matrix[K, C] b; ordered[C - 1] cut;
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


def handing_out(folder: Path, likelihood: str, functions: str = "") -> ArgumentProgram:
    (folder / "program.stan").write_text(PROGRAM.format(likelihood=likelihood, functions=functions))
    program = parse(stanc.canonical(folder / "program.stan"))
    return argument_program(program, recognise(program), main_size(program))


@pytest.mark.parametrize(
    ("likelihood", "functions", "family"),
    [
        ("y ~ bernoulli_logit(alpha + x * beta);", "", "bernoulli_logit"),
        ("y ~ bernoulli_logit_glm(x, alpha, beta);", "", "bernoulli_logit"),
        ("target += poisson_log_glm_lupmf(y | x, alpha, beta);", "", "poisson_log"),
        ("y ~ binomial_logit(trials, alpha + x * beta);", "", "binomial_logit"),
        ("z ~ student_t(4, alpha + x * beta, 0.5);", "", "student_t"),
        ("z ~ normal(alpha + x * beta, 0.5);", "", "normal"),
        ("for (n in 1:N) y[n] ~ poisson_log(alpha + x[n] * beta);", "", "poisson_log"),
        ("for (i in 1:N) target += log_lik_i(i, y, x, alpha, beta);", LOG_LIK, "bernoulli_logit"),
        ("target += reduce_sum(part, y, 1, x, alpha, beta);", PARTIAL, "poisson_log"),
        ("target += reduce_sum(part, y, 1, x, alpha, beta);", SUMMED, "poisson_log"),
        ("z ~ normal_id_glm(x, alpha, beta, scale);", "", "normal"),
        ("z ~ lognormal(x * beta, scale);", "", "lognormal"),
        ("z ~ cauchy(x * beta, scale);", "", "cauchy"),
        ("z ~ logistic(x * beta, scale);", "", "logistic"),
        ("y ~ neg_binomial_2(exp(alpha + x * beta), scale);", "", "neg_binomial_2"),
        ("z ~ gamma(scale, scale / exp(x * beta));", "", "gamma"),
        ("z ~ weibull(scale, exp(x * beta));", "", "weibull"),
        ("z ~ exponential(exp(x * beta));", "", "exponential"),
        ("y ~ poisson(exp(x * beta));", "", "poisson"),
        ("y ~ bernoulli(inv_logit(x * beta));", "", "bernoulli"),
        ("y ~ binomial(trials, inv_logit(x * beta));", "", "binomial"),
        ("y ~ categorical_logit_glm(x, a, b);", "", "categorical_logit"),
        ("for (i in 1:N) { vector[C] e = a + (x[i] * b)'; y[i] ~ categorical_logit(e); }", "", "categorical_logit"),
        ("target += reduce_sum(part, y, 1, x, a, b);", CATEGORICAL, "categorical_logit"),
        ("y ~ ordered_logistic_glm(x, beta, cut);", "", "ordered_logistic"),
        ("for (i in 1:N) target += log_lik_i(i, y, x, beta, cut);", ORDERED, "ordered_logistic"),
    ],
)
def test_read_off_the_text(tmp_path: Path, likelihood: str, functions: str, family: str) -> None:
    """And the program that hands the arguments out is one."""
    found = handing_out(tmp_path, likelihood, functions)
    assert found.density == family
    (tmp_path / "rewritten.stan").write_text(found.code)
    stanc.canonical(tmp_path / "rewritten.stan")


@pytest.mark.parametrize(
    ("likelihood", "reason"),
    [
        (
            "z ~ student_t(scale, alpha + x * beta, 1);",
            "argument 1 of student_t depends on parameters, and must be known",
        ),
        ("beta ~ normal(z[1:K], 1);", "what its density is of depends on parameters"),
        ("z ~ double_exponential(alpha + x * beta, 1);", "double_exponential is none of"),
        ("y ~ poisson_log(alpha + x * beta); z ~ normal(alpha, 1);", "not exactly one likelihood statement"),
        (
            "for (n in 1:N) target += log_sum_exp(normal_lpdf(z[n] | alpha, 1), normal_lpdf(z[n] | 0, 1));",
            "one density",
        ),
    ],
)
def test_not_recognised(tmp_path: Path, likelihood: str, reason: str) -> None:
    with pytest.raises(NoPredictorsError, match=reason):
        handing_out(tmp_path, likelihood)


@pytest.mark.parametrize(
    "change",
    [
        ("ptarget = 0", "ptarget = 1"),
        ("return ptarget", "ptarget += n; return ptarget"),
        ("return ptarget", "return 2 * ptarget"),
        ("ptarget += poisson", "ptarget -= poisson"),
        ("ptarget += poisson", "for (k in 1:2) ptarget += poisson"),
    ],
)
def test_a_local_sum_of_more_than_a_density_is_not_recognised(tmp_path: Path, change: tuple[str, str]) -> None:
    assert change[0] in SUMMED
    with pytest.raises(NoPredictorsError, match="does not return the density of data, and nothing else"):
        handing_out(tmp_path, "target += reduce_sum(part, y, 1, x, alpha, beta);", SUMMED.replace(*change))


RNG = np.random.default_rng(6)
N = 12


@pytest.fixture(autouse=True)
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even few observations are looked at in several parts."""
    for module in (proving, remainders):
        monkeypatch.setattr(module, "_PART", N - 1)


X = RNG.standard_normal((N, 2))
Y, POSITIVE, COUNTS = RNG.standard_normal(N), RNG.gamma(2.0, 1.0, N), RNG.integers(0, 6, N).astype(float)
CATEGORY = RNG.integers(1, 4, N).astype(float)
TRIALS = COUNTS + 2
POINTS = [RNG.uniform(-1, 1, 4) for _ in range(4)]
Argument = Callable[[Array], Array]


def predictors(density: str, y: Array, *arguments: Argument) -> LinearPredictors:
    """Of a program that hands these out, functions of four unconstrained parameters, in place of a compiled one."""

    def values(theta: Array) -> Array:
        found = [np.atleast_2d(argument(theta)) for argument in arguments]
        return np.concatenate([y[np.newaxis], *(np.broadcast_to(one, (len(one), N)) for one in found)])

    spec = SPECS[density]
    columns = Columns(values, spec)
    design = _steps(columns, POINTS[0])
    return _joined(spec, [_affine(density, columns, design, POINTS)], design)


def known(value: float | Array) -> Argument:
    return lambda theta: np.asarray(value)


def line(theta: Array) -> Array:
    return np.asarray(0.3 + X @ theta[:2])


def positive(theta: Array) -> Array:
    return np.exp(line(theta))


def share(theta: Array) -> Array:
    return expit(line(theta))


def scale(theta: Array) -> Array:
    return np.exp(theta[2] - 0.4)


def quotient(theta: Array) -> Array:
    return np.asarray(scale(theta) / positive(theta))


def cutpoints(theta: Array) -> Array:
    return np.array([[theta[2]], [theta[2] + np.exp(theta[3])]])


def classes(theta: Array) -> Array:
    """The first fixed at 0, and a fourth that is padding."""
    return np.array([np.zeros(N), line(theta), X @ theta[2:], np.full(N, np.nan)])


def negative_binomial(mean: Array, phi: Array) -> Array:
    return np.asarray(stats.nbinom.logpmf(COUNTS, phi, phi / (phi + mean)))


def ordered(eta: Array, cut: Array) -> Array:
    above = np.concatenate([np.zeros((1, N)), expit(cut - eta), np.ones((1, N))])
    return np.log(np.diff(above, axis=0)[CATEGORY.astype(int) - 1, np.arange(N)])


def weibull(shape: Array, unit: Array) -> Array:
    return np.asarray(stats.weibull_min.logpdf(POSITIVE, shape, scale=unit))


def categorical(eta: Array) -> Array:
    return np.asarray(log_softmax(eta[:3], 0)[CATEGORY.astype(int) - 1, np.arange(N)])


# A density, observations, arguments, its logarithm by other means, the family, and how many arguments are left.
CHOSEN: list[tuple[str, Array, list[Argument], Callable[..., Array], type, int]] = [
    ("normal", Y, [line, scale], lambda m, s: stats.norm.logpdf(Y, m, s), LocationScale, 2),
    ("normal", Y, [line, known(0.7)], lambda m, s: stats.norm.logpdf(Y, m, s), Normal, 1),
    ("normal", Y, [known(0.2), scale], lambda m, s: stats.norm.logpdf(Y, m, s), LocationScale, 2),
    ("lognormal", POSITIVE, [line, scale], lambda m, s: stats.norm.logpdf(np.log(POSITIVE), m, s), LocationScale, 2),
    ("student_t", Y, [known(4.0), line, scale], lambda nu, m, s: stats.t.logpdf(Y, nu, m, s), LocationScale, 2),
    ("student_t", Y, [known(4.0), line, known(0.5)], lambda nu, m, s: stats.t.logpdf(Y, nu, m, s), StudentT, 1),
    ("cauchy", Y, [line, scale], lambda m, s: stats.cauchy.logpdf(Y, m, s), LocationScale, 2),
    ("logistic", Y, [line, scale], lambda m, s: stats.logistic.logpdf(Y, m, s), LocationScale, 2),
    ("logistic", Y, [line, known(0.5)], lambda m, s: stats.logistic.logpdf(Y, m, s), Logistic, 1),
    ("neg_binomial_2_log", COUNTS, [line, scale], lambda m, s: negative_binomial(np.exp(m), s), NegativeBinomial2, 2),
    ("neg_binomial_2", COUNTS, [positive, scale], negative_binomial, NegativeBinomial2, 2),
    ("neg_binomial_2", COUNTS, [positive, known(1.4)], negative_binomial, NegativeBinomial, 1),
    ("gamma", POSITIVE, [scale, quotient], lambda a, b: stats.gamma.logpdf(POSITIVE, a, scale=1 / b), Gamma, 2),
    ("gamma", POSITIVE, [known(2.5), positive], lambda a, b: stats.gamma.logpdf(POSITIVE, a, scale=1 / b), Poisson, 1),
    (
        "weibull",
        POSITIVE,
        [scale, positive],
        lambda a, b: stats.weibull_min.logpdf(POSITIVE, a, scale=b),
        LocationScale,
        2,
    ),
    ("exponential", POSITIVE, [positive], lambda b: stats.expon.logpdf(POSITIVE, scale=1 / b), Poisson, 1),
    ("poisson", COUNTS, [positive], lambda m: stats.poisson.logpmf(COUNTS, m), Poisson, 1),
    ("bernoulli", (COUNTS > 2) * 1.0, [share], lambda p: stats.bernoulli.logpmf(COUNTS > 2, p), Binomial, 1),
    ("binomial", COUNTS, [known(TRIALS), share], lambda n, p: stats.binom.logpmf(COUNTS, n, p), Binomial, 1),
    ("categorical_logit", CATEGORY, [classes], categorical, Categorical, 3),
    ("ordered_logistic", CATEGORY, [line, cutpoints], ordered, Ordered, 3),
]


@pytest.mark.parametrize(("density", "y", "arguments", "log_density", "family", "q"), CHOSEN)
def test_the_family_is_chosen_by_what_varies(
    density: str, y: Array, arguments: list[Argument], log_density: Callable[..., Array], family: type, q: int
) -> None:
    """And has the density's log likelihoods, up to constants."""
    found = predictors(density, y, *arguments)
    assert isinstance(found.family, family)
    assert found.family.n_arguments == len(found.design) == q
    assert found.n_observations == N
    own, expected = [], []
    for theta in RNG.uniform(-1, 1, (2, 4)):
        own.append(found.family.log_lik(found.at(theta)))
        expected.append(log_density(*(argument(theta) for argument in arguments)))
    np.testing.assert_allclose(np.subtract(*own), np.subtract(*expected), rtol=1e-9, atol=1e-11)


def test_what_all_observations_share_has_one_row() -> None:
    found = predictors("normal", Y, line, scale)
    np.testing.assert_allclose(found.design[0], np.column_stack([X, np.zeros((N, 2))]), atol=1e-14)
    np.testing.assert_allclose(found.design[1], [[0, 0, 1, 0]], atol=1e-14)
    np.testing.assert_allclose(found.offset[1], [-0.4], atol=1e-14)
    lengths = found.lengths(2 * np.eye(4))
    np.testing.assert_allclose(lengths[0], 2 * np.linalg.norm(X, axis=1))
    np.testing.assert_allclose(lengths[1], np.full(N, 2.0))


@pytest.mark.parametrize(
    ("density", "y", "arguments", "reason"),
    [
        ("normal", Y, [lambda theta: line(theta) ** 2, scale], "^argument 1 of normal is not affine"),
        ("normal", Y, [line, lambda theta: 0.5 + scale(theta)], "^the log of argument 2 of normal is not affine"),
        ("normal", Y, [lambda theta: np.abs(line(theta)), scale], "^argument 1 of normal is not affine"),
        ("student_t", Y, [scale, line, scale], "^argument 1 of student_t depends on parameters, and must be known"),
        ("bernoulli", Y, [lambda theta: 0.5 * share(theta)], "^the logit of argument 1 of bernoulli is not affine"),
        ("binomial", Y, [lambda theta: TRIALS + theta[0], share], "^argument 1 of binomial depends on parameters"),
        (
            "ordered_logistic",
            CATEGORY,
            [line, lambda theta: np.array([[theta[2]], [np.exp(theta[3]) + 9]])],
            "^the first, or the log of a difference, of argument 2 of ordered_logistic is not affine",
        ),
        ("categorical_logit", Y, [lambda theta: np.full((3, N), np.nan)], "an argument has more than 64 values"),
    ],
)
def test_what_is_not_affine_is_refused(density: str, y: Array, arguments: list[Argument], reason: str) -> None:
    with pytest.raises(NoPredictorsError, match=reason):
        predictors(density, y, *arguments)


def test_observations_that_change_are_refused() -> None:
    given = iter([*[Y] * 6, Y + 1])
    columns = Columns(lambda theta: np.stack([next(given), line(theta)]), SPECS["poisson_log"])
    with pytest.raises(NoPredictorsError, match="what its density is of depends on parameters"):
        _affine("poisson_log", columns, _steps(columns, POINTS[0]), POINTS)


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


def test_nothing_is_compiled_for_a_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compilation takes half a minute, and whoever waits for it is told."""
    monkeypatch.setattr("stansub.stan.toolchain.is_compiled", lambda code, *, name: False)
    monkeypatch.setattr("stansub.stan.toolchain.compile_library", lambda *_, **__: pytest.fail("it is being compiled"))
    read = source.read(MODELS / "logistic.stan")
    values = {"N": 3, "K": 1, "y": [0, 1, 1], "x": [[0.1], [0.2], [0.3]]}
    given = data_module.read(values, read.program.data.declarations)
    assert guess_predictors(read.analysis, given, "logistic") is None
