"""Picture of a normality trial."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import betaincinv, ndtri, stdtrit

from stansub.acceptance.normality import TOLERATED, Trial, spaced
from stansub.output.style import BLUE, CHAIN_COLOURS, ERROR_COLOUR, INK, blank, entitle, literal, styled
from stansub.wording import percent

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from stansub.diagnostics.normality import NormalityTrial

# Statistics beyond this multiple of the largest expected one are drawn at the edge.
_REACH = 2.0
# Style of a legend over lines.
_BACKED: Any = {"frameon": True, "framealpha": 0.9, "edgecolor": "none"}


@styled
def figure(result: NormalityTrial) -> Figure:
    """Draw t against Student's t, how often |t| exceeds critical values, and the spread of the block differences.

    The pairs are those from the later half of the trial chain.
    """
    trial = result.trials["end"]
    picture = blank(12, 4.6)
    quantiles, tails, differences = picture.subplots(1, 3)
    _student_quantiles(quantiles, trial)
    _exceedance(tails, result.tails[result.tails["phase"] == "end"])
    _difference_quantiles(differences, trial)
    blocks = f"{result.n_blocks:,} blocks of {result.block_size:,}"
    title = f"{literal(result.model)}: {result.headline[0].lower()}{result.headline[1:-1]} ({blocks})"
    entitle(picture, title, colour=INK if result.trusted else ERROR_COLOUR)
    return picture


def _student_quantiles(ax: Axes, trial: Trial) -> None:
    """Draw quantiles of t at each look against those of Student's t, with the band of independent subsets."""
    n = trial.t[0].size
    probabilities = spaced(n)
    ranks = probabilities * n
    widest = float(-stdtrit(int(trial.blocks[0]) - 1, probabilities[0]))
    edge = _REACH * widest
    low, high = (betaincinv(ranks + 0.5, n - ranks + 0.5, level) for level in (0.025, 0.975))
    expected = stdtrit(int(trial.blocks[0]) - 1, probabilities)
    ax.fill_between(
        expected,
        stdtrit(int(trial.blocks[0]) - 1, low),
        stdtrit(int(trial.blocks[0]) - 1, high),
        color="#D9D9D9",
        linewidth=0,
        label="95 % band",
    )
    ax.plot([-widest, widest], [-widest, widest], color=INK, linewidth=0.8)
    for colour, blocks, t in zip(CHAIN_COLOURS, trial.blocks.tolist(), trial.t, strict=False):
        defined = t[~np.isnan(t)]
        if defined.size:
            found = np.clip(np.quantile(defined, probabilities), -edge, edge)
            ax.plot(
                stdtrit(blocks - 1, probabilities),
                found,
                ".",
                markersize=3.5,
                color=colour,
                label=f"{blocks:,} blocks",
                clip_on=False,
            )
    for sign in (-1, 1):
        label = f"critical value at {int(trial.blocks[0]):,}" if sign == 1 else None
        ax.axhline(sign * trial.critical[0], color=ERROR_COLOUR, linewidth=0.8, linestyle=(0, (4, 3)), label=label)
    ax.set(
        xlabel="Student's t",
        ylabel="t of random subsets (values beyond are at the edge)",
        xlim=(-widest * 1.05, widest * 1.05),
        ylim=(-edge, edge),
    )
    ax.set_title("Quantiles of t: on the line if the test is valid", loc="left")
    ax.legend(loc="lower right", fontsize=8, **_BACKED)


def _exceedance(ax: Axes, tails: pd.DataFrame) -> None:
    """Draw the share of subsets beyond critical values against the expected share, with intervals."""
    seen_at_all = tails["observed"][tails["observed"] > 0]
    least = min(tails["nominal"].min() / 10, seen_at_all.min() / 2 if len(seen_at_all) else 1.0)
    expected = np.array([tails["nominal"].min() / 2, 0.12])
    ax.fill_between(expected, expected * 0 + least, TOLERATED * expected, color="#E8F2EC", linewidth=0)
    ax.plot(expected, expected, color=INK, linewidth=0.8)
    looks = list(tails.groupby("blocks"))
    for index, (colour, (blocks, rows)) in enumerate(zip(CHAIN_COLOURS, looks, strict=False)):
        at = rows["nominal"].to_numpy() * 1.07 ** (index - (len(looks) - 1) / 2)  # side by side
        seen = rows["observed"].to_numpy()
        some, in_use = seen > 0, rows["in_use"].to_numpy()
        ax.vlines(at, np.maximum(rows["low"], least), rows["high"], color=colour, linewidth=1)
        ax.plot(at[some & ~in_use], seen[some & ~in_use], "o", color=colour, markersize=4, label=f"{blocks:,} blocks")
        ax.plot(at[some & in_use], seen[some & in_use], "D", color=colour, markersize=6, markeredgecolor=INK)
        ax.plot(at[~some], rows["high"].to_numpy()[~some], "v", color=colour, markersize=5, markerfacecolor="none")
    ax.plot([], [], "D", color="white", markersize=6, markeredgecolor=INK, label="critical value in use")
    ax.set(xscale="log", yscale="log", xlim=expected, ylim=(least, 1.3))
    ax.set(xlabel="Share expected for Student's t", ylabel="Share of the subsets beyond")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(lambda share, _: percent(share))
    ax.set_title("Tails of t: in the shaded area if tolerable", loc="left")
    ax.legend(loc="lower right", fontsize=8, **_BACKED)


def _difference_quantiles(ax: Axes, trial: Trial) -> None:
    """Draw quantiles of the standardised block differences of each pair against normal ones."""
    expected = ndtri(spaced(trial.n_units))
    # A reverse step has the same differences with opposite sign, so longer tails are drawn on the right.
    turned = np.where(trial.skewness[:, None] < 0, -trial.quantiles[:, ::-1], trial.quantiles)
    for row, values in enumerate(turned):
        ax.plot(
            expected,
            values,
            color=BLUE,
            linewidth=0.8,
            alpha=0.4,
            label="a pair of state and proposal" if row == 0 else None,
        )
    ends = expected[[0, -1]]
    ax.plot(ends, ends, color=INK, linewidth=0.8, label="normal")
    ax.set(xlabel="Normal quantiles", ylabel="Differences of blocks, in sd")
    ax.set_title("Block differences: on the line if normal", loc="left")
    ax.legend(loc="upper left", fontsize=8)
