"""A Stan program as it is read: what the user wrote, and the tree of its canonical form."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from stansub.errors import InputError
from stansub.stan import stanc, syntax
from stansub.stan.analysis import Analysis


class Source(NamedTuple):
    """A program that stanc accepts.

    Attributes
    ----------
    name : str
        Stem of its file.
    text : str
        What the user wrote.
    program : Program
        The canonical form, parsed.
    """

    name: str
    text: str
    program: syntax.Program

    @property
    def analysis(self) -> Analysis:
        """What its text shows."""
        return Analysis.of(self.program)


def read(stan_file: str | Path) -> Source:
    """Read a program; ``#include`` is resolved from its folder.

    Raises
    ------
    InputError
        When the file is missing, or is not a valid Stan program with parameters.
    """
    path = Path(stan_file)
    found = Source(path.stem, stanc.read(path), syntax.parse(stanc.canonical(path)))
    program = found.program
    if program.model.span != syntax.NOWHERE and not program.parameters.declarations:
        raise InputError(f"{path}: the program has no parameters, so there is nothing to sample")
    return found
