"""Whether the text of a program shows a likelihood of a known family.

Nothing is proved here; with data, `stansub.stan.predictors` follows the text.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from stansub.errors import InputError
from stansub.stan.densities import PRODUCTS, SPECS
from stansub.stan.passes import rewriting
from stansub.stan.recognise import Form, partial_sums, recognise
from stansub.stan.series.rows import N_ROWS
from stansub.stan.sizes import main_size, observations_in
from stansub.stan.syntax import (
    Assign,
    Call,
    Declaration,
    Density,
    For,
    Function,
    Literal,
    Name,
    Program,
    Return,
    Statement,
    Target,
    Tilde,
    added_density,
    density_of,
    find,
    names,
    walk,
    writes,
)


def recognised(program: Program) -> bool:
    """Return whether the text of a program shows a likelihood of a known family."""
    try:
        form, over_rows = recognise(program), rewriting(program).program
    except InputError:
        return False
    if N_ROWS in names(over_rows):
        return _has_family(over_rows, recognise(over_rows), N_ROWS)
    return _has_family(program, form, form.n or main_size(program))


def _has_family(program: Program, form: Form, size: str) -> bool:
    """Return whether the only density of a likelihood is of a known family; ``size`` counts the observations."""
    if isinstance(form.likelihood, For):
        call = next(find(Call, form.likelihood.body))
        same = [one for one in program.functions if one.name == call.name]
        return _is_known(_returned([one for one in same if len(one.arguments) == len(call.arguments)]))
    if isinstance(form.likelihood, Call):
        return _is_known(_returned(partial_sums(program, form.likelihood)))
    statements = observations_in(program, size) if size else []
    return len(statements) == 1 and _is_known(_drawn(program, statements[0]), program.changing_names)


def _is_known(density: Density | None, changing: Collection[str] = ()) -> bool:
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


def _returned(functions: Sequence[Function]) -> Density | None:
    """Return the density that the user's only such function returns."""
    body = functions[0].body if len(functions) == 1 else None
    returns = [one for one in walk(body or ()) if isinstance(one, Return)]
    if not body or len(returns) != 1 or returns[0] is not body[-1]:
        return None
    result = returns[0].value
    term = _only_term(body, result.name) if isinstance(result, Name) else None
    return density_of(term.expression if term else result)


def _only_term(body: Sequence[Statement], name: str) -> Assign | None:
    """Return what is added to a local sum that begins at 0 and has one term: ``real x = 0; x += term;``."""
    written = [one for one in walk(body) if isinstance(one, Declaration | Assign) and name in writes(one)]
    read = [one for one in walk(body) if name in names(*one.computes)]
    match written:
        case [Declaration(value=Literal("0" | "0.0")), Assign(Name(), "+=") as added] if (
            len(read) == 1
        ):  # it is returned
            return added if added in body else None
    return None
