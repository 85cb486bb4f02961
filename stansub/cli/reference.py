"""`stansub reference`: NUTS on the same program and data."""

from __future__ import annotations

import inspect
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from stansub.cli.draws import in_full
from stansub.cli.flags import FlagConsole
from stansub.cli.options import (
    Columns,
    Data,
    Model,
    Quiet,
    declared,
    forcing,
    shared,
    sources_of,
    taking,
    to_file,
)


class EngineName(StrEnum):
    """Engines that make a reference."""

    auto = "auto"
    cmdstan = "cmdstan"
    nutpie = "nutpie"
    exact = "exact"


def of_nuts(*, group: str = "", seed: str) -> list[inspect.Parameter]:
    """Return the options of a run of NUTS, in a panel of the help, which says where a seed comes from by default."""
    return [
        shared("chains", None, default="4", group=group),
        shared("parallel_chains", text="Number of chains to run at once.", group=group),
        shared("iter_warmup", None, text="Warmup iterations, per chain.", default="1000", group=group),
        shared("iter_sampling", None, text="Iterations after warmup, per chain.", default="1000", group=group),
        shared("seed", default=seed, group=group),
        declared(
            "engine",
            EngineName,
            EngineName.auto,
            help="Engine: auto, cmdstan, nutpie or exact. auto is CmdStan if it is installed, otherwise nutpie; exact "
            "is stansub itself with every decision on all the data, without NUTS.",
            metavar="NAME",
            rich_help_panel=group or None,
        ),
        declared(
            "reference_model",
            Path | None,
            None,
            metavar="OTHER.stan",
            help="A faster formulation of the same posterior to run instead.",
            rich_help_panel=group or None,
        ),
        declared(
            "adapt_delta",
            float | None,
            None,
            help="Target acceptance rate of warmup.",
            show_default="0.8",
            rich_help_panel=group or None,
        ),
        declared(
            "max_treedepth",
            int | None,
            None,
            help="Maximum tree depth.",
            show_default="10",
            rich_help_panel=group or None,
        ),
    ]


@taking(*of_nuts(seed="drawn, and written to the output"))
def reference(
    model: Model,
    data: Data,
    install_cmdstan: Annotated[
        bool, typer.Option("--install-cmdstan", help="Use CmdStan, and install it first if it is missing.")
    ] = False,
    output: Annotated[
        Path | None,
        to_file("NetCDF file to write, or to reuse if it fits.", "FILE.nc", "MODEL_reference.nc in this folder"),
    ] = None,
    force: Annotated[bool, forcing("Run again and overwrite the output file.")] = False,
    quiet: Quiet = False,
    columns: Columns = None,
    **options: Any,
) -> None:
    """Sample the posterior with NUTS, as a reference for subsampled draws.

    An existing reference is reused if model, data and settings are the same.
    """
    from stansub.nuts import reference_cache
    from stansub.nuts.reference import describe, reservations
    from stansub.output import inference_data, summary

    console = FlagConsole(stderr=True)
    kept = reference_cache.obtain(
        model,
        sources_of(data, columns),
        path=output or reference_cache.default_path(model.stem),
        force=force,
        **options,
        install_cmdstan=install_cmdstan,
        show_progress=not quiet,
        console=console,
    )
    facts = inference_data.attrs(kept.draws)
    where = (
        f"Reference: {kept.path}" if kept.made else f"Reference: {kept.path} (reused; use --force to run NUTS again)"
    )
    for line in (describe(facts), where):
        console.print(line, soft_wrap=True)
    if facts.get("equivalence"):
        console.print(f"Reference model {facts['equivalence']}", soft_wrap=True)
    summary.render(kept.draws, FlagConsole(), full=in_full(kept.path))
    if doubts := reservations(facts):
        FlagConsole().print(f"Do not trust this reference: {'; '.join(doubts)}.", style="bold red")
