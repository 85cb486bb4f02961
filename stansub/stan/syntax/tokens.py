"""Tokens of Stan text: names, numbers, strings, operators and punctuation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from stansub.errors import InputError


class Span(NamedTuple):
    """A range of text: offsets of its first character and of the one after its last."""

    start: int
    end: int

    def contains(self, other: Span) -> bool:
        """Return whether another range lies inside this one."""
        return self.start <= other.start and other.end <= self.end

    @property
    def before(self) -> Span:
        """The place before its first character, for text that is added."""
        return Span(self.start, self.start)


NOWHERE = Span(0, 0)


class Token(NamedTuple):
    """A token of the language."""

    kind: str
    """``name``, ``number``, ``string`` or ``mark`` (operators and punctuation)."""
    text: str
    span: Span


_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/|\#[^\n]*)
      | (?P<string>"[^"\n]*")
      | (?P<number>(?:\d[\d_]*(?:\.\d[\d_]*|\.(?![\^*/']))?|\.\d[\d_]*)(?:[eE][+-]?\d+)?i?)
      | (?P<name>[A-Za-z]\w*)
      | (?P<mark>\.\*=|\./=|%/%|\.\*|\./|\.\^|\+=|-=|\*=|/=|<-|<=|>=|==|!=|&&|\|\||[-+*/%\\^'!<>=~?:,;.|(){}\[\]])""",
    re.VERBOSE | re.DOTALL,
)

_OPEN, _CLOSE = "([{", ")]}"


def tokenize(text: str) -> list[Token]:
    """Return the tokens of a Stan text, without white space, comments and ``#include`` lines.

    Raises `InputError` if the text contains a character that Stan does not allow.
    """
    tokens, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            line = text.count("\n", 0, position) + 1
            raise InputError(f"line {line} of the Stan program: unexpected character {text[position]!r}")
        kind = match.lastgroup or ""
        if kind != "skip":
            tokens.append(Token(kind, match.group(), Span(*match.span())))
        position = match.end()
    return tokens


def matching(tokens: Sequence[Token], opening: int) -> int:
    """Return the index of the bracket that closes the one at ``opening``."""
    depth = 0
    for i in range(opening, len(tokens)):
        if tokens[i].kind == "mark":
            depth += (tokens[i].text in _OPEN) - (tokens[i].text in _CLOSE)
        if depth == 0:
            return i
    raise InputError("the Stan program has an unclosed bracket")
