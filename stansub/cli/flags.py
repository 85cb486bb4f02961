"""Messages as the command line shows them.

The package names options as Python does, in backticks, and the command line shows its flags. What file names and other
texts of the user hold is shown as it is, save that it controls no terminal.
"""

from __future__ import annotations

import re
from typing import Any

from rich.console import Console
from rich.text import Text

from stansub.errors import printable
from stansub.run import config

# Options that commands have beside those of `sample`, and that messages speak of.
OTHERS = {
    **{
        name: f"--{name.replace('_', '-')}"
        for name in (
            "adapt_delta",
            "budget",
            "columns",
            "data",
            "draws",
            "engine",
            "fallback",
            "force",
            "install_cmdstan",
            "max_treedepth",
            "output_dir",
            "pairs",
            "reference_model",
            "repeats",
            "subsets",
            "write",
        )
    },
    "overwrite": "--force",
}
_MARKED = re.compile(r"""`(?P<name>[a-z_]+)(=(?P<quote>["']?)(?P<value>[^`]*?)(?P=quote))?`""")


def flag_of(name: str) -> str:
    """Return the flag of an option of `sample`."""
    return f"--{config.declared(name).flag or name.replace('_', '-')}"


def as_flags(text: str) -> str:
    """Replace options in backticks, such as `` `thin` `` or `` `control_variates=0` ``, by flags with their values."""
    return _MARKED.sub(lambda found: _flag(found) or found[0], text)


def as_code(text: str) -> str:
    """Return the same with the flags in backticks, for pages that show these as code."""
    return _MARKED.sub(lambda found: f"`{flag}`" if (flag := _flag(found)) else found[0], text)


def _flag(found: re.Match[str]) -> str:
    """Return the flag of an option, with its value; empty if it is no option of a command."""
    name, value = found["name"], found["value"]
    flag = flag_of(name) if name in config.names() else OTHERS.get(name, "")
    if flag and value == "False":
        return f"--no-{flag[2:]}"
    return flag if not flag or value in (None, "True") else f"{flag} {value}"


def in_one_line(text: str) -> str:
    """Return a message as one line, with options as flags, whatever file names it contains."""
    return printable(as_flags(text))


def shown(text: str) -> str:
    """Return each line of a text with options as flags."""
    return "\n".join(in_one_line(line.expandtabs()) for line in text.split("\n"))


class FlagConsole(Console):
    """A console for such messages; nothing in them is taken for markup."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"markup": False, "highlight": False} | options)

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*map(_shown, objects), **options)


def _shown(item: Any) -> Any:
    if isinstance(item, str):
        return shown(item)
    if isinstance(item, Text) and (plain := shown(item.plain)) != item.plain:
        return Text(plain, style=item.style)
    return item
