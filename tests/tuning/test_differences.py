"""Hessians by differences of gradients, and metrics from them."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import eigh

from stansub.target import cholesky, metric
from stansub.tuning.surrogates.differences import Differences
from stansub.tuning.surrogates.interactions import interactions

Array = NDArray[np.float64]


class Arrow:
    """A log density of two parameters that interact with all others, which interact with their neighbours."""

    dim = 40

    def __init__(self) -> None:
        rng = np.random.default_rng(2)
        self.matrix = np.diag(rng.uniform(3, 4, self.dim)) + np.diag(np.full(self.dim - 1, 0.5), 1)
        self.matrix[:2] += rng.standard_normal((2, self.dim))
        self.matrix = self.matrix + self.matrix.T
        self.n_gradients = 0

    def log_density_gradient(self, theta: Array) -> tuple[float, Array]:
        self.n_gradients += 1
        return 0.0, -self.matrix @ theta - 4 * theta**3


def test_hessians_take_few_gradients() -> None:
    density, rng = Arrow(), np.random.default_rng(3)
    differences = Differences(interactions(density, rng.standard_normal(density.dim)))
    assert density.n_gradients == 1 + density.dim
    theta = rng.standard_normal(density.dim)
    expected = density.matrix + np.diag(12 * theta**2)
    # A forward difference is off by half the third derivative, 24 theta, times the step.
    error = 1e-5 + np.diag(1.01 * 12e-4 * np.abs(theta))
    assert (np.abs(differences(density, theta).toarray() - expected) <= error).all()
    assert density.n_gradients - 1 - density.dim == differences.n_gradients <= 1 + 2 + 5


class Crossed:
    """A log density in which each of 30 parameters interacts with many of 10 others, and with one of the 30."""

    dim = 40

    def __init__(self) -> None:
        rng = np.random.default_rng(4)
        own = np.diag(rng.uniform(30, 40, self.dim)) + np.diag(np.arange(self.dim - 1) % 2 == 0, 1)
        own[30:, 30:] = np.diag(np.diag(own)[30:])
        own[:30, 30:] = rng.standard_normal((30, 10)) * (rng.random((30, 10)) < 0.6)
        mixed = rng.permutation(self.dim)
        self.matrix = (own + own.T)[np.ix_(mixed, mixed)]

    def log_density_gradient(self, theta: Array) -> tuple[float, Array]:
        return 0.0, -self.matrix @ theta


def test_the_smaller_of_two_crossed_groupings_has_differences_of_its_own() -> None:
    density = Crossed()
    differences = Differences(interactions(density, np.zeros(density.dim)))
    np.testing.assert_allclose(differences(density, np.zeros(density.dim)).toarray(), density.matrix, atol=1e-8)
    assert differences.n_gradients == 1 + 10 + 2


class Shifted(Crossed):
    """The same with weak interactions of all parameters, as of corrections that read a mean of all."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = self.matrix + 1e-3


def test_interactions_are_those_of_the_density_that_determined_them() -> None:
    plain, theta = Crossed(), np.zeros(Crossed.dim)
    differences = Differences(interactions(plain, theta))
    found = differences(Shifted(), theta).toarray()
    assert (found[plain.matrix == 0] == 0).all()
    np.testing.assert_allclose(found, plain.matrix, atol=0.05)


@pytest.mark.parametrize(
    ("n_gradients", "kept"), [(1, [0, 1, 2, 3]), (250, [0, 1, 2, 3]), (251, [0, 2, 3]), (500, [0, 3]), (5000, [3])]
)
def test_a_hessian_of_many_gradients_is_averaged_over_fewer_draws(n_gradients: int, kept: list[float]) -> None:
    class Counted(Differences):
        @property
        def n_gradients(self) -> int:
            return n_gradients

    density, points = Arrow(), np.arange(4.0)[:, np.newaxis] * np.ones(Arrow.dim)
    found = Counted(interactions(density, points[0])).mean(density, points)
    np.testing.assert_allclose(found.diagonal(), density.matrix.diagonal() + 12 * np.mean(np.square(kept)), rtol=1e-3)


class TestProducts:
    """Metrics of crossed effects, as if their factor were dear."""

    @pytest.fixture(autouse=True)
    def dear(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cholesky, "_DEAR", 0.0)
        monkeypatch.setattr(metric, "_DENSE", 0)

    def test_metrics_take_fewer_gradients_than_hessians(self) -> None:
        """They are of the mean over draws."""
        density, points = Bent(), np.random.default_rng(5).uniform(-1, 1, (4, Bent.dim))
        differences = Differences(interactions(density, points[0]))
        density.n_gradients = 0
        found = differences.metric(density, points)
        assert density.n_gradients < len(points) * differences.n_gradients / 2
        mean = density.matrix + np.diag(12 * np.mean(points**2, axis=0))
        np.testing.assert_allclose(found.factor.values**2, mean.diagonal(), rtol=1e-3)
        assert condition(found.matrix(), mean) < 3 < 20 < condition(np.diag(mean.diagonal()), mean)

    def test_hessians_are_used_where_directions_are_many(self) -> None:
        density, theta, places = Bent(), np.zeros(Bent.dim), np.linspace(0, 20, Bent.dim)
        correlations = np.exp(-(np.subtract.outer(places, places) ** 2) / 2) + 1e-3 * np.eye(density.dim)
        density.matrix = np.linalg.inv(correlations)
        found = Differences(interactions(density, theta)).metric(density, theta[np.newaxis])
        assert not found.sds.size
        np.testing.assert_allclose(found.matrix(), density.matrix, rtol=1e-4, atol=1e-3)


class Bent:
    """A log density of effects of 300 and 100 levels, a quarter of whose pairs interact, and of their mean."""

    dim = 401

    def __init__(self) -> None:
        rng = np.random.default_rng(6)
        counts = rng.poisson(0.3, (300, 100)).astype(float)
        ones = np.vstack([counts.sum(axis=1, keepdims=True), counts.sum(axis=0)[:, np.newaxis]])
        effects = np.block([[np.diag(counts.sum(axis=1)), counts], [counts.T, np.diag(counts.sum(axis=0))]])
        self.matrix = np.block([[counts.sum(keepdims=True), ones.T], [ones, effects]]) + 2 * np.eye(self.dim)
        self.n_gradients = 0

    def log_density_gradient(self, theta: Array) -> tuple[float, Array]:
        self.n_gradients += 1
        return 0.0, -self.matrix @ theta - 4 * theta**3


def condition(found: Array, precision: Array) -> float:
    """Ratio of the largest to the smallest curvature in the coordinates in which trajectories move."""
    values = eigh(precision, found, eigvals_only=True)
    return float(values[-1] / values[0])
