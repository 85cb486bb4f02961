"""An error level that falls during a run (Korattikara et al. 2014, section 6).

Large errors at first take the chain to where it belongs at little cost; small ones later keep the average of the draws
true: the bias of early draws goes as their share of all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stansub.errors import InputError

# Levels between the first and the last: each takes a table of its own.
_N_LEVELS = 25


@dataclass(frozen=True)
class Falling:
    """From one level to another over so many steps, in equal ratios.

    Attributes
    ----------
    first, last : float
    n_steps : int

    Raises
    ------
    InputError
        When the last level is not positive or exceeds the first.
    """

    first: float
    last: float
    n_steps: int

    def __post_init__(self) -> None:
        if not 0 < self.last <= self.first:
            raise InputError(f"`final_epsilon={self.last}` must be above 0 and at most the first level, {self.first}")

    def level(self, step: int) -> float:
        """The level of step number ``step``, counted from 0; the last one beyond the end."""
        place = min(_N_LEVELS - 1, step * _N_LEVELS // self.n_steps)
        return float(self.first * (self.last / self.first) ** (place / (_N_LEVELS - 1)))

    def same_until(self, step: int) -> int:
        """The first step whose level is another than that of ``step``; far beyond the end where there is none."""
        place = step * _N_LEVELS // self.n_steps
        return -(-(place + 1) * self.n_steps // _N_LEVELS) if place < _N_LEVELS - 1 else np.iinfo(np.int64).max
