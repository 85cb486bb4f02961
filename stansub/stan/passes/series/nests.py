"""Rewriting of a loop over observations that reads adjacent data as a loop over rows of data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Protocol

from stansub.stan.passes.rewriting import RefusedError
from stansub.stan.passes.series.affine import Affine
from stansub.stan.passes.series.rows import ONE, ROW, Index, Read, Rows, Stretch, exchanged, holding
from stansub.stan.reading.sizes import has_terms
from stansub.stan.syntax import (
    Assign,
    Braces,
    Call,
    Declaration,
    Expression,
    For,
    ForEach,
    If,
    Infix,
    Jump,
    Literal,
    Name,
    Node,
    Return,
    SizedType,
    Slice,
    Span,
    Statement,
    Subscript,
    While,
    calls,
    changed,
    find,
    is_carried,
    names,
    read_by,
    walk,
)

# Messages about a statement that keeps a value for other observations, and one that reads one computed for another.
CARRIED = "carries the value of `{}` from one observation to others"
PAST = "reads `{}`, which depends on parameters: of other observations, only data may be read"
_COUNTER = "stansub_row"


class Parts(Protocol):
    """Interface of computed variables by ranges of elements (`RowVariables` of `row_variables.py`)."""

    @property
    def variables(self) -> Mapping[str, Declaration]:
        """Declarations of the variables."""

    def whole(self, variable: str) -> Affine:
        """Return the number of elements of a variable."""

    def part(self, variable: str, stretch: Stretch) -> Name:
        """Return a variable that contains a range of its elements."""

    def here(self, variable: str, stretch: Stretch) -> None:
        """Declare a variable that contains a range of its elements and is filled next."""


@dataclass
class Nest:
    """Nested loops whose innermost body runs once for each row."""

    rows: Rows
    """Rows of data, to which variables are added."""
    loops: tuple[For, ...]
    """From the outermost in; their bounds are data."""
    body: tuple[Statement, ...]
    """Statements for a row."""
    computed: Parts
    """Variables with a computed value for each observation."""
    filled: frozenset[str] = frozenset()
    """Variables that the loop fills."""
    of_units: bool = False
    """Whether rows are units with their own parameters rather than observations."""
    size: Expression = field(default=ONE, init=False)
    _fills: dict[tuple[For, ...], list[Statement]] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Rows, loop: For, computed: Parts) -> Nest:
        """Return the nested loops down to the statements for each observation."""
        loops = [loop]
        while len(loops[-1].body) == 1 and isinstance(inner := loops[-1].body[0], For) and has_terms(inner):
            loops.append(inner)
        return cls(rows, tuple(loops), loops[-1].body, computed)

    @property
    def places(self) -> set[str]:
        """Variables of the loops, which identify the row."""
        return {loop.variable for loop in self.loops}

    @property
    def length(self) -> Affine:
        """Number of runs of the innermost loop."""
        return self._runs(self.loops[-1])

    def _runs(self, loop: For) -> Affine:
        return self.rows.affine(loop.upper) - self.rows.affine(loop.lower) + 1

    def reads(self) -> Iterator[Read]:
        """Yield the reads of elements of data in the body."""
        return self.rows.reads(self.body)

    def is_lagged(self, counts: Callable[[Expression], bool]) -> bool:
        """Return whether the body reads data of neighbouring observations, skips the first ones, or reads the position.

        ``counts`` says whether a size may be that of observations.
        """
        late = {loop.variable for loop in self.loops if loop.lower != ONE}
        alone: set[str] = set()
        for read in self.reads():
            sizes = self.rows.shapes[read.variable].all_dims
            if not any(map(counts, sizes)) and len(sizes) == 1:
                continue
            for index in self.rows.indices(read):
                at = direct(index.expression) & self.places
                if at and (not is_bare(index) or at & late):
                    return True
                alone |= at
        is_place_read = bool(direct(*self.body) & alone) and (any(map(has_terms, self.body)) or any(self._filling()))
        return bool(alone) and (is_place_read or self._picks())

    def _picks(self) -> bool:
        """Return whether it reads rows that data of this row name, such as ``y[partner[n]]``."""
        reads = [(read, self._at(read)) for read in self.reads()]
        own = {self.rows.shapes[read.variable].all_dims[0] for read, last in reads if last == 0}
        return any(
            last < 0 and self._at(read, deep=True) >= 0
            for read, last in reads
            if self.rows.shapes[read.variable].all_dims[0] in own
        )

    def piece(self, first: Affine, n: Affine, size: Expression) -> For:
        """Return a single loop over ``n`` rows after the first ``first`` ones; variables that it fills are declared."""
        (loop,) = self.loops
        lower = self.rows.affine(loop.lower) + first
        upper = (lower + n - 1).expression
        part = replace(self, loops=(replace(loop, lower=lower.expression, upper=upper),), _fills={})
        starts = dict(part._filling())
        for variable, start in starts.items():
            self.computed.here(variable, Stretch(self.computed.whole(variable), start, n, size))
        return replace(part, filled=frozenset(starts)).over_rows(size)

    def _filling(self) -> Iterator[tuple[str, Affine]]:
        """Yield the computed variables that the loop fills, with the element that the first row fills."""
        for one in walk(self.body):
            if isinstance(one, Assign):
                read = self.rows.read_at(one.place, self.computed.variables)
                start = self._start(read) if read else None
                if read and start is not None:
                    yield read.variable, start

    def over_rows(self, size: Expression | None = None) -> For:
        """Return the loop over rows, and declare and fill the variables that it reads.

        ``size`` is the number of rows, if it already has a name. Raises `RefusedError` if a statement cannot be
        rewritten.
        """
        for loop in self.loops:
            if not names(loop.lower, loop.upper) <= self.rows.data | self.places:
                raise RefusedError("has bounds computed in the model", loop.span)
        self.check()
        self.size = size or self.rows.counted(self.length, " ".join(loop.head for loop in self.loops[:-1]))
        deep = {self.rows.shapes[read.variable].all_dims[0] for read in self.reads() if self._at(read) >= 0}
        body = tuple(exchanged(one, lambda node: self._exchange(node, deep)) for one in self.body)
        if left := names(*body) & self.rows.observed:
            read = next(one for one in find(Name, self.body) if one.name in left)
            raise self._refused(read.span, f"reads `{read.name}` at indices that are not rows")
        self._fill()
        return For(ROW, ONE, self.size, body)

    @property
    def span(self) -> Span:
        """Span of the outermost loop."""
        return self.loops[0].span

    def plain(self) -> Sequence[Statement]:
        """Return the original loop."""
        return nested(self.loops, self.body)

    def check(self) -> None:
        """Check that the loop is a sum over rows: `check_past`, and no parameters with a value for each row.

        Raises `RefusedError` otherwise.
        """
        self.check_past()
        for read, _ in self.indexed(self._outside()):
            if self._start(read) is None and not self.of_units:
                shown = self._shown(read.node.span)
                raise self._refused(read.node.span, f"reads `{shown}`, a parameter with a value for each observation")

    def check_past(self) -> None:
        """Check that no value is carried from one row to the next; RefusedError otherwise."""
        for one in walk(self.body):
            if isinstance(one, While | ForEach | Return) or (isinstance(one, Jump) and one.word == "break"):
                raise self._refused(one.span, "runs a different number of times for each observation")
            if isinstance(one, Assign):
                for name in sorted((set(one.variables) & self._outside()) - self.filled - accumulated(self.body)):
                    if is_carried(self.body, name):
                        raise self._refused(one.span, CARRIED.format(name))
        for one in self.body:
            if any(call.name == "target" for call in calls(one)):
                raise self._refused(one.span, "reads target(), which contains the terms of earlier observations")
        starts = dict(self._filling())
        for read, is_lagged in self.indexed(self._outside()):
            start = self._start(read)
            if is_lagged and (start is None or starts.get(read.variable, start) != start):
                raise self._refused(read.node.span, PAST.format(self._shown(read.node.span)))

    def _outside(self) -> set[str]:
        """Return variables that may change between evaluations and are not declared in the body."""
        return self.rows.program.changing_names - {one.name for one in find(Declaration, self.body)}

    def indexed(self, variables: set[str]) -> Iterator[tuple[Read, bool]]:
        """Yield reads of variables, with True if they read another row than this one."""
        for read in self.rows.reads(self.body, variables):
            found = [Index.of(one, self.rows) for one in read.indices]
            mine = [index for index in found if direct(index.expression) & self.places]
            if direct(*(index.expression for index in mine)) & self.places != self.places:
                continue
            if all(map(is_bare, mine)):
                yield read, False
            elif any(index.upper or any(map(index.lower.factor, map(Name, self.places))) for index in mine):
                yield read, True

    def _shown(self, span: Span) -> str:
        return self.rows.program.text(span)

    def _refused(self, span: Span, message: str) -> RefusedError:
        return RefusedError(message, self.holding(span))

    def holding(self, span: Span) -> Span:
        """Return the span of the statement of the body that contains a span."""
        return holding(self.body, span).span

    def _exchange(self, node: Node, deep: set[Expression]) -> Expression | None:
        """Return the replacement of a node that reads data, with rows instead; None if the node stays."""
        if read := self.rows.read_at(node):
            return self._row(read, deep)
        if read := self.rows.read_at(node, self.computed.variables):
            return self._part(read)
        return self._place(node.name) if isinstance(node, Name) and node.name in self.places else None

    def _at(self, read: Read, *, deep: bool = False) -> int:
        """Return the position of the last index that depends on the row; -1 if none does."""
        indices = self.rows.indices(read)
        return max(
            (k for k, index in enumerate(indices) if (index.names if deep else direct(index.expression)) & self.places),
            default=-1,
        )

    def _row(self, read: Read, deep: set[Expression]) -> Expression | None:
        """Return the replacement of a read of data: a row of a new variable; None if it does not depend on the row."""
        shape, span = self.rows.shapes[read.variable], read.node.span
        last = self._at(read, deep=shape.all_dims[0] in deep)
        if last < 0:
            return None
        picked = self.rows.indices(read)
        while last + 1 < len(picked) and picked[last + 1].upper is None and picked[last + 1].names <= self.rows.data:
            last += 1
        picked, inner = picked[: last + 1], self._inner(span)
        used = set().union(*(index.names for index in picked))
        if not used <= self.rows.data | self.places | {loop.variable for loop in inner}:
            raise self._refused(span, f"reads `{read.variable}` at an index computed in the model")
        if any(map(self.rows.is_array, read.indices[: last + 1])):
            raise self._refused(span, f"reads `{read.variable}` at several indices at once")
        inner = [loop for loop in inner if loop.variable in used]
        lengths = [index.length for index in picked]
        turning = self.places | {loop.variable for loop in inner}
        if any(length is not None and length.names & turning for length in lengths):
            raise self._refused(span, f"reads a slice of `{read.variable}` whose length varies")
        value = Subscript(Name(read.variable), tuple(index.expression for index in picked))
        heads = (loop.head for loop in (*self.loops, *inner))
        name, is_new = self.rows.named(" ".join([*heads, str(value)]), read.variable)
        extra = [(_term(loop.variable) - self.rows.affine(loop.lower) + 1).expression for loop in inner]
        if is_new:
            part = shape.part([None if length is None else length.expression for length in lengths])
            self._declare(name, part.rows(self.size, *map(self._width, inner)))
            fill = Assign(Subscript(Name(name), (Name(_COUNTER), *extra)), "=", value)
            self._fills.setdefault(tuple(inner), []).append(self._guarded(fill, picked, shape.all_dims, inner))
        self.rows.observed.add(read.variable)
        rest = read.indices[last + 1 :]
        between = [Slice() for length in lengths if length is not None] if rest else []
        return Subscript(Name(name), (Name(ROW), *extra, *between, *rest))

    def _start(self, read: Read) -> Affine | None:
        """Return the element of a computed variable that the first row reads; None for other reads."""
        first, *rest = (Index.of(one, self.rows) for one in read.indices)
        if any(map(self.rows.is_array, read.indices)):
            return None
        if len(self.loops) > 1 or read.variable not in self.computed.variables or first.upper is not None:
            return None
        (loop,) = self.loops
        around = {one.variable for one in self._inner(read.node.span)} | self.places
        beside = first.lower - _term(loop.variable)
        if beside.names & around or any(direct(index.expression) & self.places for index in rest):
            return None
        return beside + self.rows.affine(loop.lower)

    def _part(self, read: Read) -> Expression | None:
        """Return the replacement of an element of a computed variable; None if it is the same for each row."""
        start = self._start(read)
        if start is None:
            return None
        stretch = Stretch(self.computed.whole(read.variable), start, self.length, self.size)
        return Subscript(self.computed.part(read.variable, stretch), (Name(ROW), *read.indices[1:]))

    def _place(self, variable: str) -> Expression:
        """Return the replacement of a loop variable."""
        name, is_new = self.rows.named(" ".join([*(loop.head for loop in self.loops), variable]), variable)
        if is_new:
            self._declare(name, SizedType((), "int").rows(self.size))
            fill = Assign(Subscript(Name(name), (Name(_COUNTER),)), "=", Name(variable))
            self._fills.setdefault((), []).append(fill)
        return Subscript(Name(name), (Name(ROW),))

    def _declare(self, name: str, shape: SizedType) -> None:
        self.rows.lines.append(f"{shape} {name} = {shape.zero};")

    def _inner(self, span: Span) -> list[For]:
        """Return the loops in the body around a span, from the outermost in."""
        return [one for one in find(For, self.body) if any(part.span.contains(span) for part in one.body)]

    def _width(self, loop: For) -> Expression:
        """Return the maximum number of runs of an inner loop."""
        n = self._runs(loop)
        if n.names <= self.rows.data:
            return n.expression if loop.lower == ONE else Call("max", (Literal("0"), n.expression))
        if not names(loop.lower) <= self.rows.data or not names(loop.upper) <= self.rows.data | self.places:
            raise self._refused(loop.span, "has bounds computed in the model")
        heads = " ".join(one.head for one in self.loops)
        name, is_new = self.rows.named(f"{heads} width {n}", loop.variable)
        if is_new:
            self.rows.lines += [f"int {name} = 0;", f"{heads} {{ {name} = max({name}, {n}); }}"]
        return Name(name)

    def _guarded(
        self, fill: Statement, picked: Sequence[Index], sizes: Sequence[Expression], inner: Sequence[For]
    ) -> Statement:
        """Return a statement under the condition that its read is in range, unless that is certain."""
        conditions = list[Expression]()
        for index, size in zip(picked, sizes, strict=False):
            upper = index.lower if index.upper is None else index.upper
            if not self._extreme(index.lower, inner, -1).is_at_least(1):
                conditions.append(Infix(">=", index.lower.expression, ONE))
            if not (self.rows.affine(size) - self._extreme(upper, inner, 1)).is_at_least(0):
                conditions.append(Infix("<=", upper.expression, size))
        if not conditions:
            return fill
        return If(reduce(lambda one, other: Infix("&&", one, other), conditions), (fill,))

    def _extreme(self, value: Affine, inner: Sequence[For], sign: int) -> Affine:
        """Return the largest value of an index over the loops (the smallest for ``sign`` -1), as far as known."""
        for loop in reversed((*self.loops, *inner)):
            factor = value.factor(Name(loop.variable))
            if factor:
                bound = self.rows.affine(loop.upper if factor * sign > 0 else loop.lower)
                value = value - _term(loop.variable).times(factor) + bound.times(factor)
        return value

    def _fill(self) -> None:
        """Add code that copies the data of each row."""
        if not self._fills:
            return
        counter = Name(_COUNTER)
        filled = [one for inner, some in self._fills.items() for one in nested(inner, some)]
        loop = nested(self.loops, [Assign(counter, "+=", ONE), *filled])
        start = Declaration(SizedType((), "int"), _COUNTER, Literal("0"))
        self.rows.lines.append(str(Braces((start, *loop))))


def accumulated(statements: Sequence[Statement]) -> set[str]:
    """Return variables to which statements only add."""
    assigned = list(find(Assign, statements))
    places = {one.place for one in assigned if one.operator == "+="}
    others = [one for one in walk(statements) if not isinstance(one, Assign) or one.place not in places]
    read = set().union(*map(read_by, others)) | names(*(one.expression for one in assigned))
    return {place.name for place in places if isinstance(place, Name)} - read


def nested(loops: Sequence[For], body: Sequence[Statement]) -> Sequence[Statement]:
    """Return statements, nested in loops."""
    for loop in reversed(loops):
        body = [replace(loop, body=tuple(body))]
    return body


def direct(*nodes: Node) -> set[str]:
    """Return variables in nodes, except those inside the index of another variable."""

    def without_brackets(node: Node) -> Node | None:
        return changed(node.base, without_brackets) if isinstance(node, Subscript) else None

    return names(*(changed(node, without_brackets) for node in nodes))


def is_bare(index: Index) -> bool:
    """Return whether an index is a single variable."""
    return isinstance(index.expression, Name)


def _term(variable: str) -> Affine:
    return Affine(((Name(variable), 1),), 0)
