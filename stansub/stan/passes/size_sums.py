"""Data along a size that is computed from several integers, as rows of data that one integer counts.

With ``vector[N_obs + N_mis] y;``, no integer of the data block counts the observations. In the program written here,
``transformed data`` have copies of the data of this size, and an integer that counts their rows.
"""

from __future__ import annotations

from collections.abc import Collection

from stansub.stan.passes.rewriting import Edits, Pass, Symbols
from stansub.stan.passes.series.rows import N_ROWS
from stansub.stan.syntax import (
    Assign,
    Expression,
    Name,
    Node,
    Program,
    Subscript,
    changed,
    density_of,
    find,
    names,
    outermost,
)

# Stem of the names of the copies, to which a number is added.
_COPY = "stansub_copy"


@Pass.named("data with a computed size as rows")
def with_size_sums(program: Program) -> Edits | None:
    """Copy data with the computed size of the outcomes to transformed data, with one integer as size."""
    symbols, size = Symbols.of(program), _computed_size(program)
    if size is None or N_ROWS in symbols.taken:
        return None
    lines, given = [f"int {N_ROWS} = {size};"], dict[Expression, Name].fromkeys(_equal(program, size), Name(N_ROWS))

    def replaced(node: Node) -> Expression | None:
        return given.get(node) if isinstance(node, Expression) else None

    read = names(*program.evaluated)
    for one in program.data_declarations:
        if one.name in read and given.keys() & set(one.all_dims) and one.type.shape is not None:
            given[Name(one.name)] = copy = Name(symbols.fresh(_COPY))
            lines.append(f"{changed(one.type.shape, replaced)} {copy} = {one.name};")

    def found(node: Node) -> Expression | None:
        return node if isinstance(node, Expression) and node in given else None

    blocks = program.parameters, program.transformed_parameters, program.model
    return Edits(lines, [(one.span, str(given[one])) for block in blocks for one in outermost(found, block)])


def computed_rows(program: Program, passes: Collection[str]) -> dict[str, str]:
    """Return the size of the rows as an expression, by its name, of a program that passes wrote."""
    if with_size_sums.name not in passes:
        return {}
    return {one.name: str(one.value) for one in program.transformed_data.declarations if one.name == N_ROWS}


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
