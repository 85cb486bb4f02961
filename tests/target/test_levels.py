"""Groupings, symmetries and affine coordinates of likelihoods with sparse rows."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub import _loop
from stansub.target.affine import AffineMap, composed
from stansub.target.families import Binomial
from stansub.target.levels import Grouping, LevelPasses, groupings, multiplies
from stansub.target.location_scale import LocationScale, NormalErrors
from stansub.target.programs import Code, ProgramFamily
from stansub.target.remainders import Family, NoPredictorsError
from stansub.target.sparse import SparsePredictors, SparseRows
from stansub.target.symmetries import Equivalence, Symmetry, symmetries

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
    np.testing.assert_array_equal(found.of[:60], G[:60])


def test_teams_that_play_each_other_are_not_levels() -> None:
    everyone = np.array([(a, b) for a in range(40) for b in range(40) if a != b])
    n = len(everyone)
    gathered = sp.csr_array((np.tile([1.0, -1.0], n), everyone.ravel(), 2 * np.arange(n + 1)), shape=(n, 40))
    row = SparseRows.of(np.ones((1, 0)), np.empty(0, np.int64), gathered, np.zeros(1))
    with pytest.raises(NoPredictorsError, match="groupings or more"):
        groupings(SparsePredictors((row,), Binomial(np.ones(n), np.ones(n))))


def products() -> SparsePredictors:
    """The logit of a binary outcome is e^a times another argument, for an unknown family."""
    lines = [("data", 1, 0), ("argument", 0, 0), ("exp", 1, 0), ("argument", 1, 0), ("product", 2, 3)]
    lines += [("product", 0, 4), ("log1p_exp", 4, 0), ("difference", 5, 6)]
    codes = np.array([(_loop.OPERATIONS.index(name), a, b) for name, a, b in lines], np.int32)
    data = np.stack([np.zeros(N), RNG.random(N) < 0.5])
    family = ProgramFamily(Code(np.array([0, len(lines)], np.int32), codes, np.zeros(len(lines))), 2, data)
    dim = 2 * J + K + 1
    partly = sp.csr_array((X[:90], J + G[:90], np.minimum(np.arange(N + 1), 90)), shape=(N, dim))
    other = sp.csr_array((ONE, 2 * J + H, np.arange(N + 1)), shape=(N, dim))
    second = SparseRows.of(RNG.standard_normal((N, 1)), np.array([dim - 1]), partly + other, RNG.standard_normal(N))
    return likelihood(rows((G, ONE), dim=dim), second, family=family)


PRODUCTS = products()


def test_products_of_coefficients_of_two_groupings() -> None:
    assert multiplies(PRODUCTS)
    assert not multiplies(CROSSED)


def test_products_with_common_coefficients_or_of_one_grouping() -> None:
    common = SparseRows.of(np.ones((1, 1)), np.array([2 * J + K]), PRODUCTS.rows[0].gathered * 0, np.zeros(1))
    assert not multiplies(likelihood(common, PRODUCTS.rows[1], family=PRODUCTS.family))
    own = rows((J + G, ONE), dim=PRODUCTS.dim)
    assert not multiplies(likelihood(PRODUCTS.rows[0], own, family=PRODUCTS.family))


def test_products_of_functions_of_one_argument_are_none() -> None:
    """A mean with effects of two groupings, squared: the effects add up in its logarithm."""
    lines = [("data", 1, 0), ("argument", 1, 0), ("exp", 1, 0), ("product", 2, 2), ("argument", 0, 0), ("sum", 3, 4)]
    codes = np.array([(_loop.OPERATIONS.index(name), a, b) for name, a, b in lines], np.int32)
    family = ProgramFamily(
        Code(np.array([0, len(lines)], np.int32), codes, np.zeros(len(lines))), 2, PRODUCTS.family.data
    )
    assert not multiplies(likelihood(*PRODUCTS.rows, family=family))


def checked_passes(predictors: SparsePredictors) -> None:
    """Passes agree with the likelihood as a whole, also after levels of two groupings are accepted in part."""
    levels, family = groupings(predictors), predictors.family
    passes, x = LevelPasses(predictors, levels), 0.5 * RNG.standard_normal(predictors.dim)
    passes.place(x)
    for which, one in enumerate([*levels, *levels]):
        which %= len(levels)
        values, slopes = family.gradients(predictors.at(x))
        np.testing.assert_allclose(passes.state(), [values, *slopes], rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(passes.slopes(which), predictors.back(slopes)[one.places], rtol=1e-9, atol=1e-11)
        proposed, accepted = x.copy(), RNG.random(len(one.places)) < 0.5
        proposed[one.places] += 0.3
        new_values, new_slopes = family.gradients(predictors.at(proposed))
        change, gradient = passes.propose(proposed, which)
        expected = np.bincount(one.of, new_values - values, minlength=len(one.places) + 1)[:-1]
        np.testing.assert_allclose(change, expected, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(gradient, predictors.back(new_slopes)[one.places], rtol=1e-9, atol=1e-11)
        passes.settle(which, accepted)
        x[one.places[accepted]] = proposed[one.places[accepted]]


@pytest.mark.parametrize("predictors", [CROSSED, PRODUCTS], ids=["family", "program"])
def test_passes_over_levels(predictors: SparsePredictors) -> None:
    checked_passes(predictors)


@pytest.mark.parametrize("predictors", [CROSSED, PRODUCTS], ids=["family", "program"])
def test_passes_that_accept_other_levels_fail(predictors: SparsePredictors, monkeypatch: pytest.MonkeyPatch) -> None:
    settle = LevelPasses.settle
    monkeypatch.setattr(LevelPasses, "settle", lambda self, which, accepted: settle(self, which, accepted[::-1]))
    with pytest.raises(AssertionError):
        checked_passes(predictors)


def test_evaluations_depend_on_the_coefficients_alone() -> None:
    """They are equal bit for bit, so a resumed run goes on as the run itself."""
    levels, x = groupings(PRODUCTS), RNG.standard_normal(PRODUCTS.dim)
    passes, again = LevelPasses(PRODUCTS, levels), LevelPasses(PRODUCTS, levels)
    passes.place(x)
    for which, one in enumerate(levels):
        passes.slopes(which)
        proposed, accepted = x.copy(), RNG.random(len(one.places)) < 0.5
        proposed[one.places] += 0.3
        passes.propose(proposed, which)
        passes.settle(which, accepted)
        x[one.places[accepted]] = proposed[one.places[accepted]]
    again.place(x)
    np.testing.assert_array_equal(passes.state(), again.state())


def test_levels_must_exist() -> None:
    (first, *_), of = groupings(CROSSED), np.full(N, J + 1, np.int32)
    with pytest.raises(ValueError, match="no such level"):
        LevelPasses(CROSSED, [Grouping(first.places, of)])


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


def test_coordinates_after_moves_that_change_no_log_likelihood() -> None:
    """x = scale y + shift."""
    y, scale, shift = RNG.standard_normal((3, K))
    x = np.exp(scale) * y + shift
    found = Equivalence(np.exp(scale), shift)
    np.testing.assert_allclose(found.back(x, np.arange(K)), y, rtol=1e-14)
    assert not found.is_far(x)
    assert Equivalence(np.full(K, np.exp(5.0)), shift).is_far(x)
    assert Equivalence(np.ones(K), np.full(K, 300.0)).is_far(x)


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
