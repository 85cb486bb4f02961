"""`stansub summary` and `stansub plot`: what was drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from stansub.cli.options import Debug, Draws


def summary(
    draws: Draws,
    everything: Annotated[bool, typer.Option("--all", help="Show all rows of the table.")] = False,
    debug: Debug = False,
) -> None:
    """Print the table, the share of the data used, the audit and the warnings again."""
    from stansub.output import inference_data
    from stansub.output import summary as summary_module

    summary_module.render(inference_data.read(draws), Console(), max_rows=None if everything else 50)


def plot(
    draws: Draws,
    output: Annotated[
        Path | None,
        typer.Option(metavar="STEM", help="Start of the pictures' names.", show_default="that of the draws"),
    ] = None,
    var_names: Annotated[
        list[str] | None, typer.Option("--var-name", help="Variable to show; may be given several times.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the pictures.")] = False,
    debug: Debug = False,
) -> None:
    """Draw trace and rank pictures, and the share of the data used."""
    from stansub.output import inference_data, plots

    stem = output or draws.with_suffix("")
    pictures = [stem.with_name(f"{stem.name}_{kind}.png") for kind in ("trace", "data")]
    for picture in pictures:
        inference_data.check_target(picture, overwrite=force)
    result = inference_data.read(draws)
    plots.trace(result, pictures[0], var_names=var_names)
    plots.share_of_data(result, pictures[1])
    for picture in pictures:
        typer.echo(picture)
