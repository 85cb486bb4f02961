"""Normal effects and their scales are found from gradients of priors and from arguments of the likelihood."""

from collections.abc import Callable
from functools import partial

import numpy as np
import priors_of_effects
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.target import cholesky
from stansub.target.approximation import Approximation
from stansub.target.sparse import Quadratic
from stansub.tuning.effects import parts
from stansub.tuning.effects.centred_effects import centred
from stansub.tuning.effects.coordinates import find_effects
from stansub.tuning.effects.normal_effects import Structure

Array = NDArray[np.float64]
# alpha; log tau and local log scales of three effects; log omega of centred effects; log scales and a correlation of
# a pair.
ALPHA, TAU, LOCAL, Z = 0, 1, slice(2, 5), slice(5, 8)
OMEGA, CENTRED, SDS, CORRELATION, PAIR = 8, slice(9, 11), slice(11, 13), 13, slice(14, 16)
DIM = 16
SCALES = [TAU, 2, 3, 4, OMEGA, 11, 12, CORRELATION]
M = 1 + 3 + 2 + 2


def phi(theta: Array) -> Array:
    rho, pair = np.tanh(theta[CORRELATION]), theta[PAIR]
    lower = np.array([[1, 0], [rho, np.sqrt(1 - rho**2)]])
    effects = np.exp(theta[TAU] + theta[LOCAL]) * theta[Z]
    return np.concatenate([theta[:1], effects, theta[CENTRED], np.exp(theta[SDS]) * (lower @ pair)])


def normal_prior(theta: Array) -> float:
    """Log scales have a density of another form than normal, alpha a normal one."""
    s, size = theta[SCALES], np.exp(theta[OMEGA])
    effects = theta[Z] @ theta[Z] + theta[PAIR] @ theta[PAIR] + theta[CENTRED] @ theta[CENTRED] / size**2
    return float(np.sum(s - 2 * np.logaddexp(0, 2 * s)) - effects / 2 - 2 * theta[OMEGA] - (theta[ALPHA] - 1) ** 2 / 8)


def heavy_effects(theta: Array) -> float:
    return normal_prior(theta) + theta[Z] @ theta[Z] / 2 - 2 * float(np.sum(np.log1p(theta[Z] ** 2 / 3)))


def tied_scales(theta: Array) -> float:
    return normal_prior(theta) - 0.1 * theta[TAU] * theta[OMEGA]


def centred_elsewhere(theta: Array) -> float:
    """Effects about a parameter."""
    return normal_prior(theta) + float(np.sum(theta[CENTRED])) * theta[ALPHA] * np.exp(-2 * theta[OMEGA])


def expansion() -> Approximation:
    return priors_of_effects.expansion(M)


def found(prior: Callable[[Array], float], draws: Array, phi: Callable[[Array], Array] = phi) -> Structure | None:
    return priors_of_effects.found(prior, draws, phi, M)


@pytest.fixture
def draws() -> Array:
    return 0.5 * np.random.default_rng(3).standard_normal((10, DIM))


@pytest.fixture(scope="module")
def structure() -> Structure:
    """That of the prior that is as it should be."""
    given = found(normal_prior, 0.5 * np.random.default_rng(3).standard_normal((10, DIM)))
    assert given is not None
    return given


def test_the_density_is_the_surrogate_s(structure: Structure, draws: Array) -> None:
    about = expansion()
    np.testing.assert_array_equal(structure.scales, SCALES)
    compiled = structure.about(about, draws).compiled()
    points = np.random.default_rng(4).standard_normal((8, DIM))
    gaps = [compiled.log_density(theta) - normal_prior(theta) - about(phi(theta)) for theta in points]
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-4)


def test_coefficients_are_drawn_in_parts_if_their_factor_would_be_dear(
    structure: Structure, draws: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = expansion()
    whole = structure.about(about, draws)
    monkeypatch.setattr(cholesky, "_DEAR", 0.0)
    monkeypatch.setattr(parts, "_JOINED", 0.0)
    in_parts = structure.about(about, draws)
    assert len(whole.part_sizes) == 1
    # Three effects with local scales, those centred, and the pair; each with alpha.
    assert sorted(in_parts.part_sizes) == [2, 2, 2, 3, 3]
    assert not in_parts.centre.size
    point = np.random.default_rng(4).standard_normal(DIM)
    assert in_parts.compiled().log_density(point) == whole.compiled().log_density(point)


def test_scales_may_be_bounded(draws: Array) -> None:
    """One of the standardised effects has the precision of its scale plus that of a slab."""

    def bounded(theta: Array) -> Array:
        arguments = phi(theta)
        arguments[1] /= np.sqrt(1 + np.exp(2 * (theta[TAU] + theta[2] - theta[OMEGA])))
        return arguments

    structure, about = found(normal_prior, draws, bounded), expansion()
    assert structure is not None
    assert (structure.functions.minima.counts == 2).sum() == 1
    compiled = structure.about(about, draws).compiled()
    points = np.random.default_rng(4).standard_normal((8, DIM))
    gaps = [compiled.log_density(theta) - normal_prior(theta) - about(bounded(theta)) for theta in points]
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-4)


