"""Moves between modes leave a posterior as it is, and broken ones do not."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import toys
from numpy.typing import NDArray
from steps import allocate, run_steps

from stansub.kernels.base import BatchControl
from stansub.kernels.between_modes import LaplaceMixture, NearestWalk
from stansub.kernels.proposals import Mixture, Proposal

Array = NDArray[np.float64]

# Two normals that nobody crosses by a random walk: means, sds and weights.
MEANS, SDS, WEIGHTS = np.array([-10.0, 10.0]), np.array([1.0, 2.0]), np.array([0.3, 0.7])
OTHER_WEIGHTS, OTHER_SDS = np.array([0.9, 0.1]), np.array([1.5, 1.5])


def log_density(theta: Array, which: NDArray[np.int32]) -> Array:
    parts = np.log(WEIGHTS / SDS) - 0.5 * ((theta[0] - MEANS) / SDS) ** 2
    return np.full(len(which), np.logaddexp(*parts))


def mixture(weights: Array = WEIGHTS, *, sds: Array = SDS) -> LaplaceMixture:
    return LaplaceMixture(MEANS[:, np.newaxis], sds[:, np.newaxis, np.newaxis], weights)


def draws(proposal: Proposal, n: int = 20_000, start: float = -10.0) -> Array:
    decider = toys.decider(1, log_density)
    decider.reset(np.array([start]))
    out = allocate(n, 1)
    rng = np.random.default_rng(1)
    run_steps(decider, proposal, rng, out, n, BatchControl(rng, 0.0, np.zeros(1, np.int32), np.zeros(4, np.int64)))
    return out.theta[:, 0]


def z_scores(found: Array) -> Array:
    """Of the share right of 0, the mean and the mean square, by batch means."""
    truth = WEIGHTS[1], WEIGHTS @ MEANS, WEIGHTS @ (SDS**2 + MEANS**2)
    batches = np.stack([found > 0, found, found**2]).reshape(3, 50, -1).mean(axis=2)
    return np.asarray((batches.mean(axis=1) - truth) / (batches.std(axis=1, ddof=1) / np.sqrt(50)))


@pytest.mark.parametrize(
    ("weights", "sds"),
    [
        pytest.param(WEIGHTS, SDS, marks=pytest.mark.slow),
        pytest.param(OTHER_WEIGHTS, SDS, marks=pytest.mark.slow),
        pytest.param(WEIGHTS, OTHER_SDS, marks=pytest.mark.slow),
        (OTHER_WEIGHTS, OTHER_SDS),
    ],
)
def test_shares_of_the_modes_are_right_whatever_the_approximation(weights: Array, sds: Array) -> None:
    moves = mixture(weights, sds=sds)
    found = draws(Mixture([moves, NearestWalk(moves, 2.4)], np.array([0.5, 0.5])), n=10_000)
    assert np.abs(z_scores(found)).max() < 4


def test_a_walk_across_the_border_is_weighed() -> None:
    """One normal, about which two approximations of different width stand: the way back has another density."""
    wide = LaplaceMixture(np.array([[-1.0], [1.0]]), np.array([[[0.5]], [[3.0]]]), np.array([0.5, 0.5]))
    decider = toys.gaussian(np.eye(1))
    out, rng = allocate(20_000, 1), np.random.default_rng(2)
    steer = BatchControl(rng, 0.0, np.zeros(1, np.int32), np.zeros(4, np.int64))

    def worst(proposal: Any) -> float:
        decider.reset(np.zeros(1))
        run_steps(decider, proposal, rng, out, 20_000, steer)
        batches = np.stack([out.theta[:, 0], out.theta[:, 0] ** 2]).reshape(2, 50, -1).mean(axis=2)
        return float(np.abs((batches.mean(axis=1) - [0, 1]) / (batches.std(axis=1, ddof=1) / np.sqrt(50))).max())

    walk = NearestWalk(wide, 1.0)
    assert worst(walk) < 4
    assert worst(lambda rng, theta: (walk(rng, theta)[0], 0.0)) > 6, "the ratio left out"


@pytest.mark.slow
def test_a_mixture_without_its_density_is_seen() -> None:
    moves = mixture(np.array([0.9, 0.1]))
    found = draws(lambda rng, theta: (moves(rng, theta)[0], 0.0))
    assert np.abs(z_scores(found)).max() > 10


def test_densities_are_those_of_the_mixture() -> None:
    three = replace(mixture(), weights=np.array([0.4, 0.6]))
    at = np.array([[1.0], [-9.0], [12.0]])
    by_hand = [
        np.log(sum(w / s * np.exp(-0.5 * ((x - m) / s) ** 2) for w, m, s in zip((0.4, 0.6), MEANS, SDS, strict=True)))
        for x in at[:, 0]
    ]
    np.testing.assert_allclose([three.log_density(theta) for theta in at], by_hand)
