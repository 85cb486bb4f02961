"""Exact errors of chains with few states, to compare with the bounds of `stansub.planning.theory`."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from stansub.types import FloatArray


class Pair(NamedTuple):
    """An exact kernel and its approximation.

    Attributes
    ----------
    exact, approximate : ndarray, shape (k, k)
        Transition matrices, a row per state.
    """

    exact: FloatArray
    approximate: FloatArray

    @property
    def alpha(self) -> float:
        """Return the largest constant of Doeblin's condition for the exact kernel."""
        return doeblin(self.exact)

    @property
    def mixing(self) -> float:
        """Return the largest constant for the approximation, alpha_eps."""
        return doeblin(self.approximate)

    @property
    def epsilon(self) -> float:
        """Return the largest total variation between the two, over states."""
        return max(map(total_variation, self.exact, self.approximate))

    def average_distance(self, n: int, start: FloatArray) -> float:
        """Return the total variation between the exact stationary distribution and the average over n states."""
        total, law = np.zeros(len(start)), np.asarray(start)
        for _ in range(n):
            total, law = total + law, law @ self.approximate
        return total_variation(stationary(self.exact), total / n)

    def mean_square(self, n: int, start: FloatArray, values: FloatArray) -> FloatArray:
        """Return the mean-square error of the average of a function over n states, about its exact mean.

        Parameters
        ----------
        start : ndarray, shape (k,)
            Distribution of the first state.
        values : ndarray, shape (k, ...)
            Values of the function, or of several.

        Returns
        -------
        ndarray, shape (...)
        """
        centred = np.asarray(values) - stationary(self.exact) @ values
        # E[f(X_j) f(X_k)] summed over the k - j remaining steps after state j.
        ahead, sums = centred, np.zeros((n, *centred.shape))
        for left in range(1, n):
            ahead = self.approximate @ ahead
            sums[left] = sums[left - 1] + ahead
        total, law = np.zeros(centred.shape[1:]), np.asarray(start)
        for left in reversed(range(n)):
            total = total + law @ (centred * (centred + 2 * sums[left]))
            law = law @ self.approximate
        return total / n**2

    def worst_mean_square(self, n: int, start: FloatArray) -> float:
        """Return the largest error over functions with values in [-1, 1]; it is convex, so their values are -1 or 1."""
        corners = list(itertools.product((-1.0, 1.0), repeat=len(self.exact)))
        return float(self.mean_square(n, start, np.array(corners).T).max())


def total_variation(first: FloatArray, second: FloatArray) -> float:
    """Return the total variation between two distributions: half the sum of absolute differences."""
    return float(np.abs(first - second).sum() / 2)


def doeblin(kernel: FloatArray) -> float:
    """Return 1 less the largest total variation of rows: the best alpha (Johndrow et al. 2015, assumption 2.1)."""
    return 1 - max(total_variation(one, other) for one, other in itertools.combinations(kernel, 2))


def stationary(kernel: FloatArray) -> FloatArray:
    """Return the stationary distribution of a kernel that has only one."""
    k = len(kernel)
    equations = np.vstack([kernel.T - np.eye(k), np.ones(k)])
    return np.asarray(np.linalg.lstsq(equations, np.append(np.zeros(k), 1.0))[0])


def two_states(alpha: float, epsilon: float) -> Pair:
    """Return the example of Johndrow et al. (2015), section 2.3, equation 5, with beta = alpha / 2."""
    leave, stay = alpha / 2, 1 - alpha / 2
    exact = np.array([[stay, leave], [leave, stay]])
    return Pair(exact, exact + epsilon * np.array([[1.0, -1.0], [1.0, -1.0]]))


def absorbed(alpha: float, epsilon: float) -> Pair:
    """Return two states: the exact chain stays in the second, and the approximate one leaves it for the first.

    From the first state and for the function (-1, 1), start and approximation err in the same direction. With epsilon
    near alpha / 2 and n large, this violates theorem 2.6 of Johndrow et al. (2015).
    """
    exact = np.array([[1 - alpha, alpha], [0.0, 1.0]])
    return Pair(exact, exact + epsilon * np.array([[1.0, -1.0], [1.0, -1.0]]))
