"""Autoregressive errors by observation: residuals of earlier observations from their rows of the data.

A program that keeps the residuals of a regression for later observations (``err[n] = Y[n] - mu[n];``, then
``Err[n + 1, i] = err[n + 1 - i];``) cannot be cut. If a residual depends only on the data of its own observation, it
can be recomputed for each observation that needs it: in the rewritten program, ``transformed data`` contain the rows at
each lag in addition to an observation's own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from stansub.stan.passes.rewriting import Edits, Pass, RefusedError
from stansub.stan.passes.series.row_variables import filling, written
from stansub.stan.passes.series.rows import ONE
from stansub.stan.syntax import (
    Assign,
    Declaration,
    Expression,
    For,
    Name,
    Program,
    Statement,
    Subscript,
    name_of,
    names,
    printed,
    substituted,
    unlooped,
)

# Names of the variable of the loop over lags, of the number of residuals of an observation, and prefix of lagged ones.
_LAG, _KEPT, _LAGGED = "stansub_lag", "stansub_kept", "stansub_lagged_"


@Pass.named("residuals of earlier observations computed from their rows")
def with_residuals(program: Program) -> Edits | None:
    """Compute residuals of earlier observations from rows of data.

    Refused if residuals depend on those kept before, as in a moving average.
    """
    if _KEPT in names(program):
        return None
    above = program.transformed_parameters.statements
    found = [kept for one in unlooped(program.model.statements, above) if (kept := _kept(*one))]
    if len(found) != 1:
        return None
    if (written := _written(program, found[0])) is None:
        raise RefusedError("computes a residual from data of other observations", found[0].residual.span)
    return written


class _ResidualLoop(NamedTuple):
    """A loop over observations that stores residuals."""

    loop: For
    residual: Assign
    keeping: For
    """``for (i in 1:J_lag[n]) Err[n + 1, i] = err[n + 1 - i];``, its second."""
    kept: str
    """The variable that stores them."""
    lags: str
    """Data with the number of lags of each observation."""
    before: tuple[Statement, ...]


def _kept(loop: Statement, before: tuple[Statement, ...]) -> _ResidualLoop | None:
    if not isinstance(loop, For) or len(loop.body) < 3 or loop.lower != ONE:
        return None
    residual, keeping, n = loop.body[0], loop.body[1], loop.variable
    if not isinstance(residual, Assign) or not isinstance(keeping, For) or len(keeping.body) != 1:
        return None
    (inner,), i, error, lags = keeping.body, keeping.variable, residual.variables[0], name_of(keeping.upper)
    kept = inner.variables[0] if isinstance(inner, Assign) else ""
    fits = (
        str(residual) == f"{error}[{n}] = {residual.expression};"
        and keeping.head == f"for ({i} in 1 : {lags}[{n}])"
        and str(inner) == f"{kept}[{n} + 1, {i}] = {error}[{n} + 1 - {i}];"
    )
    return _ResidualLoop(loop, residual, keeping, kept, lags, before) if fits else None


def _written(program: Program, found: _ResidualLoop) -> Edits | None:
    """Return more transformed data and the replacement of the loop; None if residuals depend on others."""
    n, size, error = found.loop.variable, found.loop.upper, found.residual.variables[0]
    of_rows = {
        one.name: one for one in program.data_declarations if one.all_dims[:1] == (size,) and not one.type.elements
    }
    own = _reading(found.before, names(size) | set(of_rows))
    copied, needed = filling(own, names(found.residual.expression) - {n})
    local = set().union(*map(written, copied))
    sized = {one.name for one in program.declarations if size in one.all_dims} - set(of_rows)
    widths = [one.all_dims[1] for one in found.before if isinstance(one, Declaration) and one.name == found.kept]
    if (
        found.kept in needed
        or error in needed
        or sized & needed - local
        or found.lags not in of_rows
        or len(widths) != 1
    ):
        return None
    lagged, lag = sorted(needed & set(of_rows)), Name(_LAG)
    at_lag: dict[str, Expression] = {name: Name(f"{_LAGGED}{name}") for name in local}
    at_lag |= {name: Subscript(Name(f"{_LAGGED}{name}"), (lag,)) for name in lagged}
    lines = [line for name in lagged for line in _lagged(of_rows[name], widths[0])]
    lines += [
        f"array[{size}] int {_KEPT} = rep_array(0, {size});",
        f"for ({n} in 2 : {size}) {{ {_KEPT}[{n}] = {found.lags}[{n} - 1]; }}",
    ]
    again = printed([substituted(one, at_lag) for one in copied])
    residual = substituted(found.residual.expression, at_lag)
    rest = printed([one for one in found.loop.body if one is not found.keeping])
    loops = f"""\
    for ({_LAG} in 1 : {widths[0]}) {{
      {again}
      for ({n} in 1 : {size}) {{ if ({_LAG} <= {_KEPT}[{n}]) {{ {found.kept}[{n}, {_LAG}] = {residual}; }} }}
    }}
    for ({n} in 1 : {size}) {{
      {rest}
    }}"""
    return Edits(lines, [(found.loop.span, loops)])


def _reading(before: tuple[Statement, ...], rows: set[str]) -> list[Statement]:
    """Return the statements that read rows of data, or variables computed from these; effects are not copied."""
    reading = set(rows)
    while more := set().union(*(written(one) for one in before if names(one) & reading)) - reading:
        reading |= more
    return [one for one in before if names(one) & reading]


def _lagged(one: Declaration, width: Expression) -> list[str]:
    """Return the declaration of a variable's rows at each lag; without a lag, the observation's own row."""
    name, size, kind = f"{_LAGGED}{one.name}", one.all_dims[0], one.type.plain
    copy = f"{name}[{_LAG}, stansub_row] = {one.name}[stansub_row - {_LAG}];"
    return [
        f"{replace(kind, array_dims=(width, *kind.array_dims))} {name} = rep_array({one.name}, {width});",
        f"for ({_LAG} in 1 : {width}) {{ for (stansub_row in ({_LAG} + 1) : {size}) {{ {copy} }} }}",
    ]
