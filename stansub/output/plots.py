"""Pictures of a run: traces with ranks, pairs, predictive checks and the share of the data used."""

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stansub.errors import InputError
from stansub.output import files
from stansub.output.inference_data import InferenceData, attrs, group, groups
from stansub.output.record import error_level
from stansub.output.statistics import affordable, count, scalars, table
from stansub.output.style import (
    CHAIN_COLOURS,
    DPI,
    ERROR_COLOUR,
    INK,
    blank,
    clipped,
    count_ticks,
    entitle,
    few_ticks,
    literal,
    percent_ticks,
    scale_shares,
    styled,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_RANK_BINS = 20
_PREDICTIVE_BINS, _INTEGER_BINS = 40, 60
# Most correlated quantities and draws in a picture of pairs, and replicated data sets in one of predictions.
_PAIRED, _PAIR_DRAWS, _REPLICATED = 4, 1000, 50
# Larger figures overflow the lengths of axes.
_LARGEST = 1e300


@styled
def trace(
    idata: "InferenceData",
    path: str | os.PathLike[str],
    *,
    var_names: Sequence[str] | None = None,
    max_vars: int = 8,
) -> None:
    """Draw the trace of each quantity and, beside it, rank histograms of its draws in each chain.

    If chains agree, the rank histograms are level (Vehtari et al. 2021).

    Parameters
    ----------
    path
        File to write; its suffix (.png, .pdf, .svg) is the format.
    max_vars
        Maximum number of scalar quantities; if there are more, those with the highest R-hat are drawn.

    Raises
    ------
    InputError
        If a variable or the format is unknown.
    RunError
        If the file cannot be written.
    """
    names, draws = scalars(idata, var_names, max(affordable(idata), max_vars))
    note = ""
    if len(names) > max_vars:
        worst = table(idata, percentiles=(), var_names=var_names, max_rows=len(names))["r_hat"].fillna(0).to_numpy()
        shown = np.sort(np.argsort(-worst, kind="stable")[:max_vars])
        note = f", the {max_vars} of {len(names):,} quantities with the highest R-hat"
        if left := count(idata, var_names) - len(names):
            note += f"; {left:,} left out"
        names, draws = [names[k] for k in shown], draws[..., shown]
    figure, axes = _grid(rows=max(len(names), 1), height=1.45)
    for row, name in enumerate(names):
        _trace_of(axes[row][0], name, draws[..., row])
        _ranks_of(axes[row][1], draws[..., row])
    for row in axes[:-1]:
        for ax in row:
            ax.tick_params(labelbottom=False)
    figure.align_ylabels(axes[:, 0])
    axes[0][0].set_title("Trace", loc="left")
    axes[0][1].set_title("Ranks among all draws, per chain", loc="left")
    axes[-1][0].set_xlabel("Draw")
    axes[-1][1].set_xlabel("Rank")
    entitle(figure, _title(attrs(idata), f"traces{note}"))
    _chain_legend(figure, draws.shape[0])
    save(figure, path)


def n_pairable(idata: "InferenceData") -> int:
    """Return the number of quantities with finite draws that vary."""
    return len(_varying(idata)[0])


@styled
def pairs(idata: "InferenceData", path: str | os.PathLike[str]) -> None:
    """Draw joint draws of the most correlated quantities, with the distribution of each on the diagonal.

    Raises
    ------
    InputError
        If fewer than two quantities vary, or the format is unknown.
    RunError
        If the file cannot be written.
    """
    names, values = _varying(idata)
    if len(names) < 2:
        raise InputError("a pair plot needs at least two quantities that vary")
    shown = _most_correlated(values, _PAIRED)
    step = max(1, len(values) // _PAIR_DRAWS)
    figure = blank(8, 8)
    axes = figure.subplots(len(shown), len(shown), sharex="col", squeeze=False)
    for row, i in enumerate(shown):
        for column, j in enumerate(shown):
            ax = axes[row][column]
            if column > row:
                ax.axis("off")
            elif column == row:
                ax.hist(values[:, i], bins=_PREDICTIVE_BINS, color=CHAIN_COLOURS[0])
                ax.set_yticks([])
            else:
                ax.plot(values[::step, j], values[::step, i], ".", markersize=2, alpha=0.4, color=CHAIN_COLOURS[0])
                ax.yaxis.set_major_locator(few_ticks())
            ax.xaxis.set_major_locator(few_ticks(3))
            ax.tick_params(labelbottom=row == len(shown) - 1, labelleft=column == 0 and row > 0)
        axes[row][0].set_ylabel(literal(clipped(names[i])))
        axes[-1][row].set_xlabel(literal(clipped(names[i])))
    entitle(figure, _title(attrs(idata), "pairs"))
    save(figure, path)


def _varying(idata: "InferenceData") -> tuple[list[str], np.ndarray[Any, Any]]:
    """Return names and draws, shape (draw, quantity), of the quantities with finite draws that vary."""
    names, draws = scalars(idata, None, affordable(idata))
    values = draws.reshape(-1, draws.shape[-1])
    kept = np.flatnonzero(np.isfinite(values).all(axis=0) & (np.abs(values) < _LARGEST).all(axis=0))
    kept = kept[np.ptp(values[:, kept], axis=0) > 0]
    return [names[k] for k in kept], values[:, kept]


def _most_correlated(values: np.ndarray[Any, Any], most: int) -> list[int]:
    """Return columns of the strongest correlations, in order, until there are `most`."""
    scaled = values / np.abs(values).max(axis=0)
    strength = np.triu(np.abs(np.nan_to_num(np.corrcoef(scaled.T))), 1)
    chosen: list[int] = []
    for place in np.argsort(-strength, axis=None, kind="stable"):
        row, column = divmod(int(place), len(strength))
        if row < column:
            chosen += [k for k in (row, column) if k not in chosen][: most - len(chosen)]
        if len(chosen) >= most:
            break
    return sorted(chosen)


def records_share(idata: "InferenceData") -> bool:
    """Return whether draws record how much of the data each decision used."""
    if "sample_stats" not in groups(idata) or not attrs(idata).get("n_observations"):
        return False
    stats = group(idata, "sample_stats")
    needed = [name for name in ("n_obs_used", "accepted", "audited", "audit_wrong") if name in stats]
    numbers = all(stats[name].dims == ("chain", "draw") and stats[name].dtype.kind in "biuf" for name in needed)
    return {"n_obs_used", "accepted"} <= set(needed) and numbers and ("audited" in needed) <= ("audit_wrong" in needed)


@styled
def share_of_data(idata: "InferenceData", path: str | os.PathLike[str]) -> None:
    """Draw how much of the data each decision used, with audited decisions marked, and the acceptance.

    Raises
    ------
    InputError
        If the draws do not record what decisions used, or the format is unknown.
    RunError
        If the file cannot be written.
    """
    facts = attrs(idata)
    if not records_share(idata):
        raise InputError("these draws do not record how much data each decision used")
    stats = group(idata, "sample_stats")
    share = stats["n_obs_used"].values / facts["n_observations"]
    accepted = stats["accepted"].values
    figure, ((over, spread), (acceptance, corner)) = _grid(rows=2, height=2.6, heights=(3, 1.4), ratio=2.6)
    _share_over_draws(over, share)
    _mark_audited(over, share, stats)
    _share_spread(spread, share)
    spread.set(yscale=over.get_yscale(), ylim=over.get_ylim())
    spread.yaxis.set_major_formatter(percent_ticks())
    _acceptance_over_draws(acceptance, accepted)
    acceptance.sharex(over)
    count_ticks(acceptance.xaxis)
    over.tick_params(labelbottom=False)
    corner.axis("off")
    handles, labels = over.get_legend_handles_labels()
    corner.legend(handles, labels, loc="center left", bbox_to_anchor=(0, 0.5))
    entitle(figure, _title(facts, "share of the data used"))
    save(figure, path)


@styled
def predictive(idata: "InferenceData", path: str | os.PathLike[str]) -> None:
    """Draw the distribution over the observations of each replicated data set, and that of the data.

    Parameters
    ----------
    idata
        Groups ``posterior_predictive`` and ``observed_data`` with the same variables, as `stansub.ppc` returns them.
    path
        File to write; its suffix (.png, .pdf, .svg) is the format.
    """
    replicated, observed = (group(idata, name) for name in ("posterior_predictive", "observed_data"))
    figure = blank(7, 0.6 + 2.8 * len(observed.data_vars))
    for ax, name in zip(figure.subplots(len(observed.data_vars), 1, squeeze=False).flat, observed, strict=True):
        values = replicated[name].values.reshape(-1, observed[name].size)
        _predictive_of(ax, str(name), values, observed[name].values.ravel())
    entitle(figure, _title(attrs(idata), "posterior predictive check"))
    save(figure, path)


def _predictive_of(ax: "Axes", name: str, values: np.ndarray[Any, Any], observed: np.ndarray[Any, Any]) -> None:
    """Draw histograms with common bins; for integers one bin per integer, unless there are too many."""
    from matplotlib.lines import Line2D

    low, high = np.quantile(np.concatenate([values.ravel(), observed]), [0.001, 0.999])
    if observed.dtype.kind in "iub" and high - low < _INTEGER_BINS:
        edges = np.arange(np.floor(low), np.ceil(high) + 2) - 0.5
    else:
        edges = np.linspace(low, high if high > low else low + 1, _PREDICTIVE_BINS + 1)
    heights = np.array([np.histogram(one, edges)[0] for one in values]) / observed.size
    drawn = heights[:: max(1, len(heights) // _REPLICATED)]
    for one in drawn:
        ax.stairs(one, edges, color=CHAIN_COLOURS[0], linewidth=0.5, alpha=0.25, baseline=None)
    mean: Any = {"color": CHAIN_COLOURS[1], "linewidth": 1.4, "linestyle": "--"}
    data: Any = {"color": INK, "linewidth": 1.4}
    ax.stairs(heights.mean(axis=0), edges, baseline=None, **mean)
    ax.stairs(np.histogram(observed, edges)[0] / observed.size, edges, baseline=None, **data)
    ax.set_xlabel(literal(clipped(name)))
    ax.set_ylabel("Share of observations")
    some = f"{len(drawn)} of {len(heights):,}" if len(drawn) < len(heights) else str(len(drawn))
    # The lines of single data sets are too faint for a legend.
    ax.legend(
        handles=[
            Line2D([], [], label="observed data", **data),
            Line2D([], [], color=CHAIN_COLOURS[0], linewidth=0.8, label=f"replicated data sets ({some})"),
            Line2D([], [], label=f"mean of all {len(heights):,}", **mean),
        ],
        loc="lower left",
        bbox_to_anchor=(0, 1),
        ncols=3,
    )


def _grid(
    *, rows: int, height: float, heights: Sequence[float] | None = None, ratio: float = 1.5
) -> tuple["Figure", Any]:
    figure = blank(10, 0.9 + height * rows)
    axes = figure.subplots(rows, 2, squeeze=False, width_ratios=(ratio, 1), height_ratios=heights)
    return figure, axes


def _colour(chain: int) -> str:
    return CHAIN_COLOURS[chain % len(CHAIN_COLOURS)]


def _trace_of(ax: "Axes", name: str, draws: np.ndarray[Any, Any]) -> None:
    for chain, values in enumerate(np.clip(draws, -_LARGEST, _LARGEST)):
        ax.plot(values, color=_colour(chain), linewidth=0.5, alpha=0.75, rasterized=True)
    ax.set_ylabel(literal(clipped(name)))
    ax.yaxis.set_major_locator(few_ticks())
    count_ticks(ax.xaxis)
    ax.margins(x=0)


def _ranks_of(ax: "Axes", draws: np.ndarray[Any, Any]) -> None:
    chains, n = draws.shape
    ranks = _ranks(draws)
    edges = np.linspace(0, chains * n, min(_RANK_BINS, n) + 1)
    level = n / (len(edges) - 1)
    ax.axhline(level, color=INK, linewidth=0.8, linestyle=(0, (4, 3)), zorder=3)
    top = 2 * level
    for chain in range(chains):
        heights = np.histogram(ranks[chain] - 0.5, bins=edges)[0]
        ax.stairs(heights, edges, color=_colour(chain), linewidth=1.3, baseline=None)
        top = max(top, 1.1 * heights.max())
    ax.set(xlim=(0, chains * n), ylim=(0, top))
    count_ticks(ax.yaxis)
    count_ticks(ax.xaxis)
    ax.grid(visible=False, axis="x")


def _ranks(draws: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return ranks from 1 among the draws of all chains; ties share their mean rank."""
    _, inverse, counts = np.unique(draws.ravel(), return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(counts) - (counts - 1) / 2
    return np.asarray(mean_rank[inverse].reshape(draws.shape))


def _share_over_draws(ax: "Axes", share: np.ndarray[Any, Any]) -> None:
    at = np.arange(1, share.shape[1] + 1)
    means = np.cumsum(share, axis=1) / at
    for chain, values in enumerate(means):
        ax.plot(at, values, color=_colour(chain), linewidth=1.8, label=f"chain {chain + 1}", zorder=3)
    scale_shares(ax, share, means)
    ax.set_title("Running mean over draws", loc="left")
    ax.margins(x=0.01)


def _mark_audited(ax: "Axes", share: np.ndarray[Any, Any], stats: Any) -> None:
    if "audited" not in stats or not stats["audited"].values.any():
        return
    audited = stats["audited"].values.astype(bool)
    wrong = stats["audit_wrong"].values.astype(bool) & audited
    right = audited & ~wrong
    ax.set_title("Running mean over draws, and audited decisions", loc="left")
    at = np.broadcast_to(np.arange(1, share.shape[1] + 1), share.shape)
    ax.scatter(
        at[right], share[right], s=9, color="#B3B3B3", linewidth=0, label=f"audited, right ({right.sum():,})", zorder=2
    )
    ax.scatter(
        at[wrong],
        share[wrong],
        s=34,
        marker="x",
        color=ERROR_COLOUR,
        linewidth=1.4,
        label=f"audited, wrong ({wrong.sum():,})",
        zorder=4,
    )


def _share_spread(ax: "Axes", share: np.ndarray[Any, Any]) -> None:
    for chain, values in enumerate(share):
        ordered = np.sort(values)
        steps = np.linspace(0, 1, len(ordered) + 1)
        ax.step(steps, np.concatenate([ordered[:1], ordered]), color=_colour(chain), linewidth=1.3)
    ax.set(xlim=(0, 1), xlabel="Share of decisions that used no more")
    ax.xaxis.set_major_formatter(percent_ticks())
    ax.set_title("Distribution", loc="left")


def _acceptance_over_draws(ax: "Axes", accepted: np.ndarray[Any, Any]) -> None:
    n = accepted.shape[1]
    window = max(1, n // 20)
    at = np.arange(window, n + 1)
    for chain, values in enumerate(accepted):
        sums = np.concatenate([[0], np.cumsum(values)])
        ax.plot(at, (sums[window:] - sums[:-window]) / window, color=_colour(chain), linewidth=1.1)
    ax.set(xlabel="Draw", ylabel="Accepted")
    ax.set_ylim(0, max(0.5, min(1.0, 1.1 * ax.get_ylim()[1])))
    ax.yaxis.set_major_formatter(percent_ticks())
    ax.set_title(f"Acceptance, moving mean over {window:,} draws", loc="left")


def _chain_legend(figure: "Figure", chains: int) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=_colour(chain), linewidth=1.8) for chain in range(chains)]
    labels = [f"chain {chain + 1}" for chain in range(chains)]
    figure.legend(handles, labels, loc="outside lower center", ncols=min(chains, 8))


def _title(facts: dict[str, Any], subject: str) -> str:
    level = error_level(facts)
    test = (
        f" ({facts['test']}{f', {level.option} = {level.value:g}' if level.value else ''})" if "test" in facts else ""
    )
    model = f"{literal(facts['model'])}: " if "model" in facts else ""
    return f"{model}{subject}{test}"


def save(figure: "Figure", path: str | os.PathLike[str]) -> None:
    """Write a picture in the format that its suffix names.

    Raises
    ------
    InputError
        If there is no such format.
    RunError
        If the file cannot be written.
    """
    image = io.BytesIO()
    figure.savefig(image, dpi=DPI, format=_format(path))
    files.write(path, image.getbuffer(), overwrite=True)


def check_picture(path: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """Return the path of a picture after checking that it may be written (see `files.check_target`).

    Raises
    ------
    InputError
        If it may not be written, or the format is unknown.
    """
    _format(path)
    return files.check_target(path, overwrite=overwrite)


def _format(path: str | os.PathLike[str]) -> str:
    from matplotlib.backend_bases import FigureCanvasBase

    suffix = Path(path).suffix.removeprefix(".").lower() or "png"
    if suffix not in FigureCanvasBase.get_supported_filetypes():
        raise InputError(f"{path}: unknown picture format; use .png, .pdf or .svg")
    return suffix
