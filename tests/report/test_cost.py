"""Both samplers' costs, worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stansub.diagnostics.cost import Ess, cost

DRAWS: dict[str, Any] = {
    "settings": {"parallel_chains": 2},
    "compile_time": 20.0,
    "setup_time": 1.0,
    "wall_time": 11.0,
    "warmup_time": [1.0] * 4,
    "sampling_time": [4.0] * 4,
    "n_observations": 1000,
    "n_steps": [400] * 4,
    "n_obs_used": [20_000] * 4,
    "n_audited": [10] * 4,
    "n_audit_wrong": [1, 0, 0, 1],
    "n_obs_evaluated": [50_000] * 4,
    "warmup_n_obs_evaluated": [5_000] * 4,
}
REFERENCE: dict[str, Any] = {
    "settings": {"parallel_chains": 4},
    "compile_time": 30.0,
    "setup_time": 2.0,
    "wall_time": 100.0,
    "warmup_time": [50.0] * 4,
    "sampling_time": [40.0] * 4,
    "n_observations": 1000,
    "n_gradients": [700] * 4,
    "warmup_n_gradients": [1000] * 4,
}


def test_by_hand() -> None:
    frame = cost(DRAWS, REFERENCE, Ess(800.0, 400.0), Ess(4000.0, 2000.0))
    by_hand = {  # draws, reference, times better
        "compile_time": (20, 30, 1.5),
        "setup_time": (1, 2, 2),
        "warmup_time": (2, 50, 25),
        "sampling_time": (8, 40, 5),
        "other_time": (1, 10, 10),
        "total_time": (32, 132, 132 / 32),
        "step_time": (1e4, np.nan, np.nan),
        "share_of_data": (5, np.nan, np.nan),
        "wrong_decisions": (5, np.nan, np.nan),
        "likelihood_evaluations": (220_000, np.nan, np.nan),
        "gradient_evaluations": (np.nan, 6800, np.nan),
        "passes_warmup": (20, 4000, 200),
        "passes_sampling": (200, 2800, 14),
        "passes_total": (220, 6800, 6800 / 220),
        "ess_bulk_min": (800, 4000, 0.2),
        "ess_tail_min": (400, 2000, 0.2),
        "ess_per_second": (100, 100, 1),
        "ess_per_second_total": (25, 4000 / 132, 25 / (4000 / 132)),
        "ess_per_pass": (4, 4000 / 2800, 2.8),
        "ess_per_pass_total": (800 / 220, 4000 / 6800, 800 / 220 * 1.7),
        # set-up, warmup and the rest in full, sampling until the smaller ESS is 400
        "time_to_ess": (20 + 1 + 2 + 1 + 8, 30 + 2 + 50 + 10 + 8, 100 / 32),
        "time_to_ess_compiled": (12, 70, 70 / 12),
    }
    assert list(frame.index) == list(by_hand)
    for name, values in by_hand.items():
        assert frame.loc[name, ["draws", "reference", "ratio"]].tolist() == pytest.approx(values, nan_ok=True), name
    assert any("counts as one pass" in note for note in frame.attrs["notes"])


def test_what_is_not_recorded_is_noted() -> None:
    frame = cost(DRAWS, {}, Ess(800.0, 400.0), Ess(4000.0, 2000.0))
    assert frame["reference"].notna().sum() == 2
    assert frame.loc["ess_bulk_min", "ratio"] == pytest.approx(0.2)
    assert frame["ratio"].notna().sum() == 2
    assert any(note.startswith("the reference does not record the time of compiling") for note in frame.attrs["notes"])


def test_a_run_without_compilation_and_set_up_has_a_total() -> None:
    facts = {name: value for name, value in DRAWS.items() if name not in ("compile_time", "setup_time")}
    frame = cost(facts, DRAWS, Ess(800.0, 400.0), Ess(800.0, 400.0))
    assert frame.loc["total_time", "draws"] == 11.0
    assert "the draws do not record the time of compiling, the time of setting up" in frame.attrs["notes"]


def test_decisions_that_need_no_observation_have_no_ess_per_pass() -> None:
    """Where expansions are exact, no decision evaluates an observation."""
    frame = cost(DRAWS | {"n_obs_evaluated": [0] * 4}, REFERENCE, Ess(800.0, 400.0), Ess(4000.0, 2000.0))
    assert frame.loc["passes_sampling", "draws"] == 0
    assert np.isnan(frame.loc["ess_per_pass", "draws"])
    assert frame.loc["ess_per_pass_total", "draws"] == 40
    none = {"n_obs_evaluated": [0] * 4, "warmup_n_obs_evaluated": [0] * 4}
    assert np.isnan(
        cost(DRAWS | none, REFERENCE, Ess(800.0, 400.0), Ess(4000.0, 2000.0)).loc["ess_per_pass_total", "draws"]
    )


def test_how_times_were_split_and_early_ends_are_noted() -> None:
    notes = cost(
        DRAWS | {"stopped": "max_time"},
        REFERENCE | {"time_split": "by gradient evaluations"},
        Ess(800.0, 400.0),
        Ess(4000.0, 2000.0),
    ).attrs["notes"]
    assert any("in proportion to gradient evaluations" in note for note in notes)
    assert any("the draws stopped early (max_time)" in note for note in notes)
