"""Passes over programs, applied until none applies, that write the likelihood in a form that can be cut.

Each pass is in a file of its own. It takes a program and returns one with the same parameters, log density and
generated quantities. A pass may read what another wrote; names that passes add differ from all names in the program.
Cutting the data proves numerically that the program is a sum over what its data count.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from stansub.stan.passes.addends import term_by_term
from stansub.stan.passes.computed_sizes import with_size_sums, with_size_variables
from stansub.stan.passes.csr import with_dense_rows
from stansub.stan.passes.inlining import inlined
from stansub.stan.passes.ragged import by_rows
from stansub.stan.passes.rewrite import reserved
from stansub.stan.passes.scatter import observation_by_observation
from stansub.stan.passes.series.cells import by_cells, cell_by_cell, cells_apart, with_cell_values
from stansub.stan.passes.series.lags import with_lags
from stansub.stan.passes.series.residuals import with_residuals
from stansub.stan.passes.series.units import by_units
from stansub.stan.passes.summaries import with_summaries
from stansub.stan.passes.tuple_elements import with_tuple_elements
from stansub.stan.reading.remarks import Remark
from stansub.stan.syntax import Program

PASSES = (
    cell_by_cell,
    with_lags,
    observation_by_observation,
    by_rows,
    with_residuals,
    cells_apart,
    with_cell_values,
    by_cells,
    by_units,
    with_dense_rows,
    with_tuple_elements,
    with_size_variables,
    with_size_sums,
    with_summaries,
    term_by_term,
)
# The name of what is not a pass, because it alone does not make a likelihood a sum.
FUNCTIONS = "functions in place of their calls"
# No program needs as many; passes that undo each other would never end.
_MOST = 12


class Rewriting(NamedTuple):
    """Result of passes over a program."""

    program: Program
    """The program itself if no pass applies."""
    passes: tuple[str, ...] = ()
    """Names of the applied passes, in order."""
    refusals: tuple[Remark, ...] = ()
    """Why other passes were not applied."""


@lru_cache(maxsize=64)
def rewriting(program: Program) -> Rewriting:
    """Apply passes to a program until none applies, also with its functions in place of their calls."""
    if reserved(program):
        return Rewriting(program)
    found, opened = _passed(program), inlined(program)
    inside = found if opened is program else _passed(opened)
    is_better = inside.passes and inside.passes != found.passes
    return inside._replace(passes=(FUNCTIONS, *inside.passes)) if is_better else found


def _passed(program: Program) -> Rewriting:
    applied: list[str] = []
    refusals: list[Remark] = []
    while len(applied) < _MOST:
        refusals = []
        for one in PASSES:
            found = one(program)
            if isinstance(found, Program):
                applied.append(one.name)
                program = found
                break
            if found is not None:
                refusals.append(found.remark(program))
        else:
            break
    return Rewriting(program, tuple(applied), tuple(refusals))
