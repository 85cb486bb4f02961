"""Programs that are written from the user's, with the same parameters and log density, for what can be cut."""

from __future__ import annotations

from stansub.errors import InputError
from stansub.stan import stanc
from stansub.stan.recognise import recognise
from stansub.stan.syntax import Program, parse


def may_be_derived(program: Program) -> bool:
    """Whether a program can be written anew: its likelihood is no function, and no name in it is taken."""
    return recognise(program).kind == "sum" and "stansub_" not in program.code


def derived(code: str, name: str) -> Program | None:
    """A program from its code, with a name for messages; None where stanc refuses it, and the user's has to do."""
    try:
        return parse(stanc.canonical_code(code, name))
    except InputError:
        return None
