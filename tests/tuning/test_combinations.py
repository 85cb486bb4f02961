"""Effects that are combined to the arguments that they reach, so that precisions are sparse."""

import numpy as np
import priors_of_effects
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.target.coordinates import Coordinates
from stansub.tuning.effects.combinations import combined
from stansub.tuning.effects.coordinates import find_effects

Array = NDArray[np.float64]
# A mean and two log scales, of first steps and of others; the steps of three walks.
STEPS, WALKS = 8, 3
DIM = 3 + STEPS * WALKS
PLACES = np.arange(3, DIM)


def levels(theta: Array) -> Array:
    """Of walks about a mean."""
    steps = np.exp(np.repeat(theta[1:3], [1, STEPS - 1])) * theta[PLACES].reshape(WALKS, STEPS)
    return np.concatenate([theta[:1], (theta[0] + np.cumsum(steps, axis=1)).ravel()])


def test_steps_are_combined_to_levels() -> None:
    images = sp.csc_array(sp.block_diag([np.tril(np.ones((STEPS, STEPS)))] * WALKS))
    columns, rows = combined(images, PLACES, DIM)
    expected = np.eye(DIM)
    expected[3:, 3:] = images.toarray()
    np.testing.assert_array_equal(columns.toarray(), expected)
    np.testing.assert_allclose(rows.toarray(), np.linalg.inv(expected), atol=1e-12)
    assert rows.nnz == DIM + (STEPS - 1) * WALKS


@pytest.mark.parametrize(
    "images",
    [
        np.eye(4),
        np.array([[1.0, 0, 0], [0, 1, 1]]),  # more effects than arguments
        np.tril(np.ones((2, 2))),  # the inverse has as many entries
        np.linalg.inv(np.tril(np.ones((4, 4)))),
        np.ones((4, 4)),
        np.array([[0.0, 1, 1], [1, 0, 1], [1, 1, 0]]),
    ],
)
def test_others_stay_as_they_are(images: Array) -> None:
    columns, rows = combined(sp.csc_array(images), np.arange(1, 1 + images.shape[1]), 6)
    np.testing.assert_array_equal(columns.toarray(), np.eye(6))
    np.testing.assert_array_equal(rows.toarray(), np.eye(6))


def test_inner_coordinates_are_levels_in_which_the_precision_is_sparse() -> None:
    effects = find_effects(levels, np.zeros(DIM), np.random.default_rng(1))
    rng = np.random.default_rng(2)
    theta, data = rng.standard_normal(DIM), rng.uniform(1, 2, STEPS * WALKS)
    whole = effects.weighted(np.ones(effects.n_blocks)).inward(theta)
    np.testing.assert_allclose(whole[PLACES], levels(theta)[1:] - theta[0], rtol=1e-6)
    units = np.eye(DIM)[PLACES]
    units[:, :3] = theta[:3]
    of_units = np.array([levels(one)[1:] for one in units]) - theta[0]

    def n_entries(weight: float) -> int:
        """Of the posterior's precision given the scales."""
        inner = effects.weighted(np.full(effects.n_blocks, weight))
        back = np.linalg.inv([inner.inward(one)[PLACES] for one in units])
        precision = back @ (of_units @ np.diag(data) @ of_units.T + np.eye(len(units))) @ back.T
        return np.count_nonzero(np.abs(precision) > 1e-9 * np.abs(precision).max())

    banded = WALKS * (3 * STEPS - 2)
    assert n_entries(1.0) == banded
    assert n_entries(0.5) == banded + WALKS * 2 * (STEPS - 2)  # first steps, of another scale, stand out


def test_precisions_are_sparse_in_matching_coordinates() -> None:
    """The data say more about early steps than about late ones, whose weights would be less."""
    effects = find_effects(levels, np.zeros(DIM), np.random.default_rng(1))
    theta = 0.3 * np.random.default_rng(2).standard_normal(DIM)
    about = priors_of_effects.expansion(1 + STEPS * WALKS)
    coordinates = effects.matching(about.precision, theta[np.newaxis])

    def pattern(coordinates: Coordinates) -> NDArray[np.bool_]:
        """Of steps that an argument reads."""
        own, inner = coordinates.compiled(), coordinates.inward(theta)
        columns = []
        for place in PLACES:
            moved, out = inner.copy(), np.empty(DIM)
            moved[place] += 1
            own.outward(moved, out)
            columns.append(np.abs(levels(out) - levels(theta)) > 1e-9)
        return np.array(columns)

    np.testing.assert_array_equal(pattern(coordinates), pattern(effects.halfway()))
    different = effects.weighted(np.linspace(0.9, 0.1, effects.n_blocks))
    assert pattern(different).sum() > 2 * pattern(coordinates).sum()


def test_normal_effects_are_combined_under_a_likelihood_of_their_levels() -> None:
    """The density is the surrogate's, and its precision is that of levels."""

    def prior(theta: Array) -> float:
        return float(-0.5 * theta @ theta)

    m = 1 + STEPS * WALKS
    draws = 0.5 * np.random.default_rng(3).standard_normal((10, DIM))
    structure, about = priors_of_effects.found(prior, draws, levels, m), priors_of_effects.expansion(m)
    assert structure is not None
    effects = structure.about(about, draws)
    compiled = effects.compiled()
    points = np.random.default_rng(4).standard_normal((8, DIM))
    gaps = [compiled.log_density(theta) - prior(theta) - about(levels(theta)) for theta in points]
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-4)
    (n_levels,) = effects.linear.shape
    precision = sp.csr_array((effects.precision, effects.precision_columns, effects.precision_starts))
    expected = about.precision.toarray()
    np.testing.assert_allclose(precision.toarray()[1:, 1:], expected[1:, 1:], atol=1e-6)
    assert n_levels == m


def test_the_steps_of_one_scale_are_single_effects() -> None:
    """A matrix of them would have a function for each two."""

    def walk(theta: Array) -> Array:
        return np.asarray(theta[0] + np.exp(theta[1]) * np.cumsum(theta[2:]))

    effects = find_effects(walk, np.zeros(12), np.random.default_rng(1))
    np.testing.assert_array_equal(effects.full.sizes, np.ones(10))
    np.testing.assert_array_equal(effects.full.columns, np.ones(10))
    assert not effects.combination.is_none
