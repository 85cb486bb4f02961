"""What stands for a likelihood in a surrogate: corrections beside what they correct."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.special import expit

from stansub.progress import Progress
from stansub.target.approximation import Approximation, Profiles
from stansub.target.approximation import approximation as approximation_and_passes
from stansub.target.directions import REACH, common_coefficients
from stansub.target.dispersion import NegativeBinomial2
from stansub.target.families import Binomial, Poisson
from stansub.target.groupings import Recentred, pairs
from stansub.target.location_scale import LocationScale, NormalErrors
from stansub.target.sparse import SparsePredictors, SparseRows
from stansub.tuning.surrogates.ridge import ridge_mode

Array = NDArray[np.float64]
N, J, M = 2400, 40, 43


def likelihood(kind: str, levels: int = J) -> SparsePredictors:
    """An intercept, a slope and a grouping; and, for some of them, a scale or two, or a shape."""
    rng, m = np.random.default_rng(1), levels + 3
    x, g = rng.standard_normal(N), 2 + rng.integers(levels, size=N)
    numbers = sp.csr_array((np.ones(N), g, np.arange(N + 1)), shape=(N, m))
    row = SparseRows.of(np.column_stack([np.ones(N), x]), np.array([0, 1], np.int64), numbers, np.zeros(1))
    eta = 0.7 + 0.5 * x + rng.normal(0, 0.5, levels)[g - 2]
    if kind == "binomial":
        return SparsePredictors((row,), Binomial((rng.random(N) < expit(eta)).astype(float), np.ones(N)))
    if kind == "poisson":
        return SparsePredictors((row,), Poisson(rng.poisson(np.exp(eta)).astype(float), np.ones(N)))
    scale = SparseRows.of(np.ones((1, 1)), np.array([m - 1], np.int64), sp.csr_array((N, m)), np.zeros(1))
    if "sds" in kind:
        second = rng.random(N) < 0.3
        numbers.resize((N, m + 1))
        row = SparseRows.of(np.column_stack([np.ones(N), x]), np.array([0, 1], np.int64), numbers, np.zeros(1))
        both = sp.csr_array((np.ones(N), m - 1 + second, np.arange(N + 1)), shape=(N, m + 1))
        scale = SparseRows.of(np.empty((N, 0)), np.empty(0, np.int64), both, np.zeros(1))
        if kind == "normal, sds by a covariate":
            places, none = np.array([m - 1, m], np.int64), sp.csr_array((N, m + 1))
            scale = SparseRows.of(np.column_stack([np.ones(N), second]), places, none, np.zeros(1))
        errors = rng.standard_normal(N) * np.where(second, 0.4, 1)
        return SparsePredictors((row, scale), LocationScale(eta + errors, NormalErrors()))
    if kind == "negative binomial":
        shape = 2.0
        counts = rng.negative_binomial(shape, shape / (shape + np.exp(eta))).astype(float)
        return SparsePredictors((row, scale), NegativeBinomial2(counts))
    return SparsePredictors((row, scale), LocationScale(eta + rng.standard_normal(N), NormalErrors()))


def normal(predictors: SparsePredictors, n: int, seed: int, prior: float = 4) -> list[Array]:
    """Draws of a normal distribution whose precision is the likelihood's, and a normal prior's."""
    expansion, _ = ridge_mode(predictors, Progress())
    m = predictors.dim
    point, precision = expansion.point, expansion.precision.toarray() + prior * np.eye(m)
    root = np.linalg.cholesky(np.linalg.inv(precision))
    return [point + root @ one for one in np.random.default_rng(seed).standard_normal((n, m))]


def approximation(predictors: SparsePredictors, phis: list[Array], **options: bool) -> Approximation:
    return approximation_and_passes(predictors, phis, **options)[0]


def test_gradients_are_counted_to_the_end() -> None:
    predictors, counts = likelihood("poisson"), list[tuple[int, int]]()
    approximation_and_passes(
        predictors, normal(predictors, 60, 1), directions=False, advance=lambda *count: counts.append(count)
    )
    assert counts == [(k, 60) for k in range(61)]


KINDS = ["binomial", "poisson", "normal"]


@pytest.mark.parametrize("kind", KINDS)
def test_corrections_leave_less_out(kind: str) -> None:
    predictors = likelihood(kind)
    found = approximation(predictors, normal(predictors, 60, 1), directions=False)
    plain = _noise(predictors, Approximation.plain(found.quadratic))
    sloped = replace(Approximation.plain(found.quadratic), slope=_mean_gradient(predictors, found))
    np.testing.assert_allclose(found.mean_slope, sloped.slope, atol=1e-8)
    assert _noise(predictors, sloped) < 0.75 * plain
    assert _noise(predictors, found) < (0.75 if kind == "normal" else 0.35) * plain
    assert _noise(predictors, replace(found, slope=-found.slope)) > 2 * _noise(predictors, found)


# Of what the second order leaves out.
SHARES = {
    "binomial": 0.04,
    "poisson": 0.03,
    "normal": 0.003,
    "normal, sds by a covariate": 0.02,
    "normal, sds by kind": 0.02,
    "negative binomial": 0.04,
}


@pytest.mark.parametrize(("kind", "share"), SHARES.items())
def test_terms_along_directions_leave_less_out(kind: str, share: float) -> None:
    predictors = likelihood(kind)
    phis = normal(predictors, 200, 1)
    found, without = approximation(predictors, phis), approximation(predictors, phis, directions=False)
    scales = range(M - 1, predictors.dim) if len(predictors.rows) > 1 else ()
    assert set(found.frame.common) == {0, 1, *scales}
    plain = _noise(predictors, Approximation.plain(found.quadratic))
    assert _noise(predictors, found) < min(share * plain, 0.7 * _noise(predictors, without))
    terms, r = found.terms, len(found.terms.means)
    opposite = replace(terms, means=-terms.means, values=terms.values * np.repeat([-1.0, 1.0], r)[:, np.newaxis])
    assert _noise(predictors, replace(found, terms=opposite)) > _noise(predictors, without)


def test_each_product_has_its_whole_coefficient() -> None:
    """Along any line the terms are the likelihood's third derivative there, and in one direction its fourth."""
    predictors = likelihood("negative binomial", levels=6)
    phis = normal(predictors, 400, 1)
    found = approximation(predictors, phis)
    terms, frame = found.terms, found.frame
    r = len(terms.means)
    assert r >= 2
    terms = replace(terms, means=0 * terms.means)
    outward = frame.outward.toarray()
    rng, common = np.random.default_rng(2), frame.common[:r]

    def third(f: Callable[[Array], float], y: Array, h: float) -> float:
        values = [f(s * h * y) for s in (-2, -1, 1, 2)]
        return float(np.dot([-0.5, 1, -1, 0.5], values) / h**3)

    for _ in range(5):
        y = np.zeros(predictors.dim)
        y[common] = rng.standard_normal(r)  # products with other coefficients only belong to profiles
        ours = third(lambda y: terms.value(y, y[common]), y, 0.3)
        theirs = third(lambda y: predictors.log_lik(found.point + outward @ y), y, 0.3)
        assert ours == pytest.approx(theirs, rel=0.1, abs=0.01)
    y = rng.standard_normal(predictors.dim)
    y[frame.common] = 0
    for k in range(r):
        along = np.eye(predictors.dim)[common[k]]

        def mixed(f: Callable[[Array], float], along: Array = along, y: Array = y) -> float:
            """The derivative by u_k of half the second derivative along y."""
            curve = [f(0.5 * t * along + s * y) for t in (1, -1) for s in (0.3, -0.3, 0)]
            return float(np.dot([1, 1, -2, -1, -1, 2], curve) / 0.09 / 2)

        ours = mixed(lambda y: terms.value(y, y[common]))
        theirs = mixed(lambda y: predictors.log_lik(found.point + outward @ y))
        assert ours == pytest.approx(theirs, rel=0.1, abs=0.02)


