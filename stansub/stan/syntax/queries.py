"""Queries on parts of a program: the variables that they mention and the functions that they call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from stansub.stan.syntax.expressions import Call, Expression, Name
from stansub.stan.syntax.nodes import Node, changed, find
from stansub.stan.syntax.statements import Assign, Declaration, For, ForEach, Statement, Target, Tilde, walk

N = TypeVar("N", bound=Node)

_DENSITIES = ("_lpdf", "_lpmf", "_lupdf", "_lupmf")
# Functions that add what a function returns for slices of an array.
REDUCE_SUM = ("reduce_sum", "reduce_sum_static")


class Density(NamedTuple):
    """A density in a program: its name without suffix, its outcome and its arguments."""

    name: str
    left: Expression
    arguments: tuple[Expression, ...]


def names(*nodes: Node) -> set[str]:
    """Return the variables that nodes mention, including those that they declare or loop over."""
    found: set[str] = set()
    for node in nodes:
        for one in node.inner():
            if isinstance(one, Name | Declaration):
                found.add(one.name)
            elif isinstance(one, For | ForEach):
                found.add(one.variable)
    return found


def calls(*nodes: Node) -> list[Call]:
    """Return all function calls in nodes, the outer before the inner."""
    return list(find(Call, nodes))


def normalised(name: str) -> str:
    """Return the name of a density with all its constants: ``f_lpdf`` for ``f_lupdf``."""
    for suffix in ("_lupdf", "_lupmf"):
        if name.endswith(suffix):
            return name.removesuffix(suffix) + "_lp" + suffix[-2:]
    return name


def density_of(node: Node | None) -> Density | None:
    """Return the density of ``y ~ f(...)`` or of a call ``f_lpdf(y | ...)``; None for other nodes."""
    match node:
        case Tilde(left, Call(name, arguments)):
            return Density(name, left, arguments)
        case Call(name, (left, *arguments)) if name.endswith(_DENSITIES):
            return Density(name.rpartition("_")[0], left, tuple(arguments))
    return None


def added_density(statement: Statement) -> Density | None:
    """Return the density that a statement adds and nothing else; None for other statements and truncated densities."""
    match statement:
        case Tilde(_, _, ()):
            return density_of(statement)
        case Target(expression):
            return density_of(expression)
    return None


def substituted(node: N, given: Mapping[str, Expression]) -> N:
    """Return a node with expressions in place of variables; those that it declares or loops over get these as names."""

    def value(one: Node) -> Node | None:
        match one:
            case Name(name):
                return given.get(name)
            case Declaration(name=own) if own in given:
                return changed(replace(one, name=str(given[own])), value)
            case For(variable=own) | ForEach(variable=own) if own in given:
                return changed(replace(one, variable=str(given[own])), value)
        return None

    return changed(node, value)


def writes(*nodes: Node) -> set[str]:
    """Return the variables that statements declare or assign."""
    found: set[str] = set()
    for one in find(Statement, nodes):
        if isinstance(one, Declaration):
            found.add(one.name)
        elif isinstance(one, Assign):
            found.update(one.variables)
    return found


def is_carried(statements: Sequence[Statement], variable: str) -> bool:
    """Return whether statements read a variable before they assign it."""
    for one in walk(statements):
        if variable in read_by(one):
            return True
        if isinstance(one, Assign) and variable in one.variables:
            return False
    return False


def read_by(statement: Statement) -> set[str]:
    """Return variables that a statement itself reads, without those of inner statements."""
    added = statement.variables if isinstance(statement, Assign) and statement.operator != "=" else ()
    return names(*(statement.own if statement.bodies else statement.computes)) | set(added)


def shortened(statement: Statement | str, length: int = 60) -> str:
    """Return the text of a statement in one line, for messages."""
    text = " ".join(str(statement).split())
    return text if len(text) <= length else f"{text[: length - 3]}..."
