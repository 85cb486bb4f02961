"""`stansub export`: write draws for other software."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from stansub.cli.options import Draws, Quiet, forcing, into, stages


class FormatName(StrEnum):
    """Formats of exported draws."""

    cmdstan_csv = "cmdstan-csv"
    csv = "csv"
    parquet = "parquet"


def export(
    draws: Draws,
    to: Annotated[
        FormatName,
        typer.Option(
            help="cmdstan-csv: one CmdStan file per chain, for cmdstanpy, cmdstanr, rstan and stansummary; csv and "
            "parquet: one table with a column for each value.",
        ),
    ] = FormatName.cmdstan_csv,
    output_dir: Annotated[Path | None, into("Folder for the files.")] = None,
    force: Annotated[bool, forcing("Overwrite the files.")] = False,
    quiet: Quiet = False,
) -> None:
    """Export draws for other software: DRAWS_1.csv, DRAWS_2.csv, ..., DRAWS.csv or DRAWS.parquet."""
    from stansub.output import export as working
    from stansub.run.reading import read_draws

    with stages(quiet=quiet) as log:
        log("Reading draws")
        result = read_draws(draws)
        log("Writing draws")
        written = working.write(result, output_dir or draws.parent, draws.stem, to.value, overwrite=force)
    for path in written:
        typer.echo(path)
