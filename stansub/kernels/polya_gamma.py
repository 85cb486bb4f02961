"""Gibbs sampling of logistic regression with Pólya-Gamma variables, from all the data or from mini-batches.

Given omega_i ~ PG(1, x_i beta) for every observation, beta is normal (Polson, Scott and Windle 2013), so a step needs
no decision. With omega for a mini-batch of m of the N observations alone (Johndrow et al. 2015, equation 10), a step
costs m / N of that, but no longer samples the posterior. The precision matrix has a random error of relative order
sqrt(p / m), which moves beta in proportion, while the posterior sd is of order 1 / sqrt(N). The draws are therefore too
wide, by a factor that depends on m / N and not on m.

stansub does not check that the regression matches the posterior that is sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any

import numpy as np
import scipy

from stansub.errors import InputError
from stansub.kernels.base import Info, Kernel, Stat, State
from stansub.kernels.direct import DIRECT_STATS, MOVED, DirectKernel
from stansub.kernels.recipes import Context, NotAdapted, find
from stansub.types import FloatArray, IntArray

# From a generator and the weights, shape (p,), to the observations in the mini-batch of the next step.
Size = Callable[[np.random.Generator, FloatArray], int]

# Rows processed at a time, so that they stay in the processor's cache.
_CHUNK = 8192
_MINI_BATCH = Stat("mini_batch", np.int64, "Observations in the mini-batch, or all.", "mini_batch")


@dataclass(frozen=True)
class Regression:
    """Logistic regression y_i ~ Bernoulli(logit^-1(x_i beta)), beta ~ Normal(mean, covariance)."""

    x: FloatArray
    """Shape (N, p)."""
    y: FloatArray
    """Shape (N,): values 0 and 1."""
    prior_mean: FloatArray
    """Shape (p,)."""
    prior_precision: FloatArray
    """Shape (p, p)."""

    @property
    def n_observations(self) -> int:
        """Return N."""
        return len(self.x)

    @property
    def dim(self) -> int:
        """Return the number of weights, p."""
        return len(self.prior_mean)

    @cached_property
    def pull(self) -> FloatArray:
        """Return X'(y - 1/2) + B^-1 b, shape (p,), computed once from all the data."""
        return np.asarray(self.x.T @ (self.y - 0.5) + self.prior_precision @ self.prior_mean)

    def precision(self, rng: np.random.Generator, beta: FloatArray, which: IntArray | None = None) -> FloatArray:
        """Return S^-1 with new Pólya-Gamma variables, shape (p, p) (Johndrow et al. 2015, equations 9 and 10).

        Parameters
        ----------
        beta : ndarray, shape (p,)
        which : ndarray of int, shape (m,), optional
            The mini-batch, whose share of X' Omega X is scaled by N / m; all observations by default.
        """
        from polyagamma import random_polyagamma

        total = np.zeros((self.dim, self.dim))
        for rows in self._rows(which):
            # Among the package's methods, this one is exact if the first parameter is 1, and the fastest.
            omega = random_polyagamma(1.0, rows @ beta, method="devroye", disable_checks=True, random_state=rng)
            scaled = rows * np.sqrt(omega)[:, np.newaxis]
            total += scaled.T @ scaled
        share = 1.0 if which is None else len(which) / self.n_observations
        return np.asarray(total / share + self.prior_precision)

    def _rows(self, which: IntArray | None) -> Iterator[FloatArray]:
        """Yield rows of the design, a chunk at a time."""
        n = self.n_observations if which is None else len(which)
        for first in range(0, n, _CHUNK):
            chunk = slice(first, first + _CHUNK)
            yield self.x[chunk] if which is None else self.x[which[chunk]]

    def draw(self, rng: np.random.Generator, precision: FloatArray) -> FloatArray:
        """Draw beta ~ Normal(S (X'(y - 1/2) + B^-1 b), S), shape (p,), given S^-1 (equation 9)."""
        lower = np.linalg.cholesky(precision)
        mean = scipy.linalg.cho_solve((lower, True), self.pull)
        beta: FloatArray = mean + scipy.linalg.solve_triangular(
            lower, rng.standard_normal(self.dim), lower=True, trans="T"
        )
        return beta


