"""Maximum of a log density, with the normal approximation there (Laplace)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stansub.target.gradients import scaled_steps
from stansub.types import FloatArray


@dataclass(frozen=True)
class Mode:
    """Maximum of the log density, including Jacobian terms, with the normal approximation there."""

    position: FloatArray
    """Shape (dim,): position on the unconstrained space."""
    log_density: float
    distance: float
    """Newton decrement sqrt(g' (-H)^-1 g): distance to the maximum in sds of the Laplace approximation."""
    hessian: FloatArray
    """Shape (dim, dim): Hessian of the log density, including the global part."""
    cholesky: FloatArray
    """Shape (dim, dim): lower triangular factor of the covariance (-hessian)^-1."""
    third: FloatArray = field(default_factory=lambda: np.empty(0))
    """Shape (dim (dim + 1) (dim + 2) / 6,) or (0,): third derivatives of the log density, as coefficients of products
    (`stansub.target.cubics`); empty if unknown.
    """

    @property
    def dim(self) -> int:
        """Return the number of unconstrained parameters."""
        return len(self.position)

    @property
    def covariance(self) -> FloatArray:
        """Return the covariance of the Laplace approximation, shape (dim, dim)."""
        return np.asarray(self.cholesky @ self.cholesky.T)

    @property
    def steps(self) -> FloatArray:
        """Return the best steps for gradient differences at the mode, shape (dim,)."""
        return scaled_steps(self.position, self.hessian)

    @property
    def log_evidence(self) -> float:
        """Return Laplace's approximation of the logarithm of the integral of the density about the mode."""
        log_volume = np.log(np.diag(self.cholesky)).sum() + 0.5 * self.dim * np.log(2 * np.pi)
        return float(self.log_density + log_volume)

    def distance_to(self, points: FloatArray) -> FloatArray:
        """Return the distance of points, shape (..., dim), in sds of the Laplace approximation, shape (...,)."""
        away = np.linalg.solve(self.cholesky, (points - self.position).reshape(-1, self.dim).T)
        return np.asarray(np.linalg.norm(away, axis=0).reshape(points.shape[:-1]))
