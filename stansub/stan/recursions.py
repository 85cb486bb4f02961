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
    Target,
    Tilde,
    names,
    walk,
    writes,
)


class Recursion(NamedTuple):
    """A variable that depends on its own value in the previous iteration."""

    variable: str
    statement: Assign
    """The last statement that changes it."""
    loop: For


class _Use(NamedTuple):
    """A variable, with its index that contains the loop's variable."""

    name: str
    place: str


def recursions(loop: For) -> list[Recursion]:
    """Return the recursions of a loop; sums that it only adds to do not count.

    Each variable is followed through one iteration: what it depends on from earlier iterations. It is a recursion if
    that leads back to itself.
    """
    before = _before(loop)
    statements = {
        name: one for one in walk(loop.body) if isinstance(one, Assign) for name in one.variables if name in before
    }
    return [Recursion(name, one, loop) for name, one in statements.items() if name in _reachable(before, name)]


def _before(loop: For) -> dict[str, set[str]]:
    """Return, for each variable that the loop changes, those whose values in earlier iterations it depends on."""
    own = {one.name for one in walk(loop.body) if isinstance(one, Declaration)}
    places: dict[str, set[str]] = {}
    for assigned in walk(loop.body):
        if isinstance(assigned, Assign):
            for use in islice(_uses(loop.variable, assigned.place), 1):
                places.setdefault(use.name, set()).add(use.place)
    depends: dict[str, set[str]] = {}
    for one in walk(loop.body):
        if not isinstance(one, Assign | Declaration):
            continue
        found: set[str] = set()
        for use in _uses(loop.variable, *one.computes):
            if use.name in own or use.name not in places or use.place in places[use.name] - {""}:
                found |= depends.get(use.name, set())
            elif use.place or use.name not in depends:
                found.add(use.name)
            else:
                found |= depends[use.name]
        for name in sorted(writes(one)):
            added = isinstance(one, Assign) and one.operator != "=" and name not in own and "" in places[name]
            if added and name not in depends and _is_read(loop, name):
                found = found | {name}
            depends[name] = depends.get(name, set()) | found
    return depends


def _reachable(before: dict[str, set[str]], name: str) -> set[str]:
    found: set[str] = set()
    new = set(before[name])
    while new:
        found |= new
        new = set().union(*(before.get(one, set()) for one in new)) - found
    return found


def _is_read(loop: For, name: str) -> bool:
    """Return whether anything but the statements that change a variable reads it."""
    return any(
        name in {use.name for use in _uses(loop.variable, *one.computes)}
        for one in walk(loop.body)
        if isinstance(one, Target | Tilde | Declaration) or (isinstance(one, Assign) and name not in one.variables)
    )


def _uses(variable: str, *nodes: Node) -> Iterator[_Use]:
    """Yield variables that nodes read, each with its index by a loop's variable."""
    for node in nodes:
        parts = node.parts
        match node:
            case Name(name):
                yield _Use(name, "")
            case Subscript(Name(name), indices):
                ours = [index for index in indices if variable in names(index)]
                yield _Use(name, str(ours[0]) if ours else "")
                parts = indices
        yield from _uses(variable, *parts)
