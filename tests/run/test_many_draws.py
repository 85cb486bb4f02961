"""Draws that a file takes in pieces are those that memory would hold."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stansub
from stansub import CompiledModel, InputError, RunError, cli
from stansub.output import appending, inference_data
from stansub.output.layout import Layout
from stansub.run import checkpoint, constrain, rows
from stansub.run import sample as sampling
from stansub.run.config import SampleConfig
from stansub.run.constrain import SavedQuantities

SHORT: dict[str, Any] = {"chains": 2, "iter_warmup": 200, "iter_sampling": 3000, "seed": 3, "show_progress": False}


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if memory held some hundred draws."""
    make_small(monkeypatch)


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_BLOCK_BYTES", 1 << 14)
    monkeypatch.setattr(checkpoint, "_ROWS_BYTES", 1 << 15)
    monkeypatch.setattr(appending, "_PIECE", 1 << 8)
    for module in (inference_data, appending):
        monkeypatch.setattr(module, "LARGE", 1 << 16)
    monkeypatch.setattr("stansub.run.executors.TURN", 0.0)
    monkeypatch.setattr("stansub.run.chain._BYTES", 0)  # batches stay short


@pytest.fixture(scope="module")
def whole(logistic: CompiledModel, logistic_data: dict[str, Any]) -> Any:
    """In memory."""
    return stansub.sample(logistic, logistic_data, **SHORT)


def drawn(model: CompiledModel, data: Any, folder: Path, **options: Any) -> Any:
    config = SampleConfig(**SHORT | {"checkpoint": folder / "run.checkpoint"} | options)
    return sampling.draw(model, data, config, target=folder / "run.nc")


@pytest.fixture(scope="module")
def in_pieces(
    logistic: CompiledModel, logistic_data: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Any]:
    """Where a file was written in pieces, and what was returned of it."""
    folder = tmp_path_factory.mktemp("pieces")
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        return folder, drawn(logistic, logistic_data, folder)


def assert_same(one: Any, other: Any) -> None:
    for name in ("posterior", "sample_stats", "unconstrained_posterior", "observed_data"):
        here, there = inference_data.group(one, name), inference_data.group(other, name)
        assert list(here.variables) == list(there.variables)
        for variable in here.variables:
            if "time" not in str(variable):
                np.testing.assert_array_equal(here[variable].values, there[variable].values)
                assert here[variable].dtype == there[variable].dtype


@pytest.mark.usefixtures("small_pieces")
def test_the_file_holds_what_memory_would(whole: Any, in_pieces: tuple[Path, Any]) -> None:
    folder, sparse = in_pieces
    found = inference_data.load(folder / "run.nc")
    assert_same(whole, found)
    every = sparse.attrs["every"]
    assert every > 1
    kept, all_draws = (inference_data.group(one, "posterior") for one in (sparse, found))
    np.testing.assert_array_equal(kept["alpha"].values, all_draws["alpha"].values[:, ::every])
    assert found.attrs["warnings"] == sparse.attrs["warnings"]
    assert sorted(one.name for one in folder.iterdir()) == ["run.checkpoint", "run.nc"]


@pytest.mark.usefixtures("small_pieces")
def test_a_run_resumes_with_the_draws_in_its_checkpoint(
    whole: Any, logistic: CompiledModel, logistic_data: dict[str, Any], tmp_path: Path
) -> None:
    drawn(logistic, logistic_data, tmp_path, iter_sampling=2000)
    drawn(logistic, logistic_data, tmp_path, checkpoint=None, resume=tmp_path / "run.checkpoint")
    assert_same(whole, inference_data.load(tmp_path / "run.nc"))


@pytest.mark.usefixtures("small_pieces")
def test_a_summary_reads_one_in_so_many(in_pieces: tuple[Path, Any], capsys: pytest.CaptureFixture[str]) -> None:
    folder, sparse = in_pieces
    every = sparse.attrs["every"]
    with pytest.raises(SystemExit, match="0"):
        cli.main(["summary", str(folder / "run.nc")])
    assert f"1 in {every} draws" in capsys.readouterr().out


def test_memory_does_not_grow_with_the_draws(tmp_path: Path) -> None:
    """Ten times the draws in pieces of 4 MB take no more memory."""
    peaks = []
    for n_pieces in (2, 20):
        piece = {"posterior": {"theta": np.zeros((2, 1 << 13, 32))}}
        with appending.DrawsFile(tmp_path / f"{n_pieces}.nc") as file:
            file.begin(inference_data.build(**piece, sample_stats={}, attrs={}), n_pieces << 13)
            tracemalloc.start()
            for number in range(1, n_pieces):
                file.append(piece, number << 13)
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            file.commit()
    assert peaks[1] < peaks[0] + (1 << 22)


