"""Products of parameters in a likelihood, as far as the text shows, such as discrimination times ability."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from stansub.stan.dependence import Step, Steps, together
from stansub.stan.sizes import data_declarations
from stansub.stan.syntax import Call, Expression, Infix, Program, find, names

_PRODUCTS = frozenset({"*", ".*", "/", "./"})
_CALLS = frozenset({"dot_product", "rows_dot_product", "columns_dot_product"})


def multiplies(program: Program, size: str) -> bool:
    """Return whether observations depend on a product of two different parameters with several elements each."""
    several = [one.name for one in program.parameters.declarations if one.all_dims]
    sized = [one.name for one in data_declarations(program) if size in names(*one.all_dims)]
    steps = Steps.of(program)
    depends = steps.depending({size: [size, *sized]})
    reads = steps.reads({name: [name] for name in several})
    own = (step for step in (*steps.transformed, *steps.model) if together(depends, step.reads | step.writes))
    return any(_differ(*pair, reads) for step in own for pair in _factors(step))


def _factors(step: Step) -> Iterator[tuple[Expression, Expression]]:
    for one in find(Expression, [step.statement]):
        if isinstance(one, Infix) and one.operator in _PRODUCTS:
            yield one.left, one.right
        elif isinstance(one, Call) and one.name in _CALLS:
            yield one.arguments[0], one.arguments[1]


def _differ(one: Expression, other: Expression, reads: Mapping[str, Collection[str]]) -> bool:
    first, second = ({parameter for name in names(node) for parameter in reads.get(name, ())} for node in (one, other))
    return bool(first and second) and len(first | second) > 1
