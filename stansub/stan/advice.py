"""Obstacles to evaluating a likelihood in parts, as far as the text shows.

These are hints from the text; a numerical proof decides whether a program qualifies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stansub.stan.remarks import Remark
from stansub.stan.sizes import size_candidates, sized_by
from stansub.stan.syntax import (
    Assign,
    Declaration,
    For,
    Infix,
    Program,
    Slice,
    Statement,
    Subscript,
    calls,
    find,
    name_of,
    names,
    placed,
    writes,
)

# Functions whose value for one observation depends on the others.
_AGGREGATES = frozenset(
    word
    for line in (
        "mean sd variance sum prod min max quantile rank norm1 norm2 dot_self dot_product columns_dot_self crossprod",
        "tcrossprod qr qr_Q qr_R qr_thin qr_thin_Q qr_thin_R svd svd_U svd_V singular_values inverse inverse_spd",
        "cholesky_decompose eigenvalues_sym eigenvectors_sym cumulative_sum sort_asc sort_desc sort_indices_asc",
        "sort_indices_desc reverse distance squared_distance log_sum_exp softmax",
    )
    for word in line.split()
)
_NEIGHBOURS = frozenset({"head", "tail", "segment", "cumulative_sum", "reverse"})


def obstacles(program: Program, size: str) -> Iterator[Remark]:
    """Yield statements that tie observations to each other, as far as the text shows.

    Parameters
    ----------
    program : Program
        The parsed program.
    size : str
        The integer that counts the observations; without one nothing is found.
    """
    if not size:
        yield Remark("", "no integer in the data block is the size of other data, so nothing counts the observations")
        return
    sized = sized_by(program, {size})
    for candidate in size_candidates(program):
        if candidate.name == size:
            for declaration in candidate.obstacles:
                yield Remark(
                    program.text(declaration.span),
                    f"has a size computed from {size}, so stansub cannot cut it by observations",
                )
            for use in candidate.uses:
                if len(use.axes) > 1:
                    yield Remark(program.text(use.declaration.span), "couples all observations")
    for declaration in program.parameters.declarations:
        if declaration.name in sized:
            yield Remark(
                program.text(declaration.span),
                "has a value for each observation, so the parameters depend on which observations are in the data",
            )
    yield from _aggregates(program, program.transformed_parameters.statements, sized)
    for statement, around in placed(program.evaluated):
        over = (one for one in around if isinstance(one, For) and size in names(one.lower, one.upper))
        if not statement.bodies and _reaches_out(statement, size, sized, {one.variable for one in over}):
            yield Remark(program.text(statement.span), "combines an observation with others")


def _aggregates(program: Program, statements: Sequence[Statement], sized: set[str]) -> Iterator[Remark]:
    """Yield statements of a block's own variables that summarise all observations."""
    for statement in statements:
        if not isinstance(statement, Declaration | Assign):
            continue
        read = names(*statement.computes)
        called = any(call.name in _AGGREGATES and names(*call.arguments) & sized for call in calls(*statement.computes))
        if called or (read & sized and not writes(statement) & sized):
            yield Remark(
                program.text(statement.span),
                "is computed from all observations, so its value changes with a part of the data; if it needs no "
                "parameters, compute it in transformed data",
            )


def _reaches_out(statement: Statement, size: str, sized: set[str], loops: set[str]) -> bool:
    """Return whether a statement reads from one observation to another."""
    if any(call.name in _NEIGHBOURS and names(*call.arguments) & sized for call in calls(statement)):
        return True
    return any(
        name_of(one.base) in sized and _is_computed(one) and names(*one.indices) & (loops | {size})
        for one in find(Subscript, [statement])
    )


def _is_computed(read: Subscript) -> bool:
    """Return whether an element beside another is read, or a part of a variable."""
    shifted = any(one.operator in ("+", "-") for one in find(Infix, read.indices))
    is_slice = any(isinstance(one, Slice) and not one.is_whole for one in read.indices)
    return shifted or (is_slice and len(read.indices) == 1)
