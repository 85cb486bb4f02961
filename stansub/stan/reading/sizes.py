"""A program's variables by their sizes: which integer may count the observations, and what depends on it.

Here and in the modules that use this one, ``size`` is the name of the integer that counts the observations.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import lru_cache

from stansub.stan.reading.dependence import Step, Steps, together
from stansub.stan.syntax import (
    Expression,
    Perform,
    Program,
    Statement,
    Target,
    Tilde,
    calls,
    names,
    walk,
)

# Real functions of a container, except those that add up over parts of the data, which are correct as they are.
SUMMARIES = frozenset({"max", "mean", "min", "norm2", "quantile", "sd", "variance"})
# Prefixes of densities of several values at once.
JOINT = ("dirichlet", "gaussian_", "inv_wishart", "lkj_", "matrix_", "multi_", "multinomial", "wishart")
DENSITIES = ("_lpdf", "_lpmf", "_lupdf", "_lupmf", "_lcdf", "_lccdf")


@lru_cache(maxsize=64)
def size_candidates(program: Program) -> dict[str, int]:
    """Return integers of the data block that are a dimension of data, in order, with how many variables have it."""
    declared = program.data.declarations
    integers = (one.name for one in declared if one.base == "int" and not one.all_dims)
    counts = {name: sum(name in one.sizes for one in declared) for name in integers}
    return {name: count for name, count in counts.items() if count}


def main_size(program: Program) -> str:
    """Return the size variable of the observed data; the one with most data variables, if there are several.

    Integers that size no parameters come first.
    """
    of_parameters, counts = program.sizes_of_parameters, size_candidates(program)
    candidates = sorted(counts, key=lambda name: (name in of_parameters, -counts[name]))
    return next(iter([*outcome_sizes(program), *candidates]), "")


@lru_cache(maxsize=64)
def outcome_sizes(program: Program) -> tuple[str, ...]:
    """Return integers that size outcomes of densities (``y ~ ...``, ``f_lpdf(y | ...)``), the likeliest first.

    If an outcome is a number, as in ``1 ~ bernoulli(exp(-t[i] * rate))``, the arguments have the data.
    Groups are excluded, because densities are of their parameters and not of their data. Integers that size no
    parameters come first, then those of most data variables.
    """
    statements = program.evaluated
    tildes = [statement for statement in walk(statements) if isinstance(statement, Tilde)]
    lefts = [statement.left for statement in tildes]
    lefts += [each for one in tildes if not names(one.left) for each in one.distribution.arguments]
    found = calls(*statements)
    lefts += [call.arguments[0] for call in found if call.name.endswith(DENSITIES) and call.arguments]
    outcomes = names(*lefts)
    observed = [one for one in program.data_declarations if one.name in outcomes]
    dims = [dim for one in observed for dim in one.array_dims or one.all_dims]
    of_parameters, counts = program.sizes_of_parameters, size_candidates(program)
    candidates = [name for name in counts if name in names(*dims)]
    return tuple(sorted(candidates, key=lambda name: (name in of_parameters, -counts[name])))


def counting(program: Program) -> Callable[[Expression], bool]:
    """Return a test whether a size may be that of observations: not of parameters, unless most data have it."""
    main, of_parameters = main_size(program), program.sizes_of_parameters

    def counts(size: Expression) -> bool:
        found = names(size)
        return bool(found) and (main in found or not found & of_parameters)

    return counts


def observations_in(program: Program, size: str) -> list[Statement]:
    """Return statements of the model block that add to the target and read data with ``size`` as a dimension.

    They read the data themselves or through computed variables, or are in a loop over the data or a branch that the
    data decide. Calls of functions ``*_lp`` are among them. ``size`` may be an expression.
    """
    steps = Steps.of(program)
    depends = steps.depending({size: data_along(program, size)})

    def reads(step: Step) -> bool:
        runs_over = size in step.reads and size not in names(step.statement)
        return runs_over or bool(together(depends, step.reads))

    return [step.statement for step in steps.model if adds(step.statement) and reads(step)]


def read_with(program: Program, own: Collection[str], others: Collection[str]) -> set[str]:
    """Return which of other data terms read that also read some of ``own``."""
    steps = Steps.of(program)
    depends = steps.depending({"": own} | {name: [name] for name in set(others) - set(own)})
    read = (together(depends, step.reads) for step in steps.evaluated if step.has_effects)
    return {name for one in read if "" in one for name in one if name}


def reads_observations(program: Program) -> bool:
    """Return whether a statement that adds to the log density may read observations, as far as the text shows.

    Observations are containers of data and transformed data; integers that size no parameters may count them.
    """
    of_parameters = program.sizes_of_parameters
    declared = program.data.declarations
    seeds = {one.name for one in declared if one.all_dims or (one.base == "int" and one.name not in of_parameters)}
    seeds |= {one.name for one in program.transformed_data.declarations}
    steps = Steps.of(program)
    depends = steps.depending({"": seeds})
    # A function that adds may be called in transformed parameters.
    return any(together(depends, step.reads) for step in steps.evaluated if step.has_effects)


def adds(statement: Statement) -> bool:
    """Return whether a statement adds to the target, in itself or by a function ``*_lp``; not by inner statements."""
    called = calls(statement) if isinstance(statement, Perform) else []
    return isinstance(statement, Target | Tilde) or any(call.name.endswith("_lp") for call in called)


def has_terms(statement: Statement) -> bool:
    """Return whether a statement or one inside it adds to the target."""
    return any(map(adds, walk([statement])))


def of_observations(program: Program, *sizes: str) -> dict[str, frozenset[str]]:
    """Return the variables that depend on the observations, with which of the ``sizes`` that count these."""
    return Steps.of(program).depending({size: [size, *data_along(program, size)] for size in sizes})


def data_along(program: Program, size: str) -> list[str]:
    """Return names of data with ``size``, a variable or a whole dimension such as ``N - n_zero(y)``, as a dimension."""
    return [one.name for one in program.data_declarations if size in names(*one.type.sized_by) or size in one.sizes]
