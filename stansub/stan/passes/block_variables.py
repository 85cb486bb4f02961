"""Variables inside braces and branches that depend on no observation, declared in the block itself.

Variables inside braces cannot be read outside. In brms's models of several outcomes,

    if (!prior_only) {
      vector[nresp] sigma = transpose([sigma_1, sigma_2]);
      matrix[nresp, nresp] LSigma = diag_pre_multiply(sigma, Lrescor);
      ...

the likelihood would read ``sigma_1``, ``sigma_2`` and ``Lrescor``, which are more arguments than ``LSigma`` and say
nothing more. These declarations are moved before the statement of the block that contains them. A branch is opened only
if all of the likelihood is in it: in others, what they compute may be undefined unless their condition holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

from stansub.stan.passes.rewriting import edited
from stansub.stan.reading.dependence import Step, Steps, plain_names
from stansub.stan.reading.sizes import of_observations, outcome_sizes, size_candidates
from stansub.stan.syntax import Braces, Declaration, If, Profile, Program, Span, Statement, find, names


def with_block_variables(program: Program, *sizes: str) -> Program:
    """Return a program whose blocks declare such variables; the program itself if there are none.

    It has the same parameters and the same log density.
    """
    reading, replacements = _Reading.of(program, *sizes), list[tuple[Span, str]]()
    for block in (program.transformed_parameters, program.model):
        for statement in block.statements:
            spans = sorted({unit.span for unit in reading.movable(statement)})
            if spans:
                replacements.append((statement.span.before, "\n".join([*map(program.text, spans), ""])))
                replacements += [(span, "") for span in spans]
    return edited(program, "block variables", replacements) or program


class _Unit(NamedTuple):
    """A statement directly inside opened braces, with the simple statements in it and their variables."""

    span: Span
    steps: list[Step]
    reads: set[str]
    writes: set[str]
    declares: set[str]


@dataclass(frozen=True)
class _Reading:
    """What a program says about its statements."""

    steps: Sequence[Step]
    observed: Set[str]
    changing: Set[str]
    """Keys of variables that depend on observations, and on parameters."""
    sizes: Set[str]
    """Integers that may count observations."""
    counts: Counter[str]
    """How often a name is declared."""

    @classmethod
    def of(cls, program: Program, *sizes: str) -> _Reading:
        steps, of_parameters = Steps.of(program), program.sizes_of_parameters
        outcomes = set(outcome_sizes(program)) - of_parameters
        return cls(
            steps.evaluated,
            of_observations(program, *sizes, *sorted(outcomes - set(sizes))).keys(),
            steps.changing,
            {*sizes, *outcomes, *(size_candidates(program).keys() - of_parameters)},
            Counter(one.name for one in find(Declaration, [program])),
        )

    def movable(self, statement: Statement) -> list[_Unit]:
        """Return what can be moved before a statement of a block; nothing if that depends on no parameters."""
        units = [self._unit(one) for one in self._opened(statement)] if self._opens(statement) else []
        declared = frozenset().union(*(unit.declares for unit in units))
        found = [unit for unit in units if self._is_plain(unit) and unit.writes <= declared]
        while True:
            fixed = [unit for unit in units if unit not in found]
            written = frozenset().union(*(unit.writes for unit in fixed))
            kept = [
                unit
                for unit in found
                if not unit.reads & written
                and not unit.writes & written
                and not any(one.reads & unit.writes and one.span.start < unit.span.start for one in fixed)
                and all(one.span != unit.span for one in fixed)
            ]
            if len(kept) == len(found):
                return kept if any(unit.writes & self.changing for unit in kept) else []
            found = kept

    def _opened(self, statement: Statement) -> Iterator[Statement]:
        """Yield the statements inside a statement that opens, and inside those that open."""
        for one in statement.bodies[0]:
            if self._opens(one):
                yield from self._opened(one)
            else:
                yield one

    def _opens(self, statement: Statement) -> bool:
        """Return whether a statement is braces, or a branch on data with all of the likelihood."""
        if not isinstance(statement, If):
            return isinstance(statement, Braces | Profile)
        adding = [step.statement.span for step in self.steps if step.has_effects and step.uses & self.observed]
        has_all = bool(adding) and all(statement.span.contains(span) for span in adding)
        on_data = not names(statement.condition) & plain_names(self.changing)
        return has_all and on_data and not statement.orelse

    def _unit(self, statement: Statement) -> _Unit:
        steps = [one for one in self.steps if statement.span.contains(one.statement.span)]
        reads = {key for one in steps for key in one.reads}
        writes = {key for one in steps for key in one.writes}
        declares = {key for one in steps if isinstance(one.statement, Declaration) for key in one.writes}
        return _Unit(statement.span, steps, reads, writes, declares)

    def _is_plain(self, unit: _Unit) -> bool:
        """Return whether a statement only writes variables that depend on no observation, with names of their own."""
        declarations = [one.statement for one in unit.steps if isinstance(one.statement, Declaration)]
        return (
            bool(unit.steps)
            and not any(step.has_effects or step.uses & self.observed for step in unit.steps)
            and all(self.counts[one.name] == 1 for one in declarations)
            and not names(*(dim for one in declarations for dim in one.all_dims)) & self.sizes
        )
