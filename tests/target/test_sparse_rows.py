"""Sparse rows beside the same as one matrix."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.errors import RunError
from stansub.target import sparse
from stansub.target.cholesky import cholesky
from stansub.target.families import Binomial, Poisson
from stansub.target.groupings import Recentred, pairs
from stansub.target.location_scale import LocationScale, NormalErrors
from stansub.target.remainders import Family
from stansub.target.rows import ColumnRows
from stansub.target.sparse import PART, Column, SparsePredictors, SparseRows, sum_of
from stansub.tuning.surrogates.starting import find_start

Array = NDArray[np.float64]
N, P, J, M = 200, 3, 12, 17
RNG = np.random.default_rng(1)


def rows(*, places: list[int], gathered: bool, constant: bool = False) -> SparseRows:
    """Some of all M places as numbers that all have, and, perhaps, one of J levels each and a slope."""
    dense = RNG.standard_normal((1 if constant else N, len(places)))
    if gathered:
        index = P + RNG.integers(J, size=(N, 1))
        found = sp.csr_array((RNG.standard_normal(N), index.ravel(), np.arange(N + 1)), shape=(N, M))
    else:
        found = sp.csr_array((N, M))
    return SparseRows.of(dense, np.array(places, np.int64), found, RNG.standard_normal(N))


def matrix(row: SparseRows) -> Array:
    found = row.gathered.toarray()
    found[:, row.places] += row.dense
    return np.asarray(found)


VARIED = [
    rows(places=[0, 1, 2], gathered=True),
    rows(places=[15], gathered=False, constant=True),
    rows(places=[], gathered=True),
    rows(places=[1, 16], gathered=False),
]


def test_expansions_about_several_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads share the points only if none of them is shared by threads itself."""
    counts = Poisson(RNG.poisson(1.0, N).astype(float), np.ones(N))
    predictors, points = SparsePredictors((VARIED[0],), counts), 0.1 * RNG.standard_normal((5, M))
    together = predictors.expansions(list(points))
    monkeypatch.setattr(sparse, "ThreadPoolExecutor", None)
    for phi, one in zip(points, together, strict=True):
        alone = predictors.expansion(phi)
        np.testing.assert_array_equal(one.point, phi)
        np.testing.assert_allclose(one.gradient, alone.gradient, rtol=1e-12)
        np.testing.assert_allclose(one.values, alone.values, rtol=1e-12)
    with pytest.raises(TypeError):
        predictors.expansions(list(points))
    with monkeypatch.context() as patch:
        patch.setattr(sparse, "PART", N - 1)
        assert len(predictors.expansions(list(points))) == 5


@pytest.mark.parametrize("row", VARIED)
@pytest.mark.parametrize("other", VARIED)
def test_products(row: SparseRows, other: SparseRows) -> None:
    change, slopes, weights = RNG.standard_normal(M), RNG.standard_normal(N), RNG.standard_normal(N)
    np.testing.assert_allclose(row(change), matrix(row) @ change, atol=1e-12)
    np.testing.assert_allclose(row.back(slopes), slopes @ matrix(row), atol=1e-12)
    expected = matrix(row).T @ (weights[:, np.newaxis] * matrix(other))
    np.testing.assert_allclose(sum_of(row.weighted(weights, other), M).toarray(), expected, atol=1e-11)


LIKELIHOODS = pytest.mark.parametrize(
    ("predictors", "family"),
    [
        (VARIED[:1], Binomial(RNG.integers(0, 2, N).astype(float), np.ones(N))),
        (VARIED[:1], Poisson(RNG.poisson(2, N).astype(float), np.ones(N))),
        (VARIED[:2], LocationScale(RNG.standard_normal(N), NormalErrors())),
    ],
)


