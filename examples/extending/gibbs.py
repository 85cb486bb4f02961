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

from stansub.kernels.base import Info, Kernel, State
from stansub.kernels.direct import MOVED, DirectKernel
from stansub.kernels.recipes import Context, Leaves, find

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, Array], Array]


class GibbsKernel(DirectKernel):
    """Draws some parameters from their full conditional.

    Parameters
    ----------
    draw : callable
        Of a generator and the position, shape (dim,): new values of the parameters at ``index``.
    index : ndarray of int64
    dim : int
    """

    def __init__(self, draw: Draw, index: NDArray[np.int64], dim: int) -> None:
        super().__init__(dim)
        self.draw, self.index = draw, index

    def step(self, rng: np.random.Generator, state: State, params: Any, *, audit: bool = False) -> tuple[State, Info]:
        """One draw."""
        position = state.position.copy()
        position[self.index] = self.draw(rng, state.position)
        return State(position), MOVED


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

    def bind(self, context: Context) -> Kernel:
        """The kernel of one chain."""
        return GibbsKernel(self.draw, find(context.names, self.names), len(context.names))

    def leaves(self, names: Sequence[str]) -> Leaves:
        """Nothing is adapted."""
        nothing: Mapping[str, Leaves] = {}
        return nothing
