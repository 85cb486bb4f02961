"""Pictures of a comparison of subsampled draws with their reference.

Each function takes a comparison and returns a matplotlib figure, or None if there is nothing to draw. Quantities are in
the order of the comparison's table, the worst first. Quantities with non-finite values, and quantities constant in both
samplers, are left out.
"""

import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stansub.diagnostics.alignment import align
from stansub.diagnostics.statistics import independence_lag
from stansub.output.inference_data import attrs, group, groups
from stansub.output.style import (
    BLUE,
    ERROR_COLOUR,
    INK,
    ORANGE,
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
from stansub.wording import percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from stansub.diagnostics.comparison import Comparison

    Picture: TypeAlias = Callable[[Comparison], Figure | None]

Values: TypeAlias = NDArray[np.float64]

FOREST_ROWS = 30
MARGINAL_PANELS = 8
RANK_ROWS = 4
ECDF_PANELS = 8
LEVEL = 0.05  # share of comparisons of agreeing samplers in which something leaves a band
_COLOURS = (BLUE, ORANGE)
_RANK_BINS = (5, 20)
_DRAWS_A_BIN = 25
_OWN_ESS, _OTHER_ESS = ("ess_bulk", "ess_tail"), ("ess_bulk_reference", "ess_tail_reference")
_POINTS = 600
_GRID = 256
_CONTOURS = (0.9, 0.5)
_SAME_SCALE = 40  # widest picture, in the smallest sd shown, in which a difference is still visible


class Quantity(NamedTuple):
    """A scalar quantity."""

    name: str
    """Its name in the comparison's table."""
    sides: tuple[Values, Values]
    """Draws of the subsampled run and of the reference, each of shape (chain, draw)."""


def sampler_names(comparison: "Comparison") -> tuple[str, str]:
    """Return the names of the two samplers; a reference that records no engine may be of any kind."""
    facts = attrs(comparison.reference)
    return "subsampled", str(facts.get("method", "NUTS" if "engine" in facts else "reference"))


def drawable(comparison: "Comparison") -> list[Quantity]:
    """Return quantities that can be drawn, the worst first."""
    alignment, own, other = align(comparison.draws, comparison.reference)
    columns = {name: column for column, name in enumerate(alignment.common)}
    wanted = [(name, columns[name]) for name in comparison.parameters.index]
    found = [Quantity(name, (own[..., column], other[..., column])) for name, column in wanted]
    return [
        quantity
        for quantity in found
        if all(np.isfinite(side).all() for side in quantity.sides) and any(np.ptp(side) > 0 for side in quantity.sides)
    ]


@styled
def forest(comparison: "Comparison") -> "Figure | None":
    """Draw medians and central 90 % intervals of both samplers, a row per quantity.

    If the scales of the quantities differ too much for one axis, they are shown in standard deviations of the reference
    from its mean.
    """
    quantities = drawable(comparison)
    shown = quantities[:FOREST_ROWS]
    if not shown:
        return None
    quantiles = np.array([[np.quantile(side, (0.05, 0.5, 0.95)) for side in q.sides] for q in shown])
    centres = np.array([q.sides[1].mean() for q in shown])
    sds = np.array([float(q.sides[1].std()) or float(q.sides[0].std()) for q in shown])
    names = sampler_names(comparison)
    standardised = np.ptp(quantiles) > _SAME_SCALE * sds.min()
    if standardised:
        quantiles = (quantiles - centres[:, None, None]) / sds[:, None, None]
    figure = blank(8, 1.45 + 0.27 * max(len(shown), 2))
    ax = figure.subplots()
    rows = np.arange(len(shown))
    for k, (colour, name) in enumerate(zip(_COLOURS, names, strict=True)):
        low, middle, high = quantiles[:, k].T
        at = rows + (k - 0.5) * 0.36
        ax.hlines(at, low, high, color=colour, linewidth=2.2)
        ax.plot(middle, at, "o", color=colour, markersize=4.5, markeredgecolor="white", markeredgewidth=0.6)
        ax.plot([], [], "o-", color=colour, linewidth=2.2, markersize=4.5, label=name)
    if standardised:
        for line in (-1.645, 0, 1.645):
            ax.axvline(line, color=INK, linewidth=0.6, linestyle=(0, (4, 3)), zorder=0.9)
    ax.set(ylim=(len(shown) - 0.4, -0.6), yticks=rows, yticklabels=[literal(clipped(q.name, 30)) for q in shown])
    ax.set_xlabel("Standard deviations of the reference from its mean" if standardised else "Value")
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
    reading = "If the samplers agree, the two lines of a row have the same ends and dots."
    _entitle(figure, comparison, "medians and 90 % intervals", reading, shown=len(shown), of=len(quantities))
    figure.legend(loc="outside lower center", ncols=2)
    return figure


@styled
def marginals(comparison: "Comparison") -> "Figure | None":
    """Draw marginal densities of both samplers over each other."""
    quantities = drawable(comparison)
    shown = quantities[:MARGINAL_PANELS]
    if not shown:
        return None
    figure, panels = _panels(len(shown))
    for ax, quantity in zip(panels, shown, strict=True):
        at = _range_of(quantity)
        sizes = comparison.parameters.loc[quantity.name, ["ess_bulk", "ess_bulk_reference"]]
        for colour, side, ess in zip(_COLOURS, quantity.sides, sizes, strict=True):
            if np.ptp(side) == 0:
                ax.axvline(side.flat[0], color=colour, linewidth=1.6)
                continue
            centres, density = kernel_density(side.ravel(), *at, size=ess if ess > 1 else side.size)
            ax.fill_between(centres, density, color=colour, alpha=0.15, linewidth=0)
            ax.plot(centres, density, color=colour, linewidth=1.6)
        ax.set(xlim=at, ylim=(0, None), yticks=[])
        ax.spines["left"].set_visible(False)
        ax.xaxis.set_major_locator(few_ticks())
        _label(ax, quantity.name, _difference(quantity))
    reading = "If the samplers agree, the curves coincide up to Monte Carlo error."
    _entitle(figure, comparison, "marginal densities", reading, shown=len(shown), of=len(quantities))
    _sampler_legend(figure, comparison)
    return figure


@styled
def worst_pair(comparison: "Comparison") -> "Figure | None":
    """Draw joint draws of the two quantities whose correlation differs most: points, and regions of 50 and 90 %."""
    found = {quantity.name: quantity for quantity in drawable(comparison)}
    named = [name for name in comparison.worst_pair or () if name in found]
    names = named if len(named) == 2 else list(found)[:2]
    if len(names) < 2:
        return None
    across, up = (found[name] for name in names)
    figure = blank(6.2, 5.6)
    ax = figure.subplots()
    window = (_range_of(across), _range_of(up))
    for k, (colour, sampler) in enumerate(zip(_COLOURS, sampler_names(comparison), strict=True)):
        x, y = across.sides[k].ravel(), up.sides[k].ravel()
        few = np.linspace(0, len(x) - 1, min(_POINTS, len(x))).astype(int)
        ax.scatter(x[few], y[few], s=5, color=colour, alpha=0.3, linewidth=0, rasterized=True)
        label = sampler
        if np.ptp(x) > 0 and np.ptp(y) > 0:
            _contours(ax, x, y, window, colour)
            label += f", correlation {np.corrcoef(x, y)[0, 1]:.2f}"
        ax.plot([], [], color=colour, linewidth=1.6, label=label)
    ax.set(xlim=window[0], ylim=window[1], xlabel=literal(clipped(names[0], 40)), ylabel=literal(clipped(names[1], 40)))
    ax.xaxis.set_major_locator(few_ticks(6))
    ax.yaxis.set_major_locator(few_ticks(6))
    reading = "Outlines contain 50 % and 90 % of the draws; they coincide if the samplers agree."
    _entitle(figure, comparison, "the pair that differs most", reading)
    figure.legend(loc="outside lower center", ncols=2)
    return figure


@styled
def rank_histograms(comparison: "Comparison") -> "Figure | None":
    """Draw the ranks of each chain's draws among those of both samplers, with the band expected under agreement.

    Notes
    -----
    Draws are thinned to near independence. The number of a chain's draws in a bin of the pooled ranks is then
    hypergeometric if all chains have the same distribution. The band is its central interval at `LEVEL`, divided by the
    number of bins, chains and quantities compared (Bonferroni). Rank plots: Vehtari et al. (2021), section 5.
    """
    from scipy.stats import hypergeom

    quantities = drawable(comparison)
    shown = quantities[:RANK_ROWS]
    if not shown:
        return None
    figure = blank(10, 1.4 + 1.5 * len(shown))
    axes = figure.subplots(len(shown), 2, squeeze=False, sharex=True, sharey="row")
    for row, quantity in zip(axes, shown, strict=True):
        counts = rank_counts(*thinned(comparison, quantity))
        n_chains = sum(len(side) for side in counts)
        n_bins = counts[0].shape[1]
        total = sum(int(side.sum()) for side in counts)
        tail = LEVEL / (2 * n_bins * n_chains * len(quantities))
        edges = np.linspace(0, 1, n_bins + 1)
        in_bin = counts[0].sum(axis=0) + counts[1].sum(axis=0)
        top = 2.0
        for ax, colour, side in zip(row, _COLOURS, counts, strict=True):
            of_chain = side.sum(axis=1, keepdims=True)
            expected = np.maximum(of_chain * in_bin / total, np.finfo(float).tiny)  # ties leave bins empty
            relative = np.where(in_bin > 0, side / expected, 1)
            for heights in relative:
                ax.stairs(heights, edges, color=colour, linewidth=1.1, baseline=None, alpha=0.85)
            limits = [hypergeom.ppf(p, total, in_bin, of_chain[0, 0]) / expected[0] for p in (tail, 1 - tail)]
            ax.stairs(limits[1], edges, baseline=limits[0], fill=True, color="#EDEDED", zorder=0.5)
            ax.axhline(1, color=INK, linewidth=0.8, linestyle=(0, (4, 3)), zorder=3)
            top = max(top, 1.05 * relative.max(), 1.05 * limits[1].max())
        row[0].set(xlim=(0, 1), ylim=(0, top))
        for ax, sampler in zip(row, sampler_names(comparison), strict=True):
            ax.set_title(f"{literal(clipped(quantity.name, 36))}: chains, {sampler}", loc="left", fontsize=9)
            ax.yaxis.set_major_locator(few_ticks(3))
            ax.xaxis.set_major_formatter(percent_ticks())
            ax.grid(visible=False, axis="x")
    for ax in axes[-1]:
        ax.set_xlabel("Rank among the draws of both samplers")
    figure.supylabel("Count, relative to that expected", fontsize=9)
    reading = "Inside the grey band: agreement. On the left, a slope means a shifted mean, a valley too large an sd."
    _entitle(figure, comparison, "ranks of each chain", reading, shown=len(shown), of=len(quantities))
    return figure


@styled
def ecdf_differences(comparison: "Comparison") -> "Figure | None":
    """Draw the difference of the empirical distribution functions, subsampled less reference, on thinned draws.

    Notes
    -----
    Draws are thinned to independence. The band is that of the two-sample Kolmogorov-Smirnov test (asymptotic) at
    `LEVEL` divided by the number of quantities compared. It holds for all values of a quantity at once.
    """
    from scipy.stats import kstwobign

    quantities = drawable(comparison)
    shown = quantities[:ECDF_PANELS]
    if not shown:
        return None
    critical = float(kstwobign.isf(LEVEL / len(quantities)))
    figure, panels = _panels(len(shown), shared=True)
    top = 0.0
    for ax, quantity in zip(panels, shown, strict=True):
        pooled, difference, band = ecdf_difference(*thinned(comparison, quantity), critical)
        ax.axhspan(-band, band, color="#EDEDED", zorder=0.5)
        ax.axhline(0, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        ax.step(pooled, difference, where="post", color=BLUE, linewidth=1.2)
        top = max(top, 1.08 * band, 1.08 * float(np.abs(difference).max()))
        _label(ax, quantity.name, f"largest {np.abs(difference).max():.3f}, band {band:.3f}")
    panels[0].set(xlim=(0, 1), ylim=(-top, top))
    panels[0].set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    panels[0].yaxis.set_major_locator(few_ticks(6))
    figure.supxlabel("Share of the draws of both samplers below the value", fontsize=9)
    first, second = sampler_names(comparison)
    figure.supylabel(f"{first} minus {second}", fontsize=9)
    reading = (
        "Inside the grey band: agreement. A hump on one side of zero means a shifted "
        "mean, humps on both sides another sd."
    )
    _entitle(figure, comparison, "distribution functions", reading, shown=len(shown), of=len(quantities))
    return figure


@styled
def share_of_data(comparison: "Comparison") -> "Figure | None":
    """Draw the share of the data per decision: the mean of each chain, and the central 80 % of the decisions."""
    facts = attrs(comparison.draws)
    if "sample_stats" not in groups(comparison.draws) or not facts.get("n_observations"):
        return None
    stats = group(comparison.draws, "sample_stats")
    if "n_obs_used" not in stats:
        return None
    share = stats["n_obs_used"].values / facts["n_observations"]
    edges = np.linspace(0, share.shape[1], int(np.clip(share.shape[1] // 25, 1, 50)) + 1).astype(int)
    windows = [share[:, start:end] for start, end in itertools.pairwise(edges)]
    low, high = np.transpose([np.quantile(window, (0.1, 0.9)) for window in windows])
    figure = blank(8, 3.4)
    ax = figure.subplots()
    ax.stairs(high, edges, baseline=low, fill=True, color=BLUE, alpha=0.15, label="80 % of the decisions")
    middles = (edges[:-1] + edges[1:]) / 2
    means = np.transpose([window.mean(axis=1) for window in windows])
    for number, values in enumerate(means):
        ax.plot(middles, values, color=BLUE, linewidth=0.8, alpha=0.6, label=None if number else "mean of a chain")
    ax.axhline(share.mean(), color=INK, linewidth=1, linestyle=(0, (4, 3)), label=f"overall, {percent(share.mean())}")
    if "audit_wrong" in stats and stats["audit_wrong"].values.any():
        chain, draw = np.nonzero(stats["audit_wrong"].values)
        label = f"audited and found wrong ({len(draw):,})"
        ax.plot(draw, share[chain, draw], "x", color=ERROR_COLOUR, markersize=5, label=label)
    ax.set(xlim=(0, share.shape[1]), xlabel="Draw")
    count_ticks(ax.xaxis)
    scale_shares(ax, share, means)
    reading = "Lower values save work. At equilibrium, a strict test needs most of the data."
    _entitle(figure, comparison, "share of the data used by a decision", reading)
    figure.legend(loc="outside lower center", ncols=4)
    return figure


def thinned(comparison: "Comparison", quantity: Quantity) -> tuple[Values, Values]:
    """Return draws of a quantity thinned until they are nearly independent."""
    ess = comparison.parameters.loc[[quantity.name], [*_OWN_ESS, *_OTHER_ESS]].to_numpy(dtype=float)[0]
    own, other = quantity.sides
    own_lag, _ = independence_lag(own, min(ess[:2]))
    other_lag, _ = independence_lag(other, min(ess[2:]))
    return own[:, ::own_lag], other[:, ::other_lag]


def kernel_density(values: Values, low: float, high: float, size: float) -> tuple[Values, Values]:
    """Return points from `low` to `high`, and a kernel density estimate there: reflected at the ends, with area one.

    ``size`` is the effective number of the draws. The bandwidth is Silverman's (1986, equation 3.31).
    """
    from scipy.ndimage import gaussian_filter1d

    counts, edges = np.histogram(values, bins=_GRID, range=(low, high))
    width = edges[1] - edges[0]
    bandwidth = 0.9 * _spread(values) * size**-0.2
    smooth = gaussian_filter1d(counts.astype(float), min(bandwidth / width, _GRID), mode="reflect")
    return (edges[:-1] + edges[1:]) / 2, smooth / max(smooth.sum() * width, np.finfo(float).tiny)


def rank_counts(draws: Values, reference: Values) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return counts of each chain's draws in bins of the ranks among all draws, shape (chain, bin), of each sampler."""
    from scipy.stats import rankdata

    ranks = rankdata(np.concatenate([draws.ravel(), reference.ravel()]))
    shortest = min(draws.shape[1], reference.shape[1])
    n_bins = int(np.clip(shortest // _DRAWS_A_BIN, *_RANK_BINS))
    edges = np.linspace(0, len(ranks), min(n_bins, len(ranks)) + 1)
    sides = (ranks[: draws.size].reshape(draws.shape), ranks[draws.size :].reshape(reference.shape))
    first, second = (np.array([np.histogram(chain - 0.5, bins=edges)[0] for chain in side]) for side in sides)
    return first, second


def ecdf_difference(draws: Values, reference: Values, critical: float) -> tuple[Values, Values, float]:
    """Return the share of the pooled draws up to each of them, and the difference of the distribution functions there.

    The third value is half the width of the band, from a critical value of the Kolmogorov distribution.
    """
    first, second = draws.ravel(), reference.ravel()
    pooled = np.sort(np.concatenate([first, second]))
    at = np.searchsorted(pooled, pooled, side="right") / len(pooled)
    difference = np.searchsorted(np.sort(first), pooled, side="right") / len(first)
    difference -= np.searchsorted(np.sort(second), pooled, side="right") / len(second)
    return at, difference, critical * math.sqrt(1 / len(first) + 1 / len(second))


def _range_of(quantity: Quantity) -> tuple[float, float]:
    """Return the ends of an axis that holds all but the outermost draws of both samplers."""
    ends = np.array([np.quantile(side, (0.001, 0.999)) for side in quantity.sides])
    low, high = ends[:, 0].min(), ends[:, 1].max()
    if low < high:
        return float(low), float(high)
    return float(min(side.min() for side in quantity.sides)), float(max(side.max() for side in quantity.sides))


def _spread(values: Values) -> float:
    """Return the standard deviation, or an estimate from the quartiles if outliers enlarge it."""
    spread = float(values.std())
    quartiles = float(np.subtract(*np.quantile(values, (0.75, 0.25)))) / 1.34
    return min(spread, quartiles) or spread


def _contours(ax: "Axes", x: Values, y: Values, window: Any, colour: str) -> None:
    """Draw outlines of the smallest regions that hold given shares of the draws."""
    from scipy.ndimage import gaussian_filter

    counts, *edges = np.histogram2d(x, y, bins=_GRID // 2, range=window)
    # Normal reference rule in two dimensions (Silverman 1986, section 4.3.2).
    bandwidths = [_spread(values) * len(values) ** (-1 / 6) for values in (x, y)]
    smoothing = [min(h / (e[1] - e[0]), _GRID) for h, e in zip(bandwidths, edges, strict=True)]
    density = gaussian_filter(counts, smoothing)
    ordered = np.sort(density.ravel())[::-1]
    held = np.cumsum(ordered) / ordered.sum()
    levels = [ordered[np.searchsorted(held, share)] for share in _CONTOURS]
    if 0 < levels[0] < levels[1]:
        middles = [(e[:-1] + e[1:]) / 2 for e in edges]
        ax.contour(*middles, density.T, levels=levels, colors=colour, linewidths=1.6)


def _difference(quantity: Quantity) -> str:
    first, second = quantity.sides
    sd = second.std(ddof=1)
    if sd == 0 or np.ptp(first) == 0:
        return "one of them never moves"
    shift = (first.mean() - second.mean()) / sd
    return f"mean {_signed(shift)} sd, sd × {first.std(ddof=1) / sd:.2f}"


def _signed(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}".replace("-", "−")  # adding 0.0 turns -0.00 into 0.00


def _panels(number: int, *, shared: bool = False) -> tuple["Figure", list[Any]]:
    """Return a figure of `number` panels, four per row."""
    columns = min(number, 4)
    rows = math.ceil(number / columns)
    figure = blank(max(5.0, 2.5 * columns), 1.3 + 1.75 * rows)
    axes = figure.subplots(rows, columns, sharex=shared, sharey=shared, squeeze=False).ravel()
    for ax in axes[number:]:
        ax.remove()
    for ax in axes[:number]:
        ax.tick_params(labelbottom=True)
    return figure, list(axes[:number])


def _label(ax: "Axes", name: str, below: str) -> None:
    ax.set_title(literal(clipped(name, 26)) + "\n", loc="left", fontsize=9, weight="bold")
    ax.text(0, 1.03, below, transform=ax.transAxes, fontsize=8)


def _entitle(
    figure: "Figure", comparison: "Comparison", subject: str, reading: str, *, shown: int = 0, of: int = 0
) -> None:
    """Add a bold title and, below it, how to read the picture."""
    some = f", the {shown:,} worst of {of:,}" if shown < of else ""
    title = f"{literal(clipped(comparison.name, 30))}: {subject}{some}"
    entitle(figure, f"{title}\n")
    figure.text(0.01, 1 - 0.25 / figure.get_figheight(), reading, va="top", fontsize=9)


def _sampler_legend(figure: "Figure", comparison: "Comparison") -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=colour, linewidth=2) for colour in _COLOURS]
    figure.legend(handles, sampler_names(comparison), loc="outside lower center", ncols=2)
