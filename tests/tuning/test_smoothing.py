"""The search for modes of log likelihoods with kinks, which it smooths."""

from __future__ import annotations

import kinked
import numpy as np
import pytest
from numpy.typing import NDArray

from stansub.progress import as_progress
from stansub.target.functions import FunctionFactors
from stansub.target.gradients import Team
from stansub.target.remainders import LinearPredictors
from stansub.tuning.modes.mode import NoModeError, find_modes
from stansub.tuning.modes.mode_search import search
from stansub.tuning.modes.smoothing import SmoothObjectives

Array = NDArray[np.float64]

N = 60_000


def predictors() -> LinearPredictors:
    return kinked.predictors(N, 20)


def posterior() -> FunctionFactors:
    x, y = kinked.line(N, 20)
    rows = np.column_stack([np.ones(N), x])

    def log_lik(theta: Array, which: NDArray[np.int32]) -> Array:
        return np.asarray(-np.abs(y[which] - rows[which] @ theta) / kinked.SCALE)

    def gradient(theta: Array, which: NDArray[np.int32]) -> Array:
        return np.asarray(np.sign(y[which] - rows[which] @ theta)[:, np.newaxis] * rows[which] / kinked.SCALE)

    known = predictors()
    return FunctionFactors(["a", "b"], N, log_lik, log_lik_gradient=gradient, predictors=known, block_size=10)


def test_the_mode_and_its_curvature_are_those_of_the_posterior() -> None:
    """Fisher's information is 1 / scale^2."""
    found = find_modes(posterior(), np.random.default_rng(1), predictors=predictors(), threads=2)
    assert found.smoothed
    assert len(found.found) == 1
    x, _ = kinked.line(N, 20)
    rows = np.column_stack([np.ones(N), x])
    information = rows.T @ rows / kinked.SCALE**2
    mode = found.best
    sds = np.linalg.cholesky(information).T @ (mode.position - [20, 1])
    assert np.linalg.norm(sds) < 4
    np.testing.assert_allclose(np.diag(-mode.hessian) / np.diag(information), 1, atol=0.15)
    assert mode.distance < 1e-3


@pytest.mark.slow
def test_without_smoothing_there_is_no_mode() -> None:
    with pytest.raises(NoModeError, match="kinks"):
        find_modes(posterior(), np.random.default_rng(1), threads=2)


@pytest.mark.slow
def test_a_test_that_needs_no_bounds_has_a_mode_too() -> None:
    """If a search with the kinks fails, another one smooths them."""
    found = search(posterior(), np.random.default_rng(1), by_bounds=False, threads=2, log=as_progress(None))
    assert found.smoothed
    np.testing.assert_allclose(found.best.position, [20, 1], atol=0.02)


def test_a_share_of_the_data_is_smoothed_on_its_own_scale() -> None:
    """With as many kinks within reach, relative to the square root of the observations, its curvature is as precise."""
    target = posterior()
    with Team(target.population, threads=1) as team:
        smooth = SmoothObjectives(team, predictors(), np.random.default_rng(1))
        whole = smooth.whole()
        share = smooth.share(np.arange(0, 60, dtype=np.int32))
        theta = np.array([20.0, 1.0])
        ones = np.ones(2)
        assert share.weight == pytest.approx(100)
        near = share.hessian(theta, ones) / whole.hessian(theta, ones)
        assert 0.5 < near[0, 0] < 2
        assert 0.5 < near[1, 1] < 2
        value, slope = share(theta)
        move = 1e-4 * np.array([1.0, 0.3])
        assert share(theta + move)[0] - share(theta - move)[0] == pytest.approx(2 * slope @ move, rel=1e-2)
        assert np.isfinite(value)


def test_scales_of_effects_have_the_information_of_their_prior() -> None:
    """The data say nothing about the scale of effects that are all 0, where the search begins, nor about their mean."""
    effects = (-0.6, -0.4, -0.2, 0.0, 0.2, 0.4, 0.6)
    known, dim = kinked.effects(N, 5, effects), 2 + len(effects)

    def gradient(theta: Array, which: NDArray[np.int32]) -> Array:
        part = known.part(which)
        (slopes,) = part.family.derivatives((1,), part.at(theta))
        return np.einsum("kn,kni->ni", slopes, np.array([np.broadcast_to(z, (len(which), dim)) for z in part.design]))

    target = FunctionFactors(
        ["a", "t", *(f"z.{j}" for j in range(1, 1 + len(effects)))],
        N,
        lambda theta, which: known.part(which).log_lik(theta),
        log_lik_gradient=gradient,
        log_density=lambda theta: -0.5 * float(theta[1:] @ theta[1:]),
        log_density_gradient=lambda theta: np.concatenate([[0.0], -theta[1:]]),
        predictors=known,
        block_size=10,
    )
    with Team(target.population, threads=1) as team:
        anchor = SmoothObjectives(team, known, np.random.default_rng(1))._anchor
    np.testing.assert_allclose(anchor[0] + np.exp(anchor[1]) * anchor[2:], 5 + np.array(effects), atol=0.05)
