"""Recognition of the likelihood in a program, and of what it is a sum over.

There are three forms: a loop over ``log_lik_i``, a ``reduce_sum``, and anything else, whose sum over observations is
proved numerically when the data are cut. This module claims only what the text shows.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from stansub.errors import InputError
from stansub.stan.remarks import Remark
from stansub.stan.sizes import main_size, observations_in, sized_by
from stansub.stan.syntax import (
    NOWHERE,
    Assign,
    Braces,
    Call,
    Declaration,
    Expression,
    For,
    Function,
    Group,
    If,
    Literal,
    Loop,
    Name,
    Node,
    Profile,
    Program,
    Span,
    Statement,
    Subscript,
    Target,
    calls,
    names,
    placed,
    summands,
    walk,
)

LOG_LIK = "log_lik_i"
REDUCE_SUM = ("reduce_sum", "reduce_sum_static")


@dataclass(frozen=True)
class Form:
    """The likelihood of a program.

    Attributes
    ----------
    kind : {"log_lik_i", "reduce_sum", "sum", "functions"}
        A loop over ``log_lik_i``, a ``reduce_sum`` call, any other program, or no program at all.
    statement : str
        Canonical text of the likelihood statement; for ``sum`` the first statement that reads observations, if any.
    n : str
        The number of units as a Stan expression; empty for ``sum``.
    line : int or None
        Line of the statement in the user's file, set by code that has the file (`find_line`).
    warnings : tuple of Remark
        Parts whose time is proportional to all observations at every evaluation, and other remarks.
    likelihood : For, Call or None
        The loop, or the ``reduce_sum`` call.
    """

    kind: typing.Literal["log_lik_i", "reduce_sum", "sum", "functions"]
    statement: str = ""
    n: str = ""
    line: int | None = None
    warnings: tuple[Remark, ...] = ()
    likelihood: For | Call | None = None
    span: Span = NOWHERE


@lru_cache(maxsize=64)
def recognise(program: Program) -> Form:
    """Return the likelihood of a program.

    Returns
    -------
    Form
        ``kind`` is "sum" for every program that is not one of the two explicit forms; a numerical check decides whether
        such a program qualifies.

    Raises
    ------
    InputError
        If the program has no model block.
    """
    if program.model.span == NOWHERE:
        raise InputError("the program has no model block, so there is nothing to sample from")
    found = list(_marked(program.model.statements))
    if not found:
        return plain(program)
    if len(found) > 1:
        return _several(program, [statement for statement, _ in found])
    statement, reachable = found[0]
    text = program.text(statement.span)
    if not reachable:
        return plain(program, Remark(text, "is inside a loop, so stansub does not rewrite it"))
    if any(name == "target" or name.endswith("_lp") for name in _local_calls(program)):
        return plain(program, Remark(text, "is in a model block whose expressions call target() or a *_lp function"))
    found_form = _loop(program, statement) if isinstance(statement, For) else _reduce_sum(program, statement)
    return found_form or plain(program, Remark(text, "has a form that stansub cannot rewrite"))


def partial_sums(program: Program, call: Call) -> list[Function]:
    """Return the user's functions that a ``reduce_sum`` call may mean: several if the name is overloaded."""
    name = normalised(str(call.arguments[0]))
    return [
        function
        for function in program.functions
        if function.name == name and function.body is not None and len(function.arguments) == len(call.arguments)
    ]


def normalised(name: str) -> str:
    """Return the name of a density with all its constants: ``f_lpdf`` for ``f_lupdf``."""
    for suffix in ("_lupdf", "_lupmf"):
        if name.endswith(suffix):
            return name.removesuffix(suffix) + "_lp" + suffix[-2:]
    return name


def bracketed(expression: Expression) -> str:
    """Return an expression as text that may be an operand: in parentheses unless it has them or is one word."""
    return str(expression) if isinstance(expression, Name | Literal | Group) else f"({expression})"


def _marked(statements: Sequence[Statement]) -> Iterator[tuple[Statement, bool]]:
    """Yield statements that call ``log_lik_i`` or ``reduce_sum``, and whether they are outside any loop."""
    for statement, around in placed(statements):
        is_marked = any(call.name in (*REDUCE_SUM, LOG_LIK) for call in calls(*statement.computes))
        if _is_log_lik_loop(statement) or (is_marked and not any(map(_is_log_lik_loop, around))):
            yield statement, not any(isinstance(one, Loop) for one in around)


def _several(program: Program, statements: Sequence[Statement]) -> Form:
    message = "is one of several likelihood sums; stansub rewrites only programs with one"
    return plain(program, *(Remark(program.text(one.span), message) for one in statements))


def _beside(program: Program, sizes: set[str], likelihood: Span) -> list[Statement]:
    """Return statements besides the likelihood that add a term for each observation."""
    observed = program.data_names & sized_by(program, sizes)
    adding = (one for size in sizes for one in observations_in(program, size) if _beyond_constants(one) & observed)
    return [one for one in adding if not likelihood.contains(one.span)]


