"""Joint-distribution tests: a right kernel passes, and what is wrong in one way or another fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stansub import Austerity, Fixed, FunctionFactors, Metropolis, OnParameters, RandomWalk, Sequence
from stansub.diagnostics.joint import Joint, JointTest, joint_distribution_test

Array = NDArray[np.float64]
N = 10
WALK = RandomWalk(np.array([[0.4]]))


def posterior(y: Array, *, weight: float = 1.0) -> FunctionFactors:
    """Mean and log sd of normal data."""

    def log_lik(theta: Array, which: NDArray[np.int32]) -> Array:
        return weight * (-0.5 * ((y[which] - theta[0]) * np.exp(-theta[1])) ** 2 - theta[1])

    return FunctionFactors(["mu", "log_sd"], len(y), log_lik, log_density=lambda theta: -0.5 * float(theta @ theta))


def model(**options: Any) -> Joint[Array]:
    return Joint(
        prior=lambda rng: rng.standard_normal(2),
        data=lambda rng, theta: rng.normal(theta[0], np.exp(theta[1]), N),
        posterior=lambda y: posterior(y, **options),
        functions=lambda theta, y: np.array([*theta, *theta**2, (theta[0] - y.mean()) ** 2 * np.exp(-2 * theta[1])]),
    )


def result_of(joint: Joint[Array], kernel: Any, **options: Any) -> JointTest:
    size = {"n_chains": 100, "n_steps": 25, "n_draws": 10_000}
    return joint_distribution_test(joint, kernel, np.random.default_rng(1), **size | options)


def each(proposal: Callable[..., Any] = WALK, *, exact: bool = False) -> Sequence:
    return Sequence(
        mu=OnParameters(Metropolis(proposal, exact=exact), ["mu"]),
        log_sd=OnParameters(Metropolis(proposal, exact=exact), ["log_sd"]),
    )


def skewed(rng: np.random.Generator, position: Array) -> tuple[Array, float]:
    """Moves to the right more often than to the left, and says that it does not."""
    return position + rng.normal(0.3, 0.4, position.shape), 0.0


@pytest.mark.parametrize(
    "kernel", [each(), pytest.param(Metropolis(RandomWalk(0.3 * np.eye(2))), marks=pytest.mark.slow)]
)
def test_a_right_kernel_passes(kernel: Any) -> None:
    assert result_of(model(), kernel).p_value > 0.01


@pytest.mark.parametrize("wrong", ["ratio", pytest.param("likelihood", marks=pytest.mark.slow)])
def test_what_is_wrong_fails(wrong: str) -> None:
    found = result_of(model(), each(skewed)) if wrong == "ratio" else result_of(model(weight=3.0), each())
    assert found.p_value < 1e-4


def test_decisions_that_are_rough_fail_unless_they_are_made_exact() -> None:
    rough = Austerity(epsilon=0.45, looks=Fixed(size=2))
    assert result_of(model(), each(), test=rough).p_value < 1e-4
    assert result_of(model(), each(exact=True), test=rough).p_value > 0.01


def test_one_chain_has_no_standard_error() -> None:
    with pytest.raises(ValueError, match="two chains"):
        joint_distribution_test(model(), each(), np.random.default_rng(1), n_chains=1)


def clusters(y: Array) -> FunctionFactors:
    """Two means, and an indicator of each observation: which of them it has."""

    def log_lik(theta: Array, which: NDArray[np.int32]) -> Array:
        members = theta[2 + which].astype(int)
        return -0.5 * (y[which] - theta[members]) ** 2

    names = ["mean.1", "mean.2", *(f"z.{i + 1}" for i in range(N))]
    return FunctionFactors(
        names, N, log_lik, log_density=lambda theta: -0.5 * float(theta[:2] @ theta[:2]), block_size=1
    )


def flipped(rng: np.random.Generator, position: Array) -> tuple[Array, float]:
    """One indicator more, one less."""
    proposed = position.copy()
    chosen = rng.integers(N)
    proposed[chosen] = 1 - proposed[chosen]
    return proposed, 0.0


def of_clusters(members: Callable[[Array, int], Array]) -> JointTest:
    """Means by their members alone, indicators by all."""
    joint = Joint(
        prior=lambda rng: np.concatenate([rng.standard_normal(2), rng.integers(2, size=N)]),
        data=lambda rng, theta: rng.normal(theta[theta[2:].astype(int)]),
        posterior=clusters,
        functions=lambda theta, y: np.array(
            [*theta[:2] ** 2, theta[2:].mean(), ((y - theta[theta[2:].astype(int)]) ** 2).mean()]
        ),
    )
    means = {
        f"mean_{k + 1}": OnParameters(
            Metropolis(RandomWalk(np.array([[0.8]]))),
            [f"mean.{k + 1}"],
            observations=lambda theta, k=k: members(theta, k),
        )
        for k in range(2)
    }
    kernel = Sequence(**means, indicators=OnParameters(Metropolis(flipped), ["z"]))
    return result_of(joint, kernel, n_chains=50, n_steps=20, n_draws=5000)


def test_populations_that_change_from_step_to_step() -> None:
    assert of_clusters(lambda theta, k: np.flatnonzero(theta[2:] == k)).p_value > 0.01


def test_members_that_are_those_of_another_cluster_are_seen() -> None:
    assert of_clusters(lambda theta, k: np.flatnonzero(theta[2:] != k)).p_value < 1e-4
