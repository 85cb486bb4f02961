"""The command line: a module a group of commands, gathered in `main`."""

from stansub.cli.main import app, main

__all__ = ["app", "main"]
