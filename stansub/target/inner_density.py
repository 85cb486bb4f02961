"""Log densities in inner coordinates."""

from __future__ import annotations

import numpy as np

from stansub.target.coordinates import Coordinates
from stansub.target.split import Differentiable
from stansub.types import FloatArray


class InnerDensity:
    """A log density in inner coordinates."""

    def __init__(self, density: Differentiable, coordinates: Coordinates) -> None:
        self._density, self._coordinates = density, coordinates.compiled()

    @property
    def dim(self) -> int:
        """Return the number of parameters."""
        return self._density.dim

    def outward(self, inner: FloatArray) -> FloatArray:
        """Return the parameters, shape (dim,)."""
        theta = np.empty_like(inner)
        self._coordinates.outward(inner, theta)
        return theta

    def log_density(self, inner: FloatArray) -> float:
        """Return the value."""
        return self._coordinates.pull(inner, self._density.log_density(self.outward(inner)), np.zeros_like(inner))

    def log_density_gradient(self, inner: FloatArray) -> tuple[float, FloatArray]:
        """Return the value and the gradient, shape (dim,)."""
        value, slope = self._density.log_density_gradient(self.outward(inner))
        gradient = np.array(slope)
        return self._coordinates.pull(inner, value, gradient), gradient
