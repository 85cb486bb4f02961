"""Programs written from a user's program, for stansub's own evaluations."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from stansub.errors import InputError
from stansub.stan.reading.sizes import DENSITIES
from stansub.stan.syntax import (
    REDUCE_SUM,
    Braces,
    Call,
    Empty,
    For,
    ForEach,
    If,
    Jump,
    Literal,
    Name,
    Node,
    Perform,
    Prefix,
    Profile,
    Program,
    Span,
    Statement,
    While,
    changed,
    parse,
    printed,
    substituted,
)

# The argument through which functions request the metric, and its name and size in a derived program.
_METRIC_ARGUMENT = "metric"
METRIC, METRIC_SIZE = "stansub_metric", "stansub_dim"


def silenced(program: Program) -> Program:
    """Return a program without ``profile`` and ``print`` statements; profiled code stays, in plain braces.

    Evaluations of blocks run in several threads, for which Stan's table of profiles has no lock, and thousands of
    blocks would print each. The program itself if it has no such statements.
    """
    quiet = changed(program, _silenced)
    return program if quiet is program else parse(str(quiet))


def _silenced(node: Node) -> Node | None:
    if isinstance(node, Profile):
        return changed(Braces(node.body, span=node.span), _silenced)
    return Empty() if isinstance(node, Perform) and node.call.name == "print" else None


def without_continue(program: Program) -> Program:
    """Return a program with what follows ``if (...) continue;`` in a branch. The program itself if it has none."""
    branched = changed(program, _branched)
    return program if branched is program else parse(str(branched))


def _branched(node: Node) -> Node | None:
    if not isinstance(node, For | ForEach | While):
        return None
    body = _in_branches(node.body)
    return None if body == node.body else changed(replace(node, body=body), _branched)


def _in_branches(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    for k, one in enumerate(body):
        match one:
            case If(condition, (*then, Jump(word="continue")), ()):
                rest = _in_branches(body[k + 1 :])
                if then:
                    return (*body[:k], replace(one, then=tuple(then), orelse=rest))
                return (*body[:k], replace(one, condition=Prefix("!", condition), then=rest))
    return body


def in_one_slice(program: Program) -> Program:
    """Return a program whose ``reduce_sum`` calls are calls of the function with all elements.

    In a block of few observations, ``reduce_sum`` takes longer than what it adds. The program itself if it has none.
    """

    def called(node: Node) -> Node | None:
        match node:
            case Call(name, (Name(function), sliced, _, *shared)) if name in REDUCE_SUM:
                arguments = (sliced, Literal("1"), Call("size", (sliced,)), *shared)
                return changed(Call(function, arguments, bar=function.endswith(DENSITIES)), called)
        return None

    direct = changed(program, called)
    return program if direct is program else parse(str(direct))


def reserved(program: Program) -> list[str]:
    """Return the names in a program that begin with the prefix reserved for stansub."""
    return sorted(name for name in program.symbols if name.startswith("stansub_"))


def reserve_names(program: Program) -> None:
    """Raise InputError if a program has names that begin with ``stansub_``."""
    if taken := reserved(program):
        raise InputError(
            f"the program uses the name {taken[0]!r}; names that begin with stansub_ are reserved: rename it"
        )


def _lines(*parts: str) -> str:
    return "\n".join(part.strip("\n") for part in parts if part.strip())


def replaced(program: Program, span: Span, replacements: Iterable[tuple[Span, str]]) -> str:
    """Return the text of a span with parts of it replaced."""
    pieces, at = [], span.start
    for part, text in sorted(replacements):
        pieces += [program.code[at : part.start], text]
        at = part.end
    return "".join([*pieces, program.code[at : span.end]])


def extended(program: Program, lines: Iterable[str], replacements: Collection[tuple[Span, str]]) -> str:
    """Return the program with more lines of transformed data, and with parts replaced from there to the model block."""
    inside = {
        name: replaced(program, block.inside, found)
        for name in ("transformed_data", "parameters", "transformed_parameters", "model")
        if (found := [one for one in replacements if (block := getattr(program, name)).span.contains(one[0])])
    }
    data = inside.pop("transformed_data", program.text(program.transformed_data.inside))
    return program.with_blocks(transformed_data="\n".join([data, *lines]), **inside)


def constants_program(program: Program, function: str, n: str) -> str:
    """Return a program without parameters whose only generated quantity is ``vector[n] stansub_constants``.

    Its elements are the user's ``function(i, ...)`` for i from 1 to ``n``. The other arguments are the data of the same
    names. An argument ``metric`` that is not a variable is data of the derived program.

    Raises `InputError` if the program has no such function, or an argument is not the name of a data variable.

    Parameters
    ----------
    function : str
        ``log_lik_lipschitz_i`` or another function that returns a constant for each observation.
    n : str
        The number of observations as a Stan expression of data.
    """
    known, metric = program.data_names, takes_metric(program, function)
    arguments = _by_name(
        program, function, 1, known | ({_METRIC_ARGUMENT} if metric else set()), "data or transformed data"
    )
    if metric:
        arguments = [METRIC if name == _METRIC_ARGUMENT else name for name in arguments]
    declared = f"int {METRIC_SIZE};\n  matrix[{METRIC_SIZE}, {METRIC_SIZE}] {METRIC};" if metric else ""
    call = f"{function}({', '.join(['stansub_i', *arguments])})"
    loop = f"  for (stansub_i in 1 : {n}) {{\n    stansub_constants[stansub_i] = {call};\n  }}"
    return program.with_blocks(
        data=_lines(program.text(program.data.inside), declared),
        parameters=None,
        transformed_parameters=None,
        model=None,
        generated_quantities=f"  vector[{n}] stansub_constants;\n{loop}",
    )


def takes_metric(program: Program, function: str) -> bool:
    """Return whether a function of the program has an argument ``metric`` that is not a data variable."""
    arguments = {argument.name for one in program.functions if one.name == function for argument in one.arguments}
    return _METRIC_ARGUMENT in arguments - program.data_names


def range_program(program: Program) -> str:
    """Return a program with the parameters twice whose only generated quantity is ``real stansub_range``.

    It is the user's ``log_lik_range(...)``, whose arguments are names of data and parameters. A parameter name with
    suffix ``_new`` refers to the proposal. The unconstrained parameters are those of the program at the current state,
    then at the proposal.

    Raises `InputError` if the program has no such function, or an argument is neither data nor a parameter.
    """
    parameters = {variable.name for variable in program.parameters.declarations}
    at_proposal = {name: Name(f"{name}_new") for name in parameters}
    new, known = {one.name for one in at_proposal.values()}, program.data_names | parameters
    if taken := known & new:
        raise InputError(
            f"log_lik_range: the variable {min(taken)!r} has the name of a parameter at the proposal; rename it"
        )
    arguments = _by_name(program, "log_lik_range", 0, known | new, "data or parameters")
    proposed = printed([substituted(one, at_proposal) for one in program.parameters.statements])
    return program.with_blocks(
        parameters=_lines(program.text(program.parameters.inside), proposed),
        transformed_parameters=None,
        model=None,
        generated_quantities=f"  real stansub_range = log_lik_range({', '.join(arguments)});",
    )


def _by_name(program: Program, function: str, skip: int, known: set[str], what: str) -> list[str]:
    """Return arguments of a user's function after the first ``skip``, which must be names of known variables."""
    candidates = [candidate for candidate in program.functions if candidate.name == function]
    if not candidates:
        raise InputError(f"the program has no function {function}")
    for candidate in candidates:
        found = [argument.name for argument in candidate.arguments[skip:]]
        unknown = [name for name in found if name not in known]
        if not unknown:
            return found
    raise InputError(f"{function}: its argument {unknown[0]!r} is not the name of a variable in {what} of the program")
