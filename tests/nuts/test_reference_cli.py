"""`stansub reference` as a user meets it."""

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import nutpie
import pytest
from clocks import wait_until
from toy import CODE, data

from stansub import cli
from stansub.errors import RunError
from stansub.output import inference_data

MODELS = Path(__file__).parents[2] / "stan_models"
QUICK = ["--chains", "2", "--iter-warmup", "5", "--iter-sampling", "8", "--seed", "4"]

pytestmark = pytest.mark.usefixtures("no_lines")


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command, in this process."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit_:
        cli.main(["reference", *arguments])
    out, err = capsys.readouterr()
    code = exit_.value.code
    assert isinstance(code, int)
    return code, out, err


@pytest.fixture
def files(place: Path) -> list[str]:
    """A program and its data."""
    Path("toy.stan").write_text(CODE)
    Path("toy.json").write_text(json.dumps(data()))
    return ["toy.stan", "toy.json"]


@pytest.mark.usefixtures("cmdstan")
def test_a_reference_is_made_and_used_again(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run([*files, *QUICK], capsys)
    assert code == 0
    assert err == "Reference by CmdStan 2.37: CmdStan is installed\nReference: toy_reference.nc\n"
    assert "omega[2,3]" in out
    assert "NUTS" in out
    assert "Do not trust this reference: R-hat reaches" in out
    assert inference_data.attrs(inference_data.read("toy_reference.nc"))["data_file"] == str(Path("toy.json").resolve())

    code, again, err = run(files, capsys)
    assert (code, again) == (0, out)
    assert "toy_reference.nc (reused; use --force to run NUTS again)" in err

    for command, expected in (("summary", out.partition("Do not trust")[0]), ("plot", "toy_reference_trace.png\n")):
        with pytest.raises(SystemExit, match="0"):
            cli.main([command, "toy_reference.nc"])
        assert capsys.readouterr() == (expected, "")

    code, _, err = run([*files, "--chains", "3"], capsys)
    assert (code, err.count("\n")) == (2, 1)
    assert "chains 2, not 3" in err

    code, _, err = run([*files, *QUICK, "--force", "--quiet", "-o", "toy_reference.nc"], capsys)
    assert code == 0, err
    assert "reused; use --force" not in err


def test_nutpie_runs_where_there_is_no_cmdstan(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    y = np.random.default_rng(1).normal(0, 1, 30).tolist()
    Path("mean.json").write_text(json.dumps({"N": 30, "y": y, "sigma": 1.0}))
    arguments = [str(MODELS / "normal_mean.stan"), "mean.json", "--seed", "1", "--chains", "2"]
    code, out, err = run([*arguments, "--parallel-chains", "1"], capsys)
    assert code == 0
    assert "through BridgeStan: no CmdStan is installed (`stansub reference --install-cmdstan` installs it)" in err
    assert "Do not trust" not in out
    assert Path("normal_mean_reference.nc").is_file()

    code, _, err = run([*arguments, "--engine", "cmdstan", "-o", "other.nc"], capsys)
    assert (code, err) == (
        2,
        "stansub: error: no CmdStan is installed; `stansub reference` with --install-cmdstan installs it, "
        "or use --engine nutpie\n",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.stan", "toy.json"], "none.stan: no such file"),
        (["toy.stan", "none.json"], "none.json: no such file"),
        (["toy.stan", "toy.json", "-o", "nowhere/r.nc"], "nowhere does not exist"),
        (["toy.stan", "toy.json", "--chains", "0"], "error: --chains 0 must be"),
        (["toy.stan", "toy.json", "--adapt-delta", "2"], "adapt-delta 2.0 must be between 0 and 1"),
        (["toy.stan", "toy.json", "--reference-model", "none.stan"], "none.stan: no such file"),
    ],
)
@pytest.mark.usefixtures("files", "cmdstan")
def test_bad_input_is_told_in_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(arguments, capsys)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


class Interrupted:
    """A sampler of nutpie's; Ctrl-C is pressed while it is waited for."""

    def __init__(self, sampler: Any) -> None:
        self._sampler, self.cancel = sampler, sampler.cancel

    def wait(self) -> Any:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        return self._sampler.wait()


def test_ctrl_c_ends_it_at_once(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    y = np.random.default_rng(1).normal(0, 1, 200_000).tolist()
    Path("mean.json").write_text(json.dumps({"N": len(y), "y": y, "sigma": 1.0}))
    sample = nutpie.sample
    monkeypatch.setattr(nutpie, "sample", lambda *args, **options: Interrupted(sample(*args, **options)))
    # An hour of sampling, if it were not ended.
    code, out, err = run([str(MODELS / "normal_mean.stan"), "mean.json", "--iter-sampling", "1000000"], capsys)
    assert (code, out, err) == (130, "", "stansub: error: interrupted\n")
    assert not list(place.glob("*.nc"))


def test_ctrl_c_ends_the_chains_of_cmdstan(cmdstan: Path, files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    def started() -> list[int]:
        return [int(file.read_text() or 0) for file in cmdstan.parent.rglob("toy.*.pid")]

    def interrupt() -> None:
        wait_until(lambda: started() and all(started()))
        os.kill(os.getpid(), signal.SIGINT)  # this process alone: its children hear nothing

    Path("toy.json").write_text(json.dumps(data(15)))
    threading.Thread(target=interrupt).start()
    code, out, err = run([*files, *QUICK, "--parallel-chains", "1"], capsys)
    assert (code, out, err) == (130, "", "stansub: error: interrupted\n")
    (pid,) = started()  # the second chain was waiting and stays unborn
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.usefixtures("cmdstan")
def test_a_reference_that_cannot_be_written_is_kept_elsewhere(
    files: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write = inference_data.write

    def full(draws: Any, path: Any, **options: Any) -> None:
        if Path(path) == Path("toy_reference.nc"):
            raise RunError("could not write toy_reference.nc: No space left on device")
        write(draws, path, **options)

    monkeypatch.setattr(inference_data, "write", full)
    code, _, err = run([*files, *QUICK], capsys)
    assert code == 1
    assert err.startswith("stansub: error: could not write toy_reference.nc: No space left on device; the draws were ")
    kept = inference_data.read(err.strip().rpartition(" ")[2])
    assert inference_data.group(kept, "posterior").sizes["draw"] == 8
    assert not Path("toy_reference.nc").exists()