def test_coordinates_have_an_inverse_and_are_standardised() -> None:
    predictors = likelihood("negative binomial")
    phis = normal(predictors, 200, 1)
    found = approximation(predictors, phis)
    frame, recentred = found.frame, Recentred(predictors, found.point)
    ys = np.array([frame(phi - found.point) for phi in phis])
    for y, phi in zip(ys, phis, strict=True):
        np.testing.assert_allclose(frame.outward @ y, recentred(phi) - found.point, atol=1e-10)
    u = ys[:, frame.common]
    np.testing.assert_allclose(np.cov(u, rowvar=False, bias=True), np.eye(3), atol=1e-8)
    # Along a direction, levels' effects change as the likelihood alone has it: its slopes by them hardly change.
    others = np.setdiff1d(np.arange(predictors.dim), frame.common)
    along = frame.outward.toarray()[:, frame.common]
    alone = along.copy()
    alone[others] = 0
    slopes, without = (np.abs((found.quadratic.precision @ one)[others]).max() for one in (along, alone))
    assert slopes < 0.1 * without


def test_directions_in_which_nothing_changes_are_left_out() -> None:
    """A coefficient that is fixed, and two that change together."""
    predictors = likelihood("negative binomial")
    phis = [phi.copy() for phi in normal(predictors, 60, 1)]
    for phi in phis:
        phi[1] = 0.5 + 2 * phi[M - 1]
    found = approximation(predictors, phis)
    ys = np.array([found.frame(phi - found.point) for phi in phis])
    assert np.linalg.matrix_rank(np.cov(ys[:, found.frame.common], rowvar=False)) == 2
    for phi in phis:
        phi[M - 1] = 0.3
        phi[1] = 0.5
    found = approximation(predictors, phis)
    assert np.isfinite(found(phis[0]))
    ys = np.array([found.frame(phi - found.point) for phi in phis])
    assert np.linalg.matrix_rank(np.cov(ys[:, found.frame.common], rowvar=False)) == 1


