"""Coordinates of the coefficients of a level."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.target.approximation import approximation
from stansub.target.directions import coordinates
from stansub.target.elimination import Elimination
from stansub.target.families import Poisson
from stansub.target.groupings import pairs
from stansub.target.sparse import SparsePredictors, SparseRows

Array = NDArray[np.float64]
N, J = 900, 12


def likelihood(*, missing: bool = False, nested: bool = False) -> SparsePredictors:
    """An intercept and two slopes of each level; some lack the second, or two levels have one intercept."""
    rng = np.random.default_rng(1)
    g = rng.integers(J, size=N)
    factors = np.column_stack([np.ones(N), 5 + rng.standard_normal(N), rng.standard_normal(N) - 3])
    of = np.column_stack([g // 2 if nested else g, J + g, 2 * J + g])
    has = np.ones((N, 3), bool)
    has[:, 2] = (not missing) | (rng.random(N) < 0.8)
    starts = np.concatenate([[0], np.cumsum(has.sum(axis=1))])
    numbers = sp.csr_array((factors[has], of[has], starts), shape=(N, 3 * J))
    row = SparseRows.of(np.empty((1, 0)), np.empty(0, np.int64), numbers, np.zeros(1))
    return SparsePredictors((row,), Poisson(rng.poisson(2.0, N).astype(float), np.ones(N)))


def elimination(predictors: SparsePredictors, variances: Array, share: float = 0.0) -> tuple[Elimination, Array]:
    precision = predictors.expansion(np.full(predictors.dim, 0.1)).precision
    return Elimination.of(predictors, pairs(predictors), precision, variances, share), precision.toarray()


def test_the_expansion_is_a_sum_of_squares_within_each_level() -> None:
    predictors = likelihood()
    found, precision = elimination(predictors, np.ones(3 * J))
    inverse = found.inverse(3 * J).toarray()
    turned = inverse.T @ precision @ inverse
    assert np.abs(precision - np.diag(np.diag(precision))).max() > 10
    np.testing.assert_allclose(turned, np.diag(np.diag(turned)), atol=1e-8)
    # An intercept is that at the weighted mean of the covariates: one more of each of these is as much.
    x = np.zeros(3 * J)
    x[[4, J + 4]] = [-5.0, 1.0]
    assert abs(found(x)[4]) < 0.4


def test_the_inverse_and_the_gradient() -> None:
    predictors = likelihood()
    found, _ = elimination(predictors, np.ones(3 * J))
    x, slopes = np.random.default_rng(2).standard_normal((2, 3 * J))
    np.testing.assert_allclose(found.inverse(3 * J) @ found(x), x, atol=1e-10)
    np.testing.assert_allclose(found.back(slopes) @ x, slopes @ found(x), rtol=1e-10)


@pytest.mark.parametrize(("changes", "partners"), [({"missing": True}, {1}), ({"nested": True}, {2}), ({}, {1, 2})])
def test_only_coefficients_that_the_same_observations_read(changes: dict[str, bool], partners: set[int]) -> None:
    found, _ = elimination(likelihood(**changes), np.ones(3 * J))
    assert set((found.others // J).tolist()) == partners


def test_levels_that_do_not_change_or_are_not_convex_are_left_as_they_are() -> None:
    predictors = likelihood()
    variances = np.ones(3 * J)
    variances[2 * J + 3] = 0.0
    found, precision = elimination(predictors, variances)
    assert set((found.others % J).tolist()) == set(range(J)) - {3}
    other = sp.csr_array(np.where(np.arange(3 * J) % J == 5, -1.0, 1.0) * precision)
    found = Elimination.of(predictors, pairs(predictors), other, np.ones(3 * J), 0.0)
    assert set((found.others % J).tolist()) == set(range(J)) - {5}


def test_profiles_are_those_of_the_likelihood_along_each_coordinate() -> None:
    predictors = likelihood()
    m = predictors.dim
    phis = list(0.1 + 0.05 * np.random.default_rng(3).standard_normal((40, m)))
    found, _ = approximation(predictors, phis, directions=False)
    frame, point, profiles = found.frame, found.point, found.profiles
    expansion = found.quadratic
    assert coordinates(predictors, pairs(predictors), point, expansion.precision, phis).within.shares.any()
    np.testing.assert_array_equal(profiles.places, np.arange(m))
    outward = frame.outward.toarray()
    for j, size in zip(profiles.places, profiles.sizes, strict=True):
        y = np.zeros(m)
        y[j] = 1.5 * size
        phi = point + outward @ y
        omitted = predictors.log_lik(phi) - predictors.log_lik(point) - expansion(phi) + expansion(point)
        assert profiles.value(y) == pytest.approx(omitted, rel=1e-6, abs=1e-9)
