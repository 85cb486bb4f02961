"""Weighted draws from a posterior by importance sampling, evaluated in numpy: nothing of stansub takes part."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from posteriors import Posterior
from scipy import optimize
from suite.laplace import pareto_k

Array = NDArray[np.float64]

# Degrees of freedom and scale of the proposal: tails heavier than those of any posterior here.
_FREEDOM, _SCALE = 8.0, 1.05
_PILOT, _PILOTS, _CHUNK = 20_000, 3, 1000
_THREADS = 2


class Weighted(NamedTuple):
    """Draws with weights.

    Attributes
    ----------
    points : array of shape (draw, parameter)
    weights : array of shape (draw,)
        With sum 1.
    """

    points: Array
    weights: Array

    @property
    def effective(self) -> float:
        """1 over the sum of the squared weights."""
        return float(1 / (self.weights**2).sum())

    @property
    def pareto_k(self) -> float:
        """Shape of the largest weights' distribution: below 0.5 their variance is finite."""
        return pareto_k(self.weights)

    def moments(self) -> tuple[Array, Array]:
        """Mean and covariance."""
        mean = self.weights @ self.points
        away = self.points - mean
        return mean, np.asarray((away.T * self.weights) @ away)

    @property
    def skewness(self) -> Array:
        """Of each parameter."""
        mean, covariance = self.moments()
        return np.asarray(self.weights @ ((self.points - mean) / np.sqrt(np.diag(covariance))) ** 3)


def sample(posterior: Posterior, effective: float, rng: np.random.Generator) -> Weighted:
    """At least so many effective draws, from a t whose centre and covariance a few pilot rounds have learned."""
    found = optimize.minimize(
        lambda theta: -posterior.log_density(theta[np.newaxis])[0], np.zeros(len(posterior.names))
    )
    mean, covariance = found.x, np.asarray(found.hess_inv)
    for _ in range(_PILOTS):
        pilot = _weighted(posterior, mean, covariance, _PILOT, rng)
        mean, covariance = pilot.moments()
    size = effective * len(pilot.weights) / pilot.effective
    while True:
        # A little more each time, for the share that is effective is known from the pilot alone.
        size *= 1.03
        made = _weighted(posterior, mean, covariance, int(size), rng)
        if made.effective >= effective:
            return made


def _weighted(posterior: Posterior, mean: Array, covariance: Array, n: int, rng: np.random.Generator) -> Weighted:
    """``n`` draws or a few more, by chunks that fit into memory, each with a stream of its own."""
    chunk = partial(_chunk, posterior, mean, np.linalg.cholesky(covariance))
    with ThreadPoolExecutor(_THREADS) as pool:
        parts = list(pool.map(chunk, rng.spawn(-(-n // _CHUNK))))
    logs = np.concatenate([one for _, one in parts])
    weights = np.exp(logs - logs.max())
    return Weighted(np.concatenate([points for points, _ in parts]), weights / weights.sum())


def _chunk(posterior: Posterior, mean: Array, root: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draws of the proposal, and their log weights up to a constant."""
    dim = len(mean)
    z = rng.standard_normal((_CHUNK, dim)) / np.sqrt(rng.chisquare(_FREEDOM, (_CHUNK, 1)) / _FREEDOM)
    points = mean + _SCALE * z @ root.T
    return points, posterior.log_density(points) + 0.5 * (_FREEDOM + dim) * np.log1p((z**2).sum(axis=1) / _FREEDOM)
