"""Draws files that are written in pieces, so that draws need not all be in memory."""

from __future__ import annotations

import contextlib
import io
import math
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from stansub.errors import RunError
from stansub.output.inference_data import LARGE, group, groups, load, write_groups

if TYPE_CHECKING:
    import xarray

    from stansub.output.inference_data import Variables

# Maximum draws per chain and bytes of a piece, and bytes of a compressed chunk. Both are powers of two in draws, so
# that no chunk is compressed twice.
_PIECE, _PIECE_BYTES, _CHUNK_BYTES = 1 << 16, 1 << 26, 1 << 20


def piece_size(draw_bytes: int) -> int:
    """Return the number of draws per chain to write at once, given the bytes of a draw of all chains."""
    return min(_PIECE, _power_of_two(_PIECE_BYTES // draw_bytes))


def _power_of_two(size: int) -> int:
    """Return the largest power of two up to ``size``."""
    return 1 << (max(1, size).bit_length() - 1)


def _chunk(shape: tuple[int, ...]) -> int:
    """Return the draws in a chunk."""
    return _power_of_two(_CHUNK_BYTES // (8 * max(1, math.prod(shape))))


class _Tolerant(io.FileIO):
    """File that records its first error and ignores later writes: HDF5 crashes the process if a write fails."""

    error: OSError | None = None

    def write(self, content: Any) -> int:
        view = memoryview(content).cast("B")
        done = 0
        while done < len(view) and self.error is None:
            try:
                done += super().write(view[done:]) or 0
            except OSError as error:
                self.error = error
        return len(view)


class DrawsFile:
    """NetCDF file of draws that is written in pieces and replaces its target when complete.

    Parameters
    ----------
    target : Path
        Replaced by `commit`.

    Notes
    -----
    As a context manager, it removes everything that was not committed.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self._part = target.with_name(f".stansub-{secrets.token_hex(4)}.part")
        self._file: _Tolerant | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
        with contextlib.suppress(OSError):
            self._part.unlink()

    @property
    def is_begun(self) -> bool:
        """Return whether it holds draws."""
        return self._file is not None

    def begin(self, tree: xarray.DataTree, n_draws: int) -> None:
        """Write the groups with the first draws of each chain, and reserve space for ``n_draws`` of them.

        Raises
        ------
        RunError
            If the disk fails (full, read-only); also raised by the other methods.
        """
        try:
            self._file = _Tolerant(self._part, "x+b")
        except OSError as error:
            raise self._failure(error) from error
        n_first = group(tree, "posterior").sizes["draw"]
        chunks = {
            (name, str(variable)): (1, min(n_first, _chunk(values.shape[2:])), *values.shape[2:])
            for name in groups(tree)
            for variable, values in group(tree, name).data_vars.items()
            if values.dims[1:2] == ("draw",) and values.sizes["draw"] == n_first
        }
        growing = {name for name, _ in chunks}
        try:
            write_groups(tree, self._file, chunks=chunks, unlimited=dict.fromkeys(growing, ("draw",)))
        finally:
            self._check()  # HDF5 may miss what was not written before this is reached
        with self._opened() as file:
            for name in growing:
                file[name].resize_dimension("draw", n_draws)

    def append(self, pieces: Mapping[str, Variables], start: int) -> None:
        """Write variables of shape (chain, draw, ...) by group, starting at draw ``start`` of each chain."""
        with self._opened() as file:
            for name, variables in pieces.items():
                for variable, values in variables.items():
                    stored, end = file[name].variables[variable], start + values.shape[1]
                    stored[:, start:end] = values.astype(stored.dtype, copy=False)
                    file[name].variables["draw"][start:end] = np.arange(start, end)

    def note(self, **facts: str | float) -> None:
        """Write facts of the run that are known only at its end."""
        with self._opened() as file:
            file.attrs.update(facts)

    def sparse(self) -> xarray.DataTree:
        """Return the draws so far, thinned (see `inference_data.load`)."""
        return load(self._part, most=LARGE)

    def commit(self) -> None:
        """Replace the target by the file."""
        assert self._file is not None
        try:
            os.fsync(self._file.fileno())
            os.replace(self._part, self.target)
        except OSError as error:
            raise self._failure(error) from error

    @contextlib.contextmanager
    def _opened(self) -> Any:
        import h5netcdf

        assert self._file is not None
        self._file.seek(0)
        try:
            with h5netcdf.File(self._file, "a") as file:
                yield file
        finally:
            self._check()

    def _check(self) -> None:
        if self._file is not None and (error := self._file.error) is not None:
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> RunError:
        return RunError(f"could not write {self.target}: {error.strerror}; free space or choose another place")
