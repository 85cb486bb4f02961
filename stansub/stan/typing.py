"""Types of expressions, and whether they depend on parameters.

Variables have the type of their declaration. Operators and calls have that of the signature, of Stan's library
(`stansub.stan.signatures`) or of the user's functions, that their arguments fit with the fewest promotions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stansub.stan.recognise import normalised
from stansub.stan.signatures import Signature, of_library
from stansub.stan.syntax import (
    Assign,
    Call,
    Choice,
    Declaration,
    Expression,
    For,
    ForEach,
    Function,
    Group,
    Infix,
    Literal,
    Member,
    Name,
    Node,
    Perform,
    Prefix,
    Program,
    Slice,
    Statement,
    Subscript,
    Tilde,
    Transpose,
    UnsizedType,
    name_of,
)

INT, REAL, COMPLEX = (UnsizedType(base) for base in ("int", "real", "complex"))
VECTOR, ROW_VECTOR, MATRIX, VOID = (UnsizedType(base) for base in ("vector", "row_vector", "matrix", "void"))
UNKNOWN = UnsizedType("unknown")

_OPERATORS = {
    "+": "add",
    "-": "subtract",
    "*": "multiply",
    "/": "divide",
    "\\": "mdivide_left",
    "%": "modulus",
    "%/%": "divide",
    ".*": "elt_multiply",
    "./": "elt_divide",
    "^": "pow",
    ".^": "pow",
}
_TURNED = {"vector": "row_vector", "row_vector": "vector"}
_PROMOTIONS = {("int", "real"): 1, ("int", "complex"): 2, ("real", "complex"): 1} | {
    (base, f"complex_{base}"): 1 for base in ("vector", "row_vector", "matrix")
}


class Typed(NamedTuple):
    """The type of an expression, and whether it is data, that is, contains no parameter."""

    type: UnsizedType
    is_data: bool


@dataclass
class Types:
    """Types of the expressions of a program, by position.

    Attributes
    ----------
    signatures : callable
        From the name of a library function to its signatures.
    """

    program: Program
    signatures: Callable[[str], Sequence[Signature]] = of_library
    _found: dict[Node, Typed] = field(default_factory=dict, init=False)

    def of(self, expression: Expression, scope: Scope) -> Typed:
        """Return the type of an expression in a scope; ``unknown`` if a function is not known."""
        match expression:
            case Name(name):
                return scope.get(name, Typed(UNKNOWN, True))
            case Literal(text):
                return Typed(_of_literal(text), True)
            case Call(name, arguments):
                return self._call(name, [self.of(one, scope) for one in arguments])
            case Infix(operator, left, right):
                return self._operation(operator, self.of(left, scope), self.of(right, scope))
            case Prefix(operator, operand):
                inner = self.of(operand, scope)
                return Typed(INT if operator == "!" else inner.type, inner.is_data)
            case Transpose(operand):
                inner = self.of(operand, scope)
                return inner._replace(type=_based(inner.type, _TURNED))
            case Choice(condition, then, orelse):
                parts = [self.of(one, scope) for one in (condition, then, orelse)]
                return Typed(_common([one.type for one in parts[1:]]), all(one.is_data for one in parts))
            case Subscript(base, indices):
                return self._subscript(self.of(base, scope), indices, scope)
            case Member(base, number):
                inner = self.of(base, scope)
                elements = inner.type.elements
                return Typed(elements[number - 1] if number <= len(elements) else UNKNOWN, inner.is_data)
            case Group(opening, items):
                return _group(opening, [self.of(one, scope) for one in items])
        return Typed(UNKNOWN, True)

    def walk(self) -> Iterator[tuple[Expression, Typed]]:
        """Yield all expressions of the program with their types, each before those in it."""
        program, scope = self.program, dict[str, Typed]()
        for function in program.functions:
            if function.body is not None:
                yield from self._statements(function.body, _arguments(function), is_data=False)
        for block, is_data in (
            (program.data, True),
            (program.transformed_data, True),
            (program.parameters, False),
            (program.transformed_parameters, False),
        ):
            yield from self._statements(block.statements, scope, is_data=is_data)
        yield from self._statements(program.model.statements, dict(scope), is_data=False)
        yield from self._statements(program.generated_quantities.statements, dict(scope), is_data=True)

    def _statements(
        self, statements: Sequence[Statement], scope: Scope, *, is_data: bool
    ) -> Iterator[tuple[Expression, Typed]]:
        """Yield expressions of statements, and add their variables to the scope."""
        for statement in statements:
            for node in _expressions(statement):
                yield from self._expression(node, scope)
            if isinstance(statement, Declaration):
                kind = statement.type.unsized
                scope[statement.name] = Typed(kind, is_data or is_integer(kind))
            inner = scope
            if isinstance(statement, For):
                inner = {**scope, statement.variable: Typed(INT, True)}
            elif isinstance(statement, ForEach):
                container = self.of(statement.container, scope)
                inner = {**scope, statement.variable: container._replace(type=element_of(container.type))}
            for body in statement.bodies:
                yield from self._statements(body, dict(inner), is_data=is_data)

    def _expression(self, expression: Expression, scope: Scope) -> Iterator[tuple[Expression, Typed]]:
        if not isinstance(expression, Slice):
            yield expression, self.of(expression, scope)
        for part in expression.parts:
            assert isinstance(part, Expression)
            yield from self._expression(part, scope)

    def _call(self, name: str, given: Sequence[Typed]) -> Typed:
        is_data = all(one.is_data for one in given)
        types = [one.type for one in given]
        own = [one for one in self.program.functions if one.name == name or one.name == normalised(name)]
        signatures = [Signature(tuple(a.type for a in one.arguments), one.return_type) for one in own]
        found = best(signatures or self.signatures(normalised(name)), types)
        if found is None and name == "target":
            return Typed(REAL, False)
        if found is None and (kind := _VARIADIC.get(name)):
            return Typed(kind, is_data)
        kind = UNKNOWN if found is None else found
        return Typed(kind, is_data or is_integer(kind))

    def _operation(self, operator: str, left: Typed, right: Typed) -> Typed:
        is_data = left.is_data and right.is_data
        if operator not in _OPERATORS:  # comparisons and logic
            return Typed(INT, is_data)
        if operator == "/" and right.type.base in ("matrix", "complex_matrix"):
            name = "mdivide_right"
        else:
            name = _OPERATORS[operator]
        return Typed(best(self.signatures(name), [left.type, right.type]) or UNKNOWN, is_data)

    def _subscript(self, base: Typed, indices: Sequence[Expression], scope: Scope) -> Typed:
        kept, is_data = [], base.is_data
        for index in indices:
            inner = Typed(UNKNOWN, True) if isinstance(index, Slice) else self.of(index, scope)
            kept.append(isinstance(index, Slice) or inner.type.depth > 0)
            is_data = is_data and inner.is_data
        return Typed(indexed(base.type, kept), is_data)


Scope = dict[str, Typed]


def is_integer(kind: UnsizedType) -> bool:
    """Return whether values of a type are integers, whose derivatives are 0."""
    return kind.base == "int"


def element_of(kind: UnsizedType) -> UnsizedType:
    """Return the type of a loop's elements over a container; numbers for a matrix."""
    if kind.depth:
        return UnsizedType(kind.base, kind.depth - 1, kind.elements)
    return COMPLEX if kind.base.startswith("complex") else REAL


