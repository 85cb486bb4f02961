"""The benchmark suite: its table, its figures, and a run of it on a small workload."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clocks import HANGS

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import run  # noqa: E402
from suite import laplace, table  # noqa: E402
from suite.base import Run, elapsed  # noqa: E402
from suite.measure import FIGURES, measure  # noqa: E402
from suite.reference import SEED, Reference  # noqa: E402

KEYS = {
    *("workload", "engine", "ess_bulk_min_per_s", "ess_tail_min_per_s", "time_to_ess400_s", "mean_diff_sd_max"),
    *("sd_ratio_min", "sd_ratio_max", "load_s", "setup_s", "warmup_s", "sampling_s", "passes", "ess_per_pass"),
    *("r_hat_max", "r_hat_pooled_max", "compile_s", "n", "dim", "versions", "notes"),
}
MACHINE = {
    "date": "2026-01-01",
    "cpu": "a processor",
    "cores": 2,
    "memory_gb": 8.0,
    "load_before": 0.1,
    "versions": {"stansub": "0"},
}


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, BENCHMARKS / "run.py", *arguments]
    return subprocess.run(program, capture_output=True, text=True, timeout=HANGS)


def made_up(draws: np.ndarray, **options: Any) -> Run:
    """A run whose draws of `beta` are given, in ten seconds of sampling and 100 passes."""
    seconds = {"load_s": 1.0, "setup_s": 2.0, "warmup_s": 3.0, "sampling_s": 10.0}
    return Run({"beta": draws}, **seconds, warmup_passes=50.0, sampling_passes=100.0, **options)


def normals(seed: int, *, n: int = 2000) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((4, n, 3))


REFERENCE = Reference({"beta": normals(1)}, "made up")


def measured(draws: np.ndarray, **options: Any) -> dict[str, Any]:
    return measure(made_up(draws, **options), REFERENCE, startup=0.5, total=17.0)


def result(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"machine": MACHINE, "command": "run", "options": {"seed": 1, "chains": 2}, "rows": rows}


def test_figures_of_independent_draws():
    figures = measured(normals(2))
    assert figures["agrees"] == "yes"
    assert figures["dim"] == 3
    # 8,000 independent draws; the estimate of their ESS varies by a few percent.
    assert figures["ess_bulk_min"] == pytest.approx(8000, rel=0.1)
    rate = min(figures["ess_bulk_min"], figures["ess_tail_min"]) / 10
    assert figures["time_to_ess400_s"] == pytest.approx(17.0 - 10.0 + 400 / rate)
    assert figures["passes"] == 150
    assert figures["ess_per_pass"] == pytest.approx(rate / 10)
    assert figures["other_s"] == pytest.approx(0.5)
    # Two independent means of 8,000 draws.
    assert figures["mean_diff_mcse"] == pytest.approx(np.sqrt(2 / 8000), rel=0.1)
    assert figures["mean_diff_z_max"] < 4


def test_compiling_does_not_count():
    with_it, without = measured(normals(2), compile_s=0.25), measured(normals(2))
    assert without["time_to_ess400_s"] - with_it["time_to_ess400_s"] == pytest.approx(0.25)
    assert without["total_s"] - with_it["total_s"] == pytest.approx(0.25)
    assert without["other_s"] - with_it["other_s"] == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("change", "agrees"),
    [
        (lambda x: x + np.array([0, 0.25, 0]), "no"),
        (lambda x: x * np.array([1, 1, 1.15]), "no"),
        (lambda x: x * np.array([0.85, 1, 1]), "no"),
        (lambda x: x[:, :20] + np.array([0, 0.05, 0]), "unclear"),
    ],
    ids=["shifted", "inflated", "shrunk", "short"],
)
def test_draws_that_differ_are_told(change, agrees):
    assert measured(change(normals(2)))["agrees"] == agrees


def test_a_short_run_says_that_its_time_is_extrapolated():
    assert "extrapolated" in " ".join(measured(normals(2, n=40))["notes"])
    assert "extrapolated" not in " ".join(measured(normals(2))["notes"])


def test_ess_of_weighted_draws_takes_the_place_of_that_of_chains():
    figures = measured(normals(2), ess=500.0)
    assert figures["ess_bulk_min"] == figures["ess_tail_min"] == 500
    assert figures["ess_bulk_min_per_s"] == 50


def test_rows_have_every_key_and_only_what_json_knows():
    row = table.row("logistic-1e4", "stansub-auto", {"status": "ok", "n": 10, **measured(normals(2), ess=500.0)})
    assert set(row) >= KEYS | set(FIGURES)
    assert row["r_hat_max"] is None  # it does not exist for weighted draws
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    failed = table.row("logistic-1e4", "nuts-nutpie", {"status": "failed", "notes": ["why"]})
    assert set(failed) == set(row)
    assert failed["ess_bulk_min_per_s"] is None


def test_ratios_are_to_the_fastest_nuts_of_the_same_workload():
    def row(workload: str, engine: str, rate: float, seconds: float) -> dict[str, Any]:
        return table.row(workload, engine, {"ess_bulk_min_per_s": rate, "time_to_ess400_s": seconds})

    rows = [
        row("logistic-1e4", "nuts-cmdstan", 10.0, 30.0),
        row("logistic-1e4", "nuts-nutpie", 20.0, 40.0),
        row("logistic-1e4", "stansub-auto", 100.0, 15.0),
        row("flights", "stansub-auto", 100.0, 15.0),
        table.row("logistic-1e4", "stansub-exact", {"status": "failed"}),
    ]
    done = {(one["workload"], one["engine"]): one for one in table.ordered(rows)}
    assert next(engine for workload, engine in done if workload == "logistic-1e4") == "stansub-auto"
    auto = done["logistic-1e4", "stansub-auto"]
    assert (auto["times_nuts_ess"], auto["times_nuts_time"]) == (5.0, 2.0)
    assert done["logistic-1e4", "nuts-cmdstan"]["times_nuts_ess"] == 0.5
    assert done["flights", "stansub-auto"]["times_nuts_ess"] is None
    assert done["logistic-1e4", "stansub-exact"]["times_nuts_time"] is None


@pytest.mark.usefixtures("pictures_in_full")
def test_report_and_picture(tmp_path):
    ok = {"status": "ok", "n": 10_000, **measured(normals(2)), "reference": "made up"}
    off = {"status": "ok", "n": 10_000, **measured(normals(2) + 1), "reference": "made up"}
    rows = table.ordered(
        [
            table.row("logistic-1e4", "nuts-nutpie", ok),
            table.row("logistic-1e4", "stansub-auto", off),
            table.row("covtype", "stansub-auto", {"status": "skipped", "notes": ["no data"]}),
        ]
    )
    text = table.markdown(result(rows))
    tables = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    beside, lines = tables[:2], tables[2:]
    assert beside[1][0] == "| logistic-1e4, 10,000 x 3"
    assert beside[1][1] == beside[1][2]
    assert (beside[1][3], beside[1][-1].rstrip(" |")) == ("1.00", "no")
    assert {len(line) for line in beside} == {11}
    assert {len(line) for line in lines} == {16}
    assert "N = 10,000, 3 parameters; reference: made up." in text
    assert "- stansub-auto: no data" in text
    assert [line[-1].rstrip(" |") for line in lines] == ["agrees", "no", "yes", "agrees", "skipped"]
    table.picture(rows, tmp_path / "benchmark.png")
    assert (tmp_path / "benchmark.png").stat().st_size > 10_000


def test_elapsed():
    assert elapsed([3.0, 4.0], 2) == 4.0
    assert elapsed([3.0, 4.0], 1) == 7.0
    assert elapsed([3.0, 3.0, 3.0, 3.0], 2) == 6.0


def test_mode_of_a_posterior_in_closed_form():
    # Independent gammas on the log scale: a theta - b exp(theta), with the mode at log(a / b) and curvature a.
    a, b = np.array([200.0, 3000.0]), np.array([7.0, 0.5])

    def function(theta):
        return float(a @ theta - b @ np.exp(theta)), a - b * np.exp(theta)

    found = laplace.find_mode(function, 2)
    assert found.mode == pytest.approx(np.log(a / b), abs=1e-6)
    # Differences with steps of 1e-4 are good to eight digits.
    assert found.hessian == pytest.approx(-np.diag(a), rel=1e-6, abs=1e-4)


def test_no_mode_is_said_so():
    from suite.base import Unavailable

    with pytest.raises(Unavailable, match="negative definite"):
        laplace.find_mode(lambda theta: (float(theta[0]), np.array([1.0, 0.0])), 2)


def test_resampling_keeps_proportions():
    weights = np.array([0.1, 0.0, 0.6, 0.3])
    chosen = laplace.resample(weights, 1000, np.random.default_rng(1))
    # Systematic: each count is off by less than one.
    assert np.abs(np.bincount(chosen, minlength=4) - 1000 * weights).max() < 1
    assert not np.array_equal(chosen, np.sort(chosen))


@pytest.mark.parametrize(("shape", "low", "high"), [(0.2, 0.0, 0.5), (1.0, 0.7, 1.4)])
def test_pareto_k(shape, low, high):
    weights = np.random.default_rng(1).pareto(1 / shape, 4000)
    assert low < laplace.pareto_k(weights / weights.sum()) < high


@pytest.mark.parametrize(
    "arguments",
    [
        ["--workload", "nothing"],
        ["--engine", "nothing"],
        ["--seed", str(SEED)],
        ["--chains", "1"],
        ["--time-limit", "0"],
        ["--size", "10000"],
        ["--json", "no/such/folder/rows.json"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_bad_options_end_with_2(tmp_path, arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        run.main(["--json", str(tmp_path / "rows.json"), *arguments])
    assert ended.value.code == 2
    assert arguments[0] in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "rows.json").exists()


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "rows.json").write_text("mine")
    done = command("--json", tmp_path / "rows.json")
    assert done.returncode == 2
    assert "--force" in done.stderr
    assert (tmp_path / "rows.json").read_text() == "mine"


@pytest.mark.parametrize("scaling", [[], ["--scaling"]])
def test_the_committed_report_does_not_stand_in_the_way(tmp_path, scaling):
    options = run.parse(["--json", str(tmp_path / "rows.json"), *scaling])
    assert options.output_dir == tmp_path / "rows_report"
    committed = run.HERE.parent / "reports" / "benchmark"
    with pytest.raises(SystemExit):
        run.parse(["--json", str(tmp_path / "rows.json"), "--output-dir", str(committed), *scaling])


def test_a_failure_or_a_timeout_costs_a_row_and_no_more():
    failed = run.work({"task": "run", "workload": "nothing", "folder": "."}, limit=HANGS)
    assert failed == {"status": "failed", "notes": ["KeyError: 'nothing'"]}
    late = run.work({"task": "run", "workload": "nothing", "folder": "."}, limit=0.001)
    assert late["status"] == "failed"
    assert "without draws" in late["notes"][0]


@pytest.mark.slow
def test_a_small_workload(tmp_path):
    """The whole way: data, reference, two engines in processes of their own, one that is not there, report."""
    engines = ["--engine", "stansub-exact", "--engine", "laplace-ir"]
    options = ["--workload", "logistic-500", "--output-dir", tmp_path / "out", "--data-dir", tmp_path / "data"]
    file = tmp_path / "rows.json"
    options += ["--time-limit", str(HANGS)]  # both come to their end
    done = command("--quick", "--json", file, *options, *engines)
    assert done.returncode == 0, done.stderr
    rows = json.loads(file.read_text())["rows"]
    assert [row["engine"] for row in rows] == ["stansub-exact", "laplace-ir"]
    for row in rows:
        assert row["status"] == "ok", row["notes"]
        assert set(row) >= KEYS
        assert row["dim"] == 11
        # No draws of 11 parameters from two right samplers are further apart.
        assert row["mean_diff_z_max"] < 5
        assert row["total_s"] > row["load_s"] + row["setup_s"] + row["warmup_s"] + row["sampling_s"]
    # Steps, audits (one in a hundred steps, two chains of 10,000), starting values.
    assert rows[0]["passes"] == pytest.approx(24_000, rel=0.03)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "benchmark.json",
        "benchmark.md",
        "benchmark.png",
    }

    # What is there is kept, and the same command does nothing again.
    again = command("--quick", "--json", file, *options, *engines, "--resume")
    assert again.returncode == 0, again.stderr
    assert "preparing" not in again.stderr
    assert json.loads(file.read_text())["rows"] == rows
