"""Parser of Stan programs: recursive descent, with precedence climbing for expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from typing import NoReturn, TypeVar

from stansub.errors import InputError
from stansub.stan.syntax.expressions import (
    BINDING,
    BOUND,
    CLOSING,
    Call,
    Choice,
    Expression,
    Group,
    Infix,
    Literal,
    Member,
    Name,
    Prefix,
    Slice,
    Subscript,
    Transpose,
)
from stansub.stan.syntax.program import BLOCKS, Argument, Block, Function, Program
from stansub.stan.syntax.statements import (
    Assign,
    Braces,
    Declaration,
    Empty,
    For,
    ForEach,
    If,
    Jacobian,
    Jump,
    Perform,
    Profile,
    Return,
    Statement,
    Target,
    Tilde,
    While,
)
from stansub.stan.syntax.tokens import NOWHERE, Span, Token, tokenize
from stansub.stan.syntax.types import Bound, SizedType, UnsizedType

T = TypeVar("T")

TYPES = frozenset(
    word
    for line in (
        "int real complex vector row_vector matrix complex_vector complex_row_vector complex_matrix array tuple",
        "ordered positive_ordered simplex unit_vector sum_to_zero_vector sum_to_zero_matrix",
        "column_stochastic_matrix row_stochastic_matrix cholesky_factor_corr cholesky_factor_cov",
        "corr_matrix cov_matrix",
    )
    for word in line.split()
)
_ASSIGNMENTS = ("=", "+=", "-=", "*=", "/=", ".*=", "./=", "<-")


def parse(code: str) -> Program:
    """Parse a program in canonical form (`stansub.stan.toolchain.stanc`); InputError if the text is no such program."""
    return _Parser(code).program()


def parse_expression(text: str) -> Expression:
    """Parse an expression; InputError if the text cannot be parsed."""
    return _Parser(text).alone(_Parser.expression, "an expression")


def parse_types(text: str) -> tuple[UnsizedType, ...]:
    """Parse comma-separated types of arguments."""
    return _Parser(f"{text})").alone(lambda parser: parser.listed(_Parser.unsized_type, ")"), "types")


class _Parser:
    def __init__(self, code: str) -> None:
        self.code = code
        self.tokens = tokenize(code)
        self.at = 0

    def alone(self, read: Callable[[_Parser], T], what: str) -> T:
        """Read the whole text."""
        found = read(self)
        if self.at < len(self.tokens):
            raise InputError(f"not {what}: {self.code}")
        return found

    # --- blocks and functions -------------------------------------------------------------------------------------

    def program(self) -> Program:
        blocks: dict[str, Block] = {}
        functions: tuple[Function, ...] = ()
        while self.at < len(self.tokens):
            start = self.here
            words = []
            while not self.sees("{"):
                words.append(self.take().text)
            name = "_".join(words)
            if name not in ("functions", *BLOCKS):
                raise InputError(f"the Stan program has an unknown block: {name}")
            opening = self.take().span
            statements: tuple[Statement, ...] = ()
            if name == "functions":
                functions = tuple(self.functions())
            else:
                statements = self.body()
            closing = self.take("}").span
            blocks["functions_block" if name == "functions" else name] = Block(
                statements, Span(start, closing.end), Span(opening.end, closing.start)
            )
        return Program(self.code, functions, **blocks)

    def functions(self) -> Iterator[Function]:
        while not self.sees("}"):
            start = self.here
            kind = self.unsized_type()
            name = self.take().text
            self.take("(")
            arguments = self.listed(_Parser.argument, ")")
            body = None if self.skips(";") else self.nested()
            yield Function(name, kind, arguments, body, self.since(start))

    def argument(self) -> Argument:
        data_only = self.skips("data")
        kind = self.unsized_type()
        return Argument(self.take().text, kind, data_only)

    def unsized_type(self) -> UnsizedType:
        depth = 0
        if self.skips("array"):
            self.take("[")
            depth = 1
            while not self.skips("]"):
                self.take(",")
                depth += 1
        base = self.take().text
        elements: tuple[UnsizedType, ...] = ()
        if base == "tuple":
            self.take("(")
            elements = self.listed(_Parser.unsized_type, ")")
        return UnsizedType(base, depth, elements)

    # --- statements -----------------------------------------------------------------------------------------------

    def body(self) -> tuple[Statement, ...]:
        """Read statements up to a closing brace, which is not consumed."""
        statements: list[Statement] = []
        while self.at < len(self.tokens) and not self.sees("}"):
            statements += self.statement()
        return tuple(statements)

    def nested(self) -> tuple[Statement, ...]:
        """Read the body of a loop or branch, with or without braces."""
        if not self.skips("{"):
            return tuple(self.statement())
        body = self.body()
        self.take("}")
        return body

    def statement(self) -> Sequence[Statement]:
        """Read a statement, or the several variables of a declaration."""
        start = self.here
        found = list(self.declarations()) if self.word in TYPES else [self.single()]
        return [replace(one, span=self.since(start)) for one in found]

    def single(self) -> Statement:
        match self.word:
            case ";":
                self.take()
                return Empty()
            case "{" if not self.opens_array():
                return Braces(self.nested())
            case "profile":
                return Profile(self.in_parentheses(), self.nested())
            case "while":
                return While(self.in_parentheses(), self.nested())
            case "if":
                return If(self.in_parentheses(), self.nested(), self.nested() if self.skips("else") else ())
            case "for":
                return self.loop()
        found = self.simple()
        self.take(";")
        return found

    def opens_array(self) -> bool:
        """Tell whether the next brace opens an array that has a distribution, as in ``{a, b} ~ normal(0, 1);``."""
        depth = 0
        for token, after in pairwise(islice(self.tokens, self.at, None)):
            depth += (token.text == "{") - (token.text == "}")
            if depth == 0:
                return after.text == "~"
        return False

    def in_parentheses(self) -> Expression:
        self.take()
        self.take("(")
        found = self.expression()
        self.take(")")
        return found

    def loop(self) -> Statement:
        self.take()
        self.take("(")
        variable = self.take().text
        self.take("in")
        first = self.index()
        self.take(")")
        body = self.nested()
        if not isinstance(first, Slice):
            return ForEach(variable, first, body)
        if first.lower is None or first.upper is None:
            self.fail("a bound of the loop")
        return For(variable, first.lower, first.upper, body)

    def simple(self) -> Statement:
        """Read a statement that ends with a semicolon, without that."""
        word = self.word
        if word in ("break", "continue"):
            return Jump(self.take().text)
        if word == "return":
            self.take()
            return Return(None if self.sees(";") else self.expression())
        if word in ("target", "jacobian") and self.next_word == "+=":
            self.take()
            self.take()
            return (Target if word == "target" else Jacobian)(self.expression())
        place = self.expression()
        if self.skips("~"):
            return self.sampling(place)
        if self.word in _ASSIGNMENTS:
            return Assign(place, self.take().text, self.expression())
        if not isinstance(place, Call):
            self.fail("a statement")
        return Perform(place)

    def sampling(self, left: Expression) -> Statement:
        distribution = self.expression()
        if not isinstance(distribution, Call):
            self.fail("a distribution")
        truncation = list[Group]()
        if self.word == "T":
            self.take()
            first = self.here
            self.take("[")
            bounds = self.listed(_Parser.index, "]", gaps=True)
            truncation.append(Group("[", bounds, span=self.since(first)))
        return Tilde(left, distribution, tuple(truncation))

    def declarations(self) -> Iterator[Declaration]:
        kind = self.sized_type()
        while True:
            name = self.take().text
            yield Declaration(kind, name, self.expression() if self.skips("=") else None)
            if not self.skips(","):
                break
        self.take(";")

    def sized_type(self) -> SizedType:
        array_dims: tuple[Expression, ...] = ()
        if self.skips("array"):
            self.take("[")
            array_dims = self.listed(_Parser.expression, "]")
        base = self.take().text
        elements: tuple[SizedType, ...] = ()
        if base == "tuple":
            self.take("(")
            elements = self.listed(_Parser.sized_type, ")")
        bounds = self.listed(_Parser.bound, ">") if self.skips("<") else ()
        dims = self.listed(_Parser.expression, "]") if self.skips("[") else ()
        return SizedType(array_dims, base, elements, bounds, dims)

    def bound(self) -> Bound:
        kind = self.take().text
        self.take("=")
        return Bound(kind, self.expression(BOUND))

    # --- expressions ----------------------------------------------------------------------------------------------

    def expression(self, least: int = 1) -> Expression:
        start = self.here
        left = self.operand()
        while self.at < len(self.tokens):
            operator = self.word
            level = BINDING.get(operator, 0) if self.tokens[self.at].kind == "mark" else 0
            if level < max(least, 1):
                break
            self.at += 1
            if operator == "?":
                then = self.expression()
                self.take(":")
                orelse = self.expression()
                left = Choice(left, then, orelse, span=self.since(start))
            else:
                right = self.expression(level + (operator not in ("^", ".^")))
                left = Infix(operator, left, right, span=self.since(start))
        return left

    def operand(self) -> Expression:
        start, token = self.here, self.take()
        if token.kind == "mark" and token.text in "-+!":
            operand = self.expression(BINDING["PREFIX"])
            return Prefix(token.text, operand, span=self.since(start))
        if token.kind == "mark" and token.text in CLOSING:
            items = self.listed(_Parser.expression, CLOSING[token.text])
            # Parentheses are printed where precedence requires them; several items are a tuple.
            is_group = token.text != "(" or len(items) > 1
            found: Expression = Group(token.text, items, span=self.since(start)) if is_group else items[0]
        elif token.kind == "mark":
            self.at -= 1
            self.fail("an expression")
        elif token.kind == "name" and self.skips("("):
            found = self.call(token.text, start)
        elif token.kind == "name":
            found = Name(token.text, span=token.span)
        else:
            found = Literal(token.text, span=token.span)
        while self.at < len(self.tokens):
            if self.skips("["):
                indices = self.listed(_Parser.index, "]", gaps=True)
                found = Subscript(found, indices, span=self.since(start))
            elif self.skips("'"):
                found = Transpose(found, span=self.since(start))
            elif self.tokens[self.at].kind == "number" and self.word.startswith("."):
                number = int(self.take().text[1:])
                found = Member(found, number, span=self.since(start))
            else:
                break
        return found

    def call(self, name: str, start: int) -> Expression:
        arguments = self.listed(_Parser.expression, ")", "|")
        bar = self.tokens[self.at - 1].text == "|"
        if bar:
            arguments += self.listed(_Parser.expression, ")")
        return Call(name, arguments, bar, span=self.since(start))

    def index(self) -> Expression:
        start = self.here
        lower = None if self.sees(":", ",", "]") else self.expression()
        if not self.skips(":"):
            return Slice(span=Span(start, start)) if lower is None else lower
        upper = None if self.sees(",", "]", ")") or self.at == len(self.tokens) else self.expression()
        return Slice(lower, upper, span=self.since(start))

    # --- words ----------------------------------------------------------------------------------------------------

    def listed(self, read: Callable[[_Parser], T], *closing: str, gaps: bool = False) -> tuple[T, ...]:
        """Read a comma-separated list and its closing bracket; with ``gaps`` items may be empty."""
        if not gaps and self.skips(*closing):
            return ()
        found = [read(self)]
        while not self.skips(*closing):
            self.take(",")
            found.append(read(self))
        return tuple(found)

    @property
    def here(self) -> int:
        """Offset of the next token."""
        return self.tokens[self.at].span.start if self.at < len(self.tokens) else len(self.code)

    @property
    def word(self) -> str:
        """The next word; nothing at the end."""
        return self.tokens[self.at].text if self.at < len(self.tokens) else ""

    @property
    def next_word(self) -> str:
        """The token after the next."""
        return self.tokens[self.at + 1].text if self.at + 1 < len(self.tokens) else ""

    def sees(self, *texts: str) -> bool:
        return self.at < len(self.tokens) and self.tokens[self.at].text in texts

    def skips(self, *texts: str) -> bool:
        """Skip the next token if it is one of the given ones."""
        found = self.sees(*texts)
        self.at += found
        return found

    def take(self, text: str | None = None) -> Token:
        if self.at >= len(self.tokens) or (text is not None and not self.sees(text)):
            self.fail(f"'{text}'" if text else "more text")
        self.at += 1
        return self.tokens[self.at - 1]

    def since(self, start: int) -> Span:
        return Span(start, self.tokens[self.at - 1].span.end) if self.at else NOWHERE

    def fail(self, expected: str) -> NoReturn:
        line = self.code.count("\n", 0, self.here) + 1
        raise InputError(f"line {line} of the canonical Stan program: expected {expected}")
