"""An error level that decreases during a run (Korattikara et al. 2014, section 6).

Large errors early move the chain to the typical set at little cost. Small errors later keep the average of the draws
accurate: the bias of early draws counts by their share of all draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stansub.errors import InputError

# Number of distinct levels, because each needs a table.
_N_LEVELS = 25


@dataclass(frozen=True)
class DecreasingLevel:
    """Error level that decreases geometrically from one level to another over ``n_steps`` steps.

    Raises
    ------
    InputError
        If the last level is not positive or exceeds the first.
    """

    first: float
    last: float
    n_steps: int

    def __post_init__(self) -> None:
        if not 0 < self.last <= self.first:
            raise InputError(f"`final_epsilon={self.last}` must be above 0 and at most the first level, {self.first}")

    def level(self, step: int) -> float:
        """Return the level at ``step``, counted from 0; beyond the end, the last level."""
        place = min(_N_LEVELS - 1, step * _N_LEVELS // self.n_steps)
        return float(self.first * (self.last / self.first) ** (place / (_N_LEVELS - 1)))

    def same_until(self, step: int) -> int:
        """Return the first step whose level differs from that of ``step``; a huge number if there is none."""
        place = step * _N_LEVELS // self.n_steps
        return -(-(place + 1) * self.n_steps // _N_LEVELS) if place < _N_LEVELS - 1 else np.iinfo(np.int64).max
