"""Which part of a program is the likelihood, and over what it is a sum.

Three forms are told apart: a loop over ``log_lik_i``, a ``reduce_sum``, and anything else, whose sum over observations
is proved numerically by whoever cuts the data. What cannot be told from the text alone is not claimed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from stansub.errors import InputError
from stansub.program.syntax import (
    Assign,
    Block,
    Braces,
    Call,
    Declaration,
    For,
    ForEach,
    Function,
    If,
    Profile,
    Program,
    Span,
    Statement,
    Target,
    Tilde,
    Token,
    While,
    calls,
    children,
    names,
    split,
    tokenize,
    walk,
)

LOG_LIK = "log_lik_i"
REDUCE_SUM = ("reduce_sum", "reduce_sum_static")


@dataclass(frozen=True)
class Remark:
    """Something a user should know about a statement.

    Attributes
    ----------
    statement : str
        Canonical text of the statement.
    message : str
        What about it.
    """

    statement: str
    message: str

    def __str__(self) -> str:
        return self.located("")

    def located(self, source: str) -> str:
        """The remark as a line of text, with the statement's line in the user's own file where it is found there."""
        line = find_line(source, self.statement)
        where = f"line {line}: " if line is not None else ""
        head = " ".join(self.statement.split())
        quoted = f"`{head if len(head) <= 90 else head[:87] + '...'}`"
        return f"{where}{quoted} {self.message}" if self.statement else self.message


@dataclass(frozen=True)
class Form:
    """The likelihood of a program.

    Attributes
    ----------
    kind : {"log_lik_i", "reduce_sum", "sum"}
        A loop over ``log_lik_i``, a ``reduce_sum`` call, or any other program.
    statement : str
        Canonical text of the likelihood statement; for ``sum`` the first statement that reads observations, if any.
    n : str
        The number of units as a Stan expression; empty for ``sum``.
    line : int or None
        Line of the statement in the user's file, filled in by who has the file (`find_line`).
    warnings : tuple of Remark
        What costs time in proportion to all observations at every evaluation, and other remarks.
    likelihood : For, Call or None
        The loop, or the ``reduce_sum`` call.
    span : Span
        The likelihood statement in the canonical text.
    """

    kind: Literal["log_lik_i", "reduce_sum", "sum"]
    statement: str = ""
    n: str = ""
    line: int | None = None
    warnings: tuple[Remark, ...] = ()
    likelihood: For | Call | None = None
    span: Span = Span(0, 0)  # noqa: RUF009 - a NamedTuple cannot change


@dataclass(frozen=True)
class SizeUse:
    """A data variable that has a size variable as a dimension, and where: array dimensions first, then inner ones."""

    declaration: Declaration
    axes: tuple[int, ...]


@dataclass(frozen=True)
class SizeCandidate:
    """An integer of the data block that sizes other data, so that it may be the number of observations.

    Attributes
    ----------
    name : str
        The integer.
    uses : tuple of SizeUse
        Data variables with the integer itself as a dimension.
    obstacles : tuple of Declaration
        Data variables with a dimension computed from it (``N + 1``), which cannot be cut.
    """

    name: str
    uses: tuple[SizeUse, ...]
    obstacles: tuple[Declaration, ...]


def size_candidates(program: Program) -> list[SizeCandidate]:
    """Integers of the data block that are a dimension of data variables, in the order of declaration."""
    candidates = []
    for size in program.data.declarations:
        if size.base != "int" or size.all_dims:
            continue
        uses, obstacles = [], []
        for declaration in program.data.declarations:
            axes = tuple(axis for axis, dim in enumerate(declaration.all_dims) if dim == size.name)
            if axes:
                uses.append(SizeUse(declaration, axes))
            others = [dim for dim in declaration.all_dims if dim != size.name] + list(declaration.elements)
            if any(size.name in names(text) for text in others):
                obstacles.append(declaration)
        if uses:
            candidates.append(SizeCandidate(size.name, tuple(uses), tuple(obstacles)))
    return candidates


def recognise(program: Program) -> Form:
    """Find the likelihood.

    Parameters
    ----------
    program : Program
        The parsed canonical text.

    Returns
    -------
    Form
        ``kind`` is "sum" for every program that is not one of the two explicit forms; whether that qualifies is for a
        numerical check to decide.

    Raises
    ------
    InputError
        When the program has no model block.
    """
    if program.model.span == Span(0, 0):
        raise InputError("the program has no model block, so there is nothing to sample from")
    found = list(_marked(program.model.statements, reachable=True))
    if not found:
        return _plain(program)
    if len(found) > 1:
        message = "is one of several likelihood sums, which are not rewritten"
        return _plain(program, *(Remark(program.text(statement.span), message) for statement, _ in found))
    statement, reachable = found[0]
    text = program.text(statement.span)
    if not reachable:
        return _plain(program, Remark(text, "stands in a loop, so it is not rewritten"))
    if any(name == "target" or name.endswith("_lp") for name in _local_calls(program)):
        return _plain(program, Remark(text, "shares the model block with target() or a *_lp call in an expression"))
    found_form = _loop(program, statement) if isinstance(statement, For) else _reduce_sum(program, statement)
    return found_form or _plain(program, Remark(text, "is not of a form that can be rewritten"))


def observations_in(program: Program, size: str) -> list[Statement]:
    """Statements of the model block that add to the target and read data with ``size`` as a dimension.

    Parameters
    ----------
    program : Program
        The parsed program.
    size : str
        The integer that counts the observations.
    """
    sized = {
        declaration.name
        for declaration in program.data.declarations
        if any(size in names(dim) for dim in declaration.all_dims)
    }
    return [
        statement
        for statement in walk(program.model.statements)
        if isinstance(statement, Target | Tilde) and names(program.text(statement.span)) & sized
    ]


def find_line(source: str, statement: str) -> int | None:
    """Line of a statement in the user's own file, counted from 1.

    Comments, white space, parentheses and braces do not count, since the canonical text may have others.

    Parameters
    ----------
    source : str
        The user's file.
    statement : str
        Canonical text of the statement.

    Returns
    -------
    int or None
        None where it is not found, as when it comes from an included file.
    """
    wanted = [token.text for token in _significant(statement)]
    try:
        tokens = _significant(source)
    except InputError:
        return None
    texts = [token.text for token in tokens]
    for i in range(len(texts) - len(wanted) + 1):
        if wanted and texts[i : i + len(wanted)] == wanted:
            return source.count("\n", 0, tokens[i].span.start) + 1
    return None


def parameter_names(program: Program) -> set[str]:
    """Everything that may change between evaluations."""
    data = {declaration.name for block in _data_blocks(program) for declaration in block.declarations}
    return {declaration.name for declaration in _declarations(program)} - data


def partial_sums(program: Program, call: Call) -> list[Function]:
    """The user's functions that a ``reduce_sum`` call may mean: more than one where the name is overloaded."""
    name = normalised(call.arguments[0])
    return [
        function
        for function in program.functions
        if function.name == name and function.body is not None and len(function.arguments) == len(call.arguments)
    ]


