"""What a program says about its variables: which depend on observations or parameters, and where they are written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import wraps
from typing import TypeAlias, TypeVar

from stansub.stan.passes.inlining import inlined
from stansub.stan.passes.rewriting import edited
from stansub.stan.reading.dependence import Steps, plain_names
from stansub.stan.reading.sizes import of_observations
from stansub.stan.reading.typing import Types, types_in_blocks
from stansub.stan.syntax import Declaration, For, ForEach, Program, Span, Statement, walk, writes

V = TypeVar("V", bound="Variables")
# Parts of a program, with what stands in their place.
Replacements: TypeAlias = Sequence[tuple[Span, str]]


@dataclass(frozen=True)
class Variables:
    """What a program says about its variables."""

    program: Program
    observed: set[str]
    changing: set[str]
    """Names of variables that depend on observations, and on parameters."""
    own: Sequence[Statement]
    """Statements of the likelihood."""
    declared: Mapping[str, Declaration]
    """Variables that blocks declare, by name."""
    outside: Set[str]
    """Names of what has no value before the likelihood's statements: observations and indices of loops."""

    @classmethod
    def of(cls: type[V], program: Program, *sizes: str) -> V:
        """Return the variables of a program, given integers that count the observations."""
        steps = Steps.of(program)
        observed = of_observations(program, *sizes)
        own = [step.statement for step in steps.evaluated if not step.uses.isdisjoint(observed)]
        blocks = (program.parameters, program.transformed_parameters, program.model)
        variables = [*program.data_declarations, *(one for block in blocks for one in block.declarations)]
        declared = {one.name: one for one in variables}
        loops = {one.variable for one in walk(program.evaluated) if isinstance(one, For | ForEach)}
        plain = plain_names(observed)
        return cls(program, plain, set(steps.sources), own, declared, plain | loops)

    def in_blocks(self) -> Iterator[tuple[Statement, Statement]]:
        """Yield statements of the likelihood, each with the block's own statement that contains it."""
        spans = {one.span for one in self.own}
        for block in (self.program.transformed_parameters, self.program.model):
            for statement in block.statements:
                yield from ((one, statement) for one in walk([statement]) if one.span in spans)

    def is_ready(self, used: Set[str], statement: Statement) -> bool:
        """Return whether variables are known before a statement of a block, and do not change after it."""
        writing = [one for one in walk(self.program.evaluated) if writes(one) & used]
        before = all(one.span.end <= statement.span.start for one in writing)
        declarations = Counter(one.name for one in writing if isinstance(one, Declaration))
        return before and used <= self.declared.keys() and all(one == 1 for one in declarations.values())

    @property
    def types(self) -> Types:
        """Types of expressions."""
        return types_in_blocks(self.program)


def declaring(name: str) -> Callable[[Callable[..., Replacements]], Callable[..., Program]]:
    """Return a decorator of functions that find what a program should declare, given what counts the observations.

    They return parts of the program with their replacements. The decorated function returns the program with these
    declarations, if possible with the functions of its likelihood opened; if there is nothing to declare, the program
    itself. It has the same parameters, and the same log density up to a constant.
    """

    def decorator(find: Callable[..., Replacements]) -> Callable[..., Program]:
        @wraps(find)
        def declared(program: Program, *sizes: str) -> Program:
            found = (edited(one, name, find(one, *sizes)) for one in (inlined(program), program))
            return next((one for one in found if one is not None), program)

        return declared

    return decorator
