"""Langevin moves with gradients of mini-batches: their estimates, their densities, and what is sampled with them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import toys
from numpy.typing import NDArray
from scipy.stats import multivariate_normal
from steps import allocate, run_steps

from stansub import Austerity, Exact
from stansub.acceptance.decide import Decider
from stansub.acceptance.rules import Geometric
from stansub.kernels.base import BatchControl, Records
from stansub.kernels.proposals import Proposal
from stansub.kernels.sgld import MiniBatches, Sgld
from stansub.selection import MiniBatchGradients
from stansub.target.taylor import ControlVariates, Expansion, features

Array = NDArray[np.float64]
Which = NDArray[np.int32]

RNG = np.random.default_rng(7)
X = RNG.normal(0.5, 1.0, (600, 3))
SIZES = np.ones(600, np.int32)
THETA, MODE = np.array([0.3, -0.2, 0.4]), np.array([0.02, -0.05, 0.1])
FACTOR = np.linalg.cholesky(np.linalg.inv(X.T @ X / 4 + np.eye(3) / 0.09))


class Regression:
    """Successes, a block each, on `X`, with normal(0, 0.3) priors; undefined where theta[0] is below -1."""

    def subset_log_density_gradient(self, theta: Array, which: Which) -> tuple[float, Array]:
        if theta[0] < -1:
            return -np.inf, np.full(3, np.nan)
        p = 1 / (1 + np.exp(-X[which] @ theta))
        return 0.0, (0.5 - p) @ X[which] - theta / 0.09


def full_gradient(theta: Array) -> Array:
    return Regression().subset_log_density_gradient(theta, np.arange(600, dtype=np.int32))[1]


def variates(order: int) -> ControlVariates | None:
    if not order:
        return None
    p = 1 / (1 + np.exp(-X @ MODE))
    i, j = np.tril_indices(3)
    rows = np.hstack([(0.5 - p)[:, np.newaxis] * X, -(p * (1 - p))[:, np.newaxis] * X[:, i] * X[:, j]][:order])
    return ControlVariates((Expansion(MODE, order, rows.astype(np.float32)),))


def batches(size: int | None = None, order: int = 0) -> MiniBatches:
    return MiniBatches(Regression(), SIZES, variates(order), size=size)


class InTurn:
    """A generator whose samples are the parts of a partition, one after the other."""

    def __init__(self, parts: list[Which]) -> None:
        self.parts = iter(parts)

    def choice(self, *_: object, **__: object) -> Which:
        return next(self.parts)


@pytest.mark.parametrize("order", [0, 1, 2])
class TestGradients:
    def test_all_blocks_give_the_gradient_of_the_log_density(self, order: int) -> None:
        gradient = batches(600, order).draw(np.random.default_rng(1))
        np.testing.assert_allclose(gradient(THETA), full_gradient(THETA), rtol=1e-12, atol=1e-10)

    def test_the_mean_over_a_partition_is_that_gradient(self, order: int) -> None:
        """Which it is not where the global part is scaled as well, or the blocks are not."""
        parts = np.array_split(np.random.default_rng(2).permutation(600).astype(np.int32), 20)
        made, rng = batches(30, order), InTurn(parts)
        each = np.array([made.draw(rng)(THETA) for _ in parts])  # type: ignore[arg-type]
        np.testing.assert_allclose(each.mean(0), full_gradient(THETA), rtol=1e-9, atol=1e-9)
        assert each.std(0).min() > 1e-3
        assert np.abs(THETA / 0.09).min() > 1, "the global part is seen"
        assert made.n_evaluated == 600

    def test_they_are_zero_where_they_are_not_defined(self, order: int) -> None:
        gradient = batches(30, order).draw(np.random.default_rng(1))
        np.testing.assert_array_equal(gradient(np.array([-2.0, 0.0, 0.0])), 0)


@pytest.mark.parametrize("order", [1, 2])
def test_the_gradient_of_an_expansion_is_that_of_its_change(order: int) -> None:
    made = variates(order)
    assert made is not None
    up, down = (features(made.first.anchor, MODE, THETA + h * np.eye(3), order=order) for h in (1e-5, -1e-5))
    np.testing.assert_allclose(
        made.first.gradient_of(made.first.total)(THETA), (up - down) @ made.first.total / 2e-5, rtol=1e-7
    )


def test_control_variates_leave_little_noise() -> None:
    theta = MODE + 0.2 * FACTOR @ np.ones(3)
    none, first, second = (
        np.array([batches(30, order).draw(np.random.default_rng(seed))(theta) for seed in range(100)]).std(0).max()
        for order in range(3)
    )
    assert second < first / 4 < none / 16


def test_mini_batches_have_a_size_of_their_own() -> None:
    assert batches().size == 30
    assert batches(order=2).size == 10
    assert MiniBatches(Regression(), SIZES[:50]).size == 10
    assert MiniBatches(Regression(), SIZES[:4]).size == 4
    assert batches().choice() == MiniBatchGradients(30, 600, control_variates=False)
    assert "gradients from 30 of 600 blocks a step; without control variates" in batches().choice().describe()
    assert "expansions" in batches(order=1).choice().describe()


@pytest.mark.parametrize("size", [600, 30])
def test_log_ratios_are_those_of_the_densities(size: int) -> None:
    """With the same mini-batch both ways; of all blocks the proposal is MALA."""
    proposal, covariance = Sgld(batches(size), FACTOR), FACTOR @ FACTOR.T
    position = np.array([0.1, 0.05, -0.1])
    for seed in range(20):
        proposed, ratio = proposal(np.random.default_rng(seed), position)
        rng = np.random.default_rng(seed)
        drawn = batches(size).draw(rng)
        gradient: Callable[[Array], Array] = full_gradient if size == 600 else drawn
        np.testing.assert_allclose(
            proposed, position + covariance @ gradient(position) / 2 + FACTOR @ rng.standard_normal(3), rtol=1e-9
        )

        def log_q(there: Array, here: Array, gradient: Callable[[Array], Array] = gradient) -> float:
            return float(multivariate_normal.logpdf(there, here + covariance @ gradient(here) / 2, covariance))

        assert ratio == pytest.approx(log_q(position, proposed) - log_q(proposed, position), rel=1e-8, abs=1e-8)


def test_what_is_proposed_far_away_is_rejected_without_a_fuss() -> None:
    class Steep:
        def subset_log_density_gradient(self, theta: Array, which: Which) -> tuple[float, Array]:
            return 0.0, -1e200 * theta

    ratio = Sgld(MiniBatches(Steep(), SIZES), np.eye(3))(np.random.default_rng(1), THETA)[1]
    assert ratio == -np.inf


def steps(target: Decider, proposal: Proposal, n: int) -> Records:
    records = allocate(n, target.theta.size)
    control = BatchControl(np.random.default_rng(9), 0.0, np.zeros(1, np.int32), np.zeros(4, np.int64))
    run_steps(target, proposal, np.random.default_rng(5), records, n, control)
    return records


def z_scores(values: Array, truth: Array) -> Array:
    """Errors of means, shape (n, k) of values, in Monte Carlo standard errors by batch means."""
    means = values.reshape(40, -1, values.shape[1]).mean(1)
    return np.abs(means.mean(0) - truth) / (means.std(0, ddof=1) / np.sqrt(40))


def forward_only(proposal: Sgld) -> Proposal:
    """The proposal without the density of the way back."""

    def propose(rng: np.random.Generator, position: Array) -> tuple[Array, float]:
        return proposal(rng, position)[0], 0.0

    return propose


@pytest.fixture(scope="module")
def truth() -> Array:
    """First and second moments of the logistic regression with flat priors, by quadrature about the mode."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(10)
    factor = np.linalg.cholesky(np.linalg.inv(X.T @ X / 4))
    z, weight = np.array(np.meshgrid(nodes, nodes, nodes)).reshape(3, -1).T, np.ones(1000)
    for axis in np.meshgrid(weights, weights, weights):
        weight = weight * axis.ravel()
    points = z @ factor.T
    eta = points @ X.T
    log_density = (0.5 * eta - np.logaddexp(0, eta)).sum(1)
    weight = weight * np.exp(log_density - log_density.max() + (z**2).sum(1) / 2)
    return np.asarray(weight @ np.hstack([points, points**2]) / weight.sum())