def test_terms_are_limited_far_from_the_draws() -> None:
    predictors = likelihood("poisson")
    phis = normal(predictors, 60, 1)
    found = approximation(predictors, phis)
    ys = [found.frame(phi - found.point) for phi in phis]
    bent = np.array([found.terms.value(y, y[found.frame.common]) for y in ys])
    assert found.middle == pytest.approx(np.mean(bent))
    assert np.abs(bent - found.middle).max() < found.most / 1.4
    found = replace(found, profiles=Profiles.none())
    for phi, sum_of_terms in zip(phis, bent, strict=True):
        near, far = (found.point + factor * (phi - found.point) for factor in (1, 1e4))
        assert found.correction(near) == pytest.approx(
            sum_of_terms - found.middle + found.slope @ (near - found.point), abs=0.02
        )
        assert abs(found.correction(far) - found.slope @ (far - found.point)) <= found.most * (1 + 1e-9)


def test_the_limit_of_terms_follows_draws_further_out() -> None:
    predictors = likelihood("poisson")
    phis = normal(predictors, 60, 1)
    found = approximation(predictors, phis)
    further = [found.point + 6 * (phi - found.point) for phi in phis]
    loosened = found.loosened(further)
    assert found.loosened(phis[:5]).most == found.most
    assert loosened.most > 1.5 * found.most
    gaps = [
        abs(one.correction(phi) - replace(one, most=1e6).correction(phi))
        for one in (found, loosened)
        for phi in further
    ]
    assert max(gaps[: len(further)]) > 10 * max(gaps[len(further) :])


def test_few_or_small_arguments_have_common_coefficients() -> None:
    predictors = likelihood("normal")
    np.testing.assert_array_equal(common_coefficients(predictors), [0, 1, M - 1])
    _, scale = predictors.rows
    many = SparseRows.of(np.ones((N, 40)), np.arange(40), sp.csr_array((N, M)), np.zeros(1))
    np.testing.assert_array_equal(common_coefficients(replace(predictors, rows=(many, scale))), [M - 1])
    assert not common_coefficients(replace(predictors, rows=(many, many))).size


@pytest.mark.slow
def test_terms_leave_no_mode_beyond_their_limit() -> None:
    """Squares of many effects add a nearly linear function of the scale, which a bounded function does not replace."""
    predictors = likelihood("normal", levels=1200)
    m = predictors.dim
    scale, sd = np.arange(m) == m - 1, 1 / np.sqrt(2 * N)
    phis = normal(predictors, 20, 1, prior=0.25)

    def highest(one: Callable[[Array], float]) -> float:
        """By how many sds of the scale all draws move to where the mean of a function is largest."""
        steps = np.linspace(-30, 30, 61)
        return float(steps[np.argmax([np.mean([one(phi + t * sd * scale) for phi in phis]) for t in steps])])

    phis = [phi + highest(predictors.log_lik) * sd * scale for phi in phis]
    found = approximation(predictors, phis)
    inward = found.frame.inward[0]  # the first direction is that of the scale
    kept = found.terms.means[0]
    means = np.where(np.arange(len(found.terms.means)) == 0, 0.0, found.terms.means)
    slope = found.slope.copy()
    slope[found.frame.common] -= kept * inward
    ended = replace(found, slope=slope, terms=replace(found.terms, means=means), middle=0.0, most=1e9)
    assert abs(highest(found)) <= 1
    assert abs(highest(ended)) > REACH


