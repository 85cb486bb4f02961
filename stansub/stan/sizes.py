"""A program's variables by their sizes: which integer may count the observations, and what depends on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from stansub.stan.dependence import Step, Steps, together
from stansub.stan.syntax import (
    Declaration,
    Expression,
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
JOINT = ("multi_", "gaussian_", "matrix_", "wishart", "inv_wishart")
DENSITIES = ("_lpdf", "_lpmf", "_lupdf", "_lupmf", "_lcdf", "_lccdf")


@dataclass(frozen=True)
class SizeUse:
    """A data variable with a size variable as a dimension, and which: array dimensions first, then inner ones."""

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
    """

    name: str
    uses: tuple[SizeUse, ...]


@lru_cache(maxsize=64)
def size_candidates(program: Program) -> tuple[SizeCandidate, ...]:
    """Return integers of the data block that are a dimension of data variables, in the order of declaration."""
    candidates = []
    for size in program.data.declarations:
        if size.base != "int" or size.all_dims:
            continue
        uses = []
        for declaration in program.data.declarations:
            axes = tuple(axis for axis, dim in enumerate(declaration.sizes) if dim == size.name)
            if axes:
                uses.append(SizeUse(declaration, axes))
        if uses:
            candidates.append(SizeCandidate(size.name, tuple(uses)))
    return tuple(candidates)


def main_size(program: Program) -> str:
    """Return the size variable of the observed data; the one with most data variables, if there are several.

    Among equals, the first that sizes no parameters.
    """
    of_parameters = _sizes_of_parameters(program)
    candidates = sorted(size_candidates(program), key=lambda one: (-len(one.uses), one.name in of_parameters))
    return next(iter([*outcome_sizes(program), *(one.name for one in candidates)]), "")


@lru_cache(maxsize=64)
def outcome_sizes(program: Program) -> tuple[str, ...]:
    """Return integers that size outcomes of densities (``y ~ ...``, ``f_lpdf(y | ...)``), the likeliest first.

    Groups are excluded, because densities are of their parameters and not of their data. Integers that size no
    parameters come first, then those of most data variables.
    """
    statements = program.evaluated
    lefts = [statement.left for statement in walk(statements) if isinstance(statement, Tilde)]
    found = calls(*statements)
    lefts += [call.arguments[0] for call in found if call.name.endswith(DENSITIES) and call.arguments]
    outcomes = names(*lefts)
    observed = [one for one in data_declarations(program) if one.name in outcomes]
    dims = [dim for one in observed for dim in one.array_dims or one.all_dims]
    candidates = [one for one in size_candidates(program) if any(one.name in names(dim) for dim in dims)]
    of_parameters = _sizes_of_parameters(program)
    candidates.sort(key=lambda one: (one.name in of_parameters, -len(one.uses)))
    return tuple(candidate.name for candidate in candidates)


def _sizes_of_parameters(program: Program) -> set[str]:
    return names(*(dim for one in program.parameters.declarations for dim in one.all_dims))


def counting(program: Program) -> Callable[[Expression], bool]:
    """Return a test whether a size may be that of observations: not of parameters, unless most data have it."""
    main, of_parameters = main_size(program), _sizes_of_parameters(program)

    def counts(size: Expression) -> bool:
        found = names(size)
        return bool(found) and (main in found or not found & of_parameters)

    return counts


def observations_in(program: Program, size: str) -> list[Statement]:
    """Return statements of the model block that add to the target and read data with ``size`` as a dimension.

    They read the data themselves or through computed variables, or are in a loop over the data or a branch that the
    data decide.

    Parameters
    ----------
    program : Program
        The parsed program.
    size : str
        The integer that counts the observations.
    """
    observed = [declaration.name for declaration in data_declarations(program) if size in names(*declaration.all_dims)]
    steps = Steps.of(program)
    depends = steps.depending({size: observed})

    def reads(step: Step) -> bool:
        runs_over = size in step.reads and size not in names(step.statement)
        return runs_over or bool(together(depends, step.reads))

    adding = (step for step in steps.model if isinstance(step.statement, Target | Tilde))
    return [step.statement for step in adding if reads(step)]


def declarations(program: Program) -> list[Declaration]:
    """Return all variables except generated quantities."""
    blocks = (program.data, program.transformed_data, program.parameters, program.transformed_parameters)
    outer = [declaration for block in blocks for declaration in block.declarations]
    return outer + [statement for statement in walk(program.model.statements) if isinstance(statement, Declaration)]


def sized_by(program: Program, sizes: set[str]) -> set[str]:
    """Return variables with one of ``sizes`` in a dimension."""
    return {declaration.name for declaration in declarations(program) if names(*declaration.all_dims) & sizes}


def data_declarations(program: Program) -> list[Declaration]:
    """Return variables of data and transformed data."""
    return [*program.data.declarations, *program.transformed_data.declarations]


def changing_names(program: Program) -> set[str]:
    """Return all names whose values may change between evaluations."""
    data = {declaration.name for declaration in data_declarations(program)}
    return {declaration.name for declaration in declarations(program)} - data
