"""What stands for a likelihood in the program of a surrogate: the formulas of `target.approximation`, in C++."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.stan import source
from stansub.stan.approximation import COMPILED_WITH, as_data
from stansub.stan.data.data import Data
from stansub.stan.surrogate import Surrogate, _is_slope, _with_slope
from stansub.stan.toolchain import build
from stansub.stan.toolchain.library import Library
from stansub.target.approximation import Approximation, Profiles
from stansub.target.directions import DirectionalTerms, Frame
from stansub.target.elimination import Elimination
from stansub.target.groupings import Means
from stansub.target.sparse import Quadratic

PROGRAM = Path(__file__).parents[1] / "run" / "programs" / "multilevel.stan"
J, K = 6, 9
M, DIM = 2 + J + K, 4 + J + K

Array = NDArray[np.float64]


@pytest.fixture(scope="module")
def library() -> Library:
    code = source.read(PROGRAM).analysis.likelihood_split("N").surrogate
    return Library(build.compile_library(code, name="multilevel_surrogate", **COMPILED_WITH))


def random_approximation(seed: int) -> Approximation:
    """Rows of a precision with and without elements side by side; profiles from two means and from none."""
    rng = np.random.default_rng(seed)
    left = np.tril(rng.standard_normal((M, M)) * (rng.random((M, M)) < 0.4), -1)
    left[-1], left[4] = rng.standard_normal(M) * (np.arange(M) < M - 1), 0
    precision = sp.csr_array(left + left.T + np.diag(rng.gamma(3.0, size=M)))
    places = np.arange(2, M - 1, dtype=np.int32)
    of = np.array([2, 3, *(0 for _ in range(K)), *(1 for _ in range(J - 2)), 3, 3], np.int32)
    means = Means(
        of,
        rng.dirichlet(np.ones(7)),
        np.array([2, 3, 4, 12, 14, 3, 5], np.int32),
        np.array([0, 3, 5, 7, 7], np.int32),
    )
    common = np.array([0, 1, 7], np.int32)
    along = 0.3 * rng.standard_normal((M, 3))
    along[common] = 0
    profiles = Profiles(
        places,
        rng.gamma(2.0, size=len(places)),
        rng.standard_normal((len(places), 17, 2)),
        np.array([[0, 3, 3, len(places) - 1], [3, 1, 7, 2]], np.int32),
        0.1 * np.random.default_rng(seed + 100).standard_normal((5, 4)),
    )
    point, gradient, slope = rng.standard_normal((3, M))
    ys = 0.2 * rng.standard_normal((5, M))
    terms = DirectionalTerms.of([symmetric(rng) for _ in range(2)], [symmetric(rng) for _ in range(2)], ys)
    into, others = np.array([2, 3, 2, 5], np.int32), np.array([8, 9, 11, 4], np.int32)
    within = Elimination(into, others, rng.standard_normal(4))
    frame = Frame(means, common, rng.standard_normal((3, 3)), along, within)
    quadratic = Quadratic.of(point, 0.0, gradient, precision)
    found = Approximation(quadratic, slope, np.zeros(M), frame, profiles, terms)
    theta = np.random.default_rng(seed).standard_normal(DIM)
    at = np.concatenate([theta[:2], theta[4 + J :], np.exp(theta[2]) * theta[4 : 4 + J]])
    y = frame(at - point)
    return replace(found, middle=3.0, most=2 * abs(terms.value(y, y[common]) - 3.0))


def symmetric(rng: np.random.Generator) -> sp.csr_array:
    """A matrix with entries in places of its own."""
    half = rng.standard_normal((M, M)) * (rng.random((M, M)) < 0.3)
    return sp.csr_array(half + half.T)


def surrogate(library: Library, found: Approximation) -> Surrogate:
    return Surrogate(Data({"J": J, "K": K, **as_data(found)}, (), "").model(library), found)


def nothing() -> Approximation:
    empty = sp.csr_array((M, M))
    return Approximation.plain(Quadratic.of(np.zeros(M), 0.0, np.zeros(M), empty))


def jacobian(theta: Array) -> Array:
    """Of phi, which is alpha, beta, v and sigma z; parameters are these, with log sigma and log tau after beta."""
    found = np.zeros((M, DIM))
    found[:2, :2] = np.eye(2)
    found[2 : 2 + K, 4 + J :] = np.eye(K)
    found[2 + K :, 2] = np.exp(theta[2]) * theta[4 : 4 + J]
    found[2 + K :, 4 : 4 + J] = np.exp(theta[2]) * np.eye(J)
    return found


def numerical(f: Callable[[Array], float], x: Array) -> Array:
    """Central differences."""
    return np.array([(f(x + step) - f(x - step)) / 2e-5 for step in 1e-5 * np.eye(len(x))])


@pytest.mark.parametrize("seed", range(4))
def test_value_and_gradient_are_those_of_the_formulas(library: Library, seed: int) -> None:
    found, theta = random_approximation(seed), np.random.default_rng(seed).standard_normal(DIM)
    ours, prior = surrogate(library, found), surrogate(library, nothing())
    phi = ours.phi(theta)
    expected = prior.model.log_density(theta) + found(phi)
    value, gradient = ours.model.log_density_gradient(theta)
    assert value == pytest.approx(expected, rel=1e-12)
    assert ours.model.log_density(theta) == pytest.approx(expected, rel=1e-12)
    _, slope = prior.model.log_density_gradient(theta)
    np.testing.assert_allclose(gradient, slope + found.gradient(phi) @ jacobian(theta), rtol=1e-12, atol=1e-10)
    np.testing.assert_allclose(gradient, numerical(ours.model.log_density, theta), rtol=1e-5, atol=1e-4)


def changed(which: str, found: Approximation) -> Approximation:
    """One number of it is another."""
    quadratic, profiles = found.quadratic, found.profiles
    if which == "off the diagonal":
        precision = quadratic.precision.toarray()
        precision[-1, 0] += 1e-6
        precision[0, -1] += 1e-6
        quadratic = Quadratic.of(quadratic.point, 0.0, quadratic.gradient, sp.csr_array(precision))
    elif which == "slope":
        return replace(found, slope=found.slope + 1e-6 * np.eye(M)[3])
    elif which in ("weight", "mean"):
        of, weights = found.frame.means.of, found.frame.means.weights
        means = replace(found.frame.means, of=np.where(np.arange(M) == 5, 1, of).astype(np.int32))
        if which == "weight":
            means = replace(found.frame.means, weights=weights + 1e-6 * np.eye(7)[1])
        return replace(found, frame=replace(found.frame, means=means))
    elif which in ("inward", "along"):
        own = getattr(found.frame, which).copy()
        own[-1, 1] += 1e-6
        return replace(found, frame=replace(found.frame, **{which: own}))
    elif which in ("into", "others", "shares"):
        parts = {which: getattr(found.frame.within, which) + (1e-6 if which == "shares" else 1)}
        return replace(found, frame=replace(found.frame, within=replace(found.frame.within, **parts)))
    elif which == "middle":
        return replace(found, middle=found.middle + 1e-6)
    elif which == "limit":
        return replace(found, most=found.most * (1 + 1e-6))
    elif which in ("term", "quartic term", "term's mean"):
        terms = found.terms
        if which == "term's mean":
            return replace(found, terms=replace(terms, means=terms.means + np.array([0.0, 1e-6])))
        values = terms.values.copy()
        values[1 if which == "term" else 3, :] += 1e-6
        return replace(found, terms=replace(terms, values=values))
    elif which == "pair":
        profiles = replace(profiles, pairs=profiles.pairs + (np.arange(4) == 2).astype(np.int32))
    elif which.startswith("mixed"):
        mixed = profiles.mixed.copy()
        mixed[int(which[-1]), 1] += 1e-6
        profiles = replace(profiles, mixed=mixed)
    else:
        tables, sizes = profiles.tables.copy(), profiles.sizes.copy()
        if which == "size":
            sizes[4] += 1e-6
        else:
            tables[4, :, ("node's value", "node's slope").index(which)] += 1e-6 * np.arange(17)
        profiles = replace(profiles, sizes=sizes, tables=tables)
    return replace(found, quadratic=quadratic, profiles=profiles)


OF_ONE = "off the diagonal", "slope", "weight", "mean", "node's value", "node's slope", "size"
OF_DIRECTIONS = "inward", "along", "into", "others", "shares", "middle", "limit", "term", "quartic term", "term's mean"
OF_TWO = "pair", *(f"mixed {k}" for k in range(5))


@pytest.mark.parametrize("which", [*OF_ONE, *OF_TWO, *OF_DIRECTIONS])
def test_another_number_is_another_value(library: Library, which: str) -> None:
    found, theta = random_approximation(1), np.random.default_rng(1).standard_normal(DIM)
    ours, prior = surrogate(library, found), surrogate(library, nothing())
    gap = ours.model.log_density(theta) - prior.model.log_density(theta)
    wrong = changed(which, found)(ours.phi(theta))
    assert gap == pytest.approx(found(ours.phi(theta)), rel=1e-12)
    assert gap != pytest.approx(wrong, rel=1e-12)


def test_data_may_come_as_json(library: Library) -> None:
    theta = np.random.default_rng(2).standard_normal(DIM)
    for found in (random_approximation(2), nothing()):
        ours = surrogate(library, found).model
        other = library.model(Data({"J": J, "K": K, **as_data(found)}, (), "").json())
        assert other.log_density(theta) == ours.log_density(theta)


def test_threads_do_not_disturb_each_other(library: Library) -> None:
    models = [surrogate(library, random_approximation(seed)).model for seed in range(4)]
    points = np.random.default_rng(3).standard_normal((50, DIM))

    def values(k: int) -> list[Array]:
        return [np.append(*models[k].log_density_gradient(theta)[::-1]) for theta in points]

    one_by_one = [values(k) for k in range(4)]
    with ThreadPoolExecutor(max_workers=4) as pool:
        np.testing.assert_array_equal(list(pool.map(values, range(4))), one_by_one)


@pytest.mark.parametrize(
    ("own", "stan", "expected"),
    [
        (0.0, 0.0, True),
        (0.0, 4e-6, True),  # of Stan's derivative, as for `std_normal_lcdf`
        (4e-6, 0.0, False),
        (4e-6, 4e-6, True),  # both alike: then values differ elsewhere
        (0.0, 1e-2, False),
        (0.0, np.nan, False),
    ],
)
def test_where_gradients_differ_numerical_differences_decide(own: float, stan: float, expected: bool) -> None:
    """With relative errors in one element of each."""
    theta, size = np.array([0.3, -0.7, 1.1]), 1e6

    def log_density(at: Array) -> float:
        return float(-size * np.cosh(at).sum())

    exact, error = -size * np.sinh(theta), np.array([0.0, size, 0.0])
    assert _is_slope(log_density, theta, exact + own * error, exact + stan * error) == expected


@pytest.mark.parametrize(("finite_within", "expected"), [(9.0, 1.0), (2.5, 0.75**2), (0.0, 0.75**12)])
def test_stans_gradient_is_taken_where_it_is_finite(finite_within: float, expected: float) -> None:
    """Where `exp` overflows, the gradient of a finite log density may be NaN."""
    theta = np.array([4.0, -1.0])

    def gradient(at: Array) -> Array:
        return -at if np.abs(at).max() < finite_within else np.full(2, np.nan)

    point, slope = _with_slope(gradient, theta, lambda: None)
    np.testing.assert_allclose(point, expected * theta)
    np.testing.assert_array_equal(slope, gradient(point))
