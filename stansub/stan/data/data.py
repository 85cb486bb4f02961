"""Data of a Stan program: read, checked against the data block, permuted and cut along the observations."""

from __future__ import annotations

import hashlib
import math
import numbers
import reprlib
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from stansub.errors import InputError
from stansub.progress import Progress
from stansub.stan.data.columns import Origins, inferred, read_columns, remedy
from stansub.stan.data.dimensions import Dimensions, Growth
from stansub.stan.data.file_watch import WatchedFile, unchanged
from stansub.stan.data.formats import opened
from stansub.stan.data.sources import DataLike, DataSources
from stansub.stan.data.tables import Table
from stansub.stan.syntax import Declaration, names
from stansub.stan.toolchain.arrays import Arrays
from stansub.stan.toolchain.library import Library, Model
from stansub.types import Places

# Places along an axis: an inclusive range, or indices.
Rows = slice | Places

_MAX_INT = 2**31 - 1

# Stan's words for non-finite values, in JSON with or without quotation marks.
_WORDS = {
    "NaN": math.nan,
    **dict.fromkeys(("Inf", "+Inf", "Infinity", "+Infinity"), math.inf),
    **dict.fromkeys(("-Inf", "-Infinity"), -math.inf),
}


# The extreme element of an array, what violates a bound, and the bound in words.
_BOUNDS: dict[str, tuple[Callable[..., Any], Callable[..., Any], str]] = {
    "lower": (np.min, np.less, "at least"),
    "upper": (np.max, np.greater, "at most"),
}


