"""Metrics of mean Hessians."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import eigh

from stansub.target import cholesky as module
from stansub.target import metric
from stansub.target.cholesky import cholesky
from stansub.target.metric import Metric

Array = NDArray[np.float64]


def mean_hessian(rng: np.random.Generator, dim: int) -> tuple[Array, Array]:
    """One with a diagonal of ones, of which some eigenvalues are negative, and what its parameters are scaled by."""
    scaled = np.where(rng.random((dim, dim)) < 0.2, rng.standard_normal((dim, dim)), 0.0) / 3
    scaled += scaled.T
    np.fill_diagonal(scaled, 1.0)
    return scaled, 10.0 ** rng.uniform(-2, 2, dim)


def crossed(rng: np.random.Generator, n_first: int, n_second: int, n_observations: int) -> sp.csc_array:
    """Precision of a mean and of crossed effects of two groupings."""
    first, second = rng.integers(n_first, size=n_observations), rng.integers(n_second, size=n_observations)
    every = np.arange(n_observations)
    columns = np.concatenate([0 * every, 1 + first, 1 + n_first + second])
    design = sp.csc_array((np.ones(3 * n_observations), (np.tile(every, 3), columns)))
    return sp.csc_array(design.T @ design + sp.diags_array(np.full(1 + n_first + n_second, 2.0)))


def condition(metric: Metric, precision: sp.csc_array) -> Any:
    """Ratio of the largest to the smallest curvature in the coordinates in which trajectories move."""
    values = eigh(precision.toarray(), metric.matrix(), eigvals_only=True)
    return values[-1] / values[0]


def test_a_metric_has_the_absolute_curvatures_of_a_mean_hessian() -> None:
    scaled, scale = mean_hessian(np.random.default_rng(1), 40)
    values, vectors = np.linalg.eigh(scaled)
    assert values[0] < -0.1
    found = Metric.of(sp.csc_array(scaled * np.outer(scale, scale))).matrix() / np.outer(scale, scale)
    np.testing.assert_allclose(found, (vectors * np.abs(values)) @ vectors.T, atol=1e-9)


@pytest.mark.parametrize("matrix", [np.diag([1.0, 4.0]), np.array([[1.0, np.nan], [np.nan, 1.0]])])
def test_a_metric_of_a_precision_or_of_no_numbers_is_that_of_the_matrix(matrix: Array) -> None:
    for one, other in zip(Metric.of(sp.csc_array(matrix)).factor, cholesky(sp.csc_array(matrix)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_large_metric_stays_sparse() -> None:
    dim = 600
    matrix = sp.diags_array([np.full(dim - 1, -0.6), np.ones(dim), np.full(dim - 1, -0.6)], offsets=[-1, 0, 1])
    assert Metric.of(sp.csc_array(matrix)).n_elements == 2 * dim - 1


def test_a_large_metric_of_a_density_that_is_flat_along_a_parameter() -> None:
    """Its mean Hessian lacks the parameter: draws were far out, where the gradient underflows."""
    flat = np.eye(600)[7]
    assert np.isfinite(Metric.of(sp.csc_array(sp.diags_array(1.0 - flat))).factor.values).all()


class TestAlongDirections:
    """Crossed effects whose factor would be dear."""

    @pytest.fixture(autouse=True)
    def dear(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "_DEAR", 1e5)
        monkeypatch.setattr(metric, "_DENSE", 300)

    def test_crossed_effects_need_few_directions(self) -> None:
        precision = crossed(np.random.default_rng(2), 250, 150, 20_000)
        found = Metric.of(precision)
        assert found.n_elements < len(cholesky(precision).values) / 5
        assert condition(found, precision) < 3
        diagonal = Metric.of_factor(cholesky(sp.csc_array(sp.diags_array(precision.diagonal()))))
        assert condition(diagonal, precision) > 50

    def test_they_have_absolute_curvatures(self) -> None:
        """A direction of negative curvature has the scale on which the density changes along it."""
        precision = crossed(np.random.default_rng(2), 250, 150, 20_000)
        along = np.random.default_rng(3).choice([-0.1, 0.1], precision.shape[0])
        scale = np.sqrt(precision.diagonal())
        bent = sp.csc_array(precision.toarray() - 3.0 * np.outer(along * scale, along * scale) / (along @ along))
        values, vectors = np.linalg.eigh(bent.toarray() / np.outer(scale, scale))
        assert values[0] < -1
        lowest, found = vectors[:, 0], Metric.of(bent).matrix() / np.outer(scale, scale)
        assert np.linalg.norm(found @ lowest - abs(values[0]) * lowest) < 0.05 * abs(values[0])

    def test_a_precision_with_many_directions_has_its_factor(self) -> None:
        places = np.linspace(0, 20, 400)
        precision = np.linalg.inv(np.exp(-(np.subtract.outer(places, places) ** 2)) + 1e-3 * np.eye(400))
        found = Metric.of(sp.csc_array(precision))
        assert not found.sds.size
        np.testing.assert_allclose(found.matrix(), precision, rtol=1e-6, atol=1e-6)