def indexed(kind: UnsizedType, kept: Sequence[bool]) -> UnsizedType:
    """Return the type of a part of a variable.

    Parameters
    ----------
    kept : sequence of bool
        For each index, whether it takes several elements.
    """
    of_array, inner = kept[: kind.depth], list(kept[kind.depth :])
    depth = kind.depth - len(of_array) + sum(of_array)
    prefix, scalar = ("complex_", "complex") if kind.base.startswith("complex") else ("", "real")
    if not inner:
        return UnsizedType(kind.base, depth, kind.elements)
    if kind.base.endswith("matrix"):
        rows, columns = [*inner, True][:2]
        base = {(True, True): "matrix", (True, False): "vector", (False, True): "row_vector"}.get((rows, columns))
        return UnsizedType(scalar if base is None else prefix + base, depth)
    return UnsizedType(kind.base if inner[0] else scalar, depth)


def best(signatures: Sequence[Signature], given: Sequence[UnsizedType]) -> UnsizedType | None:
    """Return the result type of the signature that takes the arguments with fewest promotions; None without one."""
    fitting: list[tuple[int, int, UnsizedType]] = []
    for one in signatures:
        if len(one.arguments) == len(given):
            costs = [_cost(a, b) for a, b in zip(given, one.arguments, strict=True)]
            if None not in costs:
                fitting.append((sum(cost or 0 for cost in costs), len(fitting), one.returned))
    return min(fitting)[2] if fitting else None


