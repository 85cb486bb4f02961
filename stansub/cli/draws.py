"""`stansub summary` and `stansub plot`."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from stansub.cli.flags import FlagConsole
from stansub.cli.options import Draws, Quiet, Verbose, forcing, into, stages


def summary(
    draws: Draws,
    everything: Annotated[bool, typer.Option("--all", help="Show all rows of the table.")] = False,
    verbose: Verbose = False,
    quiet: Quiet = False,
) -> None:
    """Print the posterior table, convergence, exactness and cost in one line, and the warnings."""
    with stages(quiet=quiet) as log:
        log("Reading draws")
        from stansub.output import summary as summary_module
        from stansub.output.inference_data import LARGE
        from stansub.run.reading import read_draws

        found = read_draws(draws, most=None if everything else LARGE)
        log("Summarising the draws")
        summarised = summary_module.summarise(found, max_rows=None if everything else 50)
    summary_module.render(found, FlagConsole(), summary=summarised, verbose=verbose, full=in_full(draws))


def in_full(file: Path | None) -> str:
    """Return the command that shows all rows of the table of draws; they may not have been written."""
    return f"stansub summary {shlex.quote(str(file)) if file else 'FILE'} --all"


def plot(
    draws: Draws,
    output_dir: Annotated[Path | None, into("Folder for the pictures, DRAWS_trace.png and DRAWS_data.png.")] = None,
    var_names: Annotated[list[str] | None, typer.Option("--var-name", help="Variable to show. Repeatable.")] = None,
    force: Annotated[bool, forcing("Overwrite the pictures.")] = False,
    quiet: Quiet = False,
) -> None:
    """Plot traces, ranks and, for subsampled draws, the share of the data that decisions used."""
    with stages(quiet=quiet) as log:
        log("Reading draws")
        from stansub.output import files, plots
        from stansub.output.inference_data import LARGE
        from stansub.run.reading import read_draws

        result = read_draws(draws, most=LARGE)
        makers: dict[str, Callable[[Path], None]] = {
            "trace": lambda path: plots.trace(result, path, var_names=var_names)
        }
        if plots.records_share(result):
            makers["data"] = lambda path: plots.share_of_data(result, path)
        folder = files.expanded(output_dir or draws.parent)
        names = {f"{draws.stem}_{kind}.png": make for kind, make in makers.items()}
        files.check_folder(folder, names, overwrite=force).mkdir(parents=True, exist_ok=True)
        for name, make in names.items():
            log(f"Drawing {name}")
            make(folder / name)
    for name in names:
        typer.echo(folder / name)
