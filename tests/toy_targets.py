"""Posteriors made of numpy functions, for what needs no Stan program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from stansub.target.functions import FunctionFactors

Array = NDArray[np.float64]
Prior = Callable[[Array], tuple[float, Array]]


class Target(FunctionFactors):
    """A posterior of functions that give values and gradients at once.

    Parameters
    ----------
    each : callable
        Log likelihoods of the observations, shape (n,), and their gradients, shape (n, dim); nan where undefined.
    shared : callable, optional
        Global log density and its gradient, shape (dim,).
    """

    def __init__(
        self,
        names: Sequence[str],
        n: int,
        each: Callable[[Array], tuple[Array, Array]],
        shared: Prior | None = None,
        *,
        block_size: int = 1,
    ) -> None:
        prior = shared or (lambda theta: (0.0, np.zeros(len(names))))

        # Blocks are asked for one by one at the same points.
        @lru_cache(maxsize=100)
        def known(theta: bytes) -> tuple[Array, Array]:
            return each(np.frombuffer(theta))

        super().__init__(
            names,
            n,
            lambda theta, which: known(theta.tobytes())[0][which],
            log_density=lambda theta: prior(theta)[0],
            log_lik_gradient=lambda theta, which: known(theta.tobytes())[1][which],
            log_density_gradient=lambda theta: prior(theta)[1],
            block_size=block_size,
        )


def normal_prior(sd: float) -> Prior:
    return lambda theta: (float(-0.5 * (theta**2).sum() / sd**2), -theta / sd**2)


def logistic(x: Array, y: Array, *, prior_sd: float | None = None, block_size: int = 1) -> Target:
    """Logistic regression without intercept, with normal or flat priors."""
    sign = 2 * y - 1

    def each(theta: Array) -> tuple[Array, Array]:
        eta = sign * (x @ theta)
        return -np.logaddexp(0, -eta), (sign * np.exp(-np.logaddexp(0, eta)))[:, np.newaxis] * x

    names = [f"beta.{k}" for k in range(1, x.shape[1] + 1)]
    return Target(names, len(y), each, prior_sd and normal_prior(prior_sd), block_size=block_size)
