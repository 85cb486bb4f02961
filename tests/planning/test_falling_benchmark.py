"""The falling level against fixed ones: true means, choice and comparison on different replicates, and its words."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
MODULES = ("run", "page", "comparison", "posteriors")
REPLICATES, STEPS = 400, 60

Array = NDArray[np.float64]


@pytest.fixture(scope="module")
def study() -> Iterator[Any]:
    """The command's modules, whose names are common ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        patch.syspath_prepend(str(BENCHMARKS / "falling"))
        for name in MODULES:
            patch.delitem(sys.modules, name, raising=False)
        import comparison
        import page
        import posteriors
        import run

        yield SimpleNamespace(comparison=comparison, page=page, posteriors=posteriors, run=run)
        for name in MODULES:
            patch.delitem(sys.modules, name, raising=False)


def runs(study: Any, *, bias: float, cost: float, seed: int, steps: int = STEPS) -> Any:
    """Independent draws of one parameter that are so far off."""
    errors = np.random.default_rng(seed).standard_normal((REPLICATES, steps, 1)) + bias
    return study.comparison.Runs(errors, cost * np.arange(1.0, steps + 1), 2.0)


def test_means_by_quadrature(study: Any) -> None:
    rng = np.random.default_rng(2)
    z = np.column_stack([np.ones(80), rng.lognormal(0, 0.7, 80)])
    y = (rng.random(80) < 0.2).astype(float)
    mode, cholesky = study.posteriors._mode(z, y)
    mean, sd = study.posteriors._by_quadrature(z, y, mode, cholesky)
    axes = [at + width * np.linspace(-10, 10, 161) for at, width in zip(mean, sd, strict=True)]
    points = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    logs = np.array([study.posteriors.log_posterior(z, y, one) for one in points])
    share = np.exp(logs - logs.max())
    share /= share.sum()
    np.testing.assert_allclose(share @ points, mean, atol=1e-3 * sd.min())
    np.testing.assert_allclose(np.sqrt(share @ (points - mean) ** 2), sd, rtol=1e-2)


def test_a_difference_is_seen_in_either_direction(study: Any) -> None:
    rng = np.random.default_rng(1)
    fixed = {"0": runs(study, bias=0.0, cost=4.0, seed=1), "0.1": runs(study, bias=0.1, cost=1.0, seed=2)}
    # As many passes as the fixed level of 0.1 makes 40 draws of.
    worse = {"0.1 to 0": runs(study, bias=0.4, cost=1.0, seed=3, steps=40)}
    better = {"0.1 to 0": runs(study, bias=0.0, cost=0.1, seed=4, steps=400)}
    same = {"0.1 to 0": runs(study, bias=0.1, cost=1.0, seed=5, steps=40)}
    outcome = study.comparison.compare(fixed, worse, 0.01, rng)
    assert outcome.verdict == "the fixed level is better"
    assert (outcome.fixed.name, outcome.passes) == ("0.1", 40.0)
    assert study.comparison.compare(fixed, better, 0.01, rng).verdict == "the decreasing level is better"
    assert study.comparison.compare(fixed, same, 0.01, rng).verdict == "no significant difference"


def test_draws_from_far_away_may_be_left_out(study: Any) -> None:
    one = runs(study, bias=0.0, cost=1.0, seed=6)
    one.errors[:, : STEPS // 2] += 3.0
    assert one.losses(STEPS, half=True).mean() == pytest.approx(2 / STEPS, rel=0.3)
    assert one.losses(STEPS, half=False).mean() > 1
    outcome = study.comparison.compare({"0": one}, {"0.1 to 0": one}, 0.01, np.random.default_rng(1))
    assert outcome.fixed.half
    assert outcome.falling.half
    assert outcome.ratio == 1.0


def test_intervals_hold_the_ratio_as_often_as_they_say(study: Any) -> None:
    rng = np.random.default_rng(3)
    held = []
    for _ in range(100):
        losses, others = rng.exponential(2.0, 60), rng.exponential(1.0, 60)
        _, low, high = study.comparison.interval(losses, others, 0.1, rng)
        held.append(low < 2 < high)
    assert 0.78 < np.mean(held) < 0.98


def test_risk_of_a_mixture(study: Any) -> None:
    parts = [runs(study, bias=bias, cost=1.0, seed=7) for bias in (0.3, -0.1)]
    shares = np.array([0.25, 0.75])
    assert study.comparison.predicted_risk(parts, shares, 1000) == pytest.approx(1 / 1000, rel=0.15)
    assert study.comparison.predicted_risk(parts, np.array([1.0, 0.0]), 1000) == pytest.approx(0.091, rel=0.1)


def outcome(study: Any, low: float, high: float) -> Any:
    choice = study.comparison.Choice("0.1", half=True)
    return study.comparison.Outcome(choice, choice, 50.0, 0.1, 0.1, (low * high) ** 0.5, low, high, (1.0, 1.0))


def test_conclusions_are_those_of_the_intervals(study: Any) -> None:
    worse, better, unclear = (outcome(study, *ends) for ends in ((1.1, 2.0), (0.5, 0.9), (0.9, 1.1)))
    says = study.page.conclusion
    assert says([unclear, unclear]) == "None of 2 comparisons shows a significant difference."
    assert says([worse, unclear]).endswith("in 1. A decreasing level is never better.")
    assert says([better, unclear]).endswith("never worse.")
    assert "best fixed level has the lower risk in 1, the best decreasing level in 1" in says([worse, better, unclear])


@pytest.mark.slow
@pytest.mark.usefixtures("pictures_drawn")
def test_a_page_of_a_short_study(study: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(study.run.SIZES, "small", (6, (3,)))
    monkeypatch.setattr(study.run, "FIXED", (0.0, 0.005, 0.2))
    monkeypatch.setattr(study.run, "FALLS", ((0.2, 0.005),))
    normal = study.posteriors.POSTERIORS["normal mean"]
    monkeypatch.setattr(study.run, "POSTERIORS", {"normal mean": normal})
    study.run.main(["--output-dir", str(tmp_path)])
    text = (tmp_path / "README.md").read_text()
    assert text.count("0.2 to 0.005") >= 3
    assert "comparisons" in text
    assert (tmp_path / "risk.png").stat().st_size > 5_000  # of few pixels; axes without curves have 2,200
    with pytest.raises(SystemExit):
        study.run.main(["--output-dir", str(tmp_path)])
