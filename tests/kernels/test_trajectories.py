"""Hamiltonian trajectories on a cubic approximation of the log density."""

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import toys
from steps import allocate, run_steps

from stansub import InputError
from stansub.kernels.base import BatchControl
from stansub.kernels.proposals import Mixture, RandomWalk, laplace_pcn
from stansub.kernels.trajectories import Trajectory, trajectory
from stansub.target import cubics

ANGLE = 2 * np.pi / 3


def move(dim: int, n_steps: int = 2, *, size: float = 0.05, angle: float = ANGLE) -> Trajectory:
    """With random coefficients."""
    rng = np.random.default_rng(dim)
    factor = np.tril(rng.normal(size=(dim, dim)), -1) / dim + np.diag(rng.uniform(0.5, 2, dim))
    tensor = cubics.unpacked(size * rng.normal(size=cubics.n_products(dim)), dim)
    return Trajectory(rng.normal(size=dim), factor, cubics.packed(tensor), angle, n_steps)


def followed(of: Trajectory, theta: Any, momentum: Any) -> tuple[Any, Any]:
    """The same in numpy: both ends of position and momentum."""
    tensor, step = cubics.unpacked(of.cubic, len(theta)), of.angle / of.n_steps
    w, p = np.linalg.solve(of.cholesky, theta - of.centre), momentum

    def turned(angle: float) -> tuple[Any, Any]:
        return np.cos(angle) * w + np.sin(angle) * p, np.cos(angle) * p - np.sin(angle) * w

    for _ in range(of.n_steps):
        w, p = turned(step / 2)
        p = p + step * 3 * np.einsum("jkl,k,l->j", tensor, w, w)
        w, p = turned(step / 2)
    return of.centre + of.cholesky @ w, p


@pytest.mark.parametrize("n_steps", [1, 2, 5])
@pytest.mark.parametrize("dim", [1, 2, 7, 8, 9, 17, 32])
def test_the_loop_follows_the_trajectory(dim: int, n_steps: int) -> None:
    of = move(dim, n_steps, size=0.3 / dim)
    theta = of.centre + of.cholesky @ np.random.default_rng(1).normal(size=dim)
    proposed, ratio = of(np.random.default_rng(2), theta)
    momentum = np.random.default_rng(2).standard_normal(dim)
    expected, after = followed(of, theta, momentum)
    np.testing.assert_allclose(proposed, expected, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(ratio, (momentum @ momentum - after @ after) / 2, rtol=1e-7, atol=1e-9)
    if dim > 1:
        other, _ = followed(move(dim, n_steps, size=0.31 / dim), theta, momentum)
        assert np.abs(other - expected).max() > 1e-4, "the cubic matters"


def test_it_is_reversible_and_keeps_volume() -> None:
    of, rng = move(3), np.random.default_rng(4)
    theta, momentum = of.centre + rng.normal(size=3), rng.normal(size=3)
    there, after = followed(of, theta, momentum)
    back, before = followed(of, there, -after)
    np.testing.assert_allclose(back, theta, rtol=1e-12)
    np.testing.assert_allclose(-before, momentum, rtol=1e-12)

    def both(x: Any) -> Any:
        return np.concatenate(followed(of, x[:3], x[3:]))

    x, h = np.concatenate([theta, momentum]), 1e-5
    jacobian = np.array([(both(x + h * e) - both(x - h * e)) / (2 * h) for e in np.eye(6)])
    np.testing.assert_allclose(np.linalg.det(jacobian), 1, rtol=1e-7)


def test_without_a_cubic_it_is_a_pcn_move() -> None:
    of = move(5, 3, size=0.0)
    pcn = laplace_pcn(of.centre, of.cholesky, np.cos(ANGLE))
    for seed in range(5):
        theta = of.centre + np.random.default_rng(seed).normal(size=5)
        (one, ratio), (other, its) = (p(np.random.default_rng(seed), theta) for p in (of, pcn))
        np.testing.assert_allclose(one, other, rtol=1e-12)
        np.testing.assert_allclose(ratio, its, rtol=1e-9, atol=1e-12)


def test_what_leads_to_infinity_is_no_move() -> None:
    of, far = move(3, size=10.0), np.full(3, 1e200)
    proposed, ratio = of(np.random.default_rng(1), far)
    np.testing.assert_array_equal(proposed, far)
    assert ratio == -np.inf


# Counts of Poisson distributions in few observations: a skewed posterior.
X = np.column_stack([np.ones(12), np.random.default_rng(5).normal(size=12)])
COUNTS = np.random.default_rng(6).poisson(np.exp(X @ [-0.5, 0.6]))


def log_density(theta: Any) -> float:
    eta = X @ theta
    return float(COUNTS @ eta - np.exp(eta).sum() - theta @ theta / 18)


def expanded() -> tuple[Any, Any, Any]:
    """Mode, factor of the covariance there, and third derivatives."""
    theta = np.zeros(2)
    for _ in range(50):
        rate = np.exp(X @ theta)
        precision = X.T @ (X * rate[:, np.newaxis]) + np.eye(2) / 9
        theta = theta + np.linalg.solve(precision, X.T @ (COUNTS - rate) - theta / 9)
    third = cubics.packed(-np.einsum("n,nj,nk,nl->jkl", np.exp(X @ theta), X, X, X))
    return theta, np.linalg.cholesky(np.linalg.inv(precision)), third


@lru_cache
def truth() -> Any:
    """Means of the parameters and of their squares, by quadrature."""
    mode, factor, _ = expanded()
    grid = np.linspace(-9, 9, 401)
    theta = mode + np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2) @ factor.T
    logs = np.array([log_density(one) for one in theta])
    return np.average(np.hstack([theta, theta**2]), axis=0, weights=np.exp(logs - logs.max()))