def _is_log_lik_loop(loop: Statement) -> bool:
    """Return whether a statement is ``for (i in a : b) target += log_lik_i(i, ...)`` and nothing else."""
    if not isinstance(loop, For) or len(loop.body) != 1 or not isinstance(loop.body[0], Target):
        return False
    call = loop.body[0].expression
    return isinstance(call, Call) and call.name == LOG_LIK and call.arguments[:1] == (Name(loop.variable),)


def _local_calls(program: Program) -> set[str]:
    """Return functions called where the model block computes local variables."""
    return {
        call.name
        for statement in walk(program.model.statements)
        if isinstance(statement, Declaration | Assign)
        for call in calls(*statement.computes)
    }


def _loop(program: Program, loop: For) -> Form:
    is_whole = str(loop.lower) == "1"
    n = str(loop.upper) if is_whole else f"{bracketed(loop.upper)} - {bracketed(loop.lower)} + 1"
    bounds = names(loop.upper, loop.lower)
    sizes = bounds.union(*(_length_of(program, Name(name)) for name in bounds))
    if others := _beside(program, sizes, loop.span):
        return _several(program, [loop, *others])
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
    found = [call for call in calls(*statement.computes) if call.name in REDUCE_SUM]
    if len(found) != 1 or len(found[0].arguments) < 3:
        return None
    call = found[0]
    if not partial_sums(program, call) or call not in added_terms(*statement.computes):
        return None
    if not isinstance(statement, Target) and not _goes_to_target(program, statement):
        return None
    sizes = _length_of(program, call.arguments[1])
    if isinstance(statement, Target) and (others := _beside(program, sizes, statement.span)):
        return _several(program, [statement, *others])
    remarks = list(_costs(program, sizes, statement.span))
    sized = sized_by(program, sizes)
    parameters = program.changing_names
    for argument in call.arguments[3:]:
        used = names(argument)
        if not isinstance(argument, Name) and used & sized and used & parameters:
            remarks.append(
                Remark(text, f"computes `{program.text(argument.span)}` for all observations at every evaluation")
            )
    return Form(
        "reduce_sum",
        text,
        f"size({call.arguments[1]})",
        warnings=tuple(remarks),
        likelihood=call,
        span=statement.span,
    )


def plain(program: Program, *remarks: Remark) -> Form:
    """Return the likelihood as a sum of all statements that read observations, with remarks about them."""
    size = main_size(program)
    statements = observations_in(program, size) if size else []
    if not statements:
        return Form("sum", warnings=remarks)
    span = statements[0].span
    return Form("sum", program.text(span), warnings=remarks, span=span)


def added_terms(*expressions: Expression) -> list[Expression]:
    """Return the terms of sums that are added, not subtracted."""
    return [term for one in expressions for sign, term in summands(one) if sign > 0]


def _goes_to_target(program: Program, statement: Statement) -> bool:
    """Return whether a local variable that receives the sum is added to the target, once, later in the same scope."""
    if isinstance(statement, Declaration):
        variable = statement.name
    elif isinstance(statement, Assign) and isinstance(statement.place, Name) and statement.operator in ("=", "+="):
        variable = statement.place.name
    else:
        return False
    scopes = (program.model.statements, *(body for one in walk(program.model.statements) for body in one.bodies))
    scope = next(scope for scope in scopes if statement in scope)
    if sum(other.span == statement.span for other in scope) > 1:  # declared together with other variables
        return False
    later = scope[scope.index(statement) + 1 :]
    uses = [other for other in walk(later) if variable in names(*other.computes)]
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
        and added_terms(uses[0].expression).count(Name(variable)) == 1
    )


def _length_of(program: Program, expression: Expression) -> set[str]:
    """Return variables that determine how long an array is: for ``y`` or ``y[index]``."""
    match expression:
        case Name(name) | Subscript(_, (Name(name), *_)):
            found = [one for one in program.declarations if one.name == name and one.array_dims]
            return names(found[0].array_dims[0]) if found else set()
    return set()


def _costs(program: Program, sizes: set[str], likelihood: Span) -> Iterator[Remark]:
    """Yield what, besides the likelihood, costs time in proportion to all observations at every evaluation."""
    sized = sized_by(program, sizes)
    for declaration in program.parameters.declarations:
        if declaration.name in sized:
            yield Remark(program.text(declaration.span), "has a value for every observation, so its prior costs O(N)")
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
        if span.contains(likelihood) or isinstance(statement, If | Profile | Braces):
            for inner in statement.bodies:
                yield from _costly(program, inner, sizes, sized, likelihood)
        elif isinstance(statement, For) and names(statement.lower, statement.upper) & sizes:
            yield Remark(program.text(span), "loops over all observations at every evaluation")
        elif _beyond_constants(statement) & sized:
            yield Remark(program.text(span), message)


def _beyond_constants(node: Node) -> set[str]:
    """Return names in a node except elements at a constant place: ``y`` in ``sum(y)`` and ``y[k]``, not in ``y[1]``."""
    if isinstance(node, Subscript) and len(node.indices) == 1 and isinstance(node.indices[0], Literal):
        return set()
    found = {node.name} if isinstance(node, Name | Declaration) else set[str]()
    return found.union(*map(_beyond_constants, node.parts))
