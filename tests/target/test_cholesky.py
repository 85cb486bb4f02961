"""Factors of precisions, and of matrices that are not quite positive definite."""

import numpy as np
import pytest
import scipy.sparse as sp

from stansub.target.cholesky import cholesky, of_metric


def _sparse(rng, dim, share=0.2):
    matrix = np.where(rng.random((dim, dim)) < share, rng.standard_normal((dim, dim)), 0.0)
    return matrix + matrix.T


@pytest.mark.parametrize("dim", [1, 2, 7, 60])
def test_a_precision_is_left_as_it_is(dim):
    rng = np.random.default_rng(dim)
    root = _sparse(rng, dim) + np.eye(dim)
    scale = 10.0 ** rng.uniform(-4, 4, dim)
    precision = (root @ root.T + 1e-3 * np.eye(dim)) * np.outer(scale, scale)
    found = cholesky(sp.csc_array(precision)).matrix()
    np.testing.assert_allclose(found / np.outer(scale, scale), precision / np.outer(scale, scale), atol=1e-9)


@pytest.mark.parametrize(("dim", "share"), [(30, 0.2), (600, 0.002)])
def test_solve(dim, share):
    rng = np.random.default_rng(1)
    root, right = _sparse(rng, dim, share) + 8 * np.eye(dim), rng.standard_normal(dim)
    precision = root @ root.T
    factor = cholesky(sp.csc_array(precision))
    np.testing.assert_allclose(factor.solve(right), np.linalg.solve(precision, right))
    assert factor.log_determinant == pytest.approx(np.linalg.slogdet(precision)[1])


@pytest.mark.parametrize("seed", range(20))
def test_an_indefinite_matrix_has_a_diagonal_added_that_stays_within_bounds(seed):
    rng = np.random.default_rng(seed)
    dim = 40
    matrix = _sparse(rng, dim)
    np.fill_diagonal(matrix, rng.uniform(-0.1, 2.0, dim))
    added = cholesky(sp.csc_array(matrix)).matrix() - matrix
    diagonal = added.diagonal().copy()
    np.fill_diagonal(added, 0.0)
    assert np.abs(added).max() < 1e-9
    assert diagonal.min() > -1e-9
    # Of the matrix that is scaled to a diagonal of 1, that of L L' is at most so much.
    size = np.abs(matrix.diagonal())
    largest = np.abs(matrix / np.sqrt(np.outer(size, size)) - np.diag(np.sign(matrix.diagonal()))).max()
    bound = 2 + dim * max(1.0, largest) ** 2
    assert np.max(diagonal / size) < bound


def test_a_small_pivot_does_not_make_the_diagonal_explode():
    """A scale near 0: little curvature on average over a few draws, and effects whose slopes depend on it."""
    dim = 21
    matrix = np.full((dim, dim), 1e-3) + np.diag(1 + 1 / np.arange(1, dim + 1) ** 2)
    matrix[0], matrix[:, 0] = 0.06, 0.06
    matrix[0, 1] = matrix[1, 0] = -0.4
    matrix[0, 0] = 0.0186
    assert np.linalg.eigvalsh(matrix).min() < -0.05
    found = cholesky(sp.csc_array(matrix)).matrix()
    assert np.linalg.eigvalsh(found).min() > 0
    assert np.max(found.diagonal() / matrix.diagonal()) < dim**2


def test_a_diagonal_of_0():
    factor = cholesky(sp.csc_array(np.zeros((3, 3))))
    assert np.isfinite(factor.matrix()).all()
    assert (np.diag(factor.matrix()) > 0).all()


def test_matrices_of_one_pattern_share_an_order():
    rng = np.random.default_rng(2)
    pattern = _sparse(rng, 40, 0.1) != 0
    factors = []
    for matrix in (pattern, pattern, _sparse(rng, 40, 0.1) != 0):
        values = np.triu(matrix * rng.uniform(0.5, 1, (40, 40)), 1)
        precision = values + values.T + 40 * np.eye(40)
        factors.append(cholesky(sp.csc_array(precision)))
        np.testing.assert_allclose(factors[-1].matrix(), precision, atol=1e-9)
    one, same, other = (factor.order for factor in factors)
    assert one is same
    assert other is not one


def test_a_metric_has_the_absolute_curvatures_of_a_mean_hessian():
    rng = np.random.default_rng(1)
    dim, scale = 40, 10.0 ** rng.uniform(-2, 2, 40)
    scaled = _sparse(rng, dim) / 3
    np.fill_diagonal(scaled, 1.0)
    values, vectors = np.linalg.eigh(scaled)
    assert values[0] < -0.1
    found = of_metric(sp.csc_array(scaled * np.outer(scale, scale))).matrix() / np.outer(scale, scale)
    np.testing.assert_allclose(found, (vectors * np.abs(values)) @ vectors.T, atol=1e-9)


@pytest.mark.parametrize("matrix", [np.diag([1.0, 4.0]), np.array([[1.0, np.nan], [np.nan, 1.0]])])
def test_a_metric_of_a_precision_or_of_no_numbers_is_that_of_the_matrix(matrix):
    for one, other in zip(of_metric(sp.csc_array(matrix)), cholesky(sp.csc_array(matrix)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_large_metric_stays_sparse():
    dim = 600
    matrix = sp.diags_array([np.full(dim - 1, -0.6), np.ones(dim), np.full(dim - 1, -0.6)], offsets=[-1, 0, 1])
    assert len(of_metric(sp.csc_array(matrix)).values) == 2 * dim - 1
