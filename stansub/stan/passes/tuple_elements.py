"""Elements of tuples of data, one by observation, as variables of their own.

A tuple with a row for each observation, such as ``tuple(vector[N], real) z = standardised(x);``, cannot be cut. In the
program written here, ``transformed data`` have its elements that count observations as variables.
"""

from __future__ import annotations

from stansub.stan.passes.rewriting import Edits, Pass, Symbols, outermost_places
from stansub.stan.reading.sizes import counting
from stansub.stan.syntax import Expression, Member, Name, Program, SizedType, find

# Stem of the names of the variables, to which a number is added.
_ELEMENT = "stansub_element"


@Pass.named("elements of tuples as data of their own")
def with_tuple_elements(program: Program) -> Edits:
    """Declare elements of tuples of data, along a size that may count observations, as transformed data."""
    tuples = {one.name: one.type for one in program.data_declarations if one.base == "tuple" and not one.array_dims}
    counts, symbols = counting(program), Symbols.of(program)
    blocks = program.parameters, program.transformed_parameters, program.model
    kinds = {one: kind for one in find(Member, blocks) if (kind := _type(one, tuples)) is not None}
    given = {
        one: symbols.fresh(_ELEMENT)
        for one, kind in kinds.items()
        if kind.shape is not None and any(map(counts, kind.all_dims))
    }
    lines = [f"{kinds[one].plain} {name} = {one};" for one, name in given.items()]
    return Edits(lines, outermost_places(program, given))


def _type(node: Expression, tuples: dict[str, SizedType]) -> SizedType | None:
    """Return the type of a tuple of data or of an element of one; None for other expressions."""
    match node:
        case Name(name):
            return tuples.get(name)
        case Member(base, number):
            outer = _type(base, tuples)
            return outer.elements[number - 1] if outer is not None and not outer.array_dims and outer.elements else None
    return None
