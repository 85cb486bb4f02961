"""Types of expressions.

Variables have the type of their declaration. Operators and calls have that of the signature, of Stan's library as
stanc lists it or of the user's functions, that their arguments fit with the fewest promotions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple

from stansub.stan.syntax import (
    Argument,
    Call,
    Choice,
    Declaration,
    Expression,
    For,
    Group,
    Infix,
    Literal,
    Member,
    Name,
    Node,
    Prefix,
    Program,
    Slice,
    Subscript,
    Transpose,
    UnsizedType,
    find,
    normalised,
    parse_types,
)
from stansub.stan.toolchain import stanc

INT, REAL, COMPLEX = (UnsizedType(base) for base in ("int", "real", "complex"))
VECTOR, ROW_VECTOR, MATRIX = (UnsizedType(base) for base in ("vector", "row_vector", "matrix"))
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
_PROMOTIONS = {("int", "real"): 1, ("int", "complex"): 2, ("real", "complex"): 1} | {
    (base, f"complex_{base}"): 1 for base in ("vector", "row_vector", "matrix")
}


class Signature(NamedTuple):
    """Argument and return types of a function."""

    arguments: tuple[UnsizedType, ...]
    returned: UnsizedType


@cache
def of_library(name: str) -> tuple[Signature, ...]:
    """Return the signatures of a function of Stan's library; empty if it is unknown."""
    return tuple(map(_read, _lines().get(name, ())))


@cache
def _lines() -> dict[str, list[str]]:
    """Return the signatures in stanc's list, by name, without functions that take functions."""
    found: dict[str, list[str]] = {}
    for line in stanc.signatures().splitlines():
        name, bracket, rest = line.partition("(")
        if bracket and rest.count("=>") == 1:
            found.setdefault(name, []).append(rest)
    return found


def _read(line: str) -> Signature:
    arguments, _, returned = line.rpartition(") => ")
    return Signature(parse_types(arguments.replace("data ", "")), parse_types(returned)[0])


@dataclass(frozen=True)
class Types:
    """Types of the expressions of a program, given those of its variables."""

    program: Program
    scope: Mapping[str, UnsizedType]

    def is_number(self, expression: Expression) -> bool:
        """Return whether an expression is a single integer or real number."""
        return self.of(expression) in (INT, REAL)

    def is_outer(self, one: Infix) -> bool:
        """Return whether an expression is the product of a vector and a row vector, a matrix."""
        return one.operator == "*" and self.of(one.left) == VECTOR and self.of(one.right) == ROW_VECTOR

    def of(self, expression: Expression) -> UnsizedType:
        """Return the type of an expression; ``unknown`` if a function is not known."""
        match expression:
            case Name(name):
                return self.scope.get(name, UNKNOWN)
            case Literal(text):
                return _of_literal(text)
            case Call(name, arguments):
                return self._call(name, [self.of(one) for one in arguments])
            case Infix(operator, left, right):
                return _operation(operator, self.of(left), self.of(right))
            case Prefix(operator, operand):
                return INT if operator == "!" else self.of(operand)
            case Transpose(operand):
                return _turned(self.of(operand))
            case Choice(_, then, orelse):
                return _common([self.of(then), self.of(orelse)])
            case Subscript(base, indices):
                kept = [isinstance(one, Slice) or self.of(one).depth > 0 for one in indices]
                return indexed(self.of(base), kept)
            case Member(base, number):
                elements = self.of(base).elements
                return elements[number - 1] if number <= len(elements) else UNKNOWN
            case Group(opening, items):
                return _group(opening, [self.of(one) for one in items])
        return UNKNOWN

    def _call(self, name: str, given: Sequence[UnsizedType]) -> UnsizedType:
        own = [one for one in self.program.functions if one.name == name or one.name == normalised(name)]
        signatures = [Signature(tuple(a.type for a in one.arguments), one.return_type) for one in own]
        return best(signatures or of_library(normalised(name)), given) or _of_variadic(name)


@lru_cache(maxsize=64)
def types_anywhere(program: Program) -> Types:
    """Return the types of expressions anywhere in a program; names declared with several types are unknown."""
    return _declared(program, [program], [one for function in program.functions for one in function.arguments])


@lru_cache(maxsize=64)
def types_in_blocks(program: Program) -> Types:
    """Return the types of expressions outside its functions, likewise."""
    return _declared(program, [program.transformed_data, program.data, program.parameters, *program.evaluated], ())


def _declared(program: Program, nodes: Sequence[Node], arguments: Sequence[Argument]) -> Types:
    declared = [(one.name, one.type.unsized) for one in find(Declaration, nodes)]
    declared += [(one.variable, INT) for one in find(For, nodes)]
    found: dict[str, set[UnsizedType]] = {}
    for name, kind in (*declared, *((one.name, one.type) for one in arguments)):
        found.setdefault(name, set()).add(kind)
    return Types(program, {name: kinds.pop() for name, kinds in found.items() if len(kinds) == 1})


def _operation(operator: str, left: UnsizedType, right: UnsizedType) -> UnsizedType:
    if operator not in _OPERATORS:  # comparisons and logic
        return INT
    name = _OPERATORS[operator]
    if operator == "/" and right.base in ("matrix", "complex_matrix"):
        name = "mdivide_right"
    return best(of_library(name), [left, right]) or UNKNOWN


def indexed(kind: UnsizedType, kept: Sequence[bool]) -> UnsizedType:
    """Return the type of a part of a variable; ``kept`` says for each index whether it takes several elements."""
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


def _group(opening: str, types: Sequence[UnsizedType]) -> UnsizedType:
    if opening == "(":
        return UnsizedType("tuple", 0, tuple(types))
    if opening == "{":
        inner = _common(types)
        return UnsizedType(inner.base, inner.depth + 1, inner.elements)
    prefix = "complex_" if any(one.base.startswith("complex") for one in types) else ""
    of_rows = any(one.base.endswith("row_vector") for one in types)
    return UnsizedType(prefix + ("matrix" if of_rows else "row_vector"))


def _turned(kind: UnsizedType) -> UnsizedType:
    turned = ("row_vector", "vector") if "row_vector" in kind.base else ("vector", "row_vector")
    return UnsizedType(kind.base.replace(*turned), kind.depth)


def _of_literal(text: str) -> UnsizedType:
    if text.endswith("i"):
        return COMPLEX
    return INT if text.replace("_", "").isdigit() else UnsizedType("string") if text.startswith('"') else REAL


def _of_variadic(name: str) -> UnsizedType:
    """Return the type of a function that takes functions and their arguments, by its name."""
    if name == "target" or name.startswith("reduce_sum"):
        return REAL
    if name.startswith("solve_"):
        return VECTOR
    return UnsizedType("vector", 1) if name.startswith(("ode_", "dae")) else UNKNOWN
