"""A falling level as a mixture of fixed ones: shares, signs, what it is preferred to, and the data that a run uses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import stansub
from stansub import FunctionFactors
from stansub.acceptance.decreasing_level import DecreasingLevel
from stansub.acceptance.rules import Exact, Pocock, StoppingRule
from stansub.planning.level_mixture import schedules, shares
from stansub.planning.pilot import Audits, Measurement, Method, MetropolisSampler
from stansub.planning.plan import PredictedMethod, best_of, with_schedule

Array = NDArray[np.float64]
BUDGET = 10.0
NO_PLACE: Any = None


def measurement(
    rule: StoppingRule, *, seconds: float, drift: float = 0.0, tau: float = 3.0, share: float = 0.5
) -> Measurement:
    """Of one parameter; a million audited decisions, of which a thousand differ."""
    jumps = np.full((1000, 1), 1000 * drift)
    audits = None if rule.exact else Audits(jumps, 1_000_000, np.zeros(1))
    return Measurement(
        Method(rule.name, rule, MetropolisSampler(NO_PLACE)),
        1000,
        seconds,
        0.1,
        np.array([tau]),
        0.1,
        0.5,
        share,
        audits,
    )


def sampled(*measured: Measurement) -> list[PredictedMethod]:
    return [PredictedMethod(one, set_up=0.5, chains=4) for one in measured]


def test_shares_are_those_of_the_steps() -> None:
    np.testing.assert_allclose(shares([0.01, 0.1], 0.1, 0.01), [0.5, 0.5])
    # Levels beyond both ends stand for nothing; of three in equal ratios that in the middle has 12 of the 25 levels.
    np.testing.assert_allclose(shares([0.001, 0.01, 0.1, 1.0], 0.1, 0.01), [0, 0.5, 0.5, 0])
    np.testing.assert_allclose(shares([0.001, 0.01, 0.1], 0.1, 0.001), [0.26, 0.48, 0.26])


def test_a_mean_over_shares_is_that_over_the_run() -> None:
    tried = [0.002, 0.007, 0.05, 0.1]
    values = np.array([4.0, 3.0, 1.5, 1.0])
    falling = DecreasingLevel(0.1, 0.002, 600)
    run = np.mean([np.interp(np.log(falling.level(step)), np.log(tried), values) for step in range(600)])
    assert shares(tried, 0.1, 0.002) @ values == pytest.approx(run)


def test_every_fall_between_levels_that_were_tried() -> None:
    methods = [measurement(Pocock(epsilon=level), seconds=1.0) for level in (0.02, 0.005, 0.1)]
    found = list(schedules([*methods, measurement(Exact(), seconds=5.0)]))
    assert [(one.method.epsilon, one.method.final_epsilon) for one in found] == [
        (0.02, 0.005),
        (0.1, 0.005),
        (0.1, 0.02),
    ]
    assert [one.label for one in sampled(*found)][1] == "pocock 0.1 to 0.005"
    assert list(schedules(methods[:1])) == []


def test_biases_have_their_signs() -> None:
    methods = [
        measurement(Pocock(epsilon=0.01), seconds=2e-3, drift=1e-3),
        measurement(Pocock(epsilon=0.1), seconds=1e-3, drift=-2e-3),
    ]
    (found,) = schedules(methods)
    assert found.seconds == pytest.approx(1.5e-3)
    np.testing.assert_allclose(found.bias[0], 2 * (0.5e-3 - 1e-3))
    # Errors do not cancel.
    np.testing.assert_allclose(found.bias[1], (methods[0].bias[1] + methods[1].bias[1]) / 2)
    assert found.bias[1] > 0


def test_a_falling_level_is_taken_only_where_it_is_worth_it() -> None:
    strict, loose = Pocock(epsilon=0.01), Pocock(epsilon=0.1)
    # The bias of either is that of the other turned round, so that half of each has none.
    opposite = with_schedule(
        sampled(measurement(strict, seconds=1e-3, drift=0.05), measurement(loose, seconds=1e-3, drift=-0.05)), BUDGET
    )
    assert best_of(opposite, BUDGET) is opposite[-1]
    assert best_of(opposite, BUDGET).options(BUDGET)["final_epsilon"] == 0.01
    # Seconds in proportion to a bias that falls: a convex function, by which nothing is gained.
    plain = with_schedule(
        sampled(measurement(strict, seconds=1.1e-3, drift=1e-4), measurement(loose, seconds=1e-3, drift=1.01e-4)),
        BUDGET,
    )
    assert len(plain) == 3
    assert best_of(plain, BUDGET).fixed
    exact = replace(opposite[0], measurement=measurement(Exact(), seconds=1e-3))
    assert best_of([*opposite, exact], BUDGET) is exact


@pytest.mark.slow
def test_the_data_that_a_run_uses() -> None:
    """Shares of the data at fixed levels foretell that of a falling one; that of its first level does not."""
    y = np.random.default_rng(3).standard_normal(1000)
    means = FunctionFactors(["mu"], len(y), lambda theta, which: -0.5 * (y[which] - theta[0]) ** 2, block_size=2)
    options: dict[str, Any] = {
        "proposal": stansub.RandomWalk(np.eye(1) * 2.4 / np.sqrt(len(y))),
        "control_variates": 0,
        "test": "pocock",
        "first_look": 10,
        "chains": 1,
        "iter_warmup": 50,
        "iter_sampling": 1500,
        "audit": 0.0,
        "seed": 5,
        "show_progress": False,
    }

    def used(epsilon: float, final_epsilon: float | None = None) -> float:
        idata = stansub.sample(means, epsilon=epsilon, final_epsilon=final_epsilon, **options)
        return float(idata["sample_stats"]["n_obs_used"].mean()) / len(y)

    tried = [0.002, 0.01, 0.05, 0.2]
    fixed = np.array([used(level) for level in tried])
    real = used(0.2, 0.002)
    spread = fixed[0] - fixed[-1]
    assert spread > 0.2
    assert abs(shares(tried, 0.2, 0.002) @ fixed - real) < 0.15 * spread
    assert abs(fixed[-1] - real) > 0.3 * spread
