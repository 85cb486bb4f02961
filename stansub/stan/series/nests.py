"""A loop over observations that reads data beside them, written as a loop over rows of data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from stansub.stan.remarks import Remark
from stansub.stan.series.affine import Affine
from stansub.stan.series.rows import ROW, Index, Read, RefusedError, Rows, Stretch, holding
from stansub.stan.series.shapes import Shape
from stansub.stan.sizes import changing_names
from stansub.stan.syntax import (
    Assign,
    Declaration,
    For,
    ForEach,
    If,
    Other,
    Span,
    Statement,
    Target,
    Tilde,
    Token,
    While,
    calls,
    expression_of,
    names,
    tokenize,
    walk,
)

# What is said of statements that read, in place of {}, what is computed for another observation.
PAST = "reads `{}`, which depends on parameters: from beside an observation only data may be read"
_COUNTER = "stansub_row"


def adds(statement: Statement) -> bool:
    """Whether a statement adds to the target, itself or in what it holds."""
    return any(
        isinstance(one, Target | Tilde)
        or (isinstance(one, Other) and any(call.name.endswith("_lp") for call in calls(one.text)))
        for one in walk([statement])
    )


class Parts(Protocol):
    """Computed variables, a stretch of their elements each (`stansub.stan.series.computed.Computed`)."""

    @property
    def variables(self) -> Mapping[str, Declaration]:
        """Their declarations."""

    def whole(self, variable: str) -> Affine:
        """How many elements a variable has."""

    def part(self, variable: str, stretch: Stretch) -> str:
        """The name of a variable that holds some of them."""

    def here(self, group: set[str], stretch: Stretch) -> None:
        """Declare a variable that holds some of them and is filled next."""


@dataclass
class Nest:
    """Loops inside each other, whose innermost body is run once for each row.

    Attributes
    ----------
    rows : Rows
        Where variables are added.
    loops : tuple of For
        The outermost first; their bounds are data.
    body : tuple of statements
        What is run for a row.
    computed : Parts
        Variables that are computed for each observation.
    filled : frozenset of str
        Those that the loop fills.
    of_units : bool
        Whether rows are units that have parameters of their own, and not observations.
    """

    rows: Rows
    loops: tuple[For, ...]
    body: tuple[Statement, ...]
    computed: Parts
    filled: frozenset[str] = frozenset()
    of_units: bool = False
    size: str = field(default="", init=False)
    _fills: dict[tuple[For, ...], list[str]] = field(default_factory=dict)

    @property
    def places(self) -> set[str]:
        """The loops' variables, which say which row it is."""
        return {loop.variable for loop in self.loops}

    @property
    def length(self) -> Affine:
        """How many times the innermost loop runs."""
        last = self.loops[-1]
        return self.rows.affine(last.upper) - self.rows.affine(last.lower) + 1

    @property
    def spans(self) -> list[Span]:
        """Of the body's statements, of which several may be declared together."""
        return list(dict.fromkeys(one.span for one in self.body))

    @property
    def tokens(self) -> list[Token]:
        """Of the body."""
        return [token for span in self.spans for token in tokenize(self.rows.program.code, *span)]

    def reads(self) -> Iterator[Read]:
        """Where its body reads parts of data."""
        tokens = self.tokens
        return (read for k in range(len(tokens)) if (read := self.rows.read_at(tokens, k)))

    def is_lagged(self, counts: Callable[[str], bool]) -> bool:
        """Whether it reads data beside the observation, or not from the first one on.

        Parameters
        ----------
        counts : callable
            Whether a size may be that of observations.
        """
        late = {loop.variable for loop in self.loops if loop.lower != "1"}
        for read in self.reads():
            sizes = self.rows.shapes[read.variable].sizes
            if not any(map(counts, sizes)) and len(sizes) == 1:
                continue
            for index in self.rows.indices(read):
                at = direct(index) & self.places
                if at and (not is_bare(index) or at & late):
                    return True
        return False

    def piece(self, first: Affine, n: Affine, size: str) -> str:
        """The loop over ``n`` rows of a single loop after the ``first`` ones, with declarations of what it fills."""
        (loop,) = self.loops
        lower = self.rows.affine(loop.lower) + first
        part = replace(self, loops=(replace(loop, lower=str(lower), upper=str(lower + n - 1)),), _fills={})
        starts = dict(part._filling())
        for variable, start in starts.items():
            self.computed.here({variable}, Stretch(self.computed.whole(variable), start, n, size))
        return replace(part, filled=frozenset(starts)).text(size)

    def _filling(self) -> Iterator[tuple[str, Affine]]:
        """Computed variables that the loop fills, and which of their elements the first row does."""
        for one in walk(self.body):
            if isinstance(one, Assign):
                read = self.rows.read_at(tokenize(one.place), 0, set(self.computed.variables))
                start = self._start(read) if read else None
                if read and start is not None:
                    yield read.variable, start

    def text(self, size: str = "") -> str:
        """The loop over rows; what it reads is declared and filled by then.

        Parameters
        ----------
        size : str
            The number of rows, where it has a name already.

        Raises
        ------
        RefusedError
            When a statement cannot be written so.
        """
        for loop in self.loops:
            if not names(f"{loop.lower}, {loop.upper}") <= self.rows.data | self.places:
                raise RefusedError(Remark(self._shown(loop.span), "has bounds that are computed in the model"))
        self.check()
        self.size = size or self._count()
        deep = {self.rows.shapes[read.variable].sizes[0] for read in self.reads() if self._at(read) >= 0}
        text = "\n".join(self._rewritten(span, deep) for span in self.spans)
        if left := names(text) & self.rows.observed:
            read = next(one for one in self.tokens if one.text in left)
            raise self._refused(read.span, f"reads `{read.text}` at places that are no rows of it")
        self._fill()
        return f"for ({ROW} in 1 : {self.size}) {{\n{text}\n}}"

    @property
    def shown(self) -> str:
        """The outermost loop."""
        return self._shown(self.loops[0].span)

    def plain(self) -> str:
        """The loop as it is."""
        body = "\n".join(map(self._shown, self.spans))
        return _nested(self.loops, [body])

    def _count(self) -> str:
        """The name of the number of rows."""
        return self.rows.counted(self.length, " ".join(map(head, self.loops[:-1])))

    def check(self) -> None:
        """Refuse what is no sum over the rows: see `check_past`, and parameters of which each row has its own.

        Raises
        ------
        RefusedError
        """
        self.check_past()
        for read, _ in self.indexed(self._outside()):
            if self._start(read) is None and not self.of_units:
                shown = self._shown(read.span)
                raise self._refused(read.span, f"reads `{shown}`, of which there is one for each observation")

    def check_past(self) -> None:
        """Refuse what carries something from one row to the next.

        Raises
        ------
        RefusedError
        """
        for one in walk(self.body):
            if isinstance(one, While | ForEach) or (isinstance(one, Other) and one.text in ("break", "return")):
                raise self._refused(one.span, "is not run the same number of times for each observation")
            if isinstance(one, Assign):
                for name in sorted((set(one.variables) & self._outside()) - self.filled - accumulated(self.body)):
                    if is_carried(self.body, name):
                        raise self._refused(one.span, f"carries `{name}` from one observation to others")
        for span in self.spans:
            if any(call.name == "target" for call in calls(self.rows.program.code, span)):
                raise self._refused(span, "reads target(), which is a sum over the observations before")
        starts = dict(self._filling())
        for read, is_lagged in self.indexed(self._outside()):
            start = self._start(read)
            if is_lagged and (start is None or starts.get(read.variable, start) != start):
                raise self._refused(read.span, PAST.format(self._shown(read.span)))

    def _outside(self) -> set[str]:
        """What may change between evaluations and is not declared in the body."""
        return changing_names(self.rows.program) - {one.name for one in walk(self.body) if isinstance(one, Declaration)}

    def indexed(self, variables: set[str]) -> Iterator[tuple[Read, bool]]:
        """Where variables are read at this row's place, or (True) beside it."""
        tokens = self.tokens
        for k in range(len(tokens)):
            read = self.rows.read_at(tokens, k, variables)
            if read is None:
                continue
            found = [Index.of(text, self.rows) for text in read.indices]
            at = set().union(*(direct(index) for index in found)) & self.places
            if at != self.places:
                continue
            mine = [index for index in found if direct(index) & self.places]
            if all(map(is_bare, mine)):
                yield read, False
            elif any(index.upper is not None or any(map(index.lower.factor, self.places)) for index in mine):
                yield read, True

    def _shown(self, span: Span) -> str:
        return self.rows.program.text(span)

    def _refused(self, span: Span, message: str) -> RefusedError:
        return RefusedError(self.remark(span, message))

    def remark(self, span: Span, message: str) -> Remark:
        """About the statement of the body that holds a span."""
        return Remark(self._shown(holding(self.body, span).span), message)

    def _rewritten(self, span: Span, deep: set[str]) -> str:
        """A statement of the body with rows in place of what it reads."""
        code, tokens = self.rows.program.code, tokenize(self.rows.program.code, *span)
        pieces, at = list[str](), span.start
        for k, token in enumerate(tokens):
            if token.span.start < at:
                continue
            read, text, end = self.rows.read_at(tokens, k), "", token.span.end
            computed = self.rows.read_at(tokens, k, set(self.computed.variables))
            if read is not None:
                text, end = self._row(read, deep), read.span.end
            elif computed is not None:
                text, end = self._part(computed), computed.span.end
            elif token.text in self.places:
                text = self._place(token.text)
            if text:
                pieces += [code[at : token.span.start], text]
                at = end
        return "".join([*pieces, code[at : span.end]])

    def _at(self, read: Read, *, deep: bool = False) -> int:
        """The last of its indices that depends on the row; -1 where none does."""
        indices = self.rows.indices(read)
        return max(
            (k for k, index in enumerate(indices) if (index.names if deep else direct(index)) & self.places), default=-1
        )

    def _row(self, read: Read, deep: set[str]) -> str:
        """What stands for a read of data: a row of a new variable; nothing where it does not depend on the row."""
        shape = self.rows.shapes[read.variable]
        last = self._at(read, deep=shape.sizes[0] in deep)
        if last < 0:
            return ""
        picked = self.rows.indices(read)
        while last + 1 < len(picked) and picked[last + 1].upper is None and picked[last + 1].names <= self.rows.data:
            last += 1
        picked, inner = picked[: last + 1], self._inner(read.span)
        used = set().union(*(index.names for index in picked))
        if not used <= self.rows.data | self.places | {loop.variable for loop in inner}:
            raise self._refused(read.span, f"reads `{read.variable}` at a place that is computed in the model")
        if any(map(self.rows.is_array, read.indices[: last + 1])):
            raise self._refused(read.span, f"reads `{read.variable}` at several places at once")
        inner = [loop for loop in inner if loop.variable in used]
        lengths = [index.length for index in picked]
        turning = self.places | {loop.variable for loop in inner}
        if any(length is not None and names(str(length)) & turning for length in lengths):
            raise self._refused(read.span, f"reads a part of `{read.variable}` whose length changes")
        text = f"{read.variable}[{', '.join(map(str, picked))}]"
        name, is_new = self.rows.named(" ".join([*map(head, (*self.loops, *inner)), text]), read.variable)
        extra = [str(self.rows.affine(loop.variable) - self.rows.affine(loop.lower) + 1) for loop in inner]
        if is_new:
            part = shape.at([None if length is None else str(length) for length in lengths])
            self._declare(name, part.rows(self.size, *map(self._width, inner)))
            place = ", ".join([_COUNTER, *extra])
            self._fills.setdefault(tuple(inner), []).append(
                f"{self._guard(picked, shape.sizes, inner)}{name}[{place}] = {text};"
            )
        self.rows.observed.add(read.variable)
        rest = read.indices[last + 1 :]
        between = [":" for length in lengths if length is not None] if rest else []
        return f"{name}[{', '.join([ROW, *extra, *between, *rest])}]"

    def _start(self, read: Read) -> Affine | None:
        """The element of a computed variable that the first row reads; None where it is no such read."""
        first, *rest = (Index.of(text, self.rows) for text in read.indices)
        if any(map(self.rows.is_array, read.indices)):
            return None
        if len(self.loops) > 1 or read.variable not in self.computed.variables or first.upper is not None:
            return None
        (loop,) = self.loops
        around = {one.variable for one in self._inner(read.span)} | self.places
        beside = first.lower - Affine(((loop.variable, 1),), 0)
        if names(str(beside)) & around or any(direct(index) & self.places for index in rest):
            return None
        return beside + self.rows.affine(loop.lower)

    def _part(self, read: Read) -> str:
        """What stands for an element of a computed variable; nothing where it is the same for each row."""
        start = self._start(read)
        if start is None:
            return ""
        stretch = Stretch(self.computed.whole(read.variable), start, self.length, self.size)
        return f"{self.computed.part(read.variable, stretch)}[{', '.join([ROW, *read.indices[1:]])}]"

    def _place(self, variable: str) -> str:
        """What stands for a loop's variable itself."""
        name, is_new = self.rows.named(" ".join([*map(head, self.loops), variable]), variable)
        if is_new:
            self._declare(name, Shape((), "int", ()).rows(self.size))
            self._fills.setdefault((), []).append(f"{name}[{_COUNTER}] = {variable};")
        return f"{name}[{ROW}]"

    def _declare(self, name: str, shape: Shape) -> None:
        self.rows.lines.append(f"{shape.declared(name)} = {shape.zero};")

    def _inner(self, span: Span) -> list[For]:
        """Loops within the body around a span, the outermost first."""
        return [
            one
            for one in walk(self.body)
            if isinstance(one, For) and one.body and one.body[0].span.start <= span.start and span.end <= one.span.end
        ]

    def _width(self, loop: For) -> str:
        """How many times an inner loop runs at most."""
        n = self.rows.affine(loop.upper) - self.rows.affine(loop.lower) + 1
        if names(str(n)) <= self.rows.data:
            return str(n) if loop.lower == "1" else f"max(0, {n})"
        if not names(loop.lower) <= self.rows.data or not names(loop.upper) <= self.rows.data | self.places:
            raise self._refused(loop.span, "has bounds that are computed in the model")
        heads = " ".join(map(head, self.loops))
        name, is_new = self.rows.named(f"{heads} width {n}", loop.variable)
        if is_new:
            self.rows.lines += [f"int {name} = 0;", f"{heads} {{ {name} = max({name}, {n}); }}"]
        return name

    def _guard(self, picked: Sequence[Index], sizes: Sequence[str], inner: Sequence[For]) -> str:
        """A condition that the read is within the variable, where that is not plain."""
        conditions = []
        for index, size in zip(picked, sizes, strict=False):
            upper = index.lower if index.upper is None else index.upper
            if not _is_positive(self._extreme(index.lower, inner, -1)):
                conditions.append(f"{index.lower} >= 1")
            if not _is_positive(self.rows.affine(size) - self._extreme(upper, inner, 1) + 1):
                conditions.append(f"{upper} <= {size}")
        return f"if ({' && '.join(conditions)}) " if conditions else ""

    def _extreme(self, value: Affine, inner: Sequence[For], sign: int) -> Affine:
        """Its largest value over the loops (the smallest for ``sign`` -1), as far as the text shows."""
        for loop in reversed((*self.loops, *inner)):
            factor = value.factor(loop.variable)
            if factor:
                bound = self.rows.affine(loop.upper if factor * sign > 0 else loop.lower)
                value = value - Affine(((loop.variable, factor),), 0) + bound.times(factor)
        return value

    def _fill(self) -> None:
        """Code that goes through the rows and copies what they read."""
        if not self._fills:
            return
        lines = [_nested(inner, some) for inner, some in self._fills.items()]
        code = _nested(self.loops, [f"{_COUNTER} += 1;", *lines])
        self.rows.lines.append(f"{{\nint {_COUNTER} = 0;\n{code}\n}}")


