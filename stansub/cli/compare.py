"""`stansub compare`: draws compared with NUTS."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from stansub.cli.flags import FlagConsole, as_code
from stansub.cli.options import Columns, Draws, Quiet, forcing, into, moving, sources_of, stages, taking
from stansub.cli.reference import of_nuts
from stansub.run.option import OUTPUT

_REFERENCE = "Reference"

_Stored = Annotated[
    Path | None,
    typer.Argument(
        metavar="REFERENCE.nc",
        help="Draws to compare with, from `stansub reference` or other software. Default: draws from NUTS.",
    ),
]
_VarNames = Annotated[list[str] | None, typer.Option("--var-name", help="Variable to compare. Repeatable.")]
_Moved = Annotated[list[str] | None, moving(_REFERENCE)]
_OutputDir = Annotated[
    Path | None,
    into(
        "Folder for the report. It gets report.html, report.md with its pictures, and comparison.json.",
        "reports/MODEL",
        OUTPUT,
    ),
]
_Json = Annotated[
    Path | None,
    typer.Option(metavar="FILE.json", help="Write only the figures, without a report.", rich_help_panel=OUTPUT),
]
_Force = Annotated[bool, forcing("Overwrite a report. A stored reference that does not fit is replaced.", OUTPUT)]


@taking(*of_nuts(group=_REFERENCE, seed="derived from that of the draws"))
def compare(
    draws: Draws,
    reference: _Stored = None,
    var_names: _VarNames = None,
    data: _Moved = None,
    output_dir: _OutputDir = None,
    json: _Json = None,
    force: _Force = False,
    quiet: Quiet = False,
    columns: Columns = None,
    **options: Any,
) -> None:
    """Compare draws with NUTS: print a verdict and the savings, and write a report.

    Without REFERENCE.nc, the command uses the reference stored next to the draws (MODEL_reference.nc) if it fits, or
    runs NUTS and stores its draws there.
    """
    from stansub.diagnostics.compare import compare as put_beside
    from stansub.errors import MISSED_MODE, InputError
    from stansub.output import files, inference_data
    from stansub.output.record import missed_modes
    from stansub.report import brief, render
    from stansub.run.reading import read_draws

    if json is not None and output_dir is not None:
        raise InputError("--json prints the figures and writes no report: leave out --json or --output-dir")
    own = read_draws(draws)
    folder = output_dir or Path("reports", str(inference_data.attrs(own).get("model", draws.stem)))
    if json is not None:
        files.check_target(json, overwrite=force)
    else:
        render.check_folder(folder, overwrite=force)
    console = FlagConsole(stderr=True)
    comparison = put_beside(
        draws,
        reference,
        data=sources_of(data, columns) if data else None,
        **options,
        var_names=var_names,
        force=force,
        show_progress=not quiet,
        console=console,
    )
    try:
        with stages(quiet=quiet) as log:
            log("Writing the report")
            if json is not None:
                written = [render.write_figures(comparison, json, overwrite=force)]
            else:
                written = list(render.write(comparison, folder, overwrite=force, spell=as_code)[:3])
    finally:
        brief.render(comparison, FlagConsole())
    typer.echo("")
    for path in written:
        typer.echo(path)
    if missed_modes(inference_data.attrs(own)):
        raise typer.Exit(MISSED_MODE)
