"""Effects and what scales them are found from evaluations alone, and left alone where the proof fails."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.errors import RunError
from stansub.target.coordinates import Coordinates
from stansub.target.prior_means import PriorMeans
from stansub.target.soft_minima import SoftMinima
from stansub.tuning.effects.coordinates import find_effects, unit_columns
from stansub.tuning.effects.effects import Effects

Array = NDArray[np.float64]
J, K = 5, 4
# alpha, log tau; effects of a scale; two log scales and a correlation; pairs of effects; centred effects.
TAU, Z, SDS, CORRELATION, PAIRS, CENTRED = 1, slice(2, 7), slice(7, 9), 9, slice(10, 18), slice(18, 21)
DIM = 21


def phi(theta: Array) -> Array:
    """An intercept, effects that are a scale times others and a mean, correlated pairs, and centred ones."""
    rho, pairs = np.tanh(theta[CORRELATION]), theta[PAIRS].reshape(K, 2)
    lower = np.array([[1, 0], [rho, np.sqrt(1 - rho**2)]])
    r = pairs @ (np.exp(theta[SDS])[:, np.newaxis] * lower).T
    return np.concatenate([theta[:1], 0.3 * theta[0] + np.exp(theta[TAU]) * theta[Z], r.T.ravel(), theta[CENTRED]])


def found(of: object = phi, dim: int = DIM) -> Effects:
    return find_effects(of, np.zeros(dim), np.random.default_rng(1))  # type: ignore[arg-type]


def test_blocks_are_found() -> None:
    effects = found()
    assert sorted(effects.full.sizes) == [1] * J + [2] * K
    assert sorted(effects.full.places) == [*range(2, 7), *range(10, 18)]


def test_arguments_are_the_inner_coordinates() -> None:
    effects = found()
    for theta in np.random.default_rng(2).standard_normal((5, DIM)):
        mean = 0.3 * theta[0] * np.isin(effects.full.places, np.arange(2, 7))
        inner = effects.full.inward(theta)[effects.full.places] + mean
        np.testing.assert_allclose(inner, phi(theta)[effects.images.indices], rtol=1e-6)


def test_weights_are_the_data_s_share_of_precision() -> None:
    effects, theta = found(), np.zeros((1, DIM))  # scales 1, no correlation
    given = np.geomspace(1e-3, 1e3, len(phi(theta[0])))
    coordinates = effects.matching(sp.csr_array(sp.diags_array(given)), theta)
    shares = given[effects.images.indices] / (1 + given[effects.images.indices])
    ends = np.cumsum(effects.full.sizes)
    weights = [shares[end - size : end].mean() for end, size in zip(ends, effects.full.sizes, strict=True)]
    expected = effects.weighted(np.array(weights))
    np.testing.assert_allclose(coordinates.coefficients, expected.coefficients, rtol=1e-9)
    half = effects.halfway().inward(np.ones(DIM))
    np.testing.assert_allclose(half[Z], np.exp(0.5))


def test_precisions_beyond_all_numbers_have_weight_1() -> None:
    effects, theta = found(), np.zeros((1, DIM))
    theta[0, [TAU, *range(*SDS.indices(DIM))]] = 10
    precision = sp.csr_array(sp.diags_array(np.full(len(phi(theta[0])), 1e308)))
    coordinates, expected = effects.matching(precision, theta), effects.weighted(np.ones(effects.n_blocks))
    np.testing.assert_array_equal(coordinates.coefficients, expected.coefficients)


def affine(theta: Array) -> Array:
    return np.concatenate([theta[:1] + theta[1:], 2 * theta])


def loadings(theta: Array) -> Array:
    """A product of two that are both of any sign."""
    return np.asarray(theta[0] * theta[1:])


def scaled_scales(theta: Array) -> Array:
    """The logarithm of each scale is a product itself."""
    return np.asarray(np.exp(np.exp(theta[0]) * theta[1:4]) * theta[4:7])


def additive(theta: Array) -> Array:
    """A scale whose logarithm is not affine."""
    return np.asarray((1 + np.exp(theta[0])) * theta[1:])


def turning(theta: Array) -> Array:
    """Effects whose directions depend on a parameter."""
    return np.concatenate([np.exp(theta[0]) * theta[2:], np.exp(theta[1]) * theta[2:]])


def nowhere(theta: Array) -> Array:
    raise RunError("not defined")


@pytest.mark.parametrize("of", [affine, loadings, scaled_scales, additive, turning, nowhere])
def test_anything_else_is_left_alone(of: object) -> None:
    effects = found(of, 7)
    assert effects.full.is_plain
    assert effects.matching(sp.csr_array((12, 12)), np.zeros((1, 7))).is_plain


def one_for_two(theta: Array) -> Array:
    """More arguments than effects."""
    return np.concatenate([np.exp(theta[0]) * theta[2:], 3 * np.exp(theta[0]) * theta[2:]])


def walks(theta: Array) -> Array:
    """Two random walks, whose first steps have another scale."""
    steps = theta[2:].reshape(2, 3) * np.exp(theta[[0, 1, 1]])
    return np.asarray(np.cumsum(steps, axis=1).ravel())


def shares(theta: Array) -> Array:
    """Sums of two effects that have shares of a variance, as in the model of Besag, York and Mollie."""
    of_first = 1 / (1 + np.exp(theta[1]))
    sds = np.exp(theta[0]) * np.sqrt([of_first, 1 - of_first])
    return np.asarray(sds @ theta[2:].reshape(2, 3))


@pytest.mark.parametrize("of", [one_for_two, walks, shares])
def test_effects_that_reach_common_arguments(of: Any) -> None:
    """Each moves them along a fixed direction. Steps of a walk are combined to its levels, and share their weight."""
    effects = found(of, 8)
    np.testing.assert_array_equal(np.sort(effects.full.places), np.arange(2, 8))
    for theta in np.random.default_rng(2).standard_normal((5, 8)):
        inner = effects.full.inward(theta)[effects.full.places]
        np.testing.assert_allclose(effects.images @ inner, of(theta), rtol=1e-6, atol=1e-9)
    precision = sp.csr_array(np.diag(np.geomspace(0.1, 10, len(of(np.zeros(8))))))
    theta, units = np.zeros((1, 8)), np.eye(8)[effects.full.places]
    moved = np.array([of(theta[0] + unit) - of(theta[0]) for unit in units])
    informed = np.einsum("ki,ij,kj->k", moved, precision.toarray(), moved)
    weights = informed / (1 + informed)
    if of is walks:
        weights = np.repeat(weights.reshape(2, 3).mean(axis=1), 3)
    expected = effects.weighted(weights)
    np.testing.assert_allclose(effects.matching(precision, theta).coefficients, expected.coefficients, rtol=1e-6)


def test_many_scales() -> None:
    def horseshoe(theta: Array) -> Array:
        return np.asarray(np.exp(theta[0] + theta[1:4]) * theta[4:7])

    effects = found(horseshoe, 7)
    assert effects.n_blocks == 3
    np.testing.assert_array_equal(effects.full.columns, [0, 1, 0, 2, 0, 3])
    np.testing.assert_allclose(effects.full.coefficients, 1, rtol=1e-8)


def test_bounded_scales() -> None:
    """Of a regularised horseshoe, with the slab's width last, and of one whose slab has a fixed width."""

    def regularised(theta: Array) -> Array:
        plain, slab = 2 * (theta[0] + theta[1:4]), np.array([theta[7], theta[7], 1.0])
        return np.asarray(np.sqrt(np.exp(plain + slab) / (np.exp(plain) + np.exp(slab))) * theta[4:7])

    for place, first in ((1, 0.0), (1, -9.0), (0, -12.0)):  # also where slabs do not matter for one effect, or any
        start = np.zeros(8)
        start[place] = first
        effects = find_effects(regularised, start, np.random.default_rng(1))
        assert effects.n_blocks == 3
        np.testing.assert_array_equal(effects.full.counts, 2)
        for theta in 3 * np.random.default_rng(4).standard_normal((5, 8)):
            np.testing.assert_allclose(effects.full.inward(theta)[4:7], regularised(theta), rtol=1e-5)


