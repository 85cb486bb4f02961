"""The report: verdicts, a table of what was compared, what the planner's mixture foretells, and a picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from comparison import Outcome
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from stansub.output import plots
from stansub.output.style import CHAIN_COLOURS, INK, STYLE

if TYPE_CHECKING:
    from run import Made, Place

VERDICTS = ("the fixed level is better", "the decreasing level is better", "no significant difference")


def conclusion(outcomes: Sequence[Outcome]) -> str:
    """All comparisons in a sentence."""
    counts = Counter(one.verdict for one in outcomes)
    fixed, falling, unclear = (counts[verdict] for verdict in VERDICTS)
    n = len(outcomes)
    if not fixed and not falling:
        return f"None of {n} comparisons shows a significant difference."
    parts = [
        f"the best fixed level has the lower risk in {fixed}" if fixed else "",
        f"the best decreasing level in {falling}" if falling else "",
        f"the difference is not significant in {unclear}" if unclear else "",
    ]
    loser = " A decreasing level is never better." if not falling else ""
    loser = loser or (" A decreasing level is never worse." if not fixed else "")
    return f"Of {n} comparisons, {', '.join(part for part in parts if part)}.{loser}"


def ranges(outcomes: Sequence[Outcome]) -> str:
    """The ratios in words."""
    ratios = [one.ratio for one in outcomes]
    return f"{min(ratios):.2g} to {max(ratios):.2g}"


def cells(place: Place, one: Outcome) -> list[str]:
    """A row of the table."""
    seconds = f"{one.seconds[0]:.2g}, {one.seconds[1]:.2g}"
    return [
        place.posterior,
        place.start,
        f"{one.passes:.0f}",
        str(one.fixed),
        str(one.falling),
        f"{one.fixed_risk:.2g}",
        f"{one.falling_risk:.2g}",
        f"{one.ratio:.2f} ({one.low:.2f} to {one.high:.2f})",
        seconds,
        one.verdict,
    ]


def hit(row: Mapping[str, Any]) -> bool:
    """Whether the risk that was foretold is within two standard errors, or a tenth, of the real one."""
    return bool(abs(row["predicted"] - row["risk"]) <= 2 * row["error"] + 0.1 * row["risk"])


def text(
    outcomes: Mapping[Place, Outcome], predictions: Sequence[Mapping[str, Any]], *, size: str, seed: int,
    replicates: int, alarm: float,
) -> str:  # fmt: skip
    """The page."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).resolve().parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found = list(outcomes.values())
    near = [one for place, one in outcomes.items() if place.start == "in the posterior"]
    far = [one for place, one in outcomes.items() if place.start != "in the posterior"]
    foretold = [
        [
            row["posterior"],
            row["fall"],
            f"{row['passes']:.0f}",
            f"{row['predicted']:.2g}",
            f"{row['risk']:.2g} ± {row['error']:.1g}",
            "hit" if hit(row) else "miss",
        ]
        for row in predictions
    ]
    return environment.get_template("page.md").render(
        command=f"python benchmarks/falling/run.py --size {size} --seed {seed} --force",
        conclusion=conclusion(found),
        near=conclusion(near),
        far=conclusion(far),
        near_ratios=ranges(near),
        far_ratios=ranges(far),
        rows=[cells(place, one) for place, one in outcomes.items()],
        foretold=foretold,
        hits=sum(hit(row) for row in predictions),
        replicates=replicates,
        n=len(found),
        percent=f"{100 * (1 - alarm / len(found)):.2f}",
        together=f"{100 * (1 - alarm):.0f}",
    )


def draw(made: Mapping[Place, Made], path: Path) -> None:
    """Risk of the mean of all draws against passes: lines for fixed levels, marks where falls ended."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        rows = len(made) // 2
        picture = Figure(figsize=(9, 3.5 * rows), layout="constrained")
        axes = picture.subplots(rows, 2).ravel()
        for ax, (place, runs) in zip(axes, made.items(), strict=True):
            for colour, (level, one) in zip((INK, *CHAIN_COLOURS), runs.fixed.items(), strict=False):
                n = np.unique(np.geomspace(5, len(one.passes), 40).astype(int))
                risks = [one.losses(int(steps), half=False).mean() for steps in n]
                ax.plot(one.passes[n - 1], risks, color=colour, linewidth=1.5, label=f"epsilon {level:g}")
            for own in runs.falling.values():
                for marker, (levels, one) in zip("osDv", own.items(), strict=False):
                    risk = one.losses(len(one.passes), half=False).mean()
                    label = f"{levels[0]:g} to {levels[1]:g}" if own is next(iter(runs.falling.values())) else None
                    style = {"color": INK, "markerfacecolor": "white", "markersize": 6, "linestyle": "none"}
                    ax.plot(one.passes[-1], risk, marker=marker, label=label, **style)
            ax.set(xscale="log", yscale="log", xlabel="passes over the data", ylabel="risk (posterior sd²)")
            ax.set_title(f"{place.posterior}, {place.start}", loc="left")
        picture.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper")
        plots.save(picture, path)
