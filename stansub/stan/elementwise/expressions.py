"""Stan expressions as trees: what operators, calls and indices apply to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from stansub.errors import InputError
from stansub.stan.syntax import Token, tokenize


@dataclass(frozen=True)
class Word:
    """A name, a number or a string."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Apply:
    """A call ``name(arguments)``; of densities the first argument stands before a bar."""

    name: str
    arguments: tuple[Expression, ...]
    bar: bool

    def __str__(self) -> str:
        first, rest = self.arguments[:1], self.arguments[1:]
        if self.bar:
            return f"{self.name}({first[0]} | {', '.join(map(str, rest))})"
        return f"{self.name}({', '.join(map(str, self.arguments))})"


@dataclass(frozen=True)
class Slice:
    """An index that keeps its dimension: ``lower : upper``, either of which may be left out."""

    lower: Expression | None
    upper: Expression | None

    def __str__(self) -> str:
        return " : ".join("" if end is None else str(end) for end in (self.lower, self.upper)).strip() or ":"

    @property
    def is_whole(self) -> bool:
        """Whether it takes all there is."""
        return self.lower is None and self.upper is None


@dataclass(frozen=True)
class Subscript:
    """``base[indices]``."""

    base: Expression
    indices: tuple[Expression, ...]

    def __str__(self) -> str:
        return f"{self.base}[{', '.join(map(str, self.indices))}]"


@dataclass(frozen=True)
class Prefix:
    """``-x``, ``!x`` or ``+x``."""

    operator: str
    operand: Expression

    def __str__(self) -> str:
        return f"{self.operator}{self.operand}"


@dataclass(frozen=True)
class Transpose:
    """``x'``."""

    operand: Expression

    def __str__(self) -> str:
        return f"{self.operand}'"


@dataclass(frozen=True)
class Infix:
    """``left operator right``."""

    operator: str
    left: Expression
    right: Expression

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


@dataclass(frozen=True)
class Choice:
    """``condition ? then : orelse``."""

    condition: Expression
    then: Expression
    orelse: Expression

    def __str__(self) -> str:
        return f"{self.condition} ? {self.then} : {self.orelse}"


@dataclass(frozen=True)
class Group:
    """``(x)``, an array ``{x, y}``, a row vector ``[x, y]`` or a tuple ``(x, y)``."""

    opening: str
    items: tuple[Expression, ...]

    def __str__(self) -> str:
        return f"{self.opening}{', '.join(map(str, self.items))}{_CLOSING[self.opening]}"


Expression: TypeAlias = Word | Apply | Slice | Subscript | Prefix | Transpose | Infix | Choice | Group

_CLOSING = {"(": ")", "{": "}", "[": "]"}
# How closely operators bind; all are left associative but powers.
_BINDING = {
    operator: level
    for level, operators in enumerate(
        ("||", "&&", "== !=", "< <= > >=", "+ -", "* / % .* ./", "\\ %/%", "PREFIX", "^ .^"), start=2
    )
    for operator in operators.split()
}


def parse_expression(text: str) -> Expression:
    """Parse an expression.

    Raises
    ------
    InputError
        When the text is none.
    """
    parser = _Parser(tokenize(text))
    found = parser.expression()
    if parser.at < len(parser.tokens):
        raise InputError(f"not an expression: {text}")
    return found


def inner(expression: Expression) -> Iterator[Expression]:
    """An expression and all those in it, each before those that it is made of."""
    yield expression
    for part in parts(expression):
        yield from inner(part)


def parts(expression: Expression) -> tuple[Expression, ...]:
    """What an expression is made of."""
    match expression:
        case Apply(_, arguments, _):
            return arguments
        case Slice(lower, upper):
            return tuple(end for end in (lower, upper) if end is not None)
        case Subscript(base, indices):
            return (base, *indices)
        case Prefix(_, operand) | Transpose(operand):
            return (operand,)
        case Infix(_, left, right):
            return left, right
        case Choice(condition, then, orelse):
            return condition, then, orelse
        case Group(_, items):
            return items
        case Word():
            return ()


class _Parser:
    """Precedence climbing."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0

    def expression(self, least: int = 0) -> Expression:
        left = self.operand()
        while self.at < len(self.tokens):
            operator = self.tokens[self.at].text
            level = _BINDING.get(operator, 1 if operator == "?" else -1)
            if level < max(least, 1):
                break
            self.at += 1
            if operator == "?":
                then = self.expression()
                self.take(":")
                left = Choice(left, then, self.expression(1))
            else:
                left = Infix(operator, left, self.expression(level + (operator not in ("^", ".^"))))
        return left

    def operand(self) -> Expression:
        token = self.next()
        if token.kind == "mark" and token.text in "-+!":
            return Prefix(token.text, self.expression(_BINDING["PREFIX"]))
        if token.kind == "mark" and token.text in _CLOSING:
            found: Expression = Group(token.text, self.listed(_CLOSING[token.text]))
        elif token.kind == "mark":
            raise InputError(f"not an expression: unexpected {token.text}")
        elif token.kind == "name" and self.sees("("):
            self.at += 1
            found = self.call(token.text)
        else:
            found = Word(token.text)
        while self.at < len(self.tokens):
            if self.sees("["):
                self.at += 1
                found = Subscript(found, self.listed("]", slices=True))
            elif self.sees("'"):
                self.at += 1
                found = Transpose(found)
            else:
                break
        return found

    def call(self, name: str) -> Expression:
        arguments = list(self.listed(")", "|"))
        bar = self.tokens[self.at - 1].text == "|"
        if bar:
            arguments += self.listed(")")
        return Apply(name, tuple(arguments), bar)

    def listed(self, *closing: str, slices: bool = False) -> tuple[Expression, ...]:
        """Expressions between commas, and the bracket that closes them."""
        found: list[Expression] = []
        if self.sees(*closing) and not slices:
            self.at += 1
            return ()
        while True:
            found.append(self.index() if slices else self.expression())
            if self.sees(*closing):
                self.at += 1
                return tuple(found)
            self.take(",")

    def index(self) -> Expression:
        lower = None if self.sees(":", ",", "]") else self.expression()
        if not self.sees(":"):
            return Slice(None, None) if lower is None else lower
        self.at += 1
        return Slice(lower, None if self.sees(",", "]") else self.expression())

    def sees(self, *texts: str) -> bool:
        return self.at < len(self.tokens) and self.tokens[self.at].text in texts

    def next(self) -> Token:
        if self.at >= len(self.tokens):
            raise InputError("not an expression: it ends too early")
        self.at += 1
        return self.tokens[self.at - 1]

    def take(self, text: str) -> None:
        if self.next().text != text:
            raise InputError(f"not an expression: expected {text}")
