"""Stan expressions: operators, calls and indices with their operands.

Expressions are equal if their content is equal, whatever their position.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from stansub.stan.syntax.nodes import Node
from stansub.stan.syntax.tokens import NOWHERE, Span

CLOSING = {"(": ")", "{": "}", "[": "]"}
# Precedence of operators; all except powers are left-associative.
BINDING = {
    operator: level
    for level, operators in enumerate(
        ("?", "||", "&&", "== !=", "< <= > >=", "+ -", "* / % .* ./", "\\ %/%", "PREFIX", "^ .^"), start=1
    )
    for operator in operators.split()
}
_TIGHTEST = max(BINDING.values()) + 1
# Of the ends of ranges, which contain no choices, and of bounds, whose list a greater-than sign ends.
RANGE, BOUND = BINDING["||"], BINDING["+"]
# Operators of products and quotients.
QUOTIENTS = ("/", "./")
PRODUCTS = ("*", ".*", *QUOTIENTS)


@dataclass(frozen=True)
class Expression(Node):
    """An expression; its string equals stanc's output."""

    span: Span = field(default=NOWHERE, compare=False, repr=False, kw_only=True)

    @property
    def binding(self) -> int:
        """Precedence of its outermost operator."""
        return _TIGHTEST

    def within(self, binding: int) -> str:
        """Return its text as an operand, in parentheses if precedence requires them."""
        return str(self) if self.binding >= binding else f"({self})"


@dataclass(frozen=True)
class Name(Expression):
    """A variable, or a function passed as an argument."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Literal(Expression):
    """A number or a string."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Call(Expression):
    """A call ``name(arguments)``; the first argument of a density is followed by a bar."""

    name: str
    arguments: tuple[Expression, ...]
    bar: bool = False

    def __str__(self) -> str:
        first, rest = self.arguments[:1], self.arguments[1:]
        if self.bar:
            return f"{self.name}({first[0]} | {', '.join(map(str, rest))})"
        return f"{self.name}({', '.join(map(str, self.arguments))})"


@dataclass(frozen=True)
class Slice(Expression):
    """An index that keeps its dimension: ``lower : upper``, both of which are optional."""

    lower: Expression | None = None
    upper: Expression | None = None

    def __str__(self) -> str:
        return " : ".join("" if end is None else end.within(RANGE) for end in (self.lower, self.upper)).strip() or ":"

    @property
    def is_whole(self) -> bool:
        """Whether it selects all elements."""
        return self.lower is None and self.upper is None


@dataclass(frozen=True)
class Subscript(Expression):
    """``base[indices]``."""

    base: Expression
    indices: tuple[Expression, ...]

    def __str__(self) -> str:
        return f"{self.base.within(_TIGHTEST)}[{', '.join(map(str, self.indices))}]"


@dataclass(frozen=True)
class Member(Expression):
    """``base.number``, a part of a tuple."""

    base: Expression
    number: int

    def __str__(self) -> str:
        return f"{self.base.within(_TIGHTEST)}.{self.number}"


@dataclass(frozen=True)
class Prefix(Expression):
    """``-x``, ``!x`` or ``+x``."""

    operator: str
    operand: Expression

    @property
    def binding(self) -> int:
        return BINDING["PREFIX"]

    def __str__(self) -> str:
        return f"{self.operator}{self.operand.within(self.binding)}"


@dataclass(frozen=True)
class Transpose(Expression):
    """``x'``."""

    operand: Expression

    def __str__(self) -> str:
        return f"{self.operand.within(_TIGHTEST)}'"


@dataclass(frozen=True)
class Infix(Expression):
    """``left operator right``."""

    operator: str
    left: Expression
    right: Expression

    @property
    def binding(self) -> int:
        return BINDING[self.operator]

    def __str__(self) -> str:
        from_right = self.operator in ("^", ".^")
        # The exponent may begin with a sign: a ^ -b.
        exponent = from_right and isinstance(self.right, Prefix)
        left = self.left.within(self.binding + from_right)
        right = str(self.right) if exponent else self.right.within(self.binding + (not from_right))
        return f"{left} {self.operator} {right}"


@dataclass(frozen=True)
class Choice(Expression):
    """``condition ? then : orelse``."""

    condition: Expression
    then: Expression
    orelse: Expression

    @property
    def binding(self) -> int:
        return BINDING["?"]

    def __str__(self) -> str:
        condition, then = (one.within(self.binding + 1) for one in (self.condition, self.then))
        return f"{condition} ? {then} : {self.orelse}"


@dataclass(frozen=True)
class Group(Expression):
    """An array ``{x, y}``, a row vector ``[x, y]`` or a tuple ``(x, y)``."""

    opening: str
    items: tuple[Expression, ...]

    def __str__(self) -> str:
        return f"{self.opening}{', '.join(map(str, self.items))}{CLOSING[self.opening]}"


def name_of(expression: Expression) -> str:
    """Return the variable that an expression is or is a part of; empty for other expressions."""
    while isinstance(expression, Subscript | Member):
        expression = expression.base
    return expression.name if isinstance(expression, Name) else ""


def summands(expression: Expression, sign: int = 1) -> Iterator[tuple[int, Expression]]:
    """Yield the terms of a sum with their signs; another expression is its only term."""
    match expression:
        case Infix("+" | "-" as operator, left, right):
            yield from summands(left, sign)
            yield from summands(right, -sign if operator == "-" else sign)
        case Prefix("+" | "-" as operator, operand):
            yield from summands(operand, -sign if operator == "-" else sign)
        case _:
            yield sign, expression


class Factor(NamedTuple):
    """A factor or divisor of a product."""

    expression: Expression
    divides: bool


def factors_of(expression: Expression, *, divides: bool = False) -> Iterator[Factor]:
    """Yield the factors and divisors of a product; another expression is its only factor."""
    if isinstance(expression, Infix) and expression.operator in PRODUCTS:
        yield from factors_of(expression.left, divides=divides)
        yield from factors_of(expression.right, divides=divides != (expression.operator in QUOTIENTS))
    else:
        yield Factor(expression, divides)


def flat(expression: Expression) -> tuple[Expression, tuple[Expression, ...]]:
    """Return the base of a subscript and its indices: ``x[i][j]`` is ``x[i, j]`` unless i is a slice."""
    if not isinstance(expression, Subscript):
        return expression, ()
    base, indices = flat(expression.base)
    if any(isinstance(one, Slice) for one in indices):
        return expression.base, expression.indices
    return base, (*indices, *expression.indices)
