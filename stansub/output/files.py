"""Output files: checked before a long run, written completely or not at all, and written elsewhere if that fails."""

import contextlib
import os
import secrets
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from stansub.errors import InputError, InterruptError, RunError
from stansub.memory import reason

Array: TypeAlias = np.ndarray[Any, Any]

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_target(path: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """Return the path of an output file, after checking that it may be written; call it before a long run.

    Raises
    ------
    InputError
        If the path is invalid, the folder does not exist or is not writable, a file exists and `overwrite` is False, or
        the path is not a regular file.
    """
    target, found = locate(path)
    if found is not None and stat.S_ISDIR(found.st_mode):
        raise InputError(f"{path} is a folder: give the name of a file")
    check_regular(path, found)
    if not target.parent.is_dir():
        raise InputError(f"{path}: the folder {target.parent} does not exist; create it first")
    if not _writable(target.parent):
        raise InputError(f"{path}: the folder {target.parent} is not writable; choose another")
    if found is not None and not overwrite:
        raise InputError(f"{path} already exists; use `overwrite=True` to overwrite it, or choose another name")
    return target


def check_netcdf(path: str | os.PathLike[str]) -> None:
    """Raise InputError unless a name ends in .nc, as those of NetCDF files must; folders are left to `check_target`."""
    if not os.fspath(path).endswith(".nc") and not os.path.isdir(path):
        raise InputError(
            f"{path}: draws are written as NetCDF, so the name must end in .nc; `stansub export` turns such a file "
            "into CmdStan's CSV files, one CSV table or Parquet"
        )


def check_folder(folder: str | os.PathLike[str], names: Iterable[str], *, overwrite: bool) -> Path:
    """Return the folder of several files, after checking that they can be written there; it need not exist yet.

    Raises
    ------
    InputError
        If it is no folder, cannot be created or written to, one of the files exists and `overwrite` is False, or one is
        not a regular file.
    """
    target, _ = locate(folder)
    existing = next(place for place in (target, *target.parents) if place.exists())
    if not existing.is_dir():
        raise InputError(f"{folder}: {existing} is a file, not a folder; choose another `output_dir`")
    if not _writable(existing):
        raise InputError(f"{folder}: the folder {existing} is not writable; choose another `output_dir`")
    for name in names:
        path = Path(folder) / name
        found = locate(path)[1]
        check_regular(path, found)
        if found is not None and not overwrite:
            raise InputError(
                f"{path} already exists; use `overwrite=True` to overwrite it, or choose another `output_dir`"
            )
    return target


def check_regular(path: str | os.PathLike[str], found: os.stat_result | None) -> None:
    """Raise InputError if ``path`` must not be replaced by a file."""
    if found is not None and not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise InputError(f"{path} is {kind}, not a regular file, and was not changed; choose another name")


def locate(path: str | os.PathLike[str]) -> tuple[Path, os.stat_result | None]:
    """Return the target of a path, with symbolic links resolved, and what exists there.

    Raises
    ------
    InputError
        If the path is invalid, such as a name of 300 characters.
    """
    try:
        target = Path(path).expanduser().resolve()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return target, os.stat(target)
    except (OSError, RuntimeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"{path}: cannot write a file there ({reason}); choose another name") from error
    return target, None


def write(path: str | os.PathLike[str], content: bytes | memoryview, *, overwrite: bool = False) -> Path:
    """Write a file, completely or not at all, and return its path.

    Raises
    ------
    InputError
        If the file may not be written (see `check_target`).
    RunError
        If the disk fails (full, read-only).
    """
    target = check_target(path, overwrite=overwrite)
    part = target.with_name(f".stansub-{secrets.token_hex(4)}.part")  # the target's name may be as long as allowed
    try:
        with open(part, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except OSError as error:
        raise RunError(
            f"could not write {path}: {error.strerror}; free some disk space or choose another place"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
    return target


def save_elsewhere(name: str, save: Callable[[Path], object]) -> Path:
    """Save under ``name`` in a new temporary folder or, if that fails, in one below the current or home directory.

    Raises
    ------
    RunError
        If none works.
    """
    reasons = []
    for parent in (Path(tempfile.gettempdir()), Path(), Path.home()):
        try:
            path = Path(tempfile.mkdtemp(prefix="stansub-", dir=parent.resolve())) / name
            save(path)
        except (OSError, RunError) as error:
            reasons.append(str(error))
            continue
        return path
    raise RunError(f"no other folder is writable ({'; '.join(dict.fromkeys(reasons))})")


@contextlib.contextmanager
def rescuing(
    keep: Callable[[], Path | None],
    *,
    failures: tuple[type[BaseException], ...] = (Exception, KeyboardInterrupt),
    called: str = "draws",
) -> Iterator[None]:
    """Save draws if the block fails.

    Parameters
    ----------
    keep
        Writes the draws and returns their path; None if there are none.
    failures
        Exceptions for which the draws are saved.
    called
        Name of the draws in messages.

    Raises
    ------
    RunError
        Instead of the failure, with its reason and the draws' path; `InterruptError` for an interrupt.
    """
    try:
        yield
    except failures as error:
        try:
            place = keep()
        except Exception as second:
            message = (
                f"{reason(error)}; the {called} are lost, because saving them elsewhere failed too: {reason(second)}"
            )
            raise RunError(message) from error
        if place is None:
            raise
        message = f"{reason(error)}; the {called} were saved in {place}"
        if isinstance(error, KeyboardInterrupt):
            raise InterruptError(message, written=True) from error
        raise RunError(message) from error


def keep_arrays(arrays: Mapping[str, Array]) -> Path | None:
    """Write arrays by name to a folder that can be found, in the format of `numpy.load`."""

    def save(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:  # numpy.savez uses some names for its own options
            for name, values in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, np.asarray(values), allow_pickle=False)

    return save_elsewhere("draws.npz", save) if arrays else None


def keep_files(paths: Iterable[Path]) -> Path:
    """Move files into a new folder that can be found."""
    return save_elsewhere("", lambda folder: [shutil.move(path, folder) for path in paths])


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return the path with ``~`` replaced by the home folder.

    Raises
    ------
    InputError
        If there is no such user.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise InputError(f"{path}: no such home folder; give the full path") from error


def missing(path: Path) -> str:
    """Return why there is no file to read; empty if there is one."""
    try:
        kind = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "no such file"
    except OSError as error:
        return f"cannot read the file ({error.strerror})"
    if stat.S_ISDIR(kind):
        return "a folder; name a file in it"
    return "" if stat.S_ISREG(kind) else "not a regular file"


def _writable(folder: Path) -> bool:
    """Return whether files can be created in a folder, by trying: permissions alone do not tell."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def is_hdf5(path: Path) -> bool:
    """Return whether a file is an HDF5 file, as draws files are."""
    return starts_with(path, b"\x89HDF\r\n\x1a\n")


def starts_with(path: Path, signature: bytes) -> bool:
    """Return whether a path is a readable regular file that starts with these bytes."""
    if missing(path):
        return False
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(len(signature)) == signature
    return False
