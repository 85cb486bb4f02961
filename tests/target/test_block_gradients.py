"""Gradients and Taylor rows of blocks of compiled programs, and control variates made of them."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from generators import capsule
from numpy.typing import NDArray
from simulated import ROOT, Compiled, example

from stansub._loop import Surrogate
from stansub.acceptance.decide import make_decider
from stansub.acceptance.rules import Austerity, Fixed
from stansub.stan import instances
from stansub.stan.posterior import Posterior
from stansub.stan.proof import draw_points
from stansub.target.gradients import Objective, ParallelEvaluator, Team, differenced
from stansub.types import FloatArray

LOGISTIC = ROOT / "stan_models" / "logistic.stan"
REDUCE_SUM = ROOT / "stan_models" / "logistic_third_derivative.stan"
LINEAR = ROOT / "stan_models" / "linear.stan"
LOWER = np.tril_indices(4)


@pytest.fixture(params=[LOGISTIC, REDUCE_SUM], ids=["statement", "reduce_sum"])
def posterior(request: pytest.FixtureRequest, compiled: Compiled) -> Posterior:
    return compiled(request.param).with_data(example(request.param), block_size=16, seed=3)


@pytest.fixture
def theta() -> FloatArray:
    return np.array([-0.4, 0.3, -0.8, 0.5])


def taylor(posterior: Posterior, theta: FloatArray, order: int, blocks: slice = slice(None)) -> NDArray[np.float32]:
    evaluator = posterior.population.evaluator()
    which = np.arange(evaluator.n_blocks, dtype=np.int32)[blocks]
    out = np.empty((len(which), 4 if order == 1 else 14), np.float32)
    evaluator.block_taylor(theta, which, order, out)
    return out


def analytic(posterior: Posterior, file: Path, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Gradients and Hessians of the blocks' log likelihoods, by numpy."""
    data = example(file)
    x, y = np.column_stack([np.ones(103), data["x"]])[posterior.order], np.asarray(data["y"])[posterior.order]
    p = 1 / (1 + np.exp(-x @ theta))
    starts = posterior.blocks.starts
    slopes = (y - p)[:, np.newaxis] * x
    curvatures = -(p * (1 - p))[:, np.newaxis, np.newaxis] * x[:, :, np.newaxis] * x[:, np.newaxis, :]
    return np.add.reduceat(slopes, starts), np.add.reduceat(curvatures, starts)


def test_gradients(posterior: Posterior, theta: FloatArray) -> None:
    evaluator = posterior.population.evaluator()
    file = LOGISTIC  # both programs have the same data
    np.testing.assert_allclose(evaluator.block_gradients(theta), analytic(posterior, file, theta)[0], atol=1e-12)
    np.testing.assert_allclose(evaluator.global_gradient(theta), -theta / 2.5**2, rtol=1e-12)
    value, gradient = posterior.full.log_density_gradient(theta)
    for which in (None, np.arange(7, dtype=np.int32)):
        got = evaluator.subset_log_density_gradient(theta, which)
        assert got[0] == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(got[1], gradient, rtol=1e-10)


