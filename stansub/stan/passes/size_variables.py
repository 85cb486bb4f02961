"""Sizes of transformed data that functions of data return, as integers, which may count the observations.

``array[N - n_zero(y)] int above;`` has an element for each positive count. In the program written here, its size is
an integer of its own, along which ``above ~ poisson(lambda);`` can be cut.
"""

from __future__ import annotations

from stansub.stan.passes.rewriting import Edits, Pass, Symbols
from stansub.stan.syntax import SIZES, Call, Expression, Literal, Node, Program, Span, changed, names, outermost

# Stem of the names of the integers, to which a number is added.
_SIZE = "stansub_size"


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

    def known(node: Node) -> Expression | None:
        return node if isinstance(node, Expression) and node in found else None

    for block in (program.parameters, program.transformed_parameters, program.model):
        replacements |= {one.span: found[one] for one in outermost(known, block)}
    return Edits([], list(replacements.items()))


def size_expressions(program: Program) -> dict[str, str]:
    """Return the expressions of the sizes that a program has as integers, by name."""
    declared = program.transformed_data.declarations
    return {one.name: str(one.value) for one in declared if one.name.startswith(f"{_SIZE}_")}


def _without_sizes(node: Node) -> Node | None:
    """Return a number in place of the size of a variable."""
    return Literal("1") if isinstance(node, Call) and node.name in SIZES else None
