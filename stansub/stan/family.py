"""Whether the text of a program shows a likelihood of a known family.

Nothing is proved here; with data, `stansub.stan.observations.predictors` follows the text.
"""

from __future__ import annotations

from collections.abc import Collection

from stansub.stan.observations.densities import PRODUCTS, SPECS
from stansub.stan.passes.fixpoint import rewriting
from stansub.stan.passes.inlining import inlined
from stansub.stan.passes.series.rows import N_ROWS
from stansub.stan.reading.sizes import main_size, observations_in
from stansub.stan.syntax import Density, For, Program, Statement, Target, Tilde, added_density, find, names, walk


def recognised(program: Program) -> bool:
    """Return whether the only density of a program's likelihood is of a known family."""
    over_rows = rewriting(program).program
    found, size = (over_rows, N_ROWS) if N_ROWS in names(over_rows) else (inlined(program), main_size(program))
    statements = observations_in(found, size) if size else []
    return len(statements) == 1 and _is_known(_drawn(found, statements[0]), found.changing_names)


def _is_known(density: Density | None, changing: Collection[str]) -> bool:
    """Return whether a density is of a known family, and no ``changing`` variable is where there must be data."""
    if density is None:
        return False
    product, given = PRODUCTS.get(density.name), list(density.arguments)
    if product:
        del given[product.place + 1 : product.place + product.n_arguments]
    spec = SPECS.get(product.density if product else density.name)
    left_out = len(density.arguments) - len(given)
    if spec is None or len(given) != len(spec.links) or left_out != (product.n_arguments - 1 if product else 0):
        return False
    known = (one for one, link in zip(given, spec.links, strict=True) if link.is_known)
    return not names(density.left, *known) & set(changing)


def _drawn(program: Program, statement: Statement) -> Density | None:
    """Return the density of a statement of the model, if no other is in the same loop."""
    loop = next((one for one in find(For, program.model.statements) if one.span.contains(statement.span)), None)
    adding = [one for one in walk(loop.body) if isinstance(one, Target | Tilde)] if loop else [statement]
    return added_density(adding[0]) if len(adding) == 1 else None
