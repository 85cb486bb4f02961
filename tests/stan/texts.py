"""Texts of programs, and their words."""

from stansub.stan.syntax import Program, parse, tokenize
from stansub.stan.toolchain import stanc


def canonical(code: str) -> Program:
    """The program in stanc's normal form; fails where stanc rejects it."""
    return parse(stanc.canonical_code(code, "program"))


def words(text: str) -> str:
    """The words of a text, with a space between two."""
    return " ".join(token.text for token in tokenize(text))
