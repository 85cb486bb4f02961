"""Signatures of the functions of Stan's library, as listed by stanc."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import NamedTuple

from stansub.stan.bridgestan_home import find_home
from stansub.stan.syntax import UnsizedType, parse_types


class Signature(NamedTuple):
    """Argument and return types of a function."""

    arguments: tuple[UnsizedType, ...]
    returned: UnsizedType


@cache
def of_library(name: str) -> tuple[Signature, ...]:
    """Return the signatures of a function; empty if it is unknown."""
    return tuple(map(_read, _lines(find_home().stanc).get(name, ())))


@cache
def _lines(stanc: Path) -> dict[str, list[str]]:
    """Return stanc's list, by name, without functions that take functions."""
    done = subprocess.run([stanc, "--dump-stan-math-signatures"], capture_output=True, encoding="utf-8", check=False)
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        name, bracket, rest = line.partition("(")
        if bracket and rest.count("=>") == 1:
            found.setdefault(name, []).append(rest)
    return found


def _read(line: str) -> Signature:
    arguments, _, returned = line.rpartition(") => ")
    return Signature(parse_types(arguments.replace("data ", "")), parse_types(returned)[0])
