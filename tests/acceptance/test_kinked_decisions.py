"""Exact decisions about log likelihoods with kinks: chains are at the posterior, and wrong smoothing is seen."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import arviz as az
import kinked
import numpy as np
import pytest
from numpy.typing import NDArray

from stansub.acceptance.decide import make_decider
from stansub.acceptance.stopping import Factorised, Poisson, StoppingRule
from stansub.kernels.base import BatchControl, Records
from stansub.kernels.metropolis import MetropolisHastings
from stansub.kernels.proposals import laplace_pcn
from stansub.target import observations
from stansub.target.functions import FunctionFactors
from stansub.target.observations import ObservationVariates
from stansub.target.remainders import LinearPredictors

Array = NDArray[np.float64]

N, MAX_Z, WRONG_Z = 600, 4.0, 8.0


def data() -> tuple[Array, Array]:
    return kinked.line(N, 0.5)


def log_lik(theta: Array) -> Array:
    """Of each observation, shape (..., N)."""
    x, y = data()
    return -np.abs(y - theta[..., :1] - theta[..., 1:] * x) / 0.7


def predictors() -> LinearPredictors:
    return kinked.predictors(N, 0.5)


@cache
def posterior() -> tuple[Array, Array]:
    """Mean and covariance by quadrature."""
    sd = 0.7 / np.sqrt(N)
    centre = np.array([0.5, 1.0])
    for _ in range(3):  # the grid moves to the posterior
        offsets = np.linspace(-7 * sd, 7 * sd, 301)
        grid = centre + np.stack(np.meshgrid(offsets, offsets), axis=-1).reshape(-1, 2)
        values = np.concatenate([log_lik(part).sum(-1) - 0.5 * (part**2).sum(-1) for part in np.array_split(grid, 30)])
        mass = np.exp(values - values.max())
        mass /= mass.sum()
        centre = mass @ grid
    away = grid - centre
    return centre, (away * mass[:, np.newaxis]).T @ away


def factors() -> FunctionFactors:
    return FunctionFactors(
        ["a", "b"],
        N,
        lambda theta, which: log_lik(theta)[which],
        log_density=lambda theta: -0.5 * float(theta @ theta),
        log_density_gradient=lambda theta: -theta,
        log_lik_gradient=lambda theta, which: np.zeros((len(which), 2)),
    )


def draws(rule: StoppingRule, n: int) -> tuple[Array, Records]:
    """A chain with proposals that do not depend on the state."""
    mean, covariance = posterior()
    anchor = mean + 0.3 * np.sqrt(np.diag(covariance))  # anywhere near will do
    cholesky = np.linalg.cholesky(covariance)
    variates = ObservationVariates.at(predictors(), anchor, cholesky)
    all_of_them = factors()
    decider = make_decider(all_of_them.evaluator(), all_of_them.blocks.sizes, rule, **variates.parts(all_of_them))
    decider.reset(anchor)
    kernel = MetropolisHastings(decider)
    records = Records.allocate(n, 2, kernel.stats)
    move = laplace_pcn(mean, 1.2 * cholesky, 0.0)
    kernel.batch(np.random.default_rng(6), kernel.current_state, move, records, n, BatchControl.none())
    return records.theta, records


def largest_z(theta: Array) -> float:
    """Of means and variances, in Monte Carlo standard errors."""
    mean, covariance = posterior()
    away = theta - mean
    found = []
    for values, expected in ((away, np.zeros(2)), (away**2, np.diag(covariance))):
        for one, right in zip(values.T, expected, strict=True):
            error = one.std() / np.sqrt(float(az.ess(one[np.newaxis])))
            assert error < 0.1 * np.sqrt(np.diag(covariance)).max()
            found.append(abs(one.mean() - right) / error)
    return float(max(found))


RULES = {"factorised": Factorised(), "Poisson, 1": Poisson(kappa=1.0), "Poisson, 4": Poisson(kappa=4.0)}


@pytest.mark.parametrize("rule", RULES)
def test_chains_are_at_the_posterior(rule: str) -> None:
    theta, records = draws(RULES[rule], 60_000)
    assert largest_z(theta) < MAX_Z
    assert records["accepted"].mean() > 0.1
    assert records["n_obs_used"].mean() < 0.2 * N


def flatter(common: Any) -> Any:
    """The sum of the expansions as if kinks were smoothed more widely than in each observation's expansion."""

    def of(*given: Any) -> Any:
        anchor, whitening, gradient, hessian, *rest = common(*given)
        return anchor, whitening, gradient, 0.8 * hessian, *rest

    return of


def test_another_smoothing_of_the_sum_than_of_the_observations_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observations, "_common", flatter(observations._common))
    theta, _ = draws(RULES["Poisson, 4"], 20_000)
    assert largest_z(theta) > WRONG_Z


def scaled(constants: Callable[..., Array], factor: float) -> Callable[..., Array]:
    return lambda *given, **named: factor * constants(*given, **named)


@pytest.mark.parametrize("rule", RULES)
def test_bounds_that_are_too_small_stop_the_run(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinearPredictors, "constants", scaled(LinearPredictors.constants, 0.5))
    with pytest.raises(RuntimeError, match="was proved to be at most"):
        draws(RULES[rule], 20_000)
