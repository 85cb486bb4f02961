"""The ridge on which stochastic-gradient Langevin dynamics goes wrong: formulas, and draws against the truth."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import quad

import stansub
from stansub import FunctionFactors

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "papers" / "sgld"))
from ridge import ALPHA, PRECISION, RATE, N, Ridge, simulated, uncorrected

RIDGE = simulated(np.random.default_rng(1))


def test_quantiles_are_those_of_the_density() -> None:
    top = RIDGE.log_posterior(np.array([0.005]))[0]

    def mass(low: float, high: float) -> float:
        return quad(lambda t: np.exp(RIDGE.log_posterior(np.array([t]))[0] - top), low, high, epsabs=1e-14)[0]

    p = np.array([1e-4, 0.004, 0.02, 0.5, 0.99])
    found = RIDGE.quantiles(p)
    assert found[0] < 0 < found[2]  # on either side of the kink
    left, right = mass(-0.01, 0.0), mass(0.0, 0.1)
    below = [mass(-0.01, q) if q < 0 else left + mass(0.0, q) for q in found]
    np.testing.assert_allclose(np.array(below) / (left + right), p, rtol=1e-6)


def test_gradients_are_those_of_the_log_density() -> None:
    target: FunctionFactors = RIDGE.target()
    for at in (-0.004, 0.011):
        theta, step = np.array([at]), 1e-6
        slope = (target.log_density(theta + step) - target.log_density(theta - step)) / (2 * step)
        everything = np.arange(N, dtype=np.int32)
        assert RIDGE.subset_log_density_gradient(theta, everything)[1][0] == pytest.approx(slope, rel=1e-6)
        assert RIDGE.slope(theta)[0] == pytest.approx(slope, rel=1e-6)
    naive = -0.5 * PRECISION * (RIDGE.y - RIDGE.x * 0.02) ** 2 + 0.5 * PRECISION * RIDGE.y**2
    np.testing.assert_allclose(RIDGE.log_lik(np.array([0.02]), np.arange(N)), naive, atol=1e-12)


def test_uncorrected_moves_are_those_of_equation_13() -> None:
    draws = uncorrected(RIDGE.langevin(), 2, np.random.default_rng(3), start=0.004)
    rng, position = np.random.default_rng(3), 0.004
    for draw in draws:
        which = rng.choice(N, N // 20, replace=False, shuffle=False)
        slope = 20 * PRECISION * (RIDGE.x * (RIDGE.y - position * RIDGE.x))[which].sum() - RATE * np.sign(position)
        position = position + 0.5 * ALPHA * slope + np.sqrt(ALPHA) * rng.standard_normal()
        assert draw == pytest.approx(position, rel=1e-9)


@pytest.mark.slow
def test_draws_are_true_with_a_test_and_not_without() -> None:
    places = RIDGE.quantiles(np.array([0.25, 0.5, 0.75]))

    def z(draws: np.ndarray) -> np.ndarray:
        below = (draws[:, np.newaxis] <= places).reshape(20, -1, 3).mean(1)
        return np.abs(below.mean(0) - [0.25, 0.5, 0.75]) / (below.std(0, ddof=1) / np.sqrt(20))

    idata = stansub.sample(
        RIDGE.target(),
        proposal=RIDGE.langevin(),
        test=stansub.Austerity(epsilon=0.1, looks=stansub.Fixed(size=N // 20)),
        control_variates=0,
        chains=1,
        iter_warmup=200,
        iter_sampling=10_000,
        inits={"theta": 0.005},
        seed=1,
        show_progress=False,
    )
    assert z(idata["posterior"]["theta"].values[0]).max() < 4
    assert z(uncorrected(RIDGE.langevin(), 10_000, np.random.default_rng(4))).max() > 6
    share = float(idata["chain_stats"]["n_obs_used"].sum()) / 10_000 / N
    assert 0.1 < share < 0.2


@pytest.mark.slow
def test_given_mini_batches_survive_a_change_of_process() -> None:
    ridge: Ridge = simulated(np.random.default_rng(1), 200)
    options = {"control_variates": 0, "chains": 1, "iter_warmup": 10, "iter_sampling": 40, "seed": 1}
    options |= {"inits": {"theta": 0.005}, "test": "exact", "show_progress": False}
    here = stansub.sample(ridge.target(), proposal=ridge.langevin(), **options)
    there = stansub.sample(ridge.target(), proposal=ridge.langevin(), executor="processes", **options)
    np.testing.assert_array_equal(here["posterior"]["theta"], there["posterior"]["theta"])
