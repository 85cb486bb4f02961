"""Data that a statement reads beside an observation, as rows of variables of their own.

`Rows` writes them into ``transformed data``: for each read such as ``y[t - 1]`` a variable with a row for each time
that the loop runs. Nothing here decides whether that is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stansub.stan.remarks import Remark
from stansub.stan.series.affine import Affine
from stansub.stan.series.shapes import Shape
from stansub.stan.sizes import data_declarations
from stansub.stan.syntax import (
    Program,
    Span,
    Statement,
    Token,
    matching,
    names,
    split,
    tokenize,
    walk,
)

# Functions that take a part of a vector or an array.
_PARTS = {"head": 2, "tail": 2, "segment": 3}
# Functions of a variable whose values are numbers of its elements.
_LENGTHS = frozenset({"size", "num_elements", "rows", "cols"})
# The variable of loops over rows, and how many there are; with a number behind it for rows of other lengths.
ROW, N_ROWS = "stansub_i", "stansub_t"


class RefusedError(Exception):
    """A statement that cannot be written over rows of data."""

    def __init__(self, remark: Remark) -> None:
        super().__init__(str(remark))
        self.remark = remark


class Read(NamedTuple):
    """A place in the program where a part of a variable is read.

    Attributes
    ----------
    span : Span
        From the variable or the function that takes the part to the last bracket.
    variable : str
    indices : tuple of str
        A slice has its bounds, ``head`` and its like those of the slice that they take.
    """

    span: Span
    variable: str
    indices: tuple[str, ...]


class Index(NamedTuple):
    """An index: one place, or with ``upper`` a slice."""

    lower: Affine
    upper: Affine | None

    @property
    def length(self) -> Affine | None:
        """How many elements it picks; None for a single one."""
        return None if self.upper is None else self.upper - self.lower + 1

    @property
    def names(self) -> set[str]:
        """Variables in it."""
        return names(str(self))

    @classmethod
    def of(cls, text: str, rows: Rows, size: str = "1") -> Index:
        """Read an index; slices without an upper bound end at ``size``."""
        bounds = split(tokenize(text), ":") if "?" not in text else [[]]
        if text and len(bounds) == 1:
            return cls(rows.affine(text), None)
        sides = [text[part[0].span.start : part[-1].span.end] if part else "" for part in bounds]
        lower, upper = sides if len(sides) == 2 else ("", "")
        return cls(rows.affine(lower or "1"), rows.affine(upper or size))

    def __str__(self) -> str:
        return str(self.lower) if self.upper is None else f"{self.lower} : {self.upper}"


class Stretch(NamedTuple):
    """Elements of variables that have as many as there are observations, or nearly.

    Attributes
    ----------
    whole : Affine
        How many elements the variables have.
    lower : Affine
        The first that is wanted.
    n : Affine
        How many are.
    size : str
        The same as it is written.
    """

    whole: Affine
    lower: Affine
    n: Affine
    size: str

    @property
    def upper(self) -> Affine:
        """The last that is wanted."""
        return self.lower + self.n - 1

    def within(self, start: Affine, whole: Affine) -> Stretch:
        """The same elements of a variable that is ``whole`` long and whose element ``start`` is the first here."""
        return Stretch(whole, start + self.lower - 1, self.n, self.size)


@dataclass
class Rows:
    """Variables that are added to ``transformed data``.

    Attributes
    ----------
    program : Program
        The user's program.
    shapes : dict
        Types of its data and transformed data.
    lines : list of str
        Stan code that declares and fills the new variables.
    observed : set of str
        Data of which rows were taken.
    """

    program: Program
    shapes: dict[str, Shape] = field(init=False)
    lines: list[str] = field(default_factory=list)
    observed: set[str] = field(default_factory=set)
    _made: dict[str, str] = field(default_factory=dict)
    _counts: dict[str, str] = field(default_factory=dict)
    _number: int = 0

    def __post_init__(self) -> None:
        found = ((one.name, Shape.of(one)) for one in data_declarations(self.program))
        self.shapes = {name: shape for name, shape in found if shape is not None}
        self.data = {one.name for one in data_declarations(self.program)}
        self.known = {
            f"{function}({name})": shape.sizes[0]
            for name, shape in self.shapes.items()
            if shape.sizes
            for function in (("size", "num_elements", "rows") if len(shape.sizes) == 1 else ("size", "rows"))
            if function != "size" or shape.base != "matrix" or shape.array
        }

    def kept(self) -> tuple[object, ...]:
        """What `go_back` takes to forget what comes after now."""
        return list(self.lines), set(self.observed), dict(self._made), dict(self._counts)

    def go_back(self, kept: tuple[Any, ...]) -> None:
        """Forget what was added since `kept`."""
        self.lines, self.observed, self._made, self._counts = kept

    def affine(self, text: str) -> Affine:
        """An integer expression, the sizes of data by their names."""
        return Affine.of(text, self.known)

    def read_at(self, tokens: Sequence[Token], k: int, variables: set[str] | None = None) -> Read | None:
        """The part of data, or of one of other variables, that is read from token ``k`` on."""
        token, after = tokens[k], tokens[k + 1].text if k + 1 < len(tokens) else ""
        if after == "[" and token.text in (self.shapes if variables is None else variables):
            return self._indexed(tokens, k)
        if after == "(" and token.text in _PARTS and variables is None:
            return self._taken(tokens, k)
        return None

    def _indexed(self, tokens: Sequence[Token], k: int) -> Read:
        at, indices = k + 1, list[str]()
        while True:
            close = matching(tokens, at)
            indices += [self._text(part) for part in split(tokens[at + 1 : close], ",")]
            sliced = any(not index or len(split(tokenize(index), ":")) > 1 for index in indices)
            if sliced or close + 1 >= len(tokens) or tokens[close + 1].text != "[":
                span = Span(tokens[k].span.start, tokens[close].span.end)
                return Read(span, tokens[k].text, tuple(indices))
            at = close + 1

    def _taken(self, tokens: Sequence[Token], k: int) -> Read | None:
        close = matching(tokens, k + 1)
        function, arguments = tokens[k].text, [self._text(part) for part in split(tokens[k + 2 : close], ",")]
        shape = self.shapes.get(arguments[0])
        if shape is None or not shape.sizes or len(arguments) != _PARTS[function]:
            return None
        if function == "segment":
            lower, n = self.affine(arguments[1]), self.affine(arguments[2])
        else:
            n = self.affine(arguments[1])
            lower = Affine((), 1) if function == "head" else self.affine(shape.sizes[0]) - n + 1
        span = Span(tokens[k].span.start, tokens[close].span.end)
        return Read(span, arguments[0], (f"{lower} : {lower + n - 1}",))

    def _text(self, tokens: Sequence[Token]) -> str:
        return " ".join(token.text for token in tokens)

    def indices(self, read: Read) -> list[Index]:
        """Its indices as integer expressions; slices without a bound have that of the variable."""
        sizes = self.shapes[read.variable].sizes
        return [Index.of(text, self, size) for text, size in zip(read.indices, sizes, strict=False)]

    def counted(self, n: Affine, loops: str = "") -> str:
        """The integer that counts rows: ``n``, each time that ``loops`` run; the same for the same ones."""
        key = f"{loops} {n}"
        if key not in self._counts:
            name = f"{N_ROWS}{len(self._counts) + 1 if self._counts else ''}"
            self._counts[key] = name
            if loops:
                self.lines += [f"int {name} = 0;", f"{loops} {{ {name} += max(0, {n}); }}"]
            else:
                self.lines.append(f"int {name} = max(0, {n});")
        return self._counts[key]

    def named(self, key: str, variable: str) -> tuple[str, bool]:
        """The name of a new variable, and whether it is not yet declared: the same for the same ``key``."""
        is_new = key not in self._made
        if is_new:
            self._made[key] = self.fresh(variable)
        return self._made[key], is_new

    def fresh(self, variable: str) -> str:
        """A name like that of a variable that nothing has yet."""
        self._number += 1
        return f"stansub_{variable}_{self._number}"

    def constant(self, read: Read, size: str = "") -> str:
        """A part of data that is always the same as a variable of its own; nothing where it is not known to be.

        Parameters
        ----------
        read : Read
            What is read.
        size : str
            What to call the length of its first index, a slice.
        """
        indices = self.indices(read)
        if not all(index.names <= self.data for index in indices) or not self._are_places(read):
            return ""
        lengths = [None if index.length is None else str(index.length) for index in indices]
        if size:
            lengths[0] = size
        text = f"{read.variable}[{', '.join(map(str, indices))}]"
        name, is_new = self.named(text, read.variable)
        if is_new:
            self.lines.append(f"{self.shapes[read.variable].at(lengths).declared(name)} = {text};")
        return name

    def _are_places(self, read: Read) -> bool:
        """Whether its indices are single places or slices and not arrays of places."""
        fits = len(read.indices) <= len(self.shapes[read.variable].sizes)
        return fits and not any(self.is_array(index) for index in read.indices)

    def is_array(self, index: str) -> bool:
        """Whether an index has an array of places in it."""
        tokens = tokenize(index)
        end = 0
        for k, token in enumerate(tokens):
            if token.text in _LENGTHS and token.span.start >= end:
                end = tokens[matching(tokens, k + 1)].span.end
            shape = self.shapes.get(token.text)
            if token.span.start < end or shape is None or not shape.sizes:
                continue
            read = self.read_at(tokens, k)
            if read is None or len(read.indices) < len(shape.sizes):
                return True
            if any(not one or len(split(tokenize(one), ":")) > 1 or self.is_array(one) for one in read.indices):
                return True
            end = read.span.end
        return False


def holding(statements: Sequence[Statement], span: Span) -> Statement:
    """The innermost statement around a span."""
    found = [one for one in walk(statements) if one.span.start <= span.start and span.end <= one.span.end]
    return min(found, key=lambda one: one.span.end - one.span.start)
