"""`stansub diagnose`: test the normality assumption of the t-tests."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stansub.cli.flags import FlagConsole
from stansub.cli.options import (
    Columns,
    Data,
    Model,
    Quiet,
    forcing,
    shared,
    sources_of,
    taking,
    to_file,
)
from stansub.run.option import OUTPUT

if TYPE_CHECKING:
    from rich.console import Console

    from stansub.diagnostics.normality import NormalityTrial

_TRIAL = "Trial"
_WIDTH, _COLUMNS = 100, (8, 12, 11, 11, 20, 11, 11, 11)


@taking(
    shared("iter_warmup", 1000, text="Steps of the chain that supplies the pairs.", group=_TRIAL),
    shared("seed", default="drawn", group=_TRIAL),
    shared("inits", text="Radius of random inits on the unconstrained space, or a JSON file.", metavar="RADIUS|FILE"),
    "proposal",
    "control_variates",
    shared("test", text="The t-test to examine: pocock or austerity.", default="pocock"),
    shared("epsilon", text="Its error: per look (austerity), of a whole decision (pocock)."),
    "looks",
    "first_look",
    "block_size",
    "observations",
)
def diagnose(
    model: Model,
    data: Data,
    pairs: Annotated[int, typer.Option(help="Pairs of a state and a proposal to test.", rich_help_panel=_TRIAL)] = 40,
    subsets: Annotated[int, typer.Option(help="Subsets drawn for each pair and look.", rich_help_panel=_TRIAL)] = 500,
    output: Annotated[
        Path | None, to_file("Picture to write.", "FILE.png", "MODEL_normality.png in this folder", OUTPUT)
    ] = None,
    force: Annotated[bool, forcing("Overwrite the picture.", OUTPUT)] = False,
    quiet: Quiet = False,
    columns: Columns = None,
    **options: Any,
) -> None:
    """Test the normality assumption of the t-tests and suggest alternatives."""
    from stansub.diagnostics import normality
    from stansub.output import plots
    from stansub.report.normality_figure import figure

    picture = output or Path(f"{model.stem}_normality.png")
    plots.check_picture(picture, overwrite=force)
    result = normality.diagnose(
        model,
        sources_of(data, columns),
        pairs=pairs,
        subsets=subsets,
        **options,
        show_progress=not quiet,
        console=FlagConsole(stderr=True),
    )
    try:
        plots.save(figure(result), picture)
    finally:
        _print(result, FlagConsole())
    typer.echo(picture)


def _print(result: NormalityTrial, console: Console) -> None:
    """Print the verdict, the table of the tails, and what to do."""
    from rich.text import Text

    def write(text: str, style: str = "", *, hang: int = 0) -> None:
        for line in textwrap.wrap(text, _WIDTH, subsequent_indent=" " * hang) or [""]:
            console.print(Text(line, style=style), soft_wrap=True)

    write(result.headline, "bold green" if result.trusted else "bold yellow")
    for reason in (one.clause for one in result.reasons):
        write(f"  {reason[0].upper()}{reason[1:]}.", "yellow", hang=2)
    for advice in result.advice:
        write(f"  -> {advice}", hang=5)
    if result.note:
        write(result.note)
    write("")
    for label, text in _facts(result):
        write(f"{label:<13}{text}", hang=13)
    write("")
    header, *rows = _table(result)
    console.print(Text(header, style="bold"), soft_wrap=True)
    for row in rows:
        console.print(Text(row), soft_wrap=True)


def _facts(result: NormalityTrial) -> Iterator[tuple[str, str]]:
    from stansub.output.words import normality_trial

    test, seen = result.test, result.pairs[result.pairs["phase"] == "end"]
    blocks = f"{result.n_blocks:,} blocks of {result.block_size:,} observation{'s' * (result.block_size > 1)}"
    level = f" with {test.error.name} = {test.error.value:g}" if test.error else ""
    yield "Test", f"{test.name}{level} on {blocks}"
    yield (
        "Trial",
        f"{len(seen):,} pairs of a state and a proposal, {result.settings['subsets']:,} subsets for each pair and "
        f"look; seed {result.settings['seed']}",
    )
    yield "Normality", normality_trial(result.figures)
    yield (
        "Differences",
        f"between blocks: skewness up to {seen['skewness'].abs().max():.2g}, excess kurtosis up to "
        f"{seen['kurtosis'].max():.2g} (normal: 0), at most {seen['largest'].max():.3g} sd from their mean",
    )


def _table(result: NormalityTrial) -> Iterator[str]:
    """Yield how often |t| exceeds critical values: a header and a line per look."""
    from stansub.wording import percent

    ends = result.tails[result.tails["phase"] == "end"]
    levels = ends[~ends["in_use"]]["nominal"].round(6).unique()
    yield _row("blocks", "|t| beyond", "expected", "observed", "95 % interval", *(f"at {percent(p)}" for p in levels))
    for blocks, rows in ends.groupby("blocks"):
        own, others = rows[rows["in_use"]].iloc[0], rows[~rows["in_use"]]["observed"]
        between = f"{percent(own['low'])} to {percent(own['high'])}"
        shares = (percent(own["nominal"]), percent(own["observed"]), between, *(percent(share) for share in others))
        yield _row(f"{blocks:,}", f"{own['critical']:.2f}", *shares)


def _row(*cells: str) -> str:
    return "".join(f"{cell:>{width}}" for cell, width in zip(cells, _COLUMNS, strict=True))