@dataclass(frozen=True)
class Data:
    """Values of the data block."""

    values: dict[str, Any]
    """A numpy array per variable, a number for scalars; tuples are dicts of these with keys "1", "2", ... as in JSON.
    """
    declarations: tuple[Declaration, ...]
    source: str
    origins: Origins = field(default_factory=Origins)
    """Which variables came from columns, and which values follow from others."""
    files: tuple[WatchedFile, ...] = ()
    """Files in which values remain while they are used."""

    def integer(self, name: str) -> int:
        """Return the value of a scalar integer variable."""
        return int(self.values[name])

    def of(self, declarations: tuple[Declaration, ...]) -> Data:
        """Return some of the variables."""
        return Data({one.name: self.values[one.name] for one in declarations}, declarations, self.source)

    def json(self) -> bytes:
        """Return the data as JSON for the compiled program."""
        return _dump(self.values)

    @property
    def nbytes(self) -> int:
        """Return the bytes of the arrays."""
        return sum(value.nbytes for value in self.values.values() if isinstance(value, np.ndarray))

    def not_finite(self) -> str:
        """Return the first non-finite element of each variable, in words; empty if all are finite."""
        found = []
        for name, value in self.values.items():
            array = np.asarray(value)
            if array.dtype.kind == "f" and (bad := ~np.isfinite(array)).any():
                found.append(_element(name, array, bad))
        return ", ".join(found)

    def arrays(self, axes: Mapping[str, int], sizes: Collection[str]) -> Arrays | None:
        """Return the data as they are in memory, to be cut along ``axes``; None if there are tuples."""
        if any(declaration.base == "tuple" for declaration in self.declarations):
            return None
        return Arrays(self.values, axes, sizes)

    def model(self, library: Library, *, seed: int = 0) -> Model:
        """Return the program with all of the data; InputError if the program rejects the data."""
        arrays = self.arrays({}, ()) if library.takes_arrays else None
        return library.model(self.json(), seed=seed) if arrays is None else library.model_of(arrays, seed=seed)

    def check_files(self) -> None:
        """Raise RunError if a file in which values remain has changed."""
        for file in self.files:
            file.check()

    def unchanged(self) -> AbstractContextManager[None]:
        """Return a context in which values may be read from files, which are checked at its end (see `file_watch`)."""
        return unchanged(self.files)

    def report_to(self, progress: Progress) -> None:
        """Let waits for the rows show in ``progress``, whose checks end them; rows in this process need no waiting."""

    def digest(self) -> str:
        """Return a hash of the values, independent of the file's formatting."""
        ends = next(iter(self.origins.ends.values()), ())
        rows = {name: value for name, value in self.values.items() if name in self.origins.ends}
        shared = {name: value for name, value in self.values.items() if name not in rows}
        parts = [slice(*one) for one in pairwise((0, *ends))]
        return digest_of(shared, [digest_of({name: value[part] for name, value in rows.items()}) for part in parts])

    def digest_along(self, sizes: Iterable[str]) -> str:
        """Return a hash of the variables declared along one of the size variables."""
        return digest_of({name: self.values[name] for name in self.axes(sizes)})

    def axes(self, sizes: Iterable[str]) -> dict[str, int]:
        """Return variables declared along one of the size variables, with the axis of that size.

        Raises `InputError` if a variable has such a size twice (``matrix[N, N]``), another size that changes with it
        (``N + 1``), or is a tuple that has it.
        """
        sizes = set(sizes)
        dimensions = Dimensions.of(self.values, self.declarations)
        axes = {}
        for declaration in self.declarations:
            growths = [dimensions.growth(dim, sizes) for dim in declaration.all_dims]
            found = [axis for axis, growth in enumerate(growths) if growth is Growth.ALONG]
            if declaration.base == "tuple" and (found or sizes & names(*declaration.type.elements)):
                raise InputError(
                    f"data variable {declaration.name!r} is a tuple with one entry per observation, which cannot be "
                    "cut into blocks; pass its elements as separate variables"
                )
            if Growth.OTHER in growths:
                odd = declaration.sizes[growths.index(Growth.OTHER)]
                raise InputError(f"{declaration.name!r} has the size `{odd}`, not an element for each observation")
            if not found:
                continue
            if len(found) > 1:
                raise InputError(
                    f"data variable {declaration.name!r} has the number of observations as the size of two dimensions "
                    f"({', '.join(declaration.sizes)}), so the observations depend on each other and cannot be "
                    "subsampled"
                )
            axes[declaration.name] = found[0]
        return axes

    def take(self, axes: Mapping[str, int], rows: Rows) -> Data:
        """Return the data with the given rows, in that order, of every variable in ``axes``."""
        values = dict(self.values)
        for name, axis in axes.items():
            values[name] = _rows(self.values[name], axis, rows)
        return replace(self, values=values)

    def rows(self, axes: Mapping[str, int], sizes: Iterable[str], rows: Rows) -> Data:
        """Return the given rows alone, with every size variable set to their number."""
        n = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
        taken = self.take(axes, rows)
        return replace(taken, values={**taken.values, **dict.fromkeys(sizes, n)})


def digest_of(values: Mapping[str, Any], parts: Iterable[str] = ()) -> str:
    """Return a hash of values, and of the hashes of partitions that have further values."""
    found = hashlib.sha256()
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            found.update(f"{name} {value.dtype.str} {value.shape}".encode())
            found.update(np.ascontiguousarray(value).data)
        else:
            found.update(_dump({name: value}))
    for part in parts:
        found.update(part.encode())
    return found.hexdigest()[:16]


def _rows(array: NDArray[Any], axis: int, rows: Rows) -> NDArray[Any]:
    if isinstance(rows, slice):
        return np.ascontiguousarray(array[(slice(None),) * axis + (rows,)])
    taken: NDArray[Any] = np.take(array, rows, axis=axis)
    return taken


def _dump(values: Mapping[str, Any]) -> bytes:
    return orjson.dumps(_in_json(values), option=orjson.OPT_SERIALIZE_NUMPY)


