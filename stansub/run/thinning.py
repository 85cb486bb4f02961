"""Thinning of a run's draws by their effective sample size, once the chains have ended.

The interval is the number of draws over the smallest bulk or tail ESS, which leaves nearly uncorrelated
draws (Säilynoja, Bürkner and Vehtari 2022). It is smaller if the ESS of the draws it leaves would be below a limit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stansub.output.checks import ESS_PER_CHAIN
from stansub.output.convergence import LEAST_DRAWS, ess_bulk, ess_tail
from stansub.run.precision import Precision
from stansub.run.rows import Rows
from stansub.selection import Chosen
from stansub.types import FloatArray

# The ESS is estimated from so many values: the first draws of each chain, of all parameters.
_VALUES = 1 << 24


class Thinned(Chosen):
    """Interval by ESS."""

    about = "thinning"
    every: int
    """Steps between two draws that are kept."""
    ess: float
    left: float
    """Smallest bulk or tail ESS of all draws, and of those that are kept."""
    required: float
    """Limit below which thinning must not bring it."""

    def describe(self) -> str:
        of_all = f"{self.ess:,.0f}"
        if self.every > 1:
            return f"1 in {self.every:,} draws is kept; the smallest ESS is {self.left:,.0f}, and {of_all} of all draws"
        why = "they are nearly uncorrelated" if self.ess >= self.required else f"{self.required:,.0f} is required"
        return f"all draws are kept: their smallest ESS is {of_all}, and {why}"


def by_ess(kept: Sequence[Rows], precision: Precision | None) -> Thinned:
    """Return the interval for the rows of each chain.

    The ESS stays above the summary's limit, and above that at which the run was to stop.
    """
    n = min(len(rows) for rows in kept)
    dim = int(kept[0].read(0, 1).theta.shape[1])
    read = min(n, max(1000, _VALUES // (len(kept) * dim)))
    draws = np.stack([rows.read(0, read).theta for rows in kept])
    required = max(ESS_PER_CHAIN * len(kept), (precision.ess if precision is not None else None) or 0.0)

    def left(every: int) -> float:
        return _smallest_ess(draws[:, every - 1 :: every]) * (n / read)

    ess = left(1)
    every = max(1, int(n * len(kept) / ess))
    while every > 1 and left(every) < required:
        every //= 2
    return Thinned(every, ess, left(every), required)


def _smallest_ess(draws: FloatArray) -> float:
    """Return the smallest bulk or tail ESS of draws (chain, draw, parameter); their number if none is defined."""
    n = float(draws.shape[0] * draws.shape[1])
    if draws.shape[1] < LEAST_DRAWS:
        return n
    both = np.append(np.minimum(ess_bulk(draws), ess_tail(draws)), n)
    return float(both[np.isfinite(both)].min())
