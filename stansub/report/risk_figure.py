"""Picture of risk against time and against passes over the data, with its final components."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from stansub.diagnostics.risk_functions import VARIANCES
from stansub.diagnostics.risk_result import Risk, label
from stansub.output.style import CHAIN_COLOURS, INK, blank, entitle, literal, styled
from stansub.wording import percent

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LINES = ("-", (0, (5, 1.5)), (0, (1, 1)))
# A squared bias below this many standard errors is shown as a limit.
_SIGNIFICANT = 2.0
# The truth's own error is shown if it is at most this many times smaller than the figures.
_NEAR = 50.0
_FLOOR_COLOUR = "#8C8C8C"
_LEGEND_ROWS = 8


@styled
def figure(found: Risk) -> Figure:
    """Draw the curves: a row for each group of test functions.

    The first two panels show the mean squared error with a band of one standard error, on logarithmic axes. The third
    shows squared bias and variance at the end of the budget. A squared bias below two standard errors is shown as its
    upper limit.
    """
    whats = list(found.curves["what"].unique())
    picture = blank(12, 1.6 + 3.6 * len(whats))
    rows = picture.subplots(len(whats), 3, squeeze=False, width_ratios=(1.25, 1.25, 1))
    for what, (over_time, over_passes, parts) in zip(whats, rows, strict=True):
        chosen = found.curves[found.curves["what"] == what]
        final: pd.DataFrame = found.final.loc[[what]].droplevel("what")
        floor = found.facts["floor"][what]
        limits = _limits(chosen, final, floor)
        for ax, axis in ((over_time, "seconds"), (over_passes, "passes")):
            for place, (epsilon, curve) in enumerate(chosen[chosen["axis"] == axis].groupby("epsilon")):
                _curve(ax, curve, place, float(epsilon))
            ax.set(xscale="log", yscale="log", ylim=limits)
            _floor(ax, floor)
        over_time.set_ylabel(f"Risk of the {label(what)}\n({_unit(what)})")
        _parts(parts, final)
        parts.set(yscale="log", ylim=limits)
        _floor(parts, floor)
    rows[0][0].set_title("Risk decreases with time until only bias remains", loc="left")
    rows[0][1].set_title("The same against evaluations", loc="left")
    rows[0][2].set_title(f"Remaining risk after {_budget(found.facts)}", loc="left")
    rows[-1][0].set_xlabel("Seconds per run")
    rows[-1][1].set_xlabel("Passes over the data per run")
    rows[-1][2].set_xlabel("epsilon")
    facts = found.facts
    model, run = literal(facts["model"]), f"{facts['test']}, {facts['n_observations']:,} observations"
    title = f"{model}: risk of the estimates ({run})"
    entitle(picture, title)
    _legend(picture, found)
    return picture


def _limits(curves: pd.DataFrame, final: pd.DataFrame, floor: float) -> tuple[float, float]:
    """Return limits of the axis for everything shown, including the truth's own error if it is not far below."""
    upper = float((curves["mse"] + curves["mse_se"]).max())
    shown = np.concatenate([curves["mse"], final["variance"], final["bias2"] + _SIGNIFICANT * final["bias2_se"]])
    lowest = max(float(np.min(shown[shown > 0], initial=upper)), 0.2 * floor)
    return min(0.5 * lowest, 0.7 * floor if floor > lowest / _NEAR else upper), 1.5 * upper


def _colour(place: int, epsilon: float) -> tuple[str, Any]:
    """Return colour and line style; exact decisions are black."""
    if epsilon == 0:
        return INK, "-"
    return CHAIN_COLOURS[(place - 1) % len(CHAIN_COLOURS)], _LINES[(place - 1) // len(CHAIN_COLOURS) % len(_LINES)]


def _curve(ax: Axes, curve: pd.DataFrame, place: int, epsilon: float) -> None:
    colour, line = _colour(place, epsilon)
    mse = curve["mse"].where(curve["mse"] > 0)
    ax.plot(curve["at"], mse, color=colour, linestyle=line, linewidth=1.8, zorder=3)
    low = np.maximum(curve["mse"] - curve["mse_se"], np.finfo(float).tiny)
    ax.fill_between(curve["at"], low, curve["mse"] + curve["mse_se"], color=colour, alpha=0.12, linewidth=0)


def _floor(ax: Axes, floor: float) -> None:
    ax.axhline(floor, color=_FLOOR_COLOUR, linewidth=1.0, linestyle=(0, (2, 2)), zorder=2)


def _parts(ax: Axes, final: pd.DataFrame) -> None:
    for place, (epsilon, row) in enumerate(final.iterrows()):
        colour, _ = _colour(place, float(epsilon))  # type: ignore[arg-type]
        ax.errorbar(
            place - 0.14, row["variance"], row["variance_se"], marker="o", markersize=6, color=colour, capsize=2
        )
        significant = row["bias2"] > _SIGNIFICANT * row["bias2_se"]
        if significant:
            ax.errorbar(place + 0.14, row["bias2"], row["bias2_se"], marker="s", markersize=6, color=colour, capsize=2)
        else:
            limit = max(row["bias2"], 0.0) + _SIGNIFICANT * row["bias2_se"]
            ax.plot(place + 0.14, limit, marker="v", markersize=7, color=colour, markerfacecolor="white", linestyle="")
    ax.set_xticks(range(len(final)), [f"{epsilon:g}" if epsilon else "exact" for epsilon in final.index])
    ax.set_xlim(-0.6, len(final) - 0.4)
    ax.grid(visible=False, axis="x")


def _legend(picture: Figure, found: Risk) -> None:
    from matplotlib.lines import Line2D

    handles, labels = [], []
    for place, (epsilon, row) in enumerate(found.settings.iterrows()):
        colour, line = _colour(place, float(epsilon))  # type: ignore[arg-type]
        handles.append(Line2D([], [], color=colour, linestyle=line, linewidth=1.8))
        labels.append(_entry(float(epsilon), row))  # type: ignore[arg-type]
    picture.legend(handles, labels, loc="outside lower left", ncols=1 + len(labels) // _LEGEND_ROWS)
    handles, labels = [], []
    for marker, face, meaning in (
        ("o", _FLOOR_COLOUR, "variance"),
        ("s", _FLOOR_COLOUR, "squared bias"),
        ("v", "white", f"squared bias, at most ({_SIGNIFICANT:g} standard errors)"),
    ):
        handles.append(Line2D([], [], color=_FLOOR_COLOUR, marker=marker, markerfacecolor=face, linestyle=""))
        labels.append(meaning)
    handles.append(Line2D([], [], color=_FLOOR_COLOUR, linewidth=1.0, linestyle=(0, (2, 2))))
    labels.append("error of the truth itself, subtracted")
    picture.legend(handles, labels, loc="outside lower right")


def _entry(epsilon: float, row: pd.Series[Any]) -> str:
    if epsilon == 0:
        return "exact: all data"
    wrong = ""
    if row["audited"]:
        wrong = f", {percent(row['error'])} wrong ({percent(row['error_low'])} to {percent(row['error_high'])})"
    return f"epsilon {epsilon:g}: {percent(row['share'])} of data{wrong}"


def _unit(what: str) -> str:
    return "sd² of squared deviations" if what == VARIANCES else "posterior sd²"


def _budget(facts: dict[str, Any]) -> str:
    return f"{facts['max_time']:g} s" if facts["max_time"] else f"{facts['max_steps']:,} steps"
