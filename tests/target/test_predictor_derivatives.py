"""Log densities from linear predictors are those of the blocks, and have the same mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stansub.target.families import Binomial, Normal, Poisson
from stansub.target.functions import FunctionFactors
from stansub.target.gradients import Objective, Team
from stansub.target.predictor_derivatives import PredictorObjective
from stansub.target.remainders import LinearPredictors
from stansub.tuning.modes.mode import find_modes

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
        log_lik_gradient=lambda theta, which: (
            family.derivatives((1,), predictors.at(theta))[0][0][which, np.newaxis] * z[which]
        ),
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
        by_blocks, predicted = Objective(team), PredictorObjective(team, predictors)
        for one, other in zip(by_blocks.many(points), predicted.many(points), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10)
        one, other = (objective.hessian(points[0], STEPS) for objective in (by_blocks, predicted))
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-3 * abs(one).max())


def test_where_it_is_not_defined() -> None:
    factors, predictors = regression("poisson")
    points = np.array([[1e6, 0.0, 0.0], [np.nan, 0.0, 0.0], [0.5, -0.3, 0.2]])
    with Team(factors) as team:
        values, gradients = PredictorObjective(team, predictors).many(points)
    assert (values[:2] == -np.inf).all()
    assert np.isnan(gradients[1]).all()
    assert np.isfinite(values[2])
    assert np.isfinite(gradients[2]).all()


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("threads", [1, 2])
def test_undefined_sums_give_no_warnings(threads: int) -> None:
    _, predictors = regression("poisson")
    far = np.array([1e308, -1e308, 1e308])
    assert not np.isfinite(predictors.gradient_at(far, threads=threads)[0])
    assert not np.isfinite(predictors.hessian_at(far, threads=threads)).all()


def test_the_same_mode() -> None:
    factors, predictors = regression("binomial")
    plain, predicted = (find_modes(factors, np.random.default_rng(0), predictors=known) for known in (None, predictors))
    sds = np.sqrt(np.diag(plain.best.cholesky @ plain.best.cholesky.T))
    assert (np.abs(plain.best.position - predicted.best.position) < 1e-4 * sds).all()
    np.testing.assert_allclose(plain.best.cholesky, predicted.best.cholesky, rtol=1e-4, atol=1e-6)
    assert predicted.best.log_density == pytest.approx(plain.best.log_density, abs=1e-6)


def test_values_alone_and_known_arguments() -> None:
    factors, predictors = regression("poisson")
    points = np.array([[0.4, -0.2, 0.1], [0.5, -0.3, 0.2], [1e6, 0.0, 0.0], [np.nan, 0.0, 0.0]])
    with Team(factors) as team:
        objective, afresh = PredictorObjective(team, predictors), PredictorObjective(team, regression("poisson")[1])
        for theta in points:
            assert objective.value(theta) == pytest.approx(objective(theta)[0], rel=1e-14)
        objective(points[1])
        np.testing.assert_array_equal(objective.hessian(points[1], STEPS), afresh.hessian(points[1], STEPS))
        # one Hessian is kept: not that of another place
        np.testing.assert_array_equal(objective.hessian(points[0], STEPS), afresh.hessian(points[0], STEPS))


def test_the_same_numbers_however_many_threads() -> None:
    found = []
    for threads in (1, 3):
        factors, predictors = regression("binomial")
        with Team(factors, threads=threads) as team:
            objective = PredictorObjective(team, predictors)
            found.append((*objective(np.ones(DIM)), objective.hessian(np.ones(DIM), STEPS)))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_how_often_all_the_data_are_read() -> None:
    """Newton steps with the Hessian itself, and no place twice."""
    factors, predictors = regression("binomial")
    passes, said = [], list[str]()

    class Counting(Binomial):
        def several(self, orders: Any, eta: Any) -> Any:
            passes.append((tuple(orders), len(eta)))
            return super().several(orders, eta)

    family = predictors.family
    assert isinstance(family, Binomial)
    counted = LinearPredictors(predictors.design, predictors.offset, Counting(family.successes, family.trials))
    found = find_modes(factors, np.random.default_rng(0), predictors=counted, starts=2, progress=said.append)
    assert said[-1] == "Curvature at the mode: a pass over all the data"
    assert sum(n for _, n in passes) <= 8 * N
    assert found.best.distance < 1e-6
