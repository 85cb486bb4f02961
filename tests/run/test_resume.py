"""Runs that are resumed: draw for draw as if they had never ended, wherever they were killed."""

import contextlib
import errno
import io
import json
import os
import random
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor, Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from clocks import HANGS, Clock
from drawn import unconstrained
from ending import stop_after
from numpy.typing import NDArray
from rich.console import Console

import stansub
from stansub import CompiledModel, InputError, cli
from stansub.codec import Encoded
from stansub.output import inference_data
from stansub.run import checkpoint, store
from stansub.run import sample as sampling
from stansub.run.config import SampleConfig
from stansub.selection import StepCost
from stansub.stan.instances import Instances

EXAMPLES = Path(__file__).parents[2] / "stan_models"
SHORT: dict[str, Any] = {"chains": 2, "iter_warmup": 200, "iter_sampling": 300, "seed": 3, "show_progress": False}


def statistics(idata: Any) -> dict[str, NDArray[Any]]:
    stats = inference_data.group(idata, "sample_stats")
    return {str(name): stats[name].values for name in stats.data_vars}


def assert_same(one: Any, other: Any) -> None:
    np.testing.assert_array_equal(unconstrained(one), unconstrained(other))
    there = statistics(other)
    for name, values in statistics(one).items():
        if "time" not in name:
            np.testing.assert_array_equal(values, there[name], err_msg=name)


