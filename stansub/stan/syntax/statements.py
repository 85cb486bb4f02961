"""Stan's statements.

Statements are equal if content and position are equal. Their strings equal stanc's output up to white space.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from stansub.stan.syntax.expressions import Call, Expression, Group, Infix, Prefix, Slice, name_of
from stansub.stan.syntax.nodes import Node
from stansub.stan.syntax.tokens import NOWHERE, Span
from stansub.stan.syntax.types import SizedType


@dataclass(frozen=True)
class Statement(Node):
    """A statement; ``span`` is its position."""

    span: Span = field(default=NOWHERE, kw_only=True)

    @property
    def head(self) -> str:
        """The beginning of a statement with inner ones, without the brace."""
        return ""

    @property
    def bodies(self) -> tuple[tuple[Statement, ...], ...]:
        """The lists of inner statements."""
        return ()

    @property
    def own(self) -> tuple[Node, ...]:
        """The child nodes other than inner statements."""
        return tuple(part for part in self.parts if not isinstance(part, Statement))

    @property
    def computes(self) -> tuple[Expression, ...]:
        """Expressions that a simple statement computes, without its target and the sizes that it declares."""
        return () if self.bodies else tuple(part for part in self.parts if isinstance(part, Expression))


@dataclass(frozen=True)
class Declaration(Statement):
    """A variable: ``array[J] vector<lower=0>[K] x = value;``. Several may share a span; each is printed alone."""

    type: SizedType
    name: str
    value: Expression | None = None

    @property
    def base(self) -> str:
        """Stan's type name, as in `SizedType`."""
        return self.type.base

    @property
    def array_dims(self) -> tuple[Expression, ...]:
        """Sizes of the array."""
        return self.type.array_dims

    @property
    def dims(self) -> tuple[Expression, ...]:
        """Inner sizes."""
        return self.type.dims

    @property
    def all_dims(self) -> tuple[Expression, ...]:
        """All sizes, as in `SizedType`."""
        return self.type.all_dims

    @property
    def sizes(self) -> tuple[str, ...]:
        """All sizes as text."""
        return tuple(map(str, self.all_dims))

    @property
    def members(self) -> tuple[Declaration, ...]:
        """Elements of a tuple as separate variables, named ``x.1``, ``x.2``, ..."""
        return tuple(Declaration(kind, f"{self.name}.{k}") for k, kind in enumerate(self.type.elements, 1))

    def __str__(self) -> str:
        value = "" if self.value is None else f" = {self.value}"
        return f"{self.type} {self.name}{value};"


class Compound(Statement):
    """A statement with one list of inner statements, in braces."""

    body: tuple[Statement, ...]

    @property
    def bodies(self) -> tuple[tuple[Statement, ...], ...]:
        return (self.body,)

    def __str__(self) -> str:
        return f"{self.head} {body_text(self.body)}".lstrip()


class Loop(Compound):
    """A loop of any kind."""


@dataclass(frozen=True)
class For(Loop):
    """``for (variable in lower : upper) { body }``."""

    variable: str
    lower: Expression
    upper: Expression
    body: tuple[Statement, ...]

    @property
    def head(self) -> str:
        return f"for ({self.variable} in {Slice(self.lower, self.upper)})"


@dataclass(frozen=True)
class ForEach(Loop):
    """``for (variable in container) { body }``."""

    variable: str
    container: Expression
    body: tuple[Statement, ...]

    @property
    def head(self) -> str:
        return f"for ({self.variable} in {self.container})"


@dataclass(frozen=True)
class While(Loop):
    """``while (condition) { body }``."""

    condition: Expression
    body: tuple[Statement, ...]

    @property
    def head(self) -> str:
        return f"while ({self.condition})"


@dataclass(frozen=True)
class If(Statement):
    """``if (condition) { then } else { orelse }``."""

    condition: Expression
    then: tuple[Statement, ...]
    orelse: tuple[Statement, ...] = ()

    @property
    def bodies(self) -> tuple[tuple[Statement, ...], ...]:
        return self.then, self.orelse

    @property
    def head(self) -> str:
        return f"if ({self.condition})"

    def __str__(self) -> str:
        then = f"{self.head} {body_text(self.then)}"
        match self.orelse:
            case ():
                return then
            case (If() as other,):
                return f"{then} else {other}"
        return f"{then} else {body_text(self.orelse)}"


@dataclass(frozen=True)
class Profile(Compound):
    """``profile("name") { body }``."""

    name: Expression
    body: tuple[Statement, ...]

    @property
    def head(self) -> str:
        return f"profile({self.name})"


