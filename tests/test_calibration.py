"""Simulation-based calibration: ranks, their band and p-values, a run of its own, and the study's bookkeeping."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom

import stansub
from stansub.diagnostics import calibration
from stansub.diagnostics.calibration import Calibration, Repeat, calibrate, repeat
from stansub.diagnostics.ranks import Rank, band, difference, p_value, rank
from stansub.errors import InputError, RunError

STUDY = Path(__file__).resolve().parent.parent / "benchmarks" / "calibration"
SEED = 20

# Ranks.


def test_rank_counts_the_draws_below() -> None:
    draws = np.arange(20.0).reshape(2, 10)
    assert rank(draws, 7.5, 1000.0, np.random.default_rng(1), most=100) == Rank(8, 20)
    assert rank(draws, -1.0, 1000.0, np.random.default_rng(1), most=100) == Rank(0, 20)
    assert rank(draws, 99.0, 1000.0, np.random.default_rng(1), most=100) == Rank(20, 20)


def test_draws_are_thinned_to_half_their_ess_from_all_chains() -> None:
    draws = np.repeat([[0.0], [1.0]], 50, axis=1)
    assert rank(draws, 0.5, 20.0, np.random.default_rng(1), most=100) == Rank(5, 10)
    assert rank(draws, 0.5, 1e6, np.random.default_rng(1), most=8) == Rank(4, 8)


def test_a_chain_that_never_moves_is_one_draw() -> None:
    found = {rank(np.ones((2, 50)), 1.0, np.nan, np.random.default_rng(seed), most=100) for seed in range(20)}
    assert found == {Rank(0, 1), Rank(1, 1)}


def test_ranks_of_discrete_values_are_uniform() -> None:
    """A control without a rule for ties is not."""
    rng = np.random.default_rng(SEED)
    with_ties, without = [], []
    for _ in range(300):
        draws, value = rng.poisson(1.0, (2, 10)).astype(float), float(rng.poisson(1.0))
        with_ties.append(rank(draws, value, 1e6, rng, most=20).uniform(rng))
        without.append(Rank(int((draws < value).sum()), 20).uniform(rng))
    assert p_value(np.array(with_ties)) > 0.01
    assert p_value(np.array(without)) < 1e-6


def autoregressive(n: int, correlation: float, rng: np.random.Generator) -> np.ndarray:
    draws = np.empty((2, n))
    draws[:, 0] = rng.standard_normal(2)
    for k in range(1, n):
        draws[:, k] = correlation * draws[:, k - 1] + np.sqrt(1 - correlation**2) * rng.standard_normal(2)
    return draws


def test_ranks_among_dependent_draws_are_uniform_once_thinned() -> None:
    rng = np.random.default_rng(SEED)
    thinned, whole = [], []
    for _ in range(300):
        draws, value = autoregressive(150, 0.97, rng), rng.standard_normal()
        ess = draws.size * 0.03 / 1.97
        thinned.append(rank(draws, value, ess, rng, most=100).uniform(rng))
        whole.append(rank(draws, value, 2.0 * draws.size, rng, most=100).uniform(rng))
    assert p_value(np.array(thinned)) > 0.01
    assert p_value(np.array(whole)) < 0.001


# Band and p-values.


@pytest.mark.parametrize("n", [2, 25, 150])
def test_p_values_are_those_of_simulation(n: int) -> None:
    """A uniform sample has a p-value of at most a with probability a, up to the steps of counts."""
    rng = np.random.default_rng(SEED)
    found = np.array([p_value(rng.random(n)) for _ in range(2000)])
    for level in (0.02, 0.1, 0.3):
        assert (found <= level).sum() <= binom.isf(1e-4, 2000, level)
    if n > 2:
        assert (found <= 0.1).sum() >= binom.isf(1 - 1e-4, 2000, 0.07)


@pytest.mark.parametrize("n", [10, 60, 200])
def test_band_is_left_by_no_more_than_its_share(n: int) -> None:
    rng = np.random.default_rng(SEED)
    found, left = band(n, 0.1), 0
    for _ in range(2000):
        off = difference(rng.random(n), found.at)
        left += bool(((off < found.low - 1e-12) | (off > found.high + 1e-12)).any())
    assert binom.isf(1 - 1e-4, 2000, 0.05) <= left <= binom.isf(1e-4, 2000, 0.1)


def test_the_band_and_the_p_value_agree() -> None:
    rng = np.random.default_rng(SEED)
    found, inside = band(50, 0.05), []
    for power in np.linspace(0.5, 2, 60):
        uniforms = rng.random(50) ** power
        off = difference(uniforms, found.at)
        inside.append(bool(((off >= found.low - 1e-12) & (off <= found.high + 1e-12)).all()))
        assert inside[-1] == (p_value(uniforms) > 0.05)
    assert True in inside
    assert False in inside


@pytest.mark.parametrize(
    "change",
    [lambda z: z + 0.6, lambda z: z - 0.6, lambda z: 1.8 * z, lambda z: z / 1.8, lambda z: np.abs(z)],
    ids=["low", "high", "narrow", "wide", "folded"],
)
def test_ranks_that_are_not_uniform_fail(change: Any) -> None:
    rng = np.random.default_rng(SEED)
    samples = [rng.standard_normal(100) for _ in range(200)]
    assert sum(p_value(ndtr(normal)) <= 0.01 for normal in samples) <= binom.isf(1e-4, 200, 0.01)
    assert sum(p_value(ndtr(change(normal))) <= 0.01 for normal in samples) >= 180


# A run.


def posterior_of(data: dict[str, Any]) -> stansub.FunctionFactors:
    """Mean of unit normals under a standard normal prior; the control counts each observation more than once."""
    y, weight = data["y"], data.get("weight", 1.0)
    return stansub.FunctionFactors(
        ["mu"],
        len(y),
        lambda theta, which: -0.5 * weight * (y[which] - theta[0]) ** 2,
        log_density=lambda theta: -0.5 * float(theta[0] ** 2),
        block_size=5,
    )


def simulated(rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
    mu = rng.standard_normal()
    return {"mu": mu}, {"y": rng.normal(mu, 1, 100)}


def simulated_for_control(rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
    values, data = simulated(rng)
    return values, {**data, "weight": 16.0}


SHORT: dict[str, Any] = {"chains": 2, "parallel_chains": 1, "iter_warmup": 100, "iter_sampling": 300, "audit": 0}
SHORT |= {"proposal": "random-walk", "test": stansub.Pocock(looks=stansub.Geometric(first=5)), "inits": 0.1}


@pytest.mark.usefixtures("pictures_drawn")
def test_a_right_sampler_is_calibrated_and_a_narrow_one_is_not(tmp_path: Path) -> None:
    right = calibrate(posterior_of, simulated, repeats=20, seed=SEED, **SHORT)
    assert right.names == ("mu",)
    assert right.ranks.shape == right.draws.shape == right.uniforms.shape == (20, 1)
    assert right.p_value > 0.01
    assert 0 < right.share < 1
    wrong = calibrate(posterior_of, simulated_for_control, repeats=20, seed=SEED, **SHORT)
    assert wrong.p_value < 0.001
    assert wrong.parameters.loc["mu", "sd_ratio"] > 1.2
    right.plot(tmp_path / "ranks.png")
    assert (tmp_path / "ranks.png").read_bytes().startswith(b"\x89PNG")


def test_a_repeat_follows_from_seed_and_number() -> None:
    first = repeat(posterior_of, simulated, 3, seed=1, **SHORT)
    assert repeat(posterior_of, simulated, 3, seed=1, **SHORT) == first
    assert repeat(posterior_of, simulated, 4, seed=1, **SHORT).uniforms != first.uniforms


def test_runs_that_warn_or_fail_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = calibration.draw

    def fails_once(*arguments: Any) -> Any:
        failing.append(1)
        if len(failing) == 2:
            raise RunError("no\nmode")
        return drawn(*arguments)

    failing: list[int] = []
    monkeypatch.setattr(calibration, "draw", fails_once)
    found = calibrate(posterior_of, simulated, repeats=3, seed=1, **{**SHORT, "iter_sampling": 20})
    assert found.failed == ("no mode",)
    assert len(found.uniforms) == found.warned == 2
    assert found.doubts["LowEss"] == 2
    with pytest.raises(RunError, match="all 1 repeats failed"):
        Calibration.of([Repeat(0, failure="no mode")])


@pytest.mark.parametrize(
    ("values", "message"),
    [({"tau": 1.0}, "no such variable in the posterior: tau"), ({"mu": [1.0, 2.0]}, r"shape \(2,\)")],
)
def test_parameters_that_do_not_fit_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        calibrate(posterior_of, lambda rng: (values, simulated(rng)[1]), repeats=2, **SHORT)


def test_bad_numbers_are_refused() -> None:
    with pytest.raises(InputError, match="repeats"):
        calibrate(posterior_of, simulated, repeats=1)
    with pytest.raises(InputError, match="seed"):
        calibrate(posterior_of, simulated, seed=-1)


# The study.


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command's modules, whose names are common ones."""
    names = ("run", "page", "cells", "workloads")
    monkeypatch.syspath_prepend(str(STUDY))
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    import run

    yield run
    for name in names:
        sys.modules.pop(name, None)


