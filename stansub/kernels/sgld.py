"""Stochastic-gradient Langevin proposals with a Metropolis-Hastings test (Korattikara et al. 2014, section 5.4).

Each step draws a mini-batch of blocks without regard to the state, moves along the gradient that is estimated from it
(eq. 13), and is accepted or not by the proposal density of the same mini-batch both ways (eq. 14). Given the mini-batch
that is a Metropolis-Hastings kernel of the posterior, and a mixture of such kernels with fixed probabilities leaves the
posterior as it is (Tierney 1994, section 2.4), however rough the gradient. A decision draws blocks of its own.
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

# Blocks of a mini-batch: with control variates a few give nearly the gradient of all the data; without them their noise
# keeps the steps short, and there are as many as in the paper, one in twenty.
_FEW, _SHARE = 10, 0.05

_NO_BLOCKS = np.empty(0, np.int32)


class Differentiable(Protocol):
    """What is needed of an evaluator."""

    def subset_log_density_gradient(self, theta: FloatArray, which: NDArray[np.int32]) -> tuple[float, FloatArray]: ...


class MiniBatches:
    """Gradients of the log density as mini-batches of blocks estimate them.

    From m of M blocks: gradient of the global part plus M / m times the sum of the blocks' gradients; with control
    variates plus the gradient of the expansions of all blocks, less M / m times that of the blocks drawn. Either has
    the gradient of the log density as its mean, and with m = M is that gradient.

    Parameters
    ----------
    evaluator : Evaluator
        Used by no other chain at the same time.
    block_sizes : ndarray of int32, shape (M,)
        Observations in each block.
    variates : ControlVariates, optional
    size : int, optional
        m; by default 10 with control variates and a twentieth of the blocks without, but no more than there are.

    Attributes
    ----------
    n_evaluated : int
        Observations whose gradients have been evaluated so far.
    """

    def __init__(
        self,
        evaluator: Differentiable,
        block_sizes: NDArray[np.int32],
        variates: ControlVariates | None = None,
        *,
        size: int | None = None,
    ) -> None:
        self.n_blocks = len(block_sizes)
        wanted = size or (_FEW if variates else max(_FEW, round(_SHARE * self.n_blocks)))
        self.size = min(wanted, self.n_blocks)
        self.n_evaluated = 0
        self._evaluator, self._block_sizes = evaluator, block_sizes
        # A gradient that only proposes may be rough away from the first anchor.
        self._expansion = variates.first if variates else None
        self._total = self._expansion.total if self._expansion else None

    def draw(self, rng: np.random.Generator) -> Callable[[FloatArray], FloatArray]:
        """The gradient, shape (dim,), as a function of the parameters, from one mini-batch.

        Where it is not defined it is 0: what is proposed there is a random walk's step.
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
                # The blocks bring the global part along, which counts once.
                found -= (scale - 1) * self._evaluator.subset_log_density_gradient(theta, _NO_BLOCKS)[1]
            if expansion is not None:
                found += expansion(theta)
            return found if np.isfinite(found).all() else np.zeros_like(found)

        return gradient

    def __deepcopy__(self, memo: object) -> MiniBatches:
        """Itself: an evaluator cannot be copied, and nothing else changes save a count."""
        return self

    def choice(self) -> MiniBatchGradients:
        """How gradients are estimated."""
        return MiniBatchGradients(self.size, self.n_blocks, control_variates=self._expansion is not None)


@dataclass(frozen=True)
class Sgld(BuiltIn):
    """Langevin proposal with the gradient of a mini-batch: theta' = theta + L L' g / 2 + L z.

    With z' = -(z + L' (g + g') / 2), g' being the gradient at theta' from the same mini-batch, theta = theta' + L L' g'
    / 2 + L z', so that the log ratio is (|z|^2 - |z'|^2) / 2. Of all the blocks it is MALA (Roberts and Tweedie 1996),
    preconditioned by L L'.

    Attributes
    ----------
    batches : MiniBatches
    cholesky : ndarray, shape (dim, dim)
        L; the paper has the square root of the step size alpha times the identity.
    """

    batches: MiniBatches = field(metadata=GIVEN)
    cholesky: FloatArray

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
