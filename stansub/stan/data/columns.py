"""Data variables from columns of tables: the columns of each, and sizes that follow from others."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stansub.errors import InputError
from stansub.stan.data.spool import Empty, arrays_of
from stansub.stan.data.tables import Table, Wanted, read
from stansub.stan.syntax import Declaration

_PATTERN = frozenset("*?[")


@dataclass(frozen=True)
class Origins:
    """Origins of values that were not given by name."""

    texts: Mapping[str, str] = field(default_factory=dict)
    """By variable, in words."""
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By variable, the names of its levels, of which the first is 1."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Integers that follow from the levels of columns, by name."""
    ends: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By variable read from a table in partitions, the ends of these among its rows."""


def level_sizes(declarations: Sequence[Declaration], origins: Origins) -> dict[str, str]:
    """Return the variable with levels by the integer that bounds it, which is also the size of per-level variables."""
    uppers = {_bound(one, "upper"): one.name for one in declarations if one.name in origins.levels}
    return {upper: name for upper, name in uppers.items() if upper}


class _Choice(NamedTuple):
    """Columns that a variable is read from."""

    declaration: Declaration
    table: Table
    columns: tuple[str, ...]


def read_columns(
    declarations: Sequence[Declaration],
    given: Mapping[str, Any],
    tables: Sequence[Table],
    columns: Mapping[str, Sequence[str]],
) -> tuple[dict[str, NDArray[Any]], Origins]:
    """Read the variables that have no ``given`` value and whose columns are in a table, as arrays of int64 or float64.

    ``columns`` are those of variables whose names differ. Raises `InputError` if columns are missing, or their values
    do not fit.
    """
    _check_names(declarations, tables, columns)
    choices = [choice for declaration in declarations if (choice := _choice(declaration, tables, columns)) is not None]
    for choice in choices:
        if (name := choice.declaration.name) in given:
            raise InputError(f"variable {name!r} is given twice, as a value and in {choice.table.name}: remove one")
    values: dict[str, NDArray[Any]] = {}
    texts: dict[str, str] = {}
    levels: dict[str, tuple[str, ...]] = {}
    sizes: dict[str, int] = {}
    for table in tables:
        mine = [choice for choice in choices if choice.table is table]
        empty = arrays_of(8 * table.n_rows * sum(len(choice.columns) for choice in mine))
        wanted = {choice.declaration.name: _wanted(choice, given, empty) for choice in mine}
        found = iter(read(table, [one for _, filling in wanted.values() for one in filling]))
        for choice in mine:
            name, upper = choice.declaration.name, _bound(choice.declaration, "upper")
            names = [next(found) for _ in choice.columns]
            values[name], _ = wanted[name]
            if names[0] is not None and len(names) == 1:
                levels[name] = names[0]
            elif text := next((column for column, one in zip(choice.columns, names, strict=True) if one), None):
                raise InputError(f"{table.name}: column {text!r} holds text, but {name!r} is read from several columns")
            if upper and values[name].size and choice.declaration.base == "int":
                most = len(levels[name]) if name in levels else int(values[name].max())
                sizes[upper] = max(most, sizes.get(upper, 0))
            texts[name] = _words(choice, levels.get(name))
    ends = {choice.declaration.name: choice.table.ends for choice in choices if choice.table.ends}
    return values, Origins(texts, levels, sizes, ends)


def inferred(
    declarations: Sequence[Declaration], values: Mapping[str, Any], origins: Origins
) -> Iterator[tuple[str, int, str]]:
    """Yield the integers that follow from other variables: name, value and source in words."""
    for wanted in declarations:
        if wanted.name in values or wanted.base != "int" or wanted.all_dims:
            continue
        sized = (
            (one.name, values[one.name].shape[axis])
            for one in declarations
            if isinstance(values.get(one.name), np.ndarray) and values[one.name].ndim >= len(one.sizes)
            for axis, size in enumerate(one.sizes)
            if size == wanted.name
        )
        name, size = next(sized, ("", 0))
        if name:
            yield wanted.name, size, f"{size:,}, a size of {name}"
        elif wanted.name in origins.sizes:
            of = next(one.name for one in declarations if _bound(one, "upper") == wanted.name)
            kind = "number of levels" if of in origins.levels else "largest value"
            yield wanted.name, origins.sizes[wanted.name], f"{origins.sizes[wanted.name]:,}, the {kind} of {of}"


def remedy(
    declaration: Declaration, given: Mapping[str, Any], declarations: Sequence[Declaration], tables: Sequence[Table]
) -> str:
    """Return a remedy for a variable with neither a ``given`` value nor a column; empty if nothing is like it."""
    declared = {one.name for one in declarations}
    if alike := _nearest(declaration.name, [name for name in given if name not in declared]):
        return f"; the data have {alike!r}, which it does not declare"
    if not tables:
        return ""
    names = [name for table in tables for name in table.types if name not in declared]
    if not declaration.all_dims:
        return f"; give {declaration.name}=VALUE in addition to the table"
    example = (
        f"{declaration.name}=[{','.join(names[:2]) or 'COLUMN,COLUMN'}]"
        if len(declaration.sizes) > 1
        else f"{declaration.name}={_nearest(declaration.name, names) or (names[0] if names else 'COLUMN')}"
    )
    return f", and no column has that name; name its columns with `columns={example}`"


def _nearest(name: str, others: Iterable[str]) -> str:
    """Return the name most like another, whatever the case; empty if none is."""
    lower = {other.lower(): other for other in others}
    near = difflib.get_close_matches(name.lower(), lower, 1)
    return lower[near[0]] if near else ""


def _wanted(choice: _Choice, given: Mapping[str, Any], empty: Empty) -> tuple[NDArray[Any], list[Wanted]]:
    """Return an array and the columns that fill it."""
    declaration, table, columns = choice
    integer = declaration.base == "int"
    shape = (table.n_rows,) if len(declaration.sizes) == 1 and len(columns) == 1 else (table.n_rows, len(columns))
    values = empty(shape, np.dtype(np.int64 if integer else np.float64))
    lower, upper = (_value(_bound(declaration, kind), given) if integer else None for kind in ("lower", "upper"))
    parts = [values] if len(shape) == 1 else [values[:, k] for k in range(len(columns))]
    return values, [Wanted(*one, lower, upper) for one in zip(columns, parts, strict=True)]


def _bound(declaration: Declaration, kind: str) -> str:
    """Return the expression of a bound; empty if there is none."""
    return next((str(bound.value) for bound in declaration.type.bounds if bound.kind == kind), "")


def _value(expression: str, given: Mapping[str, Any]) -> int | None:
    """Return the value of a bound that is a literal or a given integer."""
    value = given.get(expression)
    if isinstance(value, int | np.integer):
        return int(value)
    return int(expression) if expression.removeprefix("-").isdecimal() else None


def _choice(declaration: Declaration, tables: Sequence[Table], columns: Mapping[str, Sequence[str]]) -> _Choice | None:
    """Return the columns of a variable: those named, or the one of its own name; None if there are none."""
    asked = columns.get(declaration.name)
    if declaration.base in ("tuple", "complex") or len(declaration.sizes) not in (1, 2):
        if asked is not None:
            raise InputError(f"`columns`: {declaration.name!r} is not a vector or matrix of numbers")
        return None
    if asked is None and len(declaration.sizes) == 2:
        return None
    names = [(table, name) for pattern in asked or [declaration.name] for table, name in _matching(pattern, tables)]
    missing = next((pattern for pattern in asked or () if not any(True for _ in _matching(pattern, tables))), None)
    if missing is not None:
        raise InputError(_unknown(declaration.name, missing, tables))
    if not names:
        return None
    table = names[0][0]
    if any(other is not table for other, _ in names):
        where = " and ".join(dict.fromkeys(other.name for other, _ in names))
        raise InputError(f"variable {declaration.name!r} has columns in {where}: put them into one table")
    return _Choice(declaration, table, tuple(name for _, name in names))


def _matching(pattern: str, tables: Sequence[Table]) -> Iterator[tuple[Table, str]]:
    """Yield columns of this name or, if there are none, those that match the pattern, in order."""
    exact = [(table, pattern) for table in tables if pattern in table.types]
    yield from exact
    if not exact and _PATTERN & set(pattern):
        yield from ((table, name) for table in tables for name in table.types if fnmatchcase(name, pattern))


def _unknown(variable: str, pattern: str, tables: Sequence[Table]) -> str:
    names = [name for table in tables for name in table.types]
    near = _nearest(pattern, names)
    hint = f"did you mean {near!r}?" if near else f"columns are {', '.join(names[:8])}{', ...' * (len(names) > 8)}"
    if "," in pattern and {part.strip() for part in pattern.split(",")} <= set(names):
        hint = f"a list of columns needs brackets: `columns={variable}=[{pattern}]`"
    where = " and ".join(table.name for table in tables)
    return f"{where}: no column {pattern!r}, which `columns` maps to {variable!r}; {hint}"


def _check_names(
    declarations: Sequence[Declaration], tables: Sequence[Table], columns: Mapping[str, Sequence[str]]
) -> None:
    known = {one.name for one in declarations}
    for name in columns:
        if name not in known:
            near = _nearest(name, known)
            hint = f"; did you mean {near!r}?" if near else ""
            raise InputError(f"`columns` names {name!r}, which the data block does not declare{hint}")
        if not tables:
            raise InputError(f"`columns` names {name!r}, but no table is given")


def _words(choice: _Choice, levels: tuple[str, ...] | None) -> str:
    columns = choice.columns
    shown = columns if len(columns) < 8 else (*columns[:4], "...", columns[-1])
    what = f"column{'s' * (len(columns) > 1)} {', '.join(shown)} of {choice.table.name}"
    if len(columns) > 1:
        what += f" ({len(columns)})"
    if levels is None:
        return what
    numbered = [f"{k} = {name}" for k, name in enumerate(levels, 1)]
    return f"{what}, levels {', '.join(numbered if len(levels) < 7 else [*numbered[:3], '...', numbered[-1]])}"
