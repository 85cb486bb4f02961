"""How long a falling level takes, and the functions whose risk is shown."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

RUN = Path(__file__).resolve().parents[2] / "examples" / "papers" / "decreasing_epsilon" / "run.py"
falling = SimpleNamespace(**runpy.run_path(str(RUN)))

COST = {0.0: 5e-3, 0.005: 4e-3, 0.05: 2e-3, 0.2: 1e-3}


def test_steps_of_a_level_that_hardly_falls_cost_what_a_fixed_one_does() -> None:
    assert falling.steps_within(10.0, (0.05, 0.05), COST) == pytest.approx(5000, abs=1)


def test_steps_of_a_falling_level_lie_between_those_of_its_ends() -> None:
    assert 2500 < falling.steps_within(10.0, (0.2, 0.005), COST) < 10_000


def test_steps_of_a_cost_that_is_a_power_of_the_level() -> None:
    # seconds of a step at level e: e^-1/2; on average over log e from log a to log b
    cost = {level: level**-0.5 for level in np.geomspace(0.005, 0.2, 50)}
    mean = 2 * (0.005**-0.5 - 0.2**-0.5) / np.log(0.2 / 0.005)
    assert falling.steps_within(1e6, (0.2, 0.005), cost) == pytest.approx(1e6 / mean, rel=0.05)


def test_spread_of_the_truth_is_1_and_of_draws_that_are_too_wide_more() -> None:
    draws = np.random.default_rng(1).standard_normal((2, 4000, 3)) * [1, 2, 3] + 5
    reference = {"posterior": {"beta": xr.DataArray(draws, dims=("chain", "draw", "k"))}}
    functions = falling.functions_of(reference, np.eye(3))
    np.testing.assert_allclose(functions.spread(draws.reshape(-1, 3)).mean(axis=0), functions.truths["spread"])
    wide = (draws - 5) * 1.5 + 5
    np.testing.assert_allclose(functions.spread(wide.reshape(-1, 3)).mean(axis=0), 2.25, rtol=0.05)
    expected = (1 / (1 + np.exp(-draws))).mean(axis=(0, 1))
    np.testing.assert_allclose(functions.truths["predictive"], expected)