def test_bounds_are_found_from_where_they_do_not_matter(draws: Array) -> None:
    """Near 0 a scale looks the same with a bound of any form; elsewhere, one of another form is refused."""

    def bounded(theta: Array, power: float) -> Array:
        arguments = phi(theta)
        arguments[1:4] /= (1 + np.exp(power * (theta[TAU] + theta[LOCAL] - theta[OMEGA]))) ** (1 / power)
        return arguments

    draws[-1, TAU] = -12
    structure = found(normal_prior, draws, partial(bounded, power=2))
    assert structure is not None
    assert (structure.functions.minima.counts == 2).sum() == 3
    assert found(normal_prior, draws, partial(bounded, power=1)) is None


@pytest.mark.parametrize("place", [(1, 6), (6, 1), (0, 5), (5, 0)])
def test_elements_may_be_0_on_one_side_of_the_diagonal(
    place: tuple[int, int], structure: Structure, draws: Array
) -> None:
    """Rounding alone keeps the other one from 0."""
    matrix = np.eye(M)
    matrix[place] = 1e-18
    about = Approximation.plain(Quadratic.of(np.zeros(M), 0.0, np.ones(M), sp.csr_array(matrix)))
    compiled = structure.about(about, draws).compiled()
    points = np.random.default_rng(4).standard_normal((4, DIM))
    gaps = [compiled.log_density(theta) - normal_prior(theta) - about(phi(theta)) for theta in points]
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-4)


def test_a_shared_scale_moves_against_local_ones(structure: Structure, draws: Array) -> None:
    own = structure.about(expansion(), draws)
    lines = sp.csr_array((own.directions, own.move_columns, own.move_starts)).toarray()
    assert (np.abs(lines - [1, -1, -1, -1, 0, 0, 0, 0]).max(axis=1) < 1e-6).any()
    assert len(lines) >= 2 * len(SCALES) + 1


def test_few_scales_are_proposed_together(structure: Structure, draws: Array) -> None:
    assert not structure.about(expansion(), draws).centre.size  # of eight scales, ten draws show no distribution
    more = 0.5 * np.random.default_rng(5).standard_normal((40, DIM))
    own = structure.about(expansion(), more)
    np.testing.assert_allclose(own.centre, more[:, SCALES].mean(axis=0))
    np.testing.assert_allclose(own.root @ own.root.T, np.cov(more[:, SCALES], rowvar=False), atol=1e-12)
    more[:, SCALES[0]] = 1.0
    assert not structure.about(expansion(), more).centre.size


def test_centred_effects_join_the_others(structure: Structure, draws: Array) -> None:
    others = find_effects(phi, draws[-1], np.random.default_rng(2))
    effects = structure.joined(others)
    np.testing.assert_array_equal(effects.full.places[-2:], [9, 10])
    np.testing.assert_array_equal(effects.centred, effects.few)
    np.testing.assert_array_equal(effects.centred.nonzero()[0] - effects.n_blocks, [-2, -1])
    theta = draws[0]
    inner = effects.weighted(np.full(effects.n_blocks, 0.75)).inward(theta)
    np.testing.assert_allclose(inner[CENTRED], theta[CENTRED] * np.exp(-0.25 * theta[OMEGA]), rtol=1e-5)
    plain = effects.weighted(np.where(effects.centred, 1.0, 0.75))
    np.testing.assert_array_equal(plain.places, others.full.places)


@pytest.mark.parametrize("prior", [heavy_effects, tied_scales, centred_elsewhere])
def test_other_posteriors_are_left_alone(prior: Callable[[Array], float], draws: Array) -> None:
    assert found(prior, draws) is None


def test_a_scale_may_depend_on_a_coefficient_that_is_well_known(draws: Array) -> None:
    """As if tau had a prior whose scale is the sd of errors, exp(alpha)."""

    def relative(theta: Array) -> float:
        return normal_prior(theta) - 2 * float(np.log1p(np.exp(2 * (theta[TAU] - theta[ALPHA])) / 3))

    assert found(relative, draws) is None
    draws[:, ALPHA] *= 0.01
    structure = found(relative, draws)
    assert structure is not None
    np.testing.assert_array_equal(structure.others, [ALPHA])
    np.testing.assert_array_equal(structure.scales, SCALES)


def test_coefficients_without_scales_are_no_effects(draws: Array) -> None:
    """Nor are those with a prior that is not defined where all of them are 1."""

    def fixed(theta: Array) -> float:
        return -float(theta @ theta) / 2

    def undefined(theta: Array) -> float:
        return fixed(theta) if theta[0] < 0.9 else np.nan

    for prior in (fixed, undefined):
        assert found(prior, draws, lambda theta: theta[:4]) is None


def test_effects_that_all_depend_on_each_other_are_no_blocks() -> None:
    """There is no block of few effects: the search for them failed."""
    n, rng = 40, np.random.default_rng(1)
    precision = np.eye(n) + 0.1 + np.diag(rng.uniform(size=n))

    def prior(theta: Array) -> Array:
        return np.append(-precision @ theta[:n], 0.0)

    found = centred(prior, np.zeros(n + 1), np.ones(n + 1), np.arange(n), np.array([n]))
    assert found is not None
    assert not found.places.size
