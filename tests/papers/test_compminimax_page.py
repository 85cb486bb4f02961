"""Curves of the best epsilon, and what the page computes of them."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from stansub.planning import compminimax as planning

RUN = Path(__file__).resolve().parents[2] / "examples" / "papers" / "compminimax" / "run.py"
page = SimpleNamespace(**runpy.run_path(str(RUN)))
from finite_chains import absorbed  # noqa: E402 - beside the page


def test_the_best_epsilon_falls_as_the_budget_grows_until_it_is_0() -> None:
    found = page.curve(planning.TotalVariation(0.1), planning.linear(0.05), np.geomspace(1, 1e4, 15))
    assert (np.diff(found.epsilons) <= 0).all()
    assert found.epsilons[0] > 0
    assert found.epsilons[-1] == 0
    assert found.last == found.budgets[found.epsilons > 0][-1]
    assert (found.gains[found.epsilons > 0] < 1).all()
    # Control: without a speed-up there is no such budget.
    assert page.curve(planning.TotalVariation(0.1), np.ones_like, np.array([1.0, 10.0])).last == 0


def test_what_breaks_theorem_2_6_and_what_does_not() -> None:
    n, start, values = np.array([5, 14, 100]), np.array([1.0, 0.0]), np.array([-1.0, 1.0])
    ratios = page.breaking(absorbed(0.8, 0.39), n, start, values)
    assert ratios["stated"].max() > 1.03
    assert ratios["sharp"].max() < 1
    assert page.breaking(absorbed(0.8, 0.01), n, start, values)["stated"].max() < 1


def test_the_best_of_measured_kernels() -> None:
    rows = [
        {"level": 0.0, "share": 1.0, "wrong": 0.0, "audited": 0},
        {"level": 0.01, "share": 0.9, "wrong": 0.0, "audited": 50},  # none was wrong: its epsilon is not known
        {"level": 0.05, "share": 0.2, "wrong": 0.001, "audited": 1000},
        {"level": 0.1, "share": 0.1, "wrong": 0.03, "audited": 1000},
    ]
    best = page.best_measured(rows)
    assert {one["alpha"] for one in best} == {0.5, 0.1}
    assert all(0 <= one["epsilon"] <= 0.03 and 0 <= one["gain"] < 0.9 for one in best)
    assert max(one["gain"] for one in best) > 0.5
    # Control: kernels that save nothing gain nothing.
    dear = [one | {"share": 1.0} for one in rows]
    assert [one["gain"] for one in page.best_measured(dear)] == pytest.approx([0.0] * len(best))