def test_scales_that_are_bounded_otherwise_are_no_soft_minima() -> None:
    """Where the bound does not matter, any bounded scale looks as if it was not bounded."""

    def bounded(theta: Array) -> Array:
        plain = np.exp(theta[0] + theta[1:4])
        return np.asarray(plain / (1 + plain * np.exp(-theta[7])) * theta[4:7])

    start = np.zeros(8)
    assert find_effects(bounded, start, np.random.default_rng(1)).full.is_plain
    start[0] = -17
    np.testing.assert_array_equal(find_effects(bounded, start, np.random.default_rng(1)).full.counts, 1)


def nested(n_few: int, n_many: int) -> tuple[Effects, sp.csr_array]:
    """Centred effects of few levels and of many, which lie within these; four observations of each of the many."""
    n = n_few + n_many
    rows = sp.csr_array((np.ones(n), (np.arange(n), np.repeat([0, 1], [n_few, n_many]))), shape=(n, n + 2))
    full = Coordinates.of(np.ones(n, np.int32), np.arange(2, n + 2), SoftMinima.affine(rows, np.zeros(n)))
    level = np.arange(n_many) % n_few
    rows = sp.csr_array((np.ones(n_many), (np.arange(n_many), level)), shape=(n_many, n_few))
    reads = sp.csr_array(sp.hstack([rows, sp.identity(n_many)]))
    images, none = unit_columns(np.arange(n), n), PriorMeans.none(full.dim)
    return Effects(full, images, np.ones(n, bool), none), sp.csr_array(4 * reads.T @ reads)


