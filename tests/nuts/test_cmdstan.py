"""CmdStan as an engine, on a made-up installation whose draws are known."""

import logging
from pathlib import Path
from typing import Any

import fake_cmdstan
import numpy as np
import pytest
from rich.console import Console
from toy import CODE, TOY, data

from stansub.errors import InputError, RunError
from stansub.nuts import cmdstan as engine
from stansub.nuts.base import Program, Run, Settings
from stansub.nuts.reference import choose_engine, describe, reference, reservations
from stansub.output import inference_data
from stansub.output.layout import Layout
from stansub.stan.data.data import read

LOG_LIK = """generated quantities {
  vector[N] log_lik;
  for (n in 1 : N) {
    log_lik[n] = normal_lpdf(y[n] | mu, 1);
  }
}
"""
RICH = """generated quantities {
  array[2] tuple(int, real) at;
  tuple(complex, vector[2]) ct;
  complex_vector[2] cv;
}
"""
QUICK: dict[str, Any] = {"chains": 3, "iter_warmup": 5, "iter_sampling": 8, "seed": 4}


pytestmark = pytest.mark.usefixtures("cmdstan")


def run(program: Program = TOY, n: int = 4, *, show: bool = False, terminal: bool = False) -> Run:
    settings, console = Settings(3, 2, 5, 8, 4, 0.8, 10), Console(stderr=True, force_terminal=terminal)
    return engine.run(program, read(data(n), program.syntax.data.declarations), settings, console=console, show=show)


def test_draws_are_read_in_their_shapes() -> None:
    made = run()
    assert made.posterior["mu"].shape == (3, 8)
    expected = np.arange(1, 4)[:, None] + np.arange(8) / 1000
    np.testing.assert_allclose(made.posterior["mu"], expected, rtol=1e-10)
    np.testing.assert_allclose(made.posterior["omega"], fake_cmdstan.omega(3, 8), rtol=1e-10)


def test_counts_and_seconds_are_told_apart() -> None:
    made = run()
    assert made.warmup_n_gradients == [5 * fake_cmdstan.WARMUP_LEAPFROGS] * 3
    assert made.n_gradients == [8 * fake_cmdstan.LEAPFROGS] * 3
    assert (made.warmup_time, made.sampling_time) == ([1.5] * 3, [0.25] * 3)
    assert (made.time_split, made.version) == ("measured", "2.37")
    assert made.sample_stats["diverging"].sum(axis=1).tolist() == [0, 2, 0]
    assert made.sample_stats["reached_max_treedepth"].sum(axis=1).tolist() == [1, 1, 1]
    assert made.sample_stats["n_steps"].dtype.kind == "i"


def test_nothing_is_said_and_the_log_is_as_before(capfd: pytest.CaptureFixture[str]) -> None:
    before = logging.getLogger("cmdstanpy").disabled
    run()
    assert capfd.readouterr() == ("", "")
    assert logging.getLogger("cmdstanpy").disabled == before


def test_progress_counts_the_draws(capfd: pytest.CaptureFixture[str]) -> None:
    run(show=True, terminal=True)
    out, err = capfd.readouterr()
    assert out == "", "results alone go there"
    assert err.count("13/13") >= 3


