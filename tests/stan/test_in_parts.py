"""Programs in parts: likelihoods alone in blocks, several sums, transformed data; and that wrong parts are refused."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from simulated import PROGRAMS, ROOT, Compiled, Data, example, simulated
from test_identity import check_identity, points

import stansub
from stansub import memory
from stansub.errors import InputError
from stansub.stan import transformed_data
from stansub.stan.compilation import CompiledModel, compile_model
from stansub.stan.data.data import read
from stansub.stan.recipe import PosteriorRecipe
from stansub.stan.syntax import parse
from stansub.stan.toolchain import build
from stansub.stan.toolchain.library import Library
from stansub.target.programs import ProgramFamily
from stansub.target.remainders import LinearPredictors, NoPredictorsError

SLOW = {
    name: pytest.param(name, marks=pytest.mark.slow)
    for name in ("centred", "groups", "varying_dispersion", "item_response", "partial_sums")
}
IN_PARTS = ["brms_gaussian", "survival", "hierarchical_logistic", *SLOW.values()]


def of(name: str, compiled: Compiled) -> tuple[CompiledModel, Data]:
    file = PROGRAMS / f"{name}.stan"
    if file.exists():
        return compiled(file), simulated(file)
    file = ROOT / "stan_models" / f"{name}.stan"
    return compiled(file), example(file)


@pytest.mark.parametrize("name", IN_PARTS)
def test_blocks_are_likelihoods_alone(name: str, compiled: Compiled) -> None:
    model, data = of(name, compiled)
    posterior = model.with_data(data, block_size=7, seed=3)
    assert posterior.population.alone
    evaluator, theta = posterior.population.evaluator(), points(posterior, 1)[0]
    _, slope = posterior.full.log_density_gradient(theta)
    parts = evaluator.global_gradient(theta) + evaluator.block_gradients(theta).sum(0)
    np.testing.assert_allclose(parts, slope, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(evaluator.subset_log_density_gradient(theta)[1], slope, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "name", ["hierarchical_logistic", *(SLOW[name] for name in ("groups", "varying_dispersion", "item_response"))]
)
def test_they_are_those_of_the_whole_program(name: str, compiled: Compiled) -> None:
    model, data = of(name, compiled)
    posterior = model.with_data(data, block_size=7, seed=3)
    whole = replace(model, divided=None).with_data(data, block_size=7, seed=3)
    assert not whole.population.alone
    np.testing.assert_array_equal(posterior.order, whole.order)
    one, other = posterior.population.evaluator(), whole.population.evaluator()
    for theta in points(posterior):
        assert one.global_log_density(theta) == pytest.approx(other.global_log_density(theta), rel=1e-10)
        np.testing.assert_allclose(one.block_log_lik(theta), other.block_log_lik(theta), rtol=1e-9, atol=1e-10)
    recut = posterior.recut(20)
    assert recut.population.alone
    check_identity(recut, model, data)


def test_a_likelihood_of_the_data_as_they_are_centred(compiled: Compiled) -> None:
    model, data = of("brms_gaussian", compiled)
    posterior = model.with_data(data, block_size=4)
    theta = points(posterior, 1)[0]
    b, intercept, sigma, sd, z = theta[:2], theta[2], np.exp(theta[3]), np.exp(theta[4]), theta[5:]
    centred = data["X"][:, 1:] - data["X"][:, 1:].mean(0)
    mu = intercept + centred @ b + sd * z[data["J_1"] - 1]
    by_hand = -0.5 * ((data["Y"] - mu) / sigma) ** 2 - np.log(sigma) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(posterior.each(theta[np.newaxis], np.arange(len(by_hand)))[0], by_hand, rtol=1e-9)
    names = posterior.full.param_names(include_gq=True)
    written = posterior.full.param_constrain(theta, include_gq=True, rng=posterior.full.rng(1))
    expected = intercept - data["X"][:, 1:].mean(0) @ b
    assert written[names.index("b_Intercept")] == pytest.approx(expected, rel=1e-12)


def test_a_likelihood_that_is_switched_off(compiled: Compiled) -> None:
    model, data = of("brms_gaussian", compiled)
    with pytest.raises(InputError, match=r"there is no likelihood: .*; set `prior_only` to 0"):
        model.with_data({**data, "prior_only": 1}, block_size=4)


@pytest.mark.slow
def test_linear_predictors_of_a_program_that_centres(compiled: Compiled) -> None:
    model, data = of("centred", compiled)
    posterior = model.with_data(data, block_size=1)
    predictors, theta = posterior.predictors(), points(posterior, 1)[0]
    centred = data["x"] - data["x"].mean(0)
    np.testing.assert_allclose(predictors.design[0], [[1, *row, 0] for row in centred], atol=1e-9)
    own = predictors.log_lik(theta) - predictors.log_lik(0 * theta)
    evaluator = posterior.population.evaluator()
    change = evaluator.block_log_lik(theta) - evaluator.block_log_lik(0 * theta)
    np.testing.assert_allclose(own[posterior.order], change, rtol=1e-9)


@pytest.mark.slow
def test_summaries_within_the_model_are_of_all_the_data() -> None:
    rng = np.random.default_rng(2)
    data = {"N": 90, "x": rng.gamma(2.0, 1.0, 90), "y": rng.standard_normal(90)}
    model = compile_model(ROOT / "benchmarks" / "reach" / "programs" / "centred_in_model.stan")
    posterior = model.with_data(data, block_size=7)
    check_identity(posterior, model, data)
    theta = points(posterior, 1)[0]
    mu, sigma = theta[0] + theta[1] * (data["x"] - data["x"].mean()), np.exp(theta[2])
    by_hand = -0.5 * ((data["y"] - mu) / sigma) ** 2 - np.log(sigma) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(posterior.each(theta[np.newaxis], np.arange(len(by_hand)))[0], by_hand, rtol=1e-9)
    assert posterior.predictors().n_observations == 90


def test_two_sums_and_one_too_short(compiled: Compiled) -> None:
    model, data = of("survival", compiled)
    posterior = model.with_data(data, block_size=10)
    blocks, order, theta = posterior.blocks, posterior.order, points(posterior, 1)[0]
    assert posterior.sizes == ("N_obs", "N_cen")
    assert (blocks.sums, blocks.n_observations, len(blocks)) == ((131, 104), 235, 14 + 11)
    assert 131 in blocks.starts
    assert order is not None
    assert sorted(order[:131]) == list(range(131))
    assert sorted(order[131:]) == list(range(131, 235))
    assert (np.diff(order) != 1).sum() > 200
    alpha, beta, shape = theta[0], theta[1:3], np.exp(theta[3])
    scale, censored = (np.exp(alpha + data[f"x_{name}"] @ beta) for name in ("obs", "cen"))
    there, later = (data["t_obs"] / scale), -((data["t_cen"] / censored) ** shape)
    seen = np.log(shape / scale) + (shape - 1) * np.log(there) - there**shape
    by_hand = np.concatenate([seen, later])[order]
    np.testing.assert_allclose(posterior.each(theta[np.newaxis], posterior.order)[0], by_hand, rtol=1e-9)
    sums = np.add.reduceat(by_hand, blocks.starts)
    np.testing.assert_allclose(posterior.population.evaluator().block_log_lik(theta), sums, rtol=1e-9)


def test_the_observations_of_two_sums_have_arguments_of_their_own(compiled: Compiled) -> None:
    model, data = of("survival", compiled)
    posterior = model.with_data(data, block_size=10)
    predictors = posterior.predictors()
    assert isinstance(predictors, LinearPredictors)
    assert isinstance(predictors.family, ProgramFamily)
    assert predictors.n_observations == 235
    one, other = points(posterior, 2)
    each = posterior.each(np.stack([one, other]), np.arange(235))
    change = predictors.log_lik(other) - predictors.log_lik(one)
    np.testing.assert_allclose(change, each[1] - each[0], rtol=1e-9, atol=1e-9)
    metric = 0.1 * np.eye(posterior.dim)
    bounds = posterior.remainder_bounds(one, metric, 2)
    assert len(bounds.constants[0]) == len(posterior.blocks)
    assert (bounds.constants > 0).all()


def test_a_text_of_a_sum_with_other_data_is_refused(compiled: Compiled) -> None:
    model, data = of("survival", compiled)
    posterior = model.with_data(data, block_size=10)
    first, second = posterior.texts
    times = {**first.values.values, "t_obs": first.values.values["t_obs"][::-1]}
    wrong = first._replace(values=replace(first.values, values=times))
    with pytest.raises(NoPredictorsError, match="differs from that of the compiled program"):
        replace(posterior, texts=(wrong, second), _found={}).predictors()


def test_observations_that_the_user_names_are_the_only_sum(compiled: Compiled) -> None:
    model, data = of("survival", compiled)
    posterior = model.with_data(data, block_size=10, observations="N_cen")
    assert posterior.sizes == ("N_cen",)
    assert posterior.blocks.n_observations == 104
    check_identity(posterior, model, data)


@pytest.mark.slow
def test_a_reduce_sum_beside_another_sum(compiled: Compiled) -> None:
    model, data = of("partial_sums", compiled)
    posterior = model.with_data(data, block_size=10)
    assert posterior.sizes == ("N", "M")
    without = replace(model, divided=None).with_data(data, block_size=10)
    assert without.blocks.n_observations == 121


@pytest.mark.parametrize("name", ["survival", "brms_gaussian"])
def test_another_process_makes_the_same(name: str, compiled: Compiled) -> None:
    model, data = of(name, compiled)
    posterior = model.with_data(data, seed=5).recut(12)
    recipe = pickle.loads(pickle.dumps(PosteriorRecipe.of(posterior)))
    again, theta = recipe.make(), points(posterior, 1)[0]
    assert again.sizes == posterior.sizes
    assert again.population.alone
    expected = posterior.population.evaluator().block_log_lik(theta)
    np.testing.assert_array_equal(again.population.evaluator().block_log_lik(theta), expected)


def test_data_that_every_block_would_hold(compiled: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = of("survival", compiled)
    monkeypatch.setattr(memory, "room", lambda: memory.Room(100_000, "free"))
    with pytest.raises(InputError, match=r"would hold .* of data that are not cut"):
        replace(model, divided=None).with_data(data, block_size=1, observations="N_obs")
    assert model.with_data(data, block_size=10).population.alone


def test_sampling_from_two_sums(compiled: Compiled) -> None:
    model, data = of("survival", compiled)
    posterior = model.with_data(data, block_size=10)
    idata = stansub.sample(posterior, chains=2, iter_warmup=300, iter_sampling=300, seed=1)
    assert idata.posterior["beta"].shape == (2, 300, 2)
    assert np.isfinite(idata.posterior["shape"]).all()


@pytest.mark.parametrize("wrong", [[(), ()], [("N",), ()], [("N",), ("N",)]], ids=str)
def test_wrong_parts_are_refused(wrong: list[tuple[str, ...]], compiled: Compiled) -> None:
    """The likelihood as global part, the priors as a sum over observations, and both."""
    groups = tuple(map(frozenset, wrong))
    for name in ("hierarchical_logistic", "brms_gaussian"):
        model, data = of(name, compiled)
        assert model.divided is not None
        parts = replace(model.divided.parts, groups=groups)
        broken = replace(model, divided=model.divided._replace(parts=parts))
        if name == "brms_gaussian":
            with pytest.raises(InputError, match="not a sum over observations"):
                broken.with_data(data, block_size=8)
        else:
            assert not broken.with_data(data, block_size=8).population.alone


def test_a_sum_that_is_counted_with_another_is_refused(compiled: Compiled) -> None:
    model, data = of("survival", compiled)
    assert model.divided is not None
    groups = tuple(frozenset({"N_obs"}) if group == {"N_cen"} else group for group in model.divided.parts.groups)
    parts = replace(model.divided.parts, groups=groups)
    posterior = replace(model, divided=model.divided._replace(parts=parts)).with_data(data, block_size=10)
    assert posterior.sizes == ("N_left",)  # what is left of the cut is right, if of no use
    assert posterior.proof.holds


def test_values_that_are_not_those_of_all_data_are_refused(compiled: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = of("brms_gaussian", compiled)
    given = transformed_data.values

    def changed(*args: object, **options: object) -> dict[str, object]:
        found = given(*args, **options)
        return {**found, "Xc": found["Xc"] * (1 + 1e-6)}

    monkeypatch.setattr(transformed_data, "values", changed)
    with pytest.raises(InputError, match="not a sum over observations"):
        model.with_data(data, block_size=8)


@pytest.mark.slow
def test_transformed_data_of_all_types() -> None:
    code = """
