"""What mini-batches do to Pólya-Gamma Gibbs sampling: predictions against chains, bounds against brute force."""

from __future__ import annotations

import runpy
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.special import expit
from scipy.stats import anderson_ksamp

from stansub.kernels.base import State
from stansub.kernels.polya_gamma import FixedSize, PolyaGammaKernel, Regression

pytest.importorskip("polyagamma", reason="the package polyagamma is missing: pip install 'stansub[papers]'")

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "papers" / "polya_gamma"
application = runpy.run_path(str(FOLDER / "run.py"))
minibatches: Any = sys.modules["minibatches"]

Array = NDArray[np.float64]
MAX_Z = 4.5
N, P = 2000, 3


def regression(n: int = N) -> Regression:
    rng = np.random.default_rng(1)
    x = np.hstack([np.ones((n, 1)), rng.normal(size=(n, P - 1))])
    y = (rng.random(n) < expit(x @ [-0.5, 1.0, -0.7])).astype(float)
    return Regression(x, y, np.zeros(P), np.eye(P) / 100)


REGRESSION = regression()
MODE = application["mode_of"](REGRESSION)
LIMIT = minibatches.Limit.at(REGRESSION, MODE)


@dataclass(frozen=True)
class Scaled(Regression):
    """The control: a mini-batch scaled by (N / m)^power; 1 is right."""

    power: float = 1.0

    def precision(self, rng: np.random.Generator, beta: Array, which: Any = None) -> Array:
        found = super().precision(rng, beta, which) - self.prior_precision
        share = 1.0 if which is None else len(which) / self.n_observations
        return found * share ** (1 - self.power) + self.prior_precision


def chain(of: Regression, share: float | None, n_steps: int = 4000) -> Array:
    """Draws, shape (n_steps, P), from the mode."""
    size = None if share is None else FixedSize(round(share * of.n_observations))
    kernel = PolyaGammaKernel(of, np.arange(P), P, size)
    rng, state, draws = np.random.default_rng(2), State(MODE), np.empty((n_steps + 100, P))
    for row in range(len(draws)):
        state, _ = kernel.step(rng, state, {})
        draws[row] = state.position
    return draws[100:]


def z_of_sds(draws: Array, share: float) -> float:
    """Largest error of an sd against the limit, in standard errors from 40 batch means of squares."""
    squares = (draws - draws.mean(axis=0)) ** 2
    batches = squares.reshape(40, -1, P).mean(axis=1)
    expected = np.diag(LIMIT.covariance(share))
    return float(np.abs((squares.mean(axis=0) - expected) / (batches.std(axis=0, ddof=1) / np.sqrt(40))).max())


@pytest.mark.parametrize("theta", [0.0, 0.03, 0.049, 0.051, 1.0, -4.0, 60.0])
def test_moments_are_derivatives_of_the_laplace_transform(theta: float) -> None:
    """E exp(-t omega) = cosh(theta / 2) / cosh(sqrt(theta^2 / 2 + t) / sqrt 2), in exact arithmetic."""
    mpmath = pytest.importorskip("mpmath", reason="mpmath is missing")
    with mpmath.workdps(60):
        half = mpmath.mpf(theta)

        def log_laplace(t: Any) -> Any:
            return mpmath.log(mpmath.cosh(half / 2) / mpmath.cosh(mpmath.sqrt((half**2 / 2 + t) / 2)))

        at = mpmath.mpf("1e-12") if theta == 0 else mpmath.mpf(0)
        first, second = (float(mpmath.diff(log_laplace, at, k, h=mpmath.mpf("1e-15"))) for k in (1, 2))
    mean, variance = minibatches.moments(np.array([theta]))
    assert mean[0] == pytest.approx(-first, rel=1e-8)
    assert variance[0] == pytest.approx(second, rel=1e-7)


def test_the_limit_with_all_the_data_is_the_posterior() -> None:
    np.testing.assert_allclose(LIMIT.covariance(1.0), np.linalg.inv(LIMIT.hessian), rtol=1e-8)
    p = expit(REGRESSION.x @ MODE)
    hessian = (REGRESSION.x * (p * (1 - p))[:, np.newaxis]).T @ REGRESSION.x + REGRESSION.prior_precision
    np.testing.assert_allclose(LIMIT.hessian, hessian, rtol=1e-10)


class TestChains:
    def test_the_exact_chain_has_the_expected_spread_and_autocorrelation(self) -> None:
        draws = chain(REGRESSION, None)
        assert z_of_sds(draws, 1.0) < MAX_Z
        assert z_of_sds(draws, 0.5) > MAX_Z
        values, vectors = eigh(LIMIT.hessian, LIMIT.precision)
        slowest = draws @ (LIMIT.precision @ vectors[:, 0])
        assert 1 - values[0] == pytest.approx(LIMIT.rate)
        assert np.corrcoef(slowest[1:], slowest[:-1])[0, 1] == pytest.approx(LIMIT.rate, abs=MAX_Z / np.sqrt(4000))

    @pytest.mark.parametrize("share", [pytest.param(0.25, marks=pytest.mark.slow), 0.5])
    def test_mini_batches_have_the_expected_spread(self, share: float) -> None:
        assert z_of_sds(chain(REGRESSION, share), share) < MAX_Z

    @pytest.mark.parametrize("power", [0.0, pytest.param(2.0, marks=pytest.mark.slow)])
    def test_wrong_scales_do_not(self, power: float) -> None:
        wrong = Scaled(REGRESSION.x, REGRESSION.y, REGRESSION.prior_mean, REGRESSION.prior_precision, power)
        assert z_of_sds(chain(wrong, 0.5, 2000), 0.5) > 2 * MAX_Z


