"""Elements of tuples of data, one by observation, as variables of their own.

A tuple with a row for each observation, such as ``tuple(vector[N], real) z = standardised(x);``, cannot be cut. In the
program written here, ``transformed data`` have its elements that count observations as variables.
"""

from __future__ import annotations

from stansub.stan.passes.rewriting import Edits, Pass, Symbols
from stansub.stan.reading.sizes import counting
from stansub.stan.syntax import Expression, Member, Name, Node, Program, SizedType, outermost

# Stem of the names of the variables, to which a number is added.
_ELEMENT = "stansub_element"


@Pass.named("elements of tuples as data of their own")
def with_tuple_elements(program: Program) -> Edits:
    """Declare elements of tuples of data, along a size that may count observations, as transformed data."""
    tuples = {one.name: one.type for one in program.data_declarations if one.base == "tuple" and not one.array_dims}
    counts, symbols, given, lines = counting(program), Symbols.of(program), dict[Expression, str](), list[str]()

    def element(node: Node) -> Expression | None:
        kind = _type(node, tuples) if isinstance(node, Member) else None
        is_data = kind is not None and kind.shape is not None and any(map(counts, kind.all_dims))
        return node if is_data and isinstance(node, Member) else None

    blocks = program.parameters, program.transformed_parameters, program.model
    found = [one for block in blocks for one in outermost(element, block)] if tuples else []
    for one in dict.fromkeys(found):
        kind, given[one] = _type(one, tuples), symbols.fresh(_ELEMENT)
        assert kind is not None
        lines.append(f"{kind.plain} {given[one]} = {one};")
    return Edits(lines, [(one.span, given[one]) for one in found])


def _type(node: Expression, tuples: dict[str, SizedType]) -> SizedType | None:
    """Return the type of a tuple of data or of an element of one; None for other expressions."""
    match node:
        case Name(name):
            return tuples.get(name)
        case Member(base, number):
            outer = _type(base, tuples)
            return outer.elements[number - 1] if outer is not None and not outer.array_dims and outer.elements else None
    return None