@pytest.mark.parametrize(
    "options",
    [
        {"save_warmup": True},
        {"proposal": "adaptive-metropolis"},
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"proposal": "sgld"}, marks=pytest.mark.slow),
    ],
)
def test_a_resumed_run_is_one_that_never_ended(
    logistic: CompiledModel,
    logistic_data: dict[str, Any],
    tmp_path: Path,
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = stansub.sample(logistic, logistic_data, **SHORT, **options)
    file = tmp_path / "run.checkpoint"
    monkeypatch.setattr("stansub.run.executors.TURN", 0.0)  # a checkpoint after every batch of steps
    # In warmup before and after pooling, and in sampling.
    for n_steps in (50, 150, 325, 750):
        with monkeypatch.context() as patch:
            stop_after(patch, n_steps)
            kept: Any = {"resume": file} if file.exists() else {"checkpoint": file}
            with pytest.raises(KeyboardInterrupt):
                stansub.sample(logistic, logistic_data, checkpoint_every=1e-9, **kept, **SHORT, **options)
    resumed = stansub.sample(logistic, logistic_data, resume=file, **SHORT, **options)
    assert_same(whole, resumed)
    if "save_warmup" in options:
        warm = [inference_data.group(one, "warmup_posterior")["alpha"].values for one in (whole, resumed)]
        np.testing.assert_array_equal(*warm)


def test_more_draws_extend_a_finished_run(
    logistic: CompiledModel, logistic_data: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "run.checkpoint"
    short = stansub.sample(logistic, logistic_data, checkpoint=file, **SHORT)
    longer = stansub.sample(logistic, logistic_data, resume=file, **SHORT | {"iter_sampling": 450, "seed": None})
    assert unconstrained(longer).shape[1] == 450
    np.testing.assert_array_equal(unconstrained(longer)[:, :300], unconstrained(short))
    assert not np.array_equal(unconstrained(longer)[:, 300:], unconstrained(longer)[:, :150])
    again = stansub.sample(logistic, logistic_data, resume=file, **SHORT | {"iter_sampling": 500})
    np.testing.assert_array_equal(unconstrained(again)[:, :450], unconstrained(longer))


def test_the_rest_of_a_long_run_is_forecast(
    logistic: CompiledModel, logistic_data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.checkpoint"
    stansub.sample(logistic, logistic_data, checkpoint=file, **SHORT)
    prepare = sampling.resume.prepare

    def with_cost(*arguments: Any) -> Any:
        ready = prepare(*arguments)
        notes = {**ready.setup.notes, "cost": StepCost(24.0, 500.0)}
        return replace(ready, setup=replace(ready.setup, notes=notes))

    monkeypatch.setattr(sampling.resume, "prepare", with_cost)
    console = Console(file=io.StringIO(), width=1000)
    stansub.sample(logistic, logistic_data, resume=file, console=console, **SHORT | {"iter_sampling": 450})
    assert "Sampling will take about" in console.file.getvalue()
    assert " 300 steps of 24 gradients" in console.file.getvalue()  # 150 of each chain


def test_what_is_not_the_same_run_is_refused(
    logistic: CompiledModel, normal_mean: CompiledModel, logistic_data: dict[str, Any], mean_data: Any, tmp_path: Path
) -> None:
    file = tmp_path / "run.checkpoint"
    stansub.sample(logistic, logistic_data, checkpoint=file, **SHORT)
    for options, reason in (
        ({"seed": 4}, "`seed` was 3 and is 4"),
        ({"thin": 2}, "`thin` was 1 and is 2"),
        ({"iter_sampling": 250}, "`iter_sampling` was 300 and is 250"),
    ):
        with pytest.raises(InputError, match=reason):
            stansub.sample(logistic, logistic_data, resume=file, **SHORT | options)
    other = logistic_data | {"y": 1 - np.asarray(logistic_data["y"])}
    with pytest.raises(InputError, match="belongs to other data"):
        stansub.sample(logistic, other, resume=file, **SHORT)
    with pytest.raises(InputError, match="belongs to another program"):
        stansub.sample(normal_mean, mean_data, resume=file, **SHORT)
    damaged = tmp_path / "damaged.checkpoint"
    damaged.write_text("not a database at all, but long enough to look like one" * 20)
    with pytest.raises(InputError, match="is not a checkpoint"):
        stansub.sample(logistic, logistic_data, resume=damaged, **SHORT)


def test_a_run_that_has_not_come_to_its_end_is_not_overwritten(
    logistic: CompiledModel, logistic_data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.checkpoint"
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        with pytest.raises(KeyboardInterrupt):
            stansub.sample(logistic, logistic_data, checkpoint=file, checkpoint_every=1e-9, **SHORT)
    with pytest.raises(InputError, match="contains an unfinished run"):
        stansub.sample(logistic, logistic_data, checkpoint=file, **SHORT)


def test_a_checkpoint_is_read_while_the_run_goes_on(
    logistic: CompiledModel,
    logistic_data: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    clock: Clock,
) -> None:
    file = tmp_path / "run.checkpoint"
    options = SHORT | {"iter_sampling": 2000, "parallel_chains": 1}
    whole = stansub.sample(logistic, logistic_data, **options)
    clock.advance_with_batches(monkeypatch, 0.1)  # short batches, and turns of some of them
    stop_after(monkeypatch, 1500)
    with pytest.raises(KeyboardInterrupt):
        stansub.sample(logistic, logistic_data, checkpoint=file, checkpoint_every=1e-9, **options)
    content = file.read_bytes()
    so_far = stansub.read_checkpoint(file, show_progress=False)
    assert file.read_bytes() == content, "it is only read"
    n = unconstrained(so_far).shape[1]
    assert 0 < n < 2000
    np.testing.assert_array_equal(unconstrained(so_far), unconstrained(whole)[:, :n])
    assert list(inference_data.group(so_far, "posterior").data_vars) == ["alpha", "beta"]
    assert "this is its last checkpoint" in so_far.attrs["warnings"]


def test_before_the_first_draw_there_is_nothing_to_read(
    logistic: CompiledModel, logistic_data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.checkpoint"
    stop_after(monkeypatch, 100)
    monkeypatch.setattr("stansub.run.executors.TURN", 0.0)
    with pytest.raises(KeyboardInterrupt):
        stansub.sample(logistic, logistic_data, checkpoint=file, checkpoint_every=1e-9, **SHORT)
    for path, reason in ((file, "contains no draws after warmup yet"), (tmp_path / "none", "No such file")):
        with pytest.raises(InputError, match=reason):
            stansub.read_checkpoint(path)


def test_where_nothing_was_kept_a_run_begins_anew_and_says_so(
    logistic: CompiledModel, logistic_data: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, file = stansub.sample(logistic, logistic_data, **SHORT), tmp_path / "none.checkpoint"
    assert "new run" not in capsys.readouterr().err
    assert_same(whole, stansub.sample(logistic, logistic_data, resume=file, **SHORT))
    assert "none.checkpoint does not exist: starting a new run, which is stored there" in capsys.readouterr().err
    stansub.sample(logistic, logistic_data, resume=file, **SHORT)
    assert "new run" not in capsys.readouterr().err
    file.write_bytes(b"")
    with pytest.raises(InputError, match="is damaged"):
        stansub.sample(logistic, logistic_data, resume=file, **SHORT)


def test_a_file_that_cannot_be_written_does_not_end_the_run(
    logistic: CompiledModel, logistic_data: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "no folder" / "run.checkpoint"
    idata = stansub.sample(logistic, logistic_data, checkpoint=file, **SHORT)
    assert unconstrained(idata).shape == (2, 300, 3)
    assert "checkpointing disabled" in " ".join(capsys.readouterr().err.split())


def killed(n_kills: int, folder: Path, data: Path, *, seed: int, options: list[str]) -> int:
    """Run the command until it ends by itself, killing it up to ``n_kills`` times; how often it was killed."""
    rng, kills = random.Random(seed), 0
    command = [sys.executable, "-P", "-m", "stansub.cli", "sample", str(EXAMPLES / "logistic.stan"), str(data)]
    command += ["--output", str(folder / "killed.nc"), "--checkpoint-every", "0.05", "--quiet", *options]
    begun = False
    while True:
        file = folder / "killed.checkpoint"
        again = ["--resume", str(file)] if begun else []
        process = subprocess.Popen([*command, *again], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=folder)
        begun = True
        if kills < n_kills:
            time.sleep(rng.uniform(0.3, 5.0))
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                kills += 1
                process.wait()
                continue
        _, errors = process.communicate(timeout=HANGS)
        assert process.returncode == 0, errors.decode()
        if kills >= n_kills:
            return kills
        # It ended before it was to be killed: begin again.
        for name in ("killed.nc", "killed.checkpoint"):
            (folder / name).unlink()
        begun = False


def check_kills(n_kills: int, folder: Path, values: dict[str, Any], *, executor: str = "threads") -> None:
    data = folder / "data.json"
    data.write_text(json.dumps({name: np.asarray(value).tolist() for name, value in values.items()}))
    options = ["--chains", "2", "--iter-warmup", "4000", "--iter-sampling", "30000", "--seed", "5", "--thin", "10"]
    whole = stansub.sample(
        EXAMPLES / "logistic.stan",
        data,
        chains=2,
        iter_warmup=4000,
        iter_sampling=30_000,
        seed=5,
        thin=10,
        show_progress=False,
    )
    assert killed(n_kills, folder, data, seed=n_kills, options=[*options, "--executor", executor]) == n_kills
    assert_same(whole, inference_data.read(folder / "killed.nc"))


@pytest.mark.slow
def test_killed_at_random_moments(logistic_data: dict[str, Any], tmp_path: Path) -> None:
    check_kills(3, tmp_path, logistic_data)


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_killed_a_hundred_times(logistic_data: dict[str, Any], tmp_path: Path, executor: str) -> None:
    check_kills(100 if executor == "threads" else 20, tmp_path, logistic_data, executor=executor)


def test_a_chain_that_is_done_does_not_keep_the_others_from_being_kept(tmp_path: Path) -> None:
    """Of two chains the first ends at once; what the second draws afterwards is kept all the same."""

    class Chain:
        def __init__(self) -> None:
            self.warmup = self.sampling = SimpleNamespace(n_kept=0)
            self.done, self.n_saved = False, 0

        def save(self) -> Encoded:
            self.n_saved += 1
            return Encoded(None, {})

    chains: Any = [Chain(), Chain()]
    prepared: Any = SimpleNamespace()
    writer = checkpoint.CheckpointWriter(tmp_path / "run", 1e-9, prepared, chains, None)
    written: list[set[int]] = []

    def write() -> None:
        written.append(set(writer._saved))
        writer._saved = set()

    writer.write = write  # type: ignore[method-assign]
    writer.after_turn(0, False, [0, 1])
    assert written == [], "the other one has not been saved yet"
    for _ in range(3):
        writer.after_turn(1, True, [0, 1])
    assert written == [{0, 1}, {1}, {1}]
    writer.discard_states()
    writer.after_turn(1, True, [0, 1])
    assert len(written) == 3, "after pooling, all are saved again"


def test_nothing_but_a_checkpoint_is_replaced_by_one(
    logistic: CompiledModel, logistic_data: dict[str, Any], tmp_path: Path
) -> None:
    run, taken, folder = tmp_path / "run", tmp_path / "data.json", tmp_path / "folder"
    stansub.sample(logistic, logistic_data, checkpoint=run, **SHORT)
    taken.write_text("{}")
    folder.mkdir()
    os.mkfifo(fifo := tmp_path / "fifo")
    with contextlib.closing(sqlite3.connect(database := tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE mine (value)")
    for path, reason in (
        (taken, "is not a checkpoint and was not changed"),
        (database, "is an SQLite database.* and was not changed"),
        (folder, "is a folder"),
        (fifo, "is a FIFO"),
        (tmp_path / ("n" * 300), "cannot write a file there"),
    ):
        for resume in (None, run):
            for overwrite in (False, True):
                config = SampleConfig(checkpoint=path, resume=resume, **SHORT)
                with pytest.raises(InputError, match=reason):
                    sampling.draw(logistic, logistic_data, config, overwrite=overwrite)
    assert taken.read_text() == "{}"
    assert database.stat().st_size
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def stroll(rng: np.random.Generator, position: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    return position + 0.1 * rng.standard_normal(3), 0.0


class Hidden:
    """Learns, and says nothing of what it has learned."""

    n_evaluated = 0

    def __init__(self, dim: int = 3) -> None:
        self.scale = 0.1

    def __call__(self, rng: np.random.Generator, position: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
        return position + self.scale * rng.standard_normal(3), 0.0

    def adapter(self, dim: int) -> Any:
        return Hidden(dim)

    def learn(self, records: Any) -> None:
        self.scale *= np.exp(0.5 * (records["accepted"].mean() - 0.3))

    def proposal(self) -> Any:
        return self

    final = proposal


def test_what_cannot_be_kept_does_not_end_the_run(
    logistic: CompiledModel, logistic_data: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    idata = stansub.sample(logistic, logistic_data, proposal=Hidden(), checkpoint=tmp_path / "run", **SHORT)
    assert unconstrained(idata).shape == (2, 300, 3)
    message = " ".join(capsys.readouterr().err.split())
    assert message.count("checkpointing disabled") == 1
    assert "no file can hold a value of type Hidden). Sampling continues." in message
    assert not (tmp_path / "run").exists()


def test_a_run_of_blocks_that_another_program_evaluated_is_not_resumed(
    logistic: CompiledModel, logistic_data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, short = tmp_path / "run", SHORT | {"iter_warmup": 100, "iter_sampling": 100}
    monkeypatch.setattr(Instances, "kind", "rewritten")
    stansub.sample(logistic, logistic_data, checkpoint=file, **short)
    monkeypatch.undo()
    with pytest.raises(InputError, match="was written with `evaluator='rewritten'`, which is gone: start a new run"):
        stansub.sample(logistic, logistic_data, resume=file, **short | {"iter_sampling": 200})


def test_functions_are_given_again(
    logistic: CompiledModel, logistic_data: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A kernel of functions is no part of the file: a resumed run has it from the options, which must be the same."""
    file, walk, short = tmp_path / "run", stansub.Metropolis(stroll), SHORT | {"iter_warmup": 100, "iter_sampling": 100}
    whole = stansub.sample(logistic, logistic_data, kernel=walk, **short)
    stansub.sample(logistic, logistic_data, kernel=walk, checkpoint=file, **short | {"iter_sampling": 50})
    assert "checkpoint" not in capsys.readouterr().err
    assert_same(whole, stansub.sample(logistic, logistic_data, kernel=walk, resume=file, **short))
    other = stansub.Metropolis(lambda rng, position: (position, 0.0))
    with pytest.raises(InputError, match=r"belongs to a run with other options; .*`kernel` was"):
        stansub.sample(logistic, logistic_data, kernel=other, resume=file, **short)
    with pytest.raises(InputError, match="a run with a custom `kernel`, which the file does not contain"):
        stansub.read_checkpoint(file)


def test_a_disk_that_is_full_leaves_the_last_checkpoint(
    logistic: CompiledModel,
    logistic_data: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "run.checkpoint"
    first = stansub.sample(logistic, logistic_data, checkpoint=file, **SHORT)

    def full(file: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(store, "_flush", full)
        longer = stansub.sample(logistic, logistic_data, resume=file, **SHORT | {"iter_sampling": 450})
    assert unconstrained(longer).shape[1] == 450
    assert "run.checkpoint: No space left on device" in " ".join(capsys.readouterr().err.split())
    assert_same(first, stansub.read_checkpoint(file, show_progress=False))
    assert [one.name for one in tmp_path.iterdir()] == ["run.checkpoint"]


def test_of_two_runs_on_one_checkpoint_the_later_one_keeps_it(
    logistic: CompiledModel,
    logistic_data: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file, found = tmp_path / "run.checkpoint", []
    options = SHORT | {"iter_warmup": 400, "iter_sampling": 600}
    whole = stansub.sample(logistic, logistic_data, **options)
    monkeypatch.setattr("stansub.run.executors.TURN", 0.0)
    monkeypatch.setattr("stansub.run.chain._BYTES", 0)  # batches stay short
    write, read = checkpoint.CheckpointWriter.write, checkpoint.read

    def meanwhile(writer: checkpoint.CheckpointWriter) -> None:
        write(writer)
        if not found and writer._chains[0].status.steps > 600:
            found.append(read(file))
            write_more = writer._chains[0].advance(), writer._chains[1].advance()
            assert all(write_more)
            writer.finish([0, 1])  # rows beyond those from which the other goes on
            with monkeypatch.context() as patch:
                patch.setattr(checkpoint, "read", lambda path: found[0])
                assert_same(whole, stansub.sample(logistic, logistic_data, resume=file, **options))

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.CheckpointWriter, "write", meanwhile)
        turns: Any = {"checkpoint_every": 1e-9, "parallel_chains": 1}
        first = stansub.sample(logistic, logistic_data, checkpoint=file, **turns, **options)
    assert_same(whole, first)
    assert "another process has resumed the run from it" in " ".join(capsys.readouterr().err.split())
    assert_same(whole, stansub.read_checkpoint(file, show_progress=False))


def test_only_draws_are_replaced_by_a_resumed_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], mean_data: dict[str, Any]
) -> None:
    data, other = tmp_path / "data.json", tmp_path / "notes.nc"
    data.write_text(json.dumps({name: np.asarray(value).tolist() for name, value in mean_data.items()}))
    other.write_text("mine")
    program = str(EXAMPLES / "normal_mean.stan")
    with pytest.raises(SystemExit) as ended:
        cli.main(["sample", program, str(data), "--resume", str(tmp_path / "none"), "--output", str(other), "--quiet"])
    assert ended.value.code == 2
    assert "notes.nc" in capsys.readouterr().err
    assert other.read_text() == "mine"


class Dying:
    """An executor that runs turns in this process, as in one that is killed after so many."""

    def __init__(self, n_turns: int) -> None:
        self.n_turns = n_turns

    def submit(self, function: Any, /, *args: Any) -> Future[Any]:
        self.n_turns -= 1
        if self.n_turns < 0:
            raise BrokenExecutor("terminated abruptly")
        done: Future[Any] = Future()
        done.set_result(function(*args))
        return done


@pytest.mark.parametrize("n_turns", [0, 60])
def test_a_run_whose_processes_were_killed_says_how_to_resume(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    mean_data: dict[str, Any],
    n_turns: int,
) -> None:
    data, output = tmp_path / "data.json", tmp_path / "draws.nc"
    data.write_text(json.dumps({name: np.asarray(value).tolist() for name, value in mean_data.items()}))
    monkeypatch.setattr("stansub.run.executors.opened", lambda *given: contextlib.nullcontext(Dying(n_turns)))
    monkeypatch.setattr("stansub.run.executors.TURN", 0.0)
    command = ["sample", str(EXAMPLES / "normal_mean.stan"), str(data), "--output", str(output), "--quiet"]
    with pytest.raises(SystemExit) as ended:
        cli.main([*command, "--chains", "2", "--iter-warmup", "200", "--iter-sampling", "100000000", "--thin", "1000"])
    error = " ".join(capsys.readouterr().err.split())
    assert ended.value.code == 1, error
    assert "the worker processes failed" in error
    named = f"resume the run with --resume {tmp_path / 'draws.checkpoint'}"
    assert (named if n_turns else "resume the run from it (--resume)") in error
    assert output.exists() == bool(n_turns)
    assert (tmp_path / "draws.checkpoint").exists()