def test_rows(posterior: Posterior, theta: FloatArray) -> None:
    rows, (slopes, curvatures) = taylor(posterior, theta, 2), analytic(posterior, LOGISTIC, theta)
    np.testing.assert_allclose(rows[:, :4], slopes, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(rows[:, 4:], curvatures[:, *LOWER], rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(taylor(posterior, theta, 1), rows[:, :4])


def test_threads_with_an_evaluator_each(posterior: Posterior, theta: FloatArray) -> None:
    """Every thread is new, so autodiff has to be set up in it."""
    expected, got = taylor(posterior, theta, 2), {}

    def work(block: int) -> None:
        got[block] = taylor(posterior, theta, 2, slice(block, block + 1))

    for _ in range(3):
        threads = [threading.Thread(target=work, args=(block,)) for block in range(7)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        np.testing.assert_array_equal(np.concatenate([got[block] for block in range(7)]), expected)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_all_blocks_by_several_threads(posterior: Posterior, theta: FloatArray, threads: int) -> None:
    evaluator = posterior.population.evaluator()
    with Team(posterior.population, threads=threads) as team:
        for point in (theta, theta + 1):
            assert ParallelEvaluator(team).global_log_density(point) == evaluator.global_log_density(point)
            np.testing.assert_array_equal(ParallelEvaluator(team).block_log_lik(point), evaluator.block_log_lik(point))


def test_control_variates_of_a_program(posterior: Posterior, theta: FloatArray) -> None:
    """The mean of the estimates over all subsets is the log ratio of the program itself."""
    there = theta + np.array([0.05, -0.02, 0.03, 0.04])
    truth = posterior.full.log_density(there) - posterior.full.log_density(theta)
    errors = []
    for order in (1, 2):
        rows = taylor(posterior, theta + 0.02, order)
        by_subset: dict[int, float] = {}
        decider = make_decider(
            posterior.population.evaluator(),
            np.int32(2) ** np.arange(7, dtype=np.int32),  # sizes that tell which blocks were drawn
            Austerity(epsilon=0.49, looks=Fixed(size=2)),
            surrogate=Surrogate([theta + 0.02], (rows,)),
        )
        for seed in range(400):
            decider.reset(theta)
            got = decider.decide(there, -1e9, 0.0, capsule(np.random.default_rng(seed)))
            by_subset[got.n_obs_used] = got.log_ratio
        assert len(by_subset) == 21
        found = np.array(list(by_subset.values()))
        assert found.mean() == pytest.approx(truth, abs=1e-10)
        errors.append(found.std())
    assert 0 < errors[1] < errors[0] / 5


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_gradients_too_large_for_a_weight_are_undefined_without_a_warning(
    posterior: Posterior, theta: FloatArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Team(posterior.population, threads=1) as team:
        objective = Objective(team, np.array([0], np.int32), weight=4.0)
        parts = [(0.0, np.full(posterior.dim, slope)) for slope in (0.0, 1e308)]
        monkeypatch.setattr(team, "map", lambda *_, **__: parts)
        value, gradient = objective(theta)
    assert value == -np.inf
    assert np.isnan(gradient).all()


def test_gradients_with_a_jacobian(compiled: Compiled) -> None:
    """The Jacobian of a positive parameter is in the global part, once."""
    posterior = compiled(LINEAR).with_data(example(LINEAR), block_size=16, seed=3)
    evaluator = posterior.population.evaluator()
    for point in draw_points(np.random.default_rng(9), posterior.full, n_points=3):
        total = evaluator.global_gradient(point) + evaluator.block_gradients(point).sum(0)
        np.testing.assert_allclose(total, posterior.full.log_density_gradient(point)[1], rtol=1e-10, atol=1e-9)


def test_few_instances_have_the_gradient_of_all(
    posterior: Posterior, theta: FloatArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert posterior.population.in_bulk() is posterior.population, "which few data are not worth"
    posterior = posterior.recut(4)
    monkeypatch.setattr(instances, "_BULK", 16)
    bulk = posterior.population.in_bulk()
    if isinstance(posterior.population, instances.Instances):
        assert len(bulk.blocks) < len(posterior.blocks) / 3
    found = bulk.evaluator().subset_log_density_gradient(theta)
    expected = posterior.population.evaluator().subset_log_density_gradient(theta)
    assert found[0] == pytest.approx(expected[0], rel=1e-12)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-9)


@pytest.mark.filterwarnings("error")
def test_differences_that_are_too_large_are_infinite_without_a_warning() -> None:
    """Far from the posterior, gradients may be huge."""

    def gradient(theta: FloatArray) -> FloatArray:
        return np.array([1e306 * np.sign(theta[0]), theta[1]])

    hessian = differenced(gradient, np.zeros(2), np.full(2, 1e-5))
    assert np.isinf(hessian[0, 0])
    assert hessian[1, 1] == pytest.approx(1)