def normalised(name: str) -> str:
    """Name of a density with all its constants: ``f_lupdf`` is ``f_lpdf``."""
    for suffix in ("_lupdf", "_lupmf"):
        if name.endswith(suffix):
            return name.removesuffix(suffix) + "_lp" + suffix[-2:]
    return name


def _significant(text: str) -> list[Token]:
    return [token for token in tokenize(text) if token.text not in ("(", ")", "{", "}")]


def _marked(statements: Sequence[Statement], *, reachable: bool) -> Iterator[tuple[Statement, bool]]:
    """Statements that call ``log_lik_i`` or ``reduce_sum``, and whether they stand outside any loop."""
    for statement in statements:
        if isinstance(statement, For) and _is_log_lik_loop(statement):
            yield statement, reachable
        elif isinstance(statement, For | ForEach | While):
            yield from _marked(statement.body, reachable=False)
        elif isinstance(statement, If | Profile | Braces):
            for inner in children(statement):
                yield from _marked(inner, reachable=reachable)
        elif any(call.name in (*REDUCE_SUM, LOG_LIK) for call in calls(_expression(statement))):
            yield statement, reachable


def _is_log_lik_loop(loop: For) -> bool:
    """Whether a loop is ``for (i in a : b) target += log_lik_i(i, ...)`` and nothing else."""
    if len(loop.body) != 1 or not isinstance(loop.body[0], Target):
        return False
    expression = loop.body[0].expression
    outer = calls(expression)[:1]
    return bool(outer) and (
        outer[0].name == LOG_LIK
        and outer[0].span == Span(0, len(expression))
        and outer[0].arguments[:1] == (loop.variable,)
    )


