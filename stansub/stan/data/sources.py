"""Sources of data: files, tables and values that are merged, and the columns that variables are read from."""

from __future__ import annotations

import glob
import json
import numbers
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from stansub.errors import InputError

_SETTING = re.compile(r"(?P<name>[A-Za-z]\w*)\s*=(?P<value>.*)", re.DOTALL)


class ArrowStream(Protocol):
    """Table with the Arrow C stream interface, such as those of pandas, polars and pyarrow."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule of the stream."""


class StructuredArray(Protocol):
    """Numpy array whose elements have fields."""

    @property
    def dtype(self) -> Any:
        """Return names and types of the fields."""


@dataclass(frozen=True)
class DataPartitions:
    """One table in partitions, its rows one partition after the other.

    Parameters
    ----------
    parts : sequence
        Parquet files, or functions without arguments that return a table with the Arrow C stream interface. Functions
        must be importable by name and return the same table whenever they are called.
    """

    parts: Sequence[str | Path | Callable[[], Any]]

    def __post_init__(self) -> None:
        if not self.parts or not all(isinstance(one, str | Path) or callable(one) for one in self.parts):
            raise InputError("partitions must be Parquet files, or functions that return a table; give at least one")
        parts = tuple(Path(one) if isinstance(one, str) else one for one in self.parts)
        object.__setattr__(self, "parts", parts)


@dataclass(frozen=True)
class DataSources:
    """Data of a program, merged from several sources.

    Parameters
    ----------
    parts : sequence
        Files (JSON, R's dump format, Parquet, Arrow, CSV, npy, npz or Zarr), patterns of Parquet files such as
        ``part-*.parquet``, tables with the Arrow C stream interface (pandas, polars, pyarrow), structured numpy arrays,
        and mappings of names to values.
    columns : mapping, optional
        Columns of the tables by data variable, if their names differ: a name, a pattern such as ``x_*`` or, for
        matrices, a list of these.
    """

    parts: Sequence[Any]
    columns: Mapping[str, str | Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for part in self.parts:
            if not _is_part(part):
                raise InputError(
                    f"cannot read data of type {type(part).__name__}: give files, tables with the Arrow C stream "
                    "interface, or values by name"
                )
        object.__setattr__(self, "parts", tuple(self.parts))
        object.__setattr__(self, "columns", _by_variable(self.columns))

    @classmethod
    def of(cls, data: DataLike) -> DataSources:
        """Return any accepted form of data as sources."""
        if isinstance(data, DataSources):
            return data
        return cls(data if isinstance(data, list | tuple) else (data,))

    @classmethod
    def from_words(cls, words: Sequence[str], columns: Sequence[str] = ()) -> DataSources:
        """Return sources from command-line words: files and ``NAME=VALUE``, and ``NAME=COLUMNS`` for columns.

        Raises
        ------
        InputError
            If a word cannot be read.
        """
        chosen: dict[str, tuple[str, ...]] = {}
        for text in columns:
            name, names = _columns(text)
            if name in chosen:
                raise InputError(f"`columns` names {name!r} twice: give one list, as in {name}=[a,b]")
            chosen[name] = names
        return cls([_word(word) for word in words], chosen)

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the files and patterns among the parts."""
        return tuple(Path(part) for part in self.parts if isinstance(part, str | Path))

    @property
    def partitions(self) -> DataPartitions | None:
        """Return the table in partitions, if that is the only table and all else is values by name."""
        tables = [part for part in self.parts if not isinstance(part, Mapping)]
        if len(tables) != 1:
            return None
        if isinstance(tables[0], str | Path) and (files := matching(Path(tables[0]))):
            return DataPartitions(files)
        return tables[0] if isinstance(tables[0], DataPartitions) else None

    @property
    def name(self) -> str:
        """Return names of the files, for messages."""
        return " and ".join(dict.fromkeys(file.name for file in self.files)) or "data"

    @property
    def recorded(self) -> str:
        """Return the sources as text for `restored`; empty unless they are only files and single numbers."""
        files = [str(file.resolve()) for file in self.files]
        if not files or len(files) + len(self._settings) < len(self.parts):
            return ""
        if len(self.parts) == 1 and not self.columns:
            return files[0]
        values = {name: value for part in self._settings for name, value in part.items()}
        return json.dumps({"files": files, "values": values, "columns": self.columns})

    @classmethod
    def restored(cls, text: str) -> DataSources | None:
        """Return sources from the text of `recorded`; None for an empty text."""
        if not text:
            return None
        try:
            held = json.loads(text)
            return cls([*held["files"], held["values"]], held["columns"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, InputError):
            return cls((text,))

    def missing(self) -> str:
        """Return the first missing file; empty if none is missing."""
        return next((str(file) for file in self.files if not file.exists() and not matching(file)), "")

    @property
    def _settings(self) -> list[Mapping[str, Any]]:
        """Return the mappings of single numbers."""
        mappings = [part for part in self.parts if isinstance(part, Mapping)]
        return [one for one in mappings if all(isinstance(value, numbers.Real) for value in one.values())]


def matching(path: Path) -> tuple[Path, ...]:
    """Return the files that a pattern matches, sorted by name; none if the path exists or is no pattern."""
    text = str(path)
    return () if path.exists() or not glob.has_magic(text) else tuple(map(Path, sorted(glob.glob(text))))


DataPart: TypeAlias = str | Path | Mapping[str, Any] | ArrowStream | StructuredArray | DataPartitions
DataLike: TypeAlias = DataPart | Sequence[DataPart] | DataSources


def _by_variable(columns: object) -> dict[str, tuple[str, ...]]:
    """Return the columns of each variable."""
    found = {}
    for name, one in columns.items() if isinstance(columns, Mapping) else [("", columns)]:
        given = (one,) if isinstance(one, str) else one
        if not name or not isinstance(given, Sequence) or not all(isinstance(each, str) for each in given):
            raise InputError(
                f"`columns`: give a column, or a list of columns, by variable, such as {{'x': ['x1', 'x2']}}, "
                f"not {columns!r}"
            )
        found[name] = tuple(given)
    return found


def _is_part(part: object) -> bool:
    structured = getattr(getattr(part, "dtype", None), "names", None) is not None
    return isinstance(part, str | Path | Mapping | DataPartitions) or hasattr(part, "__arrow_c_stream__") or structured


def _word(word: str) -> str | dict[str, Any]:
    """Return a file, or a value by name."""
    setting = _SETTING.fullmatch(word)
    if setting is None or Path(word).exists():
        return word
    try:
        return {setting["name"]: json.loads(setting["value"])}
    except (ValueError, RecursionError):
        raise InputError(
            f"data {word!r}: no such file, and {setting['value']!r} is not a number or list in JSON"
        ) from None


def _columns(text: str) -> tuple[str, tuple[str, ...]]:
    """Return a variable and its columns, from ``x=[a,b,c]``, ``x=x_*`` or ``y=late``."""
    setting = _SETTING.fullmatch(text.strip())
    value = setting["value"].strip() if setting is not None else ""
    listed = value.startswith("[") and value.endswith("]")
    names = tuple(_listed(value) if listed else [value])
    if setting is None or not names or not all(names):
        raise InputError(
            f"`columns={text}`: must have the form VARIABLE=COLUMN, VARIABLE=PATTERN* or VARIABLE=[COLUMN,...]"
        )
    return setting["name"], names


def _listed(value: str) -> Iterator[str]:
    """Yield the names in brackets; names in quotation marks, as in JSON, may contain commas."""
    try:
        yield from map(str, json.loads(value))
    except (ValueError, RecursionError):
        yield from (name.strip() for name in value[1:-1].split(","))
