"""Functions of parameters and integers of an observation's data, declared as tables.

In ``mu[n] += b * mo(simo, x[n])``, a monotonic effect as brms writes it, ``b`` and ``simo`` are separate arguments of
the likelihood, and the effect is not affine in them. If it is declared as a vector with an element for each category,
``for (k in 0 : K) effect[k + 1] = b * mo(simo, k)``, the likelihood reads ``effect[x[n] + 1]`` instead. An interaction
of two such effects, or an effect that varies between groups, ``(b + r[g[n]]) * mo(simo, x[n])``, is a matrix.

What is declared reads at least two variables that depend on parameters, and an integer as an argument of a function of
the program or as the end of a slice: what reads integers as indices only is already an element of a variable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stansub.stan.passes.rewriting import Symbols
from stansub.stan.passes.variables import Replacements, Variables, declaring
from stansub.stan.reading.typing import INT
from stansub.stan.syntax import (
    Braces,
    Call,
    Expression,
    Infix,
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
    outermost,
    summands,
)

# Types of tables with one and two integers.
_TYPES = ("vector", "matrix")
_CATEGORIES = (Name("stansub_category"), Name("stansub_other"))


@declaring("tables of categories")
def with_category_tables(program: Program, *sizes: str) -> Replacements:
    """Declare functions of parameters and integers of the data in the likelihood as tables."""
    reading, tables, replacements = _Reading.of(program, *sizes), _Tables(Symbols.of(program)), list[tuple[Span, str]]()
    for one, statement in reading.values():
        element, lines = tables.element(one, reading.factors(one))
        replacements += [(one.expression.span, str(element)), (statement.span.before, lines)]
    return replacements


class _Integer(NamedTuple):
    """An integer of an observation's data, and its least and largest value."""

    expression: Expression
    least: Expression
    most: Expression

    @property
    def place(self) -> Expression:
        """Return its place in a table."""
        return self._place(self.expression)

    @property
    def size(self) -> Expression:
        """Return the number of values."""
        return self._place(self.most)

    def _place(self, value: Expression) -> Expression:
        match self.least:
            case Literal("1"):
                return value
            case Literal("0"):
                return Infix("+", value, Literal("1"))
        return Infix("+", Infix("-", value, self.least), Literal("1"))


class _Value(NamedTuple):
    """A function of parameters and integers of an observation's data."""

    expression: Expression
    integers: tuple[_Integer, ...]


@dataclass
class _Tables:
    """Names of tables, by the text of their elements."""

    unused: Symbols
    found: dict[str, str] = field(default_factory=dict)

    def element(self, value: _Value, factors: Sequence[_Value] = ()) -> tuple[Expression, str]:
        """Return the element of a table that has a value, and the lines that declare the table if it is another one.

        ``factors`` are parts of the value that are computed first, as tables of their own.
        """
        given, lines = dict[Node, Expression](), ""
        for factor in factors:
            given[factor.expression], own = self.element(factor)
            lines += own
        loops: dict[Node, Name] = dict(zip((one.expression for one in value.integers), _CATEGORIES, strict=False))
        each = str(changed(changed(value.expression, given.get), loops.get))
        is_new = each not in self.found
        name = self.found[each] if not is_new else self.found.setdefault(each, self.unused.fresh("stansub_table"))
        element = Subscript(Name(name), tuple(one.place for one in value.integers))
        if is_new:
            heads = [f"for ({loops[one.expression]} in {one.least} : {one.most}) {{\n" for one in value.integers]
            kind, sizes = _TYPES[len(loops) - 1], ", ".join(str(one.size) for one in value.integers)
            inside = f"{changed(element, loops.get)} = {each};\n{'}' * len(loops)}"
            lines += f"{kind}[{sizes}] {name};\n{''.join(heads)}{inside}\n"
        return element, lines


class _Reading(Variables):
    """Functions of parameters and integers of the data that a program's likelihood reads."""

    def values(self) -> Iterator[tuple[_Value, Statement]]:
        """Yield the largest such functions that are no sums, with the block's own statement that contains them."""
        for one, statement in self.in_blocks():
            for value in self._values(one, least=2):
                if self.is_ready(
                    names(value.expression) - names(*(each.expression for each in value.integers)), statement
                ):
                    yield value, statement

    def factors(self, value: _Value) -> list[_Value]:
        """Return the functions of one integer in a function of several."""
        return list(self._values(value.expression, least=1, most=1)) if len(value.integers) > 1 else []

    def _values(self, node: Node, *, least: int, most: int = len(_TYPES)) -> Iterator[_Value]:
        """Yield the largest functions of at least so many variables of parameters, and at most so many integers."""
        return outermost(lambda one: self._value(one, least, most) if isinstance(one, Expression) else None, node)

    def _value(self, expression: Expression, least: int, most: int) -> _Value | None:
        """Return an expression as such a function; None if it is none."""
        own, is_sum = names(expression), len(list(summands(expression))) > 1
        if is_sum or len(own & self.changing) < least or not (own & self.outside and self.types.is_number(expression)):
            return None
        read = list(dict.fromkeys(outermost(self._observed, expression)))
        if len(read) > most or not all(map(self._is_integer, read)):
            return None
        limits = [list(self._limits(expression, one)) for one in read]
        integers = [self._integer(expression, one, own) for one, own in zip(read, limits, strict=True)]
        known = tuple(one for one in integers if one is not None)
        return _Value(expression, known) if any(limits) and len(known) == len(read) else None

    def _observed(self, node: Node) -> Expression | None:
        """Return an integer of the data, or another variable without a value before the loop; None for other nodes."""
        is_outside = isinstance(node, Name) and node.name in self.outside
        return node if isinstance(node, Expression) and (is_outside or self._is_integer(node)) else None

    def _is_integer(self, expression: Expression) -> bool:
        """Return whether an expression is an integer of an observation's data."""
        own = names(expression)
        is_of_data = bool(own & self.outside) and not own & self.changing and not isinstance(expression, Slice)
        return is_of_data and self.types.of(expression) == INT

    def _integer(
        self, expression: Expression, integer: Expression, limits: Sequence[Expression | None]
    ) -> _Integer | None:
        """Return an integer with the least and largest value for which an expression is defined, if the text has them.

        ``limits`` are those of an integer that is not only an index.
        """
        one = self.declared.get(name_of(integer)) if isinstance(integer, Subscript) else None
        bounds = {bound.kind: bound.value for bound in one.type.bounds} if one is not None else {}
        known = {kind: value for kind, value in bounds.items() if not names(value) & (self.outside | self.changing)}
        if not limits:
            read = [one for one in find(Subscript, [expression]) if integer in one.indices]
            sizes = [size for one in read if (size := self._size(one.base, one.indices.index(integer))) is not None]
            return _Integer(integer, Literal("1"), sizes[0]) if sizes else None
        most = next((limit for limit in limits if limit is not None), known.get("upper"))
        return None if most is None else _Integer(integer, known.get("lower", Literal("0")), most)

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

    def _size(self, container: Expression, axis: int = 0) -> Expression | None:
        """Return the declared size of a dimension of a container; None if it is not known."""
        base, indices = flat(container)
        one = self.declared.get(base.name) if isinstance(base, Name) else None
        axis += len(indices)
        is_known = one is not None and axis < len(one.all_dims) and not any(isinstance(each, Slice) for each in indices)
        return one.all_dims[axis] if one is not None and is_known else None
