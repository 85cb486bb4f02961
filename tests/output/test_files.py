"""Files to be written: what is refused beforehand, and where things go when writing fails."""

import errno
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stansub.errors import InputError, InterruptError, RunError
from stansub.output import files


def fifo(path: Path) -> Path:
    os.mkfifo(path)
    return path


def a_socket(path: Path) -> Path:
    os.mknod(path, stat.S_IFSOCK | 0o600)
    return path


def link_to_fifo(path: Path) -> Path:
    path.symlink_to(fifo(path.with_suffix(".fifo")))
    return path


@pytest.mark.parametrize(
    ("make", "message"), [(fifo, "is a FIFO"), (a_socket, "is a socket"), (link_to_fifo, "is a FIFO")]
)
def test_what_is_no_regular_file_is_left_as_it_is(make: Any, message: str, tmp_path: Path) -> None:
    path = make(tmp_path / "draws.nc")
    before = os.stat(path)
    with pytest.raises(InputError, match=message):
        files.write(path, b"draws", overwrite=True)
    assert os.stat(path) == before


def test_a_device_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "disk").touch()
    real = os.stat

    def as_device(path: Any, **options: Any) -> os.stat_result:
        found = real(path, **options)
        return os.stat_result([0o020666, *found[1:]]) if Path(path).name == "disk" else found

    monkeypatch.setattr(os, "stat", as_device)
    with pytest.raises(InputError, match="is a device, not a regular file"):
        files.check_target(tmp_path / "disk", overwrite=True)


@pytest.mark.parametrize("name", ["a" * 300, "b" * 300 + "/draws.nc", "nul\0.nc", "~nobody-of-that-name/draws.nc"])
def test_impossible_names_are_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="cannot write a file there"):
        files.check_target(name, overwrite=False)
    with pytest.raises(InputError, match="cannot write a file there"):
        files.check_folder(name, ["report.md"], overwrite=False)


def test_the_longest_possible_name_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 252 + ".nc")
    files.write(path, b"draws")
    assert path.read_bytes() == b"draws"
    assert os.listdir(tmp_path) == [path.name]


def test_a_folder_that_takes_no_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not writable"):
        files.check_target("/proc/self/draws.nc", overwrite=False)
    with pytest.raises(InputError, match="is not writable"):
        files.check_folder("/proc/self/report", [], overwrite=False)
    assert files.check_folder(tmp_path / "a" / "b", ["x.png"], overwrite=False) == tmp_path / "a" / "b"


def test_what_fails_is_kept_in_the_first_folder_that_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    arrays = {"file": np.arange(3), "theta": np.eye(2)}
    with (
        pytest.raises(RunError, match=r"^no luck; the draws were saved in ") as caught,
        files.rescuing(lambda: files.keep_arrays(arrays)),
    ):
        raise ZeroDivisionError("no luck")
    (kept,) = (tmp_path / "here").glob("stansub-*/draws.npz")
    assert str(kept) in str(caught.value)
    with np.load(kept) as found:
        np.testing.assert_equal(dict(found), arrays)


def test_nothing_is_made_up_where_there_are_no_draws() -> None:
    with pytest.raises(ZeroDivisionError), files.rescuing(lambda: files.keep_arrays({})):
        raise ZeroDivisionError


def test_an_interrupt_after_sampling_says_that_draws_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(InterruptError) as caught, files.rescuing(lambda: files.keep_arrays({"x": np.ones(2)})):
        raise KeyboardInterrupt
    assert caught.value.exit_code == InterruptError.WRITTEN
    assert str(caught.value).startswith("interrupted; the draws were saved in ")


def test_no_place_at_all_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.mkdtemp", full)
    with (
        pytest.raises(RunError, match=r"^no luck; the draws are lost, .* no other folder is writable "),
        files.rescuing(lambda: files.keep_arrays({"x": np.ones(2)})),
    ):
        raise ZeroDivisionError("no luck")
