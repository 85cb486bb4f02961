"""`stansub risk`: error of estimates against time, by error level."""

from __future__ import annotations

import math
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stansub.cli.flags import FlagConsole, as_flags
from stansub.cli.options import Columns, Data, Model, Quiet, forcing, into, shared, sources_of, taking
from stansub.errors import InterruptError
from stansub.run.option import DECISIONS, OUTPUT

if TYPE_CHECKING:
    import pandas as pd

    from stansub.diagnostics.risk_result import Risk

_RUNS = "Runs"


class TTestName(StrEnum):
    """Tests that have an epsilon."""

    pocock = "pocock"
    austerity = "austerity"


_Epsilons = Annotated[
    str,
    typer.Option(metavar="LIST", help="Error levels, separated by commas. 0 means exact.", rich_help_panel=DECISIONS),
]
_Test = Annotated[TTestName, typer.Option(help="Sequential test of each decision.", rich_help_panel=DECISIONS)]
_Audit = Annotated[
    float,
    typer.Option(help="Share of steps to audit after each run. Its time does not count.", rich_help_panel=DECISIONS),
]
_Repeats = Annotated[int, typer.Option(help="Runs of each level, at least 3.", rich_help_panel=_RUNS)]
_MaxTime = Annotated[float | None, typer.Option(help="Seconds of a run.", show_default="10", rich_help_panel=_RUNS)]
_MaxSteps = Annotated[
    int | None, typer.Option(help="Steps of a run, instead of or in addition to a time.", rich_help_panel=_RUNS)
]
_Reference = Annotated[
    str,
    typer.Option(
        metavar="nuts|exact|FILE.nc",
        help="Source of the truth. NUTS or long exact chains, which run first, or a file of draws.",
        rich_help_panel=_RUNS,
    ),
]
_Quantities = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Quantity to track in addition to the parameters; repeatable, '' for none.",
        show_default="log_lik and y_rep, if the program has them",
        rich_help_panel=_RUNS,
    ),
]
_OutputDir = Annotated[
    Path, into("Folder for picture and figures, MODEL_risk.png and MODEL_risk.json.", "this folder", OUTPUT)
]
_Force = Annotated[bool, forcing("Overwrite the output.", OUTPUT)]


@taking(
    "looks",
    "first_look",
    shared("parallel_chains", text="Number of runs at once.", group=_RUNS),
    shared(
        "inits",
        text="Starting values as in `stansub sample`, so that the curves include burn-in.",
        default="draws of the reference",
        group=_RUNS,
    ),
    shared("seed", group=_RUNS),
    "block_size",
    "observations",
)
def risk(
    model: Model,
    data: Data,
    epsilon: _Epsilons = "0,0.01,0.05,0.1,0.2",
    test: _Test = TTestName.pocock,
    audit: _Audit = 0.02,
    repeats: _Repeats = 8,
    max_time: _MaxTime = None,
    max_steps: _MaxSteps = None,
    reference: _Reference = "nuts",
    quantity: _Quantities = None,
    output_dir: _OutputDir = Path(),
    force: _Force = False,
    quiet: Quiet = False,
    columns: Columns = None,
    **options: Any,
) -> None:
    """Show the error of posterior means and variances against time, for several error levels.

    Every level runs several times from the same starting values, by a random walk without control variates. Ctrl-C
    shows the finished runs.
    """
    from stansub.diagnostics import risk as working
    from stansub.output import files, plots
    from stansub.report import risk_figure

    names = [f"{model.stem}_risk.png", f"{model.stem}_risk.json"]
    folder = files.check_folder(output_dir, names, overwrite=force)
    console = FlagConsole(stderr=True)
    found = working.risk(
        model,
        sources_of(data, columns),
        epsilons=working.parse_epsilons(epsilon),
        test=test.value,
        repeats=repeats,
        max_time=max_time,
        max_steps=max_steps,
        reference=reference,
        quantities=None if quantity is None else [name for name in quantity if name],
        audit=audit,
        **options,
        show_progress=not quiet,
        console=console,
    )
    with suppress(OSError):  # writing the figures fails then, and keeps them elsewhere
        folder.mkdir(parents=True, exist_ok=True)
    picture, figures = (files.expanded(output_dir) / name for name in names)
    try:
        working.write(found, figures)
        plots.save(risk_figure.figure(found), picture)
    finally:
        _print(found)
    console.print(f"Picture: {picture}\nFigures: {figures}", soft_wrap=True)
    if found.facts["stopped"] == "interrupted":
        raise typer.Exit(InterruptError.WRITTEN)


def _print(found: Risk) -> None:
    """Print the tables, their conclusions and notes."""
    from stansub.diagnostics.risk_result import headlines

    for line in _lines(found):
        typer.echo(line)
    for line in headlines(found):
        typer.echo(f"{line[0].upper()}{line[1:]}.")
    for note in found.notes:
        typer.echo(as_flags(f"Note: {note}."))


def _lines(found: Risk) -> list[str]:
    """Return the cost of decisions, then risk, squared bias and variance of each group of test functions."""
    from stansub.diagnostics.risk_result import label
    from stansub.wording import percent

    rows = [["epsilon", "steps", "accepted", "data", "passes/step", "wrong decisions", "(95 %)"]]
    for epsilon, row in found.settings.iterrows():
        audited = row["audited"] > 0
        rows.append(
            [
                f"{epsilon:g}" if epsilon else "exact",
                f"{row['steps']:,.0f}",
                percent(row["acceptance"]),
                percent(row["share"]),
                f"{row['passes']:.2f}",
                f"{row['wrong']:,} of {row['audited']:,}" if audited else "-",
                f"{percent(row['error_low'])} to {percent(row['error_high'])}" if audited else "",
            ]
        )
    lines = [*_aligned(rows), ""]
    for what, part in found.final.groupby("what", sort=False):
        lines.append(f"Risk of the {label(str(what))} (error of the truth: {found.facts['floor'][what]:.1g})")
        lines += [*_aligned([["epsilon", "risk", "squared bias", "variance"], *_risks(part.droplevel("what"))]), ""]
    return lines


def _risks(part: pd.DataFrame) -> list[list[str]]:
    return [
        [
            f"{epsilon:g}" if epsilon else "exact",
            *(_with_error(row[name], row[f"{name}_se"]) for name in ("mse", "bias2", "variance")),
        ]
        for epsilon, row in part.iterrows()
    ]


def _with_error(value: float, error: float) -> str:
    """Both to the second digit of the error."""
    decimals = min(9, max(0, 1 - math.floor(math.log10(error)))) if error > 0 else 6
    return f"{value:.{decimals}f} +- {error:.{decimals}f}"


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
