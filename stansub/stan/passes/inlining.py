"""Calls of a program's own functions, replaced by what the functions do.

In ``target += reduce_sum(f, y, 1, tau, z, g);``, only the function's body shows which observation a term belongs to,
which data it reads and which products of parameters; in ``merged = merge_missing(gone, x, guess);``, which elements of
``merged`` are parameters. In the program written here, these are statements of the model, and all observations of a
``reduce_sum`` are in one slice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

from stansub.stan.passes.rewrite import in_one_slice
from stansub.stan.passes.rewriting import Symbols, edited
from stansub.stan.reading.reach import SAME_ELEMENTS
from stansub.stan.reading.typing import INT, REAL, UNKNOWN, types_in_blocks
from stansub.stan.syntax import (
    SIZES,
    Assign,
    Call,
    Declaration,
    Expression,
    For,
    ForEach,
    Function,
    Infix,
    Literal,
    Loop,
    Name,
    Node,
    Program,
    Return,
    Slice,
    Statement,
    Subscript,
    Target,
    UnsizedType,
    changed,
    find,
    flat,
    names,
    normalised,
    printed,
    substituted,
    walk,
)

N = TypeVar("N", bound=Node)
Sizes = Mapping[str, Declaration]
Choose = Callable[[str, Sequence[Expression]], Function | None]

# Functions that call others, so deep.
_DEPTH = 3
_ONE = Literal("1")


@lru_cache(maxsize=64)
def inlined(program: Program) -> Program:
    """Return a program whose likelihood calls none of its own functions, as far as they can be replaced.

    These are functions that only return an expression, and functions that return at their end only, if their value is
    added to the target, directly or by ``reduce_sum``, or assigned. It has the same log density up to a constant.
    """
    found = program
    for _ in range(_DEPTH):
        called = in_one_slice(found)
        chosen, unused = _choosing(called), Symbols.of(called)
        sizes = {one.name: one for one in called.declarations}
        texts = [
            (one.span, text)
            for one in _simple(called.evaluated)
            if (text := _text(one, chosen, sizes, unused)) is not None
        ]
        written = edited(called, "inlined functions", texts)
        if written is None:
            break
        found = written
    return found


def _choosing(program: Program) -> Choose:
    """Return a function from the name and the arguments of a call to the user's function; None if none is known."""
    types = types_in_blocks(program)

    def fits(given: UnsizedType, wanted: UnsizedType) -> bool:
        return given in (UNKNOWN, wanted)

    def chosen(name: str, arguments: Sequence[Expression]) -> Function | None:
        own = [one for one in program.functions if one.name == normalised(name) and one.body is not None]
        found = [one for one in own if len(one.arguments) == len(arguments)]
        if len(found) > 1:
            given = [types.of(one) for one in arguments]
            found = [one for one in found if all(map(fits, given, (argument.type for argument in one.arguments)))]
        return found[0] if len(found) == 1 else None

    return chosen


def _simple(statements: Sequence[Statement]) -> Iterator[Statement]:
    """Yield statements without inner ones; of those that share a place, such as ``real a, b;``, none."""
    counts = Counter(one.span for one in walk(statements))
    return (one for one in walk(statements) if not one.bodies and counts[one.span] == 1)


def _text(statement: Statement, chosen: Choose, sizes: Sizes, unused: Symbols) -> str | None:
    """Return a statement without calls of functions, in braces if it needs variables; None if it has no such calls."""
    call = _Received.of(statement, chosen, sizes)
    if call is not None:
        return call.text(sizes, unused)

    def value(node: Node) -> Node | None:
        function = chosen(node.name, node.arguments) if isinstance(node, Call) else None
        match function and function.body:
            case (Return(Expression() as returned),) if function and isinstance(node, Call):
                return _with(returned, _given(function, node.arguments), sizes)
        return None

    new = changed(statement, value)
    return None if new is statement else str(new)


