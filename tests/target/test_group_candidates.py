"""Joint decisions about an expansion with sparse rows: exact, with bounds that hold, from what cancels in no bound."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit

from stansub._loop import OPERATIONS, SurrogateDecider
from stansub.target.categories import Categorical
from stansub.target.families import Binomial, Poisson
from stansub.target.group_candidates import _lengths, _times, _whitening, furthest, grouped
from stansub.target.groupings import Recentred
from stansub.target.location_scale import LocationScale, NormalErrors
from stansub.target.programs import Code, ProgramFamily
from stansub.target.remainders import NoPredictorsError
from stansub.target.rows import ColumnRows
from stansub.target.sparse import Column, SparsePredictors, SparseRows

Array = NDArray[np.float64]
N, J, K, M = 400, 8, 5, 16
N_DECISIONS, MAX_Z = 20_000, 4.5
EDGE = 0.3
RNG = np.random.default_rng(4)


def likelihood(kind: str) -> SparsePredictors:
    """An intercept and a slope, two groupings, of which one has slopes of its own; and, for one of them, a scale."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal(N)
    g, h = 2 + rng.integers(J, size=N), 2 + J + rng.integers(K, size=N)
    numbers = sp.csr_array(
        (np.column_stack([np.ones(N), x]).ravel(), np.column_stack([g, h]).ravel(), np.arange(0, 2 * N + 1, 2)),
        shape=(N, M),
    )
    row = SparseRows.of(np.column_stack([np.ones(N), x]), np.array([0, 1], np.int64), numbers, np.zeros(1))
    eta = row(rng.normal(0, 0.4, M))
    if kind == "binomial":
        return SparsePredictors((row,), Binomial((rng.random(N) < expit(eta)).astype(float), np.ones(N)))
    if kind == "categories":
        return categories(rng)
    if kind == "missing":
        return missing(rng)
    if kind == "poisson":
        return SparsePredictors((row,), Poisson(rng.poisson(np.exp(eta)).astype(float), np.ones(N)))
    scale = SparseRows.of(np.ones((1, 1)), np.array([M - 1], np.int64), sp.csr_array((N, M)), np.zeros(1))
    return SparsePredictors((row, scale), LocationScale(eta + rng.standard_normal(N), NormalErrors()))


def categories(rng: np.random.Generator) -> SparsePredictors:
    """Ten categories, each with an intercept and its own multiple of the effects of a grouping."""
    levels = 10 + rng.integers(K, size=N)
    rows = tuple(
        SparseRows.of(
            np.ones((N, 1)),
            np.array([k], np.int64),
            sp.csr_array((np.full(N, 0.5 - 0.1 * k), levels, np.arange(N + 1)), shape=(N, M)),
            np.zeros(1),
        )
        for k in range(10)
    )
    return SparsePredictors(rows, Categorical(rng.integers(10, size=N), 10))


