"""`stansub loo`: leave-one-out cross-validation of draws, and comparisons of models by it."""

from __future__ import annotations

import json as json_module
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from stansub.cli.flags import FlagConsole
from stansub.cli.options import (
    Columns,
    Json,
    Moved,
    PartitionExecutor,
    Quiet,
    SubsetSeed,
    SubsetSize,
    sources_of,
)


class ScaleName(StrEnum):
    """Scales of the result, as ArviZ calls them."""

    log = "log"
    negative_log = "negative_log"
    deviance = "deviance"


def loo(
    draws: Annotated[
        list[Path],
        typer.Argument(metavar="DRAWS.nc", help="Files written by `stansub sample`; two or more are compared."),
    ],
    observations: SubsetSize = 1000,
    seed: SubsetSeed = 0,
    scale: Annotated[
        ScaleName, typer.Option(help="log: elpd; negative_log: -elpd; deviance: -2 elpd.")
    ] = ScaleName.log,
    data: Moved = None,
    columns: Columns = None,
    executor: PartitionExecutor = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Estimate the expected log predictive density by PSIS-LOO on a random subset of the observations.

    A pass over the data at the posterior mean corrects for the observations that are left out of the subset. Models are
    compared on the same subset.
    """
    from stansub.diagnostics.elpd import loo_compare
    from stansub.diagnostics.loo import loo as leave_out
    from stansub.errors import InputError
    from stansub.output.plain import plain

    if len(set(draws)) < len(draws):
        raise InputError("the same file was given twice; name two different ones")
    sources, console = sources_of(data, columns) if data else None, FlagConsole(stderr=True)
    found = {
        str(path): leave_out(
            path,
            data=sources,
            observations=observations,
            seed=seed,
            scale=scale.value,
            executor=executor,
            show_progress=not quiet,
            console=console,
        )
        for path in draws
    }
    compared = loo_compare(found) if len(found) > 1 else None
    if json:
        figures = {"models": {name: one.to_dict() for name, one in found.items()}}
        rows = {} if compared is None else {"comparison": compared.to_dict("index")}
        typer.echo(json_module.dumps(plain(figures | rows), indent=1))
        return
    for name, one in found.items():
        typer.echo(f"{name}: {one}\n" if compared is not None else str(one))
    if compared is not None:
        typer.echo(compared.to_string(float_format="{:.2f}".format))
