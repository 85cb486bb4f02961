"""Series whose likelihood is a sum given the data: the program over rows of data is the user's, and qualifies."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from simulated import PROGRAMS, ROOT, Compiled, simulated
from test_identity import check_identity, points

import stansub
from stansub.errors import InputError
from stansub.stan import source, transformed_data
from stansub.stan.data import data as data_module
from stansub.stan.passes.series.lags import with_lags
from stansub.stan.proof import draw_points
from stansub.stan.sparse import follow_likelihood
from stansub.stan.toolchain import build
from stansub.stan.toolchain.library import Library, Model

ERRORS = ROOT / "benchmarks" / "reach" / "programs" / "brms_ar.stan"
NAMES = "lagged", "series", "dependent", "panel"
LAGGED, SERIES, DEPENDENT, PANEL = (PROGRAMS / f"{name}.stan" for name in NAMES)


def over_rows(file: Path) -> str:
    """A program over rows of data."""
    found = with_lags(source.read(file).program)
    assert found is not None
    return found.code


def instance(file: Path, code: str) -> Model:
    """A changed program with the data of the one in a file."""
    values = data_module.read(simulated(file), source.read(file).program.data.declarations)
    return values.model(Library(build.compile_library(code, name=file.stem)))


@pytest.mark.slow
def test_many_series_over_rows_of_data() -> None:
    users, rows = (instance(SERIES, code) for code in (source.read(SERIES).program.code, over_rows(SERIES)))
    assert rows.param_names(include_tp=True, include_gq=True) == users.param_names(include_tp=True, include_gq=True)
    some = draw_points(np.random.default_rng(1), users, n_points=4)
    assert len(some) == 4
    for theta in some:
        assert rows.log_density(theta) == pytest.approx(users.log_density(theta), rel=1e-12)
        (_, found), (_, slope) = rows.log_density_gradient(theta), users.log_density_gradient(theta)
        np.testing.assert_allclose(found, slope, rtol=1e-9, atol=1e-9)
        generated = [one.param_constrain(theta, include_gq=True, rng=one.rng(1)) for one in (rows, users)]
        np.testing.assert_array_equal(*generated)


@pytest.mark.slow
def test_another_lag_is_noticed(compiled: Compiled) -> None:
    code = over_rows(LAGGED)
    assert "] = y[t - 1];" in code
    wrong = instance(LAGGED, code.replace("] = y[t - 1];", "] = y[t];"))
    model = compiled(LAGGED)
    users = model.original.model(model.read_data(simulated(LAGGED)).json())
    for theta in draw_points(np.random.default_rng(1), users, n_points=4):
        assert wrong.log_density(theta) != pytest.approx(users.log_density(theta), rel=1e-6)


@pytest.mark.slow
def test_an_autoregression_is_cut(compiled: Compiled) -> None:
    model, data = compiled(LAGGED), simulated(LAGGED)
    posterior = model.with_data(data, block_size=7, seed=3)
    assert posterior.blocks.n_observations == 52
    assert posterior.order is not None
    assert posterior.counts == ("N",)
    check_identity(posterior, model, data)
    theta, y = points(posterior, 1)[0], data["y"]
    alpha, rho, sigma = theta[0], theta[1], np.exp(theta[2])
    by_hand = -0.5 * ((y[1:] - alpha - rho * y[:-1]) / sigma) ** 2 - np.log(sigma) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(posterior.each(theta[np.newaxis], np.arange(len(by_hand)))[0], by_hand, rtol=1e-9)
    named = model.with_data(data, block_size=7, seed=3, observations="N")
    np.testing.assert_array_equal(named.order, posterior.order)
    with pytest.raises(InputError, match="those of the likelihood are rows that stansub writes"):
        posterior.constants("log_lik_lipschitz_i")


@pytest.mark.slow
def test_linear_predictors_of_an_autoregression(compiled: Compiled) -> None:
    model, data = compiled(LAGGED), simulated(LAGGED)
    posterior = model.with_data(data, block_size=1)
    predictors, theta = posterior.predictors(), points(posterior, 1)[0]
    evaluator = posterior.population.evaluator()
    change = predictors.log_lik(theta + 0.1) - predictors.log_lik(theta)
    of_blocks = evaluator.block_log_lik(theta + 0.1) - evaluator.block_log_lik(theta)
    np.testing.assert_allclose(change[posterior.order], of_blocks, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_sampling_an_autoregression() -> None:
    rng, y = np.random.default_rng(5), np.zeros(1501)
    for t in range(1, 1501):
        y[t] = 0.3 + 0.6 * y[t - 1] + rng.normal(0, 0.8)
    found = stansub.sample(LAGGED, {"N": 1501, "y": y}, seed=2, chains=2, iter_sampling=4000, show_progress=False)
    design = np.column_stack([np.ones(1500), y[:-1]])
    covariance = np.linalg.inv(design.T @ design)
    centre = covariance @ design.T @ y[1:]
    draws = np.column_stack([found.posterior[name].to_numpy().ravel() for name in ("alpha", "rho")])
    scale = 0.8 * np.sqrt(np.diag(covariance))
    assert (np.abs(draws.mean(0) - centre) < 0.15 * scale).all()
    np.testing.assert_allclose(draws.std(0), scale, rtol=0.1)
    level = found.posterior["mean_level"].to_numpy().ravel()
    np.testing.assert_allclose(level, draws[:, 0] / (1 - draws[:, 1]), rtol=1e-12)


@pytest.mark.slow
def test_a_regression_with_autoregressive_errors_is_cut(compiled: Compiled) -> None:
    model, data = compiled(ERRORS), simulated(ERRORS)
    posterior = model.with_data(data, block_size=7, seed=3)
    assert posterior.counts == ("N",)
    assert posterior.order is not None
    check_identity(posterior, model, data)
    theta, evaluator = points(posterior, 1)[0], posterior.population.evaluator()
    b, intercept, sigma, ar = theta[:2], theta[2], np.exp(theta[3]), 2 * expit(theta[4:]) - 1
    mu = intercept + (data["X"][:, 1:] - data["X"][:, 1:].mean(0)) @ b
    residuals, mean = data["Y"] - mu, mu.copy()
    for n in range(1, 64):
        for lag in range(1, data["J_lag"][n - 1] + 1):
            mean[n] += ar[lag - 1] * residuals[n - lag]
    by_hand = -0.5 * ((data["Y"] - mean) / sigma) ** 2 - np.log(sigma) - 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(posterior.each(theta[np.newaxis], np.arange(len(by_hand)))[0], by_hand, rtol=1e-9)
    parts = evaluator.global_gradient(theta) + evaluator.block_gradients(theta).sum(0)
    np.testing.assert_allclose(parts, posterior.full.log_density_gradient(theta)[1], rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stansub_lagged_Y", "stansub_lagged_Xc", "stansub_kept"])
def test_residuals_of_other_observations_are_refused(
    name: str, compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, given = compiled(ERRORS), transformed_data.values

    def changed(*args: Any, **options: Any) -> dict[str, Any]:
        found = given(*args, **options)
        return {**found, name: np.roll(found[name], 1, axis=0 if name == "stansub_kept" else 1)}

    monkeypatch.setattr(transformed_data, "values", changed)
    with pytest.raises(InputError, match="not a sum over observations"):
        model.with_data(simulated(ERRORS), block_size=8)


@pytest.mark.slow
def test_a_moving_average_is_refused(compiled: Compiled) -> None:
    with pytest.raises(InputError, match=r"residual\[n - 1\]"):
        compiled(DEPENDENT).with_data(simulated(DEPENDENT))


def test_the_first_outcomes_of_a_panel_are_a_sum_of_their_own() -> None:
    analysis = source.read(PANEL).analysis
    assert analysis.over_rows is not None
    assert analysis.counted == "stansub_t"
    assert analysis.other_sums("T") == ("stansub_t2",)
    own = analysis.likelihood_split("T", "stansub_t2").likelihood.code
    assert "stansub_y_1[stansub_i] ~ normal(" in own
    assert "stansub_y_5[stansub_i] ~ normal(" in own


@pytest.mark.slow
def test_both_sums_of_a_panel_are_followed(compiled: Compiled) -> None:
    """There are as many first outcomes as effects, whose prior belongs to no observation."""
    model, data = compiled(PANEL), simulated(PANEL)
    posterior = model.with_data(data, block_size=7, seed=3)
    assert posterior.blocks.n_observations == 120 * 5
    check_identity(posterior, model, data)
    predictors, theta = posterior.predictors(), points(posterior, 1)[0]
    evaluator = posterior.population.evaluator()
    change = predictors.log_lik(theta + 0.1) - predictors.log_lik(theta)
    number = np.empty(600, np.int64)
    number[posterior.order] = np.repeat(np.arange(len(posterior.blocks)), posterior.blocks.sizes)
    of_blocks = evaluator.block_log_lik(theta + 0.1) - evaluator.block_log_lik(theta)
    np.testing.assert_allclose(np.bincount(number, change), of_blocks, rtol=1e-9, atol=1e-9)
    found = follow_likelihood(model.analysis, posterior.known, "T")
    assert found.sums.sizes == ("stansub_t", "stansub_t2")
    assert found.predictors.n_observations == 120 * 5
    uncut = model.uncut(model.read_data(data), seed=1)
    assert uncut.blocks.n_observations == 120 * 5
    assert uncut.split().predictors.n_observations == 120 * 5
