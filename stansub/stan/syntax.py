"""Stan programs as a tree of statements.

stanc's canonical text (includes resolved, no comments, braces around most bodies, no superfluous parentheses) is cut
into tokens and parsed by recursive descent down to statements. Expressions stay text; `calls` and `names` look into
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, NoReturn, TypeAlias

from stansub.errors import InputError


class Span(NamedTuple):
    """A stretch of text: offsets of its first character and of the one after its last."""

    start: int
    end: int


_NOWHERE = Span(0, 0)


class Token(NamedTuple):
    """A word of the language.

    Attributes
    ----------
    kind : str
        ``name``, ``number``, ``string`` or ``mark`` (operators and punctuation).
    text : str
        The word itself.
    span : Span
        Where it stands.
    """

    kind: str
    text: str
    span: Span


_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/|\#[^\n]*)
      | (?P<string>"[^"\n]*")
      | (?P<number>(?:\d[\d_]*(?:\.\d[\d_]*|\.(?![\^*/']))?|\.\d[\d_]*)(?:[eE][+-]?\d+)?i?)
      | (?P<name>[A-Za-z]\w*)
      | (?P<mark>\.\*=|\./=|%/%|\.\*|\./|\.\^|\+=|-=|\*=|/=|<-|<=|>=|==|!=|&&|\|\||[-+*/%\\^'!<>=~?:,;.|(){}\[\]])""",
    re.VERBOSE | re.DOTALL,
)

_OPEN, _CLOSE = "([{", ")]}"


def tokenize(text: str, start: int = 0, end: int | None = None) -> list[Token]:
    """Words of a Stan text, without white space, comments and ``#include`` lines.

    Raises
    ------
    InputError
        At a character that Stan does not know.
    """
    end = len(text) if end is None else end
    tokens = []
    position = start
    while position < end:
        match = _TOKEN.match(text, position, end)
        if match is None:
            line = text.count("\n", 0, position) + 1
            raise InputError(f"line {line} of the Stan program: unexpected character {text[position]!r}")
        kind = match.lastgroup or ""
        if kind != "skip":
            tokens.append(Token(kind, match.group(), Span(*match.span())))
        position = match.end()
    return tokens


@dataclass(frozen=True)
class Declaration:
    """A variable: ``array[J] vector<lower=0>[K] x = value;``.

    Attributes
    ----------
    name : str
        The variable.
    base : str
        Stan's type name, such as ``int``, ``real``, ``vector``, ``simplex``, ``cholesky_factor_corr`` or ``tuple``.
    array_dims : tuple of str
        Sizes of the array, as Stan expressions.
    dims : tuple of str
        Inner sizes: ``("N", "K")`` for ``matrix[N, K]``.
    constraint : str
        Text between ``<`` and ``>``, or nothing.
    value : str or None
        What it is initialised with.
    span : Span
        The whole statement, which several variables may share.
    elements : tuple of str
        The types in a tuple.
    """

    name: str
    base: str
    array_dims: tuple[str, ...]
    dims: tuple[str, ...]
    constraint: str
    value: str | None
    span: Span
    elements: tuple[str, ...] = ()

    @property
    def all_dims(self) -> tuple[str, ...]:
        """Array sizes, then inner sizes, of which square matrices are declared with one: ``cov_matrix[K]`` is K x K."""
        square = self.base in _SQUARE and len(self.dims) == 1
        return self.array_dims + self.dims * (2 if square else 1)

    @property
    def parts(self) -> tuple[Declaration, ...]:
        """What is in a tuple, as variables of their own that are called ``x.1``, ``x.2``, ..."""
        parsed = (next(_Parser(f"{element} x;").declarations()) for element in self.elements)
        return tuple(replace(one, name=f"{self.name}.{k}") for k, one in enumerate(parsed, 1))


@dataclass(frozen=True)
class For:
    """``for (variable in lower : upper) { body }``."""

    variable: str
    lower: str
    upper: str
    body: tuple[Statement, ...]
    span: Span


@dataclass(frozen=True)
class ForEach:
    """``for (variable in container) { body }``."""

    variable: str
    container: str
    body: tuple[Statement, ...]
    span: Span


@dataclass(frozen=True)
class While:
    """``while (condition) { body }``."""

    condition: str
    body: tuple[Statement, ...]
    span: Span


@dataclass(frozen=True)
class If:
    """``if (condition) { then } else { orelse }``."""

    condition: str
    then: tuple[Statement, ...]
    orelse: tuple[Statement, ...]
    span: Span


@dataclass(frozen=True)
class Profile:
    """``profile("name") { body }``."""

    name: str
    body: tuple[Statement, ...]
    span: Span


