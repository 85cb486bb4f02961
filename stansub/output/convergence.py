"""Convergence diagnostics by arviz-stats: R-hat, effective sample sizes, Monte Carlo standard errors.

The definitions are those of Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021). All of ArviZ, with its plots, takes
seconds to import; the package with its statistics does not.

Draws are arrays of shape (chain, draw, quantity) with `LEAST_DRAWS` or more.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stansub.types import FloatArray

LEAST_DRAWS = 4
# Probabilities of the quantiles in the tail effective sample size.
_TAILS = (0.05, 0.95)


def r_hat(draws: FloatArray) -> FloatArray:
    """Return rank-normalised split R-hat, shape (quantity,); NaN for one chain."""
    if len(draws) < 2:
        return np.full(draws.shape[2], np.nan)
    return _statistic("rhat", draws)


def ess_bulk(draws: FloatArray) -> FloatArray:
    """Return the effective sample size of the rank-normalised draws, shape (quantity,)."""
    return _statistic("ess", draws, method="bulk")


def ess_tail(draws: FloatArray) -> FloatArray:
    """Return the smaller effective sample size of the 5 % and the 95 % quantile, shape (quantity,)."""
    return _statistic("ess", draws, method="tail", prob=_TAILS)


def ess_quantile(draws: FloatArray, probability: float) -> FloatArray:
    """Return the effective sample size for a quantile, shape (quantity,)."""
    return _statistic("ess", draws, method="quantile", prob=probability)


def ess_mean(draws: FloatArray) -> FloatArray:
    """Return the effective sample size for means, shape (quantity,)."""
    return _statistic("ess", draws, method="mean")


def mcse_mean(draws: FloatArray) -> FloatArray:
    """Return standard errors of means, shape (quantity,)."""
    return _statistic("mcse", draws, method="mean")


def mcse_sd(draws: FloatArray) -> FloatArray:
    """Return standard errors of standard deviations, shape (quantity,), from those of mean squares by the delta method.

    The function of arviz-stats 0.8 uses the draws' effective sample size for that of their squares.
    """
    squares = (draws - draws.mean(axis=(0, 1))) ** 2
    of_variance = np.sqrt(squares.var(axis=(0, 1)) / _statistic("ess", squares, method="mean"))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(of_variance / np.sqrt(squares.mean(axis=(0, 1))) / 2)


def _statistic(name: str, draws: FloatArray, **options: Any) -> FloatArray:
    from arviz_stats.base.array import array_stats  # uses scipy.stats, which a run does not import otherwise

    with np.errstate(divide="ignore", invalid="ignore"):  # draws that never change
        return np.asarray(getattr(array_stats, name)(draws, chain_axis=0, draw_axis=1, **options), np.float64)
