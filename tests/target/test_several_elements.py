"""Rows that read several elements of one variable, beside the same rows as one matrix."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit

from stansub._loop import SurrogateDecider
from stansub.errors import RunError
from stansub.target import group_candidates
from stansub.target.approximation import approximation
from stansub.target.elimination import Elimination
from stansub.target.families import Binomial
from stansub.target.group_candidates import _lengths, _whitening, furthest, grouped
from stansub.target.groupings import Recentred, pairs
from stansub.target.levels import LevelPasses, groupings
from stansub.target.location_scale import LocationScale, NormalErrors
from stansub.target.remainders import Family
from stansub.target.sparse import Column, SparsePredictors, SparseRows, columns_of
from stansub.target.symmetries import symmetries

Array = NDArray[np.float64]
N, J, K = 300, 20, 5
M = 2 + J + K


def rows(*terms: tuple[NDArray[np.int64], Array], common: bool = True, joined: bool = True) -> SparseRows:
    """An intercept and a slope if ``common``, and an element with a factor for each term.

    An element that an observation reads in two terms is in one column if ``joined``.
    """
    rng = np.random.default_rng(5)
    columns = tuple(Column(places.astype(np.int32), factors) for places, factors in terms)
    places = np.array([0, 1] if common else [], np.int64)
    dense = np.column_stack([np.ones(N), rng.standard_normal(N)])[:, : len(places)]
    found = SparseRows(dense if common else np.empty((1, 0)), places, columns, 0.1 * rng.standard_normal(N), N, M)
    if not joined:
        return found
    gathered = found.gathered
    gathered.sum_duplicates()
    gathered.eliminate_zeros()
    return SparseRows(found.dense, places, columns_of(gathered), found.offset, N, M)


def designs() -> dict[str, tuple[SparseRows, ...]]:
    """Designs by name."""
    rng = np.random.default_rng(1)
    one, minus, weights = np.ones(N), -np.ones(N), rng.dirichlet([2, 2], N).T
    i, j, h = *(2 + rng.integers(J, size=(2, N))), 2 + J + rng.integers(K, size=N)
    other = np.where(i == j, 2 + (j - 1) % J, j)
    some = np.where(rng.random(N) < 0.7, i, -1)
    following = 2 + rng.integers(J - 1, size=N)
    return {
        "matches": (rows((i, one), (other, minus), common=False),),
        "matches at home": (rows((i, one), (other, minus)),),
        "matches with themselves": (rows((i, one), (j, minus), (h, one)),),
        "each twice": (rows((i, one), (i, one), (h, one), joined=False),),
        "each less itself": (rows((i, one), (i, minus), (h, one), joined=False),),
        "memberships": (rows((i, weights[0]), (j, weights[1]), (h, one)),),
        "memberships in two columns": (rows((i, weights[0]), (j, weights[1]), (h, one), joined=False),),
        "sender and receiver": (rows((i, one), (other, one)),),
        "a few more": (rows((i, one), (other, minus), (some, np.where(some >= 0, 2.0, 0.0)), joined=False),),
        "neighbours": (rows((following, minus), (following + 1, one), common=False),),
        "a ring": (rows((i, minus), (2 + (i - 1) % J, one), joined=False),),
        "two arguments": (rows((i, one), (other, minus)), rows((other, 0.2 * one), (i, 0.2 * one), (h, one))),
        "one less another, and a grouping": (rows((i, one), (other, minus), (h, one), common=False),),
        "read by one argument and the other": (
            rows((i, one), (h, minus), common=False),
            rows((i, one), (other, minus), (h, one), common=False),
        ),
        **{f"random {seed}": random_rows(np.random.default_rng(seed)) for seed in range(8)},
    }


def random_rows(rng: np.random.Generator) -> tuple[SparseRows, ...]:
    """One or two arguments, with up to four terms whose elements overlap, and factors that may cancel."""
    found = []
    for _ in range(1 + rng.integers(2)):
        terms = []
        for _ in range(1 + rng.integers(4)):
            first, last = np.sort(rng.choice(np.arange(2, M + 1), 2, replace=False))
            factors = rng.choice([-1.0, 0.5, 1.0]) * (np.ones(N) if rng.random() < 0.7 else rng.random(N))
            has = rng.random(N) < rng.choice([1.0, 1.0, 0.6])
            terms.append((np.where(has, rng.integers(first, last, N), -1), np.where(has, 0.6 * factors, 0.0)))
        found.append(rows(*terms, common=bool(rng.integers(2)), joined=bool(rng.integers(2))))
    return tuple(found)


NAMES = pytest.mark.parametrize("name", list(designs()))


def likelihoods(name: str) -> tuple[SparsePredictors, SparsePredictors]:
    """The likelihood with sparse rows, and with dense ones."""
    rng, own = np.random.default_rng(2), designs()[name]
    eta = own[0](0.5 * rng.standard_normal(M))
    family: Family = Binomial((rng.random(N) < expit(eta)).astype(float), np.ones(N))
    if len(own) == 2:
        family = LocationScale(eta + rng.standard_normal(N), NormalErrors())
    return SparsePredictors(own, family), SparsePredictors(tuple(map(dense, own)), family)


def dense(row: SparseRows) -> SparseRows:
    """The same row without columns."""
    found = np.zeros((N, M))
    found[:, row.places] += row.matrix
    for column in row.columns:
        has = np.flatnonzero(column.places >= 0)
        found[has, column.places[has]] += np.asarray(column.factors)[has]
    return SparseRows.of(found, np.arange(M), sp.csr_array((N, M)), row.offset)


def draws(n: int, sd: float = 0.3) -> Array:
    return np.asarray(sd * np.random.default_rng(3).standard_normal((n, M)))


@NAMES
def test_derivatives(name: str) -> None:
    found, expected = likelihoods(name)
    assert len(found.rows[0].columns) >= 1
    for phi in draws(3):
        np.testing.assert_allclose(found.at(phi), expected.at(phi), atol=1e-13)
        assert found.log_lik(phi) == pytest.approx(expected.log_lik(phi), rel=1e-13)
        own, other = found.expansion(phi), expected.expansion(phi)
        gradients = own.gradient, found.gradient(phi), found.full_data.gradient(phi)[1]
        for one in gradients:
            np.testing.assert_allclose(one, other.gradient, atol=1e-11)
        np.testing.assert_allclose(own.precision.toarray(), other.precision.toarray(), atol=1e-11)


@NAMES
def test_what_cancels_changes_no_predictor(name: str) -> None:
    predictors, _ = likelihoods(name)
    recentred = Recentred(predictors, np.zeros(M))
    for phi in draws(3):
        np.testing.assert_allclose(predictors.at(recentred(phi)), predictors.at(phi), atol=1e-12)
        np.testing.assert_allclose(recentred(recentred(phi)), recentred(phi), atol=1e-12)
        np.testing.assert_allclose(predictors.at(recentred.means().removed(phi)), predictors.at(phi), atol=1e-12)


@pytest.mark.parametrize("name", ["matches", "matches at home", "neighbours", "one less another, and a grouping"])
def test_a_shift_of_all_teams_is_removed(name: str) -> None:
    predictors, _ = likelihoods(name)
    recentred, phi, shift = Recentred(predictors, np.zeros(M)), draws(1)[0], np.zeros(M)
    shift[2 : 2 + J] = 3.0
    np.testing.assert_allclose(predictors.at(phi + shift), predictors.at(phi), atol=1e-12)
    np.testing.assert_allclose(recentred(phi + shift), recentred(phi), atol=1e-12)
    assert any(one.direction[2 : 2 + J].all() for one in symmetries(predictors, np.random.default_rng(1)))


@pytest.mark.parametrize("name", ["memberships in two columns", "sender and receiver"])
def test_the_intercept_absorbs_a_shift_of_what_is_read_twice(name: str) -> None:
    predictors, _ = likelihoods(name)
    recentred, phi, shift = Recentred(predictors, np.zeros(M)), draws(1)[0], np.zeros(M)
    shift[2 : 2 + J], shift[0] = 3.0, -6.0 if name == "sender and receiver" else -3.0
    np.testing.assert_allclose(predictors.at(phi + shift), predictors.at(phi), atol=1e-12)
    np.testing.assert_allclose(recentred(phi + shift), recentred(phi), atol=1e-12)


@NAMES
def test_coordinates_of_levels_have_an_inverse(name: str) -> None:
    predictors, _ = likelihoods(name)
    precision = predictors.expansion(np.zeros(M)).precision
    found = Elimination.of(predictors, pairs(predictors), precision, np.ones(M), 0.1)
    x = draws(1)[0]
    assert not np.intersect1d(found.into, found.others).size
    np.testing.assert_allclose(found.inverse(M) @ found(x), x, atol=1e-12)


@NAMES
def test_profiles_are_those_of_the_likelihood(name: str) -> None:
    predictors, _ = likelihoods(name)
    phis = draws(40, 0.1)
    found, _ = approximation(predictors, list(phis), directions=False)
    outward, point, expansion = found.frame.outward.toarray(), found.point, found.quadratic
    for j, size in zip(found.profiles.places, found.profiles.sizes, strict=True):
        y = np.zeros(M)
        y[j] = 1.5 * size
        phi = point + outward @ y
        omitted = predictors.log_lik(phi) - predictors.log_lik(point) - expansion(phi) + expansion(point)
        assert found.profiles.value(y) == pytest.approx(omitted, rel=1e-6, abs=1e-9)
    phi, step = phis[0], 1e-6
    slopes = [(found(phi + step * one) - found(phi - step * one)) / (2 * step) for one in np.eye(M)]
    np.testing.assert_allclose(found.gradient(phi), slopes, rtol=1e-5, atol=1e-4)


def tightness(name: str) -> float:
    """How near remainders of candidates come to their bounds, for moves that do not look at all observations."""
    predictors, _ = likelihoods(name)
    n_candidates, found = 0, 0.0
    for sd in (0.12,) if len(predictors.rows) == 1 else (0.03, 0.01):
        point, sds = 0.1 * draws(1)[0], np.full(M, sd)
        quadratic, places = predictors.expansion(point), point + draws(6, sd)
        decider, rng = SurrogateDecider(grouped(predictors, quadratic, sds), 8.0, 1e9), np.random.default_rng(4)
        for _ in range(500):
            for a, b in pairwise(places):
                decider.decide(a, b, np.log1p(-rng.random()), rng.bit_generator.capsule)
            if decider.n_candidates > 200:
                break
        n_candidates, found = n_candidates + decider.n_candidates, max(found, decider.bound_tightness)
    assert n_candidates > 100
    return found


@NAMES
def test_bounds_hold(name: str) -> None:
    assert 0 < tightness(name) <= 1 + 1e-9


@NAMES
def test_too_small_bounds_do_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    split = group_candidates._split

    def smaller(*given: Any) -> tuple[Array, Array]:
        constants, worst = split(*given)
        return constants / 30, worst

    monkeypatch.setattr(group_candidates, "_split", smaller)
    with pytest.raises(RunError, match="was proved to be at most"):
        tightness(name)


@NAMES
def test_no_observation_is_further_than_the_limit(name: str) -> None:
    predictors, _ = likelihoods(name)
    point, places, sds = 0.1 * draws(1)[0], draws(6), np.full(M, 0.3)
    quadratic = predictors.expansion(point)
    for limit, phi in zip(furthest(predictors, quadratic, sds, list(places)), places, strict=True):
        for row, most in zip(predictors.rows, limit, strict=True):
            lengths = _lengths(row, _whitening(row, quadratic), sds)
            assert (np.abs(row(phi - point)) <= most * lengths * (1 + 1e-9)).all()


@pytest.mark.parametrize(
    "name", ["matches at home", *(pytest.param(name, marks=pytest.mark.slow) for name in ("memberships", "each twice"))]
)
def test_flows_there_and_back_are_those_of_the_remainders(name: str) -> None:
    predictors, _ = likelihoods(name)
    point, sds, n = 0.1 * draws(1)[0], np.full(M, 0.2), 20_000
    quadratic, recentred = predictors.expansion(point), Recentred(predictors, point)
    decider, seen = SurrogateDecider(grouped(predictors, quadratic, sds), 8.0, 1e9), 0.0
    for seed, (a, b) in enumerate(pairwise(point + draws(4, 0.2))):
        expected = predictors.log_lik(b) - quadratic(b) - predictors.log_lik(a) + quadratic(a)
        there, back = (accepted(decider, recentred(one), recentred(other), n, seed) for one, other in ((a, b), (b, a)))
        error = np.sqrt((1 / there - 1) / n + (1 / back - 1) / n)
        assert abs(np.log(there / back) - expected) < 4.5 * error
        seen = max(seen, abs(expected) / error)
    assert seen > 9  # had nothing been decided, the two would be the same


def accepted(decider: SurrogateDecider, a: Array, b: Array, n: int, seed: int) -> float:
    rng = np.random.default_rng(seed)
    taken = [decider.decide(a, b, np.log1p(-rng.random()), rng.bit_generator.capsule).accepted for _ in range(n)]
    return float(np.mean(taken))


@pytest.mark.parametrize("name", ["each twice", "each less itself", "neighbours"])
def test_levels_are_independent_given_the_rest(name: str) -> None:
    predictors, _ = likelihoods(name)
    levels, x = groupings(predictors), draws(1)[0]
    passes = LevelPasses(predictors, levels)
    passes.place(x)
    for which, one in enumerate(levels):
        proposed = x.copy()
        proposed[one.places] += 0.3
        change, gradient = passes.propose(proposed, which)
        _, slopes = predictors.family.gradients(predictors.at(proposed))
        np.testing.assert_allclose(gradient, predictors.back(slopes)[one.places], atol=1e-11)
        for level, places in enumerate(one.places):
            alone = x.copy()
            alone[places] += 0.3
            assert change[level] == pytest.approx(predictors.log_lik(alone) - predictors.log_lik(x), abs=1e-11)