@dataclass(frozen=True)
class Braces:
    """``{ body }``."""

    body: tuple[Statement, ...]
    span: Span


@dataclass(frozen=True)
class Target:
    """``target += expression;``."""

    expression: str
    span: Span


@dataclass(frozen=True)
class Tilde:
    """``left ~ distribution(...);``, perhaps truncated."""

    left: str
    distribution: str
    span: Span


@dataclass(frozen=True)
class Assign:
    """``x[i] = expression;``, also with ``+=`` and its like, or to several variables at once.

    Attributes
    ----------
    variables : tuple of str
        Variables that change, without indices.
    place : str
        Text left of the operator.
    operator : str
        ``=``, ``+=``, ...
    expression : str
        Text right of it.
    span : Span
        The whole statement.
    """

    variables: tuple[str, ...]
    place: str
    operator: str
    expression: str
    span: Span


@dataclass(frozen=True)
class Other:
    """Any other statement: ``print``, ``reject``, ``return``, a call of a void function, ``jacobian +=``."""

    text: str
    span: Span


Statement: TypeAlias = Declaration | For | ForEach | While | If | Profile | Braces | Target | Tilde | Assign | Other


@dataclass(frozen=True)
class Argument:
    """An argument of a function: its name, unsized type and whether it must be data."""

    name: str
    type: str
    data_only: bool


@dataclass(frozen=True)
class Function:
    """A function of the ``functions`` block; ``body`` is None where it is only declared."""

    name: str
    return_type: str
    arguments: tuple[Argument, ...]
    body: tuple[Statement, ...] | None
    span: Span


@dataclass(frozen=True)
class Block:
    """A program block.

    Attributes
    ----------
    statements : tuple
        Statements and declarations in their order.
    span : Span
        The block with its name and braces; empty where the program has no such block.
    inside : Span
        What is between the braces.
    """

    statements: tuple[Statement, ...] = ()
    span: Span = _NOWHERE
    inside: Span = _NOWHERE

    @property
    def declarations(self) -> tuple[Declaration, ...]:
        """The block's own variables, without those of nested scopes."""
        return tuple(statement for statement in self.statements if isinstance(statement, Declaration))


@dataclass(frozen=True)
class Program:
    """A parsed program; `text` gives the text of a span of ``code``."""

    code: str
    functions: tuple[Function, ...] = ()
    functions_block: Block = field(default_factory=Block)
    data: Block = field(default_factory=Block)
    transformed_data: Block = field(default_factory=Block)
    parameters: Block = field(default_factory=Block)
    transformed_parameters: Block = field(default_factory=Block)
    model: Block = field(default_factory=Block)
    generated_quantities: Block = field(default_factory=Block)

    def text(self, span: Span) -> str:
        """The program's text within a span."""
        return self.code[span.start : span.end]


class Call(NamedTuple):
    """A function call in an expression.

    Attributes
    ----------
    name : str
        The function.
    arguments : tuple of str
        Texts between commas (and the ``|`` of densities).
    span : Span
        From the name to the closing parenthesis.
    """

    name: str
    arguments: tuple[str, ...]
    span: Span


def calls(text: str, span: Span | None = None) -> list[Call]:
    """All function calls in a text, the outer before the inner."""
    tokens = tokenize(text, *(span or Span(0, len(text))))
    found = []
    for i in range(len(tokens) - 1):
        if tokens[i].kind == "name" and tokens[i + 1].text == "(" and tokens[i].text not in _NOT_CALLED:
            close = matching(tokens, i + 1)
            parts = split(tokens[i + 2 : close], ",", "|")
            arguments = tuple(_text(text, part) for part in parts if part)
            found.append(Call(tokens[i].text, arguments, Span(tokens[i].span.start, tokens[close].span.end)))
    return found


def names(text: str) -> set[str]:
    """Variables that an expression or statement mentions: names that are not called and are not words of Stan."""
    tokens = tokenize(text)
    return {
        token.text
        for i, token in enumerate(tokens)
        if token.kind == "name" and token.text not in _WORDS and not (i + 1 < len(tokens) and tokens[i + 1].text == "(")
    }


