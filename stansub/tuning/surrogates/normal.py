"""Normal approximations of posteriors that are split into prior and likelihood."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import numpy as np

from stansub.errors import RunError
from stansub.kernels.surrogate import SurrogateTransition
from stansub.target.approximation import Approximation
from stansub.target.metric import Metric
from stansub.target.split import Differentiable, Split, Surrogate
from stansub.tuning.surrogates.differences import Differences
from stansub.tuning.surrogates.hmc import POINTS
from stansub.tuning.surrogates.interactions import interactions
from stansub.tuning.surrogates.sampler_runs import spread
from stansub.types import FloatArray


class NormalApproximation(NamedTuple):
    """Normal approximation of a posterior."""

    centre: FloatArray
    """Shape (dim,)."""
    cholesky: FloatArray
    """Shape (dim, dim): lower triangular factor of the precision."""

    @property
    def covariance_factor(self) -> FloatArray:
        """Return F with F F' the covariance, shape (dim, dim)."""
        return np.asarray(np.linalg.inv(self.cholesky).T, np.float64)

    def draw(self, rng: np.random.Generator, n: int) -> FloatArray:
        """Return draws, shape (n, dim)."""
        noise = rng.standard_normal((len(self.centre), n))
        return self.centre + np.asarray(np.linalg.solve(self.cholesky.T, noise)).T

    def log_density(self, theta: FloatArray) -> float:
        """Return the log density up to a constant."""
        return -0.5 * float(np.sum((self.cholesky.T @ (theta - self.centre)) ** 2))


def of_surrogate(split: Split, transition: SurrogateTransition, draws: FloatArray) -> NormalApproximation:
    """Return the normal approximation of the surrogate near its mode (after one Newton step), with its mean precision.

    Both are in the parameters themselves, like moves about the mode, and need no data. The draws are of the surrogate.
    """
    density, metric = split.surrogate(transition.approximation).model, transition.inner.centred_metric
    return _of_draws(density, draws) if metric is None else _after_newton_step(density, *metric)


def of_draws(split: Split, draws: FloatArray) -> NormalApproximation:
    """Return the same from draws of the posterior, with an expansion of the likelihood about their mean."""

    def about(phi: FloatArray) -> Surrogate:
        return split.surrogate(Approximation.plain(split.predictors.expansion(phi)))

    mean = draws.mean(axis=0)
    # A surrogate may fix scales among the arguments of the likelihood.
    return _of_draws(about(about(split.prior().phi(mean)).phi(mean)).model, draws)


def _of_draws(density: Differentiable, draws: FloatArray) -> NormalApproximation:
    metric = Differences(interactions(density, draws[-1])).metric(density, spread(draws, POINTS))
    return _after_newton_step(density, draws.mean(axis=0), metric)


def _after_newton_step(density: Differentiable, centre: FloatArray, metric: Metric) -> NormalApproximation:
    precision = metric.matrix()
    cholesky = np.asarray(np.linalg.cholesky(precision), np.float64)
    with suppress(RunError):
        centre = centre + np.linalg.solve(precision, density.log_density_gradient(centre)[1])
    return NormalApproximation(centre, cholesky)
