"""What the applications of logistic regression share: the walk's scale, errors of means, comparisons at equal times."""

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray

import stansub

PAPERS = Path(__file__).resolve().parents[2] / "examples" / "papers"
RUN = SimpleNamespace(**runpy.run_path(str(PAPERS / "random_walk_logistic" / "run.py")))
logistic, common = sys.modules["logistic"], sys.modules["common"]

Array = NDArray[np.float64]


def idata(draws: Array) -> dict[str, dict[str, xr.DataArray]]:
    return {"posterior": {"beta": xr.DataArray(draws, dims=("chain", "draw", "k"))}}


def normal(seed: int, shift: float = 0.0, *, dim: int = 40) -> dict[str, dict[str, xr.DataArray]]:
    return idata(np.random.default_rng(seed).standard_normal((4, 1000, dim)) + shift)


def unchanged(draws: Array) -> Array:
    return draws


@pytest.mark.parametrize("factor", [0.3, 1.0, 3.0])
def test_the_isotropic_walk_accepts_about_a_quarter(factor: float) -> None:
    # of a normal posterior with sds that are far apart; other scales do not
    rng = np.random.default_rng(1)
    sds = np.geomspace(0.5, 2, 50)
    draws = sds * rng.standard_normal((20_000, 50))
    proposed = draws + factor * rng.standard_normal(draws.shape) @ logistic.isotropic(draws[None]).T
    log_ratio = 0.5 * (((draws / sds) ** 2).sum(axis=1) - ((proposed / sds) ** 2).sum(axis=1))
    accepted = float(np.minimum(1, np.exp(np.minimum(log_ratio, 0))).mean())
    assert (abs(accepted - 0.234) < 0.03) == (factor == 1.0)


def test_squared_error_is_the_variance_of_a_mean() -> None:
    assert logistic.squared_error(normal(1), unchanged) == pytest.approx(1 / 4000, rel=0.1)


def test_means_agree_within_their_errors() -> None:
    assert 0.4 < logistic.agreement(normal(1), normal(2), unchanged) < 2


def test_means_that_differ_do_not_agree() -> None:
    assert logistic.agreement(normal(1), normal(2, 0.2), unchanged) > 20


def test_curves_are_compared_at_the_last_time_that_all_have_reached() -> None:
    long = common.Curve(np.array([1.0, 2.0, 4.0]), np.array([3.0, 2.0, 0.1]), np.array([0.1, 0.1, 0.1]))
    short = common.Curve(np.array([1.0, 2.0]), np.array([3.0, 1.0]), np.array([0.1, 0.1]))
    ends = logistic.ends({"long": long, "short": short})
    assert ends["long"] == (2.0, 2.0, 0.1)
    assert ends["short"].below(ends["long"])
    assert not ends["long"].below(ends["short"])


def test_a_difference_within_two_standard_errors_is_not_told() -> None:
    assert not logistic.End(1.0, 1.0, 0.2).below(logistic.End(1.0, 1.5, 0.2))


def test_without_digits_data_of_their_shape_are_simulated(tmp_path: Path) -> None:
    found = logistic.digits(common.Settings(PAPERS, False, 1, tmp_path, None))
    assert (found.real, found.x.shape, found.x_test.shape, found.y.shape) == (False, (12214, 50), (2037, 50), (12214,))
    assert set(np.unique(found.y)) == {0, 1}


def test_looks_are_counted_in_observations() -> None:
    np.testing.assert_array_equal(logistic.looks_of(500, 10).looks(160), [50, 100, 150, 160])


@pytest.mark.slow
def test_the_program_is_the_regression_that_it_says() -> None:
    model = stansub.compile_model(logistic.PROGRAM)
    rng = np.random.default_rng(2)
    x, y = rng.standard_normal((60, 3)), rng.integers(0, 2, 60)
    posterior = model.with_data(logistic.stan_data(x, y), block_size=10, seed=1)

    def log_density(beta: Array) -> float:
        return float(-0.5 * (beta**2).sum() / 0.1 - np.log1p(np.exp(-(2 * y - 1) * (x @ beta))).sum())

    one, two = rng.standard_normal((2, 3))
    difference = posterior.full.log_density(one) - posterior.full.log_density(two)
    assert difference == pytest.approx(log_density(one) - log_density(two))