class Flat(Regression):
    """The same regression with flat priors, which is that of `toys.logistic`."""

    def subset_log_density_gradient(self, theta: Array, which: Which) -> tuple[float, Array]:
        p = 1 / (1 + np.exp(-X[which] @ theta))
        return 0.0, (0.5 - p) @ X[which]


@pytest.mark.parametrize(
    ("order", "size", "step"), [pytest.param(0, 120, 0.7, marks=pytest.mark.slow), (0, 600, 1.2), (2, 10, 1.2)]
)
def test_sampling_is_true_with_the_test_and_false_without_the_way_back(
    order: int, size: int, step: float, truth: Array
) -> None:
    factor = step * np.linalg.cholesky(np.linalg.inv(X.T @ X / 4))
    proposal = Sgld(MiniBatches(Flat(), SIZES, variates(order), size=size), factor)
    test = Austerity(epsilon=0.02, looks=Geometric(first=50)) if order else Exact()

    def moments(moves: Proposal) -> Array:
        target = toys.logistic(X, test, MODE, order=order)
        theta = steps(target, moves, 3000).theta
        return z_scores(np.hstack([theta, theta**2]), truth)

    assert moments(proposal).max() < 4
    assert moments(forward_only(proposal)).max() > 8


class Ridge:
    """L1-regularised regression through 0 with one coefficient (Korattikara et al. 2014, section 5.4)."""

    n, precision, rate, alpha = 10_000, 3.0, 4950.0, 5e-6

    def __init__(self) -> None:
        x, noise = np.linspace(-1, 1, self.n), np.random.default_rng(3).normal(0, np.sqrt(1 / 3), self.n)
        # The mode is where it is by hairs: least squares give 0.5 exactly.
        noise -= x * (x @ noise) / (x @ x)
        self.xx, self.xy = x**2, x * (0.5 * x + noise)

    def subset_log_density_gradient(self, theta: Array, which: Which) -> tuple[float, Array]:
        slope = self.precision * (self.xy[which].sum() - theta * self.xx[which].sum())
        return 0.0, slope - self.rate * np.sign(theta)

    def blocks(self, theta: Array, which: Which) -> Array:
        fit = -0.5 * self.precision * (self.xx[which] * theta[0] ** 2 - 2 * self.xy[which] * theta[0])
        return np.asarray(fit - self.rate / self.n * abs(theta[0]))

    def exact(self, places: Array) -> Array:
        """Distribution function at the places, of the posterior to the right of the valley, where nearly all is."""
        grid = np.linspace(0, 0.1, 100_001)
        fit = -0.5 * self.precision * (self.xx.sum() * grid**2 - 2 * self.xy.sum() * grid) - self.rate * grid
        weight = np.cumsum(np.exp(fit - fit.max()))
        return np.asarray(np.interp(places, grid, weight / weight[-1]))


@pytest.mark.slow
def test_a_sharp_ridge_throws_langevin_moves_off_unless_they_are_tested() -> None:
    """Without a test too much lies far to the right of the mode (figure 8), with one as much as should."""
    ridge, places = Ridge(), np.array([0.005, 0.01, 0.02, 0.03])
    proposal = Sgld(MiniBatches(ridge, np.ones(ridge.n, np.int32), size=500), np.sqrt([[ridge.alpha]]))
    test = Austerity(epsilon=0.1, looks=Geometric(first=500))
    corrected = steps(toys.decider(1, ridge.blocks, n_blocks=ridge.n, test=test), proposal, 10_000)
    truth = ridge.exact(places)

    rng, position = np.random.default_rng(6), np.zeros(1)
    free = np.empty((10_000, 1))
    for row in free:
        position = row[:] = proposal(rng, position)[0]

    tail = places[-1]
    assert 0.005 < 1 - truth[-1] < 0.03
    assert z_scores((corrected.theta <= places).astype(float), truth).max() < 4
    assert z_scores((free <= places).astype(float), truth).max() > 8
    assert (free > tail).mean() > 3 * (1 - truth[-1])
    assert corrected["n_obs_used"].mean() < 0.3 * ridge.n
