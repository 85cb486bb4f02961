"""The compminimax epsilon of what a pilot has measured, against a search through all, and what it assumes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stansub.acceptance.rules import Exact, Pocock, StoppingRule
from stansub.acceptance.stopping import Factorised
from stansub.cli.plan import worst_case_line
from stansub.output.record import audit_of
from stansub.planning.compminimax import MeanSquare
from stansub.planning.pilot import Audits, Measurement, Method, MetropolisSampler
from stansub.planning.worst_case import faster, largest_alpha, worst_case

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "papers"))
from finite_chains import two_states

NO_PLACE: Any = None
N = 1_000_000


def measurement(rule: StoppingRule, seconds: float, *, differing: int = 0, tau: float = 9.0) -> Measurement:
    audits = Audits(np.ones((differing, 2)), N, np.ones(2)) if isinstance(rule, Pocock) else None
    method = Method(rule.name, rule, MetropolisSampler(NO_PLACE))
    return Measurement(method, 100, seconds, 0.1, np.array([1.0, tau]), 0.1, 0.5, 1.0, audits)


EXACT = measurement(Exact(), 1e-3)
STRICT, MIDDLE, LOOSE = (
    measurement(Pocock(epsilon=level), seconds, differing=differing)
    for level, seconds, differing in ((0.005, 0.5e-3, 50), (0.02, 0.2e-3, 1000), (0.1, 0.1e-3, 20_000))
)
METHODS = [STRICT, MIDDLE, LOOSE, EXACT]


@pytest.mark.parametrize("alpha", [0.05, 0.4, 1.0])
def test_two_states_attain_the_limit_of_alpha(alpha: float) -> None:
    pair = two_states(alpha, 0.0)
    rho = np.linalg.eigvals(pair.exact).min()
    assert largest_alpha((1 + rho) / (1 - rho)) == pytest.approx(pair.alpha)


@pytest.mark.parametrize("seconds", [0.003, 2.0, 300.0, 1e5])
def test_no_epsilon_has_a_smaller_bound(seconds: float) -> None:
    found = worst_case(METHODS, seconds)
    assert found is not None
    assert found.alpha == 0.2
    known = [(0.0, EXACT.seconds)] + [
        (audit_of(N, one.audits.differing).high, one.seconds) for one in METHODS[:3] if one.audits is not None
    ]
    distances, times = np.array(known).T
    error = MeanSquare(found.alpha, unchanged=True)
    grid = np.concatenate([np.linspace(0, distances[-1], 20_001), np.geomspace(1e-9, 1e-3, 2000)])
    steps = seconds / np.exp(np.interp(grid, distances, np.log(times)))
    bounds = np.asarray(error.bound(steps, grid))
    assert found.optimum.bound <= bounds.min() * (1 + 1e-6)
    assert found.optimum.bound <= found.optimum.exact


def test_long_budgets_are_for_small_errors() -> None:
    nearest = [found.nearest for seconds in (0.003, 2.0, 1e5) if (found := worst_case(METHODS, seconds)) is not None]
    assert nearest[0] == "pocock 0.1"
    assert nearest[1] in ("pocock 0.02", "pocock 0.005")
    optima = [worst_case(METHODS, seconds) for seconds in (0.003, 2.0, 300.0, 1e5)]
    epsilons = [one.optimum.epsilon for one in optima if one is not None]
    assert epsilons == sorted(epsilons, reverse=True)
    assert worst_case(METHODS, 0.9e-3) is None


def test_exact_decisions_that_are_faster_leave_nothing_to_gain() -> None:
    bounds = measurement(Factorised(), 0.05e-3)
    found = worst_case([bounds, *METHODS], 2.0)
    assert found is not None
    assert (found.optimum.epsilon, found.nearest) == (0.0, None)
    assert found.optimum.bound == found.optimum.exact
    assert "exact decisions, if alpha is 0.2. This is the largest value that the pilot" in worst_case_line(found)


def test_levels_that_are_no_faster_are_left_out() -> None:
    slower = measurement(Pocock(epsilon=0.05), 0.3e-3, differing=5000)
    assert [one.method.epsilon for _, one in faster([slower, *METHODS], EXACT.seconds)] == [0.005, 0.02, 0.1]


def test_what_is_printed_says_what_is_assumed() -> None:
    found = worst_case(METHODS, 2.0)
    assert found is not None
    text = worst_case_line(found)
    assert f"closest to {found.nearest} (bound on" in text
    assert "no run can confirm" in text
    assert found.facts()["assumed"]["alpha"] == found.alpha
