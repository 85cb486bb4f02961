"""Integrated autocorrelation times."""

from __future__ import annotations

import math

import numpy as np

from stansub.types import FloatArray

# The window is this many autocorrelation times (Sokal 1997, section 3).
_WINDOW = 5.0


def autocorrelation_times(draws: FloatArray) -> tuple[FloatArray, float]:
    """Return integrated autocorrelation times and their relative standard error.

    Parameters
    ----------
    draws : ndarray, shape (n_chains, n, dim)

    Returns
    -------
    times : ndarray, shape (dim,)
        1 + 2 sum of the autocorrelations up to a window of five such times, at least 1; n for parameters that never
        moved. Means are over all chains together.
    error : float
        sqrt(2 (2 W + 1) / N) with W the longest window and N the total number of draws (Madras and Sokal 1988).
    """
    n_chains, n, dim = draws.shape
    centred = draws - draws.mean((0, 1))
    spectrum = np.fft.rfft(centred, 2 * n, axis=1)
    covariances = np.fft.irfft(np.abs(spectrum) ** 2, axis=1)[:, :n].mean(0) / n
    times = np.full(dim, float(n))
    windows = np.full(dim, float(n))
    for k in np.flatnonzero(covariances[0] > 0):
        running = 2 * np.cumsum(covariances[:, k] / covariances[0, k]) - 1
        window = int(np.argmax(np.arange(n) >= _WINDOW * running)) or n - 1
        times[k], windows[k] = max(running[window], 1.0), window
    return times, float(math.sqrt(2 * (2 * windows.max() + 1) / (n_chains * n)))
