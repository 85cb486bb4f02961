"""Comparison of two samplers' joint distributions by covariances."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from stansub.diagnostics.statistics import Side
from stansub.output import convergence
from stansub.output.statistics import still
from stansub.types import FloatArray

NEGLIGIBLE = 0.01  # negligible difference of correlations
_NEAR_ONE = 1 - 1e-6
_BLOCK = 5_000_000  # elements of a matrix of pairs in memory at a time


class Pair(NamedTuple):
    """The two quantities whose correlation differs most, in standard errors.

    Correlations are of normal scores (ranks mapped to normal quantiles), which exist for any marginal distributions.
    `z` is of the difference beyond `NEGLIGIBLE`, and 0 below it. `p` is the p-value of this pair alone; `n_pairs` is
    the number of pairs from which it was chosen.
    """

    names: tuple[str, str]
    correlation: float
    correlation_reference: float
    z: float
    p: float
    n_pairs: int


class Covariances(NamedTuple):
    """Difference of two covariance matrices."""

    relative: float
    """|S - S_ref|_F / |S_ref|_F, with Frobenius norms (Johndrow, Pillai and Smith 2020, section 4.2, use the squared
    norm of the difference).
    """
    standardised: float
    """The same with every quantity in sds of the reference, so that all of them count."""
    expected: float
    """Root mean square of `standardised` if only Monte Carlo error differs."""


def compare_covariances(draws: Side, reference: Side) -> Covariances:
    """Compare covariance matrices over the quantities that are finite and vary; NaN if there are none.

    Notes
    -----
    `expected` uses (1 + r^2) / ESS as the variance of an estimated covariance in sds, as for normal draws, with the
    geometric mean of the two quantities' ESS of squares.
    """
    use = _usable(draws, reference)
    if not use.any():
        return Covariances(np.nan, np.nan, np.nan)
    sd = reference.sd[use]
    root_ess = [np.sqrt(side.ess_squares[use]) for side in (draws, reference)]
    centred = [_flat(side)[:, use] - side.mean[use] for side in (draws, reference)]
    squares = np.zeros(5)
    for rows in _slices(len(sd)):
        own, other = (values[:, rows].T @ values / (len(values) - 1) for values in centred)
        scale = np.outer(sd[rows], sd)
        correlation = other / scale
        variances = sum((1 + correlation**2) / np.outer(root[rows], root) for root in root_ess)
        parts = (own - other, other, (own - other) / scale, correlation)
        squares += [*(np.sum(part**2) for part in parts), np.sum(variances)]
    difference, size, standardised, correlations, expected = np.sqrt(squares)
    return Covariances(
        relative=float(difference / size),
        standardised=float(standardised / correlations),
        expected=float(expected / correlations),
    )


def worst_pair(names: Sequence[str], draws: Side, reference: Side) -> Pair | None:
    """Return the pair whose correlation differs most; None for fewer than two quantities.

    Notes
    -----
    The hypothesis is that the correlations differ by at most `NEGLIGIBLE`. Both are moved towards each other by half of
    it and compared after Fisher's z-transform, which makes their distribution nearly normal; correlations closer than
    that do not differ. The test therefore does not depend on how near to 1 a correlation is. The relative error of 1 -
    r of normal scores is neither small nor equal for all numbers of draws: at a correlation of 0.99995 its expectation
    is 86 % too large for n = 1,000 draws, 19 % for 4,000, and 6 % for 16,000 (simulated). That is far beyond its Monte
    Carlo error, because ranks fix the distance of the outermost scores.

    The ESS of squares selects the pair. Its own standard error is then the Monte Carlo error of the mean of
    x y - r (x^2 + y^2) / 2, the influence function of a correlation r of standardised x and y.
    """
    use = np.flatnonzero(_usable(draws, reference))
    if len(use) < 2:
        return None
    scores = [_normal_scores(side.values[:, :, use]) for side in (draws, reference)]
    i, j = _farthest(scores, [np.sqrt(side.ess_squares[use]) for side in (draws, reference)])
    own, other = (float(np.corrcoef(one[:, :, i].ravel(), one[:, :, j].ravel())[0, 1]) for one in scores)
    gap = _gap(np.array(own), np.array(other))
    errors = [
        _correlation_error(one[:, :, i], one[:, :, j], r) / (1 - near**2)
        for one, r, near in zip(scores, (own, other), gap.correlations, strict=True)
    ]
    total = float(np.hypot(*errors))
    z = 0.0 if gap.size <= 0 else float(gap.size) / total if total > 0 else math.inf
    df = min(side.ess[use[[i, j]]].min() for side in (draws, reference)) / 8
    return Pair(
        names=(names[use[i]], names[use[j]]),
        correlation=own,
        correlation_reference=other,
        z=math.copysign(z, own - other),
        p=float(2 * stats.t.sf(z, max(df, 1))),
        n_pairs=len(use) * (len(use) - 1) // 2,
    )


class _Gap(NamedTuple):
    """Difference of correlations beyond `NEGLIGIBLE`."""

    correlations: tuple[FloatArray, FloatArray]
    """Both, moved towards each other by half of `NEGLIGIBLE`."""
    size: FloatArray
    """Their difference after Fisher's z-transform; negative if they have passed each other."""


