"""Time series whose likelihood is a sum given the data, written as sums over rows of data.

A term of an autoregression reads data beside its own observation (``y[t - 1]``), so that the data cannot be cut. In the
program that is written here ``transformed data`` hold a row for each term, with all that the term reads, and the
likelihood reads nothing but rows. Its log density is that of the user's program. Only data can be rows: where a
parameter, a state or a residual of an earlier time is read, the likelihood is no such sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stansub.stan import stanc
from stansub.stan.affine import Affine
from stansub.stan.nests import Nest, adds, direct
from stansub.stan.recognise import recognise
from stansub.stan.remarks import Remark
from stansub.stan.rewrite import replaced
from stansub.stan.rows import Read, RefusedError, Rows
from stansub.stan.sizes import main_size
from stansub.stan.syntax import (
    Assign,
    Braces,
    Declaration,
    For,
    If,
    Profile,
    Program,
    Span,
    Statement,
    Target,
    Tilde,
    children,
    names,
    parse,
    tokenize,
    walk,
)


def with_lags(program: Program) -> Program | None:
    """The program over rows of data where its likelihood reads data beside an observation.

    Parameters
    ----------
    program : Program
        The parsed program.

    Returns
    -------
    Program or None
        A program with the same parameters, log density and generated quantities, whose ``transformed data`` declare
        ``stansub_t``, the number of terms, and variables with a row for each term. None where no such data are read,
        or where more than data are (`recursion` says which).
    """
    try:
        code = _over_rows(program)
    except RefusedError:
        return None
    return parse(stanc.canonical_code(code, "the program over rows of data")) if code else None


def recursion(program: Program) -> Remark | None:
    """Why a program that reads its past is not a sum over observations given the data; None for other programs.

    Parameters
    ----------
    program : Program
        The parsed program.
    """
    try:
        _over_rows(program)
    except RefusedError as error:
        return error.remark
    return None


def _over_rows(program: Program) -> str:
    """The text of the program over rows of data; nothing where there is nothing to write so."""
    if recognise(program).kind != "sum" or "stansub_" in program.code:
        return ""
    rows = Rows(program)
    found = list(_replacements(rows, program.model.statements, main_size(program)))
    if not found:
        return ""
    found += _constants(rows, [span for span, _ in found])
    blocks = [program.text(block.span) for block in (program.functions_block, program.data)]
    filled = "\n".join([program.text(program.transformed_data.inside), *rows.lines])
    return "\n".join(
        [
            *blocks,
            f"transformed data {{\n{filled}\n}}",
            *(program.text(block.span) for block in (program.parameters, program.transformed_parameters)),
            f"model {{\n{replaced(program, program.model.inside, found)}\n}}",
            program.text(program.generated_quantities.span),
        ]
    )


def _replacements(rows: Rows, statements: Sequence[Statement], size: str) -> Iterator[tuple[Span, str]]:
    """Statements that read data beside an observation, and the same over rows."""
    for statement in statements:
        if isinstance(statement, For):
            if adds(statement) and (text := _loop(rows, statement, size)):
                yield statement.span, text
        elif isinstance(statement, Target | Tilde):
            yield from _slices(rows, statement)
        elif isinstance(statement, If | Braces | Profile):
            for inner in children(statement):
                yield from _replacements(rows, inner, size)


def _loop(rows: Rows, loop: For, size: str) -> str:
    """A loop over rows, with what is left of the loops around it; nothing where no data are read beside."""
    nest, rest = _nest(rows, loop)
    if not nest.is_lagged(size):
        return ""
    return "\n".join([*rest, nest.text()])


def _nest(rows: Rows, loop: For) -> tuple[Nest, list[str]]:
    """The loops down to what is run for each observation."""
    loops = [loop]
    while len(loops[-1].body) == 1 and isinstance(inner := loops[-1].body[0], For) and adds(inner):
        loops.append(inner)
    return Nest(rows, tuple(loops), loops[-1].body), []


def _slices(rows: Rows, statement: Target | Tilde) -> Iterator[tuple[Span, str]]:
    return iter(())


def _constants(rows: Rows, done: Sequence[Span]) -> Iterator[tuple[Span, str]]:
    """Parts of the data at fixed places that other statements of the model read, as variables of their own."""
    tokens = tokenize(rows.program.code, *rows.program.model.inside)
    for k, token in enumerate(tokens):
        read = rows.read_at(tokens, k)
        if read is None or any(span.start <= token.span.start < span.end for span in done):
            continue
        if read.variable in rows.observed and (name := rows.constant(read)):
            yield read.span, name