def test_simulated_data_have_what_the_programs_declare(study: Any) -> None:
    for workload in study.WORKLOADS.values():
        text = workload.path.read_text()
        values, data = workload.simulate(np.random.default_rng(1))
        declared = text[text.index("data {") : text.index("parameters {")]
        assert all(f" {name};" in declared for name in data)
        assert declared.count(";") == len(data)
        assert all(np.isfinite(value).all() for value in values.values())
        own = text[text.index("parameters {") : text.index("model {")]
        assert all(f" {name};" in own for name in values)
        assert own.count(";") == len(values)


def test_every_test_and_proposal_has_its_cell(study: Any) -> None:
    from stansub.acceptance.names import RULE_HOMES
    from stansub.tuning.proposal_names import PROPOSALS

    assert {*RULE_HOMES, *PROPOSALS} - {"auto"} <= set(study.CELLS)


def test_options_of_every_cell_go_together(study: Any) -> None:
    """Surrogate transitions and Metropolis within Gibbs choose their own test."""
    for cell in study.CELLS.values():
        assert stansub.SampleConfig(**cell.options).chains == 2


def made_up(job: Any, seed: int) -> dict[str, Any]:
    """Uniform ranks, those of one control at the ends."""
    rng = np.random.default_rng([job.number, len(job.cell)])
    uniforms = (rng.random() * 0.1,) if job.cell == "data fourfold" else ((job.number + rng.random()) / 30,)
    done = Repeat(job.number, ("mu",), (Rank(int(100 * uniforms[0]), 100),), uniforms, (), 0.2)
    return {"model": job.model, "cell": job.cell, "seed": seed, **done._asdict()}


