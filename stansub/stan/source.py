"""A Stan program as read: the user's text, and the syntax tree of its canonical form."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple

from stansub.errors import InputError
from stansub.stan import syntax
from stansub.stan.analysis import Analysis
from stansub.stan.data.formats import is_data_file
from stansub.stan.reading.old_syntax import converted
from stansub.stan.toolchain import stanc


class OldSyntaxError(InputError):
    """A program with arrays, comments or assignments in old syntax; ``code`` is the same program in current syntax."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class Source(NamedTuple):
    """A program that stanc accepts."""

    name: str
    text: str
    program: syntax.Program

    @property
    def analysis(self) -> Analysis:
        """Return the analysis of its text."""
        return Analysis.of(self.program)


def read(stan_file: str | Path) -> Source:
    """Read a program; ``#include`` is resolved from its folder.

    Raises `InputError` if the file is missing, or is not a valid Stan program with parameters; `OldSyntaxError` if it
    would be valid with its arrays, comments and assignments in current syntax.
    """
    if not isinstance(stan_file, str | Path):
        raise InputError(f"the program must be the path of a .stan file, not of type {type(stan_file).__name__}")
    path = Path(stan_file)
    if path.suffix == ".nc":
        raise InputError(f"{path}: draws in the place of the program; give a .stan file")
    if is_data_file(path):
        raise InputError(f"{path}: a data file in the place of the program; give the program first, then the data")
    text = stanc.read(path)
    try:
        canonical = stanc.canonical(path)
    except InputError as error:
        raise _explained(error, path, text) from None
    found = Source(path.stem, text, syntax.parse(canonical))
    program = found.program
    if program.model.span == syntax.NOWHERE:
        raise InputError(f"{path}: the program has no model block, so there is nothing to sample from")
    if not program.parameters.declarations:
        raise InputError(f"{path}: the program has no parameters, so there is nothing to sample")
    return found


def _explained(error: InputError, path: Path, text: str) -> InputError:
    """Return stanc's error or, if only its syntax is old (see `old_syntax`), an error with the remedy."""
    code = converted(text)
    if code == text:
        return error
    try:
        stanc.canonical_code(code, str(path), folder=path.absolute().parent)
    except InputError as other:
        return InputError(
            f"{other} (correct this first; `stansub check` with `write=NEW.stan` can then convert arrays, comments and "
            "assignments in old syntax)"
        )
    pairs = zip(text.splitlines(), code.splitlines(), strict=False)
    line = next(number for number, (old, new) in enumerate(pairs, 1) if old != new)
    return OldSyntaxError(
        f"{path}, line {line}: the program uses old syntax (arrays `real x[N]`, comments `# ...` or assignments "
        f"`x <- 1`); to convert the program, run stansub check --write NEW.stan {shlex.quote(str(path))}",
        code,
    )
