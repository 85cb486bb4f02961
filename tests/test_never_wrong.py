"""The study of how often draws are wrong: its verdicts, and a small version of it with a control that must fail."""

from __future__ import annotations

import importlib
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import never_wrong  # noqa: E402
from correctness import study, table, truth, verdict  # noqa: E402
from correctness.truth import Truth  # noqa: E402
from correctness.verdict import judge  # noqa: E402
from correctness.workloads import WORKLOADS  # noqa: E402

from stansub.errors import RunError  # noqa: E402
from stansub.stan.toolchain.cache import cache_dir  # noqa: E402
from stansub.tuning.modes import mode, mode_search  # noqa: E402
from stansub.tuning.modes.mode_check import ModeCheck  # noqa: E402

FOLDER = cache_dir() / "benchmarks" / "truth"
SEEDS = range(1, 9)
SECOND = np.array([0.0, 1.0])
STANDARD = Truth(
    mean={"mu[1]": 0.0, "mu[2]": 0.0},
    sd={"mu[1]": 1.0, "mu[2]": 1.0},
    mcse_mean={"mu[1]": 0.0, "mu[2]": 0.0},
    mcse_sd={"mu[1]": 0.0, "mu[2]": 0.0},
    log_density=None,
    about="standard normal",
)


def normals(n: int = 1000, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((4, n, 2))


@pytest.mark.parametrize(
    ("change", "state"),
    [
        (lambda x: x, "right"),
        (lambda x: x + SECOND * 0.4, "right"),
        (lambda x: x + SECOND * 0.6, "wrong"),
        (lambda x: x - SECOND * 0.6, "wrong"),
        (lambda x: x * 0.8**SECOND, "right"),
        (lambda x: x * 0.6**SECOND, "wrong"),
        (lambda x: x * 1.3**SECOND, "right"),
        (lambda x: x * 1.5**SECOND, "wrong"),
        (lambda x: x[:, :40] * 0.1**SECOND + SECOND, "wrong"),
        (lambda x: x * (1 - SECOND) + 0.1 * SECOND, "wrong"),
        (lambda x: np.where(SECOND == 1, np.nan, x), "wrong"),
    ],
    ids=[
        *("right", "near", "shifted up", "shifted down", "a little narrow", "narrow", "a little wide", "wide"),
        *("elsewhere", "stuck", "not finite"),
    ],
)
def test_verdict_on_made_up_draws(change: Any, state: str) -> None:
    found = judge({"mu": np.asarray(change(normals()))}, STANDARD)
    assert found.state == state
    if state == "wrong":
        assert found.worst == "mu[2]"


def test_draws_too_few_to_tell_are_imprecise() -> None:
    """Chains about different places: the mean is off, but so far apart that their own error explains it."""
    apart = normals() * 0.5 + np.array([0.0, 0.0, 0.0, 4.0])[:, np.newaxis, np.newaxis]
    assert judge({"mu": apart}, STANDARD).state == "imprecise"


def test_errors_of_the_truth_count() -> None:
    vague = Truth(
        **{**STANDARD.__dict__, "mcse_mean": {"mu[1]": 0.0, "mu[2]": 0.3}, "mcse_sd": {"mu[1]": 0.0, "mu[2]": 0.3}}
    )
    assert judge({"mu": normals() + SECOND * 0.6}, vague).state == "imprecise"


def test_components_are_compared_in_the_order_of_their_means() -> None:
    draws = {
        "mu_free": np.zeros((1, 1, 3)),
        "mu": np.array([[[3.0, -1.0, 0.0]]]),
        "sigma": np.array([[[0.3, 0.1, 0.2]]]),
    }
    judged = WORKLOADS["normal-3-free"].quantities(draws)
    assert {name: values.ravel().tolist() for name, values in judged.items()} == {
        "mu": [-1.0, 0.0, 3.0],
        "sigma": [0.1, 0.2, 0.3],
    }


def test_warnings_of_cost_are_not_against_the_draws() -> None:
    cost = "A decision used 95 % of the data on average: subsampling saved little."
    r_hat = "R-hat is above 1.01 for 2 of 8 quantities: the chains do not agree yet. There may be several modes."
    mode = "A higher mode was found after sampling. Use other inits."
    assert verdict.against(f"{cost}\n{r_hat}") == [r_hat]
    assert verdict.against("") == []
    cause = WORKLOADS["normal-3"].cause
    assert not verdict.names_cause([r_hat], cause)
    assert verdict.names_cause([r_hat, mode], cause)
    assert verdict.names_cause([r_hat], WORKLOADS["groups"].cause)


def row(state: str, seed: int, *, warned: bool = False, cause: bool = False, **more: Any) -> dict[str, Any]:
    known = {"workload": "normal-3", "way": "default", "seed": seed, "state": state, "seconds": 1.0 * seed}
    return known | {"warned": warned, "cause_named": cause, **more}


def test_table() -> None:
    runs = [
        row("right", 1),
        row("right", 2, warned=True),
        row("wrong", 3),
        row("wrong", 4, warned=True, cause=True),
        row("imprecise", 5, warned=True),
        {"workload": "normal-3", "way": "default", "seed": 6, "state": "failed", "seconds": 9.0, "message": "why"},
        {"workload": "normal-3", "way": "default", "seed": 7, "state": "crashed", "seconds": 9.0, "message": "why"},
        row("right", 1) | {"way": "plain"},
    ]
    default, plain = table.summarise(runs)
    assert (default["runs"], default["wrong"], default["imprecise"], default["failed"]) == (7, 3, 1, 1)
    assert (default["silent"], default["silent_seeds"], default["crashed"]) == (1, [3], 1)
    assert (default["cause_named"], default["warned_though_right"], default["seconds"]) == (1, 1, 4.0)
    assert (plain["runs"], plain["wrong"]) == (1, 0)
    text = table.markdown(runs)
    assert "| `normal-3` | 7 | 3 | 1 | 1 | 1 | 1 | 1 | 4.0 |" in text
    assert text.index("### default") < text.index("### plain")


@pytest.mark.parametrize("arguments", [["--workload", "nothing"], ["--seeds", "0"], ["--jobs", "0"]])
def test_bad_options_end_with_2(tmp_path: Path, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        never_wrong.main(["--json", str(tmp_path / "runs.json"), *arguments])
    assert ended.value.code == 2


def test_runs_that_are_there_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Interrupted after two runs, then resumed: each is made once; a silent error ends the command with 1."""
    file, made = tmp_path / "runs.json", []

    def some(wanted: Any, options: Any) -> Any:
        for name, seed, way in wanted:
            if len(made) == 2 and not options.resume:
                raise KeyboardInterrupt
            made.append(seed)
            state = "wrong" if seed == 3 else "right"
            more = {"worst": "mu[1]", "mean_diff_sd": 9.0, "sd_ratio": 1.0, "log_density_gap": 800.0}
            yield row(state, seed, **more) | {"workload": name, "way": way}

    monkeypatch.setattr(never_wrong, "prepare", lambda names, folder: {})
    monkeypatch.setattr(never_wrong, "run_all", some)
    options = ["--json", str(file), "--workload", "normal-3", "--way", "default", "--seeds", "4"]
    for more, code in (([], 130), (["--resume"], 1), ([], 2)):
        with pytest.raises(SystemExit) as ended:
            never_wrong.main([*options, *more])
        assert ended.value.code == code
    assert made == [1, 2, 3, 4]
    result = json.loads(file.read_text())
    assert [run["seed"] for run in result["runs"]] == [1, 2, 3, 4]
    assert result["table"][0]["silent_seeds"] == [3]
    assert "9.0 sd off" in capsys.readouterr().err


def test_quadrature_of_a_posterior_in_closed_form() -> None:
    grid = truth._quadrature(
        lambda x, y: -(((x - 3) / 0.01) ** 2) / 2 - (y / 2) ** 2 / 2, [(-50, 50), (-50, 50)], [501, 101]
    )
    x, y = np.meshgrid(*grid.axes, indexing="ij")
    assert grid.moments(x) == pytest.approx((3.0, 0.01), rel=1e-6)
    assert grid.moments(y, np.ones_like(y)) == pytest.approx((0.0, 5**0.5), abs=1e-6)


def test_errors_cost_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(workload: Any, seed: int, way: str) -> Any:
        raise RunError("no mode") if seed == 1 else KeyError("a defect")

    monkeypatch.setattr(truth, "load", lambda workload, folder: STANDARD)
    monkeypatch.setattr(study, "compiled", lambda path: None)
    found = [study.run("normal-3", seed, "default", tmp_path, refuses) for seed in (1, 2)]
    assert [one["state"] for one in found] == ["failed", "crashed"]
    assert found[0]["message"] == "no mode"
    assert "KeyError" in table.line(found[1])


def test_another_mode_that_could_matter_makes_an_answer_untrusted() -> None:
    peak, wide = np.zeros(2), np.diag([100.0, 1.0])
    near, far, low = (np.array([1.0, 0.0]), -0.005), (np.array([40.0, 0.0]), 0.0), (np.array([0.0, 9.0]), -300.0)
    assert "2 of 3" in truth.other_modes([near, (peak, 0.0), low], peak, 0.0, wide)
    with pytest.raises(truth.NotTrusted):
        truth.other_modes([near, far], peak, 0.0, wide)
    assert "2 of 2" in truth.other_modes([near, far], peak, 0.0, wide, free_of_labels=True)
    with pytest.raises(truth.NotTrusted):
        truth.other_modes([(np.array([0.0, 9.0]), 250.0)], peak, 0.0, wide, free_of_labels=True)


# The small version of the study.


def rows(name: str, draw: study.Draw = study.draw) -> list[dict[str, Any]]:
    return [study.run(name, seed, "default", FOLDER, draw) for seed in SEEDS]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["normal-3-apart", "t-3", "squared-slope", "rare"])
def test_never_wrong_without_a_warning(name: str) -> None:
    silent = [one for one in rows(name) if one["state"] in ("wrong", "imprecise") and not one["warned"]]
    assert not silent, "\n".join(map(table.line, silent))


@pytest.mark.slow
def test_a_sampler_with_three_starts_and_no_look_afterwards_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    few_starts(monkeypatch)
    found = rows("normal-3-apart")
    assert [one for one in found if one["state"] == "wrong" and not one["warned"]]


def few_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the sampler trust what three starts within the radius find, and not look for modes after sampling."""
    monkeypatch.setattr(mode, "KINDS", ("random",))
    monkeypatch.setattr(mode_search, "find_modes", partial(mode.find_modes, starts=3))
    monkeypatch.setattr(importlib.import_module("stansub.run.collect"), "check_modes", lambda *_, **__: ModeCheck())
