"""Functions of parameters and an integer of an observation's data, declared as tables.

In ``mu[n] += b * mo(simo, x[n])``, a monotonic effect as brms writes it, ``b`` and ``simo`` are separate arguments of
the likelihood, and the effect is not affine in them. If it is declared as a vector with an element for each category,
``for (k in 0 : K) effect[k + 1] = b * mo(simo, k)``, the likelihood reads ``effect[x[n] + 1]`` instead.

What is declared reads at least two variables that depend on parameters, and the integer as an argument of a function of
the program or as the end of a slice: what reads it as an index only is already an element of a variable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from stansub.stan.inlining import inlined
from stansub.stan.rewrite import extended
from stansub.stan.rewriting import Symbols, checked
from stansub.stan.syntax import (
    Braces,
    Call,
    Expression,
    Literal,
    Name,
    Node,
    Program,
    Slice,
    Span,
    Statement,
    Subscript,
    changed,
    find,
    flat,
    name_of,
    names,
    summands,
)
from stansub.stan.typing import INT
from stansub.stan.variables import Variables

# Precedence of the terms of a sum.
_TERM = 7
_CATEGORY = Name("stansub_category")


def with_category_tables(program: Program, size: str) -> Program:
    """Return a program that declares functions of parameters and an integer of the data in its likelihood as tables.

    It has the same parameters, and the same log density up to a constant. It is the program itself if there are no such
    functions.

    Parameters
    ----------
    size : str
        The integer that counts the observations.
    """
    for one in (inlined(program), program):
        if (found := _declaring(one, size)) is not None:
            return found
    return program


def _declaring(program: Program, size: str) -> Program | None:
    """Return the program with declared tables; None if there are none to declare."""
    reading, unused = _Reading.of(program, size), Symbols.of(program)
    tables, replacements = dict[str, str](), list[tuple[Span, str]]()
    for one, statement in reading.values():
        least, most = one.categories
        each = str(_with(_CATEGORY, one))
        if each not in tables:
            tables[each] = unused.fresh("stansub_table")
            lines = (
                f"vector[{_place(most, least)}] {tables[each]};",
                f"for ({_CATEGORY} in {least} : {most}) {{",
                f"  {tables[each]}[{_place(_CATEGORY, least)}] = {each};",
                "}\n",
            )
            replacements.append((Span(statement.span.start, statement.span.start), "\n".join(lines)))
        replacements.append((one.expression.span, f"{tables[each]}[{_place(one.integer, least)}]"))
    return checked(extended(program, (), replacements), "tables of categories") if replacements else None


def _place(expression: Expression, least: Expression) -> str:
    """Return the place of a category in a table."""
    text = expression.within(_TERM)
    match least:
        case Literal("1"):
            return str(expression)
        case Literal("0"):
            return f"{text} + 1"
    return f"{text} - {least.within(_TERM)} + 1"


class _Value(NamedTuple):
    """A function of parameters and an integer of an observation's data.

    Attributes
    ----------
    integer : Expression
        The integer.
    categories : tuple of Expression
        The least and the largest value of the integer.
    """

    expression: Expression
    integer: Expression
    categories: tuple[Expression, Expression]


class _Reading(Variables):
    """Functions of parameters and an integer of the data that a program's likelihood reads."""

    def values(self) -> Iterator[tuple[_Value, Statement]]:
        """Yield the largest such functions that are no sums, with the block's own statement that contains them."""
        for one, statement in self.in_blocks():
            for value in self._values(one):
                if self.is_ready(names(value.expression) - names(value.integer), statement):
                    yield value, statement

    def _values(self, node: Node) -> Iterator[_Value]:
        is_sum = isinstance(node, Expression) and len(list(summands(node))) > 1
        found = self._value(node) if isinstance(node, Expression) and not is_sum else None
        if found is not None:
            yield found
            return
        for part in node.parts:
            yield from self._values(part)

    def _value(self, expression: Expression) -> _Value | None:
        """Return an expression as such a function; None if it is none."""
        if len(names(expression) & self.changing) < 2 or not names(expression) & self.outside:
            return None
        read = dict.fromkeys(self._observed(expression))
        if len(read) != 1 or not self.types.is_number(expression):
            return None
        (integer,) = read
        categories = self._categories(expression, integer) if self._is_integer(integer) else None
        return None if categories is None else _Value(expression, integer, categories)

    def _observed(self, node: Node) -> Iterator[Expression]:
        """Yield the largest integers of the data in a node, and other variables without a value before the loop."""
        if (isinstance(node, Expression) and self._is_integer(node)) or (
            isinstance(node, Name) and node.name in self.outside
        ):
            yield node
        else:
            for part in node.parts:
                yield from self._observed(part)

    def _is_integer(self, expression: Expression) -> bool:
        """Return whether an expression is an integer of an observation's data."""
        own = names(expression)
        is_of_data = bool(own & self.outside) and not own & self.changing and not isinstance(expression, Slice)
        return is_of_data and self.types.of(expression) == INT

    def _categories(self, expression: Expression, integer: Expression) -> tuple[Expression, Expression] | None:
        """Return the least and the largest value for which an expression is defined; None if the text has none."""
        limits = list(self._limits(expression, integer))
        one = self.declared.get(name_of(integer)) if isinstance(integer, Subscript) else None
        bounds = {bound.kind: bound.value for bound in one.type.bounds} if one is not None else {}
        known = {kind: value for kind, value in bounds.items() if not names(value) & (self.outside | self.changing)}
        most = next((limit for limit in limits if limit is not None), known.get("upper"))
        return (known.get("lower", Literal("0")), most) if limits and most is not None else None

    def _limits(self, expression: Expression, integer: Expression) -> Iterator[Expression | None]:
        """Yield sizes of what an integer is the end of; None where it is read in another way, except as an index."""
        yield from self._sliced(expression, integer, {})
        for call in find(Call, [expression]):
            functions = [one for one in self.program.functions if one.name == call.name and one.body is not None]
            for function in (one for one in functions if len(one.arguments) == len(call.arguments)):
                body = Braces(function.body or ())
                given = dict(zip((one.name for one in function.arguments), call.arguments, strict=True))
                for own in (Name(name) for name, value in given.items() if value == integer):
                    yield from self._sliced(body, own, given)
                    indices = [index for one in find(Subscript, [body]) for index in one.indices]
                    if sum(one == own for one in find(Name, [body])) > indices.count(own):
                        yield None

    def _sliced(self, node: Node, integer: Expression, given: Mapping[str, Expression]) -> Iterator[Expression | None]:
        """Yield sizes of containers of which a node reads elements up to an integer."""
        for one in find(Subscript, [node]):
            first = one.indices[0]
            if isinstance(first, Slice) and first.upper == integer:
                yield self._size(given.get(one.base.name, one.base) if isinstance(one.base, Name) else one.base)

    def _size(self, container: Expression) -> Expression | None:
        """Return the declared size of the first dimension of a container; None if it is not known."""
        base, indices = flat(container)
        one = self.declared.get(base.name) if isinstance(base, Name) else None
        if one is None or any(isinstance(index, Slice) for index in indices) or len(indices) >= len(one.all_dims):
            return None
        return one.all_dims[len(indices)]


def _with(integer: Expression, value: _Value) -> Expression:
    """Return a value with another integer."""
    return changed(value.expression, lambda node: integer if node == value.integer else None)