class PolyaGammaKernel(DirectKernel):
    """Kernel that draws the weights of a logistic regression given new Pólya-Gamma variables.

    Parameters
    ----------
    index : ndarray of int64, shape (p,)
        Indices of the weights in a position.
    size : callable, optional
        Number of observations in the mini-batch of a step; all by default.
    """

    stats = (*DIRECT_STATS, _MINI_BATCH)

    def __init__(self, regression: Regression, index: IntArray, dim: int, size: Size | None = None) -> None:
        super().__init__(dim)
        self.regression, self.index, self.size = regression, index, size

    def step(self, rng: np.random.Generator, state: State, params: Any, *, audit: bool = False) -> tuple[State, Info]:
        """Draw Pólya-Gamma variables given the weights, then weights given these."""
        regression, beta = self.regression, state.position[self.index]
        which = self._mini_batch(rng, beta)
        position = state.position.copy()
        position[self.index] = regression.draw(rng, regression.precision(rng, beta, which))
        m = regression.n_observations if which is None else len(which)
        self.n_evaluated += m
        return State(position), {**MOVED, "mini_batch": m}

    def _mini_batch(self, rng: np.random.Generator, beta: FloatArray) -> IntArray | None:
        """Return distinct observations, at least p + 1 of them; None for all."""
        n = self.regression.n_observations
        m = n if self.size is None else max(self.size(rng, beta), self.regression.dim + 1)
        # Rows are gathered faster in the order of their places.
        return None if m >= n else np.sort(rng.choice(n, m, replace=False, shuffle=False))


@dataclass(frozen=True)
class FixedSize:
    """Mini-batches of one size (Johndrow et al. 2015, section 4.2)."""

    m: int

    def __call__(self, rng: np.random.Generator, beta: FloatArray) -> int:
        return self.m


@dataclass(frozen=True)
class PolyaGamma(NotAdapted):
    """Kernel for `stansub.sample`: Pólya-Gamma Gibbs sampling of a logistic regression.

    Attributes
    ----------
    x : ndarray, shape (N, p)
        Design, with a column of ones for an intercept. It must be the program's design; stansub does not check this.
    y : ndarray, shape (N,)
        Values 0 and 1.
    names : sequence of str
        Parameters that hold the weights, p elements in all: ``["alpha", "beta"]``.
    prior_sd : float or ndarray, shape (p,)
        Sd of the independent normal priors.
    prior_mean : float or ndarray, shape (p,)
        Mean of the priors.
    mini_batch : int or callable, optional
        Observations per step. A callable is called at every step with a generator and the weights, shape (p,), such as
        ``lambda rng, beta: rng.binomial(N, q)`` for equation 10 of Johndrow et al. (2015). By default all, which is
        exact. At least p + 1 are used.

    Raises
    ------
    InputError
        If x and y have different lengths, y has values other than 0 and 1, a prior sd is not positive, the mini-batch
        is empty, or the package polyagamma is missing; when bound, if the names are not p parameters.
    """

    x: FloatArray
    y: FloatArray
    names: Sequence[str]
    prior_sd: float | FloatArray
    prior_mean: float | FloatArray = 0.0
    mini_batch: int | Size | None = None

    def __post_init__(self) -> None:
        if np.ndim(self.x) != 2 or np.shape(self.y) != np.shape(self.x)[:1]:
            raise InputError(
                f"PolyaGamma needs x of shape (N, p) and y of shape (N,), not {np.shape(self.x)} and {np.shape(self.y)}"
            )
        if not np.isin(self.y, (0, 1)).all():
            raise InputError("PolyaGamma needs y of 0 and 1: it fits Bernoulli regressions only")
        if not (np.asarray(self.prior_sd) > 0).all():
            raise InputError(f"prior_sd must be above 0, not {self.prior_sd}")
        if not (self.mini_batch is None or callable(self.mini_batch) or self.mini_batch >= 1):
            raise InputError(f"mini_batch must be at least 1, or a callable, not {self.mini_batch}")
        if find_spec("polyagamma") is None:
            raise InputError("PolyaGamma needs the package polyagamma: pip install 'stansub[papers]'")

    @property
    def regression(self) -> Regression:
        """Return the regression with arrays of the shapes that kernels use."""
        p = self.x.shape[1]
        return Regression(
            np.ascontiguousarray(self.x, np.float64),
            np.asarray(self.y, np.float64),
            np.broadcast_to(np.asarray(self.prior_mean, np.float64), p),
            np.diag(np.broadcast_to(np.asarray(self.prior_sd, np.float64), p) ** -2.0),
        )

    def bind(self, context: Context) -> Kernel:
        """Return the kernel of one chain."""
        regression, index = self.regression, np.concatenate([find(context.names, [name]) for name in self.names])
        if len(index) != regression.dim:
            raise InputError(f"{', '.join(self.names)} are {len(index)} parameters, but x has {regression.dim} columns")
        size = self.mini_batch if self.mini_batch is None or callable(self.mini_batch) else FixedSize(self.mini_batch)
        return PolyaGammaKernel(regression, index, len(context.names), size)
