"""Adaptation of the random walk during warmup; outside the kernel, between stretches of steps.

Adaptive Metropolis after Haario, Saksman and Tamminen (2001), as used by Bardenet et al. (2014, section 4), with the
scale driven to the acceptance rate that is optimal for Gaussian-like targets (Roberts, Gelman and Gilks 1997).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from stansub.errors import InputError
from stansub.kernels.base import FloatArray
from stansub.kernels.proposals import RandomWalk

# Scale of the first steps on the unconstrained space, where inits are uniform within radius 2.
INITIAL_STEP = 0.1

# Updates of the scale in which it may move fast.
FAR_UPDATES = 40


def target_acceptance(dim: int) -> float:
    """Optimal acceptance rate of a random walk: 0.44 in one dimension, 0.234 in many."""
    return 0.44 if dim == 1 else 0.234


class Adapter(Protocol):
    """Learns a proposal from the draws of warmup."""

    def update(self, draws: FloatArray, acceptance: float) -> None:
        """Take in a stretch of draws, shape (n, dim), and the share of its proposals that were accepted."""
        ...

    def proposal(self) -> RandomWalk:
        """The proposal for the next stretch."""
        ...

    def final(self) -> RandomWalk:
        """The proposal to be kept for sampling."""
        ...


class ScaleAdapter:
    """Random walk of a fixed shape whose scale follows the acceptance rate (Robbins-Monro).

    Parameters
    ----------
    dim : int
        Number of unconstrained parameters.
    initial_step : float
        Standard deviation of the first steps, in each direction.
    """

    def __init__(self, dim: int, *, initial_step: float = INITIAL_STEP) -> None:
        if not initial_step > 0:
            raise InputError(f"step size {initial_step} must be above 0")
        self.shape: FloatArray = np.eye(dim)
        self.target = target_acceptance(dim)
        self._log_scales = [float(np.log(initial_step))]
        self._n_updates = 0

    def update(self, draws: FloatArray, acceptance: float) -> None:
        self._n_updates += 1
        # While hardly anything or nearly everything is accepted the scale is off by orders of magnitude.
        far = not 0.25 * self.target < acceptance < 0.5 * (1.0 + self.target)
        gain = max(3.0 * self._n_updates**-0.6, 2.0 if far and self._n_updates < FAR_UPDATES else 0.1)
        self._log_scales.append(self._log_scales[-1] + gain * (acceptance - self.target))

    def proposal(self) -> RandomWalk:
        return RandomWalk(np.exp(self._log_scales[-1]) * self.shape)

    def final(self) -> RandomWalk:
        # The last scale is noisy; the mean over the last quarter of the stretches is not.
        recent = self._log_scales[-max(1, len(self._log_scales) // 4) :]
        return RandomWalk(np.exp(np.mean(recent)) * self.shape)


class CovarianceAdapter(ScaleAdapter):
    """Adaptive Metropolis: the steps take the covariance of the most recent half of the draws.

    The older half is dropped so that the way from the inits to the bulk of the posterior is forgotten; while the
    chain is still on that way its drift is the covariance's main direction, which takes it there sooner.
    """

    def __init__(self, dim: int, *, initial_step: float = INITIAL_STEP) -> None:
        super().__init__(dim, initial_step=initial_step)
        self._dim = dim
        self._history: list[FloatArray] = []
        self._learned = False

    def update(self, draws: FloatArray, acceptance: float) -> None:
        super().update(draws, acceptance)
        self._history.append(draws.copy())
        recent = np.concatenate(self._history[len(self._history) // 2 :])
        n_distinct = 1 + int(np.count_nonzero(np.any(np.diff(recent, axis=0) != 0, axis=1)))
        if n_distinct <= 2 * self._dim and n_distinct < 50:
            return
        covariance = np.atleast_2d(np.cov(recent, rowvar=False))
        variances = np.diag(covariance)
        if not np.all(variances > 0):
            return
        # Shrinkage towards a sphere of the same size keeps the estimate regular while draws are few.
        weight = n_distinct / (n_distinct + 2.0 * self._dim)
        sphere = np.exp(np.log(variances).mean()) * np.eye(self._dim)
        if not self._learned:
            self._log_scales.append(float(np.log(2.38 / np.sqrt(self._dim))))
            self._learned = True
        self.shape = np.linalg.cholesky(weight * covariance + (1.0 - weight) * sphere)
