"""`--test barker` and `--test penalty` from a program and data to draws and what users read of them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import statistic

import stansub
from stansub import Barker, CompiledModel, Geometric, InputError, Penalty, cli
from stansub.acceptance.normality import Pair, mean_square
from stansub.decision_findings import NoiseTooLarge
from stansub.decision_selection import FirstLookOfNoise
from stansub.output import inference_data
from stansub.output.checks import findings_of
from stansub.output.record import record_of
from stansub.tuning.race import choose_looks

LOGISTIC = str(Path(__file__).parents[2] / "stan_models" / "logistic.stan")
QUICK: dict[str, Any] = {"chains": 2, "iter_warmup": 200, "iter_sampling": 500, "seed": 1}


@pytest.mark.parametrize("name", ["barker", pytest.param("penalty", marks=pytest.mark.slow)])
def test_from_the_command_line(
    name: str,
    logistic: CompiledModel,
    logistic_data: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data.json").write_text(json.dumps({key: np.asarray(value).tolist() for key, value in logistic_data.items()}))
    command = [
        "sample",
        LOGISTIC,
        "data.json",
        "--test",
        name,
        "--block-size",
        "10",
        "--audit",
        "0.5",
        "--quiet",
        "--verbose",
    ]
    with pytest.raises(SystemExit) as exit_:
        cli.main([*command, "--chains", "2", "--iter-warmup", "200", "--iter-sampling", "500", "--seed", "1"])
    assert exit_.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert f"Decisions {name}, on estimated log ratios with a standard error of at most 1" in text
    assert "audited estimates were off by" in text
    assert "trial estimates off by" in text
    idata = inference_data.read(Path("logistic.nc"))
    facts = inference_data.attrs(idata)
    assert facts["test"] == name
    assert facts["guarantee"] == "asymptotic"
    assert "normality" not in facts, "the audit looks at what the trial would"
    record = record_of(idata)
    assert record.estimates is not None
    assert record.estimates.n_audited > 300
    assert 0.8 < record.estimates.mean_square < 1.3
    assert not statistic(idata, "audit_wrong").any()


def test_the_same_seed_gives_the_same_draws(logistic: CompiledModel, logistic_data: dict[str, Any]) -> None:
    draws = [
        inference_data.group(
            stansub.sample(logistic, logistic_data, test="barker", parallel_chains=n, **QUICK), "posterior"
        )["alpha"].values
        for n in (1, 2)
    ]
    np.testing.assert_array_equal(*draws)


def test_without_control_variates_the_looks_decide(logistic: CompiledModel, logistic_data: dict[str, Any]) -> None:
    idata = stansub.sample(
        logistic,
        logistic_data,
        test="penalty",
        block_size=1,
        audit=0.2,
        control_variates=0,
        proposal="adaptive-metropolis",
        **QUICK,
    )
    record = record_of(idata)
    assert record.fallback_share is not None
    assert record.fallback_share > 0.5
    assert record.audit is not None
    assert NoiseTooLarge(record.fallback_share, "penalty") in findings_of(idata)


def pairs(law: str) -> list[Pair]:
    rng = np.random.default_rng(3)
    values = rng.standard_normal((8, 3000)) if law == "normal" else rng.lognormal(0, 1.5, (8, 3000))
    return [Pair(row - row.mean(), 0.0) for row in values]


class TestFirstLook:
    def test_normal_blocks_are_decided_upon_early(self) -> None:
        test, look = choose_looks(pairs("normal"), Barker(), 3000, np.random.default_rng(1))
        assert test == Barker(looks=Geometric(first=10, growth=1.5))
        assert isinstance(look, FirstLookOfNoise)
        assert (look.first, look.n_estimates) == (10, 2000)
        assert look.off == pytest.approx(1.0, abs=0.1)
        assert look.describe().startswith("10 blocks: 2,000 trial estimates off by 1.0")

    def test_skewed_ones_late(self) -> None:
        test, _ = choose_looks(pairs("skewed"), Penalty(), 3000, np.random.default_rng(1))
        assert test == Penalty(looks=Geometric(first=100, growth=1.5))

    def test_there_must_be_blocks_left(self) -> None:
        test, look = choose_looks([], Penalty(), 3000, np.random.default_rng(1))
        assert test == Penalty(looks=Geometric(first=10, growth=1.5))
        assert look == FirstLookOfNoise(10, n_estimates=0, off=None)
        assert "no trial was possible" in look.describe()

    def test_mean_square(self) -> None:
        assert mean_square(pairs("normal"), 10, 1000, np.random.default_rng(2)) == pytest.approx(1, abs=0.06)
        assert mean_square(pairs("skewed"), 10, 1000, np.random.default_rng(2)) > 1.3


def test_the_normality_trial_is_for_t_tests(logistic: CompiledModel, logistic_data: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="barker test is checked by the audit"):
        stansub.diagnose(logistic, logistic_data, test="barker")
