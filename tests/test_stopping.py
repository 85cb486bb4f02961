"""The study of runs that end by their own precision: its chains, its rules and what it calls biased."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stansub.output import apportioning
from stansub.run.early_stopping import FIRST, EarlyStopping, schedule
from stansub.run.precision import Precision

SCRIPT = Path(__file__).resolve().parent.parent / "benchmarks" / "stopping" / "run.py"


@pytest.fixture(scope="module")
def study() -> ModuleType:
    spec = importlib.util.spec_from_file_location("stopping_run", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["stopping_run"] = module  # where processes look for what they are sent
    spec.loader.exec_module(module)
    return module


def test_values_that_are_called_true_are_those_of_independent_draws(study: ModuleType) -> None:
    rng, n = np.random.default_rng(1), 400_000
    draws = np.stack([rng.standard_normal(n), rng.gumbel(size=n)], axis=-1)
    for one in study.ESTIMANDS:
        values = one.function(draws[:, one.column])
        assert abs(values.mean() - one.truth) < 4 * one.sd / np.sqrt(n), one.name
        assert values.std() == pytest.approx(one.sd, rel=0.05)


def test_chains_begin_in_the_target_and_stay_there(study: ModuleType) -> None:
    draws = study.chains(np.random.default_rng(2), 2000, 30)
    assert draws.shape == (2000, 4, 30, 2)
    last = draws[:, :, -1]
    for one in study.ESTIMANDS:
        values = one.function(last[..., one.column])
        assert abs(values.mean() - one.truth) < 4 * one.sd / np.sqrt(values.size), one.name


def _chain(draws: NDArray[np.float64]) -> Any:
    """A chain as a check reads it, with these draws."""
    return SimpleNamespace(
        sampling=SimpleNamespace(kept=SimpleNamespace(read=lambda n: SimpleNamespace(theta=draws[n:])))
    )


def test_its_runs_end_where_those_of_the_package_do(study: ModuleType) -> None:
    asked, ends = "ess=60,rhat=1.05", []
    for draws in study.chains(np.random.default_rng(3), 3, 3000):
        until = EarlyStopping(Precision.of(asked), lambda theta: {"x": theta}, most=3000, thin=1)
        n = 0
        for n in schedule(3000):
            for _ in until.check([_chain(one[:n]) for one in draws]):
                pass
            if until.reached:
                break
        assert study.Until(asked, 3000)(draws) == n
        ends.append(n)
    assert min(ends) < 3000


def test_of_many_parameters_the_first_elements_of_large_variables_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apportioning, "_DRAWS", 20 * 4 * FIRST)
    chains = [_chain(draws) for draws in np.random.default_rng(5).standard_normal((4, 600, 31))]

    def checked(n_last: int) -> EarlyStopping:
        """With a last parameter that moves only every 100 draws; it is alone or the last of 31 elements."""

        def constrain(theta: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
            stuck = theta.copy()
            stuck[:, :, -1] = np.repeat(theta[:, ::100, -1], 100, axis=1)[:, : theta.shape[1]]
            return {"effects": stuck[:, :, : 31 - n_last], "scale": stuck[:, :, 31 - n_last :]}

        until = EarlyStopping(Precision.of("ess=100"), constrain, most=3000, thin=1)
        for _ in until.check(chains):
            pass
        return until

    assert checked(0).reached
    failed = checked(1).last
    assert failed is not None
    assert (failed.reached, failed.quantity) == (False, "scale[1]")


def test_a_bias_is_seen_and_noise_is_not(study: ModuleType) -> None:
    rng, n, sd = np.random.default_rng(4), 500, 0.05
    truth, sds = np.array([[one.truth, one.sd] for one in study.ESTIMANDS]).T
    values = truth + sd * sds * rng.standard_normal((n, len(truth)))
    rows = []
    for name, shift in (("right", 0.0), ("wrong", -sd)):
        estimates = np.stack([values + shift * sds, np.broadcast_to(sd * sds, values.shape)], axis=-1)
        ends = study.Ends(np.full(n, 100), estimates)
        rows += [study.row(name, ends, place) for place in range(len(truth))]
    assert [study.verdict(rows, name)[1] for name in ("right", "wrong")] == [False, True]
    assert [abs(one["coverage"] - 0.9) < 0.05 for one in rows] == [True] * 4 + [False] * 4


def test_the_command_writes_its_report(
    study: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(study, "MOST", 700)
    arguments = ["--runs", "3", "--output-dir", str(tmp_path)]
    assert study.main(arguments) == 1, "three runs show no bias, that of the control neither"
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert {one["rule"] for one in rows} >= {"`until ess=100`", "control: ess=20, every draw"}
    assert "no bias detected" in (tmp_path / "README.md").read_text()
    with pytest.raises(SystemExit) as ended:
        study.main(arguments)
    assert ended.value.code == 2
    assert "--force overwrites it" in capsys.readouterr().err
