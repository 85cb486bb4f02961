"""Calls of a program's own functions, replaced by what the functions do.

In ``target += reduce_sum(f, y, 1, tau, z, g)``, only the function's body shows which products of parameters the
likelihood reads. Its observations are then all in one part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from stansub.stan.recognise import REDUCE_SUM, normalised
from stansub.stan.rewrite import extended
from stansub.stan.rewriting import Symbols, checked
from stansub.stan.syntax import (
    Call,
    Declaration,
    Expression,
    For,
    ForEach,
    Function,
    Infix,
    Literal,
    Name,
    Node,
    Program,
    Return,
    Statement,
    Target,
    changed,
    find,
    printed,
    substituted,
    walk,
)
from stansub.stan.typing import REAL

N = TypeVar("N", bound=Node)

# Functions that call others, so deep.
_DEPTH = 3


def inlined(program: Program) -> Program:
    """Return a program whose likelihood calls none of its own functions, as far as they can be replaced.

    These are functions that only return an expression, and functions added to the target, directly or by
    ``reduce_sum``, that return at their end only. It has the same log density up to a constant.
    """
    for _ in range(_DEPTH):
        functions, unused = _functions(program), Symbols.of(program)
        lengths = {one.name: one.all_dims[0] for one in program.data_declarations if one.all_dims}
        found = [
            (one.span, text)
            for one in _simple(program.evaluated)
            if (text := _text(one, functions, lengths, unused)) is not None
        ]
        written = checked(extended(program, (), found), "inlined functions") if found else None
        if written is None:
            break
        program = written
    return program


def _functions(program: Program) -> dict[str, Function]:
    """Return functions by name, without those whose name others have, with arguments of other types."""
    defined = [one for one in program.functions if one.body is not None]
    counts = Counter(one.name for one in defined)
    return {one.name: one for one in defined if counts[one.name] == 1}


def _simple(statements: Sequence[Statement]) -> Iterator[Statement]:
    """Yield statements without inner ones; of those that share a place, such as ``real a, b;``, none."""
    counts = Counter(one.span for one in walk(statements))
    return (one for one in walk(statements) if not one.bodies and counts[one.span] == 1)


def _text(
    statement: Statement, functions: Mapping[str, Function], lengths: Mapping[str, Expression], unused: Symbols
) -> str | None:
    """Return a statement without calls of functions, in braces if it needs variables; None if it has no such calls."""
    call = _Added.of(statement, functions, lengths) if isinstance(statement, Target) else None
    if call is not None:
        return call.text(unused)

    def value(node: Node) -> Node | None:
        function = functions.get(node.name) if isinstance(node, Call) else None
        if not isinstance(node, Call) or function is None or len(node.arguments) != len(function.arguments):
            return None
        match function.body:
            case (Return(Expression() as returned),):
                return _with(returned, _given(function, node.arguments))
        return None

    new = changed(statement, value)
    return None if new is statement else str(new)


class _Added(NamedTuple):
    """A call that is added to the target: a function, and its arguments by name."""

    function: Function
    given: Mapping[str, Expression]

    @classmethod
    def of(
        cls, statement: Target, functions: Mapping[str, Function], lengths: Mapping[str, Expression]
    ) -> _Added | None:
        """Return the call that a statement adds; None if it adds anything else."""
        call = statement.expression
        if not isinstance(call, Call):
            return None
        arguments = call.arguments
        if call.name in REDUCE_SUM:
            name, sliced, _, *shared = arguments
            function = functions.get(normalised(str(name)))
            arguments = sliced, Literal("1"), lengths.get(str(sliced), Call("size", (sliced,))), *shared
        else:
            function = functions.get(normalised(call.name))
        if function is None or function.body is None or len(arguments) != len(function.arguments):
            return None
        *_, last = function.body
        returns = list(find(Return, function.body))
        if returns != [last] or not isinstance(last, Return) or last.value is None:
            return None
        return cls(function, _given(function, arguments))

    def text(self, unused: Symbols) -> str:
        """Return what the function does, with names of its variables that no other has."""
        assert self.function.body is not None
        *body, last = self.function.body
        assert isinstance(last, Return)
        assert last.value is not None
        loops = [one for one in walk(body) if isinstance(one, For | ForEach)]
        names = dict.fromkeys([*(one.name for one in find(Declaration, body)), *(one.variable for one in loops)])
        own = {name: Name(unused.fresh(f"stansub_{name}")) for name in names}
        ended = [_with(one, {**self.given, **own}) for one in (*body, Target(last.value))]
        return f"{{\n{printed(ended)}\n}}" if body else printed(ended)


def _given(function: Function, arguments: Sequence[Expression]) -> dict[str, Expression]:
    """Return arguments by name; integers become real where the function takes reals, so that no quotient is rounded."""
    return {
        one.name: Literal(f"{value}.0") if one.type == REAL and str(value).isdecimal() else value
        for one, value in zip(function.arguments, arguments, strict=True)
    }


def _with(node: N, given: Mapping[str, Expression]) -> N:
    """Return a node with values for names; ``i - 1 + 1`` becomes ``i``, as in indices of a slice that starts at 1."""

    def shorter(one: Node) -> Node | None:
        match one:
            case Infix("+", Infix("-", left, first), Literal("1")) if substituted(first, given) == Literal("1"):
                return changed(left, shorter)
        return None

    return substituted(changed(node, shorter), given)
