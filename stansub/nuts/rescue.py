"""Draws that cannot be brought home the usual way are kept where they can still be found."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stansub.errors import RunError
from stansub.output import inference_data
from stansub.sampling.results import one_line

if TYPE_CHECKING:
    from stansub.output.inference_data import InferenceData


@contextmanager
def rescuing(keep: Callable[[], Path]) -> Iterator[None]:
    """Have draws kept when the block fails, whatever the failure is.

    Parameters
    ----------
    keep
        Writes the draws and says where.

    Raises
    ------
    RunError
        With the reason and the place.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        reason = one_line(error)
        try:
            place = keep()
        except Exception as second:
            raise RunError(f"{reason}; the draws are lost, as keeping them failed too: {one_line(second)}") from error
        raise RunError(f"{reason}; the draws were kept in {place}") from error


def keep_files(files: Iterable[Path]) -> Path:
    """Move files into a folder of their own."""
    folder = _folder()
    for file in files:
        shutil.move(file, folder)
    return folder


def keep_arrays(arrays: Mapping[str, NDArray[Any]]) -> Path:
    """Write arrays by name as `numpy.load` reads them."""
    path = _folder() / "draws.npz"
    with zipfile.ZipFile(path, "w") as archive:  # numpy.savez takes some names for options of its own
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asarray(values))
    return path


def keep_draws(draws: InferenceData, name: str) -> Path:
    """Write draws as NetCDF, or their posterior as arrays where that cannot be done."""
    path = _folder() / name
    try:
        inference_data.write(draws, path)
    except Exception:
        posterior = inference_data.group(draws, "posterior")
        return keep_arrays({str(variable): values.values for variable, values in posterior.data_vars.items()})
    return path


def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="stansub-"))
