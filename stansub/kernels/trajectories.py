"""Hamiltonian trajectories on the third-order expansion of the log density at its mode.

With theta = m + L w, where L L' is the covariance of the normal approximation at the mode m, the expansion is
-|w|^2 / 2 + C(w), and C is a cubic form. Under the first part, position and momentum turn by an angle, exactly; under
the second, the momentum changes by the gradient of C. A trajectory alternates between the two (Neal 2011, sections 5.3
and 5.5.1; Shahbaba, Lan, Johnson and Neal 2014). It is reversible and keeps volume, so the log density ratio of the
proposal is that of the momenta, whatever posterior the decision is about. A trajectory takes no data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stansub import _loop
from stansub.errors import InputError
from stansub.kernels.proposals import Compiled, lower_triangular
from stansub.target import cubics
from stansub.types import FloatArray

# Approximate cost of a step, in evaluations of an observation, and terms of the cubic that cost as much as one.
_TURN, _TERMS = 10.0, 300


@dataclass(frozen=True)
class Trajectory(Compiled):
    """Trajectory on -|w|^2 / 2 + C(w), theta = m + L w.

    Raises
    ------
    InputError
        If the shapes do not match, a number is not finite, or L is not lower triangular and invertible.
    """

    centre: FloatArray
    """Shape (dim,): m."""
    cholesky: FloatArray
    """Shape (dim, dim): lower triangular L, invertible."""
    cubic: FloatArray
    """Shape (dim (dim + 1) (dim + 2) / 6,): coefficients of w_j w_k w_l in C, for j, then k <= j, then l <= k."""
    angle: float
    """By which it turns where C is 0: cos(angle) is then the correlation of its ends."""
    n_steps: int
    """Steps, each with one gradient of C."""

    def __post_init__(self) -> None:
        cholesky = lower_triangular(self.cholesky, "a trajectory", invertible=True)
        dim = len(cholesky)
        centre, cubic = (np.ascontiguousarray(given, dtype=np.float64) for given in (self.centre, self.cubic))
        if centre.shape != (dim,) or cubic.shape != (cubics.n_products(dim),):
            raise InputError(
                f"a trajectory of {dim} parameters needs a centre of shape {(dim,)} and {cubics.n_products(dim)} "
                f"coefficients, not shapes {centre.shape} and {cubic.shape}"
            )
        if not (np.isfinite(centre).all() and np.isfinite(cubic).all() and np.isfinite(self.angle)):
            raise InputError("the centre, coefficients and angle of a trajectory must be finite")
        if self.n_steps < 1:
            raise InputError(f"a trajectory must have at least one step, not {self.n_steps}")
        for name, value in (("centre", centre), ("cholesky", cholesky), ("cubic", cubic)):
            object.__setattr__(self, name, value)

    @property
    def cost(self) -> float:
        return self.n_steps * (_TURN + len(self.cubic) / _TERMS)

    def single(self) -> _loop.Proposal:
        return _loop.Trajectory(self.centre, self.cholesky, self.cubic, self.angle, self.n_steps)


def trajectory(mode: FloatArray, cholesky: FloatArray, third: FloatArray, *, angle: float, n_steps: int) -> Trajectory:
    """Return the trajectory on an expansion.

    Parameters
    ----------
    mode : ndarray, shape (dim,)
        Where the log density is expanded.
    cholesky : ndarray, shape (dim, dim)
        Factor of the covariance of the normal approximation there.
    third : ndarray, shape (dim (dim + 1) (dim + 2) / 6,)
        Third derivatives of the log density there, for j, then k <= j, then l <= k, times the number of permutations of
        j, k and l.
    """
    return Trajectory(mode, cholesky, cubics.in_coordinates(third, cholesky) / 6, angle, n_steps)
