"""Values in the model that data of other rows decide, computed once from all the data.

These are summaries (``x - mean(x)``), elements at fixed places (``y[1]``) and rows that a list names (``y[partner]``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from stansub.stan.rewrite import extended
from stansub.stan.rewriting import Edits, Pass, Refusal, Symbols
from stansub.stan.series.shapes import part_of, shape_of
from stansub.stan.sizes import (
    DENSITIES,
    SUMMARIES,
    counting,
    data_declarations,
    main_size,
    observations_in,
    outcome_sizes,
)
from stansub.stan.syntax import (
    Call,
    Expression,
    Function,
    Literal,
    Name,
    Node,
    Program,
    SizedType,
    Slice,
    Span,
    Subscript,
    flat,
    names,
    parse,
    walk,
)
from stansub.stan.typing import REAL

_REAL, _INT = SizedType((), "real"), SizedType((), "int")
# Functions that return an integer of integers.
_WHOLE = ("max", "min")


@Pass.named("summaries of data in transformed data")
def with_summaries(program: Program) -> Edits | Refusal | None:
    """Compute values that data of other rows decide in ``transformed data`` instead of the model.

    Returns a `Refusal` if nothing else is left of the observations.
    """
    found: dict[Expression, str] = {}
    lines, symbols = list[str](), Symbols.of(program)
    replacements: list[tuple[Span, str]] = []
    shapes = {one.name: shape for one in data_declarations(program) if (shape := shape_of(one)) is not None}
    counts = counting(program)
    other = _Other(
        shapes,
        frozenset(size for size in outcome_sizes(program) if counts(Name(size))),
        SUMMARIES | {one.name for one in program.functions if _is_summary(one)},
    )
    for block in (program.parameters, program.transformed_parameters, program.model):
        for value, kind in other.outermost(block):
            if value not in found:
                found[value] = symbols.fresh("stansub_summary")
                lines.append(f"{kind} {found[value]} = {value};")
            replacements.append((value.span, found[value]))
    if not found:
        return None
    added = Edits(lines, replacements)
    written = parse(extended(program, *added))
    if observations_in(written, main_size(written)):
        return added
    # A likelihood of nothing but sums of the data is already a sum of these over parts.
    return Refusal(f"reads the observations only through `{next(iter(found))}`", _adding(program, replacements))


@dataclass(frozen=True)
class _Other:
    """Values that data of other rows decide.

    Attributes
    ----------
    shapes : mapping
        Types of the data.
    sizes : frozenset of str
        Integers that may count the observations.
    functions : frozenset of str
        Functions whose value is one number.
    """

    shapes: Mapping[str, SizedType]
    sizes: frozenset[str]
    functions: frozenset[str]

    def outermost(self, node: Node) -> Iterator[tuple[Expression, SizedType]]:
        """Yield such values with their types, none inside another."""
        if isinstance(node, Expression) and (kind := self._type(node)) is not None:
            yield node, kind
            return
        for part in node.parts:
            yield from self.outermost(part)

    def _type(self, node: Expression) -> SizedType | None:
        """Return the type of such a value; None for anything else."""
        match node:
            case Call(name) if name in self.functions:
                used = names(node)
                summarises = used <= self.shapes.keys() and any(self.shapes[one].all_dims for one in used)
                whole = name in _WHOLE and all(self.shapes[one].base == "int" for one in used)
                return (_INT if whole else _REAL) if summarises else None
            case Subscript():
                base, indices = flat(node)
                shape = self.shapes.get(base.name) if isinstance(base, Name) else None
                return None if shape is None else self._picked(shape, indices)
        return None

    def _picked(self, shape: SizedType, indices: Sequence[Expression]) -> SizedType | None:
        """Return the type of rows that integers of the data pick; None for other parts."""
        lengths, picks = list[Expression | None](), False
        for index, dim in zip(indices, shape.all_dims, strict=False):
            match index:
                case Literal():
                    lengths.append(None)
                case Name(name) if name in self.shapes:
                    lengths.append(next(iter(self.shapes[name].all_dims), None))
                case Slice() if index.is_whole:
                    lengths.append(dim)
                    continue
                case _:
                    return None
            picks = picks or str(dim) in self.sizes
        return part_of(shape, lengths) if picks else None


def _is_summary(function: Function) -> bool:
    """Return whether a function of the program returns a number and does nothing else."""
    return function.return_type == REAL and not function.name.endswith(("_lp", *DENSITIES))


def _adding(program: Program, replacements: Sequence[tuple[Span, str]]) -> Span:
    """Return the statement that contains the first replacement."""
    first = replacements[0][0]
    return [one.span for one in walk(program.evaluated) if one.span.contains(first)][-1]
