"""Data of neighbouring observations, as rows of separate variables.

`Rows` writes them into ``transformed data``: for each read such as ``y[t - 1]``, a variable with a row for each run of
the loop. Other modules decide when to use it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import count
from typing import NamedTuple, TypeVar

from stansub.stan.passes.rewriting import Edits
from stansub.stan.passes.series.affine import Affine
from stansub.stan.syntax import (
    SIZES,
    Call,
    Declaration,
    Expression,
    Literal,
    Name,
    Node,
    Program,
    SizedType,
    Slice,
    Span,
    Statement,
    Subscript,
    changed,
    flat,
    names,
    walk,
)

N = TypeVar("N", bound=Node)

# Functions that return a part of a vector or an array.
_PARTS = {"head": 2, "tail": 2, "segment": 3}
# The variable of loops over rows, and the number of rows; with a numeric suffix for rows of other lengths.
ROW, N_ROWS = "stansub_i", "stansub_t"
ONE = Literal("1")


def counts_rows(size: str) -> bool:
    """Return whether a pass named an integer as a number of rows."""
    return size == N_ROWS or (size.startswith(N_ROWS) and size.removeprefix(N_ROWS).isdigit())


class Read(NamedTuple):
    """A read of a variable, or of a part of it, in the program."""

    node: Expression
    """The variable with its indices, or the function that returns the part."""
    variable: str
    indices: tuple[Expression, ...]
    """Empty if the whole variable is read; for ``head`` and similar functions the slice that they return."""


class Index(NamedTuple):
    """An index: a single one, or with ``upper`` a slice."""

    lower: Affine
    upper: Affine | None

    @property
    def length(self) -> Affine | None:
        """Number of elements that it selects; None for a single one."""
        return None if self.upper is None else self.upper - self.lower + 1

    @property
    def names(self) -> set[str]:
        """Variables in the index."""
        return self.lower.names | (set() if self.upper is None else self.upper.names)

    @property
    def expression(self) -> Expression:
        """The index as it is written between brackets."""
        return self.lower.expression if self.upper is None else Slice(self.lower.expression, self.upper.expression)

    @classmethod
    def of(cls, index: Expression, rows: Rows, size: Expression = ONE) -> Index:
        """Read an index; slices without an upper bound end at ``size``."""
        if isinstance(index, Slice):
            return cls(rows.affine(index.lower or ONE), rows.affine(index.upper or size))
        return cls(rows.affine(index), None)


class Stretch(NamedTuple):
    """A range of elements of variables with about as many elements as there are observations."""

    whole: Affine
    lower: Affine
    """The first element of the range."""
    n: Affine
    size: Expression
    """This number as an expression."""

    @property
    def upper(self) -> Affine:
        """The last element of the range."""
        return self.lower + self.n - 1

    @property
    def slice(self) -> Expression:
        """The slice that selects the range."""
        return Index(self.lower, self.upper).expression

    def within(self, start: Affine, whole: Affine) -> Stretch:
        """Return the range in a variable of length ``whole`` whose element ``start`` is the first of the range."""
        return Stretch(whole, start + self.lower - 1, self.n, self.size)


@dataclass
class Rows:
    """Variables that are added to ``transformed data``."""

    program: Program
    shapes: dict[str, SizedType] = field(init=False)
    """Types of its data and transformed data."""
    lines: list[str] = field(default_factory=list)
    """Stan code that declares and fills the new variables."""
    observed: set[str] = field(default_factory=set)
    """Data from which rows were made."""
    _made: dict[str, str] = field(default_factory=dict)
    _counts: dict[str, Name] = field(default_factory=dict)
    _number: int = 0

    def __post_init__(self) -> None:
        self.taken = names(self.program)
        found = ((one.name, one.type.shape) for one in self.program.data_declarations)
        self.shapes = {name: shape for name, shape in found if shape is not None}
        self.data = self.program.data_names
        self.known: dict[Expression, Expression] = {
            Call(function, (Name(name),)): size
            for name, shape in self.shapes.items()
            for function in sorted(SIZES)
            if (size := shape.size(function)) is not None
        }

    def affine(self, expression: Expression) -> Affine:
        """Return an integer expression as a sum, with sizes of data by name."""
        return Affine.of(expression, self.known)

    def use(self, node: Node) -> Read | None:
        """Return a node as a read of a variable or of a part of it."""
        if isinstance(node, Call) and node.name in _PARTS:
            return self._taken(node)
        if isinstance(node, Expression):
            base, indices = flat(node)
            return Read(node, base.name, indices) if isinstance(base, Name) else None
        return None

    def uses(self, nodes: Iterable[Node]) -> Iterator[Read]:
        """Yield reads of variables or of parts of them, outer reads before those in their indices."""
        for node in nodes:
            read = self.use(node)
            if read is not None:
                yield read
            yield from self.uses(node.parts if read is None else read.indices)

    def read_at(self, node: Node, variables: Collection[str] | None = None) -> Read | None:
        """Return a node as a read of a part of data or of other given variables."""
        return self._part(self.use(node), variables)

    def reads(self, nodes: Iterable[Node], variables: Collection[str] | None = None) -> Iterator[Read]:
        """Yield reads of parts of data or of other given variables, in the order of `uses`."""
        return (read for read in self.uses(nodes) if self._part(read, variables))

    def _part(self, read: Read | None, variables: Collection[str] | None) -> Read | None:
        wanted = self.shapes if variables is None else variables
        return read if read is not None and read.indices and read.variable in wanted else None

    def _taken(self, call: Call) -> Read | None:
        function, arguments = call.name, call.arguments
        variable = str(arguments[0])
        shape = self.shapes.get(variable)
        if shape is None or not shape.all_dims or len(arguments) != _PARTS[function]:
            return None
        n = self.affine(arguments[-1])
        if function == "segment":
            lower = self.affine(arguments[1])
        else:
            lower = Affine((), 1) if function == "head" else self.affine(shape.all_dims[0]) - n + 1
        return Read(call, variable, (Index(lower, lower + n - 1).expression,))

    def indices(self, read: Read) -> list[Index]:
        """Return the indices of a read as integer expressions; open slices end at the variable's size."""
        sizes = self.shapes[read.variable].all_dims
        return [Index.of(one, self, size) for one, size in zip(read.indices, sizes, strict=False)]

    def counted(self, n: Affine, loops: str = "") -> Name:
        """Return the integer that counts rows: ``n`` for each run of ``loops``; equal loops give equal integers."""
        key = f"{loops} {n}"
        if key not in self._counts:
            numbers = ("" if k == 0 else str(k + 1) for k in count(len(self._counts)))
            name = next(one for k in numbers if (one := f"{N_ROWS}{k}") not in self.taken)
            self._counts[key] = Name(name)
            if loops:
                self.lines += [f"int {name} = 0;", f"{loops} {{ {name} += max(0, {n}); }}"]
            else:
                self.lines.append(f"int {name} = max(0, {n});")
        return self._counts[key]

    def named(self, key: str, variable: str) -> tuple[str, bool]:
        """Return the name of a new variable, the same for the same ``key``, and whether it is not yet declared."""
        is_new = key not in self._made
        if is_new:
            self._made[key] = self.fresh(variable)
        return self._made[key], is_new

    def fresh(self, variable: str) -> str:
        """Return an unused name similar to that of a variable."""
        self._number += 1
        while (name := f"stansub_{variable}_{self._number}") in self.taken:
            self._number += 1
        return name

    def constant(self, read: Read, size: Expression | None = None) -> Name | None:
        """Return a constant part of the data as a separate variable; None if it may not be constant.

        ``size`` is the length of its first index, if that is a slice.
        """
        indices = self.indices(read)
        if not all(index.names <= self.data for index in indices) or not self._are_places(read):
            return None
        lengths = [None if index.length is None else index.length.expression for index in indices]
        if size is not None:
            lengths[0] = size
        value = Subscript(Name(read.variable), tuple(index.expression for index in indices))
        name, is_new = self.named(str(value), read.variable)
        if is_new:
            self.lines.append(str(Declaration(self.shapes[read.variable].part(lengths), name, value)))
        return Name(name)

    def edits(self, found: Sequence[tuple[Span, str]]) -> Edits:
        """Return replaced statements, and data at fixed indices that others of the model read as variables."""
        return Edits(self.lines, [*found, *self._constants([span for span, _ in found])])

    def _constants(self, done: Sequence[Span]) -> Iterator[tuple[Span, str]]:
        """Yield data at fixed indices that statements of the model read outside spans, as separate variables."""
        seen = list(done)
        for read in self.reads(self.program.model.statements):
            span = read.node.span
            if any(one.contains(span) for one in seen) or read.variable not in self.observed:
                continue
            if name := self.constant(read):
                seen.append(span)
                yield span, str(name)

    def _are_places(self, read: Read) -> bool:
        """Return whether all indices are single ones or slices rather than arrays."""
        fits = len(read.indices) <= len(self.shapes[read.variable].all_dims)
        return fits and not any(map(self.is_array, read.indices))

    def is_array(self, node: Node) -> bool:
        """Return whether an index contains an array of indices."""
        if isinstance(node, Call) and node.name in SIZES:
            return False
        read = self.use(node)
        if read is None or read.variable not in self.shapes:
            return any(map(self.is_array, node.parts))
        sizes, indices = self.shapes[read.variable].all_dims, read.indices
        return len(indices) < len(sizes) or any(isinstance(one, Slice) or self.is_array(one) for one in indices)


def restoring(*objects: object) -> Callable[[], None]:
    """Return a function after which lists, sets and dicts of some objects have again what they have now."""
    kept = [
        {name: copy(one) for name, one in vars(each).items() if isinstance(one, list | set | dict)} for each in objects
    ]

    def restore() -> None:
        for each, values in zip(objects, kept, strict=True):
            vars(each).update(values)

    return restore


def exchanged(node: N, change: Callable[[Node], Node | None]) -> N:
    """Like `changed`, but replace a variable with indices as a whole, or only inside its indices."""

    def in_indices(one: Expression) -> Expression:
        if not isinstance(one, Subscript):
            return one
        return replace(one, base=in_indices(one.base), indices=tuple(exchanged(part, change) for part in one.indices))

    def each(one: Node) -> Node | None:
        new = change(one)
        if new is None and isinstance(one, Subscript) and isinstance(flat(one)[0], Name):
            return in_indices(one)
        return new

    return changed(node, each)


def holding(statements: Sequence[Statement], span: Span) -> Statement:
    """Return the innermost statement around a span."""
    found = [one for one in walk(statements) if one.span.contains(span)]
    return min(found, key=lambda one: one.span.end - one.span.start)
