"""Changes along each parameter, from moves of many together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from stansub.errors import EndedError, RunError
from stansub.target.separated import Separated
from stansub.types import FloatArray

N_GROUPS = 400
DIM = 2 * N_GROUPS + 4


class Counted:
    """A function that counts its evaluations."""

    def __init__(self, function: Callable[[FloatArray], FloatArray]) -> None:
        self.function, self.n = function, 0

    def __call__(self, theta: FloatArray) -> FloatArray:
        self.n += 1
        return self.function(theta)


def correlated_effects(theta: FloatArray) -> FloatArray:
    """Coefficients, and two effects of each group with scales and a correlation."""
    coefficient, (first, second), turn = theta[:1], np.exp(theta[1:3]), np.tanh(theta[3])
    z = theta[4:].reshape(2, N_GROUPS)
    return np.concatenate([coefficient, first * z[0], second * (turn * z[0] + np.sqrt(1 - turn**2) * z[1])])


def by_one(function: Callable[[FloatArray], FloatArray], theta: FloatArray, steps: FloatArray) -> FloatArray:
    """Changes from moves of one parameter each."""
    return np.array([function(theta + step) - function(theta) for step in np.diag(steps)]).T


@pytest.fixture
def theta() -> FloatArray:
    return np.random.default_rng(1).normal(size=DIM)


def test_changes_are_those_of_one_move_each(theta: FloatArray) -> None:
    steps = np.random.default_rng(2).uniform(0.5, 2, DIM)
    counted = Counted(correlated_effects)
    found = Separated.of(counted, theta, steps).changes(counted, theta, steps)
    np.testing.assert_array_equal(found.toarray(), by_one(correlated_effects, theta, steps))
    assert counted.n < 100


def test_groups_serve_other_points_and_steps(theta: FloatArray) -> None:
    separated = Separated.of(correlated_effects, theta, np.ones(DIM))
    other, steps = theta[::-1].copy(), np.full(DIM, -0.5)
    found = separated.changes(correlated_effects, other, steps).toarray()
    np.testing.assert_array_equal(found, by_one(correlated_effects, other, steps))


def test_what_changes_elsewhere_is_moved_alone(theta: FloatArray) -> None:
    """Where the first effect of a group is positive, it changes the second one's value."""

    def turned(at: FloatArray) -> FloatArray:
        found = correlated_effects(at)
        found[2:] += (at[4] > 0) * np.roll(at[4:], 3)[1:]
        return found

    theta[4] = -9.0
    separated = Separated.of(turned, theta, np.ones(DIM))
    assert max(map(len, separated.groups)) > 100
    there, steps = theta.copy(), np.full(DIM, 0.1)
    there[4] = 9.0
    expected = by_one(turned, there, steps)
    np.testing.assert_array_equal(separated.changes(turned, there, steps).toarray(), expected)


def test_a_walk_is_moved_one_by_one(theta: FloatArray) -> None:
    counted, steps = Counted(np.cumsum), np.ones(DIM)
    found = Separated.of(counted, theta, steps).changes(counted, theta, steps).toarray()
    np.testing.assert_array_equal(found, by_one(np.cumsum, theta, steps))
    assert counted.n < 1.3 * DIM


def test_a_long_walk_shows_soon() -> None:
    """Which groups overlap would take as many operations as there are values, times the square of the groups."""
    counted, dim = Counted(np.cumsum), 16_000
    separated = Separated.of(counted, np.zeros(dim), np.ones(dim))
    assert all(len(group) == 1 for group in separated.groups)
    assert counted.n < 600


def test_few_parameters_are_moved_one_by_one() -> None:
    counted = Counted(lambda at: at**2)
    separated = Separated.of(counted, np.zeros(9), np.ones(9))
    assert counted.n == 0
    assert [group.tolist() for group in separated.groups] == [[k] for k in range(9)]


def test_nothing_changes(theta: FloatArray) -> None:
    """As the gradient of a flat prior."""
    for symmetric in (False, True):
        separated = Separated.of(np.zeros_like, theta, np.ones(DIM), symmetric=symmetric)
        found = separated.changes(np.zeros_like, theta, np.ones(DIM))
        assert found.shape == (DIM, DIM)
        assert found.nnz == 0


def test_undefined_where_many_are_moved(theta: FloatArray) -> None:
    def bounded(at: FloatArray) -> FloatArray:
        if np.abs(at - theta).sum() > 5:
            raise RunError("too far")
        return correlated_effects(at)

    steps = np.ones(DIM)
    found = Separated.of(bounded, theta, steps).changes(bounded, theta, steps).toarray()
    np.testing.assert_array_equal(found, by_one(correlated_effects, theta, steps))

    # Groups found by short steps, for longer ones.
    found = Separated.of(bounded, theta, 1e-3 * steps).changes(bounded, theta, steps).toarray()
    np.testing.assert_array_equal(found, by_one(correlated_effects, theta, steps))


def test_an_end_is_no_undefined_value(theta: FloatArray) -> None:
    def ended(at: FloatArray) -> FloatArray:
        raise EndedError

    with pytest.raises(EndedError):
        Separated.of(ended, theta, np.ones(DIM))


def test_shared_values_of_a_gradient(theta: FloatArray) -> None:
    """The scales' elements are changed by all effects, and are left to the scales' own changes."""

    def gradient(at: FloatArray) -> FloatArray:
        scales, z = np.exp(at[1:3, np.newaxis]), at[4:].reshape(2, N_GROUPS)
        of_scales = (scales * z).sum(axis=1)
        return np.concatenate([at[:1], of_scales, at[3:4], (scales * z).ravel()])

    counted, steps = Counted(gradient), np.full(DIM, 1e-4)
    separated = Separated.of(counted, theta, steps, symmetric=True)
    assert np.flatnonzero(separated.shared).tolist() == [1, 2]
    found = separated.changes(counted, theta, steps).toarray()
    expected = by_one(gradient, theta, steps)
    own = np.zeros(DIM, bool)
    own[[1, 2]] = True
    np.testing.assert_array_equal(found[~own], expected[~own])
    np.testing.assert_array_equal(found[:, own], expected[:, own])
    assert counted.n < 250
    # They are not shared for a function that is no gradient.
    assert not Separated.of(gradient, theta, steps).shared.any()