def _expression(statement: Statement) -> str:
    """What a simple statement computes."""
    if isinstance(statement, Declaration):
        return statement.value or ""
    if isinstance(statement, Target | Assign):
        return statement.expression
    if isinstance(statement, Tilde):
        return f"{statement.left}, {statement.distribution}"
    return getattr(statement, "text", "")


def _local_calls(program: Program) -> set[str]:
    """Functions called where the model block computes local variables."""
    return {
        call.name
        for statement in walk(program.model.statements)
        if isinstance(statement, Declaration | Assign)
        for call in calls(_expression(statement))
    }


def _loop(program: Program, loop: For) -> Form:
    n = loop.upper if loop.lower == "1" else f"({loop.upper}) - ({loop.lower}) + 1"
    sizes = names(loop.upper) | names(loop.lower)
    return Form(
        "log_lik_i",
        program.text(loop.span),
        n,
        warnings=tuple(_costs(program, sizes, loop.span)),
        likelihood=loop,
        span=loop.span,
    )


def _reduce_sum(program: Program, statement: Statement) -> Form | None:
    text = program.text(statement.span)
    found = [call for call in calls(program.code, statement.span) if call.name in REDUCE_SUM]
    if len(found) != 1 or len(found[0].arguments) < 3:
        return None
    call = found[0]
    if not partial_sums(program, call) or program.text(call.span) not in _terms(_expression(statement)):
        return None
    if not isinstance(statement, Target) and not _goes_to_target(program, statement):
        return None
    sizes = _length_of(program, call.arguments[1])
    remarks = list(_costs(program, sizes, statement.span))
    sized = _sized(program, sizes)
    parameters = parameter_names(program)
    for argument in call.arguments[3:]:
        used = names(argument)
        if used != {argument} and used & sized and used & parameters:
            remarks.append(Remark(text, f"computes `{argument}` for all observations at every evaluation"))
    return Form(
        "reduce_sum",
        text,
        f"size({call.arguments[1]})",
        warnings=tuple(remarks),
        likelihood=call,
        span=statement.span,
    )


def _plain(program: Program, *remarks: Remark) -> Form:
    size = _main_size(program)
    statements = observations_in(program, size) if size else []
    if not statements:
        return Form("sum", warnings=remarks)
    span = statements[0].span
    return Form("sum", program.text(span), warnings=remarks, span=span)


def _main_size(program: Program) -> str:
    """The size variable with most data variables, the first of them if there are several."""
    candidates = size_candidates(program)
    return max(candidates, key=lambda candidate: len(candidate.uses)).name if candidates else ""


def _terms(expression: str) -> list[str]:
    """Terms of a sum that are added, not subtracted; none of an expression that is no sum."""
    tokens = tokenize(expression)
    if len(split(tokens, "?", ":", "||", "&&", "==", "!=", "<", ">", "<=", ">=")) > 1:
        return []
    before = {after.span.start: token.text for token, after in pairwise(tokens)}
    return [
        expression[part[0].span.start : part[-1].span.end]
        for part in split(tokens, "+", "-")
        if part and before.get(part[0].span.start, "+") == "+"
    ]


