"""`stansub ppc`: replicated data beside the data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stansub.cli.flags import FlagConsole
from stansub.cli.options import (
    Columns,
    Draws,
    Moved,
    PartitionExecutor,
    Quiet,
    SubsetSeed,
    SubsetSize,
    forcing,
    into,
    sources_of,
    stages,
)


def ppc(
    draws: Draws,
    observations: SubsetSize = 1000,
    n_draws: Annotated[int, typer.Option("--draws", metavar="S", help="Number of replicated data sets.")] = 200,
    seed: SubsetSeed = 0,
    output_dir: Annotated[Path | None, into("Folder for DRAWS_ppc.nc and the picture, DRAWS_ppc.png.")] = None,
    force: Annotated[bool, forcing("Overwrite the files.")] = False,
    data: Moved = None,
    columns: Columns = None,
    executor: PartitionExecutor = None,
    quiet: Quiet = False,
) -> None:
    """Compare data with replicated data for a random subset of the observations (posterior predictive check).

    The program must have generated quantities such as y_rep for the data y. The file opens in ArviZ, whose
    plot_ppc_dist (plot_ppc before 1.0) draws it.
    """
    from stansub.diagnostics.ppc import ppc as predict
    from stansub.output import files, inference_data, plots

    folder = files.expanded(output_dir or draws.parent)
    table, picture = f"{draws.stem}_ppc.nc", f"{draws.stem}_ppc.png"
    files.check_folder(folder, [table, picture], overwrite=force).mkdir(parents=True, exist_ok=True)
    found = predict(
        draws,
        data=sources_of(data, columns) if data else None,
        observations=observations,
        n_draws=n_draws,
        seed=seed,
        executor=executor,
        show_progress=not quiet,
        console=FlagConsole(stderr=True),
    )
    with stages(quiet=quiet) as log:
        log(f"Drawing {picture}")
        inference_data.write(found, folder / table, overwrite=force)
        plots.predictive(found, folder / picture)
    for name in (table, picture):
        typer.echo(folder / name)
