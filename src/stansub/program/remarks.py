"""Remarks about statements of a program, and the lines of the user's file that they are about."""

from __future__ import annotations

from dataclasses import dataclass

from stansub.errors import InputError
from stansub.program.syntax import Token, tokenize


@dataclass(frozen=True)
class Remark:
    """Something a user should know about a statement.

    Attributes
    ----------
    statement : str
        Canonical text of the statement.
    message : str
        What about it.
    """

    statement: str
    message: str

    def __str__(self) -> str:
        return self.located("")

    def located(self, source: str) -> str:
        """The remark as a line of text, with the statement's line in the user's own file where it is found there."""
        line = find_line(source, self.statement)
        where = f"line {line}: " if line is not None else ""
        head = " ".join(self.statement.split())
        quoted = f"`{head if len(head) <= 90 else head[:87] + '...'}`"
        return f"{where}{quoted} {self.message}" if self.statement else self.message


def find_line(source: str, statement: str) -> int | None:
    """Line of a statement in the user's own file, counted from 1.

    Comments, white space, parentheses and braces do not count, since the canonical text may have others.

    Parameters
    ----------
    source : str
        The user's file.
    statement : str
        Canonical text of the statement.

    Returns
    -------
    int or None
        None where it is not found, as when it comes from an included file.
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


def _significant(text: str) -> list[Token]:
    return [token for token in tokenize(text) if token.text not in ("(", ")", "{", "}")]
