"""Log densities from linear predictors are those of the blocks, and have the same mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stansub.target.families import Binomial, Normal, Poisson
from stansub.target.functions import FunctionFactors
from stansub.target.gradients import Objective, Team
from stansub.target.predicted import PredictedObjective
from stansub.target.remainders import LinearPredictors
from stansub.tuning.mode import find_modes

N, DIM = 40_000, 3
STEPS = np.full(DIM, 1e-3)


def regression(name: str) -> tuple[FunctionFactors, LinearPredictors]:
    rng = np.random.default_rng(4)
    z = rng.standard_normal((N, DIM))
    eta = z @ [0.5, -0.3, 0.2] + 0.1
    families: dict[str, Any] = {
        "binomial": lambda: Binomial(rng.binomial(2, 1 / (1 + np.exp(-eta))).astype(float), np.full(N, 2.0)),
        "poisson": lambda: Poisson(rng.poisson(np.exp(eta)).astype(float), np.ones(N)),
        "normal": lambda: Normal(eta + rng.standard_normal(N), np.ones(N)),
    }
    family = families[name]()
    predictors = LinearPredictors((z,), (np.full(N, 0.1),), family)
    # a constant that the family leaves out
    factors = FunctionFactors(
        ["a", "b", "c"],
        N,
        lambda theta, which: family.log_lik(predictors.at(theta))[which] - 0.7,
        log_lik_gradient=lambda theta, which: family.gradient(predictors.at(theta))[0][which, np.newaxis] * z[which],
        log_density=lambda theta: -0.5 * float(theta @ theta),
        log_density_gradient=lambda theta: -theta,
        block_size=4000,
    )
    return factors, predictors


@pytest.mark.parametrize("name", ["binomial", "poisson", "normal"])
def test_values_gradients_and_hessians_are_those_of_the_blocks(name: str) -> None:
    factors, predictors = regression(name)
    points = np.random.default_rng(1).standard_normal((3, DIM))
    with Team(factors, threads=2) as team:
        by_blocks, predicted = Objective(team), PredictedObjective(team, predictors)
        for one, other in zip(by_blocks.many(points), predicted.many(points), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10)
        one, other = (objective.hessian(points[0], STEPS) for objective in (by_blocks, predicted))
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-3 * abs(one).max())


def test_where_it_is_not_defined() -> None:
    factors, predictors = regression("poisson")
    points = np.array([[1e6, 0.0, 0.0], [np.nan, 0.0, 0.0], [0.5, -0.3, 0.2]])
    with Team(factors) as team:
        values, gradients = PredictedObjective(team, predictors).many(points)
    assert (values[:2] == -np.inf).all()
    assert np.isnan(gradients[1]).all()
    assert np.isfinite(values[2])
    assert np.isfinite(gradients[2]).all()


def test_the_same_mode() -> None:
    factors, predictors = regression("binomial")
    plain, predicted = (find_modes(factors, np.random.default_rng(0), predictors=known) for known in (None, predictors))
    sds = np.sqrt(np.diag(plain.best.cholesky @ plain.best.cholesky.T))
    assert (np.abs(plain.best.position - predicted.best.position) < 1e-4 * sds).all()
    np.testing.assert_allclose(plain.best.cholesky, predicted.best.cholesky, rtol=1e-4, atol=1e-6)
    assert predicted.best.log_density == pytest.approx(plain.best.log_density, abs=1e-6)
