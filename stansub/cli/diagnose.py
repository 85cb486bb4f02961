"""`stansub diagnose`: can the t-test be trusted with these data?"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from stansub.cli.flags import spelled
from stansub.cli.options import (
    DECISIONS,
    OUTPUT,
    BlockSize,
    Data,
    Debug,
    Evaluator,
    EvaluatorName,
    FirstLook,
    Looks,
    Model,
    Observations,
    OrderName,
    ProposalName,
    Quiet,
    TestName,
)

if TYPE_CHECKING:
    from stansub.diagnostics.normality import NormalityTrial

_TRIAL = "Trial"
_WIDTH, _COLUMNS = 100, (8, 12, 11, 11, 20, 11, 11, 11)


def diagnose(
    model: Model,
    data: Data,
    pairs: Annotated[
        int, typer.Option(help="Pairs of a state and a proposal that are tried.", rich_help_panel=_TRIAL)
    ] = 40,
    subsets: Annotated[int, typer.Option(help="Subsets drawn for each pair and look.", rich_help_panel=_TRIAL)] = 500,
    iter_warmup: Annotated[
        int, typer.Option(help="Steps of the chain that the pairs are taken from.", rich_help_panel=_TRIAL)
    ] = 1000,
    seed: Annotated[int | None, typer.Option(help="Random seed.", show_default="drawn", rich_help_panel=_TRIAL)] = None,
    inits: Annotated[
        str | None,
        typer.Option(
            metavar="RADIUS|FILE",
            help="Radius of random inits on the unconstrained space, or a JSON file.",
            show_default="widely about the mode; 2 where there is none",
            rich_help_panel=_TRIAL,
        ),
    ] = None,
    proposal: Annotated[
        ProposalName, typer.Option(help="Proposal, as in `stansub sample`.", rich_help_panel=_TRIAL)
    ] = ProposalName.auto,
    control_variates: Annotated[
        OrderName, typer.Option(help="Order of the control variates.", rich_help_panel=DECISIONS)
    ] = OrderName.auto,
    test: Annotated[
        TestName | None,
        typer.Option(help="The t-test to try: pocock or austerity.", show_default="pocock", rich_help_panel=DECISIONS),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="Its error: per look (austerity), of a whole decision (pocock).", rich_help_panel=DECISIONS),
    ] = None,
    looks: Looks = None,
    first_look: FirstLook = None,
    block_size: BlockSize = None,
    observations: Observations = None,
    evaluator: Evaluator = EvaluatorName.auto,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.png",
            help="Picture to write.",
            show_default="MODEL_normality.png in this folder",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the picture.", rich_help_panel=OUTPUT)] = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Try whether subset means are as near to normal as the t-tests take for granted, and say what to do if not."""
    from stansub.diagnostics import normality
    from stansub.output import plots
    from stansub.report.normality_figure import figure
    from stansub.run.inits import parse

    picture = output or Path(f"{model.stem}_normality.png")
    plots.check_picture(picture, overwrite=force)
    result = normality.diagnose(
        model,
        data,
        test=test.value if test else None,
        epsilon=epsilon,
        looks=looks.value if looks else None,
        first_look=first_look,
        block_size=block_size,
        observations=observations,
        evaluator=evaluator.value,
        pairs=pairs,
        subsets=subsets,
        iter_warmup=iter_warmup,
        seed=seed,
        inits=parse(inits) if inits is not None else None,
        proposal=proposal.value,
        control_variates=control_variates.value,
        show_progress=not quiet,
        console=Console(stderr=True),
    )
    try:
        plots.save(figure(result), picture)
    finally:
        _print(result, Console())
    typer.echo(picture)


def _print(result: NormalityTrial, console: Console) -> None:
    """The verdict, the table of the tails, and what to do."""
    from rich.text import Text

    from stansub.output.words import clause

    def write(text: str, style: str = "", *, hang: int = 0) -> None:
        for line in textwrap.wrap(spelled(text), _WIDTH, subsequent_indent=" " * hang) or [""]:
            console.print(Text(line, style=style), soft_wrap=True)

    write(result.headline, "bold green" if result.trusted else "bold yellow")
    for reason in map(clause, result.reasons):
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
    yield "Test", f"{test.name} with epsilon = {getattr(test, 'epsilon', 0):g} on {blocks}"
    yield (
        "Trial",
        f"{len(seen):,} pairs of a state and a proposal, {result.settings['subsets']:,} subsets of each at every look; "
        f"seed {result.settings['seed']}",
    )
    yield "Normality", normality_trial(result.figures)
    yield (
        "Differences",
        f"of the blocks: skewness up to {seen['skewness'].abs().max():.2g}, excess kurtosis up to "
        f"{seen['kurtosis'].max():.2g} (normal: 0), the largest {seen['largest'].max():.3g} sd from their mean",
    )


def _table(result: NormalityTrial) -> Iterator[str]:
    """How often |t| is beyond critical values: a header and a line a look."""
    from stansub.output.words import percent

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
