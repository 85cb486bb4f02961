"""What stands in the way of a likelihood that can be evaluated in parts.

Everything here is read off the text, so it points where to look; whether a program qualifies is decided numerically.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stansub.stan.remarks import Remark
from stansub.stan.sizes import size_candidates, sized_by
from stansub.stan.syntax import (
    Assign,
    Declaration,
    For,
    Program,
    Statement,
    calls,
    children,
    expression_of,
    matching,
    names,
    tokenize,
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
    """Statements that tie observations to each other, as far as the text shows.

    Parameters
    ----------
    program : Program
        The parsed program.
    size : str
        The integer that counts the observations; nothing is found without one.
    """
    if not size:
        yield Remark("", "no integer in the data block is a size of data, so there is nothing that counts observations")
        return
    sized = sized_by(program, {size})
    for candidate in size_candidates(program):
        if candidate.name == size:
            for declaration in candidate.obstacles:
                yield Remark(
                    program.text(declaration.span),
                    f"has a size computed from {size}, so it cannot be cut along the observations",
                )
            for use in candidate.uses:
                if len(use.axes) > 1:
                    yield Remark(program.text(use.declaration.span), "relates all observations to each other")
    for declaration in program.parameters.declarations:
        if declaration.name in sized:
            yield Remark(
                program.text(declaration.span),
                "has a value for each observation, so a part of the data has other parameters than the whole",
            )
    yield from _aggregates(program, program.transformed_parameters.statements, sized)
    for block in (program.transformed_parameters, program.model):
        yield from _neighbours(program, block.statements, size, sized, loops=set())


def _aggregates(program: Program, statements: Sequence[Statement], sized: set[str]) -> Iterator[Remark]:
    """Statements of a block's own variables that summarise all observations."""
    for statement in statements:
        if not isinstance(statement, Declaration | Assign):
            continue
        written = {statement.name} if isinstance(statement, Declaration) else set(statement.variables)
        expression = expression_of(statement)
        called = any(
            call.name in _AGGREGATES and set().union(*map(names, call.arguments)) & sized for call in calls(expression)
        )
        if called or (names(expression) & sized and not written & sized):
            yield Remark(
                program.text(statement.span),
                "is computed from all observations, so it has another value on a part of the data; "
                "what needs no parameters may stand in transformed data",
            )


def _neighbours(
    program: Program, statements: Sequence[Statement], size: str, sized: set[str], loops: set[str]
) -> Iterator[Remark]:
    """Statements that reach from one observation to another."""
    for statement in statements:
        inside = loops
        if isinstance(statement, For) and size in names(statement.lower) | names(statement.upper):
            inside = loops | {statement.variable}
        nested = children(statement)
        for inner in nested:
            yield from _neighbours(program, inner, size, sized, inside)
        if not nested and _reaches_out(program.text(statement.span), size, sized, loops):
            yield Remark(program.text(statement.span), "takes one observation together with others")


def _calls_on(text: str, functions: frozenset[str], variables: set[str]) -> bool:
    """Whether one of some functions is called with one of some variables."""
    return any(
        call.name in functions and any(names(argument) & variables for argument in call.arguments)
        for call in calls(text)
    )


def _reaches_out(text: str, size: str, sized: set[str], loops: set[str]) -> bool:
    if _calls_on(text, _NEIGHBOURS, sized):
        return True
    tokens = tokenize(text)
    for i in range(len(tokens) - 1):
        if tokens[i].text in sized and tokens[i + 1].text == "[":
            index = tokens[i + 2 : matching(tokens, i + 1)]
            words = {token.text for token in index}
            computed = bool(words & {"+", "-"}) or (":" in words and len(index) > 1 and "," not in words)
            if computed and words & (loops | {size}):
                return True
    return False
