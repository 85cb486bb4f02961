"""What a pass over programs is, names for what passes add, and the check by stanc.

A pass writes a program with the same parameters, log density and generated quantities that can be cut where the one
before cannot. `stansub.stan.passes` has them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stansub.errors import InputError
from stansub.stan import stanc
from stansub.stan.recognise import recognise
from stansub.stan.remarks import Remark
from stansub.stan.rewrite import extended
from stansub.stan.syntax import Program, Span, parse, symbols


@dataclass(frozen=True)
class Refused:
    """Why a pass does not write a program that it is meant for.

    Attributes
    ----------
    reason : str
        What about a statement, for people.
    span : Span
        The statement, in the program that the pass was given.
    """

    reason: str
    span: Span

    def remark(self, program: Program) -> Remark:
        """Return the same with the text of the statement."""
        return Remark(program.text(self.span), self.reason)


class Added(NamedTuple):
    """What a pass adds to a program.

    Attributes
    ----------
    lines : sequence of str
        More transformed data.
    replacements : sequence of (Span, str)
        Parts of transformed parameters and model, and what stands in their place.
    """

    lines: Sequence[str]
    replacements: Sequence[tuple[Span, str]]


class Pass(NamedTuple):
    """A pass, as a function of programs.

    Attributes
    ----------
    name : str
        What it writes, for people.
    find : callable
        What it adds to a program whose likelihood is not given as a function. `Refused` if it is meant for the program
        but cannot write it, None if there is nothing to write.
    """

    name: str
    find: Callable[[Program], Added | Refused | None]

    @classmethod
    def named(cls, name: str) -> Callable[[Callable[[Program], Added | Refused | None]], Pass]:
        """Return a decorator that makes a pass of a function."""
        return lambda find: cls(name, find)

    def __call__(self, program: Program) -> Program | Refused | None:
        """Return a program with the same parameters, log density and generated quantities, refused, or None."""
        found = self.find(program) if is_candidate(program) else None
        return checked(extended(program, *found), self.name) if isinstance(found, Added) else found


@dataclass
class Symbols:
    """Names for what is added to a program: none is taken.

    Attributes
    ----------
    taken : set of str
        Names that stand in the program, or were given out.
    """

    taken: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, program: Program) -> Symbols:
        """Return the names of a program's variables and functions as taken."""
        return cls(symbols(program))

    def fresh(self, stem: str, first: int = 1) -> str:
        """Return ``stem`` with a number behind it, ``first`` or the next that is free."""
        while (name := f"{stem}_{first}") in self.taken:
            first += 1
        self.taken.add(name)
        return name


def is_candidate(program: Program) -> bool:
    """Return whether passes look at a program: its likelihood is not given as a function."""
    return recognise(program).kind == "sum"


def checked(code: str, name: str) -> Program | None:
    """Return the program of some code, with a name for messages; None if stanc does not take it."""
    try:
        return parse(stanc.canonical_code(code, name))
    except InputError:
        return None
