"""Time series whose likelihood is a sum given the data, written as sums over rows of data.

A term of an autoregression reads data beside its own observation (``y[t - 1]``), so that the data cannot be cut. In the
program that is written here ``transformed data`` hold a row for each term, with all that the term reads, and the
likelihood reads nothing but rows. Its log density is that of the user's program. Only data can be rows: where a
parameter, a state or a residual of an earlier time is read, the likelihood is no such sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from stansub.stan.rewriting import Added, Pass, Refused
from stansub.stan.series.affine import Affine
from stansub.stan.series.nests import PAST, Nest, accumulated, adds, direct, is_bare, is_carried
from stansub.stan.series.row_variables import Computed, DividedError, filling, written
from stansub.stan.series.rows import Index, RefusedError, Rows, Stretch
from stansub.stan.sizes import JOINT, changing_names, counting, declarations
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
    names,
    placed,
    printed,
    unlooped,
    walk,
)

_UNKNOWN = "reads elements of a variable that cannot be taken apart by observations"
# How often a statement is divided.
_MOST_PIECES = 5


@Pass.named("data beside an observation as rows of data")
def with_lags(program: Program) -> Added | Refused | None:
    """Write a likelihood that reads data beside an observation over rows of data.

    ``transformed data`` declare ``stansub_t``, the number of terms, and variables with a row for each term. Refused if
    more than data of other observations are read.
    """
    writer = _Writer(program)
    try:
        writer.write()
    except RefusedError as error:
        return error.refused
    if writer.found:
        return writer.added()
    return next(_past(_Writer(program)), None)


def _past(writer: _Writer) -> Iterator[Refused]:
    """Yield statements that read what is computed for other observations, if no data beside an observation are read."""
    program = writer.program
    sizes = {one.name: one.all_dims[0] for one in declarations(program) if one.all_dims}
    changing = {name for name in changing_names(program) if name in sizes and writer.counts(sizes[name])}
    for one in walk(program.evaluated):
        if isinstance(one, For):
            yield from _past_in_loop(writer.rows, one, changing)
        elif not one.bodies:
            for read in writer.rows.reads([one], changing):
                size = sizes[read.variable]
                if Index.of(read.indices[0], writer.rows, size).upper not in (None, writer.rows.affine(size)):
                    yield Refused(PAST.format(program.text(read.node.span)), one.span)


def _past_in_loop(rows: Rows, loop: For, changing: set[str]) -> Iterator[Refused]:
    nest = _nest(rows, loop, Computed(rows, ()))
    for read, is_lagged in nest.indexed(changing):
        if is_lagged:
            yield Refused(PAST.format(rows.program.text(read.node.span)), nest.holding(read.node.span))
    if adds(loop) and any(
        direct(index.expression) & nest.places for read in nest.reads() for index in rows.indices(read)
    ):
        for one in find(Assign, loop.body):
            place = str(one.place)
            if place in names(one.expression) and is_carried(loop.body, place):
                yield Refused(f"carries `{place}` from one observation to others", nest.holding(one.span))


@dataclass
class _Writer:
    """Statements that are written anew, and what is to be declared for them.

    Attributes
    ----------
    program : Program
    found : list of (Span, str)
        Statements, and the same over rows.
    copied : set of str
        Computed variables of which there are copies for rows.
    """

    program: Program
    found: list[tuple[Span, str]] = field(default_factory=list)
    copied: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.rows = Rows(self.program)
        self.counts = counting(self.program)

    def added(self) -> Added:
        """Return all that is added to the program."""
        found = [*self.found, *self._dead()]
        found += _constants(self.rows, [span for span, _ in found])
        return Added(self.rows.lines, found)

    def write(self) -> None:
        """Write statements that read data beside an observation anew."""
        for statement, above in unlooped(self.program.model.statements, self.program.transformed_parameters.statements):
            if (adds(statement) or _accumulates(statement)) and self._is_lagged(statement, above):
                computed = Computed(self.rows, above)
                lines = self._whole(statement, computed)
                self.copied |= computed.copied
                self.found.append((statement.span, printed([*computed.lines, *lines])))

    def _is_lagged(self, statement: Statement, before: tuple[Statement, ...]) -> bool:
        """Whether a statement reads data beside an observation, itself or through what it reads."""
        computed = Computed(self.rows, before)
        reached, read = names(statement), [statement]
        for one in reversed(before):
            if written(one) & reached & set(computed.variables):
                read.append(one)
                reached |= names(one)
        return bool(reached & self.rows.data) and any(self._reads_beside(one, computed) for one in read)

    def _reads_beside(self, statement: Statement, computed: Computed) -> bool:
        for loop, around in placed([statement]):
            if not isinstance(loop, For) or any(isinstance(one, For) for one in around):
                continue
            nest = _nest(self.rows, loop, computed)
            if nest.is_lagged(self.counts) or _beside(nest) is not None:
                return True
        if any(find(For, [statement])):
            return False
        # Reads within an index pick places of another variable.
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

    def _whole(self, statement: Statement, computed: Computed) -> Sequence[Statement]:
        if isinstance(statement, For):
            nest = _nest(self.rows, statement, computed)
            if (inner := _beside(nest)) is not None:
                return self._taken_out(nest, inner)
            if len(nest.loops) > 1:
                return [nest.over_rows()]
            return self._pieces(nest, computed, Affine((), 0), nest.length)
        length = self._length(statement, computed)
        if length is None:
            try:
                return [computed.over(statement, None)]
            except DividedError:
                raise RefusedError(_UNKNOWN, statement.span) from None
        return self._pieces(_Vectorised(computed, statement, length), computed, Affine((), 0), length)

    def _taken_out(self, nest: Nest, inner: For) -> Sequence[Statement]:
        """Return a loop over the observations of units, apart from what is done for each unit."""
        filled, _ = filling(nest.body[: nest.body.index(inner)], names(inner))
        carried = written(inner) & set().union(*map(written, filled))
        if carried:
            message = f"carries `{min(carried)}` from one observation to others"
            raise RefusedError(message, inner.span)
        observations = replace(nest, loops=(*nest.loops, inner), body=(*filled, *inner.body))
        rest = tuple(one for one in nest.body if one is not inner)
        lines: list[Statement] = [observations.over_rows()]
        if any(map(adds, rest)):
            units = replace(nest, body=rest, of_units=True, _fills={})
            reads_rows = any(read.variable in self.rows.observed for read in units.reads())
            lines += [units.over_rows()] if reads_rows else units.plain()
        return lines

    def _pieces(
        self, statement: Nest | _Vectorised, computed: Computed, first: Affine, n: Affine, depth: int = 0
    ) -> Sequence[Statement]:
        """Return a statement over ``n`` rows, as often as what it reads is computed in different ways.

        Parameters
        ----------
        statement : Nest or _Vectorised
        computed : Computed
            What it reads.
        first : Affine
            How many rows are left out.
        n : Affine
        depth : int
            How often it was divided already.
        """
        kept = self.rows.kept(), computed.kept()
        try:
            return [statement.piece(first, n, self.rows.counted(n) if self.counts(n.expression) else n.expression)]
        except DividedError as error:
            if depth == _MOST_PIECES:
                raise RefusedError(_UNKNOWN, statement.span) from None
            self.rows.go_back(kept[0])
            computed.go_back(kept[1])
            later = first + error.rows, n - error.rows
            return [
                *self._pieces(statement, computed, first, error.rows, depth + 1),
                *self._pieces(statement, computed, *later, depth + 1),
            ]

    def _length(self, statement: Statement, computed: Computed) -> Affine | None:
        """Return how many observations a vectorised statement is about."""
        for read in self.rows.uses([statement]):
            declared = computed.variables.get(read.variable) or self.rows.shapes.get(read.variable)
            if declared is None or not declared.all_dims:
                continue
            size, index = declared.all_dims[0], read.indices[0] if read.indices else Slice()
            n = None if self.rows.is_array(index) else Index.of(index, self.rows, size).length
            if n is not None and self.counts(size):
                return n
        return None

    def _dead(self) -> list[tuple[Span, str]]:
        """Return statements that fill variables of the model of which only copies are read, and what stays of them."""
        done = [span for span, _ in self.found]
        left = [one for one, _ in unlooped(self.program.model.statements) if one.span not in done]
        dead = set(self.copied)
        while living := {
            name
            for one in left
            if adds(one) or not written(one) or not written(one) <= dead
            for name in names(one) & dead
        }:
            dead -= living
        gone = [one for one in left if written(one) and written(one) <= dead]
        # Variables may share their declaration with others that stay.
        kept = [one for one in left if one not in gone]
        return [(span, printed([one for one in kept if one.span == span])) for span in {one.span for one in gone}]


@dataclass(frozen=True)
class _Vectorised:
    """A statement about whole variables.

    Attributes
    ----------
    computed : Computed
        What it may read.
    statement : Statement
    whole : Affine
        How many observations it is about.
    """

    computed: Computed
    statement: Statement
    whole: Affine

    @property
    def span(self) -> Span:
        """Of the statement."""
        return self.statement.span

    def piece(self, first: Affine, n: Affine, size: Expression) -> Statement:
        """Return the statement about ``n`` of the observations after the ``first`` ones."""
        if first != Affine((), 0) and any(call.name.startswith(JOINT) for call in calls(self.statement)):
            raise RefusedError("is one density of all observations", self.span)
        found = self.computed.over(self.statement, Stretch(self.whole, first + 1, n, size))
        if left := names(found) & self.computed.rows.observed:
            raise RefusedError(f"reads `{min(left)}` at places that are no rows of it", self.span)
        return found


def _accumulates(statement: Statement) -> bool:
    """Whether a statement is a loop that adds to a variable, and nothing else."""
    return isinstance(statement, For) and bool(found := written(statement)) and found <= accumulated(statement.body)


def _nest(rows: Rows, loop: For, computed: Computed) -> Nest:
    """Return the loops down to what is run for each observation."""
    loops = [loop]
    while len(loops[-1].body) == 1 and isinstance(inner := loops[-1].body[0], For) and adds(inner):
        loops.append(inner)
    return Nest(rows, tuple(loops), loops[-1].body, computed)


def _beside(nest: Nest) -> For | None:
    """Return a loop over observations within a loop over units that does more than that."""
    for one in nest.body:
        if isinstance(one, For) and adds(one) and len(nest.body) > 1:
            inner = replace(nest, loops=(*nest.loops, one), body=one.body)
            if any(
                one.variable in direct(index.expression) and not is_bare(index)
                for read in inner.reads()
                for index in nest.rows.indices(read)
            ):
                return one
    return None


def _constants(rows: Rows, done: Sequence[Span]) -> Iterator[tuple[Span, str]]:
    """Yield parts of the data at fixed places that other statements of the model read, as variables of their own."""
    seen = list(done)
    for read in rows.reads(rows.program.model.statements):
        span = read.node.span
        if any(one.contains(span) for one in seen) or read.variable not in rows.observed:
            continue
        if name := rows.constant(read):
            seen.append(span)
            yield span, str(name)
