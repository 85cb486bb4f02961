"""The expected number of observations of the sequential test, against simulation; the data that grow."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import ndtri

RUN = Path(__file__).resolve().parents[2] / "examples" / "papers" / "sublinear_logistic" / "run.py"
sublinear = SimpleNamespace(**runpy.run_path(str(RUN)))

EPSILON = 0.02


def simulated(looks: list[int], distance: float, *, replace: bool = False, n: int = 3000) -> tuple[float, float]:
    """Units that the test takes of normal populations, and the standard error of their mean."""
    rng = np.random.default_rng(1)
    n_units = looks[-1]
    early = np.array(looks[:-1])
    population = rng.standard_normal(n_units)
    population = (population - population.mean()) / population.std() + distance / np.sqrt(n_units)
    used = np.empty(n)
    for row in range(n):
        drawn = rng.choice(population, n_units, replace=replace)
        sums = np.cumsum(drawn)[early - 1]
        z = sums / np.sqrt(early) / np.sqrt(1 - (early - 1) / (n_units - 1))
        beyond = np.flatnonzero(np.abs(z) > -ndtri(EPSILON))
        used[row] = looks[beyond[0]] if beyond.size else n_units
    return float(used.mean()), float(used.std() / np.sqrt(n))


@pytest.mark.parametrize("distance", [0.0, 1.0, -3.0, 10.0])
def test_expected_units_are_those_of_simulated_tests(distance: float) -> None:
    looks = [*range(50, 500, 50), 500]
    mean, error = simulated(looks, distance)
    assert abs(sublinear.expected_units(looks, 500, EPSILON, distance) - mean) < 4 * error


def test_draws_with_replacement_are_told_apart() -> None:
    looks = [*range(50, 500, 50), 500]
    mean, error = simulated(looks, 0.0, replace=True)
    assert abs(sublinear.expected_units(looks, 500, EPSILON, 0.0) - mean) > 6 * error


def test_a_single_look_before_the_last_is_a_normal_probability() -> None:
    # z_1 ~ N(0, 1) stops with probability 2 epsilon
    assert sublinear.expected_units([40, 400], 400, EPSILON, 0.0) == pytest.approx(40 + 360 * (1 - 2 * EPSILON))


def test_the_share_falls_with_n_at_a_fixed_distance_per_observation() -> None:
    def share(n: int) -> float:
        looks = [*range(100, n, 100), n]
        return float(sublinear.expected_units(looks, n, 0.01, 0.03 * np.sqrt(n)) / n)

    shares = [share(n) for n in (1000, 10_000, 100_000)]
    assert shares[0] > 2 * shares[1] > 8 * shares[2]


def test_mode_is_where_the_gradient_vanishes() -> None:
    x, y = sublinear.simulate(2000, 1)
    mode, cholesky = sublinear.laplace(x, y)
    p = 1 / (1 + np.exp(-x @ mode))
    np.testing.assert_allclose(x.T @ (y - p) - mode / 0.1, 0, atol=1e-8)
    precision = (x * (p * (1 - p))[:, None]).T @ x + 10 * np.eye(2)
    np.testing.assert_allclose(cholesky @ cholesky.T, np.linalg.inv(precision), rtol=1e-8)


def test_smaller_data_are_the_first_rows_of_larger_ones() -> None:
    np.testing.assert_array_equal(sublinear.simulate(100, 1)[0], sublinear.simulate(300, 1)[0][:100])


def test_slope_of_a_power_is_its_exponent() -> None:
    blank = dict.fromkeys(sublinear.Point._fields, np.nan)
    points = [sublinear.Point(**{**blank, "n": n, "fixed": 3 * n**0.4}) for n in (10, 100, 1000, 10_000)]
    assert sublinear.slope(points, "fixed") == pytest.approx(0.4)
