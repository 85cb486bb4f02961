"""Kernels without decisions, which draw from a distribution that leaves the posterior invariant.

An example is a full conditional (Gibbs sampling; Geman and Geman 1984, Tierney 1994).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from stansub._loop import Decider
from stansub.kernels.base import Info, Stat, State, step_by_step
from stansub.kernels.metropolis import COUNTS, DECISIONS, STATS
from stansub.types import FloatArray

# Every step moves, without a decision that could count as accepted and without evaluating observations for one.
DIRECT_STATS: tuple[Stat, ...] = (
    *(replace(one, total="") if one.name == "accepted" else one for one in STATS),
    DECISIONS,
    *COUNTS,
)
MOVED: Info = {one.name: one.dtype(0) for one in (*STATS, DECISIONS)} | {"accepted": True}


class DirectKernel(ABC):
    """Base of kernels without decisions: implements all of `stansub.kernels.base.Kernel` but `step`.

    Attributes
    ----------
    stats : tuple of Stat
        A subclass may add statistics.
    n_evaluated : int
        Observations evaluated so far, which a subclass counts; its only memory.
    """

    stats: ClassVar[tuple[Stat, ...]] = DIRECT_STATS
    deciders: tuple[Decider, ...] = ()
    n_evaluated = 0

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def init(self, position: FloatArray) -> State:
        """Return the state at a position."""
        return State(np.array(position))

    @abstractmethod
    def step(self, rng: np.random.Generator, state: State, params: Any, *, audit: bool = False) -> tuple[State, Info]:
        """Return one draw and its statistics: `MOVED` and those that the kernel adds."""

    batch = step_by_step

    def set_level(self, level: float) -> None:  # noqa: B027 - nothing is what most kernels do
        """Do nothing: there are no decisions."""

    def counts(self) -> dict[str, float]:
        """Return the observations evaluated; other counts are 0."""
        return {one.name: 0.0 for one in COUNTS} | {"n_obs_evaluated": float(self.n_evaluated)}

    def save(self) -> Any:
        """Return the observations evaluated; steps depend on the position alone."""
        return self.n_evaluated

    def restore(self, state: State, saved: Any) -> None:
        """Restore what `save` returned."""
        self.n_evaluated = int(saved)