def accumulated(statements: Sequence[Statement]) -> set[str]:
    """Variables to which statements add and which they do nothing else with."""
    found = list(walk(statements))
    added = {one.place for one in found if isinstance(one, Assign) and one.operator == "+="}
    other = set().union(*(_read(one) for one in found if not isinstance(one, Assign) or one.place not in added))
    return added - other - set().union(*(names(one.expression) for one in found if isinstance(one, Assign)))


def is_carried(statements: Sequence[Statement], variable: str) -> bool:
    """Whether statements read a variable before they assign it."""
    for one in walk(statements):
        if variable in _read(one):
            return True
        if isinstance(one, Assign) and variable in one.variables:
            return False
    return False


def _read(statement: Statement) -> set[str]:
    """Variables that a statement reads, apart from those inside it."""
    if isinstance(statement, For):
        return names(f"{statement.lower}, {statement.upper}")
    if isinstance(statement, If | While):
        return names(statement.condition)
    changed = statement.variables if isinstance(statement, Assign) and statement.operator != "=" else ()
    return names(expression_of(statement)) | set(changed)


def _nested(loops: Sequence[For], lines: Sequence[str]) -> str:
    """Lines inside loops."""
    return "\n".join([*(f"{head(loop)} {{" for loop in loops), *lines, "}" * len(loops)])


def head(loop: For) -> str:
    """How a loop begins."""
    return f"for ({loop.variable} in {loop.lower} : {loop.upper})"


def direct(index: Index) -> set[str]:
    """Variables in an index that are not themselves in brackets of another variable."""
    found, depth = set[str](), 0
    for token in tokenize(str(index)):
        depth += (token.text == "[") - (token.text == "]")
        if depth == 0 and token.kind == "name":
            found.add(token.text)
    return found


def is_bare(index: Index) -> bool:
    """Whether an index is a single variable."""
    return index.upper is None and len(tokenize(str(index))) == 1 and not index.lower.constant


def _is_positive(value: Affine) -> bool:
    return not value.terms and value.constant > 0
