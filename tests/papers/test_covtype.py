"""What the large logistic regressions measure: errors, burn-in, shares of the data."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

RUN = Path(__file__).resolve().parents[2] / "examples" / "papers" / "covtype" / "run.py"
covtype = SimpleNamespace(**runpy.run_path(str(RUN)))


def test_errors_are_those_of_the_hyperplane() -> None:
    x, y = np.array([[1.0], [-1.0], [2.0], [-3.0]]), np.array([1, 0, 0, 0])
    theta = np.array([[0.0, 1.0], [0.0, -1.0], [10.0, 1.0]])
    assert covtype.wrong(theta, x, y).tolist() == [0.25, 0.75, 0.75]


def test_burn_in_ends_at_the_first_step_near_the_posterior_mean() -> None:
    mean, covariance = np.array([1.0, 2.0]), np.array([[4.0, 1.9], [1.9, 1.0]])
    far = mean + np.array([6.0, -3.0])  # 3 sds each way, but against the correlation
    along = mean + np.array([6.0, 3.0])
    theta = np.array([[far, far, along, far], [far, far, far, far], [mean, far, far, far]])
    assert covtype.arrivals(theta, mean, covariance).tolist() == [3, 4, 1]


def test_shares_and_passes_before_and_after() -> None:
    used = np.array([[0.1, 0.2, 0.9, 1.0], [0.5, 1.0, 1.0, 1.0]])
    walks = covtype.Walks("exact MH", None, np.zeros((2, 4, 1)), used, np.array([2, 1]))
    assert walks.share(after=False) == pytest.approx((0.1 + 0.2 + 0.5) / 3)
    assert walks.share(after=True) == pytest.approx((0.9 + 1.0 + 3.0) / 5)
    assert walks.to_arrive() == pytest.approx((0.3 + 0.5) / 2)


def test_inputs_are_scaled_by_the_training_rows() -> None:
    rng = np.random.default_rng(1)
    train, test = rng.normal(3.0, 2.0, (1000, 2)), rng.normal(5.0, 2.0, (1000, 2))
    assert covtype.scaled(train, train).std(0) == pytest.approx([0.5, 0.5])
    assert covtype.scaled(test, train).mean(0) == pytest.approx([0.5, 0.5], abs=0.1)


def test_two_sets_of_draws_differ_by_their_monte_carlo_error_unless_one_is_biased() -> None:
    rng = np.random.default_rng(2)
    one, other = rng.normal(size=(4, 500, 2)), rng.normal(size=(4, 500, 2))
    assert covtype.largest_z(one, other) < 4
    assert covtype.largest_z(one + np.array([0.0, 0.3]), other) > 6