def test_an_interrupted_study_reports_and_is_resumed(
    study: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = []

    def some(jobs: Any, seed: int, processes: int) -> Any:
        for job in jobs:
            if len(made) == 40 and "--resume" not in command:
                raise KeyboardInterrupt
            made.append(job)
            yield made_up(job, seed)

    monkeypatch.setattr(study, "run_all", some)
    monkeypatch.setattr(study, "compiled", lambda model: None)
    command = ["--models", "normal", "--cells", "pocock", "data fourfold", "--repeats", "30"]
    command += ["--runs", str(tmp_path / "runs.jsonl"), "--output-dir", str(tmp_path)]
    with pytest.raises(SystemExit) as ended:
        study.main(command)
    assert ended.value.code == 130
    assert "40 runs" in (tmp_path / "README.md").read_text()
    with pytest.raises(SystemExit) as refused:
        study.main(command)
    assert refused.value.code == 2
    command.append("--resume")
    study.main(command)
    assert len(made) == len(set(made)) == 60
    page = (tmp_path / "README.md").read_text()
    assert "All 1 combinations" in page
    assert "| data fourfold | the sampler gets every observation four times" in page
    figures = json.loads((tmp_path / "results.json").read_text())
    assert {one["cell"]: one["p_value"] < 1e-6 for one in figures} == {"pocock": False, "data fourfold": True}
    assert (tmp_path / "normal.png").exists()
