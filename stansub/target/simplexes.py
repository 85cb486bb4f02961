"""Arguments of a likelihood that are logarithms of the elements of a simplex.

On the surface where exp(phi_1) + ... + exp(phi_k) = 1, a likelihood with latent classes has maxima. Beside it the
likelihood rises without end, and its expansion is large far from its point. The augmented Lagrangian (Nocedal and
Wright 2006, section 17.3),

    L(phi) - sum_j mu_j h_j(phi) - r / 2 sum_j mu_j h_j(phi)^2,    h_j(phi) = sum_k exp(phi_k) - 1,

is the same on the surface. With the multipliers mu of a maximum, and a penalty r that is large enough, it bends down in
all directions there.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.target.cholesky import is_definite
from stansub.target.sparse import Quadratic
from stansub.types import FloatArray

Places: TypeAlias = NDArray[np.int64]

# Penalties that are tried, and the least multiplier.
_PENALTIES, _LEAST = (0.0, 1.0, 4.0, 16.0, 64.0, 256.0), 1e-9


class Simplexes(NamedTuple):
    """Places of the elements of each simplex."""

    places: tuple[Places, ...] = ()

    def nearest(self, phi: FloatArray) -> FloatArray:
        """Return a point on the surface near another."""
        found = phi.copy()
        for one in self.places:
            found[one] -= np.logaddexp.reduce(found[one])
        return found

    def constraint(self, point: FloatArray, slope: FloatArray) -> FloatArray:
        """Return the gradient of the sum of mu_j h_j, shape (m,), which is also the diagonal of its second derivatives.

        The multipliers are those of a maximum, where the slope is a combination of the gradients of h.
        """
        found = np.zeros(len(point))
        for one in self.places:
            found[one] = slope[one].sum() * np.exp(point[one])
        return found

    def columns(self, values: FloatArray) -> sp.csr_array:
        """Return values of arguments, shape (m,), as a column for each simplex, 0 elsewhere, shape (m, k)."""
        rows, which = np.concatenate(self.places), np.repeat(np.arange(len(self.places)), list(map(len, self.places)))
        return sp.csr_array((values[rows], (rows, which)), shape=(len(values), len(self.places)))


NO_SIMPLEXES = Simplexes()


class Surface(NamedTuple):
    """Second-order expansion of what the augmented Lagrangian adds to a likelihood, with its sign changed."""

    slope: FloatArray
    """Shape (m,): sum of the gradients of mu_j h_j."""
    precision: sp.csr_array
    """Shape (m, m)."""

    @classmethod
    def of(cls, simplexes: Simplexes, quadratic: Quadratic) -> Surface:
        """Return it about the point of an expansion, with the least penalty that makes the sum bend down."""
        slope = simplexes.constraint(quadratic.point, quadratic.gradient)
        found = cls(slope, sp.csr_array(sp.diags_array(slope)))
        if not simplexes.places:
            return found
        gradients = simplexes.columns(slope)
        normals = gradients @ sp.diags_array(1 / np.sqrt(np.maximum(gradients.sum(axis=0), _LEAST)))
        for penalty in _PENALTIES:
            found = cls(slope, sp.csr_array(sp.diags_array(slope) + penalty * (normals @ normals.T)))
            if is_definite(sp.csr_array(quadratic.precision + found.precision)):
                break
        return found

    def value(self, change: FloatArray) -> float:
        """Return the value for a change of the arguments."""
        return float(self.slope @ change + 0.5 * change @ (self.precision @ change))

    def gradient(self, change: FloatArray) -> FloatArray:
        """Return the gradient, shape (m,)."""
        return np.asarray(self.slope + self.precision @ change)
