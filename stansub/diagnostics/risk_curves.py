"""Risk of a posterior mean from repeated runs, split into bias and variance.

Korattikara, Chen and Welling (2014, section 3): R = E[(I_hat - I)^2] = B^2 + V over repetitions of the chain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stansub.types import FloatArray

# A jackknife of a variance needs a variance without one of the repeats.
MIN_REPEATS = 3


class ErrorParts(NamedTuple):
    """Risk at each point of a grid, averaged over the test functions, with standard errors."""

    mse: FloatArray
    bias2: FloatArray
    variance: FloatArray
    """Shape (n_points,): ``mse`` is ``bias2 + variance`` to rounding. ``bias2`` is unbiased and may therefore be
    negative.
    """
    mse_se: FloatArray
    bias2_se: FloatArray
    variance_se: FloatArray
    """Shape (n_points,): from the jackknife over repeats, plus the uncertainty of the truth."""


def split(errors: FloatArray, floor: float = 0.0, shared: float = 1.0) -> ErrorParts:
    """Estimate risk, squared bias and variance from the errors of repeated runs.

    With e_r the error of run r of R: variance s^2 = sum (e_r - e)^2 / (R - 1), squared bias e^2 - s^2 / R - floor and
    risk mean(e_r^2) - floor. All are unbiased if the floor is the variance of the truth's own error.

    Parameters
    ----------
    errors : ndarray, shape (n_repeats, n_points, n_functions)
        Estimate less truth, in units in which the test functions can be averaged.
    floor : float
        Mean over the test functions of the squared standard error of the truth.
    shared : float
        Mean absolute correlation of the truth's errors among the test functions; 1 if they all share one error.

    Raises
    ------
    ValueError
        If there are fewer than `MIN_REPEATS` repeats.
    """
    n = len(errors)
    if n < MIN_REPEATS:
        raise ValueError(f"{n} repeats are too few to separate bias from variance")
    mse, bias2, variance = _moments(errors)
    left_out = np.stack([_moments(np.delete(errors, r, axis=0)) for r in range(n)])
    # Tukey's jackknife: (n - 1) / n times the sum of squares about the mean.
    squared = (n - 1) * left_out.var(axis=0)
    # An error D of the truth adds 2 b D + D^2 to the squared bias b^2; the mean over the functions is used.
    squared[:2] += (4 * np.maximum(bias2 - floor, 0) * floor + 2 * floor**2) * shared
    return ErrorParts(mse - floor, bias2 - floor, variance, *np.sqrt(squared))


def _moments(errors: FloatArray) -> FloatArray:
    """Return mean squared error, squared bias and variance without the floor, shape (3, n_points)."""
    mse = (errors**2).mean(axis=(0, 2))
    variance = errors.var(axis=0, ddof=1).mean(axis=1)
    return np.stack([mse, mse - variance, variance])


def grid(first: float, last: float, n_points: int) -> FloatArray:
    """Return geometrically spaced points from ``first`` to ``last``; only ``last`` if it is not larger."""
    if not 0 < first < last:
        return np.array([last])
    points = np.geomspace(first, last, n_points)
    points[-1] = last
    return points