class Uncorrected(Trajectory):
    """A broken one, without its log ratio."""

    def single(self) -> Any:
        return None

    def compiled(self) -> Any:
        return None

    def __call__(self, rng: Any, position: Any) -> Any:
        return Trajectory(self.centre, self.cholesky, self.cubic, self.angle, self.n_steps)(rng, position)[0], 0.0


def run(proposal: Any, n: int) -> Any:
    decider = toys.decider(2, lambda theta, which: np.array([log_density(theta)]))
    mode, factor, _ = expanded()
    walk = RandomWalk(factor)
    records = allocate(n, 2)
    decider.reset(mode)
    control = BatchControl(np.random.default_rng(99), 0.0, np.zeros(1, np.int32), np.zeros(4, np.int64))
    run_steps(decider, Mixture([proposal, walk], np.array([0.9, 0.1])), np.random.default_rng(7), records, n, control)
    return records


def z_scores(theta: Any) -> Any:
    batches = np.hstack([theta, theta**2]).reshape(50, -1, 4).mean(axis=1)
    return np.abs(batches.mean(axis=0) - truth()) / (batches.std(axis=0, ddof=1) / np.sqrt(50))


def test_draws_are_of_the_posterior_and_more_of_them_accepted() -> None:
    mode, factor, third = expanded()
    of = trajectory(mode, factor, third, angle=ANGLE, n_steps=2)
    records = run(of, 10_000)
    assert z_scores(records.theta).max() < 4
    pcn = run(laplace_pcn(mode, factor, float(np.cos(ANGLE))), 10_000)
    assert records["accepted"].mean() > pcn["accepted"].mean() + 0.1
    broken = run(Uncorrected(of.centre, of.cholesky, of.cubic, ANGLE, 2), 10_000)
    assert z_scores(broken.theta).max() > 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"centre": np.zeros(3)}, "needs a centre of shape"),
        ({"cubic": np.zeros(5)}, "4 coefficients"),
        ({"cubic": np.full(4, np.nan)}, "finite"),
        ({"cholesky": np.ones((2, 2))}, "lower triangular"),
        ({"cholesky": np.diag([1.0, 0.0])}, "invertible"),
        ({"n_steps": 0}, "at least one step"),
    ],
)
def test_refusals(changes: dict[str, Any], message: str) -> None:
    right = {"centre": np.zeros(2), "cholesky": np.eye(2), "cubic": np.zeros(4), "angle": ANGLE, "n_steps": 2}
    with pytest.raises(InputError, match=message):
        Trajectory(**(right | changes))
