"""Groupings, symmetries and affine coordinates of likelihoods with sparse rows."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.target.affine import AffineMap, composed
from stansub.target.families import Binomial
from stansub.target.levels import LevelRows, groupings
from stansub.target.location_scale import LocationScale, NormalErrors
from stansub.target.remainders import Family, NoPredictorsError
from stansub.target.sparse import SparsePredictors, SparseRows
from stansub.target.symmetries import Symmetry, symmetries

Array = NDArray[np.float64]
N, J, K = 120, 5, 7
RNG = np.random.default_rng(1)
G, H, X = RNG.integers(J, size=N), RNG.integers(K, size=N), RNG.standard_normal(N)


def rows(*columns: tuple[NDArray[np.int64], Array], dim: int, common: tuple[int, ...] = ()) -> SparseRows:
    places, factors = (np.stack(each, axis=1) for each in zip(*columns, strict=True))
    n = len(columns)
    gathered = sp.csr_array((factors.ravel(), places.ravel(), n * np.arange(N + 1)), shape=(N, dim))
    return SparseRows.of(np.ones((1, len(common))), np.array(common, np.int64), gathered, np.zeros(1))


def likelihood(*given: SparseRows, family: Family | None = None) -> SparsePredictors:
    y = (RNG.random(N) < 0.5).astype(float)
    return SparsePredictors(given, family or Binomial(y, np.ones(N)))


ONE = np.ones(N)
CROSSED = likelihood(rows((1 + G, ONE), (1 + J + H, ONE), (1 + J + K + H, X), dim=1 + J + 2 * K, common=(0,)))


def test_groupings() -> None:
    first, second, common = groupings(CROSSED)
    np.testing.assert_array_equal(first.places, 1 + np.arange(J)[:, np.newaxis])
    np.testing.assert_array_equal(first.of, G)
    np.testing.assert_array_equal(second.places, 1 + J + np.arange(K)[:, np.newaxis] + [0, K])
    np.testing.assert_array_equal(second.of, H)
    assert common.places.tolist() == [[0]]
    assert common.is_common


def test_a_coefficient_that_nothing_reads_is_of_no_level() -> None:
    found = groupings(likelihood(rows((2 * G, ONE), dim=2 * J)))
    np.testing.assert_array_equal(found[0].places.ravel(), 2 * np.arange(J))


def test_some_observations_of_no_level() -> None:
    gathered = sp.csr_array((ONE[:60], G[:60], np.minimum(np.arange(N + 1), 60)), shape=(N, J))
    (found,) = groupings(likelihood(SparseRows.of(np.ones((1, 0)), np.empty(0, np.int64), gathered, np.zeros(1))))
    np.testing.assert_array_equal(found.of[60:], J)
    np.testing.assert_allclose(found.sums(X), np.bincount(G[:60], X[:60], minlength=J))
    np.testing.assert_array_equal(found.among(np.arange(J) == 2), (G == 2) & (np.arange(N) < 60))


def test_teams_that_play_each_other_are_not_levels() -> None:
    everyone = np.array([(a, b) for a in range(40) for b in range(40) if a != b])
    n = len(everyone)
    gathered = sp.csr_array((np.tile([1.0, -1.0], n), everyone.ravel(), 2 * np.arange(n + 1)), shape=(n, 40))
    row = SparseRows.of(np.ones((1, 0)), np.empty(0, np.int64), gathered, np.zeros(1))
    with pytest.raises(NoPredictorsError, match="groupings or more"):
        groupings(SparsePredictors((row,), Binomial(np.ones(n), np.ones(n))))


def test_rows_of_levels() -> None:
    levels, x, slopes = groupings(CROSSED), RNG.standard_normal(CROSSED.dim), RNG.standard_normal((1, N))
    found = LevelRows.of(CROSSED, levels)
    np.testing.assert_allclose(found.at(x), CROSSED.at(x), atol=1e-12)
    for which, one in enumerate(levels):
        np.testing.assert_allclose(found.back(which, slopes), CROSSED.back(slopes)[one.places], atol=1e-12)


def test_elements_between_coefficients_of_a_level() -> None:
    second, matrix = groupings(CROSSED)[1], sp.random_array((CROSSED.dim, CROSSED.dim), density=0.5, rng=RNG).tocsr()
    whole = matrix.toarray()
    for places, block in zip(second.places, second.blocks(matrix), strict=True):
        np.testing.assert_array_equal(block, whole[np.ix_(places, places)])


def lengths(found: tuple[Symmetry, ...]) -> list[tuple[int, int]]:
    return [(np.count_nonzero(one.direction), len(one.scaled)) for one in found]


def test_shifts_change_no_predictor() -> None:
    assert lengths(symmetries(CROSSED, RNG)) == [(1 + J, 0), (1 + K, 0)]


def test_the_scale_of_an_unknown_dispersion_is_no_symmetry_of_an_outcome() -> None:
    row, scale = rows((H, ONE), dim=K + J), rows((K + G, ONE), dim=K + J)
    family = LocationScale(RNG.standard_normal(N), NormalErrors())
    assert symmetries(likelihood(row, scale, family=family), RNG) == ()


def test_a_move_along_a_scale() -> None:
    x = np.zeros(K + J)
    one = Symmetry(np.r_[np.zeros(K), np.ones(J)], np.arange(K))
    moved = one(x + 1, 0.5)
    np.testing.assert_allclose(moved, np.r_[np.full(K, np.exp(0.5)), np.full(J, 1.5)])
    assert one.log_jacobian == K


@pytest.mark.parametrize("mean", [False, True])
def test_rows_in_affine_coordinates(mean: bool) -> None:
    """Effects may have a common mean, which all observations read."""
    dim, matrix = CROSSED.dim + 1, RNG.standard_normal(CROSSED.dim)

    def phi(x: Array) -> Array:
        found = x[1:] * matrix + 0.5
        found[1 : 1 + J] += x[0] if mean else 0
        return found

    own = AffineMap.of(phi, dim)
    found = composed(CROSSED, own)
    x, slopes = RNG.standard_normal(dim), RNG.standard_normal((1, N))
    np.testing.assert_allclose(found.at(x), CROSSED.at(phi(x)), atol=1e-12)
    np.testing.assert_allclose(found.back(slopes), own.jacobian.T @ CROSSED.back(slopes), atol=1e-12)
    assert found.rows[0].places.tolist() == ([0, 1] if mean else [1])
    assert own.error(x) < 1e-14
    assert AffineMap.of(lambda at: at**2, 2).error(x[:2]) > 1e-3
