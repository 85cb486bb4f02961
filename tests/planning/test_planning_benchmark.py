"""The check of predictions: its true means against integration by sums, and how it counts hits."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FILE = Path(__file__).resolve().parents[2] / "benchmarks" / "planning" / "run.py"
SPEC = importlib.util.spec_from_file_location("planning_run", FILE)
assert SPEC is not None
assert SPEC.loader is not None
working = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = working
SPEC.loader.exec_module(working)


@pytest.mark.parametrize("name", ["normal", "exponential", "logistic"])
def test_true_means(name: str) -> None:
    case = working.CASES[name](60, np.random.default_rng(4))
    axes = [mean + sd * np.linspace(-9, 9, 121) for mean, sd in zip(case.mean, case.sd, strict=True)]
    points = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    log_density = np.array([case.factors.log_density(one) for one in points])
    share = np.exp(log_density - log_density.max())
    share /= share.sum()
    mean = share @ points
    np.testing.assert_allclose(mean, case.mean, atol=1e-4 * case.sd.min())
    np.testing.assert_allclose(np.sqrt(share @ (points - mean) ** 2), case.sd, rtol=1e-3)


def row(way: str, real: float, *, best: bool, hit: bool) -> dict[str, Any]:
    figures = {"low": 0.1, "predicted": 0.2, "high": 0.3, "real": real, "seconds": 1.5}
    return {
        "posterior": "one",
        "way": way,
        "best": best,
        "hit": hit,
        **figures,
        "real_low": 0.9 * real,
        "real_high": 1.1 * real,
    }


def test_conclusions_are_those_of_the_figures() -> None:
    good = list(working.conclusions([row("a", 0.2, best=True, hit=True), row("b", 0.21, best=False, hit=True)], 2.0))
    assert good[0].startswith("2 hits, 0 misses")
    assert "0.75 to 0.75" in good[1]
    assert good[-1] == "one: a was recommended, and none was better by more than chance."
    bad = list(working.conclusions([row("a", 0.5, best=True, hit=False), row("b", 0.21, best=False, hit=True)], 2.0))
    assert bad[0].startswith("1 hits, 1 misses")
    assert bad[-1] == "one: a was recommended, and b was better."
    assert working.line(row("a", 0.5, best=True, hit=False)).endswith("miss |")


def test_intervals_hold_the_risk_as_often_as_they_say() -> None:
    losses = (np.random.default_rng(5).standard_normal((2000, 4, 2)) ** 2).mean(2)
    held = [low <= 1 <= high for low, high in (working.interval(one, 2) for one in losses)]
    assert abs(np.mean(held) - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 2000)
