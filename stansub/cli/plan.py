"""`stansub plan`: plan a run for a time budget."""

from __future__ import annotations

import json as json_module
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stansub.cli.flags import FlagConsole, flag_of
from stansub.cli.options import (
    Columns,
    Data,
    Json,
    Model,
    Quiet,
    forcing,
    sources_of,
    stages,
    taking,
    to_file,
    words_of,
)
from stansub.run.option import OUTPUT
from stansub.wording import aligned, percent

if TYPE_CHECKING:
    from stansub.planning.plan import BudgetPlan, PredictedMethod, PredictedNuts
    from stansub.planning.worst_case import WorstCase

_Budget = Annotated[
    str,
    typer.Option(
        metavar="TIME", help="Time for set-up, warmup and sampling, such as 90s, 10m or 1h30m, without compiling."
    ),
]
_Pilot = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="Time of the pilot's steps.", show_default="a tenth of the budget, 3 to 60"),
]
_Output = Annotated[Path | None, to_file("Picture to write.", "FILE", "MODEL_plan.png in this folder", OUTPUT)]
_Force = Annotated[bool, forcing("Overwrite the picture.", OUTPUT)]


@taking("chains", "parallel_chains", "seed", "block_size", "observations")
def plan(
    model: Model,
    data: Data,
    budget: _Budget = "10m",
    pilot: _Pilot = None,
    json: Json = False,
    output: _Output = None,
    force: _Force = False,
    quiet: Quiet = False,
    columns: Columns = None,
    **options: Any,
) -> None:
    """Plan a run for a time budget: test, error level, proposal and number of draws, compared with NUTS.

    A pilot measures the time per step, the mixing of the chains and the share of decisions that differ from exact ones.
    """
    from stansub.output import plots
    from stansub.planning import plan as working
    from stansub.report import plan_figure
    from stansub.run.config import SampleConfig

    picture = output or Path(f"{model.stem}_plan.png")
    plots.check_picture(picture, overwrite=force)
    seconds = working.parse_seconds(budget)
    sources = sources_of(data, columns)
    with stages(quiet=quiet) as progress:
        found = working.plan(
            model, sources, budget=seconds, config=SampleConfig(**options), pilot_seconds=pilot, progress=progress
        )
    try:
        plots.save(plan_figure.figure(found), picture)
    finally:
        if json:
            typer.echo(json_module.dumps(found.to_dict(), indent=1))
        else:
            for line in lines(found, model, words_of(data, columns)):
                typer.echo(line)
    FlagConsole(stderr=True).print(f"Picture: {picture}", soft_wrap=True)


def lines(found: BudgetPlan, model: Path, data: str) -> Iterator[str]:
    """Yield the table, the recommendation and the command."""
    header = ["", "ms/step", "steps/draw", "data", "differing", "risk", "(90 %)", "bias² at most"]
    yield from aligned([header, *(_row(found, one) for one in found.all)])
    best, own = found.best, found.own
    low, value, high = best.risk(found.budget)
    sure = "" if found.certain else "; the pilot cannot distinguish it from others"
    yield ""
    yield (
        f"Best within {found.budget:g} s: {best.label}, with a root mean squared error of the means of "
        f"{math.sqrt(value):.2g} sd ({math.sqrt(low):.2g} to {math.sqrt(high):.2g}){sure}."
    )
    if found.nuts is not None:
        cost = found.nuts.cost
        yield (
            f"The prediction for NUTS assumes {1e3 * cost.seconds:.3g} ms per gradient and {cost.leapfrog} leapfrog "
            "steps per draw, or half to twice as many."
        )
    if found.worst_case is not None:
        yield worst_case_line(found.worst_case)
    if best is not own:
        yield f"The best of stansub's own samplers is {own.label}; `stansub reference {model} {data}` runs NUTS."
    flags = " ".join(f"{flag_of(name)} {value}" for name, value in own.options(found.budget).items())
    yield f"stansub sample {model} {data} {flags}"


def worst_case_line(found: WorstCase) -> str:
    """Return the best choice in the worst case, with its assumptions."""
    best = found.optimum
    if found.nearest is None:
        what = "exact decisions"
    else:
        bounds = f"bound on the mean squared error {best.bound:.2g}, for exact decisions {best.exact:.2g}"
        what = f"{percent(best.epsilon)} wrong decisions, closest to {found.nearest} ({bounds})"
    return (
        f"Best in the worst case (compminimax): {what}, if alpha is {found.alpha:.2g}. This is the largest value that "
        "the pilot's autocorrelations allow; no run can confirm it."
    )


def _row(found: BudgetPlan, method: PredictedMethod | PredictedNuts) -> list[str]:
    low, value, high = method.risk(found.budget)
    risk = [f"{value:.2g}", f"{low:.1g} to {high:.1g}"] if math.isfinite(value) else ["not ready", ""]
    if method is found.nuts:
        return [
            method.label,
            f"{1e3 * found.nuts.cost.seconds * found.nuts.cost.leapfrog:.3g}",
            "1",
            "all",
            "0",
            *risk,
            "0",
        ]
    return _own_row(next(one for one in found.methods if one is method), risk)


def _own_row(method: PredictedMethod, risk: list[str]) -> list[str]:
    measurement = method.measurement
    audits = "0" if method.fixed else "as above"
    differing = audits if measurement.audits is None else f"{measurement.audits.differing} of {measurement.audits.n}"
    cells = [f"{1e3 * measurement.seconds:.3g}", f"{measurement.tau.mean():.1f}", percent(measurement.share), differing]
    return [method.label, *cells, *risk, "0" if method.exact else f"{method.bias2.high:.1g}"]
