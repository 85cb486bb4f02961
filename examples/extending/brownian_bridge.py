"""A sequential test: one constant boundary for the partial sums, as O'Brien and Fleming (1979) have it.

The partial sums of n of M units that are drawn without replacement, less n times the mean of all, go like a Brownian
bridge W at n / M, times s sqrt(M). So a decision falls when n |m - mu0| > b s sqrt(M), with b from Kolmogorov's
distribution (1933), P(sup |W| > b) = 2 sum over k >= 1 of (-1)^(k - 1) exp(-2 k^2 b^2). At the threshold, where errors
are most frequent, the bridge leaves on either side alike: b with P(sup |W| > b) = 2 epsilon bounds the error of a whole
decision by epsilon, whatever the looks.

What it is not: the bound holds as far as partial sums are normal and s is that of all units; of few units s is noisy.
Early looks have to be very clear (|t| > b sqrt(M / n)), so that it draws more than Pocock's test where M is large.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import kolmogi

from stansub.acceptance.looks import Geometric, Schedule, Table, looks_at
from stansub.acceptance.ranges import Range
from stansub.acceptance.stopping import Guarantee, StoppingRule, check_level

_LOOKS = Geometric(first=50, growth=1.5)


@dataclass(frozen=True, kw_only=True)
class BrownianBridge(StoppingRule):
    """Decide when a partial sum leaves the band that a Brownian bridge leaves with probability 2 epsilon.

    Attributes
    ----------
    epsilon : float
        Error of a whole decision.
    looks : Schedule
    """

    epsilon: float = 0.005
    looks: Schedule = _LOOKS
    name = "brownian-bridge"

    def __post_init__(self) -> None:
        check_level("epsilon", self.epsilon)

    def table(self, n_units: int, level: float | None = None) -> Table:
        """|m - mu0| > scale * s at each look; the last takes all units and decides in any case."""
        n = looks_at(self.looks, n_units, at_least=2)
        scale = kolmogi(2 * (self.epsilon if level is None else level)) * np.sqrt(n_units) / n
        scale[-1] = 0.0
        return Table(n, scale, np.zeros(len(n)))

    def guarantee(self, source: Range | None) -> Guarantee:
        """The error level is that of normal partial sums."""
        return Guarantee.ASYMPTOTIC
