"""Missing values that are parameters: the program by observations is the user's; a wrong list is refused."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import arviz as az
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import minimize
from simulated import PROGRAMS, ROOT, Compiled, Data, brms_missing, simulated
from test_identity import check_identity, points

import stansub
from stansub.errors import InputError
from stansub.stan import source, transformed_data
from stansub.stan.analysis import Analysis
from stansub.stan.data import data as data_module
from stansub.stan.passes.scatter import observation_by_observation
from stansub.stan.proof import draw_points
from stansub.stan.syntax import parse
from stansub.stan.toolchain import build
from stansub.stan.toolchain.library import Library, Model
from stansub.types import FloatArray

MISSING = PROGRAMS / "missing_values.stan"
BRMS = ROOT / "benchmarks" / "reach" / "programs" / "brms_missing.stan"

pytestmark = pytest.mark.slow


def instance(code: str) -> Model:
    """A program with the data of that with missing values."""
    values = data_module.read(simulated(MISSING), source.read(MISSING).program.data.declarations)
    return values.model(Library(build.compile_library(code, name=MISSING.stem)))


def test_all_ways_to_fill_in() -> None:
    program = source.read(MISSING).program
    derived = observation_by_observation(program)
    assert derived is not None
    users, written = instance(program.code), instance(derived.code)
    assert written.param_names(include_tp=True, include_gq=True) == users.param_names(include_tp=True, include_gq=True)
    some = draw_points(np.random.default_rng(1), users, n_points=4)
    assert len(some) == 4
    for theta in some:
        assert written.log_density(theta) == pytest.approx(users.log_density(theta), rel=1e-12)
        (_, found), (_, slope) = written.log_density_gradient(theta), users.log_density_gradient(theta)
        np.testing.assert_allclose(found, slope, rtol=1e-9, atol=1e-9)
        generated = [
            one.param_constrain(theta, include_tp=True, include_gq=True, rng=one.rng(1)) for one in (written, users)
        ]
        np.testing.assert_array_equal(*generated)


def test_several_lists_are_cut(compiled: Compiled) -> None:
    model, data = compiled(MISSING), simulated(MISSING)
    posterior = model.with_data(data, block_size=7, seed=3)
    assert posterior.blocks.n_observations == 83
    assert posterior.population.alone
    assert posterior.order is not None
    check_identity(posterior, model, data)
    theta = points(posterior, 1)[0]
    evaluator, (_, slope) = posterior.population.evaluator(), posterior.full.log_density_gradient(theta)
    parts = evaluator.global_gradient(theta) + evaluator.block_gradients(theta).sum(0)
    np.testing.assert_allclose(parts, slope, rtol=1e-9, atol=1e-9)


def test_a_likelihood_with_missing_values(compiled: Compiled) -> None:
    model, data = compiled(BRMS), simulated(BRMS)
    posterior = model.with_data(data, block_size=5, seed=3)
    assert posterior.counts == ("N",)
    check_identity(posterior, model, data)
    theta, x = points(posterior, 1)[0], data["Y_x"].copy()
    a, b, log_s, centre, log_spread = theta[[0, 1, 2, -2, -1]]
    x[data["Jmi_x"] - 1] = theta[3:-2]
    by_hand = stats.norm.logpdf(data["Y_y"], a + b * x, np.exp(log_s)) + stats.norm.logpdf(
        x, centre, np.exp(log_spread)
    )
    np.testing.assert_allclose(posterior.each(theta[np.newaxis], np.arange(len(by_hand)))[0], by_hand, rtol=1e-9)


def test_observations_that_transformed_data_count(compiled: Compiled) -> None:
    """As where an outcome is put together from observed and missing values."""
    program = parse("data {\n  int N_seen;\n  vector[N_seen] y;\n}\ntransformed data {\n  int N = N_seen + 2;\n}\n")
    posterior = replace(compiled(BRMS).with_data(simulated(BRMS)), analysis=Analysis.of(program))
    assert posterior.counts == ("N",)
    assert replace(posterior, sizes=("stansub_t",)).counts == ("N_seen",)


def exchanged(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Two missing values, each in the place of the other."""
    found, (one, other) = places.copy(), np.flatnonzero(places)[:2]
    found.flat[[one, other]] = places.flat[[other, one]]
    return found


