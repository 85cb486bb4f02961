"""Queries on parts of a program: the variables that they mention and the functions that they call."""

from __future__ import annotations

from stansub.stan.syntax.expressions import Call, Name
from stansub.stan.syntax.nodes import Node, find
from stansub.stan.syntax.parser import TYPES
from stansub.stan.syntax.program import Program
from stansub.stan.syntax.statements import Assign, Declaration, For, ForEach, Statement
from stansub.stan.syntax.tokens import tokenize

_WORDS = TYPES | {
    *("for", "in", "if", "else", "while", "return", "break", "continue", "profile", "print", "reject", "void"),
    *("data", "target"),
}


def names(*nodes: Node | str) -> set[str]:
    """Return the variables that nodes mention, including those that they declare or loop over."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, str):
            found |= _names_in(node)
            continue
        for one in node.inner():
            if isinstance(one, Name | Declaration):
                found.add(one.name)
            elif isinstance(one, For | ForEach):
                found.add(one.variable)
    return found


def calls(*nodes: Node) -> list[Call]:
    """Return all function calls in nodes, the outer before the inner."""
    return list(find(Call, nodes))


def symbols(program: Program) -> set[str]:
    """Return all names in a program: its variables, the functions that it calls, and its own functions."""
    return names(program) | {one.name for one in calls(program)} | {one.name for one in program.functions}


def writes(*nodes: Node) -> set[str]:
    """Return the variables that statements declare or assign."""
    found: set[str] = set()
    for one in find(Statement, nodes):
        if isinstance(one, Declaration):
            found.add(one.name)
        elif isinstance(one, Assign):
            found.update(one.variables)
    return found


def _names_in(text: str) -> set[str]:
    tokens = tokenize(text)
    return {
        token.text
        for i, token in enumerate(tokens)
        if token.kind == "name" and token.text not in _WORDS and not (i + 1 < len(tokens) and tokens[i + 1].text == "(")
    }


def shortened(one: Statement) -> str:
    """Return the text of a statement in one line, for messages."""
    text = " ".join(str(one).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
