"""Proposals: (rng, position) -> (proposed position, log density ratio)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from stansub.kernels.base import FloatArray


class Proposal(Protocol):
    """Draws the next candidate of a Metropolis-Hastings step."""

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
    """

    cholesky: FloatArray

    def __call__(self, rng: np.random.Generator, position: FloatArray) -> tuple[FloatArray, float]:
        return position + self.cholesky @ rng.standard_normal(position.size), 0.0
