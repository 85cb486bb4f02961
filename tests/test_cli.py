"""The command line as a user meets it: results, one-line errors, exit codes, nothing computed lost."""

import errno
import fcntl
import inspect
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import typer
from clocks import HANGS, Clock

from stansub import __version__, cli, compile_model
from stansub.acceptance import rules as boundary
from stansub.cli.application import app
from stansub.cli.flags import flag_of
from stansub.output import convergence, inference_data, summary
from stansub.run import collect, config, decisions, limits, prepare, progress
from stansub.run.chain import Chain, Phase
from stansub.stan.toolchain import download, stanc
from stansub.stan.toolchain.bridgestan_home import find_home
from stansub.tuning import mode_setup
from stansub.tuning.modes.mode_check import MissedMode, ModeCheck
from stansub.tuning.proposal_names import PROPOSALS

EXAMPLES = Path(__file__).parents[1] / "stan_models"
LOGISTIC = str(EXAMPLES / "logistic.stan")
WALK = ["--proposal", "random-walk"]
QUICK = ["--chains", "2", "--iter-warmup", "50", "--iter-sampling", "60", "--seed", "1"]
# For what has nothing to do with how the draws are made: half of the time goes to set-up about the mode.
ABOUT_NOTHING = [*WALK, "--control-variates", "0"]
PLAIN = [*QUICK, *ABOUT_NOTHING]


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command, in this process."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    out, err = capsys.readouterr()
    code = exit_.value.code
    assert isinstance(code, int)
    return code, out, err


def command(arguments: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """The same in a process of its own."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "stansub.cli", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


WRITTEN = "Draws: logistic.nc. Next: stansub report logistic.nc\nDetails: stansub summary logistic.nc --verbose\n"


def data(n: int = 400, **changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((n, 1))
    y = (rng.random(n) < 1 / (1 + np.exp(-x[:, 0]))).astype(int)
    return {"N": n, "K": 1, "y": y.tolist(), "x": x.tolist()} | changes


@pytest.fixture(scope="session", autouse=True)
def compiled() -> Path:
    """The programs are in the cache, so that no test waits for a compiler; the path of BridgeStan's sources."""
    for name in ("logistic", "normal_mean"):
        compile_model(EXAMPLES / f"{name}.stan")
    return find_home().path


pytestmark = pytest.mark.usefixtures("no_lines")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with data.json."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.json").write_text(json.dumps(data()))
    return tmp_path


