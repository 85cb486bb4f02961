"""Time series whose likelihood is a sum given the data, written as sums over rows of data.

A term of an autoregression reads data of a neighbouring observation (``y[t - 1]``), so the data cannot be cut. In the
rewritten program, ``transformed data`` contain a row for each term with all data that the term reads, and the
likelihood reads only these rows. Its log density is that of the user's program. Only data can be rows: if a term reads
a parameter, a state or a residual of an earlier time, the likelihood is not such a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from stansub.stan.passes.rewriting import Edits, Pass, RefusedError
from stansub.stan.passes.series.affine import Affine
from stansub.stan.passes.series.nests import CARRIED, PAST, Nest, accumulated, direct, is_bare
from stansub.stan.passes.series.row_variables import DividedError, RowVariables, filling, written
from stansub.stan.passes.series.rows import Index, Rows, Stretch, restoring
from stansub.stan.reading.dependence import unused
from stansub.stan.reading.sizes import JOINT, counting, has_terms
from stansub.stan.syntax import (
    Assign,
    Expression,
    For,
    Program,
    Slice,
    Span,
    Statement,
    Subscript,
    calls,
    find,
    is_carried,
    names,
    placed,
    printed,
    unlooped,
    walk,
)

_UNKNOWN = "reads elements of a variable that stansub cannot split by observations"
# A function that returns a statement for some rows (see `_Writer._pieces`).
Piece: TypeAlias = Callable[[Affine, Affine, Expression], Statement]
NOTHING = Affine((), 0)
# Maximum number of times that a statement is divided.
_MOST_PIECES = 5


@Pass.named("data of neighbouring observations as rows of data")
def with_lags(program: Program) -> Edits:
    """Rewrite a likelihood that reads data of neighbouring observations to rows of data.

    ``transformed data`` declare ``stansub_t``, the number of terms, and variables with a row for each term. Refused if
    the likelihood reads other observations' values that are not data.
    """
    edits = _Writer(program).edits()
    if not edits.replacements:
        _check_past(Rows(program))
    return edits


def _check_past(rows: Rows) -> None:
    """Refuse a program that reads values computed for other observations, if it reads no data of neighbouring ones."""
    program, counts = rows.program, counting(rows.program)
    sizes = {one.name: one.all_dims[0] for one in program.declarations if one.all_dims}
    changing = {name for name in program.changing_names if name in sizes and counts(sizes[name])}
    for one in walk(program.evaluated):
        if isinstance(one, For):
            _check_past_in_loop(rows, one, changing)
        elif not one.bodies:
            for read in rows.reads([one], changing):
                size = sizes[read.variable]
                if Index.of(read.indices[0], rows, size).upper not in (None, rows.affine(size)):
                    raise RefusedError(PAST.format(program.text(read.node.span)), one.span)


def _check_past_in_loop(rows: Rows, loop: For, changing: set[str]) -> None:
    nest = Nest.of(rows, loop, RowVariables(rows, ()))
    for read, is_lagged in nest.indexed(changing):
        if is_lagged:
            raise RefusedError(PAST.format(rows.program.text(read.node.span)), nest.holding(read.node.span))
    if has_terms(loop) and any(
        direct(index.expression) & nest.places for read in nest.reads() for index in rows.indices(read)
    ):
        for one in find(Assign, loop.body):
            place = str(one.place)
            if place in names(one.expression) and is_carried(loop.body, place):
                raise RefusedError(CARRIED.format(place), nest.holding(one.span))


@dataclass
class _Writer:
    """Statements over rows, and the declarations that they need."""

    program: Program

    def __post_init__(self) -> None:
        self.rows = Rows(self.program)
        self.counts = counting(self.program)
        self.unused = {step.statement for step in unused(self.program)}

    def edits(self) -> Edits:
        """Return the statements that read data of neighbouring observations over rows, and what these need."""
        found = []
        for statement, above in unlooped(self.program.model.statements, self.program.transformed_parameters.statements):
            if (has_terms(statement) or self._accumulates(statement)) and self._is_lagged(statement, above):
                computed = RowVariables(self.rows, above)
                lines = self._whole(statement, computed)
                found.append((statement.span, printed([*computed.lines, *lines])))
        return self.rows.edits(found)

    def _accumulates(self, statement: Statement) -> bool:
        """Return whether a statement is a loop that only adds to variables, any of which is used."""
        found = written(statement) if isinstance(statement, For) else set[str]()
        adding = [one for one in find(Assign, [statement]) if found.intersection(one.variables)]
        return not self.unused.issuperset(adding) and found <= accumulated(statement.bodies[0])

    def _is_lagged(self, statement: Statement, before: tuple[Statement, ...]) -> bool:
        """Return whether a statement reads data of neighbouring observations, directly or through other variables."""
        computed = RowVariables(self.rows, before)
        reached, read = names(statement), [statement]
        for one in reversed(before):
            if written(one) & reached & set(computed.variables):
                read.append(one)
                reached |= names(one)
        return bool(reached & self.rows.data) and any(self._reads_beside(one, computed) for one in read)

    def _reads_beside(self, statement: Statement, computed: RowVariables) -> bool:
        for loop, around in placed([statement]):
            if not isinstance(loop, For) or any(isinstance(one, For) for one in around):
                continue
            nest = Nest.of(self.rows, loop, computed)
            if nest.is_lagged(self.counts) or _beside(nest) is not None:
                return True
        if any(find(For, [statement])):
            return False
        # Reads inside an index select elements of another variable.
        indices = [index for one in find(Subscript, [statement]) for index in one.indices]
        of_others = {read.node.span for read in self.rows.reads(indices)}
        for read in self.rows.reads([statement]):
            if read.node.span in of_others or self.rows.is_array(read.indices[0]):
                continue
            first, *_ = self.rows.indices(read)
            size = self.rows.shapes[read.variable].all_dims[0]
            if self.counts(size) and first.length not in (None, self.rows.affine(size)):
                return True
        return False

    def _whole(self, statement: Statement, computed: RowVariables) -> Sequence[Statement]:
        if isinstance(statement, For):
            nest = Nest.of(self.rows, statement, computed)
            if (inner := _beside(nest)) is not None:
                return self._taken_out(nest, inner)
            if len(nest.loops) > 1:
                return [nest.over_rows()]
            return self._pieces(nest.piece, nest.span, computed, nest.length)
        length = self._length(statement, computed)
        if length is None:
            try:
                return [computed.over(statement, None)]
            except DividedError:
                raise RefusedError(_UNKNOWN, statement.span) from None
        return self._pieces(partial(_vectorised, computed, statement, length), statement.span, computed, length)

    def _taken_out(self, nest: Nest, inner: For) -> Sequence[Statement]:
        """Return a loop over the observations of units, separated from the statements for each unit."""
        filled, _ = filling(nest.body[: nest.body.index(inner)], names(inner))
        carried = written(inner) & set().union(*map(written, filled))
        if carried:
            raise RefusedError(CARRIED.format(min(carried)), inner.span)
        observations = replace(nest, loops=(*nest.loops, inner), body=(*filled, *inner.body))
        rest = tuple(one for one in nest.body if one is not inner)
        lines: list[Statement] = [observations.over_rows()]
        if any(map(has_terms, rest)):
            units = replace(nest, body=rest, of_units=True, _fills={})
            reads_rows = any(read.variable in self.rows.observed for read in units.reads())
            lines += [units.over_rows()] if reads_rows else units.plain()
        return lines

    def _pieces(
        self, piece: Piece, span: Span, computed: RowVariables, n: Affine, first: Affine = NOTHING, depth: int = 0
    ) -> Sequence[Statement]:
        """Return a statement over ``n`` rows, divided wherever the variables that it reads are computed differently.

        Parameters
        ----------
        piece : callable
            Returns the statement for some rows: from the number of rows before them, and their number, also by name.
        depth : int
            Number of times that it was divided already.
        """
        go_back = restoring(self.rows, computed)
        try:
            return [piece(first, n, self.rows.counted(n) if self.counts(n.expression) else n.expression)]
        except DividedError as error:
            if depth == _MOST_PIECES:
                raise RefusedError(_UNKNOWN, span) from None
            go_back()
            return [
                *self._pieces(piece, span, computed, error.rows, first, depth + 1),
                *self._pieces(piece, span, computed, n - error.rows, first + error.rows, depth + 1),
            ]

    def _length(self, statement: Statement, computed: RowVariables) -> Affine | None:
        """Return the number of observations of a vectorised statement."""
        for read in self.rows.uses([statement]):
            declared = computed.variables.get(read.variable) or self.rows.shapes.get(read.variable)
            if declared is None or not declared.all_dims:
                continue
            size, index = declared.all_dims[0], read.indices[0] if read.indices else Slice()
            n = None if self.rows.is_array(index) else Index.of(index, self.rows, size).length
            if n is not None and self.counts(size):
                return n
        return None


def _vectorised(
    computed: RowVariables, statement: Statement, whole: Affine, first: Affine, n: Affine, size: Expression
) -> Statement:
    """Return a vectorised statement for ``n`` of ``whole`` observations after the first ``first`` ones."""
    if first != NOTHING and any(call.name.startswith(JOINT) for call in calls(statement)):
        raise RefusedError("is a single density of all observations", statement.span)
    found = computed.over(statement, Stretch(whole, first + 1, n, size))
    if left := names(found) & computed.rows.observed:
        raise RefusedError(f"reads `{min(left)}` at indices that are not rows", statement.span)
    return found


def _beside(nest: Nest) -> For | None:
    """Return a loop over observations inside a loop over units that has other statements too."""
    for one in nest.body:
        if isinstance(one, For) and has_terms(one) and len(nest.body) > 1:
            inner = replace(nest, loops=(*nest.loops, one), body=one.body)
            if any(
                one.variable in direct(index.expression) and not is_bare(index)
                for read in inner.reads()
                for index in nest.rows.indices(read)
            ):
                return one
    return None
