"""Factors of precisions, and of matrices that are not quite positive definite."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import lapack
from scipy.sparse.linalg import splu

from stansub import _loop
from stansub.target import cholesky as module
from stansub.target.cholesky import cholesky, definite_factor, order_of, pattern_of


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


@pytest.mark.parametrize("gone", [[], [0], [3, 17], range(30)])
def test_the_pattern_of_a_factor_has_a_diagonal_that_is_not_stored(gone):
    matrix = _sparse(np.random.default_rng(4), 30, 0.1) + 10.0 * np.eye(30)
    matrix[gone, gone] = 0.0
    stored = sp.csc_array(matrix)
    found = pattern_of(stored)
    for one, other in zip(found, cholesky(stored, found.order)[:2], strict=False):
        np.testing.assert_array_equal(one, other)


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


def _patterns(rng):
    """Yield patterns of banded, crossed, blockwise and other precisions, of which some have a diagonal."""
    dim = int(rng.integers(1, 6))
    yield rng.random((dim, dim)) < rng.random()
    dim = int(rng.integers(2, 120))
    yield rng.random((dim, dim)) < rng.random() ** 3
    yield np.abs(np.subtract.outer(np.arange(dim), np.arange(dim))) < rng.integers(1, 8)
    yield _crossed(rng, *rng.integers(2, 60, 2), rng.random()) != 0
    yield np.kron(np.eye(4), rng.random((15, 15)) < 0.3) != 0
    dense = np.eye(dim, dtype=bool)
    dense[rng.integers(0, dim, 3)] = True
    yield dense
    yield np.eye(dim) * rng.integers(2) != 0


def _crossed(rng, n_users, n_films, share):
    """Return the precision of crossed effects and two coefficients, which has films of any popularity."""
    rated = rng.random((n_users, n_films)) < share * rng.random(n_films)
    users, films = np.nonzero(rated)
    rows = np.hstack([np.eye(n_users)[users], np.eye(n_films)[films], rng.standard_normal((len(users), 2))])
    return rows.T @ rows + np.diag(rng.uniform(0.5, 5, rows.shape[1]))


@pytest.mark.parametrize("most_bits", [0, 10**6])
@pytest.mark.parametrize("seed", range(40))
def test_the_order_is_that_of_superlu(seed, most_bits):
    rng = np.random.default_rng(seed)
    for pattern in _patterns(rng):
        both = pattern | pattern.T if seed % 4 else pattern
        matrix = sp.csc_array(both.astype(float))
        dominant = sp.csc_array(matrix + sp.diags_array(1 + matrix.sum(axis=0)))
        whole = splu(dominant, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
        found = _loop.minimum_degree(matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32), most_bits)
        np.testing.assert_array_equal(found, np.argsort(whole.perm_c))
        np.testing.assert_array_equal(found, order_of(matrix))


@pytest.mark.parametrize(("starts", "rows"), [([], []), ([0, 2], [0]), ([0, 1], [1]), ([0, 1], [-1]), ([0, 2, 1], [0])])
def test_an_order_of_no_pattern(starts, rows):
    with pytest.raises(ValueError, match="pattern"):
        _loop.minimum_degree(np.array(starts, np.int32), np.array(rows, np.int32))


def _with_and_without_lapack(matrix, monkeypatch, least):
    """Return the factors with LAPACK for at least so many last columns, and without; and the sizes of its blocks."""
    sizes, dpftrf = [], lapack.dpftrf
    monkeypatch.setattr(lapack, "dpftrf", lambda n, *args, **options: sizes.append(n) or dpftrf(n, *args, **options))
    monkeypatch.setattr(module, "_BLOCK", least)
    one = cholesky(sp.csc_array(matrix))
    monkeypatch.setattr(module, "_BLOCK", len(matrix) + 1)
    return one, cholesky(sp.csc_array(matrix)), sizes


@pytest.mark.parametrize("seed", range(20))
def test_a_dense_block_is_factorised_by_lapack(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    matrix = _crossed(rng, 90, 40, 0.5)
    scale = 10.0 ** rng.uniform(-3, 3, len(matrix))
    one, other, sizes = _with_and_without_lapack(matrix * np.outer(scale, scale), monkeypatch, 20)
    assert len(sizes) == 1
    assert 20 <= sizes[0] < len(matrix)
    for part in ("starts", "rows", "order"):
        np.testing.assert_array_equal(getattr(one, part), getattr(other, part))
    lower, expected = (factor.lower.toarray() / scale[factor.order][:, None] for factor in (one, other))
    np.testing.assert_allclose(lower, expected, atol=1e-12 * expected.max())
    np.testing.assert_allclose(one.matrix() / np.outer(scale, scale), matrix, atol=1e-12 * matrix.max())


def test_what_is_left_is_the_schur_complement():
    matrix = _crossed(np.random.default_rng(1), 60, 20, 0.8)
    matrix /= np.sqrt(np.outer(matrix.diagonal(), matrix.diagonal()))
    lower = sp.csc_array(np.tril(matrix))
    starts, _, values, n_left = _loop.modified_cholesky(lower.indptr, lower.indices, lower.data, 5, True)
    first = len(matrix) - n_left
    assert 10 < n_left < 30

    def complement(eliminated):
        beside = matrix[first:, eliminated]
        schur = matrix[first:, first:] - beside @ np.linalg.solve(matrix[np.ix_(eliminated, eliminated)], beside.T)
        return schur[np.tril_indices(n_left)]

    found = np.zeros((n_left, n_left))
    found.T[np.triu_indices(n_left)] = values[starts[first] :]
    found = found[np.tril_indices(n_left)]
    np.testing.assert_allclose(found, complement(np.arange(first)), atol=1e-14)
    # Each column that is eliminated matters.
    for left_out in range(first):
        assert np.abs(found - complement(np.delete(np.arange(first), left_out))).max() > 1e-6


@pytest.mark.parametrize("place", ["first columns", "block", "last pivot", "no number", "singular"])
def test_a_dense_block_of_an_indefinite_matrix_is_as_without_lapack(place, monkeypatch):
    matrix = _crossed(np.random.default_rng(2), 90, 40, 0.5)
    order = order_of(sp.csc_array(matrix))
    if place == "first columns":
        matrix[order[0], order[0]] *= -1
    elif place == "no number":
        matrix[order[-3], order[-5]] = matrix[order[-5], order[-3]] = np.nan
    else:
        at = order[-20] if place == "block" else order[-1]
        others = np.delete(np.arange(len(matrix)), at)
        explained = matrix[at, others] @ np.linalg.solve(matrix[np.ix_(others, others)], matrix[others, at])
        matrix[at, at] = explained * (1 + 1e-14 if place == "singular" else 0.999)
    one, other, sizes = _with_and_without_lapack(matrix, monkeypatch, 20)
    assert bool(sizes) == (place != "first columns")
    for part, expected in zip(one, other, strict=True):
        np.testing.assert_array_equal(part, expected)
    if place != "no number":
        assert np.isfinite(one.values).all()
        assert one.is_of(sp.csc_array(matrix)) == (place == "singular")


@pytest.mark.parametrize("least", [20, 1000])
@pytest.mark.parametrize("place", ["nowhere", "first columns", "last pivot", "no number"])
def test_only_definite_matrices_have_a_definite_factor(place, least, monkeypatch):
    """With a dense block that LAPACK factorises, and without."""
    monkeypatch.setattr(module, "_BLOCK", least)
    matrix = _crossed(np.random.default_rng(2), 90, 40, 0.5)
    order = order_of(sp.csc_array(matrix))
    at = order[0 if place == "first columns" else -1]
    others = np.delete(np.arange(len(matrix)), at)
    explained = matrix[at, others] @ np.linalg.solve(matrix[np.ix_(others, others)], matrix[others, at])
    matrix[at, at] = {"nowhere": matrix[at, at], "no number": np.nan}.get(place, 0.99 * explained)
    found = definite_factor(sp.csc_array(matrix))
    assert (found is not None) == (place == "nowhere")
    if found is not None:
        np.testing.assert_array_equal(found.values, cholesky(sp.csc_array(matrix)).values)


def test_a_small_dense_block_is_not_left(monkeypatch):
    matrix = _crossed(np.random.default_rng(3), 90, 40, 0.5)
    _, _, (n_left,) = _with_and_without_lapack(matrix, monkeypatch, 20)
    for least, expected in [(n_left, [n_left]), (n_left + 1, [])]:
        one, other, sizes = _with_and_without_lapack(matrix, monkeypatch, least)
        assert sizes[:1] == expected
        assert np.array_equal(one.values, other.values) == (not expected)


def test_a_dense_precision_is_factorised_by_lapack(monkeypatch):
    root = np.random.default_rng(4).standard_normal((50, 80))
    one, _, sizes = _with_and_without_lapack(root @ root.T, monkeypatch, 20)
    assert sizes == [50]
    np.testing.assert_allclose(one.matrix(), root @ root.T, rtol=1e-12, atol=1e-12)
