"""A proposal that learns and has a state: one parameter a step, in turns, each with a scale of its own.

Moving the parameters in a fixed order leaves the posterior as it is, for each of the moves does (Tierney 1994, section
2.4). Whose turn it is, is the state of a chain. In warmup every scale follows its own acceptance rate to 0.44, by
diminishing steps (Robbins-Monro; Roberts and Rosenthal 2009, section 3); then the scales stay.

What it is not: fast where parameters are correlated.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from stansub.kernels.base import Records

Array = NDArray[np.float64]


@dataclass
class InTurns:
    """What `stansub.sample` is given; a chain asks the one that its adapter made of it.

    Attributes
    ----------
    scales : ndarray, shape (dim,)
        Standard deviation of each parameter's steps; where learning starts.
    turn : int
        The parameter that moves next.
    """

    scales: Array
    turn: int = 0

    def __call__(self, rng: np.random.Generator, position: Array) -> tuple[Array, float]:
        """One parameter moved; symmetric."""
        position[self.turn] += self.scales[self.turn] * rng.standard_normal()
        self.turn = (self.turn + 1) % len(self.scales)
        return position, 0.0

    def adapter(self, dim: int) -> Learner:
        """What learns the scales in one chain."""
        return Learner(replace(self, scales=np.broadcast_to(self.scales, dim).copy()))


@dataclass
class Learner:
    """Learns the scales from the steps of warmup."""

    moves: InTurns
    n_evaluated: int = 0
    n_steps: int = 0
    tries: Array = field(default_factory=lambda: np.zeros(0))

    def learn(self, records: Records) -> None:
        """Follow the acceptance rates of a batch."""
        dim = len(self.moves.scales)
        turns = (self.n_steps + np.arange(len(records))) % dim
        tried, accepted = (np.bincount(turns, weights, dim) for weights in (None, records["accepted"]))
        self.tries = tried + (self.tries if self.n_steps else 0)
        self.moves.scales *= np.exp((accepted - 0.44 * tried) / np.maximum(self.tries, 1) ** 0.6)
        self.n_steps += len(records)

    def proposal(self) -> InTurns:
        """With the scales so far."""
        return self.moves

    def final(self) -> InTurns:
        """With those that stay."""
        return self.moves
