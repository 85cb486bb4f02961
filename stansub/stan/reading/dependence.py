"""What statements read and write, what depends on what, and the part of a program that some statements need.

Statements are analysed by the names in them, regardless of their order. The result may contain too many dependences,
but never too few.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from stansub.stan.syntax import (
    Assign,
    Declaration,
    Empty,
    For,
    ForEach,
    Node,
    Program,
    Statement,
    calls,
    names,
    parse,
)


class Step(NamedTuple):
    """A simple statement, with the variables that it uses.

    Variables of nested scopes have their own keys, so that equal names in different scopes are distinct.
    """

    statement: Statement
    reads: frozenset[str]
    """Includes what decides whether and how often the statement runs."""
    writes: frozenset[str]

    @property
    def uses(self) -> frozenset[str]:
        """Return the variables that it reads or writes."""
        return self.reads | self.writes

    @property
    def has_effects(self) -> bool:
        """Return whether it does more than write: adds to the target, or may reject."""
        if not isinstance(self.statement, Declaration | Assign):
            return True
        return any(call.name.endswith(("_lp", "_jacobian")) for call in calls(*self.statement.computes))


@dataclass(frozen=True)
class Steps:
    """The simple statements of transformed data, transformed parameters and the model block."""

    parameters: tuple[str, ...]
    data: tuple[Step, ...]
    transformed: tuple[Step, ...]
    model: tuple[Step, ...]

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, program: Program) -> Steps:
        """Return the steps of a program."""
        data = tuple(_steps(program.transformed_data.statements, {}, frozenset()))
        scope: dict[str, str] = {}
        transformed = tuple(_steps(program.transformed_parameters.statements, scope, frozenset()))
        parameters = tuple(one.name for one in program.parameters.declarations)
        return cls(parameters, data, transformed, tuple(_steps(program.model.statements, scope, frozenset())))

    @property
    def evaluated(self) -> tuple[Step, ...]:
        """Return the steps of transformed parameters and model, which every evaluation runs."""
        return (*self.transformed, *self.model)

    def depending(self, groups: Mapping[str, Collection[str]]) -> dict[str, frozenset[str]]:
        """Return, for each variable that depends on variables of some named groups, the names of these groups."""
        found: dict[str, frozenset[str]] = {}
        for group, variables in groups.items():
            for name in variables:
                found[name] = found.get(name, frozenset()) | {group}
        changed = True
        while changed:
            changed = False
            for step in self.evaluated:
                read = together(found, step.reads)
                for name in step.writes:
                    if not read <= found.get(name, frozenset()):
                        found[name] = found.get(name, frozenset()) | read
                        changed = True
        return found

    def reads(self, groups: Mapping[str, Collection[str]]) -> dict[str, frozenset[str]]:
        """Return the same by name: variables of nested scopes that share one count as one."""
        found: dict[str, frozenset[str]] = {}
        for key, own in self.depending(groups).items():
            name = key.partition("@")[0]
            found[name] = found.get(name, frozenset()) | own
        return found

    @cached_property
    def sources(self) -> dict[str, frozenset[str]]:
        """Return the parameters on which each variable depends, by name."""
        return self.reads({one: [one] for one in self.parameters})

    @cached_property
    def changing(self) -> Set[str]:
        """Return the keys of variables that depend on parameters."""
        return self.depending({"": self.parameters}).keys()

    def reached(self, variables: Collection[str]) -> set[str]:
        """Return the names of some variables, and of all that depend on them."""
        keys = frozenset().union(*(step.uses for step in self.evaluated))
        given = [key for key in keys if key.partition("@")[0] in variables]
        return {*variables, *plain_names(self.depending({"": given}))}


def plain_names(keys: Iterable[str]) -> set[str]:
    """Return names of variables, from their keys."""
    return {key.partition("@")[0] for key in keys}


def together(found: Mapping[str, frozenset[str]], variables: Iterable[str]) -> frozenset[str]:
    """Return what any of some variables depends on."""
    return frozenset().union(*(found.get(name, frozenset()) for name in variables))


def needed(steps: Sequence[Step], wanted: Iterable[Step], *, known: Collection[str] = ()) -> list[Step]:
    """Return some steps and all others that write what they need, except known variables."""
    kept = list(wanted)
    left = [step for step in steps if not step.has_effects and step not in kept]
    variables = set().union(*(step.uses for step in kept)) - set(known)
    while more := [step for step in left if step.writes & variables]:
        left = [step for step in left if step not in more]
        kept += more
        variables |= set().union(*(step.uses for step in more)) - set(known)
    return kept


def unused(program: Program) -> list[Step]:
    """Return the steps of the model that have no effect, and that none with an effect needs."""
    model = Steps.of(program).model
    kept = needed(model, [step for step in model if step.has_effects])
    return [step for step in model if step not in kept]


def without_unused(program: Program, before: Program) -> Program:
    """Return a program without the steps of its model that have become unused; those that were so before may reject."""
    known = {str(step.statement) for step in unused(before)}
    gone = [step for step in unused(program) if str(step.statement) not in known]
    if not gone:
        return program
    model = Steps.of(program).model
    kept = needed(model, [step for step in model if step not in gone])
    return parse(program.with_blocks(model=text_of(program.model.statements, kept)))


def text_of(statements: Sequence[Statement], steps: Iterable[Step]) -> str:
    """Return the statements of some steps as text, within their loops and branches."""
    return _text(statements, {step.statement for step in steps})


def _text(statements: Sequence[Statement], kept: Collection[Statement]) -> str:
    lines = []
    for statement in statements:
        if statement.bodies:
            first, *others = (_text(inner, kept) for inner in statement.bodies)
            otherwise = "".join(f" else {{\n{inside}\n}}" for inside in others if inside)
            if first or otherwise:
                lines.append(f"{statement.head} {{\n{first}\n}}{otherwise}")
        elif statement in kept:
            lines.append(str(statement))
    return "\n".join(lines)


def _steps(statements: Sequence[Statement], scope: dict[str, str], control: frozenset[str]) -> Iterator[Step]:
    """Yield the steps of a list of statements, and add their variables to ``scope``.

    ``control`` is what decides whether and how often they run.
    """

    def keys(*nodes: Node) -> frozenset[str]:
        return frozenset(scope.get(name, name) for name in names(*nodes))

    for statement in statements:
        if isinstance(statement, Declaration):
            reads = keys(statement.type, *statement.computes)
            scope[statement.name] = f"{statement.name}@{statement.span.start}"
            yield Step(statement, reads | control, frozenset({scope[statement.name]}))
        elif isinstance(statement, Assign):
            writes = frozenset(scope.get(name, name) for name in statement.variables)
            yield Step(statement, keys(statement) | control, writes)
        elif isinstance(statement, For | ForEach):
            # Code that reads the loop's variable is inside the loop, and so reads what it runs over.
            variable = f"{statement.variable}@{statement.span.start}"
            inner = {**scope, statement.variable: variable}
            for step in _steps(statement.body, inner, keys(*statement.own) | control):
                yield step._replace(reads=step.reads - {variable})
        elif statement.bodies:
            for body in statement.bodies:
                yield from _steps(body, dict(scope), keys(*statement.own) | control)
        elif not isinstance(statement, Empty):
            yield Step(statement, keys(statement) | control, frozenset())
