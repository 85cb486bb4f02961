"""What is analysed: sources, their mixture, and how far an unmixing matrix is from the truth."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

Array = NDArray[np.float64]

RATE, SECONDS = 44_100, 43
WHOLE = RATE * SECONDS
D = 4


class Mixed(NamedTuple):
    """Prewhitened observations of mixed sources.

    Attributes
    ----------
    x : ndarray, shape (D, n)
        With mean 0 and covariance 1.
    mixing : ndarray, shape (D, D)
        x = mixing @ sources.
    kurtosis : ndarray, shape (D,)
        Excess kurtosis of the sources.
    """

    x: Array
    mixing: Array
    kurtosis: Array

    @property
    def unmixing(self) -> Array:
        """W_0, the inverse of the mixing matrix; nearly orthonormal, as the sources are nearly uncorrelated."""
        return np.asarray(np.linalg.inv(self.mixing))

    def data(self, *, free: bool) -> dict[str, object]:
        """Of the Stan program."""
        n = self.x.shape[1]
        return {"free": int(free), "N": n, "time": np.arange(1, n + 1), "x": self.x}


def mixed(n: int, rng: np.random.Generator) -> Mixed:
    """Four sources, mixed at random and prewhitened: ``n`` of the samples of 43 seconds, evenly spaced."""
    rows = [music(rng), traffic(rng), *rng.standard_normal((2, WHOLE))]
    places = np.linspace(0, WHOLE - 1, n).astype(int)
    sources = np.array([row[places] for row in rows])
    sources = (sources - sources.mean(1, keepdims=True)) / sources.std(1, keepdims=True)
    matrix = rng.standard_normal((D, D))
    observed = matrix @ sources
    values, vectors = np.linalg.eigh(np.cov(observed, bias=True))
    whitening = vectors @ np.diag(values**-0.5) @ vectors.T
    return Mixed(whitening @ observed, whitening @ matrix, (sources**4).mean(1) - 3)


def music(rng: np.random.Generator) -> Array:
    """Notes of a scale, each a sum of harmonics that decay, the high ones faster."""
    sound, start = np.zeros(WHOLE), 0
    notes = 220 * 2 ** (np.array([0, 2, 4, 5, 7, 9, 11, 12]) / 12)
    while start < WHOLE:
        pitch, loudness, length = rng.choice(notes), rng.gamma(3.0), rng.uniform(0.15, 0.6)
        time = np.arange(min(WHOLE - start, round(3 * length * RATE))) / RATE
        for k in range(1, 5):
            wave = np.sin(2 * np.pi * k * pitch * time + rng.uniform(0, 2 * np.pi))
            sound[start : start + time.size] += loudness / k * np.exp(-1.5 * k * time / length) * wave
        start += round(length * RATE)
    return sound


def traffic(rng: np.random.Generator) -> Array:
    """Low-pass noise, louder whenever somebody passes."""
    noise, time = lfilter([1.0], [1.0, -0.9], rng.standard_normal(WHOLE)), np.arange(WHOLE) / RATE
    loudness = np.full(WHOLE, 1.0)
    for moment in rng.uniform(0, SECONDS, 12):
        loudness += rng.gamma(2.0) * np.exp(-0.5 * ((time - moment) / rng.uniform(0.3, 1.0)) ** 2)
    return np.asarray(noise * loudness)


def log_likelihood(matrix: Array, x: Array) -> Array:
    """log p(x | W) of each observation, shape (..., n), W orthonormal: -sum_j log 4 cosh^2(w_j x / 2)."""
    size = np.abs(matrix @ x)
    return np.asarray(-(size + 2 * np.log1p(np.exp(-size))).sum(-2))


def amari(unmixing: Array, mixing: Array) -> Array:
    """Amari distance of unmixing matrices, shape (..., D, D), from the inverse of the mixing matrix.

    With P = W mixing, the sums of |p_ij| over its rows, each divided by its largest, and over its columns, less 1
    (Amari et al. 1996); divided by their largest possible value, so that it is between 0 and 1. It is 0 where P is a
    permutation with any signs and scales.
    """
    p = np.abs(unmixing @ mixing)
    rows = (p / p.max(-1, keepdims=True)).sum((-1, -2))
    columns = (p / p.max(-2, keepdims=True)).sum((-1, -2))
    return np.asarray((rows + columns - 2 * D) / (2 * D * (D - 1)))


def orthonormal(rng: np.random.Generator) -> Array:
    """A uniform random orthonormal matrix."""
    q, r = np.linalg.qr(rng.standard_normal((D, D)))
    return np.asarray(q * np.sign(np.diag(r)))


def turned(unmixing: Array, angles: Array) -> Array:
    """W_0 made orthonormal with its last two rows, those of the Gaussian sources, turned in their plane."""
    u, _, v = np.linalg.svd(unmixing)
    w = u @ v
    found = np.repeat(w[np.newaxis], len(angles), axis=0)
    c, s = np.cos(angles)[:, np.newaxis], np.sin(angles)[:, np.newaxis]
    found[:, 2], found[:, 3] = c * w[2] + s * w[3], c * w[3] - s * w[2]
    return found
