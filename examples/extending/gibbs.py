"""A kernel: parameters drawn from their full conditional, with no decision at all (Geman and Geman 1984).

A draw from p(theta_A | theta_B, data) in place of theta_A leaves the posterior as it is (Tierney 1994).
Where the conditional is known and touches few data, such as that of the scale of a hierarchical model, this costs
nothing; put it beside a kernel for the others: ``stansub.Sequence(scale=Gibbs(draw, ["tau"]), rest=...)``.

What it is not: checked. Nothing looks at the data here, so that a conditional that is not that of the posterior gives
wrong draws without a warning. Compare with a run without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stansub._loop import Decider
from stansub.kernels.base import Info, Kernel, Oversight, Records, State, step_by_step
from stansub.kernels.metropolis import COUNTS, STATS
from stansub.kernels.recipes import Bench, Leaves, find

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, Array], Array]
# Every step moves, and looks at no observations.
_INFO: Info = {one.name: one.dtype(0) for one in STATS} | {"accepted": True}


class GibbsKernel:
    """Draws some parameters from their full conditional.

    Parameters
    ----------
    draw : callable
        Of a generator and the position, shape (dim,): new values of the parameters at ``index``.
    index : ndarray of int64
    dim : int
    """

    stats = (*STATS, *COUNTS)
    deciders: tuple[Decider, ...] = ()
    n_evaluated = 0

    def __init__(self, draw: Draw, index: NDArray[np.int64], dim: int) -> None:
        self.draw, self.index, self.dim = draw, index, dim

    def init(self, position: Array) -> State:
        """The state at a position."""
        return State(np.array(position))

    def step(self, rng: np.random.Generator, state: State, params: Any, *, audit: bool = False) -> tuple[State, Info]:
        """One draw."""
        position = state.position.copy()
        position[self.index] = self.draw(rng, state.position)
        return State(position), _INFO

    def batch(
        self, rng: np.random.Generator, state: State, params: Any, out: Records, n_steps: int, oversight: Oversight
    ) -> tuple[State, int]:
        """Step by step."""
        return step_by_step(self, rng, state, params, out, n_steps, oversight)

    def set_level(self, level: float) -> None:
        """There are no decisions to be taken at an error level."""

    def counts(self) -> dict[str, float]:
        """Nothing was evaluated."""
        return {one.name: 0 for one in COUNTS}

    def save(self) -> None:
        """Nothing is remembered."""

    def restore(self, state: State, saved: None) -> None:
        """Nothing is to be restored."""


@dataclass(frozen=True)
class Gibbs:
    """The kernel as `stansub.sample` takes it.

    Attributes
    ----------
    draw : callable
        Of a generator and the position on the unconstrained space.
    names : sequence of str
        Parameters that it draws.
    """

    draw: Draw
    names: Sequence[str]

    def bind(self, bench: Bench) -> Kernel:
        """The kernel of one chain."""
        return GibbsKernel(self.draw, find(bench.names, self.names), len(bench.names))

    def leaves(self, names: Sequence[str]) -> Leaves:
        """Nothing is adapted."""
        nothing: Mapping[str, Leaves] = {}
        return nothing
