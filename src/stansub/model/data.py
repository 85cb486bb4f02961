"""Data of a Stan program: read, checked against the data block, permuted and cut along the observations."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from stansub.errors import InputError
from stansub.program.syntax import Declaration

# Places along an axis: a range with both ends given, or indices.
Rows = slice | NDArray[np.int64]

_INTEGER = {"int"}
_SLICEABLE = {"int", "real", "vector", "row_vector", "matrix", "complex"}


@dataclass(frozen=True)
class Data:
    """Values of the data block.

    Attributes
    ----------
    values : dict
        One numpy array a variable, a number for scalars, or the parsed JSON as it is for tuples.
    declarations : tuple of Declaration
        The data block, in order.
    source : str
        Where the data came from, for messages.
    """

    values: dict[str, Any]
    declarations: tuple[Declaration, ...]
    source: str

    def integer(self, name: str) -> int:
        """Value of a scalar integer variable."""
        return int(self.values[name])

    def json(self) -> bytes:
        """The data as JSON for the compiled program."""
        return _dump(self.values)

    def digest(self) -> str:
        """Hash of the values, independent of the file's formatting."""
        return hashlib.sha256(self.json()).hexdigest()[:16]

    def axes(self, sizes: Iterable[str]) -> dict[str, int]:
        """Variables declared along one of the size variables, with the axis of that size.

        Raises
        ------
        InputError
            When a variable has such a size twice (``matrix[N, N]``), or has it and cannot be cut.
        """
        sizes = set(sizes)
        axes = {}
        for declaration in self.declarations:
            found = [axis for axis, size in enumerate(declaration.all_dims) if size in sizes]
            if not found:
                continue
            if len(found) > 1:
                raise InputError(
                    f"data variable {declaration.name!r} has the number of observations in two dimensions "
                    f"({', '.join(declaration.all_dims)}), so the observations depend on each other and cannot be "
                    "subsampled"
                )
            axes[declaration.name] = found[0]
        return axes

    def take(self, axes: Mapping[str, int], rows: Rows) -> Data:
        """The data with the given rows, in that order, of every variable in ``axes``."""
        values = dict(self.values)
        for name, axis in axes.items():
            values[name] = _rows(self.values[name], axis, rows)
        return Data(values, self.declarations, self.source)

    def cut(self, axes: Mapping[str, int], sizes: Iterable[str], rows: Rows) -> bytes:
        """JSON of the given rows alone, every size variable set to their number."""
        n = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
        return _dump({**self.take(axes, rows).values, **dict.fromkeys(sizes, n)})


def _rows(array: NDArray[Any], axis: int, rows: Rows) -> NDArray[Any]:
    if isinstance(rows, slice):
        return np.ascontiguousarray(array[(slice(None),) * axis + (rows,)])
    taken: NDArray[Any] = np.take(array, rows, axis=axis)
    return taken


def _dump(values: Mapping[str, Any]) -> bytes:
    return orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)


