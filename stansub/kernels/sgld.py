"""Stochastic-gradient Langevin proposals with a Metropolis-Hastings test (Korattikara et al. 2014, section 5.4).

Each step draws a mini-batch of blocks independently of the state, moves along the gradient estimated from it (eq. 13),
and is accepted or rejected with the proposal density of the same mini-batch both ways (eq. 14). Given the mini-batch,
this is a Metropolis-Hastings kernel of the posterior. A mixture of such kernels with fixed probabilities leaves the
posterior invariant (Tierney 1994, section 2.4), however rough the gradient. The decision draws its own blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stansub.codec import GIVEN
from stansub.kernels.proposals import BuiltIn
from stansub.selection import Chosen, MiniBatchGradients
from stansub.target.taylor import ControlVariates
from stansub.types import FloatArray

# Blocks in a mini-batch. With control variates, a few blocks give nearly the gradient of all the data. Without them,
# noise keeps the steps short, and the mini-batch is one in twenty, as in the paper.
_FEW, _SHARE = 10, 0.05

_NO_BLOCKS = np.empty(0, np.int32)


class Differentiable(Protocol):
    """Evaluator with gradients."""

    def subset_log_density_gradient(self, theta: FloatArray, which: NDArray[np.int32]) -> tuple[float, FloatArray]: ...


class MiniBatches:
    """Mini-batch estimates of the gradient of the log density.

    From m of M blocks, the estimate is the gradient of the global part plus M / m times the sum of the blocks'
    gradients. With control variates it adds the gradient of the expansions of all blocks, less M / m times that of the
    blocks drawn. Both estimates are unbiased, and exact if m = M.

    Parameters
    ----------
    block_sizes : ndarray of int64, shape (M,)
        Observations in each block.
    size : int, optional
        m; by default 10 with control variates and a twentieth of the blocks without, but at most all blocks.

    Attributes
    ----------
    n_evaluated : int
        Observations whose gradients have been evaluated so far.
    """

    def __init__(
        self,
        evaluator: Differentiable,
        block_sizes: NDArray[np.int64],
        variates: ControlVariates | None = None,
        *,
        size: int | None = None,
    ) -> None:
        self.n_blocks = len(block_sizes)
        wanted = size or (_FEW if variates else max(_FEW, round(_SHARE * self.n_blocks)))
        self.size = min(wanted, self.n_blocks)
        self.n_evaluated = 0
        self._evaluator, self._block_sizes = evaluator, block_sizes
        # A gradient that is used only to propose may be rough away from the first anchor.
        self._expansion = variates.first if variates else None
        self._total = self._expansion.total if self._expansion else None

    def draw(self, rng: np.random.Generator) -> Callable[[FloatArray], FloatArray]:
        """Draw a mini-batch and return its gradient estimate, shape (dim,), as a function of the parameters.

        If the gradient is not defined, the estimate is 0, so that the proposal is a random walk step.
        """
        which = rng.choice(self.n_blocks, self.size, replace=False, shuffle=False).astype(np.int32)
        scale = self.n_blocks / self.size
        n_observations = int(self._block_sizes[which].sum())
        expansion = None
        if self._expansion is not None:
            drawn = self._expansion.coefficients[which].sum(0, dtype=np.float64)
            expansion = self._expansion.gradient_of(self._total - scale * drawn)

        def gradient(theta: FloatArray) -> FloatArray:
            found = scale * self._evaluator.subset_log_density_gradient(theta, which)[1]
            self.n_evaluated += n_observations
            if scale > 1:
                # The blocks include the global part, which must count once.
                found -= (scale - 1) * self._evaluator.subset_log_density_gradient(theta, _NO_BLOCKS)[1]
            if expansion is not None:
                found += expansion(theta)
            return found if np.isfinite(found).all() else np.zeros_like(found)

        return gradient

    def __deepcopy__(self, memo: object) -> MiniBatches:
        """Return itself: an evaluator cannot be copied, and nothing else changes but a count."""
        return self

    def choice(self) -> MiniBatchGradients:
        """Return how gradients are estimated."""
        return MiniBatchGradients(self.size, self.n_blocks, control_variates=self._expansion is not None)


@dataclass(frozen=True)
class Sgld(BuiltIn):
    """Langevin proposal with a mini-batch gradient: theta' = theta + L L' g / 2 + L z.

    With z' = -(z + L' (g + g') / 2), g' being the gradient at theta' from the same mini-batch, theta = theta' + L L' g'
    / 2 + L z', so that the log ratio is (|z|^2 - |z'|^2) / 2. Of all the blocks it is MALA (Roberts and Tweedie 1996),
    preconditioned by L L'.
    """

    batches: MiniBatches = field(metadata=GIVEN)
    cholesky: FloatArray
    """Shape (dim, dim): L; in the paper, the square root of the step size alpha times the identity."""

    def __call__(self, rng: np.random.Generator, position: FloatArray) -> tuple[FloatArray, float]:
        gradient = self.batches.draw(rng)
        z = rng.standard_normal(position.size)
        with np.errstate(over="ignore", invalid="ignore"):
            forth = z + 0.5 * self.cholesky.T @ gradient(position)
            proposed = position + self.cholesky @ forth
            back = forth + 0.5 * self.cholesky.T @ gradient(proposed)
            return proposed, float(z @ z - back @ back) / 2

    def choices(self) -> tuple[Chosen, ...]:
        return (self.batches.choice(),)
