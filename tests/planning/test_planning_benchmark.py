"""The check of predictions: its true means against integration by sums, and how it counts hits."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "planning"


def module(name: str) -> Any:
    """A module of the benchmark, which is no package."""
    spec = importlib.util.spec_from_file_location(f"planning_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


working, page = module("risk"), module("page")


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


def row(method: str, real: float, *, best: bool, hit: bool) -> dict[str, Any]:
    figures = {"low": 0.1, "predicted": 0.2, "high": 0.3, "real": real, "seconds": 1.5}
    return {
        "posterior": "one",
        "way": method,
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
    assert working.cells(row("a", 0.5, best=True, hit=False))[-1] == "miss"


def test_intervals_hold_the_risk_as_often_as_they_say() -> None:
    losses = (np.random.default_rng(5).standard_normal((2000, 4, 2)) ** 2).mean(2)
    held = [low <= 1 <= high for low, high in (working.interval(one, 2) for one in losses)]
    assert abs(np.mean(held) - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 2000)


def test_the_page_has_the_parts_that_were_measured() -> None:
    rows = [row("a", 0.2, best=True, hit=True), row("b", 0.9, best=False, hit=False)]
    part = {
        "options": {"budget": 2.0, "pilot": 3.0, "repeats": 4, "observations": 3000, "seed": 1},
        "machine": {"date": "a day", "cpu": "a processor", "cores": 2, "load_before": 0.1},
        "rows": [working.cells(one) for one in rows],
        "conclusions": list(working.conclusions(rows, 2.0)),
    }
    text = page.text({"risk": part})
    assert "- 1 hits, 1 misses; budget 2 s.\n" in text
    assert "| one | a * | 0.2 | 0.1 to 0.3 | 0.2 | 0.18 to 0.22 | 1.5 | hit |\n| one | b |" in text
    assert "--budget 2 --repeats 4 --observations 3000" in text
    assert "NUTS" not in text