def forgotten(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """A missing value that is put nowhere."""
    found = places.copy()
    found.flat[np.flatnonzero(places)[-1]] = 0
    return found


def moved(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Missing values of the observation before."""
    return np.roll(places, 1, axis=0)


@pytest.mark.parametrize("wrong", [exchanged, forgotten, moved])
@pytest.mark.parametrize(
    ("file", "name"),
    [(BRMS, "stansub_place_1"), *((MISSING, f"stansub_place_{k}") for k in (2, 3, 4))],
    ids=lambda value: getattr(value, "stem", value),
)
def test_a_wrong_inverse_is_refused(
    file: Path,
    name: str,
    wrong: Callable[[NDArray[np.int64]], NDArray[np.int64]],
    compiled: Compiled,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, given = compiled(file), transformed_data.values

    def changed(*args: Any, **options: Any) -> dict[str, Any]:
        found = given(*args, **options)
        return {**found, name: wrong(found[name])}

    monkeypatch.setattr(transformed_data, "values", changed)
    with pytest.raises(InputError, match="not a sum over observations"):
        model.with_data(simulated(file), block_size=8)


def log_marginal(theta: FloatArray, data: Data) -> FloatArray:
    """The log density of all but the missing values, which are integrated out; theta has shape (5, ...)."""
    a, b, log_s, centre, log_spread = theta[..., np.newaxis]
    s, spread, x, y = np.exp(log_s), np.exp(log_spread), data["Y_x"], data["Y_y"]
    gone = np.isin(np.arange(len(x)), data["Jmi_x"] - 1)
    both = stats.norm.logpdf(y, a + b * x, s) + stats.norm.logpdf(x, centre, spread)
    alone = stats.norm.logpdf(y, a + b * centre, np.hypot(s, b * spread))
    priors = stats.t.logpdf(np.stack([a, s, centre, spread]), 3, 0, 2.5).sum(0) + stats.norm.logpdf(b, 0, 2)
    return np.where(gone, alone, both).sum(-1) + (priors + log_s + log_spread)[..., 0]


def truth(data: Data) -> tuple[FloatArray, FloatArray, float]:
    """Means and sds by importance sampling, missing values by theirs given the others; its effective sample size."""
    rng, n = np.random.default_rng(1), 20_000
    seen = np.delete(np.arange(data["N"]), data["Jmi_x"] - 1)
    start = np.array([0.5, 0.7, np.log(0.5), data["Y_x"][seen].mean(), np.log(data["Y_x"][seen].std())])
    mode = minimize(lambda theta: -log_marginal(theta, data), start)
    centre, covariance = mode.x, mode.hess_inv
    for _ in range(2):  # the first makes a better proposal
        z = rng.standard_normal((n, 5)) / np.sqrt(rng.chisquare(8, n) / 8)[:, np.newaxis]
        theta = centre + z @ np.linalg.cholesky(covariance).T
        log_weights = np.concatenate([log_marginal(part.T, data) for part in np.array_split(theta, 50)])
        weights = np.exp(log_weights + 6.5 * np.log1p((z**2).sum(1) / 8) - log_weights.max())
        weights /= weights.sum()
        centre, covariance = weights @ theta, np.cov(theta.T, aweights=weights)
    a, b, log_s, centre, log_spread = theta.T[..., np.newaxis]
    of_y, of_x = np.exp(-2 * log_s), np.exp(-2 * log_spread)
    variance = 1 / (b**2 * of_y + of_x)
    missing = variance * (b * of_y * (data["Y_y"][data["Jmi_x"] - 1] - a) + of_x * centre)
    means = np.concatenate([theta[:, :3], missing, theta[:, 3:]], 1)
    within = np.concatenate([0 * theta[:, :3], np.broadcast_to(variance, missing.shape), 0 * theta[:, 3:]], 1)
    mean = weights @ means
    return mean, np.sqrt(weights @ ((means - mean) ** 2 + within)), float(1 / (weights**2).sum())


def test_sampling_with_missing_values(compiled: Compiled) -> None:
    rng = np.random.default_rng(7)
    data = brms_missing(rng, 1500, 12)
    posterior = compiled(BRMS).with_data(data)
    idata = stansub.sample(posterior, test="exact", seed=2, chains=2, iter_sampling=4000, show_progress=False)
    assert list(idata.posterior.data_vars)[:4] == ["Intercept_y", "bsp_y", "sigma_y", "Ymi_x"]
    assert {"lprior", "b_y_Intercept"} <= set(idata.posterior.data_vars)
    draws = np.asarray(idata["unconstrained_posterior"]["theta"])
    ess = np.array([min(az.ess(one), az.ess((one - one.mean()) ** 2)) for one in np.moveaxis(draws, -1, 0)])

    def worst(given: Data) -> float:
        mean, sd, n_weighted = truth(given)
        error = np.sqrt(1 / ess + 1 / n_weighted)
        of_means, of_sds = draws.mean((0, 1)) - mean, draws.std((0, 1)) - sd
        return float(np.abs(np.stack([of_means, of_sds]) / sd / error).max())

    assert worst(data) < 4.5
    assert worst({**data, "Jmi_x": np.roll(data["Jmi_x"], 1)}) > 20
