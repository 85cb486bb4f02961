"""All expressions of a program with their types, to be compared with those of stanc (`decorated`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stansub.stan.reading.typing import COMPLEX, INT, REAL, Types
from stansub.stan.syntax import (
    Assign,
    Declaration,
    Expression,
    For,
    ForEach,
    Group,
    Node,
    Perform,
    Program,
    Slice,
    Statement,
    Tilde,
    UnsizedType,
    name_of,
)


def typed(program: Program) -> Iterator[tuple[Expression, UnsizedType]]:
    """Yield all expressions of a program with their types, each before those in it."""
    scope = dict[str, UnsizedType]()
    for function in program.functions:
        arguments = {one.name: one.type for one in function.arguments}
        yield from _in_statements(program, function.body or (), arguments)
    for block in (program.data, program.transformed_data, program.parameters, program.transformed_parameters):
        yield from _in_statements(program, block.statements, scope)
    for block in (program.model, program.generated_quantities):
        yield from _in_statements(program, block.statements, dict(scope))


def _in_statements(
    program: Program, statements: Sequence[Statement], scope: dict[str, UnsizedType]
) -> Iterator[tuple[Expression, UnsizedType]]:
    """Yield expressions of statements, and add their variables to the scope."""
    types = Types(program, scope)
    for statement in statements:
        for node in _outermost(statement):
            yield from ((one, types.of(one)) for one in _inner(node))
        if isinstance(statement, Declaration):
            scope[statement.name] = statement.type.unsized
        inner = dict(scope)
        if isinstance(statement, For):
            inner[statement.variable] = INT
        elif isinstance(statement, ForEach):
            inner[statement.variable] = _element(types.of(statement.container))
        for body in statement.bodies:
            yield from _in_statements(program, body, dict(inner))


def _element(kind: UnsizedType) -> UnsizedType:
    """The type of a loop's elements over a container; numbers for a matrix."""
    if kind.depth:
        return UnsizedType(kind.base, kind.depth - 1, kind.elements)
    return COMPLEX if kind.base.startswith("complex") else REAL


def _outermost(statement: Statement) -> Iterator[Node]:
    """The outermost expressions of a statement, without the name of a distribution, or nodes that contain them."""
    if isinstance(statement, Tilde):
        yield from (statement.left, *statement.distribution.arguments)
        yield from (one for bounds in statement.truncation for one in bounds.items if not isinstance(one, Slice))
    elif isinstance(statement, Assign) and isinstance(statement.place, Group):
        yield from (one for one in statement.place.items if name_of(one))
        yield statement.expression
    elif isinstance(statement, Perform):  # it has no value
        yield from statement.call.arguments
    else:
        yield from statement.own


def _inner(node: Node) -> Iterator[Expression]:
    return (one for one in node.inner() if isinstance(one, Expression) and not isinstance(one, Slice))
