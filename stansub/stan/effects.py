"""Roles of parameters, as the text shows them: effects with an unknown scale, selected elements, products, priors.

The distribution of effects with an unknown scale depends on other parameters. With such a hierarchical prior, the
posterior is far from normal in its scales, whatever its data. Centred effects have a funnel; effects that are a scale
times a standard normal have a curved ridge. Products of parameters in the likelihood are those of item response models,
such as discrimination times ability.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import prod

from stansub.stan.data.data import Data
from stansub.stan.data.dimensions import Dimensions
from stansub.stan.reading.dependence import Steps, together
from stansub.stan.reading.sizes import of_observations
from stansub.stan.syntax import (
    PRODUCTS,
    Assign,
    Call,
    Declaration,
    Expression,
    Infix,
    Name,
    Program,
    Statement,
    Subscript,
    Target,
    Tilde,
    density_of,
    find,
    flat,
    names,
)

_FREE = frozenset({"real", "vector", "row_vector", "matrix"})
_SCALES = frozenset({"offset", "multiplier"})
_DOT_PRODUCTS = frozenset({"dot_product", "rows_dot_product", "columns_dot_product"})
# Containers that hold the same elements.
_RESHAPED = frozenset(
    (
        *("append_array", "append_col", "append_row", "block", "col", "diagonal", "head", "reverse", "row", "segment"),
        *("rep_array", "rep_matrix", "rep_row_vector", "rep_vector", "sub_col", "sub_row", "tail", "to_array_1d"),
        *("to_array_2d", "to_matrix", "to_row_vector", "to_vector"),
    )
)


def effects(program: Program, *sizes: str) -> tuple[str, ...]:
    """Return the names of parameters that are effects with an unknown scale; ``sizes`` count the observations.

    They have several elements, or are arrays of ordered vectors, and a density or a product outside the likelihood ties
    them to other parameters: ``u ~ normal(0, tau)``, ``u = tau * z``, ``c[j] ~ normal(mu, tau)``. With bounds, as
    frailties ``w ~ gamma(1 / theta, 1 / theta)``, data must select elements: others may be scales themselves.
    """
    declared = {one.name: one for one in program.parameters.declarations}
    steps, depends = Steps.of(program), of_observations(program, *sizes)
    pairs = [pair for step in steps.evaluated if not together(depends, step.uses) for pair in _factors(step.statement)]
    for one in declared.values():
        pairs.append((Name(one.name), [bound.value for bound in one.type.bounds if bound.kind in _SCALES]))
    found: set[str] = set()
    for of, others in pairs:
        own = together(steps.sources, names(of))
        if together(steps.sources, names(*others)) - own:
            found |= own
    picked = selected(program, *sizes)
    return tuple(name for name, one in declared.items() if name in found and (_is_effect(one) or name in picked))


def selected(program: Program, *sizes: str) -> tuple[str, ...]:
    """Return the names of parameters of which an observation reads elements that data select.

    ``u[g[n]]``, or values at listed places, ``y[missing] = u``.
    """
    steps, depends = Steps.of(program), of_observations(program, *sizes)
    own = [step.statement for step in steps.evaluated if together(depends, step.uses)]
    picked = [base for base, indices in map(flat, find(Subscript, own)) if together(depends, names(*indices[:1]))]
    picked += [one.expression for one in own if isinstance(one, Assign) and _is_scattered(program, one)]
    read = names(*picked)
    found, declared = together(steps.sources, read), program.parameters.declarations
    bounded = {one.name for one in declared if _is_bounded(one)} & read  # if such values are computed, these are scales
    return tuple(one.name for one in declared if one.name in bounded or (one.name in found and _is_effect(one)))


def _is_scattered(program: Program, assigned: Assign) -> bool:
    """Return whether elements of a variable are written to places that a container of the data lists."""
    containers = {one.name for one in program.data.declarations if one.all_dims}
    listed = isinstance(assigned.place, Subscript) and names(*flat(assigned.place)[1]) & containers
    return bool(listed) and isinstance(assigned.expression, Name | Subscript)


def multiplies(program: Program, *sizes: str) -> bool:
    """Return whether observations depend on a product of two different parameters with several elements each.

    A product of parameters with bounds is mostly a sum of logarithms.
    """
    steps, depends = Steps.of(program), of_observations(program, *sizes)
    several = {one.name for one in program.parameters.declarations if one.all_dims}
    bounded = {one.name for one in program.parameters.declarations if _is_bounded(one)}
    own = [step.statement for step in steps.evaluated if together(depends, step.uses)]
    pairs = [(one.left, one.right) for one in find(Infix, own) if one.operator in PRODUCTS]
    pairs += [(one.arguments[0], one.arguments[1]) for one in find(Call, own) if one.name in _DOT_PRODUCTS]
    sides = [[together(steps.sources, names(one)) & several for one in pair] for pair in pairs]
    return any(first and second and len(first | second) > 1 and (first | second) - bounded for first, second in sides)


def _is_effect(one: Declaration) -> bool:
    of_groups = bool(one.array_dims) and one.base == "ordered"  # such as cutpoints
    is_free = one.base in _FREE and {bound.kind for bound in one.type.bounds} <= _SCALES
    return of_groups or (bool(one.all_dims) and is_free)


def _is_bounded(one: Declaration) -> bool:
    return bool(one.all_dims) and one.base in _FREE and not {bound.kind for bound in one.type.bounds} <= _SCALES


def _factors(statement: Statement) -> Iterator[tuple[Expression, Sequence[Expression]]]:
    """Yield expressions, with those whose values are not only added to theirs: scales or factors."""
    density = statement.distribution if isinstance(statement, Tilde) else None
    if isinstance(statement, Tilde):
        yield statement.left, statement.distribution.arguments
    for one in find(Expression, [statement]):
        if one is density:  # a location is tied to the scale beside it no more than in `normal_lpdf(u | mu, tau)`
            continue
        if isinstance(one, Call) and one.bar:
            yield one.arguments[0], one.arguments[1:]
        elif isinstance(one, Call) and one.name not in _RESHAPED:
            given = one.arguments
            yield from ((given[k], (*given[:k], *given[k + 1 :])) for k in range(len(given)))
        elif isinstance(one, Infix) and one.operator in PRODUCTS:
            yield one.left, (one.right,)
            yield one.right, (one.left,)


def with_prior(program: Program, likelihood: Collection[Statement]) -> frozenset[str]:
    """Return the parameters with a prior: outcomes of a density outside the likelihood, themselves or transformed.

    The density may be that of several, such as ``multi_normal``. A term without a density is a prior of the only
    parameter on which it depends.
    """
    steps = Steps.of(program)
    found: frozenset[str] = frozenset()
    for step in steps.evaluated:
        if step.statement in likelihood:
            continue
        densities = list(filter(None, map(density_of, step.statement.inner())))
        for density in densities:
            found |= together(steps.sources, names(density.left))
        own = together(steps.sources, names(step.statement))
        if not densities and isinstance(step.statement, Target) and len(own) == 1:
            found |= own
    return found


def n_parameters(program: Program, data: Data) -> int:
    """Return the approximate number of parameters with some data; sizes that no integers of them decide count as 0."""
    dimensions = Dimensions.of(data.values, data.declarations)
    return sum(prod(dimensions.value(dim) or 0 for dim in one.all_dims) for one in program.parameters.declarations)
