"""The correction distribution, and the two acceptance rules, by quadrature."""

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import expit, hyp0f1

from stansub.acceptance.correction import Correction, correction

GRID = np.linspace(-14, 14, 14_001)


def cdf(found, x, sd):
    """Distribution function of the sum with a normal number of this sd."""
    return stats.norm.cdf((np.asarray(x)[..., np.newaxis] - found.points) / sd) @ found.masses


@pytest.mark.parametrize(("sd", "error"), [(0.3, 1e-9), (0.8, 1e-9), (1.0, 1e-7), (1.2, 3e-5)])
def test_the_sum_with_a_normal_number_is_logistic(sd, error):
    found = correction(sd)
    assert np.abs(cdf(found, GRID, sd) - expit(GRID)).max() < error
    assert found.masses.sum() == pytest.approx(1)
    assert (found.masses > 0).all()
    np.testing.assert_allclose(found.points, -found.points[::-1])
    np.testing.assert_allclose(found.masses, found.masses[::-1])


def test_neither_the_normal_number_alone_nor_one_of_another_sd_will_do():
    alone = Correction(np.zeros(1), np.ones(1))
    assert np.abs(cdf(alone, GRID, 1.0) - expit(GRID)).max() > 0.05
    assert np.abs(cdf(correction(1.0), GRID, 0.7) - expit(GRID)).max() > 0.005


def test_bounds_cut_the_logistic_distribution_into_the_masses():
    found = correction(1.0)
    cut = np.concatenate([[0.0], expit(found.bounds), [1.0]])
    np.testing.assert_allclose(np.diff(cut), found.masses, atol=1e-14)
    tail = stats.logistic.sf(found.bounds[-1])
    assert tail == pytest.approx(found.masses[-1], rel=1e-9), "far from 0 nothing is lost to rounding"


@pytest.mark.parametrize("log_ratio", [0.5, 2.0, 6.0])
def test_barker_with_noise_is_in_detailed_balance(log_ratio):
    found = correction(1.0)
    forth, back = cdf(found, [log_ratio, -log_ratio], 1.0)
    assert np.log(forth / back) == pytest.approx(log_ratio, rel=1e-4)
    alone = stats.norm.cdf([log_ratio, -log_ratio])
    assert abs(np.log(alone[0] / alone[1]) / log_ratio - 1) > 0.5


def accepted(log_ratio, sd, penalty):
    """Probability of acceptance under the penalty method, x being normal about the log ratio."""

    def integrand(x):
        return min(1.0, np.exp(x - penalty)) * stats.norm.pdf(x, log_ratio, sd)

    return integrate.quad(integrand, log_ratio - 9 * sd, log_ratio + 9 * sd, points=[penalty], limit=200)[0]


@pytest.mark.parametrize("sd", [0.3, 1.0])
@pytest.mark.parametrize("log_ratio", [0.5, 3.0])
def test_the_penalty_is_in_detailed_balance_for_a_known_variance(sd, log_ratio):
    forth, back = (accepted(sign * log_ratio, sd, sd**2 / 2) for sign in (1, -1))
    assert np.log(forth / back) == pytest.approx(log_ratio, abs=1e-6)
    forth, back = (accepted(sign * log_ratio, sd, 0.0) for sign in (1, -1))
    assert abs(np.log(forth / back) - log_ratio) > 0.02 * sd


def series(variance, n, terms=3):
    steps = variance / 2, variance**2 / (4 * (n + 1)), variance**3 / (3 * (n + 1) * (n + 3))
    return sum(steps[:terms])


@pytest.mark.parametrize(("n", "sd"), [(5, 0.3), (10, 0.6), (20, 1.0), (50, 1.2)])
def test_the_series_makes_the_penalty_of_an_estimated_variance_unbiased(n, sd):
    """E exp(-u) = exp(-sd^2 / 2), the variance being estimated from n numbers (Ceperley and Dewing 1999)."""

    def mean(terms):
        law = stats.chi2(n - 1, scale=sd**2 / (n - 1))
        return integrate.quad(lambda v: np.exp(-series(v, n, terms)) * law.pdf(v), 0, law.isf(1e-12), limit=200)[0]

    wanted = np.exp(-(sd**2) / 2)
    assert mean(3) == pytest.approx(wanted, abs=2e-4)
    assert abs(mean(1) - wanted) > 5 * abs(mean(3) - wanted)


@pytest.mark.parametrize(("n", "variance"), [(10, 0.36), (20, 1.44)])
def test_the_series_is_that_of_its_closed_form(n, variance):
    """The unbiased estimate of exp(-sd^2 / 2) is a Bessel function; its logarithm has the series."""
    closed = -np.log(hyp0f1((n - 1) / 2, -(n - 1) * variance / 4))
    assert series(variance, n) == pytest.approx(closed, rel=1e-2)
    assert abs(series(variance, n, 2) - closed) > 3 * abs(series(variance, n) - closed)
