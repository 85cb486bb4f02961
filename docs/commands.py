"""A directive, `commands`: the help of every command of stansub, as the command line prints it."""

from __future__ import annotations

from typing import ClassVar

import typer.main
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from typer.testing import CliRunner

from stansub.cli.application import app


class Commands(SphinxDirective):
    option_spec: ClassVar[dict[str, object]] = {}

    def run(self) -> list[nodes.Node]:
        found: list[nodes.Node] = []
        for name, command in typer.main.get_group(app).commands.items():
            section = nodes.section(ids=[nodes.make_id(f"stansub {name}")], names=[f"stansub {name}"])
            section += nodes.title("", f"stansub {name}")
            every = any("--help-all" in one.opts for one in command.params)
            shown = CliRunner().invoke(
                app, [name, "--help-all" if every else "--help"], color=False, prog_name="stansub"
            )
            section += nodes.literal_block("", shown.output.strip(), language="text")
            found.append(section)
        return found


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True}
