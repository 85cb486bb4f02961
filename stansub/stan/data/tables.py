"""Tables of columns: opened without reading them, then read batch by batch into existing arrays."""

from __future__ import annotations

import reprlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stansub.errors import InputError
from stansub.stan.data.file_watch import WatchedFile, unchanged

if TYPE_CHECKING:
    import pyarrow as pa

_INT32 = np.iinfo(np.int32)
_MAX_INT = _INT32.max
# Rows decoded at a time, rows of these converted at a time, and batches read ahead.
_BATCH, _PIECE, _AHEAD = 65_536, 8192, 2
# Endings of Parquet files, and their first bytes.
_PARQUET, _MAGIC = (".parquet", ".pq"), b"PAR1"
# Bytes of a CSV file in which its header is expected, and names of delimiters.
_HEADER, _DELIMITERS = 65_536, {",": "commas", "\t": "tabs", ";": "semicolons"}


@dataclass(frozen=True)
class Table:
    """Columns of equal length."""

    name: str
    types: Mapping[str, pa.DataType]
    """Arrow types by column."""
    n_rows: int
    batches: Callable[[list[str]], Iterator[pa.RecordBatch]] = field(repr=False)
    """From names of columns to batches of these, in order."""
    files: tuple[WatchedFile, ...] = ()
    ends: tuple[int, ...] = ()
    """Ends of the partitions among the rows, if the table is in partitions."""


@dataclass(frozen=True)
class Wanted:
    """A column and the array that receives its values."""

    column: str
    out: NDArray[Any]
    """Shape (n_rows,): int64 or float64."""
    lower: int | None = None
    upper: int | None = None
    """Bounds of integers, if known."""


def open_file(path: Path, kind: str) -> Table:
    """Open a file of kind "parquet", "ipc", "csv" or "tsv", or a folder of Parquet files.

    Raises `InputError` if there is no such file, or it is not of that kind.
    """
    if not path.exists():
        raise InputError(f"{path}: no such file")
    from pyarrow import dataset

    with _reading(path):
        if kind in ("csv", "tsv"):
            return _delimited(path, "\t" if kind == "tsv" else ",")
        file = WatchedFile.of(path)
        if path.is_dir():
            _refuse_others(path)
        found = dataset.dataset(str(path), format=kind)
        types, n_rows = _types(found.schema, path.name), found.count_rows()
        if not path.is_dir():
            file = file.mapped()

    def batches(columns: list[str]) -> Iterator[pa.RecordBatch]:
        with _reading(path):
            if path.is_dir():
                scanner = found.scanner(
                    columns=columns, batch_size=_BATCH, batch_readahead=_AHEAD, fragment_readahead=1
                )
                yield from scanner.to_batches()
            else:
                yield from _of_one_file(file, kind, columns)

    return Table(path.name, types, n_rows, batches, (file,))


def _refuse_others(folder: Path) -> None:
    """Raise InputError if a folder of Parquet files has other files, except those whose names pyarrow ignores."""
    for file in sorted(folder.rglob("*")):
        place = file.relative_to(folder)
        if any(part.startswith((".", "_")) for part in place.parts) or not file.is_file():
            continue
        with file.open("rb") as stream:
            is_parquet = file.name.endswith(_PARQUET) or stream.read(len(_MAGIC)) == _MAGIC
        if not is_parquet:
            raise InputError(
                f"{folder}: a folder of data, but {place} is not a Parquet file; give a file, or a pattern of files: "
                f"'{folder / '*.parquet'}'"
            )


def _delimited(path: Path, delimiter: str) -> Table:
    """Read a CSV file; fields of text that are empty or say NA without quotation marks are missing, as in R."""
    import pyarrow as pa
    from pyarrow import csv

    with pa.input_stream(str(path)) as file:
        start = file.read(_HEADER)
    if start.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        raise InputError(f"{path.name}: the file is UTF-16 text; write it as UTF-8")
    header = start.decode(errors="replace").split("\n", 1)[0].strip()
    other = next((name for mark, name in _DELIMITERS.items() if mark in header and delimiter not in header), None)
    if other:
        raise InputError(f"{path.name}: {other} separate the columns; write the file with {_DELIMITERS[delimiter]}")
    parsing = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    missing = csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
    return of_stream(csv.read_csv(path, parse_options=parsing, convert_options=missing), path.name)