def test_a_disk_without_room_is_refused_before_sampling(
    logistic: CompiledModel, logistic_data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constrain.shutil, "disk_usage", lambda folder: type("", (), {"free": 10**6})())
    with pytest.raises(InputError, match=r"on disk, but 1 MB are free .* keep fewer with `thin=") as refused:
        drawn(logistic, logistic_data, tmp_path, iter_sampling=50_000)
    suggested = int(str(refused.value).partition("thin=")[2].rstrip("`"))
    drawn(logistic, logistic_data, tmp_path, iter_sampling=50_000, thin=suggested)


def test_the_largest_variable_can_be_left_out() -> None:
    names = [f"{name}.{k}" for name, n in (("beta", 2), ("chol", 3000), ("u", 4)) for k in range(1, n + 1)]
    remedy = constrain._remedy(Layout.from_names(names), SavedQuantities(observation_level=True), times=1.5)
    assert remedy == (
        "keep fewer with `thin=2`, or leave out chol with `drop=chol` (3,000 of the 3,006 numbers of a draw), or leave "
        "out `observation_level`"
    )
    assert constrain._remedy(Layout.from_names(names[:1]), SavedQuantities(), times=3.0) == "keep fewer with `thin=4`"


@pytest.mark.usefixtures("small_pieces")
def test_a_disk_that_fills_up_under_the_output_leaves_the_checkpoint(
    whole: Any,
    logistic: CompiledModel,
    logistic_data: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write, written = appending._Tolerant.write, []

    def full(file: Any, content: Any) -> int:
        written.append(len(content))
        if sum(written) > 100_000:
            file.error = OSError(28, "No space left on device")
        return write(file, content)

    with monkeypatch.context() as patch:
        patch.setattr(appending._Tolerant, "write", full)
        with pytest.raises(RunError, match=r"run\.nc: No space left on device.*saved in .*run\.checkpoint"):
            drawn(logistic, logistic_data, tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["run.checkpoint"]
    drawn(logistic, logistic_data, tmp_path, checkpoint=None, resume=tmp_path / "run.checkpoint")
    assert_same(whole, inference_data.load(tmp_path / "run.nc"))


@pytest.mark.usefixtures("small_pieces")
def test_a_disk_that_fills_up_under_the_checkpoint_stops_a_run_too_large_for_memory(
    whole: Any,
    logistic: CompiledModel,
    logistic_data: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flush, n_flushed = checkpoint.store._flush, []

    def full(file: Any) -> None:
        n_flushed.append(1)
        if len(n_flushed) > 8:
            raise OSError(28, "No space left on device")
        flush(file)

    monkeypatch.setattr(checkpoint.store, "_flush", full)
    monkeypatch.setattr("stansub.run.chain.Phase.bytes_ahead", 1 << 60)
    # One at a time, chains take turns: none is at its end before the disk is full.
    found = drawn(logistic, logistic_data, tmp_path, parallel_chains=1)
    assert "checkpoint failed" in found.attrs["stopped"]
    draws = inference_data.group(inference_data.load(tmp_path / "run.nc"), "posterior")
    n = draws.sizes["draw"]
    assert 0 < n < SHORT["iter_sampling"]
    np.testing.assert_array_equal(
        draws["alpha"].values, inference_data.group(whole, "posterior")["alpha"].values[:, :n]
    )


def test_a_column_that_changes_during_a_run_keeps_the_draws_apart(
    logistic: CompiledModel, logistic_data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcome stays in its file: the draws are not taken for those of one data set."""
    y = np.asarray(logistic_data["y"], np.int64)
    np.save(tmp_path / "y.npy", y)
    rest = {name: value for name, value in logistic_data.items() if name != "y"}
    run = sampling.run_chains

    def meanwhile(*given: Any, **options: Any) -> Any:
        finished = run(*given, **options)
        np.save(tmp_path / "y.npy", 1 - y)
        return finished

    monkeypatch.setattr(sampling, "run_chains", meanwhile)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with pytest.raises(RunError, match=r"y\.npy changed while it was read.*draws were saved in (.*)\.npz"):
        stansub.sample(
            logistic, [rest, tmp_path / "y.npy"], chains=2, iter_warmup=100, iter_sampling=100, show_progress=False
        )
    (kept,) = tmp_path.glob("stansub-*/draws.npz")
    assert np.load(kept)["chain_1"].shape[0] == 100
