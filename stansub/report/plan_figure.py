"""Picture of a plan: the predicted risk of each method against the budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stansub.output.style import CHAIN_COLOURS, INK, blank, entitle, literal, log_ticks, styled
from stansub.planning.plan import BudgetPlan, budgets

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NUTS_COLOUR = "#8C8C8C"


@styled
def figure(found: BudgetPlan) -> Figure:
    """Draw a line for each method with its 90 % band, on logarithmic axes; exact methods are solid, others dashed."""
    times = budgets(found)
    picture = blank(9, 5)
    ax = picture.subplots()
    for place, method in enumerate(found.all):
        colour = _NUTS_COLOUR if method is found.nuts else (INK, *CHAIN_COLOURS)[place % (1 + len(CHAIN_COLOURS))]
        risks = np.array([method.risk(float(time)) for time in times])
        risks[~np.isfinite(risks)] = np.nan
        line = "-" if method.exact else (0, (4, 1.5))
        width = 2.6 if method is found.best else 1.5
        ax.plot(times, risks[:, 1], color=colour, linestyle=line, linewidth=width, label=method.label)
        ax.fill_between(times, risks[:, 0], risks[:, 2], color=colour, alpha=0.1, linewidth=0)
    ax.axvline(found.budget, color=INK, linewidth=1.0, linestyle=(0, (2, 2)))
    ax.set(xscale="log", yscale="log", xlabel="Budget in seconds, including set-up, without compilation")
    log_ticks(ax.xaxis)
    ax.set_ylabel("Predicted risk of posterior means\n(posterior sd²)")
    entitle(picture, f"{literal(found.name)}: {found.best.label} is best within {found.budget:g} s")
    picture.legend(loc="outside right upper", title="bands: 90 %")
    return picture
