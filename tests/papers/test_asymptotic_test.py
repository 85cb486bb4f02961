"""The closed form of the marginal of sigma against quadrature over mu and sigma."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

RUN = Path(__file__).resolve().parents[2] / "examples" / "papers" / "asymptotic_test" / "run.py"
asymptotic = SimpleNamespace(**runpy.run_path(str(RUN)))

Y = np.random.default_rng(1).normal(3.0, 2.0, 30)


def test_marginal_of_sigma_is_the_integral_over_mu() -> None:
    truth = asymptotic.Posterior.of(Y)
    mu, sigma = np.linspace(-2.0, 8.0, 801), np.linspace(0.8, 8.0, 2001)
    squares = ((Y - mu[:, None]) ** 2).sum(1)
    joint = np.exp(-len(Y) * np.log(sigma) - squares[:, None] / (2 * sigma**2))
    marginal = joint.sum(0)
    step = sigma[1] - sigma[0]
    marginal /= marginal.sum() * step
    assert truth.density(sigma) == pytest.approx(marginal, abs=2e-4 * marginal.max())
    mean = (marginal * sigma).sum() * step
    assert truth.mean == pytest.approx(mean, rel=1e-4)
    assert truth.sd == pytest.approx(np.sqrt((marginal * (sigma - mean) ** 2).sum() * step), rel=1e-3)
    assert truth.mode == pytest.approx(sigma[np.argmax(marginal)], abs=step)


def test_highest_finds_the_mode_of_draws() -> None:
    draws = np.random.default_rng(2).normal(3.0, 0.5, 20_000)
    assert asymptotic.highest(draws) == pytest.approx(3.0, abs=0.15)


def test_the_two_data_sets_are_those_of_the_paper() -> None:
    problems = asymptotic.problems(1)
    assert problems["normal"].posterior.mean == pytest.approx(0.1, rel=0.01)
    assert np.log(problems["lognormal"].y).std() == pytest.approx(2.0, rel=0.01)
    starts = [one["sigma"] / problems["normal"].posterior.mode for one in problems["normal"].inits]
    assert min(starts) == pytest.approx(0.8)
    assert max(starts) == pytest.approx(1.25)