def test_redirected_progress_has_lines_and_no_bars(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stansub.run.progress._SHORT", 0.0)
    run(show=True)
    assert "Running NUTS: " in capfd.readouterr().err


def test_a_program_is_compiled_once(place: Path) -> None:
    run()
    (executable,) = (path for path in (place / "cache").rglob("toy") if path.is_file())
    stamp = executable.stat().st_mtime_ns
    run()
    assert executable.stat().st_mtime_ns == stamp
    run(Program("toy", CODE + "\n// changed\n"))
    assert len([path for path in (place / "cache").rglob("toy") if path.is_file()]) == 2


def test_a_run_that_fails_says_why() -> None:
    with pytest.raises(RunError, match=r"could not sample toy.*unlucky.*line 9.*failed after 100 attempts") as caught:
        run(n=13)
    assert "\n" not in str(caught.value)


def test_a_compilation_that_fails_says_why() -> None:
    with pytest.raises(RunError, match=r"could not compile toy.*'unluckily' was not declared") as caught:
        run(Program("toy", CODE + "// unluckily\n"))
    assert "\n" not in str(caught.value)


def test_auto_prefers_cmdstan(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_engine("auto") == ("cmdstan", "CmdStan is installed")
    monkeypatch.setenv("CMDSTAN", "")
    assert choose_engine("auto") == ("nutpie", "no CmdStan is installed")
    with pytest.raises(InputError, match="; `stansub reference` with `install_cmdstan=True` installs it"):
        choose_engine("cmdstan")


def test_the_reference_says_where_it_comes_from() -> None:
    made = reference(TOY, data(), **QUICK)
    facts = inference_data.attrs(made)
    assert facts["engine"] == "cmdstan"
    assert (facts["engine_version"], facts["engine_reason"]) == ("2.37", "CmdStan is installed")
    assert facts["reference_for"] == facts["model_hash"] == TOY.hash
    assert (facts["n_divergences"], facts["n_max_treedepth"]) == ([0, 2, 0], [1, 1, 1])
    assert facts["warmup_time"] == [1.5] * 3
    assert facts["settings"]["iter_warmup"] == 5
    assert describe(facts) == "Reference by CmdStan 2.37: CmdStan is installed"
    doubts = "; ".join(reservations(facts))
    assert "2 divergent" in doubts
    assert "3 iterations were cut short" in doubts
    assert "R-hat" in doubts, "the chains were made to differ"


def test_values_per_observation_are_left_out() -> None:
    program = Program("toy", CODE + LOG_LIK)
    assert "log_lik" in run(program).posterior, "CmdStan computes them"
    made = reference(program, data(), **QUICK)
    assert set(inference_data.group(made, "posterior").data_vars) == {"mu", "omega"}
    assert inference_data.attrs(made)["not_kept"] == "log_lik"


def test_values_per_observation_are_not_even_computed_where_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program("toy", CODE + LOG_LIK)
    seen: list[Program] = []
    original = engine.run

    def spy(program: Program, *args: Any, **options: Any) -> Run:
        seen.append(program)
        return original(program, *args, **options)

    monkeypatch.setattr(engine, "run", spy)
    reference(program, data(), **QUICK)
    monkeypatch.setattr("stansub.nuts.reference._MAX_UNUSED", 100.0)
    reference(program, data(), **QUICK)
    assert [("log_lik" in one.code) for one in seen] == [True, False]


def test_installing_goes_through_cmdstanpy(monkeypatch: pytest.MonkeyPatch, cmdstan: Path) -> None:
    import cmdstanpy

    def works() -> bool:
        monkeypatch.setenv("CMDSTAN", str(cmdstan))
        return True

    def fails() -> bool:
        print("urlopen error: no route to host")
        return False

    monkeypatch.setenv("CMDSTAN", "")
    monkeypatch.setattr(cmdstanpy, "install_cmdstan", fails)
    with pytest.raises(RunError, match=r"could not be installed: .*no route to host.*`engine='nutpie'`"):
        reference(TOY, data(), install_cmdstan=True, **QUICK)
    meter = " 0     0    0     0    0     0      0      0 --:--:-- --:--:-- --:--:--     0"
    monkeypatch.setattr(
        cmdstanpy, "install_cmdstan", lambda: print(f"{meter}\r{meter}curl: (6) Could not resolve host")
    )
    with pytest.raises(RunError, match=r"could not be installed: curl: \(6\) Could not resolve host; install it"):
        reference(TOY, data(), install_cmdstan=True, **QUICK)
    monkeypatch.setattr(cmdstanpy, "install_cmdstan", works)
    made = reference(TOY, data(), install_cmdstan=True, **QUICK)
    assert inference_data.attrs(made)["engine"] == "cmdstan"
    with pytest.raises(InputError, match="leave out `install_cmdstan`"):
        reference(TOY, data(), engine="nutpie", install_cmdstan=True, **QUICK)


def test_tuples_and_complex_numbers_have_the_names_of_our_own_draws() -> None:
    posterior = run(Program("toy", CODE + RICH)).posterior
    expected = Layout.from_names(fake_cmdstan.RICH)
    assert {name: posterior[name].shape[2:] for name in expected.names} == expected.shapes
    assert set(posterior) == {"mu", "omega", *expected.names}
    for name, columns in expected.columns.items():
        np.testing.assert_allclose(posterior[name][0, 3], columns + 0.003)


def test_a_chain_that_is_killed_costs_that_chain_alone() -> None:
    with pytest.raises(
        RunError, match="chain 2 was ended by SIGABRT; the draws of the other chains were saved in"
    ) as e:
        run(n=14)
    kept = Path(str(e.value).rpartition(" ")[2])
    assert [file.name for file in sorted(kept.iterdir())] == ["chain_1.csv", "chain_3.csv"]


@pytest.mark.parametrize("where", ["stansub.nuts.cmdstan._collect", "stansub.nuts.reference.inference_data.build"])
def test_draws_are_kept_whatever_fails_after_sampling(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any, **options: Any) -> None:
        raise ValueError("no such name")

    monkeypatch.setattr(where, fails)
    with pytest.raises(RunError, match="no such name; the draws were saved in") as caught:
        reference(TOY, data(), **QUICK)
    kept = Path(str(caught.value).rpartition(" ")[2])
    if kept.is_dir():
        rows = [line for line in (kept / "chain_3.csv").read_text().splitlines() if line[0] not in "#l"]
        assert len(rows) == 5 + 8
    else:
        np.testing.assert_allclose(np.load(kept)["omega"], fake_cmdstan.omega(3, 8), rtol=1e-10)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ("none", r"CMDSTAN is set to none, which does not exist; set it to the folder of a CmdStan, or unset it"),
        ("empty", r"CMDSTAN is set to empty, which contains no CmdStan \(no makefile\); set it"),
        ("unbuilt", r"the CmdStan in unbuilt is not built; run `make -C unbuilt build`"),
    ],
)
def test_a_wrong_cmdstan_is_told_with_advice_that_fits(
    made: str, message: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("empty", "unbuilt"):
        (place / folder).mkdir()
    (place / "unbuilt" / "makefile").touch()
    monkeypatch.setenv("CMDSTAN", made)
    monkeypatch.setattr("cmdstanpy.install_cmdstan", lambda: pytest.fail("installed"))
    with pytest.raises(InputError, match=message):
        choose_engine("cmdstan")
    with pytest.raises(InputError, match=message):
        reference(TOY, data(), install_cmdstan=True, **QUICK)
    assert choose_engine("auto")[0] == "nutpie"
