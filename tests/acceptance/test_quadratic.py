"""Global parts that are sums of quadratics: found where they are, refused elsewhere, and relied on in a box."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from stansub.acceptance.decide import make_decider
from stansub.acceptance.rules import Factorised
from stansub.target.families import Binomial
from stansub.target.functions import FunctionFactors
from stansub.target.observations import ObservationVariates
from stansub.target.quadratic import global_quadratic
from stansub.target.remainders import LinearPredictors

Array = NDArray[np.float64]
Density = Callable[[Array], float]
CENTRE, REACH = np.array([0.4, -1.3, 2.0]), np.array([0.5, 2.0, 0.01])


def normal(theta: Array) -> float:
    """The second of three parameters has a flat prior."""
    return -0.5 * float((theta[0] / 2.5) ** 2 + ((theta[2] - 1) / 0.3) ** 2) - 1.7


def factors(density: Density, asked: list[Array] | None = None) -> FunctionFactors:
    def log_density(theta: Array) -> float:
        if asked is not None:
            asked.append(theta.copy())
        return density(theta)

    rng = np.random.default_rng(2)
    z, y = rng.standard_normal((40, 3)), rng.integers(0, 2, 40).astype(float)
    return FunctionFactors(
        ["a", "b", "c"],
        40,
        lambda theta, which: y[which] * (z[which] @ theta) - np.logaddexp(0, z[which] @ theta),
        log_density=log_density,
        block_size=4,
    )


def test_normal_and_flat_priors_are_found() -> None:
    quadratic = global_quadratic(factors(normal).evaluator(), CENTRE, REACH)
    assert quadratic is not None
    for theta in CENTRE + REACH * np.random.default_rng(1).uniform(-1, 1, (200, 3)):
        assert quadratic(theta) == pytest.approx(normal(theta), abs=1e-12)


@pytest.mark.parametrize(
    "density",
    [
        lambda theta: normal(theta) - 1e-6 * theta[0] * theta[1],
        lambda theta: normal(theta) - 2 * np.log1p(theta[1] ** 2 / 3),
        lambda theta: normal(theta) - 1e-3 * np.exp(theta[0]),
        lambda theta: normal(theta) - max(0.0, theta[1] + 0.5),
        lambda theta: normal(theta) if theta[1] > -3 else -np.inf,
        lambda theta: np.nan,
    ],
    ids=["correlated", "Student's t", "Jacobian", "kinked", "truncated", "undefined"],
)
def test_others_are_refused(density: Density) -> None:
    assert global_quadratic(factors(density).evaluator(), CENTRE, REACH) is None


def test_decisions_are_the_same_and_the_program_is_asked_outside_the_box_alone() -> None:
    asked: list[Array] = []
    target = factors(normal, asked)
    rng = np.random.default_rng(2)
    z, y = rng.standard_normal((40, 3)), rng.integers(0, 2, 40).astype(float)
    predictors = LinearPredictors((z,), (np.zeros(40),), Binomial(y, np.ones(40)))
    centre, reach = np.zeros(3), np.ones(3)
    parts = ObservationVariates.at(predictors, centre, 0.3 * np.eye(3)).parts(target)
    quadratic = global_quadratic(target.evaluator(), centre, reach)
    assert quadratic is not None
    own, known = (
        make_decider(target.evaluator(), target.blocks.sizes, Factorised(), quadratic=one, **parts)
        for one in (None, quadratic)
    )
    decisions: list[list[tuple[bool, int, float]]] = []
    for decider in (own, known):
        rng = np.random.default_rng(4)
        decider.reset(centre)
        asked.clear()
        decisions.append([])
        for _ in range(300):
            proposed, log_u = 0.6 * rng.standard_normal(3), np.log1p(-rng.random())
            one = decider.decide(proposed, log_u, 0.0, rng.bit_generator.capsule)
            decisions[-1].append((one.accepted, one.n_obs_used, round(one.log_ratio, 9)))
    assert decisions[0] == decisions[1]
    assert {accepted for accepted, *_ in decisions[0]} == {True, False}
    assert 0 < len(asked) < 300
    assert all((np.abs(theta - centre) > reach).any() for theta in asked)