def _noise(predictors: SparsePredictors, one: Approximation) -> float:
    return float(np.std([predictors.log_lik(phi) - one(phi) for phi in normal(predictors, 200, 2)]))


def _mean_gradient(predictors: SparsePredictors, found: Approximation) -> Array:
    plain = Approximation.plain(found.quadratic)
    phis = normal(predictors, 60, 1)
    return np.asarray(np.mean([predictors.gradient(phi) - plain.gradient(phi) for phi in phis], axis=0))


@pytest.mark.parametrize("kind", [*KINDS, "normal, sds by kind", "negative binomial", "slopes"])
def test_gradients(kind: str) -> None:
    predictors = slopes("poisson") if kind == "slopes" else likelihood(kind)
    phis = normal(predictors, 20, 1)
    found = approximation(predictors, phis)
    for f, gradient in ((found, found.gradient(phis[0])), (predictors.log_lik, predictors.gradient(phis[0]))):
        numerical = [(f(phis[0] + step) - f(phis[0] - step)) / 2e-5 for step in 1e-5 * np.eye(predictors.dim)]
        np.testing.assert_allclose(gradient, numerical, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_what_cancels_is_not_corrected(kind: str) -> None:
    predictors = likelihood(kind)
    phis = normal(predictors, 20, 1)
    found = approximation(predictors, phis)
    shift = np.zeros(M)
    shift[0], shift[2 : 2 + J] = -0.5, 0.5
    assert predictors.log_lik(phis[1] + shift) == pytest.approx(predictors.log_lik(phis[1]), abs=1e-8)
    assert found.correction(phis[1] + shift) == pytest.approx(found.correction(phis[1]), abs=1e-7)


def test_profiles_are_those_of_the_likelihood_one_by_one() -> None:
    predictors = likelihood("poisson")
    found = approximation(predictors, normal(predictors, 60, 1), directions=False)
    profiles, expected = [], []
    for phi in normal(predictors, 20, 3):
        y, alone = found.frame(phi - found.point), 0.0
        for j in range(2, 2 + J):
            moved = found.point + y[j] * (np.arange(M) == j)
            alone += predictors.log_lik(moved) - found.quadratic(moved)
        profiles.append(found.profiles.value(y))
        expected.append(alone)
    assert np.std(np.subtract(profiles, expected)) < 0.001 * np.std(expected)


def slopes(kind: str, mean: float = 0.0, region: int = 1) -> SparsePredictors:
    """An intercept, one of each region of some levels, and a slope of each level, of a covariate with a mean."""
    rng = np.random.default_rng(2)
    x, g = rng.standard_normal(N), rng.integers(J, size=N)
    factors, places = np.column_stack([np.ones(N), mean + x]), np.column_stack([1 + g // region, 1 + J + g])
    numbers = sp.csr_array((factors.ravel(), places.ravel(), np.arange(0, 2 * N + 1, 2)), shape=(N, 1 + 2 * J))
    row = SparseRows.of(np.ones((1, 1)), np.array([0], np.int64), numbers, np.zeros(1))
    eta = 0.3 + rng.normal(0, 0.5, J)[g] + rng.normal(0, 0.5, J)[g] * x
    if kind == "binomial":
        return SparsePredictors((row,), Binomial((rng.random(N) < expit(eta)).astype(float), np.ones(N)))
    return SparsePredictors((row,), Poisson(rng.poisson(np.exp(eta)).astype(float), np.ones(N)))


@pytest.mark.parametrize("kind", ["binomial", "poisson"])
def test_two_coefficients_of_a_level_have_a_function_of_both(kind: str) -> None:
    predictors = slopes(kind)
    found = approximation(predictors, normal(predictors, 60, 1))
    profiles = found.profiles
    places = profiles.places[profiles.pairs]
    np.testing.assert_array_equal(np.sort(places[0]), np.arange(1, 1 + J))
    np.testing.assert_array_equal(places[1] - places[0], np.full(J, J))
    alone = replace(found, profiles=replace(profiles, mixed=0 * profiles.mixed))
    assert _noise(predictors, found) < 0.5 * _noise(predictors, alone)


@pytest.mark.parametrize("mean", [1.0, 5.0, 20.0])
@pytest.mark.parametrize("kind", ["binomial", "poisson"])
def test_coefficients_that_compensate_each_other_have_functions(kind: str, mean: float) -> None:
    """Far from a covariate of 0, intercepts and slopes move further than predictors do."""
    predictors = slopes(kind, mean)
    found = approximation(predictors, normal(predictors, 60, 1), directions=False)
    np.testing.assert_array_equal(found.profiles.places, 1 + np.arange(2 * J))
    assert _noise(predictors, found) < 0.07 * _noise(predictors, Approximation.plain(found.quadratic))


@pytest.mark.parametrize("kind", ["binomial", "poisson"])
def test_groupings_that_compensate_each_other_have_no_functions(kind: str) -> None:
    """A region's intercept, and the slopes of its levels."""
    predictors = slopes(kind, mean=5.0, region=4)
    found = approximation(predictors, normal(predictors, 60, 1), directions=False)
    assert not found.profiles.places.size
    assert _noise(predictors, found) < 0.75 * _noise(predictors, Approximation.plain(found.quadratic))


def test_effects_that_a_trend_compensates_have_profiles() -> None:
    """A trend and effects of years can change together, almost without a change of predictors."""
    rng, n, years = np.random.default_rng(5), 4 * N, 20
    year, day = rng.integers(years, size=n), rng.integers(J, size=n)
    places = np.column_stack([2 + year, 2 + years + day])
    numbers = sp.csr_array((np.ones(2 * n), places.ravel(), np.arange(0, 2 * n + 1, 2)), shape=(n, 2 + years + J))
    date = year + 0.1 * rng.random(n)
    row = SparseRows.of(np.column_stack([np.ones(n), date]), np.array([0, 1], np.int64), numbers, np.zeros(1))
    rate = np.exp(0.03 * date + rng.normal(0, 0.3, J)[day])
    predictors = SparsePredictors((row,), Poisson(rng.poisson(rate).astype(float), np.ones(n)))
    phis = normal(predictors, 60, 1)
    found, along = approximation(predictors, phis, directions=False), approximation(predictors, phis)
    plain = _noise(predictors, Approximation.plain(found.quadratic))
    for one in (found, along):
        np.testing.assert_array_equal(one.profiles.places, 2 + np.arange(years + J))
        assert _noise(predictors, one) < 0.15 * plain


def test_crossed_groupings_have_functions_of_one_coefficient_each() -> None:
    rng = np.random.default_rng(3)
    g, h = rng.integers(20, size=N), rng.integers(30, size=N)
    numbers = sp.csr_array((np.ones(2 * N), np.column_stack([g, 20 + h]).ravel(), np.arange(0, 2 * N + 1, 2)))
    nothing = SparseRows.of(np.empty((1, 0)), np.empty(0, np.int64), numbers, np.zeros(1))
    predictors = SparsePredictors((nothing,), Poisson(rng.poisson(2.0, N).astype(float), np.ones(N)))
    assert not pairs(predictors)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_grouping_absorbs_a_shift_of_another(sign: float) -> None:
    """Without an intercept, effects of one grouping and of the other can change together, as in item response."""
    rng = np.random.default_rng(3)
    g, h = rng.integers(20, size=N), 20 + rng.integers(30, size=N)
    factors = np.column_stack([np.ones(N), np.full(N, sign)]).ravel()
    numbers = sp.csr_array((factors, np.column_stack([g, h]).ravel(), np.arange(0, 2 * N + 1, 2)))
    row = SparseRows.of(np.empty((1, 0)), np.empty(0, np.int64), numbers, np.zeros(1))
    predictors = SparsePredictors((row,), Poisson(rng.poisson(2.0, N).astype(float), np.ones(N)))
    start = np.full(50, 0.3)
    phis = [start + 0.1 * one for one in rng.standard_normal((40, 50))]
    found = approximation(predictors, phis)
    shift = np.where(np.arange(50) < 20, 0.2, -sign * 0.2)
    assert predictors.log_lik(phis[0] + shift) == pytest.approx(predictors.log_lik(phis[0]), abs=1e-8)
    np.testing.assert_allclose(
        found.frame(phis[0] + shift - found.point), found.frame(phis[0] - found.point), atol=1e-10
    )
    recentred = Recentred(predictors, found.point)
    np.testing.assert_allclose(recentred(phis[0] + shift), recentred(phis[0]), atol=1e-12)
    np.testing.assert_allclose(predictors.at(recentred(phis[0])), predictors.at(phis[0]), atol=1e-12)


def several_arguments() -> SparsePredictors:
    """Normal observations whose location and log scale read the same intercepts and slopes of levels."""
    rng, (location,) = np.random.default_rng(7), slopes("poisson").rows
    scale = replace(location, columns=tuple(one._replace(factors=0.3 * one.factors) for one in location.columns))
    return SparsePredictors((location, scale), LocationScale(rng.standard_normal(N), NormalErrors()))


@pytest.mark.parametrize("kind", ["binomial", "poisson", "several arguments"])
def test_profiles_are_what_the_expansion_omits_along_a_coefficient(kind: str) -> None:
    """Near the nodes and between them; beyond the last ones they are lines."""
    predictors = several_arguments() if kind == "several arguments" else likelihood(kind)
    found = approximation(predictors, normal(predictors, 60, 1), directions=False)
    profiles, quadratic, at_point = found.profiles, found.quadratic, predictors.log_lik(found.point)
    for place, size in zip(profiles.places[:5], profiles.sizes[:5], strict=True):
        for t in (-5.9, -2.6, -0.4, 0.75, 3.1, 5.6):
            y = t * size * np.eye(predictors.dim)[place]
            change = found.frame.outward @ y
            omitted = predictors.log_lik(found.point + change) - at_point - quadratic(found.point + change)
            omitted += quadratic(found.point)
            assert profiles.value(y) == pytest.approx(omitted, rel=5e-3, abs=1e-4)
            step = 1e-4 * size * np.eye(predictors.dim)[place]
            slope = (profiles.value(y + step) - profiles.value(y - step)) / (2e-4 * size)
            assert profiles.gradient(y)[place] == pytest.approx(slope, rel=1e-4, abs=1e-6)
        far = [profiles.value(t * size * np.eye(predictors.dim)[place]) for t in (6.0, 7.0, 8.0, 11.0)]
        np.testing.assert_allclose(np.diff(far), np.array([1, 1, 3]) * (far[1] - far[0]), rtol=1e-9)


def test_coefficients_that_several_arguments_read_have_one_function_of_both() -> None:
    """The function is near what the two omit together and not alone."""
    predictors = several_arguments()
    (level,) = pairs(predictors)
    assert len(level.codes) == J
    found = approximation(predictors, normal(predictors, 60, 1), directions=False)
    profiles = found.profiles
    omitted, fitted = [], []
    for one, other in profiles.places[profiles.pairs].T:
        changes = 1.5 * np.diag(np.bincount(profiles.places, profiles.sizes, predictors.dim))
        both = changes[one] + changes[other]
        alone = sum(_omitted(predictors, found, changes[k]) for k in (one, other))
        omitted.append(_omitted(predictors, found, both) - alone)
        fitted.append(profiles.value(both) - profiles.value(changes[one]) - profiles.value(changes[other]))
    assert np.std(np.subtract(fitted, omitted)) < 0.2 * np.std(omitted)


def _omitted(predictors: SparsePredictors, found: Approximation, y: Array) -> float:
    there = found.point + found.frame.outward @ y
    at_point = predictors.log_lik(found.point) - found.quadratic(found.point)
    return predictors.log_lik(there) - found.quadratic(there) - at_point


def test_profiles_continue_as_lines_from_where_they_are_not_finite() -> None:
    predictors = likelihood("poisson")
    family = predictors.family
    assert isinstance(family, Poisson)

    class Cut(Poisson):
        """Impossible beyond some predictors."""

        def derivatives(self, orders: Sequence[int], eta: Array) -> list[Array]:
            value, *rest = super().derivatives(orders, eta)
            return [np.where(np.abs(eta[0] - 0.7) > 3.0, -np.inf, value), *rest]

    cut = replace(predictors, family=Cut(family.counts, family.exposure))
    phis = normal(predictors, 60, 1)
    some, every = approximation(cut, phis, directions=False), approximation(predictors, phis, directions=False)
    tables = some.profiles.tables
    assert np.isfinite(tables).all()
    same = (tables == every.profiles.tables[: len(tables)]).all(axis=2)
    assert 0.3 < same.mean() < 1


def test_of_no_coefficients() -> None:
    row = SparseRows.of(np.ones((N, 1)), np.array([0], np.int64), sp.csr_array((N, 1)), np.zeros(1))
    predictors = SparsePredictors((row,), Poisson(np.random.default_rng(1).poisson(2.0, N).astype(float), np.ones(N)))
    found = approximation(predictors, [np.array([0.6]), np.array([0.8])])
    assert not found.profiles.places.size
    assert found.correction(np.array([1.0])) == pytest.approx(found.slope[0] * 0.3)
