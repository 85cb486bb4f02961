"""Proposals: (rng, position) -> (proposed position, log density ratio)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from stansub.errors import InputError
from stansub.kernels.base import FloatArray


class Proposal(Protocol):
    """Draws the next candidate of a Metropolis-Hastings step; several chains may ask it at once."""

    def __call__(self, rng: np.random.Generator, position: FloatArray) -> tuple[FloatArray, float]:
        """Propose a move.

        Parameters
        ----------
        rng : Generator
            The chain's own generator.
        position : ndarray, shape (dim,)
            Unconstrained parameters.

        Returns
        -------
        proposed : ndarray, shape (dim,)
        log_ratio : float
            log q(position | proposed) - log q(proposed | position); 0 for symmetric proposals.
        """
        ...


@dataclass(frozen=True)
class RandomWalk:
    """Gaussian random walk theta' = theta + L z; the decision loop runs whole stretches of it in C++.

    Attributes
    ----------
    cholesky : ndarray, shape (dim, dim)
        Lower triangular L; L L' is the covariance of a step.

    Raises
    ------
    InputError
        When L is not a square, finite, lower triangular matrix.
    """

    cholesky: FloatArray

    def __post_init__(self) -> None:
        cholesky = np.ascontiguousarray(self.cholesky, dtype=np.float64)
        if cholesky.ndim != 2 or cholesky.shape[0] != cholesky.shape[1]:
            raise InputError(f"the factor of a random walk must be a square matrix, not of shape {cholesky.shape}")
        if not np.isfinite(cholesky).all() or np.any(np.triu(cholesky, 1)):
            raise InputError("the factor of a random walk must be finite and lower triangular")
        object.__setattr__(self, "cholesky", cholesky)

    def __call__(self, rng: np.random.Generator, position: FloatArray) -> tuple[FloatArray, float]:
        return position + self.cholesky @ rng.standard_normal(position.size), 0.0