def test_a_missed_mode_stands_above_the_table_and_in_the_exit_code(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    missed = MissedMode(0.9, -100.0, 12.0, {"beta[1]": [4.0, 0.5, 1.5]})
    monkeypatch.setattr(collect, "check_modes", lambda *_, **__: ModeCheck(21, 2, (missed,)))
    code, out, _ = run(options(*PLAIN), capsys)
    assert code == 4
    assert out.startswith("Warning: Chains missed a mode: no chain visited about 90 % of the posterior")
    assert out.count("Chains missed a mode") == 1
    assert out.index("Chains missed") < out.index("ess_bulk")
    draws = inference_data.read(place / "logistic.nc")
    assert str(draws.attrs["warnings"]).startswith("Chains missed a mode: no chain visited about 90 %")
    code, out, _ = run(["compare", "logistic.nc", "logistic.nc", "--json", "c.json"], capsys)
    assert code == 4
    assert "missed a mode that holds about 90 % of the posterior" in out
    monkeypatch.setattr(collect, "check_modes", lambda *_, **__: ModeCheck(21, 2))
    assert run(options(*PLAIN, "--force"), capsys)[0] == 0


def test_sample_prints_the_table_and_writes_the_draws(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(["sample", LOGISTIC, "data.json", *QUICK], capsys)
    assert code == 0
    assert "ess_bulk" in out
    assert "beta[1]" in out
    assert "; exact; " in out
    assert "Bounds" not in out
    assert err == WRITTEN, "nothing else where nobody looks"
    assert out.count("Warning: ") == 2
    draws = inference_data.read(place / "logistic.nc")
    assert inference_data.group(draws, "posterior")["beta"].shape == (2, 60, 1)

    code, again, err = run(["summary", "logistic.nc"], capsys)
    assert (code, err) == (0, "")
    assert again == out
    code, details, err = run(["summary", "logistic.nc", "--verbose"], capsys)
    assert (code, err) == (0, "")
    assert all(label in details for label in ("\nDraws  ", "\nDecisions  ", "\nBounds  ", "\nSpeed  ", "\nTime  "))

    code, pictures, err = run(["plot", "logistic.nc"], capsys)
    assert (code, err) == (0, "")
    assert sorted(path.name for path in place.glob("*.png")) == sorted(pictures.split())
    code, pictures, err = run(["plot", "logistic.nc", "--output-dir", "new/folder"], capsys)
    assert (code, err) == (0, "")
    assert pictures.split() == ["new/folder/logistic_trace.png", "new/folder/logistic_data.png"]
    assert all(Path(picture).stat().st_size for picture in pictures.split())


def test_commands_that_draw_say_what_they_wait_for(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_SHORT", 0.0)
    code, _, err = run(options(*PLAIN), capsys)
    told = [line.partition(":")[0] for line in err.splitlines()]
    assert (code, told[told.index("Summarising the draws") + 1]) == (0, "Writing the draws")
    stages = {
        "summary": ["Reading draws", "Summarising the draws"],
        "plot": ["Reading draws", "Drawing logistic_trace.png", "Drawing logistic_data.png"],
        "report": ["Reading draws", "Writing the page"],
        "export": ["Reading draws", "Writing draws"],
    }
    for command, names in stages.items():
        code, _, err = run([command, "logistic.nc"], capsys)
        assert (code, [line.partition(":")[0] for line in err.splitlines()]) == (0, names)
        force = ["--force"] * (command != "summary")
        assert run([command, "logistic.nc", *force, "--quiet"], capsys)[2] == ""


def test_statistics_are_computed_once(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-hat and ESS take a few seconds of a large run: the table that is printed is the one that warnings come from."""
    calls: list[str] = []

    def counting(name: str) -> Callable[..., Any]:
        function = getattr(convergence, name)

        def counted(draws: Any) -> Any:
            calls.append(name)
            return function(draws)

        return counted

    names = ("ess_bulk", "ess_tail", "mcse_mean", "mcse_sd", "r_hat")
    for name in names:
        monkeypatch.setattr(convergence, name, counting(name))
    code, _, _ = run(options(*PLAIN), capsys)
    assert code == 0
    assert sorted(calls) == sorted(names)  # of all quantities at once


def test_several_files_go_to_an_output_dir_and_one_to_an_output() -> None:
    taken = {
        command.callback.__name__: set(inspect.signature(command.callback).parameters)
        for command in app.registered_commands
        if command.callback
    }
    assert {name for name, options in taken.items() if "output_dir" in options} == {
        "compare",
        "risk",
        "plot",
        "ppc",
        "export",
    }
    assert {name for name, options in taken.items() if "output" in options} == {
        "sample",
        "reference",
        "diagnose",
        "plan",
        "report",
    }


def test_every_output_has_the_same_short_flag() -> None:
    commands: dict[str, click.Command] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    flags = [
        parameter.opts
        for command in commands.values()
        for parameter in command.params
        if parameter.name in ("output", "output_dir")
    ]
    assert len(flags) == 10
    assert all("-o" in opts for opts in flags)


def test_the_command_line_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "stansub", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"stansub {__version__}\n")


def test_a_line_tells_of_each_stage_of_set_up(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """Time stands still: a stage that goes on for ten seconds, as on a busy machine, has a second line."""
    monkeypatch.setattr(progress, "_SHORT", 0.0)
    code, _, err = run(["sample", LOGISTIC, "data.json", *QUICK], capsys)
    assert code == 0
    *lines, written, details = err.splitlines()
    assert (written[:7], details[:9]) == ("Draws: ", "Details: ")
    stages = [line.rpartition(": ")[0] for line in lines]
    assert stages[:4] == ["Reading program and data", "Loading data", "Making blocks", "Proving the cut into blocks"]
    assert "Curvature at the mode" in stages
    assert stages.index("Control variates of single observations") < stages.index("Trying proposals")
    assert all(line.endswith(" s") for line in lines)
    code, _, err = run(["sample", LOGISTIC, "data.json", *QUICK, "--test", "pocock", "--force"], capsys)
    stages = [line.rpartition(": ")[0] for line in err.splitlines()]
    assert code == 0
    assert "Control variates of order 2" in stages
    assert stages.index("Trying proposals") < stages.index("Trying first looks")
    code, _, err = run(["sample", LOGISTIC, "data.json", *QUICK, "--quiet", "--force"], capsys)
    assert (code, err.count("\n")) == (0, 2)


def test_a_time_limit_within_set_up_is_told_in_one_line(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(options("--max-time", "0.000001"), capsys)
    assert (code, out) == (1, "")
    assert err.startswith("stansub: error: --max-time 1e-06 was reached during set-up, before the first draw")
    assert err.count("\n") == 1
    assert not list(place.glob("*.nc"))


def test_every_option_is_taken(place: Path, capsys: pytest.CaptureFixture[str], clock: Clock) -> None:
    program = str(EXAMPLES / "normal_mean.stan")
    y = np.random.default_rng(1).normal(1, 2, 600)
    Path("mean.json").write_text(json.dumps({"N": 600, "y": y.tolist(), "sigma": 2.0}))
    Path("inits.json").write_text(json.dumps({"mu": 1.0}))
    options = (
        "--chains 3 --parallel-chains 1 --iter-warmup 40 --iter-sampling 90 --thin 3 --seed 7 --inits inits.json "
        "--proposal random-walk --control-variates 1 --max-time 500 --until ess=9000 --test bernstein --delta 0.2 "
        "--range scan --looks fixed --first-look 200 --audit 0.5 --block-size 2 "
        "--output out.nc --force --save mu --save-warmup --observation-level --no-generated-quantities --quiet"
    )
    code, _, err = run(["sample", program, "mean.json", *options.split()], capsys)
    assert code == 0, err
    facts = inference_data.attrs(inference_data.read("out.nc"))
    expected = {
        "chains": 3, "parallel_chains": 1, "iter_warmup": 40, "iter_sampling": 90, "thin": 3, "seed": 7,
        "inits": "inits.json", "proposal": "random-walk", "control_variates": 1, "max_time": 500.0, "max_error": None,
        "until": "ess=9000",
        "range_source": "scan", "audit": 0.5, "block_size": 2, "observations": None, "evaluator": "instances",
        "save": "mu", "drop": None, "save_warmup": True, "generated_quantities": False, "observation_level": True,
        "executor": "threads", "kernel": None, "final_epsilon": None,
    }  # fmt: skip
    assert facts["settings"] == expected
    assert (facts["test"], facts["delta"]) == ("bernstein", 0.2)
    assert "size=200" in facts["test_settings"]


def write(text: str | bytes, name: str = "bad.json") -> list[str]:
    Path(name).write_bytes(text.encode() if isinstance(text, str) else text)
    return ["sample", LOGISTIC, name]


def stan(text: str) -> list[str]:
    Path("bad.stan").write_text(text)
    return ["sample", "bad.stan", "data.json"]


def with_inits(text: str) -> list[str]:
    Path("inits.json").write_text(text)
    return ["sample", LOGISTIC, "data.json", "--inits", "inits.json"]


def options(*added: str) -> list[str]:
    return ["sample", LOGISTIC, "data.json", *added]


def fifo(name: str) -> str:
    os.mkfifo(name)
    return name


def folder(name: str) -> str:
    Path(name).mkdir()
    return name


COUNTS = ("chains", "parallel-chains", "iter-warmup", "iter-sampling", "thin", "seed", "block-size", "first-look")
INPUT_ERRORS: dict[str, tuple[Callable[[], list[str]], str]] = {
    # the command itself
    "unknown command": (lambda: ["smaple"], "No such command 'smaple'"),
    "unknown option": (lambda: options("--iters-of-it", "5"), "No such option"),
    "an option without its value": (
        lambda: ["sample", LOGISTIC, "data.json", "--seed"],
        "Option '--seed' requires an argument (see `stansub sample --help`)",
    ),
    "an option as the value of another": (
        lambda: ["sample", LOGISTIC, "data.json", "--resume", "--output", "draws.nc"],
        "Option '--resume' requires an argument, and '--output' is an option (see `stansub sample --help`)",
    ),
    "an option of all commands as a value": (
        lambda: ["loo", "draws.nc", "--seed", "-h"],
        "Option '--seed' requires an argument, and '-h' is an option (see `stansub loo --help`)",
    ),
    "no data given": (lambda: ["sample", LOGISTIC], "Missing argument"),
    "not a number": (lambda: options("--chains", "many"), "valid integer (see `stansub sample --help`)"),
    "no such test": (lambda: options("--test", "bootstrap"), "austerity"),
    # the program
    "no program": (lambda: ["sample", "none.stan", "data.json"], "none.stan: no such file"),
    "a folder as program": (lambda: ["sample", folder("f.stan"), "data.json"], "f.stan: cannot read the file"),
    "a program that is no program": (lambda: stan("parameters {"), "bad.stan, line 1"),
    "draws as program": (lambda: ["diagnose", "d.nc", "data.json"], "d.nc: draws in the place of the program; give a"),
    "no parameters": (lambda: stan("data { int<lower=0> N; } model { }"), "no parameters"),
    "no parameters to check": (lambda: ["check", *stan("data { int<lower=0> N; } model { }")[1:]], "no parameters"),
    "a line break in a name": (lambda: ["sample", "a\nb.stan", "data.json"], r"a\nb.stan: no such file"),
    "a colour in a name": (lambda: ["sample", "\x1b[31mb.stan", "data.json"], r"\x1b[31mb.stan: no such file"),
    "markup in a name": (lambda: ["sample", "[red]b.stan", "data.json"], "[red]b.stan: no such file"),
    "data before the program": (
        lambda: ["sample", "data.json", LOGISTIC],
        "data.json: a data file in the place of the",
    ),
    "arrays before the program": (
        lambda: ["check", "x.npz", LOGISTIC],
        "x.npz: a data file in the place of the program",
    ),
    # the data
    "a program in the place of data": (lambda: ["sample", LOGISTIC, LOGISTIC], "a Stan program in the place of data"),
    "no data": (lambda: ["sample", LOGISTIC, "none.json"], "none.json: no such file"),
    "a folder as data": (lambda: ["sample", LOGISTIC, folder("f.json")], "f.json: a folder without Parquet files"),
    "not JSON": (lambda: write('{"N": 3,'), "bad.json: not valid JSON"),
    "binary": (lambda: write(b"\x89PNG\xff\xfe\x00"), "bad.json: not valid JSON"),
    "empty file": (lambda: write(""), "bad.json: the file is empty"),
    "no object": (lambda: write("[1, 2]"), "the top level must be an object"),
    "variable missing": (lambda: write(json.dumps({"N": 3, "K": 1, "y": [0, 1, 1]})), "variable 'x' is missing"),
    "wrong size": (lambda: write(json.dumps(data(4, N=5))), "variable 'y' has 4 elements"),
    "not integers": (lambda: write(json.dumps(data(2, y=[0.5, 1]))), "variable 'y'"),
    "text": (lambda: write(json.dumps(data(2, y=["a", "b"]))), "variable 'y'"),
    "ragged": (lambda: write(json.dumps(data(2, K=2, x=[[1, 2], [3]]))), "variable 'x'"),
    "400 digits": (lambda: write(json.dumps(data(2, x=[[1.0], [10**399]]))), "but x[2, 1] is 1000"),
    "against its constraint": (lambda: write(json.dumps(data(2, y=[0, 2]))), "bad.json"),
    "no observations": (lambda: write(json.dumps(data(0, y=[], x=[]))), "the data contain no observations (N = 0)"),
    # options
    "epsilon of 1": (lambda: options("--epsilon", "1"), "--epsilon must be between 0 and 1"),
    "negative epsilon": (lambda: options("--epsilon", "-0.1"), "--epsilon must be between 0 and 1"),
    "epsilon that is none": (lambda: options("--epsilon", "nan"), "--epsilon must be between 0 and 1"),
    "delta of 0": (lambda: options("--test", "hoeffding", "--delta", "0"), "--delta must be between 0 and 1"),
    "delta of 1": (lambda: options("--test", "bernstein", "--delta", "1"), "--delta must be between 0 and 1"),
    "delta for a t-test": (lambda: options("--test", "pocock", "--delta", "0.1"), "does not use --delta"),
    "epsilon for exact": (lambda: options("--test", "exact", "--epsilon", "0.1"), "does not use --epsilon"),
    "range for a t-test": (lambda: options("--range", "scan"), "does not use a range"),
    "no range for a bound": (lambda: options("--test", "hoeffding", "--control-variates", "0"), "--range estimate"),
    "one block to begin with": (lambda: options("--first-look", "1", "--block-size", "2"), "at least 2 blocks"),
    "no chains": (lambda: options("--chains", "0"), "error: --chains 0 must be an integer of at least 1"),
    "no iterations": (lambda: options("--iter-sampling", "0"), "--iter-sampling 0"),
    "thinned away": (lambda: options("--iter-sampling", "5", "--thin", "6"), "no draw would be kept"),
    "negative seed": (lambda: options("--seed", "-3"), "seed -3"),
    "audit above 1": (lambda: options("--audit", "1.1"), "audit 1.1"),
    "no time": (lambda: options("--max-time", "0"), "--max-time 0"),
    "block of none": (lambda: options("--block-size", "0"), "--block-size 0"),
    "unknown size": (lambda: options("--observations", "M"), "--observations M"),
    **{
        f"enormous {option}": (partial(options, f"--{option}", "99999999999999999999999"), f"--{option} 9")
        for option in COUNTS
    },
    "chains beyond machine words": (lambda: options("--chains", "9223372036854775808"), "at most 10,000"),
    # inits
    "negative radius": (lambda: options("--inits", "-1"), "radius"),
    "no inits": (lambda: options("--inits", "none.json"), "none.json: no such file"),
    "inits for other chains": (lambda: options("--inits", "a.json,b.json", "--chains", "3"), "2 files for 3 chains"),
    "inits of no parameter": (lambda: with_inits('{"gamma": 1}'), "inits.json: 'gamma' is not a parameter"),
    "inits of another size": (lambda: with_inits('{"beta": [1, 2]}'), "parameter 'beta': its size is 2, but"),
    "inits that are no JSON": (lambda: with_inits("alpha = 1"), "inits.json: not valid JSON"),
    "impossible inits": (lambda: with_inits('{"alpha": 1e300, "beta": [0]}'), "chain 1: the log density is not finite"),
    # the output
    "no folder": (lambda: options("--output", "none/draws.nc"), "does not exist"),
    "a folder": (lambda: options("--output", folder("draws.nc")), "is a folder"),
    "CSV": (lambda: options("--output", "draws.csv"), "so the name must end in .nc; `stansub export` turns"),
    "no ending": (lambda: options("--output", "draws"), "so the name must end in .nc"),
    "CSV for a reference": (lambda: ["reference", LOGISTIC, "data.json", "-o", "r.csv"], "name must end in .nc"),
    "a long name": (lambda: options("--output", "a" * 300 + ".nc"), "File name too long"),
    "a FIFO": (lambda: options("--output", fifo("draws.nc"), "--force"), "is a FIFO"),
    "a folder that takes no files": (lambda: options("--output", "/proc/self/draws.nc"), "is not writable"),
    "a FIFO for a reference": (lambda: ["reference", LOGISTIC, "data.json", "-o", fifo("r.nc"), "--force"], "a FIFO"),
    "a long name for a reference": (lambda: ["reference", LOGISTIC, "data.json", "-o", "a" * 300 + ".nc"], "too long"),
    "a FIFO for figures": (
        lambda: fifo("logistic_risk.json") and ["risk", LOGISTIC, "data.json", "--force"],
        "a FIFO",
    ),
    "a FIFO for a picture": (
        lambda: ["diagnose", LOGISTIC, "data.json", "--output", fifo("p.png"), "--force"],
        "is a FIFO",
    ),
    "no such picture": (lambda: ["diagnose", LOGISTIC, "data.json", "--output", "p.docx"], "unknown picture format"),
    "enormous trial": (lambda: ["diagnose", LOGISTIC, "data.json", "--subsets", "9" * 20], "at most 1,000,000"),
    "enormous repeats": (lambda: ["risk", LOGISTIC, "data.json", "--repeats", "9" * 20], "at most 10,000"),
    "enormous reference": (lambda: ["reference", LOGISTIC, "data.json", "--iter-warmup", "9" * 20], "at most"),
    "no draws": (lambda: ["summary", "none.nc"], "none.nc: no such file"),
    "draws of a long name": (lambda: ["summary", "a" * 300], "cannot read the file (File name too long)"),
    "draws of nobody": (lambda: ["summary", "~nosuchuser/x.nc"], "no such home folder"),
    "pictures for nobody": (lambda: ["risk", LOGISTIC, "data.json", "--output-dir", "~nosuchuser"], "~nosuchuser"),
    "other draws": (lambda: ["summary", "data.json"], "not a NetCDF file"),
    "plot of no draws": (lambda: ["plot", "none.nc"], "none.nc: no such file"),
}


def test_a_checkpoint_without_a_folder_is_no_obstacle(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(options(*PLAIN, "--checkpoint", "none/run.checkpoint"), capsys)
    assert code == 0
    assert "checkpointing disabled" in err


def test_warnings_of_stanc_are_counted(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stanc, "warnings_of", lambda file, *, pedantic: () if pedantic else ("line 4: doubtful",))
    code, _, err = run(options(*PLAIN), capsys)
    assert code == 0
    assert err == f"stanc has 1 warning about {LOGISTIC}: see stansub check {LOGISTIC}\n{WRITTEN}"
    _, _, err = run(options(*PLAIN, "--quiet", "--force"), capsys)
    assert err == WRITTEN


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("--num-samples=1000", "no such option: --num-samples; use --iter-sampling"),
        ("--num_warmup", "no such option: --num_warmup; use --iter-warmup"),
        ("--warmup", "use --iter-warmup"),
        ("--num-chains", "use --chains"),
        ("--cores", "use --parallel-chains"),
        ("--iter", "--iter-sampling counts the steps of a chain after warmup, --iter-warmup those before"),
        ("--adapt-delta", "it belongs to NUTS (`stansub reference`); stansub's own proposals adapt by themselves"),
        ("--data", "write the data after the program"),
    ],
)
def test_options_of_other_tools_have_a_hint(capsys: pytest.CaptureFixture[str], typed: str, told: str) -> None:
    code, out, err = run(["sample", LOGISTIC, "data.json", typed], capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert told in err


def test_a_name_that_an_option_does_not_know_is_told_in_plain_words(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(["sample", LOGISTIC, "data.json", "--proposal", "foo"], capsys)
    assert code == 2
    assert err.startswith("stansub: error: Invalid value for '--proposal': 'foo' is not one of 'auto'")


def test_hints_name_only_options_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(["summary", "draws.nc", "--num-chains", "4"], capsys)
    assert code == 2
    assert "use --chains" not in err


@pytest.mark.parametrize("case", INPUT_ERRORS)
def test_bad_input_is_told_in_one_line(place: Path, capsys: pytest.CaptureFixture[str], case: str) -> None:
    make, message = INPUT_ERRORS[case]
    code, out, err = run(make(), capsys)
    assert code == 2
    assert message in err
    assert err.startswith("stansub: error: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert out == ""
    assert not list(place.glob("logistic.nc")), "nothing was sampled"


def test_impossible_data_are_named_by_their_row(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    y = [0.5] * 300
    y[199] = 1e200
    Path("y.json").write_text(json.dumps({"N": 300, "y": y, "sigma": 2.0}))
    code, _, err = run(["sample", str(EXAMPLES / "normal_mean.stan"), "y.json"], capsys)
    assert code == 2
    assert "observation 200 of the data" in err


@pytest.mark.parametrize(
    ("n", "block_size"),
    [
        (1, None),
        pytest.param(2, None, marks=pytest.mark.slow),
        (3, "1"),
        pytest.param(5, "64", marks=pytest.mark.slow),
        (101, "100"),
    ],
)
def test_few_observations_are_no_error(
    place: Path, capsys: pytest.CaptureFixture[str], n: int, block_size: str | None
) -> None:
    Path("few.json").write_text(json.dumps(data(n)))
    blocks = ["--block-size", block_size] if block_size else []
    code, out, err = run(["sample", LOGISTIC, "few.json", *QUICK, *blocks], capsys)
    assert code == 0, err
    assert "beta[1]" in out
    assert inference_data.attrs(inference_data.read("logistic.nc"))["n_observations"] == n


def test_draws_are_overwritten_by_force_alone(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("logistic.nc").write_text("dear old draws")
    code, _, err = run(options(*PLAIN), capsys)
    assert code == 2
    assert "--force" in err
    assert Path("logistic.nc").read_text() == "dear old draws"
    assert run(options(*PLAIN, "--force"), capsys)[0] == 0
    inference_data.read("logistic.nc")


def test_a_full_disk_loses_nothing(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path_factory: Any
) -> None:
    spare, replace = tmp_path_factory.mktemp("spare"), os.replace

    def full(source: Any, target: Any) -> None:
        if Path(target).parent == place:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    monkeypatch.setattr("tempfile.tempdir", str(spare))
    code, out, err = run(options(*PLAIN), capsys)
    (kept,) = spare.glob("stansub-*/logistic.nc")
    assert code == 1
    assert "beta[1]" in out
    assert (
        f"No space left on device; free some disk space or choose another place; the draws were written to {kept}"
        in err
    )
    assert "Traceback" not in err
    assert inference_data.group(inference_data.read(kept), "posterior").sizes["draw"] == 60
    assert not list(place.glob("*.nc"))
    assert not list(place.glob(".*")), "no half-written file stays"


def test_draws_are_written_before_they_are_summarised(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("no draws per nothing")

    monkeypatch.setattr(summary, "render", broken)
    code, _, err = run(options(*PLAIN), capsys)
    assert code == 1
    assert err == (
        f"{WRITTEN}stansub: error: internal error: ZeroDivisionError: no draws per nothing; --debug shows where\n"
    )
    inference_data.read("logistic.nc")


def test_an_error_has_a_traceback_on_request(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(["sample", LOGISTIC, "none.json", "--debug"], capsys)
    assert code == 2
    assert err.startswith("stansub: error: none.json: no such file\nTraceback")


def test_a_failed_chain_is_an_error_but_its_neighbours_are_written(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from stansub.run.chain import Chain

    chains: list[Chain] = []
    batch = Chain._run_batch

    def broken(self: Chain, *arguments: Any) -> int:
        chains.append(self)
        if self is not chains[0]:
            raise RuntimeError("out of luck")
        return batch(self, *arguments)

    monkeypatch.setattr(Chain, "_run_batch", broken)
    code, out, err = run(options(*PLAIN, "--parallel-chains", "1"), capsys)
    assert code == 1
    assert "chain 2 failed (out of luck)" in err
    assert "beta[1]" in out
    assert inference_data.group(inference_data.read("logistic.nc"), "posterior").sizes["chain"] == 1


@pytest.fixture
def sources(place: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch, compiled: Path) -> Path:
    """An empty cache, and what a program is compiled with; the path of the cache."""
    monkeypatch.setenv("BRIDGESTAN", str(compiled))
    return own_cache


def fails_in_one_line(capsys: pytest.CaptureFixture[str], code: int) -> str:
    found, out, err = run(options(*PLAIN), capsys)
    assert (found, out) == (code, "")
    assert err.count("\n") == 1
    return err


def test_no_compiler(sources: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATH", "CXX", "MAKE"):
        monkeypatch.setenv(name, "")
    told = "stansub: error: no C++ compiler found (g++ is not on the PATH): install"
    assert fails_in_one_line(capsys, 1).startswith(told)


@pytest.mark.parametrize("cache", ["data.json", "/proc/stansub"], ids=["a file", "read-only"])
def test_a_cache_that_cannot_be_written(
    sources: Path, place: Path, cache: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANSUB_CACHE", str(place / cache))
    error = fails_in_one_line(capsys, 2)
    assert error.startswith("stansub: error: ")
    assert "STANSUB_CACHE" in error


def test_doctor_clears_the_cache(own_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (own_cache / "libraries").mkdir(parents=True)
    (own_cache / "libraries/old.so").touch()
    (own_cache / f"download-of-{download.bridgestan_version()}-failed.txt").touch()
    code, out, err = run(["doctor", "--clear"], capsys)
    assert (code, err) == (0, f"Removed the compiled programs in {own_cache}: 1, 0.0 MB\n")
    assert "compiled programs 0, " in " ".join(out.split())
    assert not (own_cache / "libraries").exists()


def test_doctor_marks_a_download_that_is_not_needed(
    own_cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "_download", lambda folder: "no network in tests")
    code, out, _ = run(["doctor"], capsys)
    (line,) = [one for one in out.splitlines() if "BridgeStan download" in one]
    assert line.startswith("!   BridgeStan download  failed, but not needed with this home")
    assert code == 0
    assert not any(one.startswith("ok") and "fail" in one for one in out.splitlines())


def test_a_cache_that_others_can_write_to(sources: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sources.mkdir()
    sources.chmod(0o777)
    assert fails_in_one_line(capsys, 2).startswith("stansub: error: other users can write to the cache directory")


# Runs the command line with something changed: signals within a batch of steps, each after the one before has been
# handled, and all at once by a clock that stands still; an import that takes its time.
DRIVER = """
import os, signal, sys, threading, time
from stansub import cli, clock
from stansub.run import prepare, sample as run
from stansub.run.chain import Chain

clock.now = lambda: 0.0

def signalled(when, *numbers):
    batch = Chain._run_batch
    def batch_and_signal(self, phase, *arguments):
        n = batch(self, phase, *arguments)
        while numbers_left and phase is getattr(self, when):
            number = numbers_left.pop(0)
            os.kill(os.getpid(), number)
            while signal.getsignal(number) != signal.SIG_IGN and not self._stop[0]:
                time.sleep(0.01)
        return n
    numbers_left = list(numbers)
    Chain._run_batch = batch_and_signal

{changes}
sys.argv[1:] = {arguments}
cli.main()
"""
LONG = ("--iter-warmup", "1000", "--iter-sampling", "2000000", "--parallel-chains", "1", "--seed", "1", "--quiet")


def driven(changes: str, arguments: list[str]) -> subprocess.Popen[str]:
    """The command line in a process of its own, changed."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", DRIVER.format(changes=changes, arguments=arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def signal_in(monkeypatch: pytest.MonkeyPatch, when: str, *numbers: signal.Signals) -> None:
    """What `signalled` of `DRIVER` does, in this process."""
    batch, left = Chain._run_batch, list(numbers)

    def batch_and_signal(chain: Chain, phase: Phase, *arguments: Any) -> Any:
        records = batch(chain, phase, *arguments)
        while left and phase is getattr(chain, when):
            number = left.pop(0)
            os.kill(os.getpid(), number)
            while signal.getsignal(number) != signal.SIG_IGN and not chain._stop[0]:
                time.sleep(0.01)
        return records

    monkeypatch.setattr(Chain, "_run_batch", batch_and_signal)


def check_interrupted(code: int, out: str, err: str) -> None:
    """Draws are written, and the summary says why they are so few."""
    assert code == 3, err
    assert err.splitlines()[0].startswith("Stopping. Draws so far will be saved")
    assert err.splitlines()[1].startswith("Draws: logistic.nc")
    assert len(err.splitlines()) == 3
    assert "The run stopped before its last iteration: interrupted" in out
    draws = inference_data.group(inference_data.read("logistic.nc"), "posterior")
    assert 10 < draws.sizes["draw"] < 2_000_000


def check_nothing_written(code: int, out: str, err: str, told: str) -> None:
    assert code == 130, err
    assert told in err.splitlines()[-1]
    assert "Traceback" not in err
    assert out == ""
    assert not Path("logistic.nc").exists()


@pytest.mark.slow
def test_ctrl_c_in_a_process_of_its_own_writes_what_there_is(place: Path) -> None:
    running = driven("signalled('sampling', signal.SIGINT)", options(*LONG))
    out, err = running.communicate(timeout=HANGS)
    check_interrupted(running.returncode, out, err)


@pytest.mark.parametrize(
    "signals",
    [(signal.SIGINT,), (signal.SIGHUP,), (signal.SIGTERM, signal.SIGTERM)],
    ids=["Ctrl-C", "hangup", "termination, sent twice at once"],
)
def test_an_interrupt_writes_what_there_is(
    place: Path,
    signals: tuple[signal.Signals, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    clock: Clock,
) -> None:
    signal_in(monkeypatch, "sampling", *signals)
    check_interrupted(*run(options(*LONG), capsys))


def test_a_second_interrupt_leaves_nothing_to_write(place: Path) -> None:
    running = driven("signalled('sampling', signal.SIGTERM, signal.SIGINT)", options(*LONG, *ABOUT_NOTHING))
    out, err = running.communicate(timeout=HANGS)
    check_nothing_written(running.returncode, out, err, "interrupted")


def test_an_interrupt_in_warmup_leaves_nothing_to_write(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    signal_in(monkeypatch, "warmup", signal.SIGTERM)
    check_nothing_written(*run(options(*LONG), capsys), "interrupted before the first draw after warmup")


def test_an_interrupt_in_set_up_leaves_nothing_to_write(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(prepare, "make_posterior", lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM))
    check_nothing_written(*run(options(*LONG), capsys), "interrupted")


def test_what_nohup_ignores_is_ignored(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    signal_in(monkeypatch, "sampling", signal.SIGHUP)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        code, _, err = run(options(*PLAIN), capsys)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (code, err) == (0, WRITTEN)


SLOW_OUTPUT = """
import io

class Slow(io.RawIOBase):
    def writable(self):
        return True
    def write(self, text):
        time.sleep(0.05)
        return len(text)

def importing(name):
    for _ in range(8):
        slow.buffer.write(bytes(100_000))

sys.stdout = slow = io.TextIOWrapper(io.BufferedWriter(Slow()))
run.import_module = importing
"""


@pytest.mark.slow
def test_an_error_while_libraries_are_imported_ends_in_one_line(place: Path) -> None:
    """A thread that is left in the middle, here of holding a lock, takes the interpreter with it."""
    running = driven(SLOW_OUTPUT, ["sample", LOGISTIC, "none.json"])
    _, err = running.communicate(timeout=HANGS)
    assert (running.returncode, err) == (2, "stansub: error: none.json: no such file\n")


ENDLESS_IMPORT = """
def importing(name):
    while threading.main_thread().is_alive():
        time.sleep(0.01)
    os.write(2, b"waiting for the import\\n")
    threading.Event().wait()

run.import_module = importing
"""


def test_an_interrupt_while_the_program_ends_is_quiet(place: Path) -> None:
    running = driven(ENDLESS_IMPORT, ["sample", LOGISTIC, "none.json"])
    assert running.stderr is not None
    assert running.stderr.readline() == "stansub: error: none.json: no such file\n"
    assert running.stderr.readline() == "waiting for the import\n"
    running.send_signal(2)
    _, err = running.communicate(timeout=HANGS)
    assert (running.returncode, err) == (2, ""), "the code of the error that ended the command"


INTERRUPTED_IMPORT = """
import atexit, os, sys, threading

class Interrupting:
    @staticmethod
    def find_spec(name, *_):
        if name == {module!r}:
            os.kill(os.getpid(), {number})

sys.meta_path.insert(0, Interrupting)
def again():
    os.kill(os.getpid(), {number})
    threading.Event().wait({hangs})

atexit.register(again)
sys.argv[1:] = ["summary", "none.nc"]
from stansub.cli import main
main()
"""


@pytest.mark.parametrize(
    ("module", "number"),
    [
        ("stansub.interrupts", signal.SIGINT),
        ("stansub.cli.application", signal.SIGINT),
        ("stansub.cli.application", signal.SIGTERM),
        ("rich.console", signal.SIGHUP),
        ("stansub.cli.risk", signal.SIGINT),
    ],
)
def test_an_interrupt_of_the_first_imports_is_quiet(place: Path, module: str, number: int) -> None:
    """Also if another one arrives while the interpreter shuts down."""
    script = INTERRUPTED_IMPORT.format(module=module, number=int(number), hangs=HANGS)
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


TWICE_INTERRUPTED = """
import atexit, os, sys, threading
from typer import main as typer_main

def interrupted(*_):
    os.kill(os.getpid(), 2)
    threading.Event().wait({hangs})

typer_main.get_command = interrupted
atexit.register(interrupted)
sys.argv[1:] = ["summary", "none.nc"]
from stansub.cli import main
main()
"""


def test_a_second_interrupt_while_the_program_ends_is_quiet() -> None:
    script = TWICE_INTERRUPTED.format(hangs=HANGS)
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_an_interrupt_of_imports_within_a_command_is_told(place: Path) -> None:
    script = INTERRUPTED_IMPORT.format(module="numpy", number=2, hangs=HANGS)
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "stansub: error: interrupted\n")


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("stage", "told"),
    [
        ("check_modes", "stansub could not check whether the chains missed a mode"),
        ("Quantities", "beta[1]"),  # the program has parameters only, so nothing is lost
    ],
)
def test_an_interrupt_after_the_last_step_loses_no_draws(
    place: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    stage: str,
    told: str,
    number: signal.Signals,
) -> None:
    work, waiting = getattr(collect, stage), [number]

    def interrupted(*arguments: Any, **options: Any) -> Any:
        if waiting:
            os.kill(os.getpid(), waiting.pop())
            threading.Event().wait(HANGS)
        return work(*arguments, **options)

    monkeypatch.setattr(collect, stage, interrupted)
    code, out, _ = run(options(*PLAIN), capsys)
    assert code == 0
    assert told in " ".join(out.split())
    assert "are omitted" not in out
    assert inference_data.group(inference_data.read("logistic.nc"), "posterior").sizes["draw"] == 60


def test_an_interrupt_of_the_last_step_changes_nothing(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, sampled = Chain._run_batch, dict[Chain, int]()

    def batch_and_signal(chain: Chain, phase: Phase, *arguments: Any) -> Any:
        records = batch(chain, phase, *arguments)
        sampled[chain] = chain.sampling.n_steps
        if list(sampled.values()) == [60, 60]:
            os.kill(os.getpid(), signal.SIGHUP)
        return records

    monkeypatch.setattr(Chain, "_run_batch", batch_and_signal)
    code, out, err = run(options(*PLAIN, "--parallel-chains", "1"), capsys)
    assert code == 0
    assert err.startswith("Stopping. Draws so far will be saved")
    assert "interrupted" not in out


def test_an_interrupt_while_draws_are_written_waits(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    image = inference_data._image

    def interrupted(draws: Any) -> memoryview:
        os.kill(os.getpid(), 2)
        return image(draws)

    monkeypatch.setattr(inference_data, "_image", interrupted)
    code, _, err = run(options(*PLAIN), capsys)
    assert (code, err) == (3, "stansub: error: interrupted; the draws are in logistic.nc\n")
    inference_data.read("logistic.nc")


def test_whatever_fails_in_writing_the_draws_are_kept(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path_factory: Any
) -> None:
    def broken(_: Any) -> None:
        raise TypeError("Object dtype dtype('O') has no native HDF5 equivalent")

    spare = tmp_path_factory.mktemp("spare")
    monkeypatch.setattr(inference_data, "_image", broken)
    monkeypatch.setattr("tempfile.tempdir", str(spare))
    code, out, err = run(options(*PLAIN), capsys)
    (kept,) = spare.glob("stansub-*/draws.npz")
    assert code == 1
    assert "beta[1]" in out
    assert f"no native HDF5 equivalent; the draws were written to {kept} instead" in err
    assert "stansub report" not in err  # it reads NetCDF only
    with np.load(kept) as arrays:
        assert arrays["beta"].shape == (2, 60, 1)


def shell(line: str) -> tuple[list[int], str]:
    """Exit codes of the parts of a pipe, and standard error."""
    stansub = f"{sys.executable} -P -m stansub.cli"
    script = f'stansub() {{ {stansub} "$@"; }}; {line}; echo "${{PIPESTATUS[@]}}" >&3'
    read, write_end = os.pipe()
    done = subprocess.run(
        ["bash", "-c", f"exec 3>&{write_end}; {script}"],
        pass_fds=[write_end],
        capture_output=True,
        text=True,
        check=False,
    )
    os.close(write_end)
    with os.fdopen(read) as codes:
        return [int(code) for code in codes.read().split()], done.stderr


LOST = "stansub: error: could not write to standard output: "


@pytest.mark.parametrize(
    ("line", "codes", "told"),
    [
        ("mkfifo closed; (read < closed; stansub --version) | (exec <&-; echo > closed)", [141, 0], ""),
        ("stansub --version > /dev/full", [1], f"{LOST}No space left on device\n"),
        ("stansub sample --help > /dev/full", [1], f"{LOST}No space left on device\n"),
        ("stansub --version >&-", [1], f"{LOST}Bad file descriptor\n"),
        ("stansub smaple >&- 2>&- <&-", [2], ""),
        pytest.param("stansub summary none.nc >&- 2>&- <&-", [2], "", marks=pytest.mark.slow),
        (
            "mkdir gone; cd gone; rmdir ../gone; stansub doctor",
            [2],
            "stansub: error: the current folder has been deleted; change to another one\n",
        ),
    ],
)
def test_output_that_finds_no_reader(place: Path, line: str, codes: list[int], told: str) -> None:
    assert shell(line) == (codes, told)


OPENS = """
import os, sys
from stansub.cli import main

class Opens:
    def find_spec(self, name, path, target=None):
        if name == "stansub.cli.application":
            os.open(os.devnull, os.O_RDONLY)

sys.meta_path.insert(0, Opens())
main(["--version"])
"""


def test_files_that_an_import_opens_are_not_taken_for_the_output(place: Path) -> None:
    Path("opens.py").write_text(OPENS)
    assert shell(f"{sys.executable} opens.py >&-") == ([1], f"{LOST}Bad file descriptor\n")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not set the size of a pipe")
def test_a_reader_that_goes_before_the_end(place: Path) -> None:
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)  # less than there is to read
    arguments = [sys.executable, "-P", "-m", "stansub.cli", "sample", "--help"]
    running = subprocess.Popen(arguments, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    os.read(read, 80)
    os.close(read)
    _, err = running.communicate(timeout=HANGS)
    assert (running.returncode, err) == (141, "")


def test_output_whose_encoding_lacks_characters(place: Path) -> None:
    program = Path(LOGISTIC).read_text().replace("y ~ bernoulli", "/* für alle */ y ~ bernoulli")
    Path("ü.stan").write_text(program)
    done = command(["check", "ü.stan"], PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (5, "")
    assert "y ~ bernoulli" in done.stdout


@pytest.mark.slow
def test_closed_output_does_not_get_into_the_draws(place: Path) -> None:
    codes, err = shell(f"stansub sample {LOGISTIC} data.json {' '.join(PLAIN)} --quiet >&-")
    assert codes == [1]
    assert err == f"{WRITTEN}{LOST}Bad file descriptor\n"
    inference_data.read("logistic.nc")


def test_help_and_version(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = run(["sample", "--help-all"], capsys)
    assert code == 0
    assert f"or observations are few; otherwise {decisions.DEFAULT_TEST} or penalty)]" in out
    out = run(["diagnose", "--help-all"], capsys)[1]
    assert "Steps of the chain that supplies the pairs. [default: 1000]" in out  # not that of `sample`
    assert run(["--version"], capsys)[1].startswith("stansub ")
    code, out, err = run([], capsys)
    assert (code, err) == (0, "")
    assert "doctor" in out


def test_help_fits_on_two_screens_and_help_all_has_every_option(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, short, _ = run(["sample", "--help"], capsys)
    assert code == 0
    assert "adaptive random walks" not in short  # the first sentence of each text
    assert "2,000, or 200 surrogate" in short  # defaults that are numbers
    assert all(flag in short for flag in ("--help-all", "--seed", "--until", "--resume", "x=[a,b,c]"))
    assert run(["sample", "--help-all"], capsys)[0] == 0
    assert run(["sample", "--help"], capsys)[1] == short
    monkeypatch.setenv("COLUMNS", "200")
    whole = run(["sample", "--help-all"], capsys)[1]
    flags = [flag_of(name) for name in config.names() if config.declared(name).group]
    assert [flag for flag in flags if flag not in whole] == []
    assert sum(flag not in short for flag in flags) > 10
    monkeypatch.setenv("COLUMNS", "80")
    lines = {name: len(run([name, "--help"], capsys)[1].splitlines()) for name in typer.main.get_group(app).commands}
    assert {name: n for name, n in lines.items() if n > 2 * 24} == {}


def test_paragraphs_of_the_help_break_at_the_width_of_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    for name, command in typer.main.get_group(app).commands.items():
        out = run([name, "--help"], capsys)[1]
        above = [line.strip() for line in out.partition("╭")[0].splitlines() if line.strip()]
        assert above[1:] == (command.help or "").split("\n\n"), name
        assert "..." not in out.partition("╭")[2].partition("╰")[0], name  # arguments, which usage repeats


def test_choices_are_those_of_the_library() -> None:
    """They are written out in the configuration: the command line would start slowly if it imported them."""

    def names(option: str) -> list[str]:
        bounds = config.declared(option).bounds
        assert isinstance(bounds, limits.Named)
        return sorted(bounds.names)

    assert names("test") == sorted(boundary.TEST_NAMES)
    assert names("range_source") == sorted(limits.RANGES.names)
    assert names("proposal") == sorted(PROPOSALS)
    assert names("control_variates") == sorted(mode_setup.ORDERS)


def test_the_command_line_starts_without_heavy_imports() -> None:
    check = """
import sys
def imported(*names): return [name for name in names if name in sys.modules]
import stansub.cli
assert not imported("signal", "typing", "typer", "stansub._version"), "interrupts are not handled before `main`"
import stansub.cli.application
assert not imported("numpy", "scipy", "arviz", "xarray"), imported("numpy", "scipy", "arviz", "xarray")
from stansub.run import sample as run
found = imported("scipy.special", "scipy.optimize", "scipy.stats", "arviz", "matplotlib", "pandas", "xarray")
assert not found, found
"""
    done = subprocess.run([sys.executable, "-P", "-c", check], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
