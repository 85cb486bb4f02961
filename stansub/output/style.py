"""Style of all pictures: colours, matplotlib settings, ticks, names cut to fit."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from stansub.wording import without_exponent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_Parameters = ParamSpec("_Parameters")
_Drawn = TypeVar("_Drawn")

DPI = 150
# Okabe and Ito's palette, which colour-blind readers can distinguish; vermilion is reserved for errors.
BLUE, ORANGE = "#0072B2", "#E69F00"
CHAIN_COLOURS = (BLUE, ORANGE, "#009E73", "#CC79A7", "#56B4E9", "#7F7F7F")
ERROR_COLOUR = "#D55E00"
INK = "#333333"
STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
}


def styled(draw: Callable[_Parameters, _Drawn]) -> Callable[_Parameters, _Drawn]:
    """Let a function draw in this style."""

    @functools.wraps(draw)
    def drawn(*args: _Parameters.args, **options: _Parameters.kwargs) -> _Drawn:
        import matplotlib

        with matplotlib.rc_context(STYLE):
            return draw(*args, **options)

    return drawn


def blank(width: float, height: float) -> "Figure":
    """Return an empty picture of this size in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def entitle(figure: "Figure", title: str, *, colour: str = INK) -> None:
    """Add a bold title above all panels."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, weight="bold", color=colour)


def few_ticks(most: int = 4) -> Any:
    """Return a locator of at most `most` intervals."""
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=most)


def count_ticks(axis: Any) -> None:
    """Show whole numbers on an axis, with commas."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10], integer=True))
    axis.set_major_formatter("{x:,.0f}")


def log_ticks(axis: Any) -> None:
    """Show 1, 2 and 5 times powers of ten on a logarithmic axis, without exponents."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:,g}")
    axis.set_minor_formatter(NullFormatter())


def percent_ticks() -> Any:
    """Return a formatter of shares in percent."""
    from matplotlib.ticker import FuncFormatter

    return FuncFormatter(lambda share, _: f"{without_exponent(100 * share, digits=6)} %")


def scale_shares(ax: Any, *shares: Any) -> None:
    """Set the scale of the y-axis for these shares of the data.

    Pass means besides the shares they summarise: if few decisions use any data, means are far below every share. Shares
    that differ by orders of magnitude get a logarithmic axis; others start at zero. Exact decisions may use no data,
    which a logarithmic axis cannot show.
    """
    share = np.concatenate([np.ravel(one) for one in shares])
    some = share[share > 0]
    logarithmic = some.size > 0 and share.min() < 0.1
    ax.set(yscale="log" if logarithmic else "linear", ylabel="Share of the data")
    ax.set_ylim((some.min() / 1.5, 1.5) if logarithmic else (0, 1.04))
    ax.yaxis.set_major_formatter(percent_ticks())


def literal(name: str) -> str:
    """Return `name` as text for matplotlib that shows it unchanged: dollar signs begin no formula."""
    return name.replace("$", r"\$")


def clipped(name: str, room: int = 22) -> str:
    """Return `name` in at most `room` characters, with its middle left out."""
    tail = room // 2
    return name if len(name) <= room else name[: room - tail - 1] + "…" + name[-tail:]
