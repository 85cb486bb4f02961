"""Remarks about statements of a program, with their lines in the user's file."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stansub.errors import InputError
from stansub.stan.syntax import Token, shortened, tokenize

# What a compiled program puts before an error, and where it gives the location in the canonical text.
_CLASS = re.compile(r"^Exception: |\b\w+_namespace::\w+: ")
_PLACE = re.compile(r"\(in '[^']*', line (?P<line>\d+), column \d+(?: to (?:line \d+, )?column \d+)?\)")


@dataclass(frozen=True)
class Remark:
    """A remark about a statement for the user."""

    statement: str
    message: str

    def located(self, source: str) -> str:
        """Return the remark as a line of text, with the statement's line in the user's file if found."""
        line = find_line(source, self.statement)
        where = f"line {line}: " if line is not None else ""
        return f"{where}`{shortened(self.statement, 90)}` {self.message}" if self.statement else self.message


def find_line(source: str, statement: str) -> int | None:
    """Return the line of a statement in the user's own file, from 1; None if it is not there, but in an included file.

    Comments, white space, parentheses, braces and colons (``x[, 1]`` is ``x[:, 1]``) are ignored, because the canonical
    text may have others.
    """
    wanted = [token.text for token in _significant(statement)]
    try:
        tokens = _significant(source)
    except InputError:
        return None
    texts = [token.text for token in tokens]
    for i in range(len(texts) - len(wanted) + 1):
        if wanted and texts[i : i + len(wanted)] == wanted:
            return source.count("\n", 0, tokens[i].span.start) + 1
    return None


def locate_error(message: str, code: str, source: str, file: str) -> str:
    """Return an error of a compiled program in one line, with the line in the user's file if found.

    ``message`` is that of the C++ exception, ``source`` the user's file, and ``file`` its name in the message.
    """

    def place(match: re.Match[str]) -> str:
        line = find_line(source, code.splitlines()[int(match["line"]) - 1])
        return f"({file}, line {line})" if line else ""

    return " ".join(_PLACE.sub(place, _CLASS.sub("", message)).split())


def _significant(text: str) -> list[Token]:
    return [token for token in tokenize(text) if token.text not in ("(", ")", "{", "}", ":")]
