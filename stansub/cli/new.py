"""`stansub new`: a folder to start from."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from stansub.errors import InputError


def new(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to create.", show_default=False)],
    likelihood: Annotated[
        str,
        typer.Option(help="logistic, linear, poisson, negative_binomial or multilevel (logistic with group effects)."),
    ] = "logistic",
    rows: Annotated[
        int | None,
        typer.Option(min=1, max=10**8, help="Rows of the example data.", show_default="100,000; multilevel 20,000"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the example data.")] = 1,
) -> None:
    """Create a folder with a Stan program, example data and a README with the commands to run."""
    from stansub.cli import starters

    if not folder.name:
        raise InputError(f"{folder} already exists; choose another name")
    for path in starters.create(folder, likelihood, rows=rows, seed=seed):
        typer.echo(folder / path.name)
    run = f"stansub sample {starters.PROGRAM} {starters.DATA} --columns {shlex.quote(starters.COLUMNS)}"
    typer.echo(f"Next: cd {shlex.quote(str(folder))} && {run}")
