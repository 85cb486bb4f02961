"""Trials of surrogate transitions: their acceptance rate, and that of normal moves."""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import numpy as np

from stansub.errors import RunError
from stansub.kernels.surrogate import SurrogateTransition, SurrogateTransitions
from stansub.progress import Progress
from stansub.target.cholesky import cholesky as cholesky_factor
from stansub.target.split import Split
from stansub.tuning.differences import Differences
from stansub.tuning.surrogate import TunedSurrogate
from stansub.tuning.surrogate_nuts import POINTS, mean_precision, spread
from stansub.types import FloatArray

# Transitions tried, after as many that do not count: the first, which start at draws of the surrogate, are accepted too
# often.
N_TRIED = 60


class NormalApproximation(NamedTuple):
    """Normal approximation of a surrogate posterior.

    Attributes
    ----------
    centre : ndarray, shape (dim,)
    cholesky : ndarray, shape (dim, dim)
        Lower triangular factor of the precision.
    """

    centre: FloatArray
    cholesky: FloatArray

    def draw(self, rng: np.random.Generator, n: int) -> FloatArray:
        """Return draws, shape (n, dim)."""
        noise = rng.standard_normal((len(self.centre), n))
        return self.centre + np.asarray(np.linalg.solve(self.cholesky.T, noise)).T

    def log_density(self, theta: FloatArray) -> float:
        """Return the log density up to a constant."""
        return -0.5 * float(np.sum((self.cholesky.T @ (theta - self.centre)) ** 2))


def normal_approximation(split: Split, transition: SurrogateTransition, draws: FloatArray) -> NormalApproximation:
    """Return the normal approximation of the surrogate near its mode (after one Newton step), with its mean precision.

    Both are in the parameters themselves, like moves about the mode, and need no data.

    Parameters
    ----------
    draws : ndarray, shape (n, dim)
        Draws of the surrogate.
    """
    density = split.surrogate(transition.approximation).model
    centre, factor = transition.centre, transition.factor
    if not transition.coordinates.is_plain:
        centre = draws.mean(axis=0)
        factor = cholesky_factor(mean_precision(Differences(density, draws[-1]), density, spread(draws, POINTS)))
    precision = factor.matrix()
    cholesky = np.asarray(np.linalg.cholesky(precision), np.float64)
    with suppress(RunError):
        centre = centre + np.linalg.solve(precision, density.log_density_gradient(centre)[1])
    return NormalApproximation(centre, cholesky)


def normal_rate(split: Split, tuned: TunedSurrogate, rng: np.random.Generator) -> float:
    """Return the share of independent normal moves that would be accepted on the surrogate, without data."""
    draws, density = tuned.draws, split.surrogate(tuned.transition.approximation).model
    normal = normal_approximation(split, tuned.transition, draws)

    def log_weight(theta: FloatArray) -> float:
        try:
            value = density.log_density_gradient(theta)[0]
        except RunError:
            return -np.inf
        return value - normal.log_density(theta)

    own, new = (np.array([log_weight(theta) for theta in some]) for some in (draws, normal.draw(rng, len(draws))))
    return float(np.exp(np.minimum(0.0, new[np.newaxis] - own[:, np.newaxis])).mean())


def accepted_rate(split: Split, tuned: TunedSurrogate, rng: np.random.Generator, progress: Progress) -> float:
    """Return the acceptance rate of surrogate transitions in a trial."""
    progress("Trying surrogate transitions")
    kernel = SurrogateTransitions(split, tuned.transition)
    state, accepted = kernel.init(tuned.draws[-1]), 0
    for k in range(2 * N_TRIED):
        progress.advance(k, 2 * N_TRIED)
        state, info = kernel.step(rng, state, None)
        accepted += k >= N_TRIED and bool(info["accepted"])
    return accepted / N_TRIED
