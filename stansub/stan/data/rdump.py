"""Reader of R's dump format, as written by `rstan::stan_rdump` and `dump`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stansub.errors import InputError

_TEXT = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
_COMMENT = re.compile(rf"({_TEXT})|#[^\n]*")
# Text, such as names of levels, which no Stan program reads.
_TEXTS = re.compile(rf"{_TEXT}|c\s*\(\s*(?:{_TEXT}|NA)(?:\s*,\s*(?:{_TEXT}|NA))*\s*\)")
_ASSIGNED = re.compile(
    r"""\s*(?:(?P<bare>[A-Za-z.][\w.]*)|(?P<quote>["'`])(?P<quoted>[^"'`]+)(?P=quote))\s*(?:<-|=)\s*"""
)
_CALL = re.compile(r"(c|structure|integer|double|numeric)\s*\(\s*")
_DIM = re.compile(r"\s*,\s*(?:\.Dim|dim)\s*=\s*")
_NUMBER = r"[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|Inf|NaN)L?"
_RANGE = re.compile(r"([+-]?\d+)L?\s*:\s*([+-]?\d+)L?")
_SCALAR = re.compile(_NUMBER)
_END = re.compile(r"\s*(?:[;\n]|$)")


def parse(text: str, source: str) -> dict[str, Any]:
    """Read the assignments of a file: numbers, arrays of int64 or float64, and text as it is in the file.

    Raises `InputError` if the text contains anything that data of Stan programs do not.
    """
    text = _COMMENT.sub(lambda found: found[1] or "", text)
    values: dict[str, Any] = {}
    place = 0
    while text[place:].strip(" \t\r\n;"):
        place += len(text[place:]) - len(text[place:].lstrip(" \t\r\n;"))
        found = _ASSIGNED.match(text, place)
        if found is None:
            raise _wrong(text, place, source, "expected `NAME <- VALUE`")
        name = found["bare"] or found["quoted"]
        values[name], place = _value(text, found.end(), f"{source}: variable {name!r}")
        if (end := _END.match(text, place)) is None:
            raise _wrong(text, place, source, f"unexpected text after the value of {name!r}")
        place = end.end()
    return values


def _value(text: str, place: int, where: str) -> tuple[Any, int]:
    """Return the value that starts at a place, and its end."""
    if found := _RANGE.match(text, place):
        first, last = int(found[1]), int(found[2])
        step = 1 if last >= first else -1
        return np.arange(first, last + step, step), found.end()
    if found := _SCALAR.match(text, place):
        return _numbers(found[0], where).item(), found.end()
    if found := _TEXTS.match(text, place):
        return found[0], found.end()
    call = _CALL.match(text, place)
    if call is None:
        raise InputError(f"{where}: {_shown(text, place)!r} is not a number, c(...), a:b or structure(...)")
    if call[1] == "structure":
        values, place = _value(text, call.end(), where)
        dim = _DIM.match(text, place)
        if dim is None:
            raise InputError(f"{where}: structure(...) has no .Dim")
        shape, place = _value(text, dim.end(), where)
        return _shaped(values, np.atleast_1d(shape), where), _closed(text, place, where)
    end = text.find(")", call.end())
    if end < 0:
        raise InputError(f"{where}: {call[1]}( has no closing parenthesis")
    inside = text[call.end() : end]
    if call[1] == "c":
        return _numbers(inside, where), end + 1
    return np.zeros(int(inside or 0), dtype=np.int64 if call[1] == "integer" else np.float64), end + 1


def _closed(text: str, place: int, where: str) -> int:
    rest = text[place:].lstrip()
    if not rest.startswith(")"):
        raise InputError(f"{where}: structure(...) is followed by {_shown(rest, 0)!r}")
    return place + len(text[place:]) - len(rest) + 1


def _shaped(values: Any, shape: NDArray[Any], where: str) -> NDArray[Any]:
    sizes = [int(size) for size in shape]
    if int(np.prod(sizes)) != np.size(values):
        raise InputError(f"{where}: has {np.size(values):,} values, but .Dim says {' x '.join(map(str, sizes))}")
    return np.ascontiguousarray(np.reshape(values, sizes, order="F"))


def _numbers(text: str, where: str) -> NDArray[Any]:
    """Return numbers between commas: integers if all are written as such or, like 1e+05, are integers."""
    words = [word.strip() for word in text.split(",")] if text.strip() else []
    if bad := next(_not_numbers(words), None):
        what = "is missing" if bad[1].startswith("NA") else f"is {bad[1]!r}, which is not a number"
        raise InputError(f"{where}: element {bad[0]:,} {what}")
    values = np.array([word.rstrip("L") for word in words], dtype=np.float64)
    whole = "." not in text and np.isfinite(values).all() and (values == np.rint(values)).all()
    return values.astype(np.int64) if whole and (abs(values) < 2**53).all() else values


def _not_numbers(words: list[str]) -> Iterator[tuple[int, str]]:
    return ((k, word) for k, word in enumerate(words, 1) if _SCALAR.fullmatch(word) is None)


def _wrong(text: str, place: int, source: str, what: str) -> InputError:
    line = text.count("\n", 0, place) + 1
    return InputError(f"{source}, line {line}: {what}: {_shown(text, place)!r}")


def _shown(text: str, place: int) -> str:
    return text[place : place + 30].strip().split("\n")[0]