@dataclass(frozen=True)
class Braces(Compound):
    """``{ body }``."""

    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Increment(Statement):
    """A statement that adds to the log density."""

    expression: Expression

    def __str__(self) -> str:
        return f"{type(self).__name__.lower()} += {self.expression};"


class Target(Increment):
    """``target += expression;``."""


class Jacobian(Increment):
    """``jacobian += expression;``."""


@dataclass(frozen=True)
class Tilde(Statement):
    """``left ~ distribution(...) T[lower, upper];``."""

    left: Expression
    distribution: Call
    """Without the left-hand side."""
    truncation: tuple[Group, ...] = ()
    """Its bounds in square brackets; either may be an empty `Slice`."""

    @property
    def right(self) -> str:
        """The text to the right of the tilde."""
        bounds = (
            ", ".join("" if isinstance(one, Slice) else str(one) for one in group.items) for group in self.truncation
        )
        return "".join([str(self.distribution), *(f" T[{text}]" for text in bounds)])

    def __str__(self) -> str:
        return f"{self.left} ~ {self.right};"


@dataclass(frozen=True)
class Assign(Statement):
    """``x[i] = expression;``, also with ``+=`` and similar operators, or to several variables at once."""

    place: Expression
    operator: str
    """``=``, ``+=``, ..."""
    expression: Expression

    @property
    def variables(self) -> tuple[str, ...]:
        """Variables that it assigns, without indices."""
        places = self.place.items if isinstance(self.place, Group) else (self.place,)
        return tuple(map(name_of, places))

    @property
    def increment(self) -> Expression | None:
        """What it adds to its variable, as ``s += x;`` and ``s = s + x;`` do; None if it does anything else."""
        if self.operator in ("+=", "-="):
            return self.expression if self.operator == "+=" else Prefix("-", self.expression)
        return _without(self.expression, self.place) if self.operator == "=" else None

    @property
    def computes(self) -> tuple[Expression, ...]:
        return (self.expression,)

    def __str__(self) -> str:
        return f"{self.place} {self.operator} {self.expression};"


@dataclass(frozen=True)
class Perform(Statement):
    """A call of a function that returns nothing; also ``print``, ``reject`` and ``fatal_error``."""

    call: Call

    def __str__(self) -> str:
        return f"{self.call};"


@dataclass(frozen=True)
class Return(Statement):
    """``return value;``, or without a value."""

    value: Expression | None = None

    def __str__(self) -> str:
        return "return;" if self.value is None else f"return {self.value};"


@dataclass(frozen=True)
class Jump(Statement):
    """``break;`` or ``continue;``."""

    word: str

    def __str__(self) -> str:
        return f"{self.word};"


@dataclass(frozen=True)
class Empty(Statement):
    """``;``."""

    def __str__(self) -> str:
        return ";"


def printed(statements: Sequence[Statement]) -> str:
    """Return statements as text, one per line."""
    return "\n".join(map(str, statements))


def walk(statements: Sequence[Statement]) -> Iterator[Statement]:
    """Yield all statements of a tree, each before those inside it."""
    return (one for one, _ in placed(statements))


def placed(
    statements: Sequence[Statement], around: tuple[Statement, ...] = ()
) -> Iterator[tuple[Statement, tuple[Statement, ...]]]:
    """Yield all statements as `walk` does, each with its surrounding statements, from the outermost in."""
    for statement in statements:
        yield statement, around
        for inner in statement.bodies:
            yield from placed(inner, (*around, statement))


def unlooped(
    statements: Sequence[Statement], before: tuple[Statement, ...] = ()
) -> Iterator[tuple[Statement, tuple[Statement, ...]]]:
    """Yield statements, including those inside branches and braces, each with the statements above it."""
    for k, statement in enumerate(statements):
        above = (*before, *statements[:k])
        if isinstance(statement, If | Braces | Profile):
            for inner in statement.bodies:
                yield from unlooped(inner, above)
        else:
            yield statement, above


def _without(added: Expression, place: Expression) -> Expression | None:
    """Return a sum without one of its terms; None if it is none of them, or the only one."""
    match added:
        case Infix("+", left, right) if str(left) == str(place):
            return right
        case Infix("-", left, right) if str(left) == str(place):
            return Prefix("-", right)
        case Infix("+", left, right) if str(right) == str(place):
            return left
        case Infix("+" | "-" as operator, left, right) if (rest := _without(left, place)) is not None:
            return Infix(operator, rest, right)
    return None


def body_text(statements: Sequence[Statement]) -> str:
    """Return the body of a loop, branch or function."""
    inside = "\n".join(f"  {line}" for line in printed(statements).splitlines())
    return f"{{\n{inside}\n}}" if inside else "{ }"
