"""Mean, covariance and convergence of the pooled draws of all chains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stansub.tuning.adapt import shrunk
from stansub.types import FloatArray


@dataclass(frozen=True)
class Moments:
    """Normal approximation with given mean and covariance.

    Attributes
    ----------
    position : ndarray, shape (dim,)
    covariance : ndarray, shape (dim, dim)
    cholesky, hessian : ndarray, shape (dim, dim)
        Lower triangular factor of the covariance, and its negative inverse.
    third : ndarray, shape (0,)
        Third derivatives of the log density, which are unknown.
    """

    position: FloatArray
    covariance: FloatArray

    @property
    def third(self) -> FloatArray:
        return np.empty(0)

    @property
    def cholesky(self) -> FloatArray:
        return np.asarray(np.linalg.cholesky(self.covariance))

    @property
    def hessian(self) -> FloatArray:
        return np.asarray(-np.linalg.inv(self.covariance))

    @property
    def sds(self) -> FloatArray:
        """Return marginal standard deviations, shape (dim,)."""
        return np.asarray(np.sqrt(np.diag(self.covariance)))


def pool(draws: Sequence[FloatArray]) -> Moments | None:
    """Return mean and covariance of the draws of all chains, shape (n, dim) each; None if too few of them differ.

    The correlations are shrunk while draws are few, as in adaptive Metropolis.
    """
    together = np.concatenate(draws)
    dim = together.shape[1]
    different = sum(int(np.count_nonzero(np.any(np.diff(one, axis=0) != 0, axis=1))) for one in draws)
    if different <= 2 * dim + 20:
        return None
    covariance = np.atleast_2d(np.cov(together, rowvar=False))
    variances = np.diag(covariance)
    if not (np.isfinite(variances).all() and (variances > 0).all()):
        return None
    return Moments(together.mean(axis=0), shrunk(covariance, different))


def r_hat(draws: Sequence[FloatArray]) -> float:
    """Return the largest ratio of total to within-chain sd; 1 for one chain (Gelman and Rubin 1992)."""
    if len(draws) < 2:
        return 1.0
    means = np.array([one.mean(axis=0) for one in draws])
    within = np.mean([one.var(axis=0, ddof=1) for one in draws], axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.sqrt(1 + means.var(axis=0, ddof=1) / within)
    return float(np.nanmax(ratio))


def stickiness(draws: Sequence[FloatArray]) -> float:
    """Return the longest stay of a chain, relative to that of as many independent rejections.

    Of n moves that are accepted independently with probability a, the longest run of rejections is about
    log n / -log(1 - a). Moves that are reversible for a normal distribution hardly leave tails that are heavier than
    its own, and then stay there much longer.
    """
    stays = [np.all(np.diff(one, axis=0) == 0, axis=1) for one in draws]
    n, rejected = sum(map(len, stays)), float(np.mean(np.concatenate(stays))) if stays else 0.0
    if n < 2 or not 0 < rejected < 1:
        return 1.0
    longest = max(int(np.diff(np.flatnonzero(np.concatenate([[True], ~one, [True]]))).max()) - 1 for one in stays)
    return float(longest / max(np.log(n) / -np.log(rejected), 1.0))


def n_effective(draws: Sequence[FloatArray]) -> float:
    """Return the effective number of draws of all chains, from the variance of their means.

    The variance of a chain's mean is that of a draw over the effective number of its draws; the result is the median
    over the parameters. For one chain it is the number of draws.
    """
    n_draws = float(sum(len(one) for one in draws))
    if len(draws) < 2:
        return n_draws
    between = np.var([one.mean(axis=0) for one in draws], axis=0, ddof=1)
    within = np.mean([one.var(axis=0, ddof=1) for one in draws], axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(min(n_draws, len(draws) / np.median(between / within)))
