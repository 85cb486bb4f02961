"""Do two sets of draws have the same means, sds and tails? Estimates with their Monte Carlo errors, and a verdict.

Every estimate is to first order an average of its influence function: of a mean x - m, of an sd
((x - m)^2 - s^2) / (2 s), of the p-quantile q with density f there (p - 1[x <= q]) / f(q). So one rule gives all Monte
Carlo errors: of dependent draws by batch means of the influences (batches of sqrt(n), Flegal and Jones 2010), of
weighted independent draws from the sum of their squares.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

Array = NDArray[np.float64]
State = Literal["agrees", "differs", "unclear"]

STATISTICS = ("mean", "sd", "5 %", "95 %")
_TAILS = (0.05, 0.95)
# On either side of a quantile, the probability from which the density there is taken.
_WINDOW = 0.01
# Probability that any of the comparisons of equal distributions that are made together is beyond the limit.
LEVEL = 0.01


class Estimates(NamedTuple):
    """Means, sds and quantiles of each parameter.

    Attributes
    ----------
    values, errors : array of shape (statistic, parameter)
        In the order of `STATISTICS`; Monte Carlo standard errors.
    """

    values: Array
    errors: Array

    @property
    def sd(self) -> Array:
        return np.asarray(self.values[STATISTICS.index("sd")])

    @property
    def effective(self) -> float:
        """Independent draws with which the worst known mean would be known as well."""
        return float(((self.sd / self.errors[STATISTICS.index("mean")]) ** 2).min())


class Comparison(NamedTuple):
    """Differences of two sets of estimates.

    Attributes
    ----------
    differences, errors : array of shape (statistic, parameter)
        In sds of the posterior; the errors are those of both.
    """

    differences: Array
    errors: Array

    @property
    def z(self) -> Array:
        return np.asarray(self.differences / self.errors)

    @property
    def largest(self) -> tuple[int, int]:
        """Statistic and parameter of the largest difference."""
        statistic, parameter = np.unravel_index(np.abs(self.differences).argmax(), self.differences.shape)
        return int(statistic), int(parameter)

    def state(self, tolerance: float, limit: float) -> State:
        """``differs`` where a difference is more than Monte Carlo error, ``agrees`` where none is, nor too large.

        What is left is ``unclear``: a difference that is too large, but may be Monte Carlo error.

        Parameters
        ----------
        tolerance : float
            Largest difference in sds of the posterior.
        limit : float
            Of the differences in their own standard errors, see `limit_of`.
        """
        if not (np.abs(self.z) <= limit).all():
            return "differs"
        return "agrees" if (np.abs(self.differences) < tolerance).all() else "unclear"


def of_draws(draws: Array) -> Estimates:
    """Estimates from chains of shape (chain, draw, parameter)."""
    flat = draws.reshape(-1, draws.shape[-1])
    weights = np.full(len(flat), 1 / len(flat))
    found = [_of_one(column, weights) for column in flat.T]
    size = int(np.sqrt(draws.shape[1]))
    errors = [[_batch_error(one.reshape(draws.shape[:2]), size) for one in influences] for _, influences in found]
    return Estimates(np.array([values for values, _ in found]).T, np.array(errors).T)


def of_weighted(points: Array, weights: Array) -> Estimates:
    """Estimates from independent draws of shape (draw, parameter) with weights whose sum is 1."""
    found = [_of_one(column, weights) for column in points.T]
    errors = [[np.sqrt(weights**2 @ one**2) for one in influences] for _, influences in found]
    return Estimates(np.array([values for values, _ in found]).T, np.array(errors).T)


def _of_one(x: Array, weights: Array) -> tuple[Array, list[Array]]:
    """The statistics of one parameter, and their influence functions at its draws."""
    mean = float(weights @ x)
    sd = float(np.sqrt(weights @ (x - mean) ** 2))
    influences = [x - mean, ((x - mean) ** 2 - sd**2) / (2 * sd)]
    order = np.argsort(x)
    places, ordered = np.cumsum(weights[order]), x[order]
    quantiles = []
    for p in _TAILS:
        low, quantile, high = np.interp([p - _WINDOW, p, p + _WINDOW], places, ordered)
        influences.append((p - (x <= quantile)) * (high - low) / (2 * _WINDOW))
        quantiles.append(quantile)
    return np.array([mean, sd, *quantiles]), influences


def _batch_error(values: Array, size: int) -> float:
    """Standard error of the mean of chains of shape (chain, draw), from means of batches of consecutive draws."""
    n = values.shape[1] // size
    means = values[:, : n * size].reshape(-1, size).mean(axis=1)
    return float(means.std(ddof=1) / np.sqrt(len(means)))


def compare(own: Estimates, reference: Estimates) -> Comparison:
    """Own less reference, in sds of the reference."""
    differences = (own.values - reference.values) / reference.sd
    return Comparison(differences, np.hypot(own.errors, reference.errors) / reference.sd)


def limit_of(comparisons: Sequence[Comparison]) -> float:
    """Standard errors that no difference is beyond where all draws are from the same distributions (Bonferroni).

    With probability 1 - `LEVEL`, for all the comparisons together.
    """
    return float(norm.isf(LEVEL / (2 * sum(one.differences.size for one in comparisons))))
