"""The best approximation within a budget, against a fine grid and closed forms."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from stansub.errors import InputError
from stansub.planning import compminimax as planning
from stansub.planning import theory

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "papers"))
from stated_bounds import StationaryMeanSquare

ERRORS = (
    planning.TotalVariation(0.1),
    planning.TotalVariation(1e-4, start=0.3),
    StationaryMeanSquare(0.1),
    planning.MeanSquare(0.01),
    planning.MeanSquare(0.1, start=0.0, unchanged=True),
)


@pytest.mark.parametrize("name", planning.SPEED_UPS)
def test_speed_ups_go_from_1_to_their_factor(name: str) -> None:
    speed_up = planning.SPEED_UPS[name](0.05, 100.0)
    at = speed_up(np.linspace(0, 0.05, 50))
    assert at[[0, -1]] == pytest.approx([1, 100])
    assert (np.diff(at) > 0).all()


def test_half_way_the_speed_ups_differ_as_they_should() -> None:
    halves = {name: float(make(1.0)(np.asarray(0.5))) for name, make in planning.SPEED_UPS.items()}
    assert halves["linear"] == pytest.approx(50.5)
    assert halves["quadratic"] == pytest.approx(25.75)
    assert halves["exponential"] == pytest.approx(10)
    # The logarithmic one takes back what the exponential one gives.
    v = (halves["logarithmic"] - 1) / 99
    assert (100**v - 1) / 99 == pytest.approx(0.5)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: f"{type(error).__name__}, {error.alpha:g}")
@pytest.mark.parametrize("name", planning.SPEED_UPS)
def test_nothing_on_a_fine_grid_is_better(error: planning.Error, name: str) -> None:
    speed_up = planning.SPEED_UPS[name](error.alpha / 2)
    shares = np.concatenate([np.geomspace(1e-9, 1, 3000), np.linspace(0, 1, 3000)])
    for budget in (1.0, 30.0, 1000.0, 1e5):
        best = planning.compminimax(error, budget, speed_up)
        epsilon = error.alpha / 2 * shares
        grid = np.asarray(error.bound(budget * speed_up(epsilon), epsilon)).min()
        assert best.bound <= grid * (1 + 1e-7)
        assert best.bound <= best.exact == error.exact(budget)
        if best.epsilon:
            assert best.n == pytest.approx(budget * speed_up(np.asarray(best.epsilon)))
            assert error.bound(best.n, best.epsilon) == pytest.approx(best.bound)
        else:
            assert (best.n, best.bound) == (budget, best.exact)


def test_a_linear_speed_up_in_closed_form() -> None:
    # For n far beyond mixing theorem 2.4 is 1 / (n alpha) + epsilon / alpha; with n = t (1 + c epsilon) the least is at
    # 1 + c epsilon = (c / t)^(1/2), which needs c > t.
    budget = 1e4
    for slope in (4e8, 1e6, 5e3):
        best = planning.compminimax(planning.TotalVariation(0.5), budget, lambda epsilon, c=slope: 1 + c * epsilon)
        assert best.epsilon == pytest.approx(max(0, (slope / budget) ** 0.5 - 1) / slope, rel=1e-3)


def test_with_no_speed_up_the_exact_kernel_is_best() -> None:
    for error in ERRORS:
        assert planning.compminimax(error, 100.0, lambda epsilon: np.ones_like(epsilon)).epsilon == 0


def test_from_stationarity_total_variation_has_no_use_for_speed() -> None:
    error = planning.TotalVariation(0.1, start=0.0)
    assert planning.compminimax(error, 100.0, planning.linear(0.05)).epsilon == 0
    # In mean square it has (the paper, end of section 4.2).
    assert planning.compminimax(planning.MeanSquare(0.1, start=0.0), 100.0, planning.linear(0.05)).epsilon > 0


def test_more_budget_never_makes_the_bound_worse() -> None:
    for error in ERRORS:
        budgets = np.geomspace(1, 1e5, 20)
        bounds = [planning.compminimax(error, b, planning.quadratic(error.alpha / 2)).bound for b in budgets]
        assert (np.diff(bounds) <= 1e-9).all()


def test_a_measured_speed_up() -> None:
    speed_up = planning.measured([0.0, 0.01, 0.04], [8.0, 2.0, 1.0])
    assert speed_up(np.array([0.0, 0.005, 0.01, 0.04, 0.1])) == pytest.approx([1, 2, 4, 8, 8])
    best = planning.compminimax(planning.MeanSquare(0.1), 50.0, speed_up, largest=0.04)
    assert 0 < best.epsilon <= 0.04
    # The same as points of a known function.
    levels = np.linspace(0, 0.05, 400)
    known = planning.exponential(0.05)
    points = planning.measured(levels, 3.0 / known(levels))
    for budget in (5.0, 500.0):
        direct = planning.compminimax(planning.MeanSquare(0.1), budget, known)
        assert planning.compminimax(planning.MeanSquare(0.1), budget, points).bound == pytest.approx(direct.bound)


@pytest.mark.parametrize(
    ("epsilon", "times", "message"),
    [
        ([0.0], [1.0], "at least two values"),
        ([0.0, 0.1], [1.0], "at least two values"),
        ([0.1, 0.2], [1.0, 2.0], "increase from 0"),
        ([0.0, 0.2, 0.1], [1.0, 2.0, 3.0], "increase from 0"),
        ([0.0, 0.1], [1.0, 0.0], "positive and finite"),
    ],
)
def test_measurements_that_are_refused(epsilon: list[float], times: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        planning.measured(epsilon, times)


def test_budgets_and_levels_that_are_refused() -> None:
    error = planning.TotalVariation(0.1)
    with pytest.raises(InputError, match="n must be in"):
        planning.compminimax(error, 0.5, planning.linear(0.05))
    with pytest.raises(InputError, match="at most alpha"):
        planning.compminimax(error, 10.0, planning.linear(0.05), largest=0.08)


def test_the_error_of_section_3_1_is_conservative() -> None:
    error = StationaryMeanSquare(0.1)
    assert error.exact(50) == theory.correlated_variance(50, 0.1)
    assert error.bound(50, 0.0) == 2 * error.exact(50)