class TestSizes:
    CONSTANTS = minibatches.constants(REGRESSION.x, MODE, N, float((REGRESSION.x**2).sum(axis=1).max()), 100.0)

    def test_the_printed_bound_fails_with_the_probability_that_was_asked_for(self) -> None:
        of, epsilon = self.CONSTANTS, 0.25
        m = minibatches.printed_size(of, epsilon)
        low = of.smallest + of.prior
        delta = low**2 * epsilon**2 / (2 * of.p * (of.largest + of.smallest / 2 + of.prior))
        scale = 1 / (of.n * m) - 1 / of.n**2
        bound = scale * of.n * of.squares + scale * of.longest**2 * of.omega * delta
        assert 2 * of.p * np.exp(-(delta**2) / 2 / bound) == pytest.approx(minibatches.FAILURE, rel=1e-3)

    def test_the_proved_bound_controls_the_precision(self) -> None:
        """Of 40 mini-batches of the size that it asks for, none is further off than the proof allows."""
        of, epsilon = self.CONSTANTS, 50.0  # it asks for nearly all of so few data for any that means something
        m = round(minibatches.proved_size(of, epsilon))
        assert P < m < 0.9 * N
        ratio = 2 * epsilon / np.sqrt(P / 2 + N * of.fit)
        delta = ratio / (1 + ratio) * (of.smallest + of.prior)
        rng = np.random.default_rng(3)
        mean, _ = minibatches.moments(REGRESSION.x @ MODE)
        whole = (REGRESSION.x * mean[:, np.newaxis]).T @ REGRESSION.x + REGRESSION.prior_precision
        batches = (rng.choice(N, m, replace=False) for _ in range(40))
        off = [np.linalg.norm(REGRESSION.precision(rng, MODE, which) - whole, 2) / N for which in batches]
        assert max(off) < delta
        assert minibatches.proved_size(of, 0.25) > 0.99 * N

    def test_the_largest_of_the_variables_stays_below(self) -> None:
        from polyagamma import random_polyagamma

        rng = np.random.default_rng(4)
        n, repeats = 500, 2000
        largest = random_polyagamma(1.0, np.zeros((repeats, n)), random_state=rng, method="devroye").max(axis=1)
        bound = minibatches.largest_omega(n, 0.1)
        exceeded = (largest > bound).mean()
        assert 0.05 < exceeded < 0.1 + MAX_Z * np.sqrt(0.09 / repeats)

    @pytest.mark.parametrize("share", [0.5, 0.9])
    def test_distance_of_a_step_is_what_was_expected(self, share: float) -> None:
        rng = np.random.default_rng(5)
        found = [minibatches.distance(rng, REGRESSION, MODE, round(share * N), n_normals=500) for _ in range(60)]
        # By Jensen's inequality the mean distance is below that of the mean square.
        expected = minibatches.expected_distance(LIMIT.pull, share)
        assert 0.6 * expected < np.mean(found) < expected + 0.02
        assert minibatches.first_order_size(LIMIT.pull, expected, N) == pytest.approx(share * N)

    def test_it_is_the_same_for_more_data_and_not_smaller(self) -> None:
        """What theorem 4.1 denies: with the same share of ten times the data a step is as far off."""
        larger = regression(10 * N)
        limit = minibatches.Limit.at(larger, application["mode_of"](larger))
        assert limit.pull == pytest.approx(LIMIT.pull, rel=0.1)
        assert limit.too_wide(0.25) == pytest.approx(LIMIT.too_wide(0.25), rel=0.05)

    def test_no_mini_batch_is_no_distance(self) -> None:
        assert minibatches.distance(np.random.default_rng(1), REGRESSION, MODE, N) == pytest.approx(0, abs=1e-9)

    def test_adaptive_sizes_are_near_those_of_all_the_data(self) -> None:
        rng = np.random.default_rng(6)
        size = minibatches.AdaptiveSize(REGRESSION.x, 0.25)
        assert np.mean([size(rng, MODE) for _ in range(20)]) == pytest.approx(LIMIT.size(0.25, N), rel=0.01)
        printed = minibatches.TheoremSize(REGRESSION.x, 0.25, longest=self.CONSTANTS.longest, eta=100.0)
        assert 0.999 * N < printed(rng, MODE) <= N


def test_anderson_darling_is_that_of_scipy() -> None:
    """Whose statistic is (A^2 - 1) / sd: linear in ours, the sd being that of the sizes alone."""
    rng = np.random.default_rng(7)
    first, second = rng.normal(size=(300, 1)), rng.normal(0.1, 1.0, (200, 1))
    ours = np.array([application["anderson"](first + shift, second) for shift in (0.0, 0.1, 0.4)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of p-values outside scipy's table
        scipys = np.array([anderson_ksamp([first[:, 0] + shift, second[:, 0]])[0] for shift in (0.0, 0.1, 0.4)])
    np.testing.assert_allclose(ours, 1 + 0.76 * scipys, atol=0.03 * ours.max())


def test_frobenius_is_zero_for_the_same_covariance_and_one_for_none() -> None:
    draws = np.random.default_rng(8).normal(size=(50, 4))
    assert application["frobenius"](draws, np.cov(draws.T)) == pytest.approx(0)
    assert application["frobenius"](np.ones((5, 4)), np.eye(4)) == pytest.approx(1)