def _in_json(value: Any) -> Any:
    """Return the value with words for non-finite numbers, which orjson would write as null."""
    if isinstance(value, Mapping):
        return {key: _in_json(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_in_json(one) for one in value]
    array = np.asarray(value)
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return value
    words = array.astype(object)
    for word in ("NaN", "Inf", "-Inf"):
        words[np.isnan(array) if word == "NaN" else array == _WORDS[word]] = word
    return words.tolist()


@dataclass(frozen=True)
class Raw:
    """Values and columns by name as given, with the name of their source in messages."""

    values: Mapping[str, Any]
    source: str
    tables: tuple[Table, ...] = ()
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Columns by variable, if their names differ."""
    files: tuple[WatchedFile, ...] = ()
    """Files in which values remain while they are used."""

    def checked(self, declarations: tuple[Declaration, ...]) -> Data:
        """Return the values as data of a program.

        Sizes that are not given follow from the variables that have them.

        Raises `InputError` if a variable is missing, has the wrong type or size, or violates a bound.
        """
        with unchanged(self.files):
            return self._checked(declarations)

    def _checked(self, declarations: tuple[Declaration, ...]) -> Data:
        found, origins = read_columns(declarations, self.values, self.tables, self.columns)
        given = {**self.values, **found}
        values = {one.name: _convert(given[one.name], one, self.source) for one in declarations if one.name in given}
        for name, value, words in inferred(declarations, values, origins):
            values[name] = np.array(value, dtype=np.int64)
            origins = replace(origins, texts={**origins.texts, name: words})
        # Variables with a size come before that size, which may follow from them.
        for declaration in sorted(declarations, key=lambda one: not one.all_dims):
            if declaration.name not in values:
                raise InputError(
                    f"{self.source}: variable {declaration.name!r} is missing; the data block declares it as "
                    f"{_type(declaration)}{remedy(declaration, self.values, declarations, self.tables)}"
                )
        values = {one.name: values[one.name] for one in declarations}
        _check_sizes(values, declarations, self.source)
        _check_bounds(values, declarations, self.source)
        return Data(
            {key: _item(value) for key, value in values.items()}, declarations, self.source, origins, self.files
        )


def load(source: DataLike) -> Raw:
    """Read or open data: files, tables and values, merged.

    A JSON file is read as in CmdStan, optionally compressed by gzip. Tables are opened, and `Raw.checked` reads the
    columns that the program declares.

    Raises `InputError` if a file cannot be read, or a variable is given twice.
    """
    sources = DataSources.of(source)
    values: dict[str, Any] = {}
    homes: dict[str, str] = {}
    tables: list[Table] = []
    files: list[WatchedFile] = []
    for part in sources.parts:
        name = Path(part).name if isinstance(part, str | Path) else "data"
        found = opened(part, name)
        if isinstance(found, Table):
            tables.append(found)
            continue
        twice = next((key for key in found.by_name if key in values), None)
        if twice is not None:
            raise InputError(f"variable {twice!r} is given twice, in {homes[twice]} and in {name}: remove one")
        files.extend(found.files)
        values |= found.by_name
        homes |= dict.fromkeys(found.by_name, name)
    return Raw(values, sources.name, tuple(tables), sources.columns, tuple(files))


def read(source: DataLike, declarations: tuple[Declaration, ...]) -> Data:
    """Read data (see `load`) and check them against the data block (see `Raw.checked`)."""
    return load(source).checked(declarations)


def _type(declaration: Declaration) -> str:
    return f"`{replace(declaration.type, bounds=())} {declaration.name}`"


def _convert(value: Any, declaration: Declaration, source: str) -> Any:
    """Return a variable as a C-contiguous array of int64 or float64, complex numbers as pairs, tuples as dicts.

    Shapes are checked only for being those of arrays.
    """
    where = f"{source}: variable {declaration.name!r}, declared {_type(declaration)},"
    if declaration.base == "tuple":
        return _tuples(value, declaration, len(declaration.array_dims), source, where)
    if np.ma.is_masked(value):
        value = value.tolist()  # None where it is masked
    try:
        array = np.asarray(value)
    except ValueError:
        depth = len(declaration.all_dims) + declaration.base.startswith("complex")
        misfit = _misfit(value, depth, declaration.name, (), {}) or "is not an array of numbers"
        raise InputError(f"{where} {misfit}{_pairs(declaration)}") from None
    integer = declaration.base == "int"
    if array.size == 0:
        return array.astype(np.int64 if integer else np.float64)
    if array.dtype.kind not in "biufc":
        array = _numbers(value, declaration.name, where, {} if integer else _WORDS)
    if integer:
        return _integers(array, declaration.name, where)
    if array.dtype.kind == "c" and declaration.base.startswith("complex"):
        array = np.stack([array.real, array.imag], axis=-1)
    if array.dtype.kind == "c":
        raise InputError(f"{where} must hold real numbers, but {_element(declaration.name, array)}")
    return _reals(array, declaration.name, where)


def _tuples(value: Any, declaration: Declaration, depth: int, source: str, where: str) -> Any:
    """Return tuples in ``depth`` nested lists: JSON has objects with keys "1", "2", ..., Python has tuples."""
    if depth:
        if not _is_list(value):
            raise InputError(f"{where} must be an array of tuples, but there is {_shown(value)}")
        return [_tuples(one, declaration, depth - 1, source, where) for one in value]
    given = dict(enumerate(value, 1)) if isinstance(value, tuple) else value
    found = {str(key): one for key, one in given.items()} if isinstance(given, Mapping) else {}
    if found.keys() != {str(k) for k in range(1, len(declaration.type.elements) + 1)}:
        keys = ", ".join(f'"{k}": ...' for k in range(1, len(declaration.type.elements) + 1))
        raise InputError(f"{where} must be {{{keys}}}, but there is {_shown(value)}")
    return {str(k): _item(_convert(found[str(k)], part, source)) for k, part in enumerate(declaration.members, 1)}


def _item(value: Any) -> Any:
    """Return a number for an array without dimensions."""
    return value.item() if isinstance(value, np.ndarray) and not value.ndim else value


def _misfit(value: Any, depth: int, name: str, index: tuple[int, ...], lengths: dict[int, int]) -> str:
    """Return the first place where nested lists are no array of ``depth`` dimensions, in words; empty if they are one.

    ``lengths`` are those of the first list of each dimension.
    """
    place = f"{name}[{', '.join(map(str, index))}]" if index else name
    if len(index) == depth:
        return f"must have a number at {place}, but there is a list" if _is_list(value) else ""
    if not _is_list(value):
        return f"must have a list at {place}, but there is {_shown(value)}"
    expected = lengths.setdefault(len(index), len(value))
    if len(value) != expected:
        return f"is ragged: {place} has length {len(value):,}, lists before it have {expected:,}"
    found = (_misfit(one, depth, name, (*index, k), lengths) for k, one in enumerate(value, 1))
    return next(filter(None, found), "")


def _is_list(value: Any) -> bool:
    return hasattr(value, "__len__") and getattr(value, "ndim", 1) > 0 and not isinstance(value, str | bytes | Mapping)


def _shown(value: Any) -> str:
    """Return a JSON value in a few characters."""
    return "null" if value is None else reprlib.repr(value)


def _numbers(value: Any, name: str, where: str, words: Mapping[str, float]) -> NDArray[Any]:
    """Return numbers from values that numpy did not read as numbers, some of which may be words."""
    array = np.asarray(value, dtype=object)
    known = [words.get(x, x) if isinstance(x, str) else x for x in array.flat]
    bad = np.array([not isinstance(x, numbers.Real) for x in known]).reshape(array.shape)
    if bad.any():
        raise InputError(f"{where} must hold numbers, but {_element(name, array, bad)}")
    return np.array([*known, None], dtype=object)[:-1].reshape(array.shape)


def _reals(array: NDArray[Any], name: str, where: str) -> NDArray[np.float64]:
    try:
        return array.astype(np.float64, order="C", copy=False)
    except OverflowError:  # only Python integers are that large
        bad = np.array([isinstance(x, int) and abs(x) > sys.float_info.max for x in array.flat]).reshape(array.shape)
        raise InputError(f"{where} must hold 64-bit numbers, but {_element(name, array, bad)}") from None


def _integers(array: NDArray[Any], name: str, where: str) -> NDArray[np.int64]:
    is_real = array.dtype.kind in "fc"
    if is_real and (bad := array != np.round(array.real)).any():
        raise InputError(f"{where} must hold integers, but {_element(name, array, bad)}")
    if array.max() > _MAX_INT or array.min() < -_MAX_INT - 1:
        bad = (array > _MAX_INT) | (array < -_MAX_INT - 1)
        raise InputError(f"{where} must hold 32-bit integers, but {_element(name, array, bad)}")
    if is_real:
        hint = "write integers without a decimal point"
        raise InputError(f"{where} must hold integers, but {_element(name, array)} ({hint})")
    return array.astype(np.int64, order="C", copy=False)


def _element(name: str, array: NDArray[Any], bad: NDArray[np.bool_] | None = None) -> str:
    """Return the first of some elements, counted from 1, and its value in words."""
    index = np.unravel_index(0 if bad is None else int(np.argmax(bad)), array.shape)
    value = array[index]
    value = value.item() if isinstance(value, np.generic) else value
    place = f"[{', '.join(str(int(i) + 1) for i in index)}]" if index else ""
    return f"{name}{place} is {_shown(value)}"


def _check_sizes(values: dict[str, Any], declarations: tuple[Declaration, ...], source: str) -> None:
    """Check the sizes that integers of the data decide; the compiled program checks the others."""
    dimensions = Dimensions.of(values, declarations)
    for declaration in declarations:
        if declaration.base == "tuple":
            continue
        value, sizes = values[declaration.name], declaration.sizes
        known = [dimensions.value(dim) for dim in declaration.all_dims]
        for size, expected in zip(sizes, known, strict=True):
            if expected is not None and expected < 0:
                raise InputError(f"{source}: {size} is {expected}, but is a size of {_type(declaration)}")
        if declaration.base.startswith("complex"):
            sizes, known = (*sizes, "2"), [*known, 2]
        if 0 in known and value.size == 0:
            if None not in known:
                values[declaration.name] = value.reshape([size or 0 for size in known])
            continue
        if value.ndim != len(sizes):
            raise InputError(
                f"{source}: variable {declaration.name!r} has {value.ndim} dimension{'s' * (value.ndim != 1)}, "
                f"but is declared {_type(declaration)}{_pairs(declaration)}"
            )
        for axis, (size, expected) in enumerate(zip(sizes, known, strict=True)):
            if expected is not None and value.shape[axis] != expected:
                meaning = "" if size.isdigit() else f" with {size} = {expected:,}"
                hint = "; transpose it" if value.shape[::-1] == tuple(known) else ""
                raise InputError(
                    f"{source}: variable {declaration.name!r} has {value.shape[axis]:,} elements in dimension "
                    f"{axis + 1}, but is declared {_type(declaration)}{meaning}{_pairs(declaration)}{hint}"
                )


def _check_bounds(values: dict[str, Any], declarations: tuple[Declaration, ...], source: str) -> None:
    """Check the bounds that are integers of the data; the compiled program checks the others."""
    dimensions = Dimensions.of(values, declarations)
    for declaration in declarations:
        name, array = declaration.name, np.asarray(values[declaration.name])
        for bound in declaration.type.bounds:
            limit = dimensions.value(bound.value)
            if limit is None or not array.size or bound.kind not in _BOUNDS:
                continue
            extreme, violates, words = _BOUNDS[bound.kind]
            if violates(extreme(array), limit):
                why = f" (`{bound}`)" if str(bound.value) != str(limit) else ""
                element = _element(name, array, violates(array, limit))
                raise InputError(f"{source}: {element}, but must be {words} {limit:,}{why}")


def _pairs(declaration: Declaration) -> str:
    return " (complex numbers are pairs of numbers)" if declaration.base.startswith("complex") else ""
