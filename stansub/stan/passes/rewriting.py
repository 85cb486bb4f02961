"""The interface of passes over programs, names for what passes add, and the check by stanc.

A pass writes a program with the same parameters, log density and generated quantities that can be cut although the
original cannot. `stansub.stan.passes.fixpoint` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stansub.errors import InputError
from stansub.stan.passes.rewrite import extended
from stansub.stan.reading.dependence import without_unused
from stansub.stan.reading.remarks import Remark
from stansub.stan.syntax import Expression, Node, Program, Span, outermost, parse
from stansub.stan.toolchain import stanc


class RefusedError(Exception):
    """A pass cannot write a program that it is meant for.

    Attributes
    ----------
    reason : str
        Description of the problem with a statement.
    span : Span
        The statement, in the program passed.
    """

    def __init__(self, reason: str, span: Span) -> None:
        super().__init__(reason)
        self.reason, self.span = reason, span

    def remark(self, program: Program) -> Remark:
        """Return the reason with the text of the statement."""
        return Remark(program.text(self.span), self.reason)


class Edits(NamedTuple):
    """Additions of a pass to a program."""

    lines: Sequence[str]
    """More transformed data."""
    replacements: Sequence[tuple[Span, str]]
    """Parts of transformed data, parameters, transformed parameters and model, with their replacements."""


class Pass(NamedTuple):
    """A pass: a function from programs to programs."""

    name: str
    """Description of what it writes."""
    find: Callable[[Program], Edits | None]
    """Its additions to a program; None, or no replacements, if there is nothing to write.

    Raises `RefusedError` if it is meant for the program but cannot write it.
    """

    @classmethod
    def named(cls, name: str) -> Callable[[Callable[[Program], Edits | None]], Pass]:
        """Return a decorator that turns a function into a pass."""
        return lambda find: cls(name, find)

    def __call__(self, program: Program) -> Program | RefusedError | None:
        """Return a program with the same parameters, log density and generated quantities, `RefusedError`, or None."""
        try:
            found = self.find(program) if program.model.statements else None
        except RefusedError as refusal:
            return refusal
        written = edited(program, self.name, found.replacements, found.lines) if found else None
        return without_unused(written, program) if written else None


@dataclass
class Symbols:
    """Unused names for additions to a program."""

    taken: set[str] = field(default_factory=set)
    """Names in the program, or given out before."""

    @classmethod
    def of(cls, program: Program) -> Symbols:
        """Return the names of a program's variables and functions as taken."""
        return cls(program.symbols)

    def fresh(self, stem: str) -> str:
        """Return ``stem`` with the first number as suffix that is free."""
        number = 1
        while (name := f"{stem}_{number}") in self.taken:
            number += 1
        self.taken.add(name)
        return name


def outermost_places(program: Program, given: Mapping[Any, object]) -> list[tuple[Span, str]]:
    """Return the outermost places of some expressions from parameters to model, with what stands in their place."""

    def found(node: Node) -> Expression | None:
        return node if isinstance(node, Expression) and node in given else None

    blocks = program.parameters, program.transformed_parameters, program.model
    return [(one.span, str(given[one])) for block in blocks for one in outermost(found, block)]


def edited(
    program: Program, name: str, replacements: Collection[tuple[Span, str]], lines: Sequence[str] = ()
) -> Program | None:
    """Return a program with parts replaced and more transformed data; None without replacements, or as `checked`."""
    return checked(extended(program, lines, replacements), name) if replacements else None


def checked(code: str, name: str) -> Program | None:
    """Return the program of some code, with a name for messages; None if stanc rejects it."""
    try:
        return parse(stanc.canonical_code(code, name))
    except InputError:
        return None
