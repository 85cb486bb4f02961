"""`stansub check` and `stansub doctor`: check a program and this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from stansub.cli.flags import FlagConsole
from stansub.cli.options import Columns, Model, Quiet, forcing, shared, sources_of, taking


@taking(
    shared("observations", group="", default="", common=True),
    shared("inits", text="Values near which the proof is tried: a JSON file.", group="", metavar="FILE.json"),
)
def check(
    model: Model,
    data: Annotated[
        list[str] | None,
        typer.Argument(metavar="DATA", help="Data, for a numerical proof.", show_default=False),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.stan",
            help="Convert old arrays (`real x\\[N]`), comments (`#`) and assignments (`<-`), in a new file.",
        ),
    ] = None,
    force: Annotated[bool, forcing("Overwrite that file.")] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", help="Show which rows each term depends on, and which programs are compiled and why."
        ),
    ] = False,
    columns: Columns = None,
    quiet: Quiet = False,
    **options: Any,
) -> None:
    """Check whether a program can be subsampled, and show its likelihood and its global part.

    Exit codes: 0 the program qualifies (proved with data), or --write wrote it; 5 it may qualify; 2 it does not
    qualify, or program or data are invalid.
    """
    from stansub import checking

    code = checking.report(
        model,
        sources_of(data, columns) if data else None,
        **options,
        console=FlagConsole(),
        progress=None if quiet else FlagConsole(stderr=True),
        write=write,
        overwrite=force,
        verbose=verbose,
    )
    if code:
        raise typer.Exit(code)


def doctor(
    clear: Annotated[bool, typer.Option("--clear", help="Remove all compiled programs from the cache first.")] = False,
) -> None:
    """Show compiler, stanc, BridgeStan, versions and cache, with a remedy for anything missing or damaged.

    Marks: ok, -- for what is missing or damaged (exit code 1), and ! for what failed but is not needed.
    """
    from stansub.stan.toolchain import doctor

    if clear:
        typer.echo(doctor.clear(), err=True)
    checks = doctor.examine()
    console = FlagConsole()
    width = max(len(one.name) for one in checks)
    for one in checks:
        mark = ("ok", "green") if one.ok else ("--", "red") if one.is_needed else ("! ", "yellow")
        console.print(Text.assemble(mark, f"  {one.name:<{width}}  {one.value}"), soft_wrap=True)
        if not one.ok and one.remedy:
            console.print(f"    {'':<{width}}  {one.remedy}", style="yellow", soft_wrap=True)
    if not all(one.ok or not one.is_needed for one in checks):
        raise typer.Exit(1)