def missing(rng: np.random.Generator) -> SparsePredictors:
    """Errors about a mean of outcomes, of which some are unknown and have coefficients of their own, with a scale."""
    unknown, counts = np.arange(0, N, N // (M - 3)), np.zeros(N, np.int64)
    counts[unknown] = 1
    starts, places = np.append(0, np.cumsum(counts)), 2 + np.arange(len(unknown)) % (M - 3)
    numbers = sp.csr_array((-np.ones(len(unknown)), places, starts), shape=(N, M))
    row = SparseRows.of(np.column_stack([np.ones(N), rng.standard_normal(N)]), np.array([0, 1]), numbers, np.zeros(1))
    scale = SparseRows.of(np.ones((1, 1)), np.array([M - 1], np.int64), sp.csr_array((N, M)), np.zeros(1))
    y = rng.standard_normal(N)
    y[unknown] = 0.0
    return SparsePredictors((row, scale), LocationScale(y, NormalErrors()))


def moves(sd: float = 0.15) -> tuple[Array, list[Array], Array]:
    """A point, and places about it."""
    rng = np.random.default_rng(2)
    point, sds = 0.1 * rng.standard_normal(M), np.full(M, sd)
    return point, [point + sds * rng.standard_normal(M) for _ in range(6)], sds


def accepted(decider: SurrogateDecider, a: Array, b: Array, seed: int) -> float:
    rng = np.random.default_rng(seed)
    taken = [
        decider.decide(a, b, np.log1p(-rng.random()), rng.bit_generator.capsule).accepted for _ in range(N_DECISIONS)
    ]
    return float(np.mean(taken))


@pytest.mark.parametrize(
    ("kind", "kappa"),
    [
        ("binomial", 8.0),
        ("poisson", 8.0),
        ("normal", 1.0),
        ("categories", 4.0),
        ("missing", 1.0),
        pytest.param("binomial", 1.0, marks=pytest.mark.slow),
        pytest.param("poisson", 1.0, marks=pytest.mark.slow),
        pytest.param("normal", 8.0, marks=pytest.mark.slow),
    ],
)
def test_flows_there_and_back_are_those_of_the_remainders(kind: str, kappa: float) -> None:
    predictors = likelihood(kind)
    point, places, sds = moves(0.15 if kind == "binomial" else 0.05)  # where not all observations are looked at
    quadratic = predictors.expansion(point)
    decider = SurrogateDecider(grouped(predictors, quadratic, sds), kappa, 1e9)

    def remainder(phi: Array) -> float:
        return predictors.log_lik(phi) - quadratic(phi)

    seen = 0.0
    for seed, (a, b) in enumerate(pairwise(places)):
        there, back = accepted(decider, a, b, seed), accepted(decider, b, a, 100 + seed)
        error = np.sqrt((1 / there - 1) / N_DECISIONS + (1 / back - 1) / N_DECISIONS)
        expected = remainder(b) - remainder(a)
        assert abs(np.log(there / back) - expected) < MAX_Z * error
        seen = max(seen, abs(expected) / error)
    assert seen > 2 * MAX_Z  # had nothing been decided, the two would be the same
    assert 0 < decider.bound_tightness <= 1 + 1e-9
    assert decider.n_candidates > 0


def test_terms_that_few_observations_have_do_not_widen_the_bounds_of_others() -> None:
    """Shares of terms are those of each observation: a missing value's coefficient, for one, moves far."""
    predictors = likelihood("missing")
    point, places, sds = moves(0.02)
    sds[2:-1] = 1.0
    places = [point + sds * one for one in np.random.default_rng(5).standard_normal((4, M))]
    decider = SurrogateDecider(grouped(predictors, predictors.expansion(point), sds), 1.0, 1.0)
    for a, b in pairwise(places):
        drawn, needed, _ = decider.costs(a, b)
        assert needed < drawn < 3 * needed


def test_boxes_are_as_wide_as_each_argument_needs() -> None:
    """Bounds grow exponentially with the width of the boxes in the log scale, which moves less than the location."""
    predictors = likelihood("normal")
    point, places, sds = moves(0.05)
    for place in places:
        place[:2] += 3 * (place[:2] - point[:2])
    quadratic = predictors.expansion(point)
    far = 1.2 * furthest(predictors, quadratic, sds, places).max(axis=0)
    one, each = (SurrogateDecider(grouped(predictors, quadratic, sds, to), 1.0, 1e9) for to in (far.max(), far))
    rng = np.random.default_rng(3)
    for a, b in pairwise(places):
        assert each.costs(a, b)[0] < 0.4 * one.costs(a, b)[0]
        for _ in range(50):
            each.decide(a, b, np.log1p(-rng.random()), rng.bit_generator.capsule)
    assert 0.5 < each.bound_tightness <= 1


def from_columns(given: SparsePredictors) -> SparsePredictors:
    """The same, where the common numbers and factors are columns of data, and the rest is compact."""
    (row,) = given.rows
    data = np.column_stack([RNG.standard_normal(N), row.matrix[:, 1], RNG.standard_normal(N)])
    dense = ColumnRows((N, 2), ((slice(0, 1), 1.0), (slice(1, 2), data[:, 1:2])))
    levels, slopes = row.columns
    assert levels.factors.strides == (0,)
    np.testing.assert_array_equal(slopes.factors, data[:, 1])
    columns = (Column(levels.places, np.ones(N, np.uint8)), Column(slopes.places, data[:, 1]))
    own = replace(row, dense=dense, columns=columns)
    return replace(given, rows=(own,), family=given.family.compacted(), latest=[])


@pytest.mark.parametrize("kind", ["binomial", "poisson"])
def test_decisions_are_the_same_from_columns_of_the_data(kind: str) -> None:
    """Where numbers stand makes no difference to any bit of a decision."""
    predictors = likelihood(kind)
    point, places, sds = moves(0.05)
    quadratic, found = predictors.expansion(point), []
    for one in (predictors, from_columns(predictors)):
        decider, rng = SurrogateDecider(grouped(one, quadratic, sds), 4.0, 1e9), np.random.default_rng(3)
        for a, b in 50 * list(pairwise(places)):
            made = decider.decide(a, b, np.log1p(-rng.random()), rng.bit_generator.capsule)
            found.append((made.accepted, made.n_obs_used, made.log_ratio, decider.n_evaluated, rng.random()))
    half = len(found) // 2
    assert found[:half] == found[half:]
    assert decider.n_candidates > 0


def test_what_cancels_is_in_no_bound() -> None:
    predictors = likelihood("binomial")
    point, places, sds = moves()
    recentred = Recentred(predictors, point)
    shift = np.zeros(M)
    shift[0], shift[2 : 2 + J] = -3.0, 3.0  # the intercept, and all of a grouping
    for phi in places:
        found = recentred(phi)
        np.testing.assert_allclose(predictors.at(found), predictors.at(phi), atol=1e-12)
        np.testing.assert_allclose(recentred(phi + shift), found, atol=1e-12)
    decider = SurrogateDecider(grouped(predictors, predictors.expansion(point), sds), 1.0, 1.0)
    wide = decider.costs(places[0] + shift, places[1] + shift)[0]
    assert decider.costs(recentred(places[0] + shift), recentred(places[1] + shift))[0] < 0.1 * wide


def test_an_intercept_and_a_few_levels_cancel_whatever_rounding_does() -> None:
    """The precision of an intercept and of all levels is singular; rounding made it indefinite in some data sets."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        common = np.column_stack([np.ones(N), rng.standard_normal(N), np.eye(K)[rng.integers(K, size=N)]])
        row = SparseRows.of(common, np.arange(2 + K), sp.csr_array((N, 2 + K)), np.zeros(1))
        predictors = SparsePredictors((row,), Binomial(rng.integers(2, size=N).astype(float), np.ones(N)))
        one, other = 0.05 * rng.standard_normal((2, 2 + K))
        quadratic, shift = predictors.expansion(np.zeros(2 + K)), np.array([-3.0, 0.0, *K * [3.0]])
        decider = SurrogateDecider(grouped(predictors, quadratic, np.full(2 + K, 0.05)), 1.0, 1.0)
        assert decider.costs(one + shift, other + shift)[0] < 1.1 * decider.costs(one, other)[0]


def test_effects_of_a_treatment_cancel_with_it() -> None:
    """Effects that only treated observations read; their common shift enlarged a correction until it was all wrong."""
    rng = np.random.default_rng(1)
    treated, g = rng.integers(2, size=N), 2 + rng.integers(J, size=N)
    numbers = sp.csr_array((treated.astype(float), g, np.arange(N + 1)), shape=(N, M))
    numbers.eliminate_zeros()
    row = SparseRows.of(np.column_stack([np.ones(N), treated]), np.array([0, 1], np.int64), numbers, np.zeros(1))
    predictors = SparsePredictors((row,), Poisson(np.ones(N), np.ones(N)))
    recentred, phi, shift = Recentred(predictors, np.zeros(M)), rng.standard_normal(M), np.zeros(M)
    shift[1], shift[2 : 2 + J] = -3.0, 3.0
    np.testing.assert_allclose(predictors.at(recentred(phi)), predictors.at(phi), atol=1e-12)
    np.testing.assert_allclose(recentred(phi + shift), recentred(phi), atol=1e-12)


@pytest.mark.parametrize("cancels", [True, False])
def test_what_cancels_in_all_arguments_is_removed(cancels: bool) -> None:
    """Goals of both sides of a match: strengths of a team at home are read by one argument, and away by the other."""
    rng = np.random.default_rng(1)
    teams = 2 + rng.integers(J, size=N), 2 + rng.integers(J, size=N)
    factors = 1.0, 1.0 if cancels else 2.0
    rows = [
        SparseRows.of(
            np.column_stack([np.ones(N), np.full(N, k)]),
            np.array([0, 1], np.int64),
            sp.csr_array((np.full(N, factors[k]), teams[k], np.arange(N + 1)), shape=(N, M)),
            np.zeros(1),
        )
        for k in range(2)
    ]
    predictors = SparsePredictors(tuple(rows), LocationScale(np.zeros(N), NormalErrors()))
    recentred, phi, shift = Recentred(predictors, np.zeros(M)), rng.standard_normal(M), np.zeros(M)
    shift[0], shift[2 : 2 + J] = -3.0, 3.0
    for row in rows:
        np.testing.assert_allclose(row(recentred(phi)), row(phi), atol=1e-12)
    assert bool(np.allclose(recentred(phi + shift), recentred(phi))) == cancels


@pytest.mark.parametrize("both", [1.0, -1.0])
def test_what_cancels_in_one_of_two_arguments_is_removed(both: float) -> None:
    """The log rate of a gamma density is that of its shape less that of its mean, and each has effects of its own.

    So one of its arguments has the numbers of both, which are multiples of each other.
    """
    rng = np.random.default_rng(1)
    x, g = rng.standard_normal(N), np.stack([4 + rng.integers(J, size=N), 4 + J + rng.integers(4, size=N)], axis=1)
    one, starts = np.column_stack([np.ones(N), x]), np.arange(0, 2 * N + 1, 2)
    of_shape = sp.csr_array((np.ones(N), g[:, 1], np.arange(N + 1)), shape=(N, M))
    of_rate = sp.csr_array((np.tile([both, 1.0], N), g.ravel(), starts), shape=(N, M))
    rows = (
        SparseRows.of(one, np.array([2, 3], np.int64), of_shape, np.zeros(1)),
        SparseRows.of(np.hstack([both * one, one]), np.arange(4, dtype=np.int64), of_rate, np.zeros(1)),
    )
    predictors = SparsePredictors(rows, LocationScale(np.zeros(N), NormalErrors()))
    recentred, phi = Recentred(predictors, np.zeros(M)), rng.standard_normal(M)
    for intercept, levels in ((0, slice(4, 4 + J)), (2, slice(4 + J, M))):
        shift = np.zeros(M)
        shift[intercept], shift[levels] = -3.0, 3.0
        for row in rows:
            np.testing.assert_allclose(row(shift), 0, atol=1e-12)
            np.testing.assert_allclose(row(recentred(phi)), row(phi), atol=1e-12)
        np.testing.assert_allclose(recentred(phi + shift), recentred(phi), atol=1e-12)


def jumping() -> SparsePredictors:
    """Normal observations whose log likelihood jumps at some value of the predictor."""
    predictors = likelihood("binomial")
    (row,), rng = predictors.rows, np.random.default_rng(3)
    names = (
        *(("argument", 0, 0), ("data", 1, 0), ("difference", 1, 0), ("square", 2, 0), ("constant", 0, 0)),
        *(("product", 4, 3), ("constant", 0, 0), ("constant", 0, 0), ("difference", 0, 7), ("if_negative", 8, 6)),
        ("sum", 5, 9),
    )
    codes = np.array([(OPERATIONS.index(name), a, b) for name, a, b in names], np.int32)
    values = np.array([0, 0, 0, 0, -0.5, 0, 0.7, EDGE, 0, 0, 0])
    data = np.stack([np.zeros(N), row(0.2 * rng.standard_normal(M)) + rng.standard_normal(N)])
    return SparsePredictors((row,), ProgramFamily(Code(np.array([0, len(codes)], np.int32), codes, values), 1, data))


def test_observations_without_a_bound_are_in_every_decision() -> None:
    """Without them, flows there and back would be others."""
    predictors = jumping()
    point, places, sds = moves(0.02)
    quadratic = predictors.expansion(point)
    decider = SurrogateDecider(grouped(predictors, quadratic, sds, 2.0), 8.0, 1e9)
    assert 5 < decider.n_unbounded < 0.3 * N
    (eta,) = predictors.at(point)
    near = np.argsort(np.abs(eta - EDGE))[: decider.n_unbounded]
    seen = 0.0
    for seed, (a, b) in enumerate(pairwise(places)):
        there, back = accepted(decider, a, b, seed), accepted(decider, b, a, 100 + seed)
        error = np.sqrt((1 / there - 1) / N_DECISIONS + (1 / back - 1) / N_DECISIONS)
        expected = predictors.log_lik(b) - quadratic(b) - predictors.log_lik(a) + quadratic(a)
        assert abs(np.log(there / back) - expected) < MAX_Z * error
        each = [predictors.family.log_lik(predictors.at(phi))[near].sum() for phi in (a, b)]
        seen = max(seen, abs(each[1] - each[0]) / error)
    assert seen > 2 * MAX_Z
    assert decider.n_evaluated >= 2 * N_DECISIONS * 2 * len(near)


@pytest.mark.parametrize("constant", [np.inf, np.nan])
def test_many_observations_without_a_bound_are_refused(constant: float) -> None:
    class Unbounded(Binomial):
        share = 0.0

        def largest(self, order: int, centre: Array, lengths: Array, radius: float) -> Array:
            found = super().largest(order, centre, lengths, radius)
            found[: int(self.share * N)] = constant
            return found

    predictors = likelihood("binomial")
    point, _, sds = moves()
    assert isinstance(predictors.family, Binomial)
    unbounded = replace(predictors, family=Unbounded(predictors.family.successes, predictors.family.trials))
    for Unbounded.share, n in ((0.0, 0), (0.1, 40)):
        observations = grouped(unbounded, predictors.expansion(point), sds)
        assert SurrogateDecider(observations, 1.0, 1e9).n_unbounded == n
    Unbounded.share = 0.5
    with pytest.raises(NoPredictorsError, match="too many observations have no bound"):
        grouped(unbounded, predictors.expansion(point), sds)


def test_bounds_of_larger_boxes_are_no_multiples_of_none() -> None:
    """An observation that has a remainder on a larger box alone has a bound on the small one alone."""
    ones = np.ones(3)
    assert _times(2 * ones, ones) == 2
    assert _times(np.array([2, 5, 0]), np.array([1, np.inf, 0])) == 2
    assert _times(np.array([2, 0, 3]), np.array([1, np.inf, 0])) == np.inf


@pytest.mark.parametrize(("radius", "kept"), [(8.0, 3), (100.0, 1)])
def test_boxes_that_are_too_wide_are_tried_at_a_few_observations(radius: float, kept: int) -> None:
    """Bounds of Poisson counts grow exponentially. Moves that end beyond the last box are decided by all of them."""
    seen = list[tuple[float, int]]()

    class Recording(Poisson):
        def largest(self, order: int, centre: Array, lengths: Array, radius: float) -> Array:
            seen.append((radius, centre.shape[-1]))
            return super().largest(order, centre, lengths, radius)

    predictors = likelihood("poisson")
    point, _, sds = moves(0.05)
    assert isinstance(predictors.family, Poisson)
    recording = replace(predictors, family=Recording(predictors.family.counts, predictors.family.exposure), latest=[])
    decider = SurrogateDecider(grouped(recording, predictors.expansion(point), sds, radius), 1.0, 1.0)
    radii = [1.0, 2.0, 4.0]
    assert [one for one, n in seen if n < N] == radii
    assert [one for one, n in seen if n == N] == radii[:kept]
    beyond = point + np.eye(M)[1] * 1.5 * radius * sds[1]
    assert np.isinf(decider.costs(point, beyond)[0]) == (kept == 1)


def test_no_observation_is_further_than_the_limit() -> None:
    for kind in ("normal", "categories"):
        predictors = likelihood(kind)
        point, places, sds = moves()
        quadratic = predictors.expansion(point)
        limits = furthest(predictors, quadratic, sds, places)
        records = [_lengths(row, _whitening(row, quadratic), sds) for row in predictors.rows]
        for limit, phi in zip(limits, places, strict=True):
            changes = [np.abs(row(phi - point)) for row in predictors.rows]
            most = [float((one / lengths).max()) for one, lengths in zip(changes, records, strict=True)]
            assert (0.3 * limit < most).all()
            assert (most <= limit * (1 + 1e-9)).all()
