"""Recursions: loops in which later observations depend on earlier ones through values of the previous iteration."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from stansub.stan.syntax import (
    Assign,
    Declaration,
    For,
    Name,
    Node,
    Subscript,
    names,
    read_by,
    walk,
    writes,
)


class Recursion(NamedTuple):
    """A variable that depends on its own value in the previous iteration."""

    variable: str
    statement: Assign
    """The last statement that changes it."""
    loop: For


def recursions(loop: For) -> list[Recursion]:
    """Return the recursions of a loop; sums that it only adds to do not count.

    Each variable is followed through one iteration: what it depends on from earlier iterations. It is a recursion if
    that leads back to itself.
    """
    before, added = _before(loop), dict[str, set[str]]()
    while added != before:
        added = before
        before = {name: read.union(*(before.get(one, ()) for one in read)) for name, read in before.items()}
    statements = {
        name: one for one in walk(loop.body) if isinstance(one, Assign) for name in one.variables if name in before
    }
    return [Recursion(name, one, loop) for name, one in statements.items() if name in before[name]]


def _before(loop: For) -> dict[str, set[str]]:
    """Return, for each variable that the loop changes, those whose values in earlier iterations it depends on."""
    own = {one.name for one in walk(loop.body) if isinstance(one, Declaration)}
    places: dict[str, set[str]] = {}
    for assigned in walk(loop.body):
        if isinstance(assigned, Assign):
            for name, place in islice(_uses(loop.variable, assigned.place), 1):
                places.setdefault(name, set()).add(place)
    depends: dict[str, set[str]] = {}
    for one in walk(loop.body):
        if not isinstance(one, Assign | Declaration):
            continue
        found: set[str] = set()
        for name, place in _uses(loop.variable, *one.computes):
            is_earlier = name in places and name not in own and place not in places[name] - {""}
            found |= {name} if is_earlier and (place or name not in depends) else depends.get(name, set())
        for name in sorted(writes(one)):
            is_sum = isinstance(one, Assign) and one.operator != "=" and name not in own and "" in places[name]
            others = (each for each in walk(loop.body) if name not in writes(each))
            if is_sum and name not in depends and any(name in read_by(each) for each in others):
                found = found | {name}
            depends[name] = depends.get(name, set()) | found
    return depends


def _uses(variable: str, *nodes: Node) -> Iterator[tuple[str, str]]:
    """Yield variables that nodes read, each with its index by a loop's variable."""
    for node in nodes:
        parts = node.parts
        match node:
            case Name(name):
                yield name, ""
            case Subscript(Name(name), indices):
                yield name, next((str(index) for index in indices if variable in names(index)), "")
                parts = indices
        yield from _uses(variable, *parts)
