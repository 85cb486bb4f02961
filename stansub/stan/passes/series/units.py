"""Units with parameters of their own and a state that their outcomes change, as rows of data.

In a model of learning, ``for (s in 1:S) { ... for (t in 1:T) { y[s, t] ~ bernoulli_logit(beta[s] * q); ... } }``, the
trials of a subject depend on its earlier ones, so neither subjects, which have parameters, nor trials can be cut. Given
the parameters, subjects are independent: each is an observation, whose log likelihood is the sum over its trials.
"""

from __future__ import annotations

from stansub.stan.passes.rewriting import Edits, Pass
from stansub.stan.passes.series.nests import Nest
from stansub.stan.passes.series.row_variables import RowVariables
from stansub.stan.passes.series.rows import ONE, Rows
from stansub.stan.reading.sizes import has_terms
from stansub.stan.syntax import Assign, Declaration, For, Name, Program, Subscript, find, flat, is_carried, names


@Pass.named("units with their own parameters as rows of data")
def by_units(program: Program) -> Edits:
    """Write loops over units whose outcomes are in a loop that carries a state from one to the next over rows."""
    rows = Rows(program)
    nests = [Nest(rows, (one,), one.body, RowVariables(rows, ()), of_units=True) for one in _loops(program)]
    return rows.edits([(nest.span, str(nest.over_rows())) for nest in nests])


def unit_size(program: Program) -> str:
    """Return the integer that counts such units; empty if the program has none."""
    return next((str(one.upper) for one in _loops(program)), "")


def _loops(program: Program) -> list[For]:
    sizes = program.sizes_of_parameters
    loops = [one for one in program.model.statements if isinstance(one, For) and has_terms(one)]
    return [one for one in loops if one.lower == ONE and str(one.upper) in sizes and _has_states(program, one)]


def _has_states(program: Program, loop: For) -> bool:
    """Return whether a loop over units has an inner one over their data that carries a state from one to the next."""
    own = {one.name for one in loop.body if isinstance(one, Declaration)}
    for inner in loop.body:
        if isinstance(inner, For) and _reads_of(program, inner, Name(loop.variable)):
            assigned = {name for one in find(Assign, inner.body) for name in one.variables}
            if any(is_carried(inner.body, name) for name in assigned & own):
                return True
    return False


def _reads_of(program: Program, inner: For, unit: Name) -> bool:
    """Return whether a loop reads data of a unit at the loop's own place."""
    reads = (read for read in map(flat, find(Subscript, inner.body)) if str(read[0]) in program.data_names)
    return any(indices[:1] == (unit,) and inner.variable in names(*indices[1:]) for _, indices in reads)
