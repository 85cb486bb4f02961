"""Parameters to which a program gives a prior: by a density of their own or of several, such as ``multi_normal``."""

from __future__ import annotations

from collections.abc import Collection

from stansub.stan.dependence import Steps, together
from stansub.stan.syntax import Program, Statement, Target, density_of, names


def with_prior(program: Program, likelihood: Collection[Statement]) -> frozenset[str]:
    """Return the parameters that are outcomes of a density outside the likelihood, themselves or transformed.

    A term without a density is a prior of the only parameter on which it depends.
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
