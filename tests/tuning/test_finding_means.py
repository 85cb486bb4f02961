"""Effects that are normal about a mean that is a parameter are found from gradients of their prior."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import priors_of_effects
import pytest
from numpy.typing import NDArray

from stansub.target.approximation import Approximation
from stansub.target.normal_effects import NormalEffects
from stansub.tuning.effects.centred_effects import means_of, without_means
from stansub.tuning.effects.effect_functions import functions_of, slopes_of_log_determinant, triangles_of
from stansub.tuning.effects.effects import Effects
from stansub.tuning.effects.normal_effects import Structure
from stansub.tuning.surrogates.gibbs import sweep_cost

Array = NDArray[np.float64]
# A mean of pairs, their log scales and a correlation; pairs of three groups; a mean of single effects at two ages and
# its slope, their log scale, and these effects; a coefficient.
MU, SDS, CORRELATION, PAIRS = slice(0, 2), slice(2, 4), 4, slice(5, 11)
LINE, TAU, SINGLE, ALPHA, DIM = slice(11, 13), 13, slice(14, 18), 18, 19
AGES = np.array([0.0, 1.0, 2.5, -1.0])
M = 11


def phi(theta: Array) -> Array:
    return theta[[*range(5, 11), *range(14, 19)]]


def prior_about(theta: Array, pair: Array, line: Array) -> float:
    s, rho = theta[[2, 3, CORRELATION, TAU]], theta[CORRELATION]
    first, second = ((theta[PAIRS].reshape(3, 2) - pair) / np.exp(theta[SDS])).T
    second = np.cosh(rho) * (second - np.tanh(rho) * first)
    single = (theta[SINGLE] - line) / np.exp(theta[TAU])
    squares = first @ first + second @ second + single @ single + np.sum(theta[[0, 1, 11, 12, ALPHA]] ** 2) / 4
    log_determinant = 3 * (np.sum(theta[SDS]) - np.log(np.cosh(rho))) + 4 * theta[TAU]
    return float(np.sum(s - 2 * np.logaddexp(0, 2 * s)) - squares / 2 - log_determinant)


def linear_means(theta: Array) -> float:
    return prior_about(theta, theta[MU], theta[11] + theta[12] * AGES)


def means_of_scales(theta: Array) -> float:
    return prior_about(theta, theta[MU] * np.exp(theta[SDS]), theta[11] + theta[12] * AGES)


def bent_means(theta: Array) -> float:
    return prior_about(theta, theta[MU], theta[11] + theta[12] ** 2 * AGES)


def expansion() -> Approximation:
    return priors_of_effects.expansion(M)


def found(prior: Callable[[Array], float], draws: Array) -> Structure | None:
    return priors_of_effects.found(prior, draws, phi, M)


@pytest.fixture
def draws() -> Array:
    return 0.5 * np.random.default_rng(3).standard_normal((10, DIM))


@pytest.fixture(scope="module")
def structure() -> Structure:
    """That of linear means."""
    given = found(linear_means, 0.5 * np.random.default_rng(3).standard_normal((10, DIM)))
    assert given is not None
    return given


def test_the_density_is_the_surrogate_s(structure: Structure, draws: Array) -> None:
    about = expansion()
    np.testing.assert_array_equal(structure.scales, [2, 3, CORRELATION, TAU])
    np.testing.assert_array_equal(np.sort(structure.functions.sizes), [1, 1, 1, 1, 2, 2, 2])
    means = structure.means.matrix.toarray()
    np.testing.assert_allclose(means[SINGLE, LINE], np.column_stack([np.ones(4), AGES]), atol=1e-5)
    np.testing.assert_allclose(means[PAIRS, MU], np.tile(np.eye(2), (3, 1)), atol=1e-5)
    compiled = structure.about(about, draws).compiled()
    points = np.random.default_rng(4).standard_normal((8, DIM))
    gaps = [compiled.log_density(theta) - linear_means(theta) - about(phi(theta)) for theta in points]
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-3)


def test_they_have_coordinates_without_a_share_of_their_means(structure: Structure, draws: Array) -> None:
    effects = structure.joined(Effects.none(DIM))
    is_single = effects.full.sizes == 1
    own = np.array([0, 0.25, 0.6, 1])
    weights = np.zeros(7)
    weights[is_single] = own
    coordinates = effects.weighted(weights)
    np.testing.assert_array_equal(np.sort(coordinates.places), [*range(5, 11), 14, 15, 16])
    for theta in draws:
        expected = theta.copy()
        expected[SINGLE] -= (1 - own) * (theta[11] + theta[12] * AGES)
        expected[SINGLE] *= np.exp((own - 1) * theta[TAU])
        rho = theta[CORRELATION]
        first, second = ((theta[PAIRS].reshape(3, 2) - theta[MU]) / np.exp(theta[SDS])).T
        expected[PAIRS] = np.column_stack([first, np.cosh(rho) * (second - np.tanh(rho) * first)]).ravel()
        np.testing.assert_allclose(coordinates.inward(theta), expected, rtol=1e-5)


# Log scales of schools and of classes, an intercept and a slope, effects of schools, and those of three classes each.
GROUPS = 300
SCHOOLS, CLASSES = slice(4, 4 + GROUPS), slice(4 + GROUPS, 4 + 4 * GROUPS)
SIZES = np.random.default_rng(6).standard_normal(GROUPS)


def gradient_of_nested(theta: Array) -> Array:
    schools, classes = theta[SCHOOLS], theta[CLASSES].reshape(GROUPS, 3)
    of_schools = np.exp(-2 * theta[0]) * (theta[2] + theta[3] * SIZES - schools)
    of_classes = np.exp(-2 * theta[1]) * (schools[:, np.newaxis] - classes)
    scales = [np.sum(own**2 / np.exp(-2 * s)) for own, s in ((of_schools, theta[0]), (of_classes, theta[1]))]
    line = [-of_schools.sum(), -of_schools @ SIZES]
    return np.array([*scales, *line, *(of_schools - of_classes.sum(axis=1)), *of_classes.ravel()])


def test_means_may_have_means() -> None:
    """Each level is found from the gradient without the means below; of hundreds of schools, many are moved at once."""
    dim = 4 + 4 * GROUPS
    theta = 0.5 * np.random.default_rng(7).standard_normal(dim)
    means = means_of(gradient_of_nested, theta, np.arange(dim)[CLASSES], np.arange(dim)[: 4 + GROUPS])
    expected = np.zeros((dim, dim))
    expected[CLASSES, SCHOOLS] = np.repeat(np.eye(GROUPS), 3, axis=0)
    expected[SCHOOLS, 2], expected[SCHOOLS, 3] = 1, SIZES
    np.testing.assert_allclose(means.matrix.toarray(), expected, atol=1e-9)
    x = means.removed(theta)
    np.testing.assert_allclose(x, theta - expected @ theta, rtol=1e-12)
    np.testing.assert_allclose(means.inverse @ x, theta, rtol=1e-12)
    slopes = without_means(gradient_of_nested, means)(x)
    np.testing.assert_allclose(slopes[2:4], 0, atol=1e-9)
    np.testing.assert_allclose(slopes[SCHOOLS], -np.exp(-2 * theta[0]) * x[SCHOOLS], rtol=1e-9)
    np.testing.assert_allclose(slopes[CLASSES], -np.exp(-2 * theta[1]) * x[CLASSES], rtol=1e-9)


@pytest.mark.parametrize("prior", [means_of_scales, bent_means])
def test_other_means_are_left_alone(prior: Callable[[Array], float], draws: Array) -> None:
    assert found(prior, draws) is None


def test_pairs_make_sweeps_dearer(structure: Structure, draws: Array) -> None:
    """Each of the three pairs depends on three scales, along each of which two slices fix effects or z."""
    effects = structure.about(expansion(), draws)
    ends = effects.starts[:11]
    blocks = {"sizes": np.ones(10, np.int32), "counts": np.ones(10, np.int32)}
    single = replace(effects, **blocks, starts=ends, columns=effects.columns[: ends[-1]])

    def of_lines(effects: NormalEffects) -> float:
        without = replace(effects, widths=effects.widths[:0], move_starts=effects.move_starts[:1])
        return sweep_cost(effects) - sweep_cost(without)

    per_line = of_lines(effects), of_lines(single)
    assert per_line[0] - per_line[1] == pytest.approx(16 * 0.008 * 3 * 6 * 4)


def test_functions_determine_triangles() -> None:
    rng = np.random.default_rng(5)
    triangles = np.tril(rng.standard_normal((4, 3, 3)))
    triangles[:, range(3), range(3)] = np.exp(rng.standard_normal((4, 3)))
    functions = functions_of(triangles)
    np.testing.assert_allclose(triangles_of(functions, 3), triangles, rtol=1e-12)
    np.testing.assert_allclose(functions[:, [0, 2, 5]], np.log(np.linalg.norm(triangles, axis=2)))
    slopes = slopes_of_log_determinant(functions, 3)
    for j, step in enumerate(1e-6 * np.eye(6)):
        up, down = (np.linalg.slogdet(triangles_of(functions + sign * step, 3))[1] for sign in (1, -1))
        np.testing.assert_allclose((up - down) / 2e-6, slopes[:, j], atol=1e-8)


FEW_SIZES = np.array([0.5, -1.0])


def nested(theta: Array) -> float:
    """Log scales of schools and of classes, an intercept and a slope, two schools, three classes of each."""
    s, line, schools, classes = theta[:2], theta[2:4], theta[4:6], theta[6:12].reshape(2, 3)
    of_schools = (schools - line[0] - line[1] * FEW_SIZES) / np.exp(s[0])
    of_classes = ((classes - schools[:, np.newaxis]) / np.exp(s[1])).ravel()
    squares = of_schools @ of_schools + of_classes @ of_classes + line @ line / 4
    return float(np.sum(s - 2 * np.logaddexp(0, 2 * s)) - squares / 2 - 2 * s[0] - 6 * s[1])


def test_the_density_is_the_surrogate_s_where_means_have_means() -> None:
    draws = 0.5 * np.random.default_rng(8).standard_normal((10, 12))
    given = priors_of_effects.found(nested, draws, lambda theta: theta[6:12], 6)
    assert given is not None
    np.testing.assert_array_equal(given.scales, [0, 1])
    np.testing.assert_array_equal(given.others, [2, 3])
    about = priors_of_effects.expansion(6)
    compiled = given.about(about, draws).compiled()
    points = np.random.default_rng(9).standard_normal((8, 12))
    gaps = [compiled.log_density(theta) - nested(theta) - about(theta[6:12]) for theta in points]
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-3)
