"""Posteriors made of numpy functions, for what needs no Stan program."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from stansub.target.blocks import Blocks
from stansub.target.gradients import default_steps

Array = NDArray[np.float64]


class Target:
    """A posterior, its population and its evaluator in one.

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
        shared: Callable[[Array], tuple[float, Array]] | None = None,
        *,
        block_size: int = 1,
    ) -> None:
        self.names, self.dim, self.blocks = list(names), len(names), Blocks(n, block_size)
        self._each, self._shared = each, shared or (lambda theta: (0.0, np.zeros(self.dim)))

    @property
    def full(self) -> Target:
        return self

    @property
    def population(self) -> Target:
        return self

    def param_unc_names(self) -> list[str]:
        return self.names

    def param_names(self) -> list[str]:
        return self.names

    def param_constrain(self, theta: Array) -> Array:
        return theta

    def global_log_density(self, theta: Array) -> float:
        value = self._shared(theta)[0]
        return value if np.isfinite(value) else -np.inf

    def evaluator(self) -> Target:
        return self

    def _parts(self, theta: Array, which: NDArray[np.int32]) -> tuple[Array, Array]:
        values, gradients = self._each(theta)
        starts = self.blocks.starts
        return np.add.reduceat(values, starts)[which], np.add.reduceat(gradients, starts)[which]

    def block_log_lik(self, theta: Array, which: NDArray[np.int32]) -> Array:
        values = self._parts(theta, which)[0]
        return values if np.isfinite(values).all() else np.full(len(which), -np.inf)

    def subset_log_density_gradient(self, theta: Array, which: NDArray[np.int32]) -> tuple[float, Array]:
        (value, gradient), (values, gradients) = self._shared(theta), self._parts(theta, which)
        value, gradient = float(value + values.sum()), gradient + gradients.sum(0)
        return (value, gradient) if np.isfinite([value, *gradient]).all() else (-np.inf, np.full(self.dim, np.nan))

    def block_taylor(
        self,
        theta: Array,
        which: NDArray[np.int32],
        order: int,
        out: NDArray[np.float32],
        steps: Array | None = None,
    ) -> None:
        out[:, : self.dim] = self._parts(theta, which)[1]
        if order == 2:
            steps = default_steps(theta) if steps is None else steps
            hessians = np.empty((len(which), self.dim, self.dim))
            for i, step in enumerate(np.diag(steps)):
                above, below = (self._parts(theta + way * step, which)[1] for way in (1, -1))
                hessians[:, i] = (above - below) / (2 * steps[i])
            i, j = np.tril_indices(self.dim)
            out[:, self.dim :] = (hessians + hessians.transpose(0, 2, 1))[:, i, j] / 2
        if not np.isfinite(out).all():
            raise ValueError(f"the gradient of block {which[0]} is not defined")


def normal_prior(sd: float) -> Callable[[Array], tuple[float, Array]]:
    return lambda theta: (float(-0.5 * (theta**2).sum() / sd**2), -theta / sd**2)


def logistic(x: Array, y: Array, *, prior_sd: float | None = None, block_size: int = 1) -> Target:
    """Logistic regression without intercept, with normal or flat priors."""
    sign = 2 * y - 1

    def each(theta: Array) -> tuple[Array, Array]:
        eta = sign * (x @ theta)
        return -np.logaddexp(0, -eta), (sign * np.exp(-np.logaddexp(0, eta)))[:, np.newaxis] * x

    names = [f"beta.{k}" for k in range(1, x.shape[1] + 1)]
    return Target(names, len(y), each, prior_sd and normal_prior(prior_sd), block_size=block_size)
