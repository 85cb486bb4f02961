"""A proposal: the same multivariate t wherever the chain stands (independence chains: Tierney 1994).

theta' = mean + L z sqrt(df / c), with z standard normal and c chi-squared with df degrees of freedom, has a density in
proportion to (1 + |L^-1 (theta' - mean)|^2 / df)^(-(df + dim) / 2). It does not depend on theta, but it is not
symmetric: log q(theta) - log q(theta') belongs to the acceptance ratio.

What it is not: adaptive. It is good where the t covers the posterior and little wider (few parameters, one mode), and a
chain sticks for long wherever the posterior's tails are heavier than the t's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class IndependentT:
    """Multivariate t proposals.

    Attributes
    ----------
    mean : ndarray, shape (dim,)
    cholesky : ndarray, shape (dim, dim)
        L, lower triangular.
    df : float
        Degrees of freedom.
    """

    mean: Array
    cholesky: Array
    df: float = 4.0

    def __call__(self, rng: np.random.Generator, position: Array) -> tuple[Array, float]:
        """The proposed position, and log q(position) - log q(proposed)."""
        z = rng.standard_normal(len(self.mean)) * np.sqrt(self.df / rng.chisquare(self.df))
        proposed = self.mean + self.cholesky @ z
        return proposed, self.log_density(position) - self.log_density(proposed)

    def log_density(self, theta: Array) -> float:
        """Of the t, up to a constant."""
        z = np.linalg.solve(self.cholesky, theta - self.mean)
        return float(-0.5 * (self.df + len(theta)) * np.log1p(z @ z / self.df))