def split(tokens: Sequence[Token], *separators: str) -> list[list[Token]]:
    """Cut at separators that are not inside brackets."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += _depth(token)
        if depth == 0 and token.text in separators and token.kind == "mark":
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def matching(tokens: Sequence[Token], opening: int) -> int:
    """Index of the bracket that closes the one at ``opening``."""
    depth = 0
    for i in range(opening, len(tokens)):
        depth += _depth(tokens[i])
        if depth == 0:
            return i
    raise InputError("the Stan program has an unclosed bracket")


def walk(statements: Sequence[Statement]) -> Iterator[Statement]:
    """All statements of a tree, each before those inside it."""
    for statement in statements:
        yield statement
        for inner in children(statement):
            yield from walk(inner)


def children(statement: Statement) -> tuple[tuple[Statement, ...], ...]:
    """The lists of statements inside a statement."""
    if isinstance(statement, If):
        return statement.then, statement.orelse
    if isinstance(statement, For | ForEach | While | Profile | Braces):
        return (statement.body,)
    return ()


def expression_of(statement: Statement) -> str:
    """What a simple statement computes."""
    if isinstance(statement, Declaration):
        return statement.value or ""
    if isinstance(statement, Target | Assign):
        return statement.expression
    if isinstance(statement, Tilde):
        return f"{statement.left}, {statement.distribution}"
    return getattr(statement, "text", "")


def parse(code: str) -> Program:
    """Parse a program.

    Parameters
    ----------
    code : str
        Canonical text, as `stansub.stan.stanc.canonical` gives it.

    Raises
    ------
    InputError
        When the text is not such a program.
    """
    return _Parser(code).program()


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TYPES = _words(
    "int real complex vector row_vector matrix complex_vector complex_row_vector complex_matrix array tuple "
    "ordered positive_ordered simplex unit_vector sum_to_zero_vector sum_to_zero_matrix column_stochastic_matrix "
    "row_stochastic_matrix cholesky_factor_corr cholesky_factor_cov corr_matrix cov_matrix"
)
_SQUARE = _words("cholesky_factor_corr cholesky_factor_cov corr_matrix cov_matrix")
_WORDS = _TYPES | _words("for in if else while return break continue profile print reject fatal_error void data target")
_NOT_CALLED = _WORDS - {"target"}
_ASSIGNMENTS = ("=", "+=", "-=", "*=", "/=", ".*=", "./=")


def _depth(token: Token) -> int:
    """How a token changes the depth of brackets."""
    if token.kind != "mark":
        return 0
    return (token.text in _OPEN) - (token.text in _CLOSE)


def _text(code: str, tokens: Sequence[Token]) -> str:
    return code[tokens[0].span.start : tokens[-1].span.end] if tokens else ""


class _Parser:
    def __init__(self, code: str) -> None:
        self.code = code
        self.tokens = tokenize(code)
        self.at = 0

    def program(self) -> Program:
        blocks: dict[str, Block] = {}
        functions: tuple[Function, ...] = ()
        while self.at < len(self.tokens):
            start = self.tokens[self.at].span.start
            words = []
            while not self.sees("{"):
                words.append(self.take().text)
            name = "_".join(words)
            opening = self.take().span
            if name == "functions":
                functions = tuple(self.functions())
                statements: tuple[Statement, ...] = ()
            else:
                statements = self.body()
            closing = self.take("}").span
            blocks["functions_block" if name == "functions" else name] = Block(
                statements, Span(start, closing.end), Span(opening.end, closing.start)
            )
        unknown = set(blocks) - set(Program.__dataclass_fields__)
        if unknown:
            raise InputError(f"the Stan program has an unknown block: {min(unknown)}")
        return Program(self.code, functions, **blocks)

    def functions(self) -> Iterator[Function]:
        while not self.sees("}"):
            start = self.tokens[self.at].span.start
            kind = self.unsized_type()
            name = self.take().text
            inside = self.brackets("(")
            arguments = tuple(self.argument(part) for part in split(inside, ",") if part)
            if self.sees(";"):
                body, end = None, self.take().span.end
            else:
                self.take("{")
                body = self.body()
                end = self.take("}").span.end
            yield Function(name, kind, arguments, body, Span(start, end))

    def argument(self, tokens: list[Token]) -> Argument:
        data_only = tokens[0].text == "data"
        return Argument(tokens[-1].text, _text(self.code, tokens[data_only:-1]), data_only)

    def unsized_type(self) -> str:
        first = self.at
        self.take()
        while self.sees("["):
            self.brackets("[")
            self.take()
        if self.sees("("):
            self.brackets("(")
        return _text(self.code, self.tokens[first : self.at])

    def body(self) -> tuple[Statement, ...]:
        """Statements up to a closing brace, which is left."""
        statements: list[Statement] = []
        while not self.sees("}"):
            statements += self.statement()
        return tuple(statements)

    def nested(self) -> tuple[Statement, ...]:
        """The body of a loop or branch, with or without braces."""
        if not self.sees("{"):
            return tuple(self.statement())
        self.take()
        body = self.body()
        self.take("}")
        return body

    def statement(self) -> list[Statement]:
        start = self.tokens[self.at].span.start
        word = self.tokens[self.at].text
        if word in _TYPES:
            return list(self.declarations())
        if word == ";":
            self.take()
            return []
        if word == "{":
            body = self.nested()
            return [Braces(body, self.since(start))]
        if word == "profile":
            self.take()
            name = _text(self.code, self.brackets("("))
            body = self.nested()
            return [Profile(name, body, self.since(start))]
        if word == "while":
            self.take()
            condition = _text(self.code, self.brackets("("))
            body = self.nested()
            return [While(condition, body, self.since(start))]
        if word == "if":
            self.take()
            condition = _text(self.code, self.brackets("("))
            then = self.nested()
            orelse: tuple[Statement, ...] = ()
            if self.sees("else"):
                self.take()
                orelse = self.nested()
            return [If(condition, then, orelse, self.since(start))]
        if word == "for":
            return [self.loop(start)]
        return [self.simple(start)]

    def loop(self, start: int) -> Statement:
        self.take()
        header = self.brackets("(")
        variable = header[0].text
        bounds = split(header[2:], ":")
        body = self.nested()
        span = self.since(start)
        if len(bounds) == 2:
            return For(variable, _text(self.code, bounds[0]), _text(self.code, bounds[1]), body, span)
        return ForEach(variable, _text(self.code, header[2:]), body, span)

    def simple(self, start: int) -> Statement:
        """A statement that ends with a semicolon."""
        tokens = self.until(";")
        self.take(";")
        span = self.since(start)
        sampling = split(tokens, "~")
        if len(sampling) == 2:
            return Tilde(_text(self.code, sampling[0]), _text(self.code, sampling[1]), span)
        sides = split(tokens, *_ASSIGNMENTS)
        if len(sides) == 2 and sides[0][0].text not in ("jacobian", "return"):
            operator = tokens[len(sides[0])].text
            expression = _text(self.code, sides[1])
            if len(sides[0]) == 1 and sides[0][0].text == "target":
                return Target(expression, span)
            place = sides[0][1:-1] if sides[0][0].text == "(" else sides[0]
            variables = tuple(part[0].text for part in split(place, ","))
            return Assign(variables, _text(self.code, sides[0]), operator, expression, span)
        return Other(_text(self.code, tokens), span)

    def declarations(self) -> Iterator[Declaration]:
        start = self.tokens[self.at].span.start
        array_dims: tuple[str, ...] = ()
        if self.sees("array"):
            self.take()
            array_dims = self.sizes()
        base = self.take().text
        constraint = ""
        dims: tuple[str, ...] = ()
        elements: tuple[str, ...] = ()
        if base == "tuple":
            elements = tuple(_text(self.code, part) for part in split(self.brackets("("), ","))
        if self.sees("<"):
            self.take()
            constraint = _text(self.code, self.until(">"))
            self.take(">")
        if self.sees("["):
            dims = self.sizes()
        variables = []
        while True:
            name = self.take().text
            value = None
            if self.sees("="):
                self.take()
                value = _text(self.code, self.until(",", ";"))
            variables.append((name, value))
            if self.take().text == ";":
                break
        span = self.since(start)
        for name, value in variables:
            yield Declaration(name, base, array_dims, dims, constraint, value, span, elements)

    def sizes(self) -> tuple[str, ...]:
        return tuple(_text(self.code, part) for part in split(self.brackets("["), ",") if part)

    def brackets(self, opening: str) -> list[Token]:
        """What is inside the brackets that open here."""
        if not self.sees(opening):
            self.fail(f"'{opening}'")
        close = matching(self.tokens, self.at)
        inside = self.tokens[self.at + 1 : close]
        self.at = close + 1
        return inside

    def until(self, *ends: str) -> list[Token]:
        """Tokens up to one of ``ends`` outside brackets, which is left."""
        first, depth = self.at, 0
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if depth == 0 and token.kind == "mark" and token.text in ends:
                return self.tokens[first : self.at]
            depth += _depth(token)
            self.at += 1
        self.fail(f"'{ends[-1]}'")

    def sees(self, text: str) -> bool:
        return self.at < len(self.tokens) and self.tokens[self.at].text == text

    def take(self, text: str | None = None) -> Token:
        if self.at >= len(self.tokens) or (text is not None and not self.sees(text)):
            self.fail(f"'{text}'" if text else "more text")
        self.at += 1
        return self.tokens[self.at - 1]

    def since(self, start: int) -> Span:
        return Span(start, self.tokens[self.at - 1].span.end)

    def fail(self, expected: str) -> NoReturn:
        place = self.tokens[self.at].span.start if self.at < len(self.tokens) else len(self.code)
        line = self.code.count("\n", 0, place) + 1
        raise InputError(f"line {line} of the canonical Stan program: expected {expected}")
