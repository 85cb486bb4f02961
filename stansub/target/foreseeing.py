"""Observations from which the candidates of decisions are foreseen.

Bounds on programs of observations take long, and may be so wide that decisions would pick all observations many times.
Those of a few hundred show it.
"""

from __future__ import annotations

from typing import Protocol, Self, TypeVar

import numpy as np

from stansub.target.rows import Rows

# Foreseen candidates for each observation that surely are too many.
SURELY = 4.0
_FORESEEN = 1 << 9


class Observed(Protocol):
    """The likelihood of some observations."""

    @property
    def n_observations(self) -> int: ...

    def part(self, rows: Rows) -> Self:
        """Return that of a part of them."""


P = TypeVar("P", bound=Observed)


def foreseeing(predictors: P) -> P:
    """Return a few hundred of the observations at random, or all of them if they are few."""
    n = predictors.n_observations
    if n <= 2 * _FORESEEN:
        return predictors
    return predictors.part(np.sort(np.random.default_rng(0).choice(n, _FORESEEN, replace=False)))
