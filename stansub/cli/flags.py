"""Options as the command line spells them: `max_error` in a message of the library is `--max-error` here."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import typer

_NAMED = re.compile(r"`([a-z]\w*)(?:=([^`\s]+))?`")


@cache
def _flags() -> dict[str, str]:
    """Flags of all commands by the names of the options in Python."""
    from stansub.cli.main import app

    command: Any = typer.main.get_command(app)
    parameters = (parameter for one in command.commands.values() for parameter in one.params)
    return {
        parameter.name: parameter.opts[0]
        for parameter in parameters
        if parameter.name and parameter.opts[0].startswith("--")
    }


def spelled(text: str) -> str:
    """The text with each option that it names between backticks as a flag: `chains=4` becomes --chains 4."""

    def flag(found: re.Match[str]) -> str:
        name, value = found.groups()
        if name not in _flags():
            return found[0]
        return _flags()[name] + (f" {value}" if value else "")

    return _NAMED.sub(flag, text)
