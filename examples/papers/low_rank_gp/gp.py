"""Gaussian process regression by the spectrum of its correlation matrix (Johndrow et al., sections 4.3 and 4.4).

z ~ N(0, tau^2 Sigma + sigma^2 I) with Sigma_ij = exp(-phi |W_i - W_j|^2), phi one of d values, numbered by zeta
(equation 13). With Sigma = U diag(lambda) U' the components u_i'z are independent N(0, tau^2 lambda_i + sigma^2), so
that the log likelihood is a sum over components, and once U'z is known a density costs as many operations as there are
components, for each phi. A low rank (equation 14) keeps the first of them, and takes the other eigenvalues for 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, eigh
from scipy.spatial.distance import pdist, squareform
from scipy.special import logsumexp

import stansub
from stansub.kernels.base import Info, State
from stansub.kernels.direct import MOVED, DirectKernel
from stansub.kernels.recipes import Context, Leaves, find

Array = NDArray[np.float64]
Places = NDArray[np.int32]

NAMES = ("log_sigma2", "log_tau2", "zeta")
# tau^-2 and sigma^-2 ~ Gamma(A, B); the paper does not give its own.
A, B = 1.0, 1.0
# The correlation that is left at zeta times the largest distance.
LEFT = 0.01


@dataclass(frozen=True)
class Spectra:
    """What the likelihood depends on, for each value of zeta.

    Attributes
    ----------
    zetas : ndarray, shape (d,)
    values : ndarray, shape (d, n)
        Eigenvalues lambda of Sigma, the largest first.
    squares : ndarray, shape (d, n)
        Of the components u_i'z; where one stands for several, their sum.
    weights : ndarray, shape (n,)
        How many components each stands for.
    """

    zetas: Array
    values: Array
    squares: Array
    weights: Array

    @property
    def n_rows(self) -> int:
        """Rows of the data."""
        return round(self.weights.sum())

    @property
    def explained(self) -> Array:
        """Share of the variation in the first k components, shape (d, n) (equation 16)."""
        return np.cumsum(self.values, axis=1) / self.n_rows

    def number(self, zeta: Any) -> Any:
        """Places of values of zeta."""
        return np.abs(self.zetas - np.asarray(zeta)[..., None]).argmin(-1)

    def log_lik(self, numbers: Any, log_sigma2: Any, log_tau2: Any, which: Any = slice(None)) -> Array:
        """Log likelihoods of some components, constants left out; the arguments before are broadcast."""
        of_noise, of_signal = np.exp(log_sigma2)[..., None], np.exp(log_tau2)[..., None]
        variances = of_signal * self.values[numbers][..., which] + of_noise
        # An array of its own: it is divided into and overwritten, for these arrays are large.
        found = self.squares[numbers][..., which] / variances
        found += self.weights[which] * np.log(variances)
        found *= -0.5
        return np.asarray(found)

    def log_posterior(self, numbers: Any, log_sigma2: Any, log_tau2: Any) -> Array:
        """Of log(sigma^2), log(tau^2) and zeta, up to a constant; the arguments are broadcast."""
        return self.log_lik(numbers, log_sigma2, log_tau2).sum(-1) + log_prior(log_sigma2, log_tau2)

    def truncated(self, rank: int) -> Spectra:
        """By the first components alone: the partial eigendecomposition that Sigma_epsilon would be at its best."""
        left = self.squares[:, rank:].sum(1, keepdims=True)
        return _of_low_rank(self.zetas, self.values[:, :rank], np.hstack([self.squares[:, :rank], left]), self.n_rows)


def log_prior(log_sigma2: Any, log_tau2: Any) -> Any:
    """Of the logarithms, equation 13: Gamma(a, b) of exp(-v) has the density exp(-a v - b exp(-v)) in v."""
    return -A * (log_sigma2 + log_tau2) - B * (np.exp(-log_sigma2) + np.exp(-log_tau2))


def squared_distances(w: Array) -> Array:
    """Between all rows, shape (n_rows, n_rows)."""
    return np.asarray(squareform(pdist(w, "sqeuclidean")))


def decays(zetas: Array, distances: Array, *, power: int) -> Array:
    """phi, -log(0.01) / (zeta d_max) to the power of 1, as section 4.4 has it, or of zeta d_max squared.

    With squared distances in the exponent it is the square that has the correlation decay to 0.01 at zeta d_max.
    """
    return -np.log(LEFT) / (zetas * np.sqrt(distances.max())) ** power


def exact_spectra(distances: Array, z: Array, zetas: Array, phis: Array) -> Spectra:
    """By full eigendecompositions of squared distances, shape (n_rows, n_rows)."""
    values, squares = [], []
    for phi in phis:
        found, vectors = eigh(np.exp(-phi * distances), overwrite_a=True)
        values.append(np.maximum(found[::-1], 0))
        squares.append((z @ vectors[:, ::-1]) ** 2)
    return Spectra(zetas, np.array(values), np.array(squares), np.ones(len(z)))


def low_rank_spectra(
    distances: Array, z: Array, zetas: Array, phis: Array, *, rank: int, rng: np.random.Generator
) -> Spectra:
    """By randomised partial eigendecompositions (Halko, Martinsson and Tropp 2011).

    Raises
    ------
    stansub.InputError
        When scikit-learn is missing.
    """
    try:
        from sklearn.utils.extmath import randomized_svd
    except ImportError:
        raise stansub.InputError("low ranks need scikit-learn: pip install 'stansub[papers]'") from None
    values, squares = [], []
    for phi in phis:
        seed = int(rng.integers(2**31))
        # Without a normaliser, which is what so few iterations get by default, small eigenvalues drown in rounding.
        _, found, vectors = randomized_svd(
            np.exp(-phi * distances), rank, n_iter=2, power_iteration_normalizer="LU", random_state=seed
        )
        # The right vectors have been multiplied by Sigma once more than the left ones.
        own = (vectors @ z) ** 2
        values.append(found)
        squares.append([*own, max(z @ z - own.sum(), 0.0)])
    return _of_low_rank(zetas, np.array(values), np.array(squares), len(z))


def _of_low_rank(zetas: Array, values: Array, squares: Array, n_rows: int) -> Spectra:
    """The last component stands for all that have the eigenvalue 0."""
    rank = values.shape[1]
    weights = np.append(np.ones(rank), float(n_rows - rank))
    return Spectra(zetas, np.pad(values, ((0, 0), (0, 1))), squares, weights)


def dense_log_lik(correlation: Array, z: Array, log_sigma2: float, log_tau2: float) -> float:
    """The same from the whole matrix Sigma, as a sampler has it that knows no spectrum: n^3 / 3 operations."""
    covariance = np.exp(log_tau2) * correlation
    np.einsum("ii->i", covariance)[:] += np.exp(log_sigma2)
    factor = cho_factor(covariance, overwrite_a=True, check_finite=False)
    return float(-np.log(np.diag(factor[0])).sum() - 0.5 * z @ cho_solve(factor, z, check_finite=False))


@dataclass(frozen=True)
class LogLik:
    """Log likelihoods of components, as `stansub.FunctionFactors` asks for them."""

    spectra: Spectra

    def __call__(self, theta: Array, which: Places) -> Array:
        return self.spectra.log_lik(self.spectra.number(theta[2]), theta[0], theta[1], which)


def _log_prior_at(theta: Array) -> float:
    return float(log_prior(theta[0], theta[1]))


def target(spectra: Spectra) -> stansub.FunctionFactors:
    """The posterior; its factors are components."""
    return stansub.FunctionFactors(
        list(NAMES), spectra.values.shape[1], LogLik(spectra), log_density=_log_prior_at, name="Gaussian process"
    )


class GriddyGibbsKernel(DirectKernel):
    """Draws one parameter from its full conditional on a grid (Ritter and Tanner 1992).

    Parameters
    ----------
    place : int
        Of the parameter.
    grid : ndarray, shape (d,)
    log_weights : callable
        Of the position: log probabilities of the values on the grid given the other parameters, up to a constant.
    dim : int
    """

    def __init__(self, place: int, grid: Array, log_weights: Callable[[Array], Array], dim: int) -> None:
        super().__init__(dim)
        self.place, self.grid, self.log_weights = place, grid, log_weights

    def step(self, rng: np.random.Generator, state: State, params: Any, *, audit: bool = False) -> tuple[State, Info]:
        """One draw."""
        logs = self.log_weights(state.position)
        edges = np.cumsum(np.exp(logs - logs.max()))
        position = state.position.copy()
        position[self.place] = self.grid[np.searchsorted(edges, rng.random() * edges[-1], side="right")]
        return State(position), MOVED


@dataclass(frozen=True)
class GriddyGibbs:
    """The kernel as `stansub.sample` takes it; there are no modes of a density on a grid.

    Attributes
    ----------
    name : str
        Of the parameter.
    grid : ndarray, shape (d,)
    log_weights : callable
    """

    name: str
    grid: Array
    log_weights: Callable[[Array], Array]
    smooth = False

    def bind(self, context: Context) -> GriddyGibbsKernel:
        """The kernel of one chain."""
        return GriddyGibbsKernel(
            int(find(context.names, [self.name])[0]), self.grid, self.log_weights, len(context.names)
        )

    def leaves(self, names: Sequence[str]) -> Leaves:
        """Nothing is adapted."""
        return {}


@dataclass(frozen=True)
class Conditional:
    """Log weights of the values of zeta, the second step of section 4.3.1."""

    spectra: Spectra

    def __call__(self, position: Array) -> Array:
        return self.spectra.log_lik(slice(None), position[0], position[1]).sum(-1)


def sampler(spectra: Spectra, log_weights: Callable[[Array], Array] | None = None) -> stansub.Sequence:
    """Section 4.3.1: log(sigma^2) and log(tau^2) by adaptive Metropolis, then zeta by griddy Gibbs."""
    return stansub.Sequence(
        scales=stansub.OnParameters(stansub.Metropolis("adaptive-metropolis"), list(NAMES[:2])),
        zeta=GriddyGibbs(NAMES[2], spectra.zetas, log_weights or Conditional(spectra)),
    )


def draw(spectra: Spectra, kernel: stansub.Sequence | None = None, **options: Any) -> Any:
    """Draws by `stansub.sample`, with exact decisions on the posterior that these spectra make."""
    start = {"log_sigma2": -1.0, "log_tau2": 0.0, "zeta": float(spectra.zetas[len(spectra.zetas) // 2])}
    given: dict[str, Any] = {"test": "exact", "control_variates": 0, "inits": start, "show_progress": False}
    return stansub.sample(target(spectra), kernel=kernel or sampler(spectra), **given | options)


def positions(idata: Any) -> Array:
    """All draws, shape (chains, draws, 3)."""
    return np.stack([np.asarray(idata["posterior"][name]) for name in NAMES], axis=-1)


@dataclass(frozen=True)
class Quadrature:
    """The posterior on a grid of log(sigma^2) and log(tau^2), for each zeta.

    Attributes
    ----------
    zetas : ndarray, shape (d,)
    log_sigma2 : ndarray, shape (m,)
    log_tau2 : ndarray, shape (m,)
    log_weights : ndarray, shape (d, m, m)
        Log probabilities of the cells.
    log_total : float
        Logarithm of the normalising constant.
    """

    zetas: Array
    log_sigma2: Array
    log_tau2: Array
    log_weights: Array
    log_total: float

    @property
    def zeta(self) -> Array:
        """Probabilities of the values of zeta."""
        return np.exp(self.log_weights).sum((1, 2))

    def moments(self) -> tuple[Array, Array]:
        """Means and standard deviations of log(sigma^2), log(tau^2) and zeta."""
        p = np.exp(self.log_weights)
        each = ((self.log_sigma2, p.sum((0, 2))), (self.log_tau2, p.sum((0, 1))), (self.zetas, p.sum((1, 2))))
        means = np.array([values @ weights for values, weights in each])
        centred = ((values - mean, weights) for (values, weights), mean in zip(each, means, strict=True))
        return means, np.sqrt([values**2 @ weights for values, weights in centred])

    def distance(self, spectra: Spectra, other: Quadrature) -> float:
        """Total variation distance from the posterior of other spectra: 1 - sum min(p, q), on the nodes of p."""
        cell = np.log((self.log_sigma2[1] - self.log_sigma2[0]) * (self.log_tau2[1] - self.log_tau2[0]))
        theirs = _on_grid(spectra, self.log_sigma2, self.log_tau2) + cell - other.log_total
        return max(1 - float(np.exp(np.minimum(self.log_weights, theirs)).sum()), 0.0)


def quadrature(spectra: Spectra, *, n: int = 81, depth: float = 40.0) -> Quadrature:
    """The posterior by the trapezium rule, on the box outside of which log densities are that far below the largest."""
    box, size = np.array([[-10.0, 6.0], [-10.0, 10.0]]), 25
    # A narrow posterior lies between coarse nodes at first: each round looks closer, and keeps one node more all round.
    for _ in range(6):
        axes = [np.linspace(*side, size) for side in box]
        logs = _on_grid(spectra, *axes).max(0)
        near = np.argwhere(logs > logs.max() - depth)
        low, high = np.maximum(near.min(0) - 1, 0), np.minimum(near.max(0) + 1, size - 1)
        box = np.array([[axis[a], axis[b]] for axis, a, b in zip(axes, low, high, strict=True)])
    u, v = (np.linspace(*side, n) for side in box)
    logs = _on_grid(spectra, u, v) + np.log((u[1] - u[0]) * (v[1] - v[0]))
    total = float(logsumexp(logs))
    return Quadrature(spectra.zetas, u, v, logs - total, total)


def _on_grid(spectra: Spectra, log_sigma2: Array, log_tau2: Array) -> Array:
    """Log densities, shape (d, m, m); value by value, for the components of all of them would be gigabytes."""
    found = np.empty((len(spectra.zetas), len(log_sigma2), len(log_tau2)))
    for number in range(len(spectra.zetas)):
        for row, one in enumerate(log_sigma2):
            found[number, row] = spectra.log_posterior(number, np.full_like(log_tau2, one), log_tau2)
    return found


def acceptance(spectra: Spectra, here: Array, there: Array) -> Array:
    """Acceptance probabilities alpha(x, y) of moves of log(sigma^2) and log(tau^2), both of shape (n, 3)."""
    numbers = spectra.number(here[:, 2])
    logs = [spectra.log_posterior(numbers, one[:, 0], one[:, 1]) for one in (here, there)]
    return np.asarray(np.exp(np.minimum(logs[1] - logs[0], 0)))


def gibbs_probabilities(spectra: Spectra, here: Array) -> Array:
    """Probabilities of the values of zeta given log(sigma^2) and log(tau^2), from shape (n, 3) to (n, d)."""
    numbers = range(len(spectra.zetas))
    logs = np.stack([spectra.log_lik(number, here[:, 0], here[:, 1]).sum(-1) for number in numbers], axis=-1)
    return np.asarray(np.exp(logs - logsumexp(logs, axis=-1, keepdims=True)))


@dataclass(frozen=True)
class Errors:
    """Of a step of the approximate kernel at points of the exact chain (figure 6).

    Attributes
    ----------
    acceptance : ndarray, shape (n,)
        |alpha(x, y) - alpha_epsilon(x, y)|.
    gibbs : ndarray, shape (n,)
        Largest absolute difference between probabilities of values of zeta.
    """

    acceptance: Array
    gibbs: Array


def errors(exact: Spectra, near: Spectra, here: Array, there: Array) -> Errors:
    """At positions and proposals of shape (n, 3)."""
    off = np.abs(acceptance(exact, here, there) - acceptance(near, here, there))
    return Errors(off, np.abs(gibbs_probabilities(exact, here) - gibbs_probabilities(near, here)).max(-1))


def propose(here: Array, rng: np.random.Generator) -> Array:
    """Random walks from positions of shape (n, 3), with 2.38^2 / 2 times their covariance: adaptive Metropolis."""
    factor = np.linalg.cholesky(2.38**2 / 2 * np.cov(here[:, :2].T))
    there = here.copy()
    there[:, :2] += rng.standard_normal((len(here), 2)) @ factor.T
    return there