def _cost(given: UnsizedType, wanted: UnsizedType) -> int | None:
    """Return how many promotions lead from one type to another; None if it is impossible."""
    if given.depth != wanted.depth or len(given.elements) != len(wanted.elements):
        return None
    if given.base == wanted.base:
        costs = [_cost(a, b) for a, b in zip(given.elements, wanted.elements, strict=True)]
        return None if None in costs else sum(cost or 0 for cost in costs)
    return _PROMOTIONS.get((given.base, wanted.base))


def _common(types: Sequence[UnsizedType]) -> UnsizedType:
    """Return the type to which all types can be promoted; unknown without one."""
    for kind in types:
        if all(_cost(one, kind) is not None for one in types):
            return kind
    return UNKNOWN


def _group(opening: str, items: Sequence[Typed]) -> Typed:
    is_data, types = all(one.is_data for one in items), [one.type for one in items]
    if opening == "(":
        return Typed(types[0] if len(items) == 1 else UnsizedType("tuple", 0, tuple(types)), is_data)
    if opening == "{":
        inner = _common(types)
        return Typed(UnsizedType(inner.base, inner.depth + 1, inner.elements), is_data)
    prefix = "complex_" if any(one.base.startswith("complex") for one in types) else ""
    of_rows = any(one.base.endswith("row_vector") for one in types)
    return Typed(UnsizedType(prefix + ("matrix" if of_rows else "row_vector")), is_data)


def _based(kind: UnsizedType, bases: dict[str, str]) -> UnsizedType:
    prefix = "complex_" if kind.base.startswith("complex_") else ""
    base = kind.base.removeprefix(prefix)
    return UnsizedType(prefix + bases.get(base, base), kind.depth)


def _of_literal(text: str) -> UnsizedType:
    if text.endswith("i"):
        return COMPLEX
    return INT if text.replace("_", "").isdigit() else UnsizedType("string") if text.startswith('"') else REAL


def _arguments(function: Function) -> Scope:
    return {one.name: Typed(one.type, one.data_only or is_integer(one.type)) for one in function.arguments}


def _expressions(statement: Statement) -> Iterator[Expression]:
    """Yield the outermost expressions of a statement, without the name of a distribution."""
    if isinstance(statement, Tilde):
        yield statement.left
        yield from statement.distribution.arguments
        for bounds in statement.truncation:
            yield from (one for one in bounds.items if not isinstance(one, Slice))
        return
    if isinstance(statement, Assign) and isinstance(statement.place, Group):
        yield from (one for one in statement.place.items if name_of(one))
        yield statement.expression
        return
    if isinstance(statement, Perform):  # it has no value
        yield from statement.call.arguments
        return
    for node in statement.own:
        yield from _outermost(node)


def _outermost(node: Node) -> Iterator[Expression]:
    if isinstance(node, Expression):
        yield node
    else:
        for part in node.parts:
            yield from _outermost(part)


# Functions that take functions and their arguments.
_VARIADIC = {
    "reduce_sum": REAL,
    "reduce_sum_static": REAL,
    **dict.fromkeys(("solve_newton", "solve_powell", "solve_newton_tol", "solve_powell_tol"), VECTOR),
    **dict.fromkeys(
        (f"ode_{solver}{end}" for solver in ("rk45", "bdf", "adams", "ckrk") for end in ("", "_tol")),
        UnsizedType("vector", 1),
    ),
    "ode_adjoint_tol_ctl": UnsizedType("vector", 1),
    "dae": UnsizedType("vector", 1),
    "dae_tol": UnsizedType("vector", 1),
}