def read(source: str | Path | Mapping[str, Any], declarations: tuple[Declaration, ...]) -> Data:
    """Read data and check them against the data block.

    Parameters
    ----------
    source : path or mapping
        A data JSON file as CmdStan reads it, or the values themselves.
    declarations : tuple of Declaration
        The program's data block.

    Raises
    ------
    InputError
        When the file cannot be read, a variable is missing, has the wrong type or size, or holds NaN or infinity.
    """
    if isinstance(source, Mapping):
        raw, name = dict(source), "data"
    else:
        raw, name = _load(Path(source)), Path(source).name
    values: dict[str, Any] = {}
    for declaration in declarations:
        if declaration.name not in raw:
            raise InputError(
                f"{name}: variable {declaration.name!r} is missing; the data block declares it as {_type(declaration)}"
            )
        values[declaration.name] = _convert(raw[declaration.name], declaration, name)
    _check_sizes(values, declarations, name)
    scalars = {key: value.item() for key, value in values.items() if isinstance(value, np.ndarray) and not value.ndim}
    return Data({**values, **scalars}, declarations, name)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises
    ------
    InputError
        When the file is missing, unreadable or not a JSON object.
    """
    return _load(path)


def _load(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        raw = orjson.loads(text)
    except orjson.JSONDecodeError:
        # CmdStan's reader also takes bare NaN and Infinity, as Python's does.
        try:
            raw = json.loads(text)
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(raw, dict):
        raise InputError(f"{path}: the top level must be an object {{name: value, ...}}, not a {type(raw).__name__}")
    return raw


def _type(declaration: Declaration) -> str:
    inner = f"[{', '.join(declaration.dims)}]" if declaration.dims else ""
    outer = f"array[{', '.join(declaration.array_dims)}] " if declaration.array_dims else ""
    return f"`{outer}{declaration.base}{inner} {declaration.name}`"


def _convert(value: Any, declaration: Declaration, source: str) -> Any:
    if declaration.base == "tuple":
        return value
    where = f"{source}: variable {declaration.name!r}, declared {_type(declaration)},"
    try:
        array = np.asarray(value)
    except ValueError:
        raise InputError(f"{where} is ragged: its rows differ in length") from None
    if array.dtype.kind in "UO" and array.size:
        array = _with_special_values(array, where)
    if array.size == 0:
        array = array.astype(np.int64 if declaration.base in _INTEGER else np.float64)
    if declaration.base in _INTEGER:
        if array.dtype.kind == "u":
            array = array.astype(np.int64)
        if array.dtype.kind != "i":
            raise InputError(f"{where} must hold integers, but has {_first_non_integer(array)}")
        return array.astype(np.int64, copy=False)
    if array.dtype.kind not in "iuf":
        raise InputError(f"{where} must hold numbers, but has {array.flat[0]!r}")
    array = array.astype(np.float64, copy=False)
    bad = ~np.isfinite(array)
    if bad.any():
        index = tuple(int(i[0]) + 1 for i in np.nonzero(bad)) if array.ndim else ()
        position = f"{declaration.name}{list(index) if index else ''}"
        found = array[tuple(i - 1 for i in index)]
        more = f" ({int(bad.sum()):,} such values)" if bad.sum() > 1 else ""
        raise InputError(f"{source}: {position} is {found}{more}; remove or replace these observations")
    return array


def _with_special_values(array: NDArray[Any], where: str) -> NDArray[np.float64]:
    """Numbers from an array in which NaN and infinities are written as strings, as CmdStan allows."""
    try:
        return np.array(array, dtype=object).astype(np.float64)
    except (ValueError, TypeError):
        flat = array.ravel().tolist()
        example = next((x for x in flat if not isinstance(x, int | float)), flat[0])
        if isinstance(example, list):
            raise InputError(f"{where} is ragged: its rows differ in length") from None
        raise InputError(f"{where} must hold numbers, but has {example!r}") from None


def _first_non_integer(array: NDArray[Any]) -> str:
    if array.dtype.kind == "f":
        bad = array[(array != np.round(array)) | ~np.isfinite(array)]
        return f"{bad.flat[0]}" if bad.size else f"{array.flat[0]} (write it without a decimal point)"
    return repr(array.flat[0].item())


def _check_sizes(values: dict[str, Any], declarations: tuple[Declaration, ...], source: str) -> None:
    """Check the sizes that are literals or integer data; the compiled program checks the others."""
    for declaration in declarations:
        if declaration.base not in _SLICEABLE - {"complex"}:
            continue
        value, sizes = values[declaration.name], declaration.all_dims
        known = [_size(size, values) for size in sizes]
        if any(size == 0 for size in known) and value.size == 0:
            if all(size is not None for size in known):
                values[declaration.name] = value.reshape([size or 0 for size in known])
            continue
        if value.ndim != len(sizes):
            raise InputError(
                f"{source}: variable {declaration.name!r} has {value.ndim} dimension{'s' * (value.ndim != 1)}, "
                f"but is declared {_type(declaration)}"
            )
        for axis, (size, expected) in enumerate(zip(sizes, known, strict=True)):
            if expected is not None and value.shape[axis] != expected:
                meaning = size if size.isdigit() else f"{size} = {expected}"
                raise InputError(
                    f"{source}: variable {declaration.name!r} has {value.shape[axis]:,} elements in dimension "
                    f"{axis + 1}, but is declared {_type(declaration)} with {meaning}"
                )


def _size(expression: str, values: Mapping[str, Any]) -> int | None:
    if expression.isdigit():
        return int(expression)
    value = values.get(expression)
    return int(value) if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind == "i" else None