def _gap(own: FloatArray, other: FloatArray) -> _Gap:
    sign = np.where(own < other, -1.0, 1.0)
    moved = (own - sign * NEGLIGIBLE / 2, other + sign * NEGLIGIBLE / 2)
    one, two = (np.clip(correlations, -_NEAR_ONE, _NEAR_ONE) for correlations in moved)
    return _Gap((one, two), sign * (np.arctanh(one) - np.arctanh(two)))


def _farthest(scores: Sequence[FloatArray], root_ess: Sequence[FloatArray]) -> tuple[int, int]:
    """Return the pair whose correlations on the two sides differ most, beyond what is negligible."""
    flat = [one.reshape(-1, one.shape[2]) for one in scores]
    unit = [(one - one.mean(axis=0)) / (one.std(axis=0) * np.sqrt(len(one))) for one in flat]
    n, found, largest = unit[0].shape[1], (0, 1), -np.inf
    for rows in _slices(n):
        error = np.sqrt(sum(1 / np.outer(root[rows], root) for root in root_ess))
        size = _gap(*(one[:, rows].T @ one for one in unit)).size
        distance = np.where(np.arange(n) > np.arange(n)[rows, None], size / error, -np.inf)
        i, j = divmod(int(np.argmax(distance)), n)
        if distance[i, j] > largest:
            found, largest = (rows.start + i, j), float(distance[i, j])
    return found


def _slices(n: int) -> Iterator[slice]:
    """Yield rows of a matrix with n columns, few enough at a time to need little memory."""
    step = max(1, _BLOCK // n)
    return (slice(start, min(start + step, n)) for start in range(0, n, step))


def _usable(draws: Side, reference: Side) -> NDArray[np.bool_]:
    usable = np.ones(draws.values.shape[2], dtype=bool)
    for side in (draws, reference):
        usable &= np.isfinite(side.values).all(axis=(0, 1)) & ~still(side.values) & (side.ess_squares > 0)
    return usable


def _flat(side: Side) -> FloatArray:
    return side.values.reshape(-1, side.values.shape[2])


def _normal_scores(values: FloatArray) -> FloatArray:
    """Return ranks over all chains as normal quantiles (Blom's, as in rank-normalised R-hat)."""
    ranks = stats.rankdata(values.reshape(-1, values.shape[2]), axis=0)
    scores = special.ndtri((ranks - 0.375) / (len(ranks) + 0.25))
    return np.asarray((scores / scores.std(axis=0)).reshape(values.shape), dtype=float)


def _correlation_error(x: FloatArray, y: FloatArray, r: float) -> float:
    return float(convergence.mcse_mean((x * y - r * (x**2 + y**2) / 2)[:, :, None])[0])
