"""Effects that are normal about a mean that is a parameter are found from gradients of their prior."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import priors_of_effects
import pytest
from numpy.typing import NDArray

from stansub.target.approximation import Approximation
from stansub.target.normal_effects import NormalEffects
from stansub.tuning.effects.coordinates import Effects
from stansub.tuning.effects.effect_functions import functions_of, slopes_of_log_determinant, triangles_of
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
    means = structure.means.toarray()
    np.testing.assert_allclose(means[SINGLE, LINE], np.column_stack([np.ones(4), AGES]), atol=1e-5)
    np.testing.assert_allclose(means[PAIRS, MU], np.tile(np.eye(2), (3, 1)), atol=1e-5)
    compiled = structure.about(about, draws).compiled()
    points = np.random.default_rng(4).standard_normal((8, DIM))
    gaps = [compiled.log_density(theta) - linear_means(theta) - about(phi(theta)) for theta in points]
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-3)


def test_coordinates_about_0_do_not_suit_them(structure: Structure) -> None:
    assert structure.joined(Effects.none(DIM)).full.is_plain


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
