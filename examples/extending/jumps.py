"""A per-step statistic: the squared distance of each step, whose mean says how fast a chain moves.

The expected squared jumped distance (Pasarica and Gelman 2010) is larger the smaller the autocorrelation at
lag 1 is. `Jumps` is the package's Metropolis kernel with this one statistic more; what is declared as a `Stat` is
recorded at every step, summed over each chain and written with its sentence.

What it is not: scaled. The distance is Euclidean on the unconstrained space, so parameters with large sds dominate it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stansub.kernels.base import BatchControl, Info, Kernel, Records, Stat, State
from stansub.kernels.metropolis import MetropolisHastings
from stansub.kernels.proposals import Proposal
from stansub.kernels.recipes import Context, Metropolis

JUMP = Stat("squared_jump", float, "Squared distance of the step on the unconstrained space.", "squared_jumps")


class WithJumps(MetropolisHastings):
    """Metropolis-Hastings that tells how far it moves."""

    @property
    def stats(self) -> tuple[Stat, ...]:
        """Those of the kernel, and one more."""
        return (*super().stats, JUMP)

    def step(
        self, rng: np.random.Generator, state: State, params: Proposal, *, audit: bool = False
    ) -> tuple[State, Info]:
        """Propose and decide."""
        new, info = super().step(rng, state, params, audit=audit)
        return new, {**info, JUMP.name: float(((new.position - state.position) ** 2).sum())}

    def batch(
        self,
        rng: np.random.Generator,
        state: State,
        params: Proposal,
        out: Records,
        n_steps: int,
        control: BatchControl,
    ) -> tuple[State, int]:
        """Steps in C++ where the proposal allows it, then the distances of all of them."""
        new, n = super().batch(rng, state, params, out, n_steps, control)
        path = np.vstack([state.position, out.theta[:n]])
        out[JUMP.name][:n] = (np.diff(path, axis=0) ** 2).sum(axis=1)
        return new, n


@dataclass(frozen=True)
class Jumps(Metropolis):
    """The kernel as `stansub.sample` takes it: ``kernel=Jumps()``."""

    def bind(self, context: Context) -> Kernel:
        """The kernel of one chain."""
        return WithJumps(context.decider, context.tables)