@LIKELIHOODS
def test_an_expansion_is_of_second_order(predictors: list[SparseRows], family: Family) -> None:
    found = SparsePredictors(tuple(predictors), family, constant=3.0)
    point, direction = 0.3 * RNG.standard_normal(M), RNG.standard_normal(M)
    expansion = found.expansion(point)
    assert expansion(point) == pytest.approx(found.log_lik(point))
    errors = [abs(found.log_lik(point + h * direction) - expansion(point + h * direction)) for h in (2e-2, 1e-2, 5e-3)]
    assert np.log2(errors[0] / errors[1]) == pytest.approx(3, abs=0.4)
    assert np.log2(errors[1] / errors[2]) == pytest.approx(3, abs=0.4)


def product(precision: Array) -> Array:
    """The matrix whose factor is found."""
    factor = cholesky(sp.csc_array(precision))
    lower = sp.csc_array((factor.values, factor.rows, factor.starts), shape=precision.shape).toarray()
    assert (factor.rows[factor.starts[:-1]] == np.arange(len(precision))).all()
    found = np.empty_like(precision)
    found[np.ix_(factor.order, factor.order)] = lower @ lower.T
    return found


@LIKELIHOODS
@pytest.mark.parametrize("block", [1, 7, 64, N])
def test_blocks_of_observations_make_no_difference(
    predictors: list[SparseRows], family: Family, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stansub.target.sparse._BLOCK", block)
    found, phi = SparsePredictors(tuple(predictors), family, constant=3.0), 0.3 * RNG.standard_normal(M)
    eta = np.stack([matrix(row) @ phi + row.offset for row in predictors])
    assert found.log_lik(phi) == pytest.approx(family.log_lik(eta).sum() + 3, rel=1e-12)
    slopes = family.derivatives((1,), eta)[0]
    expected = np.sum([one @ matrix(row) for one, row in zip(slopes, predictors, strict=True)], axis=0)
    np.testing.assert_allclose(found.gradient(phi), expected, rtol=1e-11, atol=1e-11)


def test_parts_of_rows_are_not_copied() -> None:
    row = VARIED[0]
    part = row.part(slice(20, 50))
    assert part.n == 30
    np.testing.assert_array_equal(matrix(part), matrix(row)[20:50])
    for one, all_of_them in (
        (part.dense, row.dense),
        (part.columns[0].places, row.columns[0].places),
        (part.columns[0].factors, row.columns[0].factors),
    ):
        assert np.shares_memory(one, all_of_them)


@pytest.fixture
def tall() -> SparsePredictors:
    """More observations than a part has: an intercept, two covariates, of which one is 0 at first, two groupings."""
    rng, n = np.random.default_rng(8), PART + 5_000
    x = rng.standard_normal((n, 2))
    x[: PART + 100, 1] = 0.0
    dense = ColumnRows((n, 3), ((slice(0, 1), 1.0), (slice(1, 3), x)))
    levels = (3 + rng.integers(J, size=n), 3 + J + rng.integers(2, size=n))
    columns = tuple(Column(one.astype(np.int32), np.broadcast_to(1.0, n)) for one in levels)
    row = SparseRows(dense, np.arange(3), columns, np.zeros(1), n, M)
    return SparsePredictors((row,), Binomial(rng.integers(0, 2, n).astype(float), np.ones(n)).compacted())


def in_one(tall: SparsePredictors) -> SparsePredictors:
    """The same likelihood as one part in memory."""
    return tall.part(slice(0, tall.n_observations))


def test_sums_over_parts_are_those_of_all_at_once(tall: SparsePredictors) -> None:
    phi, whole = 0.3 * RNG.standard_normal(M), in_one(tall)
    value, gradient, precision = whole.expanded(phi)
    found = tall.expansion(phi)
    assert found.value == pytest.approx(value, rel=1e-12)
    assert tall.log_lik(phi) == pytest.approx(value, rel=1e-12)
    for one in (found.gradient, tall.gradient(phi)):
        np.testing.assert_allclose(one, gradient, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.precision.toarray(), precision.toarray(), rtol=1e-9, atol=1e-9)


def test_parts_by_index_are_those_by_slice(tall: SparsePredictors) -> None:
    phi, rows = 0.3 * RNG.standard_normal(M), slice(3, 1000)
    by_slice, by_index = (tall.part(one) for one in (rows, np.arange(tall.n_observations)[rows]))
    (value, gradient, precision), expected = by_index.expanded(phi), by_slice.expanded(phi)
    assert by_index.log_lik(phi) == pytest.approx(value, rel=1e-12) == pytest.approx(expected[0], rel=1e-12)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-9)
    np.testing.assert_allclose(precision.toarray(), expected[2].toarray(), rtol=1e-9)