def joined(tables: Sequence[Table], name: str) -> Table:
    """Return the rows of several tables, one table after the other.

    Raises `InputError` if a column is missing in one of them or has another type.
    """
    first, *others = tables
    for other in others:
        for column, kind in first.types.items():
            if other.types.get(column) != kind:
                there = f"of type {other.types[column]}" if column in other.types else "missing"
                raise InputError(f"{other.name}: column {column!r} is {there}, but of type {kind} in {first.name}")

    def batches(columns: list[str]) -> Iterator[pa.RecordBatch]:
        for table in tables:
            yield from table.batches(columns)

    files = tuple(file for table in tables for file in table.files)
    ends = tuple(accumulate(table.n_rows for table in tables))
    return Table(name, first.types, ends[-1], batches, files, ends)


def _of_one_file(file: WatchedFile, kind: str, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield batches in this thread, from the memory-mapped file: several times faster than a scanner."""
    import pyarrow as pa
    from pyarrow import parquet

    content = pa.BufferReader(pa.py_buffer(file.bytes))
    if kind == "parquet":
        with parquet.ParquetFile(content) as table:
            yield from table.iter_batches(_BATCH, columns=columns, use_threads=False)
        return
    with pa.ipc.open_file(content) as reader:
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number).select(columns)


def of_stream(stream: Any, name: str) -> Table:
    """Return a table in memory from an object with the Arrow C stream interface, or a structured numpy array."""
    import pyarrow as pa

    try:
        if isinstance(stream, np.ndarray):
            stream = pa.table({one: np.ascontiguousarray(stream[one]) for one in stream.dtype.names or ()})
        table = pa.table(stream)
    except (pa.ArrowException, TypeError) as error:
        raise InputError(f"{name}: cannot read the table through Arrow: {_line(error)}") from error

    def batches(columns: list[str]) -> Iterator[pa.RecordBatch]:
        return iter(table.select(columns).to_batches())

    return Table(name, _types(table.schema, name), table.num_rows, batches)


def read(table: Table, wanted: Sequence[Wanted]) -> list[tuple[str, ...] | None]:
    """Fill arrays with columns in one pass; return the names of the levels of text columns.

    Raises `InputError`, with column and row, if a value is missing or does not fit the array; `RunError` if the table's
    file changes meanwhile.
    """
    with unchanged(table.files):
        return _read(table, wanted)


def _read(table: Table, wanted: Sequence[Wanted]) -> list[tuple[str, ...] | None]:
    columns = list(dict.fromkeys(one.column for one in wanted))
    fillers = [_filler(table, one) for one in wanted]
    first = 0
    for batch in table.batches(columns):
        if first + batch.num_rows > table.n_rows:
            break
        # Columns are written side by side into rows of a matrix, few enough at a time to stay in a cache.
        for start in range(0, batch.num_rows, _PIECE):
            piece = batch.slice(start, _PIECE)
            for filler in fillers:
                filler.add(piece.column(filler.wanted.column), first + start)
        first += batch.num_rows
    if first != table.n_rows:
        raise InputError(f"{table.name}: the table changed while it was read: it had {table.n_rows:,} rows at first")
    return [filler.finish() for filler in fillers]


class _Numbers:
    """Reader of numbers and truth values."""

    def __init__(self, table: Table, wanted: Wanted) -> None:
        self.wanted, self._table = wanted, table

    def add(self, array: pa.Array, first: int) -> None:
        import pyarrow as pa

        _refuse_missing(self._table, self.wanted.column, array, first)
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if pa.types.is_decimal(array.type) or pa.types.is_float16(array.type):
            array = array.cast(pa.float64())
        values = array.to_numpy(zero_copy_only=False)
        if values.dtype.kind == "f":
            self._refuse(np.isnan(values), first, values, "is missing (not a number)")
        if self.wanted.out.dtype.kind == "i":
            self._check_integers(values, first)
        self.wanted.out[first : first + len(values)] = values

    def _check_integers(self, values: NDArray[Any], first: int) -> None:
        if values.dtype.kind == "f":
            self._refuse(values != np.rint(values), first, values, "is {value}, but the variable holds integers")
        if values.dtype.kind == "b" or not len(values):
            return
        least, most = values.min(), values.max()
        lower = _INT32.min if self.wanted.lower is None else self.wanted.lower
        upper = _MAX_INT if self.wanted.upper is None else self.wanted.upper
        if least < lower:
            hint = ": levels count from 1" if (lower, least) == (1, 0) else ""
            self._refuse(values < lower, first, values, f"is {{value}}, but the lower bound is {lower}{hint}")
        if most > upper:
            self._refuse(values > upper, first, values, f"is {{value}}, but the upper bound is {upper:,}")

    def _refuse(self, bad: NDArray[np.bool_], first: int, values: NDArray[Any], what: str) -> None:
        if bad.any():
            place = int(np.argmax(bad))
            raise _misfit(self._table, self.wanted.column, first + place, what.format(value=values[place].item()))

    def finish(self) -> None:
        """Return nothing: numbers have no levels."""


class _Text:
    """Reader of texts as numbers from 1: categories in their order, other texts alphabetically."""

    def __init__(self, table: Table, wanted: Wanted) -> None:
        self.wanted, self._table = wanted, table
        self._codes: dict[str, int] = {}
        self._sorted = False

    def add(self, array: pa.Array, first: int) -> None:
        import pyarrow as pa

        if not pa.types.is_dictionary(array.type):
            self._sorted = True
            array = array.dictionary_encode()
        _refuse_missing(self._table, self.wanted.column, array, first)
        numbers = [self._codes.setdefault(one, len(self._codes)) + 1 for one in array.dictionary.to_pylist()]
        indices = array.indices.to_numpy(zero_copy_only=False)
        self.wanted.out[first : first + len(array)] = np.array(numbers, dtype=np.int64)[indices]

    def finish(self) -> tuple[str, ...]:
        """Sort the levels and return their names."""
        names = list(self._codes)
        if self._sorted:
            order = sorted(range(len(names)), key=names.__getitem__)
            rank = np.empty(len(names) + 1, dtype=np.int64)
            rank[np.array(order, dtype=np.int64) + 1] = np.arange(1, len(names) + 1)
            self.wanted.out[:] = rank[self.wanted.out]
            names = [names[k] for k in order]
        upper = self.wanted.upper
        if upper is not None and len(names) > upper:
            raise InputError(
                f"{self._table.name}: column {self.wanted.column!r} has {len(names):,} levels "
                f"({', '.join(names[:3])}{', ...' * (len(names) > 3)}), numbered 1 to {len(names):,}, but the program "
                f"allows at most {upper:,}{'; write outcomes as 0 and 1, or as booleans' if upper == 1 else ''}"
            )
        return tuple(names)


def _filler(table: Table, wanted: Wanted) -> _Numbers | _Text:
    """Return the reader of a column of this type into such an array."""
    import pyarrow as pa

    is_a = pa.types
    kind = whole = table.types[wanted.column]
    if is_a.is_dictionary(kind):
        kind = kind.value_type
    if is_a.is_string(kind) or is_a.is_large_string(kind) or is_a.is_string_view(kind):
        if wanted.out.dtype.kind == "i":
            return _Text(table, wanted)
    elif is_a.is_integer(kind) or is_a.is_floating(kind) or is_a.is_boolean(kind) or is_a.is_decimal(kind):
        return _Numbers(table, wanted)
    if is_a.is_null(kind):
        if not table.n_rows:
            raise InputError(f"{table.name}: the table has no rows")
        raise _misfit(table, wanted.column, 0, "is missing, like all other rows")
    needed = "integers or text" if wanted.out.dtype.kind == "i" else "numbers"
    raise InputError(
        f"{table.name}: column {wanted.column!r} is of type {whole}, but the variable needs {needed}"
        f"{_first_word(table, wanted.column)}"
    )


def _first_word(table: Table, column: str) -> str:
    """Return a clause on the first text in a column that is no number; empty if there is none."""
    row = 0
    for batch in table.batches([column]):
        for value in batch.column(column).to_pylist():
            row += 1
            if isinstance(value, str) and not _is_number(value):
                return f"; row {row:,} is {reprlib.repr(value)}"
    return ""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _refuse_missing(table: Table, column: str, array: pa.Array, first: int) -> None:
    if array.null_count:
        raise _misfit(
            table, column, first + int(np.argmax(array.is_null().to_numpy(zero_copy_only=False))), "is missing"
        )


def _misfit(table: Table, column: str, row: int, what: str) -> InputError:
    return InputError(f"{table.name}: column {column!r}, row {row + 1:,} {what}")


def _types(schema: pa.Schema, name: str) -> dict[str, pa.DataType]:
    twice = next((one for one in schema.names if schema.names.count(one) > 1), None)
    if twice is not None:
        raise InputError(f"{name}: two columns have the name {twice!r}; rename one")
    return dict(zip(schema.names, schema.types, strict=True))


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Raise InputError if a file is damaged."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: cannot read the file: {_line(error)}") from error


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
