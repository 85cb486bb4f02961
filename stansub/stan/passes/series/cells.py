"""Tables of outcomes whose rows have parameters of their own, with an observation for each cell.

In ``for (j in 1:J) y[j] ~ bernoulli_logit(theta[j] - b);``, where row j has the answers of a person to all items, the
data cannot be cut by persons or by items, because both have parameters. Given these, the cells are independent. Four
passes write the likelihood over cells: the first writes densities of rows or columns, or of ranges of them, as loops
over cells, the second writes these apart from other terms, the third writes the values of a computed table where such
loops read its cells, and the last writes loops over the cells of a table as a loop over rows of data, each with its
place in the table. Cells that read the one before are rows of data by another pass (`lags`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from stansub.stan.passes.rewriting import Edits, Pass, Symbols
from stansub.stan.passes.series.affine import Affine
from stansub.stan.passes.series.element_values import element_values, with_local_elements, with_values
from stansub.stan.passes.series.nests import Nest, nested
from stansub.stan.passes.series.row_variables import RowVariables
from stansub.stan.passes.series.rows import ONE, Rows
from stansub.stan.reading.reach import BY_ELEMENT, ELEMENTWISE, REPEATED, SAME_ELEMENTS
from stansub.stan.reading.sizes import JOINT, has_terms
from stansub.stan.reading.typing import types_in_blocks
from stansub.stan.syntax import (
    Assign,
    Call,
    Declaration,
    Expression,
    For,
    Infix,
    Name,
    Node,
    Prefix,
    Program,
    Slice,
    Statement,
    Subscript,
    Transpose,
    added_density,
    changed,
    find,
    flat,
    is_carried,
    names,
    printed,
    substituted,
    unlooped,
    writes,
)

# Dimensions of elements of arrays.
_DIMS = {"int": 0, "real": 0, "vector": 1, "row_vector": 1, "matrix": 2}
_OPERATORS = frozenset({"+", "-", "*", "/", "^", *BY_ELEMENT})
# Densities whose last argument is a vector for each single outcome.
_ORDERED = ("ordered_logistic", "ordered_probit")


def _subscript(expression: Expression) -> Expression:
    """Return parts of a container as subscripts, ``head(x, k)`` as ``x[1 : k]``, and other expressions as they are."""
    match expression:
        case Call("head", (whole, n)):
            return _with_range(whole, Slice(ONE, n))
        case Call("segment", (whole, first, n)):
            return _with_range(whole, Slice(first, (Affine.of(first) + Affine.of(n) - 1).expression))
        case Call("col", (Name() as table, at)):
            return Subscript(table, (Slice(), at))
        case Call("row", (Name() as table, at)):
            return Subscript(table, (at,))
    return expression


def _with_range(whole: Expression, taken: Slice) -> Expression:
    base, indices = flat(whole)
    kept = next((k for k, one in enumerate(indices) if isinstance(one, Slice) and one.is_whole), len(indices))
    return Subscript(base, (*indices[:kept], taken, *indices[kept + 1 :]))


def _first(index: Expression) -> Expression:
    """Return the first element that an index selects of those that it leaves."""
    return index.lower if isinstance(index, Slice) and index.lower is not None else ONE


class _Cells(NamedTuple):
    """A range of cells of a row or column."""

    first: Expression
    last: Expression


class _JointError(Exception):
    """Cells are used together."""


@Pass.named("densities of rows of a table cell by cell")
def cell_by_cell(program: Program) -> Edits:
    """Write densities of rows or columns of a table as loops over its cells."""
    return _edited(program, _Line.over_cells)


@Pass.named("loops over cells of a table without other terms")
def cells_apart(program: Program) -> Edits:
    """Write loops over the cells of rows or columns apart from what else is done for each row or column."""
    return _edited(program, _Line.apart)


def _edited(program: Program, written: Callable[[_Line], list[Statement]]) -> Edits:
    """Return the loops of the model in the place of which something else is written."""
    symbols, found = Symbols.of(program), []
    for loop, _ in unlooped(program.model.statements):
        if isinstance(loop, For) and (lines := written(_Line(program, loop, symbols, Name(symbols.fresh("cell"))))):
            found.append((loop.span, printed(lines)))
    return Edits([], found)


@Pass.named("values of cells in place of computed tables")
def with_cell_values(program: Program) -> Edits:
    """Write what loops over the cells of a table read of a computed table as variables or values of the cell."""
    found = []
    for nest in _nests(Rows(program)):
        at = tuple(Name(one.variable) for one in nest.loops)
        body = with_local_elements(nest.body, at, program.model.statements, Symbols.of(program))
        body = tuple(with_values(one, program, nest.places) for one in body)
        if body != nest.body and _is_table(program, nest.loops, body):
            found.append((nest.span, printed(nested(nest.loops, body))))
    return Edits([], found)


@Pass.named("cells of a table as rows of data")
def by_cells(program: Program) -> Edits:
    """Write loops over the cells of a table whose rows have parameters as loops over rows of data."""
    rows = Rows(program)
    nests = (nest for nest in _nests(rows) if _is_table(program, nest.loops, nest.body))
    return rows.edits([(nest.span, str(nest.over_rows())) for nest in nests])


def _nests(rows: Rows) -> Iterator[Nest]:
    """Yield the loops of the model that add terms."""
    program = rows.program
    for loop, above in unlooped(program.model.statements, program.transformed_parameters.statements):
        if isinstance(loop, For) and has_terms(loop):
            yield Nest.of(rows, _inward(loop), RowVariables(rows, above))


def _are_separate(some: Sequence[Statement], others: Sequence[Statement]) -> bool:
    """Return whether neither statements write what the others read."""
    return not (writes(*some) & names(*others) or writes(*others) & names(*some))


def _inward(loop: For) -> For:
    """Return nested loops with what the outer ones compute moved into the innermost, if values stay the same."""
    *before, last = loop.body
    if not isinstance(last, For) or not has_terms(last):
        return loop
    own, again = {one.name for one in before if isinstance(one, Declaration)}, writes(*last.body)
    found = {one.name for one in before if isinstance(one, Declaration) and one.value is not None}
    found |= writes(*(one for one in before if isinstance(one, Assign)))
    if (
        not all(isinstance(one, Declaration | Assign) for one in before)
        or not found <= own
        or own & names(last.lower, last.upper)
        or again & (found | (names(*before) - own))
        or any(is_carried(last.body, name) for name in own - found)
    ):
        return loop
    return replace(loop, body=(_inward(replace(last, body=(*before, *last.body))),))


def _is_table(program: Program, loops: tuple[For, ...], body: tuple[Statement, ...]) -> bool:
    """Return whether nested loops run over the cells of a table of data whose rows have parameters."""
    places, sizes, changing = {one.variable for one in loops}, program.sizes_of_parameters, program.changing_names
    reads = [(str(base), [str(one) for one in indices]) for base, indices in map(flat, find(Subscript, body))]
    own = {index for name, at in reads if name in changing for index in at}
    of_parameters = {one.variable for one in loops if str(one.upper) in sizes}
    rows = {one.variable for one in loops if one.lower == ONE} & of_parameters & own
    computed = changing - {one.name for one in program.parameters.declarations}
    if any(name in computed and (places - of_parameters) & set(at) for name, at in reads):
        return False  # computed for each row or column that has no parameters: these are the observations
    cells = [(name, at) for name, at in reads if len(places & set(at)) > 1]
    if any(name in changing for name, _ in cells):  # a parameter for each cell
        return False
    return any(at[0] in rows for _, at in cells)


@dataclass(frozen=True)
class _Line:
    """A loop over rows or columns of tables."""

    program: Program
    loop: For
    symbols: Symbols
    cell: Name
    """Variable of a loop over the cells of one of them."""
    first: Expression = ONE
    """Its first value."""

    def over_cells(self) -> list[Statement]:
        """Return the loop with densities in loops over cells; empty if it has no such densities, or other ones."""
        found = {one: cells for one in self.loop.body if (cells := self._table(one)) is not None}
        values = [one for one in self.loop.body if isinstance(one, Declaration) and one.name in self._values]
        others = tuple(one for one in self.loop.body if one not in (*found, *values))
        inner = list[Statement]()
        try:
            for one, cells in found.items():
                density = replace(self, first=cells.first)._by_cell(one)
                fills = self._fills(cells, density)
                others = tuple(each for each in others if each not in fills)
                before = (substituted(each, {fill.variable: self.cell}) for fill in fills for each in fill.body)
                body = (*before, density)
                body = with_local_elements(body, (self.cell,), (*others, *body), self.symbols)
                over_cells = For(self.cell.name, *cells, body)
                if not self._is_over_cells(over_cells):
                    return []
                inner.append(over_cells)
        except _JointError:
            return []
        if not inner or not _are_separate(others, inner):
            return []
        return [replace(self.loop, body=(*others, *inner))]

    def apart(self) -> list[Statement]:
        """Return each loop over cells by itself, after what else the loop does; empty if there is only one."""
        inner = [one for one in self.loop.body if isinstance(one, For) and self._is_over_cells(one)]
        others = tuple(one for one in self.loop.body if one not in inner)
        if not inner or len(self.loop.body) == 1 or not _are_separate(others, inner):
            return []
        return [replace(self.loop, body=one) for one in (others, *((each,) for each in inner)) if one]

    def _is_over_cells(self, one: For) -> bool:
        """Return whether it is a loop of densities of cells."""
        return has_terms(one) and _is_table(self.program, (self.loop, one), one.body)

    def _fills(self, cells: _Cells, density: Statement) -> list[For]:
        """Return loops over as many cells that compute what their density reads, in order."""
        found, needed = list[For](), names(density)
        for one in reversed(self.loop.body):
            over_cells = isinstance(one, For) and (one.lower, one.upper) == cells and not has_terms(one)
            if isinstance(one, For) and over_cells and writes(one) & needed:
                found.insert(0, one)
                needed |= names(one)
        return found

    def _table(self, statement: Statement) -> _Cells | None:
        """Return the range of cells in this row or column of which the statement is the density, if it is one."""
        density = added_density(statement)
        if density is None or density.name.startswith(JOINT) or density.name.endswith("_glm"):
            return None
        outcomes = density.left
        while isinstance(outcomes, Call) and outcomes.name in SAME_ELEMENTS and len(outcomes.arguments) == 1:
            outcomes = outcomes.arguments[0]
        base, indices = flat(_subscript(outcomes))
        sizes = self._sizes.get(str(base), ())
        if len(sizes) != 2 or Name(self.loop.variable) not in indices:
            return None
        with suppress(_JointError, ValueError):
            (axis,) = self._open(indices, 2)
            taken = indices[axis] if axis < len(indices) else Slice()
            end = taken.upper if isinstance(taken, Slice) else None
            return _Cells(_first(taken), end or sizes[axis])
        return None

    @cached_property
    def _sizes(self) -> Mapping[str, tuple[Expression, ...]]:
        return {one.name: one.all_dims for one in self.program.data_declarations}

    @cached_property
    def _values(self) -> Mapping[str, Expression]:
        """Return values of the loop's own variables that are declared with a value and not changed."""
        declared = [one for one in self.loop.body if isinstance(one, Declaration)]
        changes = writes(*(one for one in self.loop.body if one not in declared))
        return {one.name: one.value for one in declared if one.value is not None and one.name not in changes}

    def _by_cell(self, statement: Statement) -> Statement:
        """Return a density of all cells as that of a single one."""
        density = added_density(statement)
        assert density is not None
        n_others = len(density.arguments) - (density.name in _ORDERED)
        whole = (density.left, *density.arguments[:n_others])
        given: dict[Node, Node] = {one: self._at(one) for one in whole}
        return changed(statement, given.get)

    def _at(self, expression: Expression) -> Expression:
        """Return the value of an expression for the cell; _JointError if it has values of several cells."""
        if isinstance(expression, Name) and expression.name in self._values:
            return self._at(self._values[expression.name])
        if self._n_dims(expression) == 0:
            return self._scalar(expression)
        if (value := self._computed(expression)) is not None:
            return self._at(value)
        match expression:
            case Transpose(operand):
                return self._at(operand)
            case Prefix("+" | "-", operand):
                return replace(expression, operand=self._at(operand))
            case Infix("*", left, right) if self._n_dims(left) and self._n_dims(right):
                return self._product(left, right)
            case Infix(operator, left, right) if operator in _OPERATORS:
                return Infix(BY_ELEMENT.get(operator, operator), self._at(left), self._at(right))
            case Call(name, arguments) if name in ELEMENTWISE:
                return replace(expression, arguments=tuple(map(self._at, arguments)))
            case Call(name, (inside,)) if name in SAME_ELEMENTS:
                return self._at(inside)
            case Call(name, (value, _)) if REPEATED.get(name) == 1:
                return self._at(value)
            case Name() | Subscript():
                return self._element(expression)
            case Call() if (part := _subscript(expression)) != expression:
                return self._element(part)
        raise _JointError

    def _scalar(self, expression: Expression) -> Expression:
        if names(expression) & set(self._values):
            raise _JointError
        return expression

    def _product(self, left: Expression, right: Expression) -> Expression:
        """Return an element of a product of a matrix and a vector."""
        kinds = [types_in_blocks(self.program).of(one).base for one in (left, right)]
        if kinds == ["matrix", "vector"]:
            return Infix("*", self._element(left), right)
        if kinds == ["row_vector", "matrix"]:
            return Infix("*", left, self._element(right, axis=1))
        raise _JointError

    def _element(self, expression: Expression, axis: int = 0) -> Expression:
        """Return a variable, or a part of it, at the cell."""
        base, indices = flat(expression)
        if not isinstance(base, Name) or base.name in self._values:
            raise _JointError
        kind = types_in_blocks(self.program).of(base)
        n_dims = kind.depth + _DIMS.get(kind.base, 0)
        at = self._open(indices, n_dims)[axis]
        given = [*indices, *[Slice()] * (n_dims - len(indices))]
        index = given[at]
        given[at] = self._place(index) if isinstance(index, Slice) else self._at(index)
        cell = Subscript(base, tuple(given))
        value = self._computed(cell)
        return cell if value is None else value

    def _place(self, taken: Slice) -> Expression:
        """Return which element of a range belongs to the cell."""
        ahead = Affine.of(_first(taken)) - Affine.of(self.first)
        return (Affine.of(self.cell) + ahead).expression

    def _computed(self, expression: Expression) -> Expression | None:
        """Return the value of a row or a cell of a computed table, or of an element of what the loop computes."""
        base, indices = flat(expression)
        found = element_values(self.program).get(base.name) if isinstance(base, Name) else None
        if found is None or len(indices) != len(found.places):
            return None
        is_own = any(one.name == str(base) for one in find(Declaration, self.loop.body))
        return found.at(indices) if is_own or Name(self.loop.variable) in indices else None

    def _open(self, indices: tuple[Expression, ...], n_dims: int) -> list[int]:
        """Return the dimensions of a variable that indices leave, or select by a list or a range.

        Raises `_JointError` if there is an index too many.
        """
        if len(indices) > n_dims:
            raise _JointError
        found = []
        for k in range(n_dims):
            index = indices[k] if k < len(indices) else Slice()
            if isinstance(index, Slice) or self._n_dims(index):
                found.append(k)
        return found

    def _n_dims(self, expression: Expression) -> int:
        """Return the number of dimensions of a value; _JointError if it is not known."""
        kind = types_in_blocks(self.program).of(expression)
        if kind.base not in _DIMS:
            raise _JointError
        return kind.depth + _DIMS[kind.base]