def _goes_to_target(program: Program, statement: Statement) -> bool:
    """Whether a local variable that receives the sum is added to the target, once, later in the same scope."""
    if isinstance(statement, Declaration):
        variable = statement.name
    elif isinstance(statement, Assign) and statement.place in statement.variables and statement.operator in ("=", "+="):
        variable = statement.place
    else:
        return False
    scope = next(scope for scope in _scopes(program.model.statements) if statement in scope)
    later = scope[scope.index(statement) + 1 :]
    uses = [other for other in walk(later) if variable in names(_expression(other))]
    changes = [
        other
        for other in walk(later)
        if isinstance(other, Assign) and variable in other.variables and other.operator not in ("+=", "-=")
    ]
    return (
        len(uses) == 1
        and not changes
        and uses[0] in later
        and isinstance(uses[0], Target)
        and _terms(uses[0].expression).count(variable) == 1
    )


def _scopes(statements: tuple[Statement, ...]) -> Iterator[tuple[Statement, ...]]:
    yield statements
    for statement in statements:
        for inner in children(statement):
            yield from _scopes(inner)


def _length_of(program: Program, expression: str) -> set[str]:
    """Variables that determine how long an array is: for ``y`` or ``y[index]``."""
    tokens = tokenize(expression)
    name = tokens[0].text
    if len(tokens) > 2 and tokens[1].text == "[" and tokens[-1].text == "]":
        name = tokens[2].text
    for declaration in _declarations(program):
        if declaration.name == name and declaration.array_dims:
            return names(declaration.array_dims[0])
    return set()


def _declarations(program: Program) -> list[Declaration]:
    """All variables but those of generated quantities."""
    blocks = (program.data, program.transformed_data, program.parameters, program.transformed_parameters)
    outer = [declaration for block in blocks for declaration in block.declarations]
    return outer + [statement for statement in walk(program.model.statements) if isinstance(statement, Declaration)]


def _sized(program: Program, sizes: set[str]) -> set[str]:
    """Variables with one of ``sizes`` in a dimension."""
    return {
        declaration.name
        for declaration in _declarations(program)
        if any(names(dim) & sizes for dim in declaration.all_dims)
    }


def _data_blocks(program: Program) -> tuple[Block, Block]:
    return program.data, program.transformed_data


def _costs(program: Program, sizes: set[str], likelihood: Span) -> Iterator[Remark]:
    """What beside the likelihood costs time in proportion to all observations at every evaluation."""
    sized = _sized(program, sizes)
    for declaration in program.parameters.declarations:
        if declaration.name in sized:
            yield Remark(program.text(declaration.span), "has a value for every observation, whose prior costs O(N)")
    for block in (program.transformed_parameters, program.model):
        yield from _costly(program, block.statements, sizes, sized, likelihood)


def _costly(
    program: Program, statements: Sequence[Statement], sizes: set[str], sized: set[str], likelihood: Span
) -> Iterator[Remark]:
    message = "is computed for all observations at every evaluation"
    seen = set()
    for statement in statements:
        span = statement.span
        if span == likelihood or span in seen:
            continue
        seen.add(span)
        holds_likelihood = span.start <= likelihood.start and likelihood.end <= span.end
        if holds_likelihood or isinstance(statement, If | Profile | Braces):
            for inner in children(statement):
                yield from _costly(program, inner, sizes, sized, likelihood)
        elif isinstance(statement, For) and (names(statement.lower) | names(statement.upper)) & sizes:
            yield Remark(program.text(span), "loops over all observations at every evaluation")
        elif names(program.text(span)) & sized:
            yield Remark(program.text(span), message)
