"""Variables with a value for each observation, computed for some of the observations only.

`RowVariables` rewrites statements that fill such a variable (``mu[t] = alpha + beta * y[t - 1];`` in a loop, or
``mu = x * beta;``) for a range of its elements and from rows of data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from stansub.stan.passes.rewriting import RefusedError
from stansub.stan.passes.series.affine import Affine
from stansub.stan.passes.series.nests import Nest
from stansub.stan.passes.series.rows import ONE, ROW, Index, Read, Rows, Stretch, exchanged
from stansub.stan.reading.reach import REPEATED
from stansub.stan.reading.sizes import has_terms
from stansub.stan.syntax import (
    Assign,
    Call,
    Declaration,
    Expression,
    For,
    If,
    Infix,
    Literal,
    Name,
    Node,
    Perform,
    Prefix,
    Program,
    Slice,
    Span,
    Statement,
    Subscript,
    find,
    names,
    writes,
)

S = TypeVar("S", Expression, Statement)

_UNKNOWN = "assigns to `{}` in a way that stansub cannot split by observations"
_WITHIN = {"lower": ">=", "upper": "<="}


class DividedError(Exception):
    """The first ``rows`` of a range are computed differently from the others."""

    def __init__(self, rows: Affine) -> None:
        super().__init__(str(rows))
        self.rows = rows


@dataclass
class RowVariables:
    """Computed variables, by ranges of their elements."""

    rows: Rows
    """Rows of data, to which new ones are added."""
    before: tuple[Statement, ...]
    """Statements that may fill the variables, in order."""
    lines: list[Statement] = field(default_factory=list)
    """Statements that declare and fill the new variables."""
    variables: dict[str, Declaration] = field(init=False)
    _names: dict[tuple[str, Affine, Expression], str] = field(default_factory=dict)
    _open: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.variables = {one.name: one for one in self.before if isinstance(one, Declaration) and one.all_dims}
        self.parameters = {one.name: one.all_dims[0] for one in self.program.parameters.declarations if one.all_dims}

    @property
    def program(self) -> Program:
        """The user's program."""
        return self.rows.program

    def whole(self, variable: str) -> Affine:
        """Return the number of elements, or rows, of a computed variable."""
        return self.rows.affine(self.variables[variable].all_dims[0])

    def part(self, variable: str, stretch: Stretch) -> Name:
        """Return a variable that contains a range of elements of a computed one.

        Raises `RefusedError` if they are computed from each other, or in a way that cannot be split by observations;
        `DividedError` if they are not all computed in the same way.
        """
        key = (variable, stretch.lower, stretch.size)
        if key not in self._names:
            if variable in self._open:
                raise self._refused(
                    variable, f"computes `{variable}` from its own earlier values, which depend on parameters"
                )
            group = self._group(variable)
            for one in self.before:
                if isinstance(one, For) and written(one) & group:
                    Nest(self.rows, (one,), one.body, self, frozenset(group)).check_past()
            self._adopt(group, stretch)
            self._open |= group
            filling = [one for one in self.before if written(one) & group]
            lines = [new for one in filling for new in self._again(one, group, stretch)]
            self._open -= group
            self.lines += [*lines, *(new for one in sorted(group) for new in self._check(one, stretch))]
        return Name(self._names[key])

    def _adopt(self, group: set[str], stretch: Stretch) -> None:
        """Name the range of variables that are filled together."""
        for one in sorted(group):
            if one not in self.variables or self.whole(one) != stretch.whole:
                raise self._refused(one, _UNKNOWN.format(one))
            self._names[one, stretch.lower, stretch.size] = self.rows.fresh(one)

    def here(self, variable: str, stretch: Stretch) -> None:
        """Declare the range of a variable that is filled next."""
        self._adopt({variable}, stretch)
        self.lines.append(self._declared(self.variables[variable], stretch))
        self._open.add(variable)

    def _declared(self, declaration: Declaration, stretch: Stretch) -> Declaration:
        """Return the declaration of a variable for a range."""
        variable, value = declaration.name, declaration.value
        filled = None if value is None else self.over(value, stretch)
        shape = declaration.type.shape
        if shape is None or shape.base != declaration.base:
            raise self._refused(variable, _UNKNOWN.format(variable))
        return Declaration(shape.part([stretch.size]), self.part(variable, stretch).name, filled)

    def _check(self, variable: str, stretch: Stretch) -> list[Statement]:
        """Return a statement that rejects values outside the declared bounds of a variable."""
        declaration = self.variables[variable]
        value = Subscript(self.part(variable, stretch), (Name(ROW),))
        reject = Perform(Call("reject", (Literal(f'"{variable} is out of bounds"'),)))
        checks = list[Statement]()
        for bound in declaration.type.bounds:
            if bound.kind not in _WITHIN or not names(bound) <= self.rows.data or len(declaration.all_dims) > 1:
                raise self._refused(variable, _UNKNOWN.format(variable))
            checks.append(If(Prefix("!", Infix(_WITHIN[bound.kind], value, bound.value)), (reject,)))
        return [For(ROW, ONE, stretch.size, tuple(checks))] if checks else []

    def _group(self, variable: str) -> set[str]:
        """Return variables that the same statements fill."""
        group = {variable}
        while more := {
            name
            for one in self.before
            if not isinstance(one, Declaration) and (found := written(one)) & group
            for name in found - group
        }:
            group |= more
        return group

    def _again(self, statement: Statement, group: set[str], stretch: Stretch) -> tuple[Statement, ...]:
        """Return a statement that fills some variables for a range of them; none if it fills other elements."""
        if isinstance(statement, Declaration):
            return (self._declared(statement, stretch),)
        if isinstance(statement, Assign) and len(statement.variables) == 1:
            return self._assigned(statement, stretch)
        if isinstance(statement, For):
            return self._looped(statement, group, stretch)
        if isinstance(statement, If):
            then, orelse = (
                tuple(new for one in side for new in self._again(one, group, stretch)) for side in statement.bodies
            )
            return (replace(statement, then=then, orelse=orelse),)
        raise self._unknown(statement)

    def _assigned(self, statement: Assign, stretch: Stretch) -> tuple[Statement, ...]:
        variable = statement.variables[0]
        part = self.part(variable, stretch)
        if isinstance(statement.place, Name):
            return (replace(statement, place=part, expression=self.over(statement.expression, stretch)),)
        read = self.rows.read_at(statement.place, {variable})
        if read is None:
            raise self._unknown(statement)
        index, *rest = self._indices(read)
        filled = self._filled(index.lower, index.upper or index.lower, stretch, inside=index.upper is None)
        if filled is None:
            return ()
        first: Expression = (index.lower - stretch.lower + 1).expression
        inner = None
        if index.length is not None:
            first, inner = Slice(), stretch.within(index.lower.times(-1) + 2, index.length)
        place = part if inner and not rest else Subscript(part, (first, *(one.expression for one in rest)))
        return (replace(statement, place=place, expression=self.over(statement.expression, inner)),)

    def _indices(self, read: Read) -> list[Index]:
        sizes = self.variables[read.variable].all_dims
        return [Index.of(one, self.rows, size) for one, size in zip(read.indices, sizes, strict=False)]

    def _filled(self, lower: Affine, upper: Affine, stretch: Stretch, *, inside: bool = False) -> bool | None:
        """Return True if elements ``lower`` to ``upper`` cover a range or may lie ``inside`` it, None otherwise.

        Raises `DividedError` if the range must be divided.
        """
        if (lower - stretch.upper).is_at_least(1) or (stretch.lower - upper).is_at_least(1):
            return None
        starts, ends = (stretch.lower - lower).is_at_least(0), (upper - stretch.upper).is_at_least(0)
        if starts and ends:
            return True
        if inside and (lower - stretch.lower).is_at_least(0) and (stretch.upper - upper).is_at_least(0):
            return True
        raise DividedError((upper + 1 if starts else lower) - stretch.lower)

    def _looped(self, loop: For, group: set[str], stretch: Stretch) -> tuple[Statement, ...]:
        offsets = set()
        for one in find(Assign, loop.body):
            if set(one.variables) & group:
                read = self.rows.read_at(one.place, group)
                index = Index.of(read.indices[0], self.rows) if read else None
                if index is None or index.upper is not None or index.lower.factor(Name(loop.variable)) != 1:
                    raise self._unknown(one)
                offsets.add(index.lower - self.rows.affine(Name(loop.variable)))
        if len(offsets) != 1 or not names(loop.lower, loop.upper) <= self.rows.data:
            raise self._unknown(loop)
        offset = offsets.pop()
        lower, upper = self.rows.affine(loop.lower) + offset, self.rows.affine(loop.upper) + offset
        if self._filled(lower, upper, stretch) is None:
            return ()
        bounds = [(end - offset).expression for end in (stretch.lower, stretch.upper)]
        part = replace(loop, lower=bounds[0], upper=bounds[1])
        return (Nest(self.rows, (part,), loop.body, self, frozenset(group)).over_rows(stretch.size),)

    def over(self, code: S, stretch: Stretch | None) -> S:
        """Return vectorised code for a range of the variables; without one, for elements at fixed indices."""
        return exchanged(code, lambda node: self._exchange(code.span, node, stretch))

    def _exchange(self, span: Span, node: Node, stretch: Stretch | None) -> Expression | None:
        """Return the replacement of a variable or call; None if it stays."""
        if read := self.rows.read_at(node):
            return self._data(read, stretch)
        if read := self.rows.read_at(node, self.variables):
            return self._element(read, stretch)
        if stretch is None:
            return None
        if read := self.rows.read_at(node, self.parameters):
            index = Index.of(read.indices[0], self.rows, self.parameters[read.variable])
            if index.length == stretch.whole:
                raise self._of_each(span, read.variable)
        if isinstance(node, Call):
            return self._call(node, stretch)
        return self._whole(span, node, stretch) if isinstance(node, Name) else None

    def _whole(self, span: Span, node: Name, stretch: Stretch) -> Expression | None:
        """Return the replacement of a whole variable."""
        if node.name in self.parameters and self.rows.affine(self.parameters[node.name]) == stretch.whole:
            raise self._of_each(span, node.name)
        shape = self.rows.shapes.get(node.name)
        if shape is not None and shape.all_dims and self.rows.affine(shape.all_dims[0]) == stretch.whole:
            self.rows.observed.add(node.name)
            return self.rows.constant(Read(node, node.name, (stretch.slice,)), stretch.size)
        if node.name in self.variables and self.whole(node.name) == stretch.whole:
            return self.part(node.name, stretch)
        return None

    def _data(self, read: Read, stretch: Stretch | None) -> Expression | None:
        first, *_ = self.rows.indices(read)
        if first.length is None:
            return self.rows.constant(read)
        if stretch is None or first.length != stretch.whole:
            return None
        part = stretch.within(first.lower, first.length)
        self.rows.observed.add(read.variable)
        return self.rows.constant(read._replace(indices=(part.slice, *read.indices[1:])), stretch.size)

    def _element(self, read: Read, stretch: Stretch | None) -> Expression | None:
        """Return an element or a slice of a computed variable."""
        index, whole, others = self._indices(read)[0], self.whole(read.variable), read.indices[1:]
        if not index.names <= self.rows.data or self.rows.is_array(read.indices[0]):
            return None
        if index.upper is None:
            return Subscript(self.part(read.variable, Stretch(whole, index.lower, Affine((), 1), ONE)), (ONE, *others))
        if stretch is None or index.length != stretch.whole:
            return None
        part = self.part(read.variable, stretch.within(index.lower, whole))
        return Subscript(part, (Slice(), *others)) if others else part

    def _call(self, call: Call, stretch: Stretch) -> Expression | None:
        """Return the replacement of a call whose result has a value for each observation."""
        place, arguments = REPEATED.get(call.name), list(call.arguments)
        if place is None or place >= len(arguments) or self.rows.affine(arguments[place]) != stretch.whole:
            return None
        arguments[place] = stretch.size
        return replace(call, arguments=tuple(arguments))

    def _of_each(self, span: Span, variable: str) -> RefusedError:
        return RefusedError(f"reads `{variable}`, which has a value for each observation", span)

    def _unknown(self, statement: Statement) -> RefusedError:
        return RefusedError(_UNKNOWN.format(", ".join(sorted(written(statement)))), statement.span)

    def _refused(self, variable: str, message: str) -> RefusedError:
        fills = [one for one in find(Assign, self.before) if variable in one.variables]
        found = [one for one in fills if variable in names(one.expression)] or fills
        return RefusedError(message, found[0].span if found else self.variables[variable].span)


def filling(before: Sequence[Statement], needed: set[str]) -> tuple[list[Statement], set[str]]:
    """Return the statements that compute some variables, in order, and the variables with all others that they read."""
    found, needed = list[Statement](), set(needed)
    for one in reversed(before):
        if written(one) & needed and not has_terms(one):
            found.insert(0, one)
            needed |= names(one)
    return found, needed


def written(statement: Statement) -> set[str]:
    """Return variables that a statement declares or assigns, except those declared inside it."""
    return writes(statement) - {one.name for one in find(Declaration, [statement]) if one is not statement}
