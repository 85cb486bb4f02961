"""A multilevel model whose observations are in two arrays of different lengths: both are subsampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import arviz as az
import numpy as np
import pytest
from scipy import stats

import stansub
from stansub import CompiledModel, Posterior
from stansub.output.inference_data import group
from stansub.progress import Progress
from stansub.run.posteriors import make_uncut, read
from stansub.stan.recipe import PosteriorRecipe
from stansub.stan.sparse import Followed
from stansub.stan.surrogate import split
from stansub.target.remainders import NoPredictorsError

PROGRAM = Path(__file__).parent / "programs" / "two_arrays.stan"
J, SIZES, SDS, TAU = 60, {"fine": 600, "coarse": 400}, {"fine": 1.0, "coarse": 3.0}, 0.5
MAX_Z = 4.5


def simulated() -> dict[str, Any]:
    rng = np.random.default_rng(8)
    u = TAU * rng.standard_normal(J)
    data: dict[str, Any] = {"J": J}
    for name, n in SIZES.items():
        level = rng.integers(0, J, n)
        y = 0.7 + u[level] + SDS[name] * rng.standard_normal(n)
        data |= {f"N_{name}": n, f"group_{name}": level + 1, f"y_{name}": y}
    return data


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    return simulated()


@pytest.fixture(scope="module")
def program() -> CompiledModel:
    return stansub.compile_model(PROGRAM)


def uncut(program: CompiledModel, data: dict[str, Any], observations: str | None = None) -> Posterior:
    return make_uncut(read(program, data, Progress()), seed=1, observations=observations, log=Progress())[0]


def exact_means(data: dict[str, Any], names: Sequence[str] = tuple(SIZES)) -> dict[str, Any]:
    """Return posterior means given some of the arrays: normal given tau, whose own posterior is on a grid."""
    grid = np.linspace(0.001, 2.5, 800)
    rows = np.zeros((sum(SIZES[name] for name in names), 1 + J))
    rows[:, 0] = 1
    rows[np.arange(len(rows)), np.concatenate([data[f"group_{name}"] for name in names])] = 1
    y = np.concatenate([data[f"y_{name}"] for name in names])
    weights = np.concatenate([np.full(SIZES[name], 1 / SDS[name] ** 2) for name in names])
    precision, shift = rows.T @ (weights[:, np.newaxis] * rows), rows.T @ (weights * y)
    logs, means = [], []
    for tau in grid:
        prior = np.concatenate([[0.25], np.full(J, tau**-2)])
        whole = precision + np.diag(prior)
        mean = np.linalg.solve(whole, shift)
        evidence = 0.5 * (shift @ mean + np.log(prior).sum() - np.linalg.slogdet(whole)[1])
        logs.append(evidence + stats.norm.logpdf(tau))
        means.append(mean)
    mass = np.exp(np.array(logs) - max(logs))
    mass /= mass.sum()
    mean = mass @ np.array(means)
    return {"tau": mass @ grid, "mu": mean[0], "u": mean[1:]}


def test_draws_agree_with_quadrature(program: CompiledModel, data: dict[str, Any]) -> None:
    """They do not agree with the means without the second array, or with the second array twice."""
    idata = stansub.sample(program, data, seed=1, iter_warmup=300, iter_sampling=600)
    assert "surrogate transitions" in str(idata.attrs["choices"])
    assert "exact" in idata.attrs["guarantee"]
    draws = group(idata, "posterior")

    def largest_z(name: str, mean: Any) -> float:
        errors = np.asarray(az.mcse(draws[[name]], method="mean")[name])
        return float(np.abs((np.asarray(draws[name].mean(("chain", "draw"))) - mean) / errors).max())

    for name, mean in exact_means(data).items():
        assert largest_z(name, mean) < MAX_Z, name
    for wrong in (("fine",), ("fine", "coarse", "coarse")):
        assert largest_z("u", exact_means(data, wrong)["u"]) > 2 * MAX_Z


def test_observations_of_both_arrays_have_rows(program: CompiledModel, data: dict[str, Any]) -> None:
    posterior = uncut(program, data)
    assert posterior.blocks.n_observations == posterior.split().predictors.n_observations == sum(SIZES.values())
    assert posterior.sizes == ("N_fine", "N_coarse")
    again = PosteriorRecipe.of(posterior).make()
    assert again.blocks.n_observations == posterior.blocks.n_observations


def test_those_of_a_named_array_alone(program: CompiledModel, data: dict[str, Any]) -> None:
    assert uncut(program, data, "N_coarse").blocks.n_observations == SIZES["coarse"]
    posterior = uncut(program, data, "N_fine")
    assert posterior.blocks.n_observations == posterior.split().predictors.n_observations == SIZES["fine"]


def test_wrong_rows_of_the_second_array_are_refused(program: CompiledModel, data: dict[str, Any]) -> None:
    """The proof compares values and gradients with those of the program; otherwise the first array is taken alone."""
    posterior = uncut(program, data)
    assert posterior.likelihood is not None
    sums, predictors = posterior.likelihood
    wrong_group = data["group_coarse"] % J + 1
    wrong = replace(sums, values=replace(sums.values, values={**sums.values.values, "group_coarse": wrong_group}))
    followed = Followed(sums, wrong.follow())

    def gradient(theta: np.ndarray) -> Any:
        return posterior.population.evaluator().subset_log_density_gradient(theta)[1]

    with pytest.raises(NoPredictorsError, match="differs from the log density"):
        split(followed, posterior.full, posterior.points, gradient=gradient, name=posterior.name)
    split(Followed(sums, predictors), posterior.full, posterior.points, gradient=gradient, name=posterior.name)
    fallen = replace(posterior, likelihood=followed, _found={}).split()
    assert fallen.predictors.n_observations == SIZES["fine"]