def test_few_centred_effects_are_weighed_with_all_others_integrated_out() -> None:
    few, many = 5, 100
    effects, precision = nested(few, many)
    theta = np.zeros((3, effects.full.dim))
    theta[:, :2] = np.log([0.1, 5.0])
    sds = np.exp(np.repeat(theta[0, :2], [few, many]))
    posterior = np.linalg.inv(precision.toarray() * np.outer(sds, sds) + np.eye(few + many))
    shares = 1 - np.diag(posterior)[:few]
    alone = precision.diagonal()[:few] * sds[:few] ** 2
    assert (shares < 0.8 * alone / (1 + alone)).all()
    coordinates = effects.matching(precision, theta)
    np.testing.assert_array_equal(coordinates.places, np.arange(2, few + 2))
    np.testing.assert_allclose(coordinates.coefficients, 1 - shares, rtol=1e-6)
    inner = coordinates.inward(np.concatenate([theta[0, :2], np.ones(few + many)]))
    np.testing.assert_allclose(inner[2 : few + 2], 0.1 ** (shares - 1), rtol=1e-6)
    np.testing.assert_array_equal(inner[few + 2 :], 1)


def test_centred_effects_that_the_data_determine_stay_as_they_are() -> None:
    effects, precision = nested(5, 100)
    theta = np.zeros((1, effects.full.dim))
    theta[:, :2] = np.log([2.0, 2.0])
    assert effects.matching(precision, theta).is_plain


def test_many_centred_effects_of_which_the_data_say_little_are_weighed_alone() -> None:
    few, many = 5, 100
    effects, precision = nested(few, many)
    theta = np.zeros((1, effects.full.dim))
    theta[:, :2] = np.log([2.0, 0.01])
    coordinates = effects.matching(precision, theta)
    np.testing.assert_array_equal(coordinates.places, np.arange(few + 2, few + many + 2))
    alone = precision.diagonal()[few:] * 0.01**2
    np.testing.assert_allclose(coordinates.coefficients, 1 / (1 + alone), rtol=1e-6)