def test_the_threads_of_a_pass_make_no_difference(tall: SparsePredictors, monkeypatch: pytest.MonkeyPatch) -> None:
    phi, found = 0.3 * RNG.standard_normal(M), []
    for threads in (1, 3):
        monkeypatch.setattr("stansub.target.sparse.THREADS", threads)
        expansion = tall.expansion(phi)
        found.append((tall.log_lik(phi), tall.gradient(phi).tobytes(), expansion.value, expansion.values.tobytes()))
    assert found[0] == found[1]


def test_what_absorbs_a_shift_suits_observations_of_all_parts(tall: SparsePredictors) -> None:
    """An intercept absorbs it, though a covariate is 0 in the first part, unless it is not 1 in the last."""
    (row,) = tall.rows
    shifts = Recentred(tall, np.zeros(M)).shifts
    assert [one.places.tolist() for one in shifts] == [list(range(3, 3 + J)), [3 + J, 4 + J]]
    for one in shifts:
        np.testing.assert_allclose(one.coefficients, [1, 0, 0], atol=1e-12)
    varied = np.ones((row.n, 1))
    varied[-1] = 2.0
    assert isinstance(row.dense, ColumnRows)
    other = replace(row, dense=replace(row.dense, runs=((slice(0, 1), varied), row.dense.runs[1])))
    left = Recentred(replace(tall, rows=(other,)), np.zeros(M)).shifts
    assert [one.by_grouping for one in left] == [True]


def test_pairs_of_all_parts(tall: SparsePredictors) -> None:
    """Crossed groupings are no pairs; two coefficients of each level are, also of those that occur late."""
    assert pairs(tall) == []
    (row,) = tall.rows
    first = row.columns[0]
    second = Column(np.where(first.places == 3, -1, first.places + J).astype(np.int32), np.ones(row.n))
    second.places[: PART + 10] = np.where(first.places[: PART + 10] == 4, -1, second.places[: PART + 10])
    second.factors[second.places < 0] = 0.0
    both = replace(tall, rows=(replace(row, columns=(first, second), dim=M + J),))
    (found,) = pairs(both)
    assert found.places.tolist() == [list(range(4, 3 + J)), list(range(4 + J, 3 + 2 * J))]
    values = RNG.standard_normal(row.n)
    expected = [values[(first.places == j) & (second.places >= 0)].sum() for j in range(4, 3 + J)]
    np.testing.assert_allclose(found.sums(both, values), expected, atol=1e-9)


def test_a_sparse_cholesky_factor() -> None:
    dense = np.diag(RNG.uniform(1, 2, 30))
    dense[0, 1:] = dense[1:, 0] = 0.1
    dense[0, 0] = 5.0
    np.testing.assert_allclose(product(dense), dense, atol=1e-12)


def test_where_a_matrix_is_not_definite_its_diagonal_alone_is_more() -> None:
    dense = np.diag([2.0, -3.0, 1.0])
    dense[0, 2] = dense[2, 0] = 0.5
    more = product(dense) - dense
    assert more[1, 1] > 3
    more[1, 1] = 0
    np.testing.assert_allclose(more, 0, atol=1e-12)


class Undefined:
    """A log density that is nowhere defined."""

    dim = 2

    def log_density_gradient(self, theta: Array) -> tuple[float, Array]:
        return -np.inf, np.zeros(2)


def test_where_nothing_is_defined_there_is_no_start() -> None:
    with pytest.raises(RunError, match="the density is not defined at any of the parameter values tried"):
        find_start(Undefined(), 2, np.random.default_rng(0))
