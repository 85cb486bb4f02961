"""Elements of variables that loops compute one by one, such as ``mu[i, j] = a[i] + b[j];``: their values, and their own
variables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from stansub.stan.passes.rewriting import Symbols
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
    outermost,
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
    start = inside[0].span.start
    for name in names(value) & set(assigned):
        is_settled = all(other.span.end <= start for other, _ in assigned[name])
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


def _indices(variable: str, node: Node) -> tuple[Expression, ...] | None:
    """Return the indices of an element of a variable; None for other nodes."""
    base, indices = flat(node) if isinstance(node, Subscript) else (node, ())
    return indices if base == Name(variable) and indices else None


def with_local_elements(
    body: Sequence[Statement], places: tuple[Name, ...], scope: Sequence[Statement], symbols: Symbols
) -> tuple[Statement, ...]:
    """Return the body of nested loops with variables of its own in place of elements that no other run of it uses.

    These are elements at the places of the loops, such as those of ``p`` in ``p[i, j, 1] = 1 - q[i, j];``. ``scope``
    has the declarations of such variables and all statements that can read them, the body included.
    """
    own = dict[str, Declaration]()
    for one in scope:
        if isinstance(one, Declaration) and one.value is None and len(one.all_dims) >= len(places):
            inside = [part for each in body for part in outermost(partial(_indices, one.name), each)]
            mentions = [part for part in find(Name, scope) if part.name == one.name]
            if mentions and len(inside) == len(mentions) and all(at[: len(places)] == places for at in inside):
                own[one.name] = Declaration(one.type.part([None] * len(places)), symbols.fresh(one.name))

    def local(one: Node) -> Node | None:
        base, indices = flat(one) if isinstance(one, Subscript) else (None, ())
        if not isinstance(base, Name) or base.name not in own:
            return None
        name, rest = Name(own[base.name].name), tuple(changed(index, local) for index in indices[len(places) :])
        return Subscript(name, rest) if rest else name

    return (*own.values(), *(changed(one, local) for one in body))
