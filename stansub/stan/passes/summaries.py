"""Values in the model that data of other rows decide, computed once from all the data.

These are summaries (``x - mean(x)``), nonlinear functions of the number of observations (``sigma / sqrt(N)``), elements
at fixed places (``y[1]``) and rows that a list names (``y[partner]``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from stansub.stan.passes.rewrite import extended
from stansub.stan.passes.rewriting import Edits, Pass, RefusedError, Symbols
from stansub.stan.passes.series.rows import holding
from stansub.stan.reading.reach import ELEMENTWISE
from stansub.stan.reading.sizes import DENSITIES, SUMMARIES, counting, main_size, observations_in, outcome_sizes
from stansub.stan.reading.typing import INT, REAL, types_in_blocks
from stansub.stan.syntax import (
    Call,
    Expression,
    Function,
    Infix,
    Literal,
    Name,
    Node,
    Prefix,
    Program,
    SizedType,
    Slice,
    Span,
    Subscript,
    flat,
    names,
    parse,
)

_REAL, _INT = SizedType((), "real"), SizedType((), "int")
# Functions that return an integer of integers.
_WHOLE = ("max", "min")
# Functions that add up over observations.
_SUMS = ("sum", "dot_product", "dot_self")
# Degrees of values as functions of the number of observations and of sums over them.
_CONSTANT, _LINEAR, _NONLINEAR = range(3)


@Pass.named("summaries of data in transformed data")
def with_summaries(program: Program) -> Edits | None:
    """Compute values that data of other rows decide in ``transformed data`` instead of the model.

    Refused if nothing else is left of the observations.
    """
    found: dict[Expression, str] = {}
    lines, symbols = list[str](), Symbols.of(program)
    replacements: list[tuple[Span, str]] = []
    shapes = {one.name: shape for one in program.data_declarations if (shape := one.type.shape) is not None}
    counts = counting(program)
    other = _Other(
        shapes,
        frozenset(size for size in outcome_sizes(program) if counts(Name(size))),
        SUMMARIES | {one.name for one in program.functions if _is_summary(one)},
        program,
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
    statement = holding((*program.parameters.statements, *program.evaluated), replacements[0][0])
    raise RefusedError(f"reads the observations only through `{next(iter(found))}`", statement.span)


@dataclass(frozen=True)
class _Other:
    """Values that data of other rows decide."""

    shapes: Mapping[str, SizedType]
    """Types of the data."""
    sizes: frozenset[str]
    """Integers that may count the observations."""
    functions: frozenset[str]
    """Functions whose value is one number."""
    program: Program
    """The program, whose types decide which numbers may be sizes."""

    def outermost(self, node: Node, *, is_nonlinear: bool = False) -> Iterator[tuple[Expression, SizedType]]:
        """Yield such values with their types, none inside another.

        ``is_nonlinear`` says whether what contains ``node`` is a nonlinear function of it.
        """
        degree = None
        if isinstance(node, Expression):
            degree = self._degree(node)
            kind = self._type(node) if degree is None else self._counted(node, degree, is_nonlinear)
            if kind is not None:
                yield node, kind
                return
        for part in node.parts if degree is None else ():
            yield from self.outermost(part, is_nonlinear=self._is_nonlinear(node, part, is_nonlinear))

    def _counted(self, node: Expression, degree: int, is_nonlinear: bool) -> SizedType | None:
        """Return the type of a number of all observations in a nonlinear place; None if the number may be a sum.

        Integers elsewhere may be sizes, indices or ends of loops, which change with the data.
        """
        if degree == _CONSTANT or (degree == _LINEAR and not is_nonlinear):
            return None
        found = types_in_blocks(self.program).of(node)
        return _REAL if found == REAL else _INT if found == INT and is_nonlinear else None

    def _degree(self, node: Expression) -> int | None:
        """Return the degree of a number that data determine; None for other expressions."""
        match node:
            case Literal():
                return _CONSTANT
            case Name(name) if name in self.shapes and not self.shapes[name].all_dims:
                return _LINEAR if name in self.sizes else _CONSTANT
            case Call(name) if name in _SUMS and names(node) <= self.shapes.keys():
                dims = [dim for one in names(node) for dim in self.shapes[one].all_dims]
                return _LINEAR if names(*dims) & self.sizes else None
            case Call(name) if name == "target" or name.endswith(("_lp", "_rng", *DENSITIES)):
                return None
            case Call() | Infix() | Prefix():
                return self._joined(node)
        return None

    def _joined(self, node: Expression) -> int | None:
        """Return the degree of an operation or a call from those of its operands; None if one has none."""
        degrees = [self._degree(part) for part in node.parts if isinstance(part, Expression)]
        known = [one for one in degrees if one is not None]
        if len(known) < len(degrees):
            return None
        match node:
            case Infix("+" | "-") | Prefix("+" | "-"):
                return max(known)
            case Infix("*"):
                return min(sum(known), _NONLINEAR)
            case Infix("/") if known[1] == _CONSTANT:
                return known[0]
        return _NONLINEAR if any(known) else _CONSTANT

    def _is_nonlinear(self, node: Node, part: Node, outer: bool) -> bool:
        """Return whether a number is a nonlinear function of one of its parts, or what contains it is."""
        match node:
            case Call(name):
                return name in ELEMENTWISE
            case Infix("/" | "./" | "^" | ".^" as operator, left, _) if part is not left or operator.endswith("^"):
                return types_in_blocks(self.program).of(node) != INT
            case Infix("+" | "-" | "*" | ".*" | "/" | "./") | Prefix("+" | "-"):
                return outer
        return False

    def _type(self, node: Expression) -> SizedType | None:
        """Return the type of such a value; None for anything else."""
        match node:
            case Call(name) if name in self.functions and names(node) <= self.shapes.keys():
                used = [self.shapes[one] for one in names(node)]
                whole = name in _WHOLE and all(one.base == "int" for one in used)
                return (_INT if whole else _REAL) if any(one.all_dims for one in used) else None
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
        return shape.part(lengths) if picks else None


def _is_summary(function: Function) -> bool:
    """Return whether a function of the program returns a number and does nothing else."""
    return function.return_type == REAL and not function.name.endswith(("_lp", *DENSITIES))
