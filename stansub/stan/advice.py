"""What stands in the way of a likelihood that can be evaluated in parts, and lines that would remove it.

Everything here is read off the text, so it points where to look; whether a program qualifies is decided numerically.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stansub.stan.remarks import Remark
from stansub.stan.sizes import declarations, observations_in, size_candidates, sized_by
from stansub.stan.syntax import (
    Assign,
    Declaration,
    For,
    Program,
    Statement,
    Tilde,
    Token,
    calls,
    children,
    expression_of,
    matching,
    names,
    tokenize,
    walk,
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

# Generalised linear models: the density of one observation, given its linear predictor.
_GLM = {
    "bernoulli_logit_glm": "bernoulli_logit",
    "neg_binomial_2_log_glm": "neg_binomial_2_log",
    "normal_id_glm": "normal",
    "poisson_log_glm": "poisson_log",
}


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


def skeleton(program: Program, size: str) -> list[str]:
    """A ``log_lik_i`` for the program, made from its own likelihood statement and names.

    Parameters
    ----------
    program : Program
        The parsed program.
    size : str
        The integer that counts the observations, or nothing.
    """
    found = observations_in(program, size) if size else []
    used = names(program.text(found[0].span)) if found else set()
    sized = {d.name: [*d.all_dims].index(size) for d in declarations(program) if size in d.all_dims}
    arguments = [variable for variable in declarations(program) if variable.name in used]
    term = _term(program, found[0], sized) if found and isinstance(found[0], Tilde) else "..."
    declared = ", ".join(["int i", *(f"{_unsized(variable)} {variable.name}" for variable in arguments)])
    passed = ", ".join(["i", *(variable.name for variable in arguments)])
    return [
        "functions {",
        f"  real log_lik_i({declared}) {{",
        f"    return {term};  // the log likelihood of observation i alone",
        "  }",
        "}",
        "model {",
        "  // the priors as they are",
        f"  for (i in {_range(program, found, size or 'N')}) target += log_lik_i({passed});",
        "}",
    ]


def _range(program: Program, found: Sequence[Statement], size: str) -> str:
    """The range of the loop over observations that holds the first of some statements, or all observations."""
    for loop in walk(program.model.statements):
        if not isinstance(loop, For) or size not in names(loop.lower) | names(loop.upper):
            continue
        if found and loop.span.start <= found[0].span.start < loop.span.end:
            return f"{loop.lower} : {loop.upper}"
    return f"1 : {size}"


def _term(program: Program, statement: Tilde, sized: dict[str, int]) -> str:
    """The density of observation i for a sampling statement over all of them, as well as can be guessed."""
    call = calls(statement.distribution)[0]
    arguments = [_at_i(program, argument, sized) for argument in call.arguments]
    name = call.name
    if name in _GLM and len(arguments) >= 3:
        name = _GLM[name]
        arguments = [f"{arguments[1]} + {arguments[0]} * {arguments[2]}", *arguments[3:]]
    left = next((d for d in declarations(program) if d.name == tokenize(statement.left)[0].text), None)
    suffix = "lpmf" if left is not None and left.base == "int" else "lpdf"
    return f"{name}_{suffix}({_at_i(program, statement.left, sized)} | {', '.join(arguments)})"


def _at_i(program: Program, expression: str, sized: dict[str, int]) -> str:
    """An expression with variables that have a value for each observation taken at observation i."""
    loops = {loop.variable for loop in walk(program.model.statements) if isinstance(loop, For)}
    tokens = tokenize(expression)
    pieces: list[str] = []
    at = 0
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        pieces += [expression[at : token.span.start], _word_at_i(token, after, sized, loops)]
        at = token.span.end
    return "".join(pieces)


def _word_at_i(token: Token, after: Token | None, sized: dict[str, int], loops: set[str]) -> str:
    if token.text in loops:
        return "i"
    if token.text not in sized or (after is not None and after.text == "["):
        return token.text
    return token.text + ("[" + ": , " * sized[token.text] + "i]")


def _unsized(declaration: Declaration) -> str:
    """The type of a function's argument that takes a variable."""
    if declaration.base == "tuple":
        inner = f"tuple({', '.join(declaration.elements)})"
    elif declaration.base in ("int", "real", "complex", "row_vector", "complex_row_vector", "complex_vector"):
        inner = declaration.base
    elif "matrix" in declaration.base or declaration.base.startswith("cholesky"):
        inner = "complex_matrix" if declaration.base == "complex_matrix" else "matrix"
    else:
        inner = "vector"
    depth = len(declaration.array_dims)
    return f"array[{',' * (depth - 1)}] {inner}" if depth else inner