@dataclass(frozen=True)
class _Received:
    """A call whose value is added to the target, or assigned to a variable."""

    head: str
    """The declaration of the variable, if it is declared with the value."""
    variable: Name | None
    """The variable; None for the target."""
    body: tuple[Statement, ...]
    """What the function does before it returns."""
    returned: Expression
    local: Declaration | None
    """The function's variable that stands for the target or the variable; None if it returns another expression."""
    given: Mapping[str, Expression]
    """Its arguments by name, and values of its constants, such as the number of observations."""

    @classmethod
    def of(cls, statement: Statement, chosen: Choose, sizes: Sizes) -> _Received | None:
        """Return the call that is the only value of a statement; None if there is none that can be replaced."""
        head, variable = "", ""
        match statement:
            case Target(Call(name, arguments)):
                pass
            case Assign(Name(variable), "=", Call(name, arguments)):
                pass
            case Declaration(name=variable, value=Call(name, arguments)):
                head = f"{replace(statement, value=None)}\n"
            case _:
                return None
        function = chosen(name, arguments)
        if function is None or function.body is None:
            return None
        *body, last = function.body
        if list(find(Return, function.body)) != [last] or not isinstance(last, Return) or last.value is None:
            return None
        if variable and (not body or variable in names(*arguments)):
            return None
        given, often = _given(function, arguments), _read_often(function)
        if not all(_is_cheap(value, sizes) for name, value in given.items() if name in often):
            return None
        declared = [one for one in body if isinstance(one, Declaration)]
        local = next((one for one in declared if Name(one.name) == last.value), None)
        if local is not None and not variable and not _is_sum(local, body):
            local = None
        own = {one.name for one in find(Declaration, body)}
        for one in declared:
            if one is local or one.value is None or one.type.unsized != INT or not _is_read(one.name, body):
                continue
            if names(one.value).isdisjoint(own - given.keys()):
                given[one.name] = _with(one.value, given, sizes)
                body.remove(one)
        return cls(head, Name(variable) if variable else None, tuple(body), last.value, local, given)

    def text(self, sizes: Sizes, unused: Symbols) -> str:
        """Return what the function does, with names of its variables that no other has."""
        local, variable = self.local, self.variable
        statements = list[Statement]()
        for one in self.body:
            if one is not local:
                statements.append(changed(one, self._received))
            elif variable is not None and local.value is not None:
                statements.append(Assign(variable, "=", local.value))
        if local is None:
            statements.append(Target(self.returned) if variable is None else Assign(variable, "=", self.returned))
        loops = [one.variable for one in find(Loop, statements) if isinstance(one, For | ForEach)]
        own = dict.fromkeys([*(one.name for one in find(Declaration, statements)), *loops])
        given = {**self.given, **{name: Name(unused.fresh(f"stansub_{name}")) for name in own}}
        if local is not None and variable is not None:
            given[local.name] = variable
        statements = [changed(_with(one, given, sizes), lambda node: _counted(node, sizes)) for one in statements]
        text = printed(statements)
        is_open = not any(isinstance(one, Declaration) for one in statements)
        return f"{self.head}{text}" if is_open else f"{self.head}{{\n{text}\n}}"

    def _received(self, node: Node) -> Node | None:
        """Return what is added to a local sum as added to the target."""
        match node:
            case Assign(Name(name), "+=", term) if self.variable is None and self.local and name == self.local.name:
                return Target(term)
        return None


def _is_sum(local: Declaration, body: Sequence[Statement]) -> bool:
    """Return whether a variable begins at 0, and nothing but additions to it reads or changes it."""
    added = [one for one in find(Assign, body) if one.place == Name(local.name) and one.operator == "+="]
    used = [one for one in find(Name, body) if one.name == local.name]
    return local.value in (Literal("0"), Literal("0.0")) and len(used) == len(added)


def _read_often(function: Function) -> set[str]:
    """Return the arguments with several elements that a function reads in loops."""
    tall = {one.name for one in function.arguments if one.type.depth or one.type.base not in ("int", "real")}
    return tall & names(*find(Loop, function.body or ()))


def _is_read(name: str, body: Sequence[Statement]) -> bool:
    """Return whether statements only read a variable."""
    return not any(name in one.variables for one in find(Assign, body))


def _is_cheap(value: Expression, sizes: Sizes) -> bool:
    """Return whether an expression is a variable or an element of one, which loops may evaluate again and again."""
    base, indices = flat(value)
    lists = (one for one in indices if isinstance(one, Slice) or _size("size", one, sizes) is not None)
    return isinstance(base, Name | Literal) and not any(lists)


def _counted(node: Node, sizes: Sizes) -> Node | None:
    """Return a loop over the elements of data as a loop over their places; None for other nodes."""
    match node:
        case ForEach(variable, container, body) if size := _size("size", container, sizes):
            element = Subscript(container, (Name(variable),))

            def counted(inner: Node) -> Node | None:
                return element if inner == Name(variable) else _counted(inner, sizes)

            return For(variable, _ONE, size, tuple(changed(one, counted) for one in body))
    return None


def _given(function: Function, arguments: Sequence[Expression]) -> dict[str, Expression]:
    """Return arguments by name; integers become real where the function takes reals, so that no quotient is rounded."""
    return {
        one.name: Literal(f"{value}.0") if one.type == REAL and str(value).isdecimal() else value
        for one, value in zip(function.arguments, arguments, strict=True)
    }


def _with(node: N, given: Mapping[str, Expression], sizes: Sizes) -> N:
    """Return a node with values for names, and shorter indices: ``i``, not ``i - 1 + 1``, as in a slice from 1 on."""

    def shorter(one: Node) -> Node | None:
        match one:
            case Infix("+", Infix("-", left, Literal("1")), Literal("1")):
                return changed(left, shorter)
            case Infix("-", Infix("+", Literal("1"), left) | Infix("+", left, Literal("1")), Literal("1")):
                return changed(left, shorter)
            case Subscript(Name(name) as whole, (Slice(Literal("1"), Expression() as last),)) if name in sizes:
                return whole if sizes[name].all_dims[:1] == (changed(last, shorter),) else None
            case Call(name, (Expression() as of,)) if name in SIZES and (size := _size(name, of, sizes)):
                return size
            case Subscript(Call("dims", (Expression() as of,)), (Literal("1"),)):
                return _size("size", of, sizes)
        return None

    return changed(substituted(node, given), shorter)


def _size(function: str, node: Expression, sizes: Sizes) -> Expression | None:
    """Return the value of a function of sizes of a container as declared; None if it is not known."""
    match node:
        case Call(name, (Expression() as inner,)) if name in SAME_ELEMENTS:
            return _size(function, inner, sizes)
        case Subscript(Name(name), (index,)) if name in sizes and len(sizes[name].all_dims) == 1:
            return _size(function, index, sizes)
        case Name(name) if name in sizes:
            return sizes[name].type.size(function)
    return None
