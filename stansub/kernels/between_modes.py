"""Proposals that move between several modes, each with a normal approximation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from stansub.kernels.proposals import BuiltIn, component
from stansub.types import FloatArray


@dataclass(frozen=True)
class LaplaceMixture(BuiltIn):
    """Independence proposal from a mixture of normal approximations at several modes, so that chains change modes."""

    means: FloatArray
    """Shape (k, dim)."""
    choleskys: FloatArray
    """Shape (k, dim, dim): lower triangular factors of the covariances."""
    weights: FloatArray
    """Shape (k,): probabilities."""

    def __call__(self, rng: np.random.Generator, position: FloatArray) -> tuple[FloatArray, float]:
        chosen = component(self.weights, rng)
        proposed = self.means[chosen] + self.choleskys[chosen] @ rng.standard_normal(position.size)
        return proposed, self.log_density(position) - self.log_density(proposed)

    def log_density(self, position: FloatArray) -> float:
        """Return the log density of the mixture, up to a constant."""
        squares = _squares(self.inverses, position - self.means)
        return float(scipy.special.logsumexp(np.log(self.weights) + self._log_scales - 0.5 * squares))

    @cached_property
    def inverses(self) -> FloatArray:
        """Return the inverses of the factors, shape (k, dim, dim)."""
        return np.asarray(np.linalg.inv(self.choleskys))

    @cached_property
    def _log_scales(self) -> FloatArray:
        return np.asarray(-np.log(np.diagonal(self.choleskys, axis1=1, axis2=2)).sum(axis=1))


@dataclass(frozen=True)
class NearestWalk(BuiltIn):
    """Random walk with the covariance of the nearest mode, which may be another on the way back."""

    mixture: LaplaceMixture
    """Means and covariances of the modes."""
    scale: float
    """Step size, in sds of the mode."""

    def __call__(self, rng: np.random.Generator, position: FloatArray) -> tuple[FloatArray, float]:
        here = self._nearest(position)
        z = rng.standard_normal(position.size)
        proposed = position + self.scale * self.mixture.choleskys[here] @ z
        there = self._nearest(proposed)
        if there == here:
            return proposed, 0.0
        inverses, log_scales = self.mixture.inverses, self.mixture._log_scales
        back = inverses[there] @ (position - proposed) / self.scale
        return proposed, float(log_scales[there] - log_scales[here] + 0.5 * (z @ z - back @ back))

    def _nearest(self, position: FloatArray) -> int:
        return int(np.argmin(_squares(self.mixture.inverses, position - self.mixture.means)))


def _squares(inverses: FloatArray, away: FloatArray) -> FloatArray:
    """Return squared distances in sds, shape (k,)."""
    return np.asarray(np.sum(np.einsum("kij,kj->ki", inverses, away) ** 2, axis=1))
