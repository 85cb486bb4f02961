"""How well the draws of one quantity determine it: R-hat, effective sample sizes, Monte Carlo standard errors.

They are ArviZ's figures, by the same definitions (Vehtari, Gelman, Simpson, Carpenter and Bürkner 2021, sections 3 and
4; Geyer 1992 for the length of the autocorrelation). ArviZ itself takes seconds to import, with all that it plots with,
so a run that needs no more than these does without it.

Draws are arrays of shape (chain, draw) with `LEAST_DRAWS` or more, all finite and not all the same.
"""

from __future__ import annotations

import numpy as np
import scipy

from stansub.types import FloatArray

LEAST_DRAWS = 4

# Probabilities of the quantiles that the tails' effective sample size is about.
_TAILS = (0.05, 0.95)
# Ranks become quantiles of the normal distribution by Blom's formula.
_BLOM = 3 / 8


def r_hat(draws: FloatArray) -> float:
    """Rank-normalised split R-hat, the larger of that of draws and of their distances from the median (section 4.1).

    NaN for one chain.
    """
    if len(draws) < 2:
        return float("nan")
    split = _split(draws)
    return max(_potential_reduction(_normalised(one)) for one in (split, np.abs(split - np.median(split))))


def ess_bulk(draws: FloatArray) -> float:
    """Effective sample size of the rank-normalised draws (section 4.2)."""
    return _ess(_normalised(_split(draws)))


def ess_tail(draws: FloatArray) -> float:
    """The smaller of the effective sample sizes for the 5 % and the 95 % quantile (section 4.3)."""
    return min(_ess(_split(draws <= quantile).astype(float)) for quantile in np.quantile(draws, _TAILS))


def mcse_mean(draws: FloatArray) -> float:
    """Standard error of the mean."""
    return float(draws.std(ddof=1) / np.sqrt(_ess(_split(draws))))


def mcse_sd(draws: FloatArray) -> float:
    """Standard error of the standard deviation, by the delta method from that of the mean square."""
    squares = (draws - draws.mean()) ** 2
    return float(np.sqrt(squares.var() / _ess(_split(squares)) / squares.mean()) / 2)


def _split(draws: FloatArray) -> FloatArray:
    """The first and the last half of each chain, as chains of their own."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _normalised(draws: FloatArray) -> FloatArray:
    """Normal quantiles by rank; equal values have their mean rank."""
    _, place, counts = np.unique(draws, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    scores: FloatArray = scipy.special.ndtri((ranks - _BLOM) / (draws.size + 1 - 2 * _BLOM))
    return scores[place.reshape(draws.shape)]


def _potential_reduction(draws: FloatArray) -> float:
    n = draws.shape[1]
    within, between = draws.var(axis=1, ddof=1).mean(), draws.mean(axis=1).var(ddof=1)
    with np.errstate(all="ignore"):  # chains that do not move have no variance within
        return float(np.sqrt((n * between / within + n - 1) / n))


def _ess(draws: FloatArray) -> float:
    """Draws over their autocorrelation time, which sums pairs of autocorrelations as long as these are positive.

    Such sums fall with the lag if the chain is reversible, so that they are made to (Geyer's initial monotone
    sequence). Of the first pair that is left out, an autocorrelation at an even lag still counts once.
    """
    n = draws.shape[1]
    if np.ptp(draws) < np.finfo(float).resolution:
        return float(draws.size)
    covariances = _autocovariances(draws)
    within = covariances[0] * n / (n - 1)
    total = covariances[0] + (draws.mean(axis=1).var(ddof=1) if len(draws) > 1 else 0.0)
    correlations = 1 - (within - covariances) / total
    correlations[0] = 1.0
    n_pairs = max((n - 3) // 2, 0) + 1
    even, odd = correlations[: 2 * n_pairs].reshape(-1, 2).T
    pairs = even + odd
    negative = np.flatnonzero(~(pairs > 0))
    last = int(negative[0]) if negative.size else n_pairs - 1
    rest = float(even[last]) if even[last] > 0 or pairs[last] >= 0 else 0.0
    time = 2 * float(np.minimum.accumulate(pairs[:last]).sum()) + rest - 1
    return float(draws.size / max(time, 1 / np.log10(draws.size)))


def _autocovariances(draws: FloatArray) -> FloatArray:
    """Means over chains by lag, with the number of draws as the divisor at each."""
    n = draws.shape[1]
    size = 1 << (2 * n - 1).bit_length()
    spectrum = np.fft.rfft(draws - draws.mean(axis=1, keepdims=True), n=size, axis=1)
    power = (spectrum.real**2 + spectrum.imag**2).mean(axis=0)
    covariances: FloatArray = np.fft.irfft(power, n=size)[:n] / n
    return covariances
