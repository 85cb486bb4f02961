"""`stansub summary` and `stansub plot`: what was drawn."""

from __future__ import annotations

from collections.abc import Callable
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
    """Draw trace and rank pictures and, for subsampled draws, the share of the data used."""
    from stansub.output import inference_data, plots

    result = inference_data.read(draws)
    makers: dict[str, Callable[[Path], None]] = {"trace": lambda path: plots.trace(result, path, var_names=var_names)}
    if "n_obs_used" in inference_data.group(result, "sample_stats"):
        makers["data"] = lambda path: plots.share_of_data(result, path)
    stem = output or draws.with_suffix("")
    pictures = {stem.with_name(f"{stem.name}_{kind}.png"): make for kind, make in makers.items()}
    for picture in pictures:
        inference_data.check_target(picture, overwrite=force)
    for picture, make in pictures.items():
        make(picture)
        typer.echo(picture)
