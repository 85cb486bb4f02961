"""A pass: functions of data such as an offset ``log(exposure)`` are computed once, in transformed data.

A vectorised offset is the same at every evaluation. As transformed data it is computed once and cut with the other
data, so that no block takes logarithms again. The pass has to show that the program keeps its log density: a call of an
elementwise function of one data vector is replaced by a variable with that very value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stansub.stan.passes.rewriting import Edits, Pass, Symbols
from stansub.stan.reading.reach import ELEMENTWISE
from stansub.stan.syntax import Call, Declaration, Name, Node, Program


@Pass.named("offsets in transformed data")
def with_offsets(program: Program) -> Edits | None:
    """Compute functions of data vectors in transformed data."""
    vectors = {one.name: one for one in program.data_declarations if one.base == "vector" and not one.array_dims}
    symbols, variables, replacements = Symbols.of(program), dict[Call, str](), []
    for call in _offsets(program.model, vectors):
        if call not in variables:  # expressions are equal if they say the same
            variables[call] = symbols.fresh("stansub_offset")
        replacements.append((call.span, variables[call]))
    lines = []
    for call, name in variables.items():
        lines.append(f"{vectors[str(call.arguments[0])].type.plain} {name} = {call};")
    return Edits(lines, replacements) if lines else None


def _offsets(node: Node, vectors: Mapping[str, Declaration]) -> Iterator[Call]:
    """Yield calls of elementwise functions whose one argument is a data vector."""
    match node:
        case Call(name, (Name(argument),)) if name in ELEMENTWISE and argument in vectors:
            yield node
        case _:
            for part in node.parts:
                yield from _offsets(part, vectors)
