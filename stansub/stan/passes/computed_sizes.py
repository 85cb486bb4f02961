"""Computed sizes of data as integers that may count the observations.

``array[N - n_zero(y)] int above;`` has an element for each positive count. In the program written here, its size is an
integer of ``transformed data``, along which ``above ~ poisson(lambda);`` can be cut. With ``vector[N_obs + N_mis] y;``
in the data block, ``transformed data`` have copies of the data of this size, and an integer that counts their rows.
"""

from __future__ import annotations

from collections.abc import Collection

from stansub.stan.passes.rewriting import Edits, Pass, Symbols, outermost_places
from stansub.stan.passes.series.rows import N_ROWS
from stansub.stan.syntax import (
    SIZES,
    Assign,
    Call,
    Expression,
    Literal,
    Name,
    Node,
    Program,
    Span,
    Subscript,
    changed,
    density_of,
    find,
    names,
)

# Stems of the names of integers and of copies, to which a number is added.
_SIZE, _COPY = "stansub_size", "stansub_copy"


@Pass.named("sizes of transformed data as integers")
def with_size_variables(program: Program) -> Edits:
    """Declare sizes of transformed data that functions of data return as integers."""
    containers = {one.name for one in program.data_declarations if one.all_dims}
    symbols, found = Symbols.of(program), dict[Expression, str]()
    replacements = dict[Span, str]()
    for declaration in program.transformed_data.declarations:
        for dim in declaration.all_dims:
            if names(changed(dim, _without_sizes)).isdisjoint(containers):
                continue
            if dim not in found:
                found[dim] = symbols.fresh(_SIZE)
                before = declaration.span.before
                replacements[before] = f"{replacements.get(before, '')}int {found[dim]} = {dim};\n  "
            replacements[dim.span] = found[dim]
    return Edits([], list((replacements | dict(outermost_places(program, found))).items()))


@Pass.named("data with a computed size as rows")
def with_size_sums(program: Program) -> Edits | None:
    """Copy data with the computed size of the outcomes to transformed data, with one integer as size."""
    symbols, size = Symbols.of(program), _computed_size(program)
    if size is None or N_ROWS in symbols.taken:
        return None
    lines = [f"int {N_ROWS} = {size};"]
    given: dict[Node, Node] = dict.fromkeys(_equal(program, size), Name(N_ROWS))
    read = names(*program.evaluated)
    for one in program.data_declarations:
        if one.name in read and given.keys() & set(one.all_dims) and one.type.shape is not None:
            given[Name(one.name)] = copy = Name(symbols.fresh(_COPY))
            lines.append(f"{changed(one.type.shape, given.get)} {copy} = {one.name};")
    return Edits(lines, outermost_places(program, given))


def size_expressions(program: Program, passes: Collection[str] = ()) -> dict[str, str]:
    """Return the computed sizes that a program has as integers, by name; ``passes`` wrote it."""
    declared = program.transformed_data.declarations
    rows = {N_ROWS} if with_size_sums.name in passes else set()
    return {one.name: str(one.value) for one in declared if one.name.startswith(f"{_SIZE}_") or one.name in rows}


def _without_sizes(node: Node) -> Node | None:
    """Return a number in place of the size of a variable."""
    return Literal("1") if isinstance(node, Call) and node.name in SIZES else None


def _computed_size(program: Program) -> Expression | None:
    """Return the size of all outcomes, if it is computed from several integers and no parameter has it."""
    integers = {one.name for one in program.data.declarations if one.base == "int" and not one.all_dims}
    outcomes = {_variable(found.left) for node in find(Node, program.evaluated) if (found := density_of(node))}
    sizes = {one.all_dims[0] for one in program.data_declarations if one.name in outcomes and one.all_dims}
    of_parameters = {dim for one in program.parameters.declarations for dim in one.all_dims}
    (size, *others) = sizes or (None,)
    if size is None or others or size in of_parameters or not names(size) <= integers:
        return None
    return size if len(names(size)) > 1 else None


def _variable(outcome: Expression) -> str:
    """Return the variable of an outcome: all of its elements, or one; else empty."""
    match outcome:
        case Name(name) | Subscript(Name(name), (Name(),)):
            return name
    return ""


def _equal(program: Program, size: Expression) -> list[Expression]:
    """Return a size, and the names of integers of transformed data that are declared as it."""
    inside = program.transformed_data
    assigned = {name for one in find(Assign, inside.statements) for name in one.variables}
    declared = (one.name for one in inside.declarations if one.base == "int" and one.value == size)
    return [size, *(Name(name) for name in declared if name not in assigned)]
