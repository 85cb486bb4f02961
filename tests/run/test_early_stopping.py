"""Runs that end when their draws are precise enough: where they end, wherever they run and however often they stop."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clocks import Clock
from drawn import unconstrained
from ending import stop_after
from numpy.typing import NDArray

import stansub
from stansub import CompiledModel, FunctionFactors, InputError, RandomWalk, SampleConfig, cli
from stansub.findings import NotPreciseEnough, Stopped
from stansub.output.checks import findings_of
from stansub.output.inference_data import attrs as facts
from stansub.output.statistics import table
from stansub.run import checkpoint, early_stopping
from stansub.run.early_stopping import FIRST, schedule
from stansub.run.precision import Precision

Array = NDArray[np.float64]

EXAMPLES = Path(__file__).parents[2] / "stan_models"


def standard_normal(theta: Array, which: NDArray[np.int32]) -> Array:
    """Two parameters and one observation."""
    return np.array([-0.5 * theta @ theta])


@pytest.fixture
def target() -> FunctionFactors:
    return FunctionFactors(["a", "b.1"], 1, standard_normal)


# Steps so small that some thousands of draws are needed.
SLOW: dict[str, Any] = {
    "kernel": stansub.Metropolis(RandomWalk(0.6 * np.eye(2))),
    "test": "exact",
    "chains": 2,
    "iter_warmup": 40,
    "seed": 3,
    "show_progress": False,
}
ESS = "ess=60"
pytestmark = pytest.mark.filterwarnings("ignore::stansub.DrawsWarning")


def smallest_ess(idata: Any) -> float:
    return float(table(idata)[["ess_bulk", "ess_tail"]].min(axis=None))


@pytest.fixture(scope="module")
def whole() -> Any:
    """A run that ends by itself after some checks, and before its last step."""
    return stansub.sample(FunctionFactors(["a", "b.1"], 1, standard_normal), until=ESS, **SLOW)


class TestWhatIsAskedFor:
    @pytest.mark.parametrize(
        "given",
        ["ess=400,rhat=1.01", " rhat = 1.01 , ess = 4e2", {"ess": 400, "rhat": np.float64(1.01)}],
        ids=str,
    )
    def test_words_and_mappings_are_the_same(self, given: Any) -> None:
        assert SampleConfig(until=given).until == "ess=400,rhat=1.01"
        assert SampleConfig(until=given).precision == Precision(400, 1.01)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ("", "`until`: '' must have the form ess=400,rhat=1.01"),
            ("400", "`until`: '400' must have the form"),
            ("ess=400,", "must have the form"),
            ("ess=many", "ess 'many' must be a number"),
            ("mcse=0.1", "unknown 'mcse'; choose from ess, rhat"),
            ("ess=1,ess=2", "ess is given twice"),
            ("ess=0", "ess 0 must be a finite number above 0"),
            ("ess=nan", "ess nan must be a finite number above 0"),
            ("ess=inf", "ess inf must be a finite number above 0"),
            ("rhat=1", "rhat 1 must be a finite number above 1"),
            ({}, "`until`: give a minimum ESS"),
            ({"ess": None}, "ess None must be a number"),
            (400, "`until`: 400 must have the form"),
        ],
        ids=str,
    )
    def test_anything_else_is_refused_in_one_line(self, given: Any, message: str) -> None:
        with pytest.raises(InputError) as caught:
            SampleConfig(until=given)
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_what_does_not_go_together_is_refused(self) -> None:
        with pytest.raises(InputError, match="R-hat needs at least two chains"):
            SampleConfig(until="rhat=1.01", chains=1)
        assert SampleConfig(until="ess=40", chains=1).chains == 1
        with pytest.raises(InputError, match=r"`final_epsilon` .* `until`"):
            SampleConfig(until="ess=40", final_epsilon=0.01)

    def test_the_limit_is_larger_unless_it_is_given_and_costs_are_weighed_as_without(self) -> None:
        options: tuple[dict[str, Any], ...] = ({}, {"until": ESS}, {"until": ESS, "iter_sampling": 900})
        plain, open_ended, short = (SampleConfig(**one).of_length(transitions=False) for one in options)
        assert [one.iter_sampling for one in (plain, open_ended, short)] == [10_000, 100_000, 900]
        assert [one.iter_foreseen for one in (plain, open_ended, short)] == [10_000, 10_000, 900]

    def test_the_limit_is_ten_times_the_usual_number_of_surrogate_transitions_and_of_a_resumed_run(self) -> None:
        """With thousands of parameters, 100,000 draws a chain would fill the memory before the run begins."""
        asked, fixed = SampleConfig(until=ESS), SampleConfig(iter_warmup=7, iter_sampling=500)
        transitions = asked.of_length(transitions=True)
        assert (transitions.iter_warmup, transitions.iter_sampling) == (200, 10_000)
        assert asked.continuing(transitions.record()).iter_sampling == 10_000
        assert asked.continuing(fixed.record()).iter_sampling == 5_000
        assert SampleConfig(until=ESS, iter_sampling=900).continuing(fixed.record()).iter_sampling == 900

    def test_the_command_refuses_it_with_code_2(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            cli.main(["sample", "model.stan", "data.json", "--until", "ess=1,mcse=2"])
        assert ended.value.code == 2
        assert capsys.readouterr().err == (
            "stansub: error: --until: unknown 'mcse'; choose from ess, rhat, such as ess=400,rhat=1.01\n"
        )


class TestSchedule:
    def test_it_grows_by_a_quarter_and_ends_at_the_limit(self) -> None:
        assert list(schedule(1000)) == [500, 625, 782, 978, 1000]
        assert list(schedule(30)) == [30]
        assert list(schedule(FIRST)) == [FIRST]
        assert len(list(schedule(100_000))) < 30

    def test_a_precision_is_for_every_quantity_and_never_reached_by_what_is_unknown(self) -> None:
        asked = Precision(100, 1.01)
        assert asked.reached(100, 1.01)
        assert not asked.reached(99.9, 1.0)
        assert not asked.reached(500, 1.02)
        assert not asked.reached(float("nan"), 1.0)
        assert not asked.reached(500, float("nan"))
        assert Precision(ess=100).reached(100, float("nan"))


class TestTheEnd:
    def test_it_is_the_first_check_that_finds_the_draws_precise_enough(self, whole: Any) -> None:
        n, found = unconstrained(whole).shape[1], facts(whole)["last_check"]
        assert FIRST < n < 100_000
        points = list(schedule(100_000))
        assert found["n_draws"] == n == points[found["n_checks"] - 1]
        assert found["reached"]
        assert found["ess"] == pytest.approx(smallest_ess(whole))
        assert found["ess"] >= 60
        before = points[found["n_checks"] - 2]
        assert smallest_ess(whole.isel(draw=slice(0, before))) < 60
        assert facts(whole)["settings"]["until"] == ESS
        assert facts(whole)["stopped"] == ""
        assert not {type(one) for one in findings_of(whole)} & {Stopped, NotPreciseEnough}

    def test_the_draws_are_the_first_of_a_run_without_it(self, target: FunctionFactors, whole: Any) -> None:
        n = unconstrained(whole).shape[1]
        longer = stansub.sample(target, **SLOW, iter_sampling=n + 50)
        np.testing.assert_array_equal(unconstrained(longer)[:, :n], unconstrained(whole))

    def test_the_limit_ends_it_too_and_is_warned_of(self, target: FunctionFactors) -> None:
        short = stansub.sample(target, until={"ess": 1000}, iter_sampling=700, **SLOW)
        assert unconstrained(short).shape[1] == 700
        found = facts(short)["last_check"]
        assert (found["reached"], found["n_draws"], found["n_checks"]) == (False, 700, 3)
        (finding,) = [one for one in findings_of(short) if isinstance(one, NotPreciseEnough)]
        assert finding.asked == "ess=1000"
        assert finding.ess == pytest.approx(found["ess"])
        assert "before the requested precision (`until=ess=1000`)" in short.attrs["warnings"]

    def test_a_chain_that_stands_still_keeps_it_from_ending(self, target: FunctionFactors) -> None:
        still = SLOW | {"kernel": stansub.Metropolis(RandomWalk(1e-9 * np.eye(2)))}
        found = facts(stansub.sample(target, until="ess=3,rhat=1.5", iter_sampling=600, **still))["last_check"]
        assert not found["reached"]
        assert found["r_hat"] > 1.5

    def test_draws_count_that_are_kept(self, target: FunctionFactors) -> None:
        thinned = stansub.sample(target, until="ess=10", thin=3, **SLOW)
        assert unconstrained(thinned).shape[1] == facts(thinned)["last_check"]["n_draws"] == FIRST
        assert facts(thinned)["n_steps"] == [3 * FIRST] * 2


class TestGoingOn:
    def test_a_resumed_run_ends_where_the_whole_one_did(
        self, target: FunctionFactors, whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "run.checkpoint"
        monkeypatch.setattr("stansub.run.executors.TURN", 0.0)
        n = unconstrained(whole).shape[1]
        # In warmup, before and after the first check, and shortly before the end.
        for n_steps in (40, 900, 1300, 2 * n - 100):
            with monkeypatch.context() as patch:
                stop_after(patch, n_steps)
                kept: Any = {"resume": file} if file.exists() else {"checkpoint": file}
                with pytest.raises(KeyboardInterrupt):
                    stansub.sample(target, until=ESS, checkpoint_every=1e-9, **kept, **SLOW)
        resumed = stansub.sample(target, until=ESS, resume=file, **SLOW)
        np.testing.assert_array_equal(unconstrained(resumed), unconstrained(whole))
        assert facts(resumed)["last_check"] == facts(whole)["last_check"]

    def test_a_run_that_has_ended_is_finished_and_goes_on_for_more(
        self, target: FunctionFactors, whole: Any, tmp_path: Path
    ) -> None:
        file = tmp_path / "run.checkpoint"
        stansub.sample(target, until=ESS, checkpoint=file, **SLOW)
        found = checkpoint.read(file)
        assert found is not None
        assert found.finished
        again = stansub.sample(target, until=ESS, resume=file, **SLOW)
        np.testing.assert_array_equal(unconstrained(again), unconstrained(whole))
        more = stansub.sample(target, until="ess=120", resume=file, **SLOW)
        np.testing.assert_array_equal(
            unconstrained(more), unconstrained(stansub.sample(target, until="ess=120", **SLOW))
        )
        assert unconstrained(more).shape[1] > unconstrained(whole).shape[1]

    def test_a_time_limit_comes_first(
        self, target: FunctionFactors, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock.advance_with_batches(monkeypatch, 0.02)
        cut = stansub.sample(target, until="ess=1e6", max_time=1.5, **SLOW)
        assert facts(cut)["stopped"] == "max_time"
        assert Stopped("max_time") in findings_of(cut)
        assert NotPreciseEnough not in {type(one) for one in findings_of(cut)}

    @pytest.mark.slow
    def test_processes_end_where_threads_do(self, logistic: CompiledModel, logistic_data: dict[str, Any]) -> None:
        settings: dict[str, Any] = {"chains": 2, "iter_warmup": 100, "seed": 3, "show_progress": False}
        asked = settings | {"until": "ess=300", "proposal": "random-walk"}
        here = stansub.sample(logistic, logistic_data, **asked)
        there = stansub.sample(logistic, logistic_data, executor="processes", parallel_chains=1, **asked)
        np.testing.assert_array_equal(unconstrained(there), unconstrained(here))
        assert facts(here)["last_check"]["n_checks"] > 1

    def test_an_interrupt_within_a_check_leaves_draws(
        self, target: FunctionFactors, whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file, look = tmp_path / "run.checkpoint", early_stopping.convergence

        def interrupted(draws: Array) -> Any:
            import _thread

            _thread.interrupt_main()
            return look(draws)

        with monkeypatch.context() as patch:
            patch.setattr(early_stopping, "convergence", interrupted)
            cut = stansub.sample(target, until=ESS, checkpoint=file, **SLOW)
        assert facts(cut)["stopped"] == "interrupted"
        assert unconstrained(cut).shape[1] == FIRST
        np.testing.assert_array_equal(
            unconstrained(stansub.sample(target, until=ESS, resume=file, **SLOW)), unconstrained(whole)
        )


def test_the_command_says_why_it_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], logistic_data: dict[str, Any], clock: Clock
) -> None:
    data = tmp_path / "data.json"
    data.write_text(json.dumps({name: np.asarray(value).tolist() for name, value in logistic_data.items()}))
    options = ["--until", "ess=200,rhat=1.05", "--max-time", "300", "--seed", "1", "--test", "exact", "--quiet", "-v"]
    output = ["--output", str(tmp_path / "out.nc")]
    with contextlib.suppress(SystemExit):
        cli.main(["sample", str(EXAMPLES / "logistic.stan"), str(data), *options, *output])
    out = " ".join(capsys.readouterr().out.split())
    assert (
        "Ended requested precision (ess=200,rhat=1.05) reached at check 1, after 500 draws a chain: ESS at least" in out
    )
