"""Variables with a value for each observation that a program computes, for some of the observations only.

`Computed` writes statements that fill such a variable (``mu[t] = alpha + beta * y[t - 1];`` in a loop, or
``mu = x * beta;``) once more, for a stretch of its elements and from rows of data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from stansub.stan.remarks import Remark
from stansub.stan.series.affine import Affine
from stansub.stan.series.nests import Nest
from stansub.stan.series.rows import ROW, Index, Read, RefusedError, Rows, Stretch
from stansub.stan.series.shapes import Shape
from stansub.stan.syntax import (
    Assign,
    Declaration,
    For,
    If,
    Program,
    Statement,
    Token,
    matching,
    names,
    split,
    tokenize,
    walk,
)

# Functions with a size as an argument, and which.
_UNKNOWN = "fills `{}` in a way that cannot be taken apart by observations"
_SIZED = {"rep_vector": 1, "rep_row_vector": 1, "rep_array": 1, "rep_matrix": 1, "zeros_vector": 0, "ones_vector": 0}


class DividedError(Exception):
    """The first ``rows`` of a stretch are computed in another way than the others."""

    def __init__(self, rows: Affine) -> None:
        super().__init__(str(rows))
        self.rows = rows


@dataclass
class Computed:
    """Computed variables, a stretch of their elements each.

    Attributes
    ----------
    rows : Rows
        Where rows of data are added.
    before : tuple of statements
        What may fill the variables, in order.
    lines : list of str
        Stan code that declares and fills the new variables.
    copied : set of str
        Variables of which there are some.
    """

    rows: Rows
    before: tuple[Statement, ...]
    lines: list[str] = field(default_factory=list)
    copied: set[str] = field(default_factory=set)
    variables: dict[str, Declaration] = field(init=False)
    _names: dict[tuple[str, Affine, str], str] = field(default_factory=dict)
    _open: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.variables = {one.name: one for one in self.before if isinstance(one, Declaration) and one.all_dims}
        self.parameters = {one.name: one.all_dims[0] for one in self.program.parameters.declarations if one.all_dims}

    @property
    def program(self) -> Program:
        """The user's program."""
        return self.rows.program

    def whole(self, variable: str) -> Affine:
        """How many elements, or rows, a computed variable has."""
        return self.rows.affine(self.variables[variable].all_dims[0])

    def kept(self) -> tuple[object, ...]:
        """What `go_back` takes to forget what comes after now."""
        return list(self.lines), set(self.copied), dict(self._names), set(self._open)

    def go_back(self, kept: tuple[Any, ...]) -> None:
        """Forget what was added since `kept`."""
        self.lines, self.copied, self._names, self._open = kept

    def length(self, tokens: Sequence[Token], k: int) -> Affine | None:
        """How many elements of the computed variable at a token are read; None for a single one."""
        read = self.rows.read_at(tokens, k, set(self.variables))
        if read is None:
            return self.whole(tokens[k].text)
        (first, size), *_ = self._sized(read)
        return Index.of(first, self.rows, size).length

    def part(self, variable: str, stretch: Stretch) -> str:
        """The name of a variable that holds some elements of a computed one.

        Raises
        ------
        RefusedError
            When they are computed from each other, or in a way that cannot be taken apart by observations.
        DividedError
            When they are not computed all in the same way.
        """
        key = (variable, stretch.lower, stretch.size)
        if key not in self._names:
            if variable in self._open:
                raise self._refused(variable, f"computes `{variable}` from its own past, which depends on parameters")
            group = self._group(variable)
            for one in self.before:
                if isinstance(one, For) and written(one) & group:
                    Nest(self.rows, (one,), one.body, self, frozenset(group)).check_past()
            self.adopt(group, stretch)
            self._open |= group
            lines = [self._again(one, group, stretch) for one in self.before if written(one) & group]
            self._open -= group
            self.lines += filter(None, [*lines, *(self._check(one, stretch) for one in sorted(group))])
        return self._names[key]

    def adopt(self, group: set[str], stretch: Stretch) -> None:
        """Name the stretch of variables that are filled together."""
        for one in sorted(group):
            if one not in self.variables or self.whole(one) != stretch.whole:
                raise self._refused(one, _UNKNOWN.format(one))
            self._names[one, stretch.lower, stretch.size] = self.rows.fresh(one)
        self.copied |= group

    def here(self, group: set[str], stretch: Stretch) -> None:
        """Declare the stretch of variables that are about to be filled."""
        self.adopt(group, stretch)
        for one in sorted(group):
            value = self.variables[one].value
            self.lines.append(self.declared(one, stretch, "" if value is None else self.text(value, stretch)))
        self._open |= group

    def declared(self, variable: str, stretch: Stretch, value: str = "") -> str:
        """A declaration of a variable for a stretch."""
        shape = Shape.of(self.variables[variable])
        if shape is None or shape.base != self.variables[variable].base:
            raise self._refused(variable, _UNKNOWN.format(variable))
        part = shape.at([stretch.size])
        return f"{part.declared(self.part(variable, stretch))}{value and ' = '}{value};"

    def _check(self, variable: str, stretch: Stretch) -> str:
        """What rejects values outside the bounds that a variable is declared with."""
        declaration, name = self.variables[variable], self.part(variable, stretch)
        lines = []
        for bound in split(tokenize(declaration.constraint), ","):
            sign = {"lower": ">=", "upper": "<="}.get(bound[0].text) if bound else ""
            value = " ".join(token.text for token in bound[2:])
            if sign is None or not names(value) <= self.rows.data or len(declaration.all_dims) > 1:
                raise self._refused(variable, _UNKNOWN.format(variable))
            if sign:
                lines.append(f'if (!({name}[{ROW}] {sign} {value})) {{ reject("{variable} is out of bounds"); }}')
        return "\n".join([f"for ({ROW} in 1 : {stretch.size}) {{", *lines, "}"]) if lines else ""

    def _group(self, variable: str) -> set[str]:
        """Variables that the same statements fill."""
        group = {variable}
        while more := {
            name
            for one in self.before
            if not isinstance(one, Declaration) and (found := written(one)) & group
            for name in found - group
        }:
            group |= more
        return group

    def _again(self, statement: Statement, group: set[str], stretch: Stretch) -> str:
        """A statement that fills some variables, for a stretch of them; nothing where it fills other elements."""
        if isinstance(statement, Declaration):
            value = "" if statement.value is None else self.text(statement.value, stretch)
            return self.declared(statement.name, stretch, value)
        if isinstance(statement, Assign) and len(statement.variables) == 1:
            return self._assigned(statement, stretch)
        if isinstance(statement, For):
            return self._looped(statement, group, stretch)
        if isinstance(statement, If):
            then, orelse = (
                "\n".join(self._again(one, group, stretch) for one in side)
                for side in (statement.then, statement.orelse)
            )
            return f"if ({statement.condition}) {{\n{then}\n}} else {{\n{orelse}\n}}"
        raise self._unknown(statement)

    def _assigned(self, statement: Assign, stretch: Stretch) -> str:
        variable = statement.variables[0]
        name = self.part(variable, stretch)
        if statement.place == variable:
            return f"{name} {statement.operator} {self.text(statement.expression, stretch)};"
        tokens = tokenize(statement.place)
        read = self.rows.read_at(tokens, 0, {variable})
        if read is None:
            raise self._unknown(statement)
        index, *rest = (Index.of(text, self.rows, size) for text, size in self._sized(read))
        filled = self._filled(index.lower, index.upper or index.lower, stretch, inside=index.upper is None)
        if filled is None:
            return ""
        others = "".join(f", {one}" for one in rest)
        if index.upper is None:
            place = f"{name}[{index.lower - stretch.lower + 1}{others}]"
            return f"{place} {statement.operator} {self.text(statement.expression, None)};"
        n = index.upper - index.lower + 1
        inner = Stretch(n, stretch.lower - index.lower + 1, stretch.n, stretch.size)
        place = f"{name}[ : {others}]" if rest else name
        return f"{place} {statement.operator} {self.text(statement.expression, inner)};"

    def _sized(self, read: Read) -> list[tuple[str, str]]:
        return list(zip(read.indices, self.variables[read.variable].all_dims, strict=False))

    def _filled(self, lower: Affine, upper: Affine, stretch: Stretch, *, inside: bool = False) -> bool | None:
        """True if elements ``lower`` to ``upper`` cover a stretch, or may lie ``inside``, None if they are others.

        Raises
        ------
        DividedError
            Where the stretch has to be divided.
        """
        if _at_least(lower - stretch.upper, 1) or _at_least(stretch.lower - upper, 1):
            return None
        starts, ends = _at_least(stretch.lower - lower, 0), _at_least(upper - stretch.upper, 0)
        if starts and ends:
            return True
        if inside and _at_least(lower - stretch.lower, 0) and _at_least(stretch.upper - upper, 0):
            return True
        raise DividedError((upper + 1 if starts else lower) - stretch.lower)

    def _looped(self, loop: For, group: set[str], stretch: Stretch) -> str:
        offsets = set()
        for one in walk(loop.body):
            if isinstance(one, Assign) and set(one.variables) & group:
                read = self.rows.read_at(tokenize(one.place), 0, group)
                index = Index.of(read.indices[0], self.rows) if read else None
                if index is None or index.upper is not None or index.lower.factor(loop.variable) != 1:
                    raise self._unknown(one)
                offsets.add(index.lower - Affine(((loop.variable, 1),), 0))
        if len(offsets) != 1 or not names(f"{loop.lower}, {loop.upper}") <= self.rows.data:
            raise self._unknown(loop)
        offset = offsets.pop()
        lower, upper = self.rows.affine(loop.lower) + offset, self.rows.affine(loop.upper) + offset
        if self._filled(lower, upper, stretch) is None:
            return ""
        bounds = str(stretch.lower - offset), str(stretch.upper - offset)
        part = For(loop.variable, *bounds, loop.body, loop.span)
        return Nest(self.rows, (part,), loop.body, self, frozenset(group)).text(stretch.size)

    def text(self, text: str, stretch: Stretch | None) -> str:
        """An expression or a statement that is about whole variables, for a stretch of them.

        Parameters
        ----------
        text : str
            What it is.
        stretch : Stretch or None
            None where it is about single elements at fixed places.
        """
        tokens = tokenize(text)
        pieces, at = list[str](), 0
        for k, token in enumerate(tokens):
            if token.span.start < at or token.kind != "name":
                continue
            found, end = self._word(text, tokens, k, stretch)
            if found:
                pieces += [text[at : token.span.start], found]
                at = end
        return "".join([*pieces, text[at:]])

    def _word(self, text: str, tokens: Sequence[Token], k: int, stretch: Stretch | None) -> tuple[str, int]:
        """What stands for the variable or call at a token, and where it ends; nothing where it stays."""
        token = tokens[k]
        after = tokens[k + 1].text if k + 1 < len(tokens) else ""
        if read := self.rows.read_at(tokens, k):
            return self._data(read, stretch), read.span.end
        if read := self.rows.read_at(tokens, k, set(self.variables)):
            return self._element(read, stretch), read.span.end
        if read := self.rows.read_at(tokens, k, set(self.parameters)):
            self._check_parameter(text, read, stretch)
        if stretch is None or after == "[":
            return "", 0
        if after == "(":
            return self._call(tokens, k, stretch)
        if token.text in self.parameters and self.rows.affine(self.parameters[token.text]) == stretch.whole:
            raise RefusedError(Remark(text, f"reads `{token.text}`, of which there is one for each observation"))
        shape = self.rows.shapes.get(token.text)
        if shape is not None and shape.sizes and self.rows.affine(shape.sizes[0]) == stretch.whole:
            whole = Read(token.span, token.text, (f"{stretch.lower} : {stretch.upper}",))
            self.rows.observed.add(token.text)
            return self.rows.constant(whole, stretch.size), token.span.end
        if token.text in self.variables and self.whole(token.text) == stretch.whole:
            return self.part(token.text, stretch), token.span.end
        return "", 0

    def _data(self, read: Read, stretch: Stretch | None) -> str:
        first, *_ = self.rows.indices(read)
        if first.length is None:
            return self.rows.constant(read)
        if stretch is None or first.length != stretch.whole:
            return ""
        part = stretch.within(first.lower, first.length)
        self.rows.observed.add(read.variable)
        return self.rows.constant(
            Read(read.span, read.variable, (f"{part.lower} : {part.upper}", *read.indices[1:])), stretch.size
        )

    def _element(self, read: Read, stretch: Stretch | None) -> str:
        """An element or a slice of a computed variable."""
        (first, size), *_ = self._sized(read)
        index, whole = Index.of(first, self.rows, size), self.whole(read.variable)
        others = "".join(f", {one}" for one in read.indices[1:])
        if not index.names <= self.rows.data or self.rows.is_array(first):
            return ""
        if index.upper is None:
            name = self.part(read.variable, Stretch(whole, index.lower, Affine((), 1), "1"))
            return f"{name}[1{others}]"
        if stretch is None or index.length != stretch.whole:
            return ""
        name = self.part(read.variable, stretch.within(index.lower, whole))
        return f"{name}[ : {others}]" if others else name

    def _check_parameter(self, text: str, read: Read, stretch: Stretch | None) -> None:
        """Refuse a slice of a parameter that is as long as there are observations."""
        index = Index.of(read.indices[0], self.rows, self.parameters[read.variable])
        if stretch is not None and index.length == stretch.whole:
            raise RefusedError(Remark(text, f"reads `{read.variable}`, of which there is one for each observation"))

    def _call(self, tokens: Sequence[Token], k: int, stretch: Stretch) -> tuple[str, int]:
        """A call that makes something with a value for each observation."""
        place = _SIZED.get(tokens[k].text)
        close = matching(tokens, k + 1)
        arguments = split(tokens[k + 2 : close], ",")
        texts = [" ".join(token.text for token in argument) for argument in arguments]
        if place is None or place >= len(texts) or self.rows.affine(texts[place]) != stretch.whole:
            return "", 0
        texts[place] = stretch.size
        return f"{tokens[k].text}({', '.join(texts)})", tokens[close].span.end

    def _unknown(self, statement: Statement) -> RefusedError:
        return RefusedError(
            Remark(self.program.text(statement.span), _UNKNOWN.format(", ".join(sorted(written(statement)))))
        )

    def _refused(self, variable: str, message: str) -> RefusedError:
        fills = [one for one in walk(self.before) if isinstance(one, Assign) and variable in one.variables]
        found = [one for one in fills if variable in names(one.expression)] or fills
        return RefusedError(Remark(self.program.text(found[0].span) if found else variable, message))


def written(statement: Statement) -> set[str]:
    """Variables that a statement declares or assigns, but for those that are declared within it."""
    inside = {one.name for one in walk([statement]) if isinstance(one, Declaration) and one is not statement}
    found = {name for one in walk([statement]) if isinstance(one, Assign) for name in one.variables}
    return (found | ({statement.name} if isinstance(statement, Declaration) else set())) - inside


def _at_least(value: Affine, least: int) -> bool:
    return not value.terms and value.constant >= least
