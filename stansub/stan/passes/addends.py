"""Terms of the observations and other terms, added in one statement, as statements of their own.

With transformed data, a program is taken apart by statements (`stansub.stan.parts`).
"""

from __future__ import annotations

from stansub.stan.passes.rewriting import Edits, Pass
from stansub.stan.reading.dependence import Steps, together
from stansub.stan.reading.sizes import data_along, outcome_sizes
from stansub.stan.reading.typing import REAL, types_in_blocks
from stansub.stan.syntax import Expression, Prefix, Program, Target, names, summands


@Pass.named("terms of the observations in statements of their own")
def term_by_term(program: Program) -> Edits | None:
    """Write ``target += a + b;`` as two statements if the terms depend on data of different sizes."""
    if not program.transformed_data.statements:
        return None
    found = [(one, _terms(one.expression)) for one in program.model.statements if isinstance(one, Target)]
    sums = [(one, terms) for one, terms in found if len(terms) > 1]
    if not sums:
        return None
    reading = Steps.of(program).reads({size: [size, *data_along(program, size)] for size in outcome_sizes(program)})
    types = types_in_blocks(program)
    replacements = [
        (one.span, "\n".join(f"target += {term};" for term in terms))
        for one, terms in sums
        # A number may be added to a vector, whose elements then all have it; not to another number.
        if types.of(one.expression) == REAL and len({together(reading, names(term)) for term in terms}) > 1
    ]
    return Edits([], replacements)


def _terms(expression: Expression) -> list[Expression]:
    """Return terms whose sum is an expression."""
    return [term if sign > 0 else Prefix("-", term) for sign, term in summands(expression)]
