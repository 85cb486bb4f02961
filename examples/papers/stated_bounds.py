"""Bounds of Johndrow et al. (2015) as the paper states them; `stansub.planning.theory` has sharper or valid ones."""

from __future__ import annotations

from dataclasses import dataclass

from stansub.planning import theory
from stansub.planning.theory import Numbers


def any_start_bound(n: Numbers, epsilon: Numbers, alpha: Numbers, *, mixing: Numbers | None = None) -> Numbers:
    """Return the bound of theorem 2.6 on the mean-square error from any start. It does not always hold.

    4 epsilon^2 / alpha^2 + 2 S(n, alpha_eps) + 4 a^2, where a is the mean of (1 - alpha_eps)^k for k = 0, ..., n - 1.
    The proof adds the squares of the distance between the stationary distributions and of that of the start. The square
    of their sum has a cross term, of order 1 / n, which the factor 2 of S does not always cover.

    Parameters
    ----------
    n, epsilon, alpha, mixing
        See `stansub.planning.theory.mean_square_bound`.
    """
    own = alpha - 2 * epsilon if mixing is None else mixing
    far = theory.average_bound(n, 0.0, own)
    return theory.mean_square_bound(n, epsilon, alpha, mixing=own) + 4 * far**2


@dataclass(frozen=True)
class StationaryMeanSquare:
    """Bound for a function with values in [-1, 1], from stationarity, as in section 3.1.

    It is theorem 2.5 with alpha_eps = alpha for approximations. The exact kernel has S(n, alpha), half of what the
    theorem gives it, so the optimal epsilon is understated.
    """

    alpha: float

    def bound(self, n: Numbers, epsilon: Numbers) -> Numbers:
        """Return the bound at a distance epsilon of the kernels."""
        return theory.mean_square_bound(n, epsilon, self.alpha, mixing=self.alpha)

    def exact(self, n: Numbers) -> Numbers:
        """Return the bound of the exact kernel."""
        return theory.correlated_variance(n, self.alpha)
