"""Values of the elements of variables that loops compute one by one, such as ``mu[i, j] = a[i] + b[j];``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from stansub.stan.syntax import (
    Assign,
    Braces,
    Declaration,
    Expression,
    For,
    Name,
    Node,
    Profile,
    Program,
    Statement,
    Subscript,
    changed,
    find,
    flat,
    names,
    placed,
    substituted,
)


@dataclass(frozen=True)
class ElementValue:
    """The value of any element of a variable."""

    places: tuple[str, ...]
    """Variables of loops that index the variable, in order."""
    value: Expression
    """The value, which may read these."""

    def at(self, indices: Sequence[Expression]) -> Expression:
        """Return the value of an element."""
        return substituted(self.value, dict(zip(self.places, indices, strict=True)))


@lru_cache(maxsize=64)
def element_values(program: Program) -> Mapping[str, ElementValue]:
    """Return the values of variables of which one statement computes all elements, each once.

    Values read nothing that changes afterwards, and only variables that are known wherever the variable is.
    """
    everything = list(placed(program.evaluated))
    assigned: dict[str, list[tuple[Assign, tuple[Statement, ...]]]] = {}
    for one, around in everything:
        if isinstance(one, Assign):
            for name in one.variables:
                assigned.setdefault(name, []).append((one, around))
    scopes = {one.name: around for one, around in everything if isinstance(one, Declaration) and one.value is None}
    found: dict[str, ElementValue] = {}
    for one, around in everything:
        if isinstance(one, Assign) and len(one.variables) == 1 and len(assigned[one.variables[0]]) == 1:
            name = one.variables[0]
            value = _value(one, around[len(scopes[name]) :], found, assigned) if name in scopes else None
            if value is not None:
                found[name] = value
    return found


def _value(
    one: Assign,
    inside: tuple[Statement, ...],
    known: Mapping[str, ElementValue],
    assigned: Mapping[str, list[tuple[Assign, tuple[Statement, ...]]]],
) -> ElementValue | None:
    """Return the value of the elements that a statement assigns; None if they may have another value later.

    ``inside`` has the statements around it in which its variable is known.
    """
    base, indices = flat(one.place)
    loops = [loop for loop in inside if isinstance(loop, For)]
    places = tuple(index.name for index in indices if isinstance(index, Name))
    if one.operator != "=" or not isinstance(base, Name) or len(places) < len(indices) or not places:
        return None
    if sorted(places) != sorted(loop.variable for loop in loops):
        return None
    if not all(isinstance(loop, For | Braces | Profile) for loop in inside):
        return None
    value = one.expression
    local = {each.name: each for each in find(Declaration, inside)}
    while own := names(value) & set(local):
        if any(local[name].value is None or name in assigned for name in own):
            return None
        value = substituted(value, {name: local[name].value for name in own})  # type: ignore[misc]
    outermost = inside[0].span
    for name in names(value) & set(assigned):
        is_settled = all(other.span.end <= outermost.start for other, _ in assigned[name])
        if name == base.name or not (is_settled or name in known):
            return None
    return ElementValue(places, value)


def with_values(node: Statement, program: Program, places: set[str]) -> Statement:
    """Return a statement with the values of elements at several of some places, such as those of a table's cells."""
    values = element_values(program)

    def value(one: Node) -> Node | None:
        if isinstance(one, Assign):
            return replace(one, expression=changed(one.expression, value))
        if not isinstance(one, Subscript):
            return None
        base, indices = flat(one)
        computed = values.get(base.name) if isinstance(base, Name) else None
        at = {index.name for index in indices if isinstance(index, Name)} & places
        if computed is None or len(indices) != len(computed.places) or len(at) < 2:
            return None
        return changed(computed.at(indices), value)

    return changed(node, value)
