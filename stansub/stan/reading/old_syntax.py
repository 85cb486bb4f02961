"""Conversion of old syntax into today's: arrays, comments and assignments.

``real x[N]`` becomes ``array[N] real x``, ``#`` becomes ``//`` and ``<-`` becomes ``=``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from stansub.errors import InputError
from stansub.stan.syntax import TYPES, Token, matching, tokenize

_TYPES = TYPES - {"array", "tuple"}
# Between tokens: comments in current syntax or, as a group, the mark of one in old syntax.
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|(\#)(?!include\b)[^\n]*", re.DOTALL)


class _Change(NamedTuple):
    """Replacement of a stretch of text."""

    start: int
    end: int
    text: str


def converted(code: str) -> str:
    """Return a program with its arrays, comments and assignments in current syntax and everything else unchanged.

    stanc must check whether the result is a valid program.
    """
    try:
        tokens = tokenize(code)
        changes = sorted([*_comments(code, tokens), *_arrays(code, tokens), *_assignments(tokens)])
    except InputError:
        return code
    for change in reversed(changes):
        code = code[: change.start] + change.text + code[change.end :]
    return code


def _comments(code: str, tokens: Sequence[Token]) -> Iterator[_Change]:
    starts, ends = [0, *(one.span.end for one in tokens)], [*(one.span.start for one in tokens), len(code)]
    for start, end in zip(starts, ends, strict=True):
        found = (one.start(1) for one in _COMMENT.finditer(code, start, end))
        yield from (_Change(place, place + 1, "//") for place in found if place >= 0)


def _assignments(tokens: Sequence[Token]) -> Iterator[_Change]:
    """Yield changes of ``<-`` between statements; in brackets it is a comparison with a negative value."""
    depth = 0
    for token in tokens:
        if token.kind == "mark":
            depth += (token.text in "([") - (token.text in ")]")
            if token.text == "<-" and depth == 0:
                yield _Change(token.span.start, token.span.end, "=")


def _arrays(code: str, tokens: Sequence[Token]) -> Iterator[_Change]:
    for i, token in enumerate(tokens):
        if token.kind != "name" or token.text not in _TYPES:
            continue
        place = _after_bounds(tokens, i + 1)
        if _is(tokens, place, "["):
            end = matching(tokens, place)
            if all(one.text == "," for one in tokens[place + 1 : end]):  # an argument, or the return type of a function
                brackets = code[tokens[place].span.start : tokens[end].span.end]
                yield _Change(token.span.start, token.span.start, f"array{brackets} ")
                yield _Change(tokens[place].span.start, tokens[end].span.end, "")
                continue
            place = end + 1
        if place + 1 < len(tokens) and tokens[place].kind == "name" and _is(tokens, place + 1, "["):
            first, last = tokens[place + 1], tokens[matching(tokens, place + 1)]
            yield _Change(token.span.start, token.span.start, f"array{code[first.span.start : last.span.end]} ")
            yield _Change(first.span.start, last.span.end, "")


def _after_bounds(tokens: Sequence[Token], place: int) -> int:
    """Return the place after ``<lower=0>``, if that is there."""
    if not _is(tokens, place, "<"):
        return place
    while place < len(tokens) and tokens[place].text != ">":
        place = matching(tokens, place) + 1 if tokens[place].text in "([{" else place + 1
    return place + 1


def _is(tokens: Sequence[Token], place: int, text: str) -> bool:
    return place < len(tokens) and tokens[place].kind == "mark" and tokens[place].text == text
