"""Surrogate transitions: steps that leave a surrogate posterior as it is, accepted or rejected by what it leaves out.

The surrogate is exp(G(theta) + Q(phi(theta))), Q being an expansion of the log likelihood L in its own arguments. A
kernel that is reversible for it, such as so many transitions of the no-U-turn sampler with step size and metric held
fixed, proposes theta'; with R = L - Q the Metropolis-Hastings ratio is that of the remainders alone,

    min(1, exp(R(phi(theta')) - R(phi(theta))))

(Liu 2001, section 9.4.3; Christen and Fox 2005). The proposal touches no data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stansub.kernels.base import Info, Kernel, Stat, State
from stansub.kernels.direct import DirectKernel
from stansub.kernels.metropolis import COUNTS, STATS
from stansub.kernels.recipes import Bench, Leaves
from stansub.target.sparse import Quadratic
from stansub.target.split import Factor, Split
from stansub.types import FloatArray

MAX_TREE_DEPTH = 8

TRANSITION_STATS: tuple[Stat, ...] = (
    Stat("tree_depth", np.int32, "Depth of the tree on the surrogate."),
    Stat("n_steps", np.int64, "Leapfrog steps on the surrogate.", "n_leapfrog"),
    Stat("diverging", bool, "Whether a tree on the surrogate diverged.", "n_diverging"),
)


class SurrogateTransitions(DirectKernel):
    """Kernel of surrogate transitions with decisions from all observations; nothing of it is adapted.

    Parameters
    ----------
    split : Split
    transition : SurrogateTransition
    """

    stats = (*STATS, *TRANSITION_STATS, *COUNTS)

    def __init__(self, split: Split, transition: SurrogateTransition) -> None:
        super().__init__(len(transition.centre))
        self.n_evaluated = 0
        self._predictors, self._transition = split.predictors, transition
        self._surrogate = split.surrogate(transition.quadratic)
        self._nuts = self._surrogate.nuts(transition.centre, transition.factor)
        self._at: tuple[FloatArray, float] | None = None

    def step(self, rng: np.random.Generator, state: State, params: Any, *, audit: bool = False) -> tuple[State, Info]:
        """So many transitions on the surrogate, and a decision."""
        here = self._remainder(state.position)
        proposed = np.array(state.position)
        made = self._nuts(
            rng.bit_generator.capsule,
            proposed,
            step_size=self._transition.step_size,
            max_tree_depth=MAX_TREE_DEPTH,
            n=self._transition.n,
        )
        there = self._of(proposed)
        log_ratio = there - here
        accepted = bool(np.log1p(-rng.random()) < log_ratio)
        if accepted:
            self._at = (proposed, there)
        info = {one.name: one.dtype(0) for one in STATS} | {
            "accepted": accepted,
            "n_obs_used": self._predictors.n_observations,
            "log_ratio": log_ratio,
            "tree_depth": made.tree_depth,
            "n_steps": made.n_steps,
            "diverging": made.diverging,
        }
        return (State(proposed) if accepted else state), info

    def counts(self) -> dict[str, float]:
        """Observations evaluated."""
        return {**super().counts(), "n_obs_evaluated": float(self.n_evaluated)}

    def _remainder(self, theta: FloatArray) -> float:
        """R where the chain stands."""
        if self._at is None or not np.array_equal(self._at[0], theta):
            self._at = (np.array(theta), self._of(theta))
        return self._at[1]

    def _of(self, theta: FloatArray) -> float:
        self.n_evaluated += self._predictors.n_observations
        phi = self._surrogate.phi(theta)
        return self._predictors.log_lik(phi) - self._transition.quadratic(phi)

    def save(self) -> Any:
        """What was counted: steps depend on the position alone."""
        return self.n_evaluated

    def restore(self, state: State, saved: Any) -> None:
        """Go on counting."""
        self.n_evaluated = int(saved)


@dataclass(frozen=True)
class SurrogateTransition:
    """Surrogate transitions as a run has them.

    Attributes
    ----------
    quadratic : Quadratic
        The expansion of the log likelihood.
    centre : ndarray, shape (dim,)
    factor : Factor
        Of the surrogate's mean precision: the metric.
    step_size : float
    n : int
        Transitions of the no-U-turn sampler before a decision.
    """

    quadratic: Quadratic
    centre: FloatArray
    factor: Factor
    step_size: float
    n: int = 1

    def bind(self, bench: Bench) -> Kernel:
        """The kernel of one chain."""
        return SurrogateTransitions(bench.split, self)

    def leaves(self, names: Sequence[str]) -> Leaves:
        """Nothing is adapted once it is settled."""
        return {}