data {
  int N;
}
transformed data {
  int twice = 2 * N;
  array[2, N] int counts;
  real x = 0.1 * N;
  row_vector[3] row = [1, 2, 3];
  array[N] vector[2] vectors;
  matrix[N, 3] table;
  array[2] matrix[0, N] nothing;
  array[2] cov_matrix[2] covariances = rep_array(identity_matrix(2), 2);
  simplex[N] share = rep_vector(1.0 / N, N);
  real random = normal_rng(0, 1);
  for (n in 1 : N) {
    counts[ : , n] = {n, -n};
    vectors[n] = [n, 10 * n]';
    table[n] = [n, n + 10, n + 20];
  }
  covariances[2, 1, 1] = 4;
}
"""
    program = parse(code)
    variables = program.transformed_data.declarations
    library = Library(build.compile_library(transformed_data.exporting(program, variables), name="transformed_data"))
    data = read({"N": 4}, program.data.declarations)
    found = transformed_data.values(library, variables, data, seed=5)
    n = np.arange(1, 5)
    expected = {
        "twice": 8,
        "counts": np.array([n, -n]),
        "x": 0.4,
        "row": np.array([1.0, 2.0, 3.0]),
        "vectors": np.column_stack([n, 10.0 * n]),
        "table": np.column_stack([n, n + 10.0, n + 20]),
        "nothing": np.zeros((2, 0, 4)),
        "covariances": np.array([[[1.0, 0], [0, 1]], [[4, 0], [0, 1]]]),
        "share": np.full(4, 0.25),
    }
    assert set(found) == {*expected, "random"}
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-14)
        assert np.asarray(found[name]).dtype == np.asarray(value).dtype
        assert np.shape(found[name]) == np.shape(value)
    assert found["random"] == transformed_data.values(library, variables, data, seed=5)["random"]
    assert found["random"] != transformed_data.values(library, variables, data, seed=6)["random"]


def test_a_split_reads_data_that_only_transformed_data_of_priors_read() -> None:
    """The program in parts does not declare them."""
    rng, n, times = np.random.default_rng(3), 500, 5
    data = {"N": n, "T": times, "t": rng.integers(1, times + 1, n), "y": rng.standard_normal(n), "typical": 2.0}
    posterior = compile_model(ROOT / "tests" / "run" / "programs" / "innovations.stan").with_data(data)
    assert "typical" not in posterior.followed[0].values.values
    assert len(posterior.split().prior().phi(points(posterior, 1)[0])) == times + 2
