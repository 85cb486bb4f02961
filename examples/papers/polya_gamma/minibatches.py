"""What mini-batches do to Pólya-Gamma Gibbs sampling: the bound of the paper, one that is proved, and the limit of N.

Johndrow et al. (2015), section 4.1 and appendix A. In the paper's notation W is the design, here x; the prior is
Normal(0, eta I). All of it is at given weights beta: sizes for the next step depend on where the chain is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, solve_discrete_lyapunov
from scipy.special import expit, ndtr, ndtri

from stansub.kernels.polya_gamma import Regression

Array = NDArray[np.float64]

# How often a bound that holds with high probability may fail.
FAILURE = 0.05


def moments(theta: Array) -> tuple[Array, Array]:
    """Mean and variance of PG(1, theta), from the Laplace transform (Polson, Scott and Windle 2013).

    The mean is tanh(theta / 2) / (2 theta), and theta^2 times the variance is the mean less p (1 - p), p being the
    success probability at theta. Near 0, where these lose digits, by series.
    """
    near = np.abs(theta) < 0.05
    safe, square = np.where(near, 1.0, theta), theta**2
    mean = np.where(near, 1 / 4 - square / 48 + square**2 / 480, np.tanh(safe / 2) / (2 * safe))
    spread = (np.tanh(safe / 2) / (2 * safe) - expit(safe) * expit(-safe)) / safe**2
    return mean, np.where(near, 1 / 24 - square / 120 + 17 * square**2 / 13440, spread)


class Constants(NamedTuple):
    """What the bounds depend on, of the whole data or a pilot sample of them.

    Attributes
    ----------
    n, p : int
    smallest, largest : float
        Eigenvalues of E[W' Omega W] / N, lambda^- and lambda^+.
    squares : float
        Mean of E[omega_i^2] |W_i|^4: sigma^2 of remark 4.1 is (1 / m - 1 / N) times it.
    longest : float
        Largest |W_i|^2, whose square is C.
    omega : float
        K: above all omega_i but with probability `FAILURE` / 2 at the most.
    fit : float
        Mean of E[omega_i] theta_i^2: N times it is the squared length of the mean of beta in units of its precision.
    prior : float
        1 / (N eta).
    """

    n: int
    p: int
    smallest: float
    largest: float
    squares: float
    longest: float
    omega: float
    fit: float
    prior: float


def constants(rows: Array, beta: Array, n: int, longest: float, eta: float) -> Constants:
    """The constants at some weights, from all rows of the design, or from a pilot sample of the n."""
    theta = rows @ beta
    mean, variance = moments(theta)
    eigenvalues = np.linalg.eigvalsh((rows * mean[:, np.newaxis]).T @ rows / len(rows))
    lengths = (rows**2).sum(axis=1)
    return Constants(
        n=n,
        p=rows.shape[1],
        smallest=max(float(eigenvalues[0]), 0.0),
        largest=float(eigenvalues[-1]),
        squares=float(((variance + mean**2) * lengths**2).mean()),
        longest=longest,
        omega=largest_omega(n),
        fit=float((mean * theta**2).mean()),
        prior=1 / (n * eta),
    )


def largest_omega(n: int, failure: float = FAILURE / 2) -> float:
    """What n variables PG(1, .) stay below with probability 1 - failure at least.

    PG(1, 0) is stochastically the largest, and the sum of independent exponentials with rates 2 pi^2 (k - 1/2)^2; the
    survival function is below its first term, 4 / pi exp(-pi^2 t / 2).
    """
    return float(2 / np.pi**2 * np.log(4 / np.pi * n / failure))


def printed_size(of: Constants, epsilon: float) -> float:
    """Mini-batch for a total variation of epsilon by theorem 4.1 and remark 4.1 as printed, failing at `FAILURE`.

    With c = 1 / (N m) - 1 / N^2, the probability there, 2 p exp(-(delta^2 / 2) / (c (N s + C K delta))), is solved for
    m. It is the probability that the bound fails, though the theorem calls it that of its holding.
    """
    low = of.smallest + of.prior
    delta = low**2 / (2 * of.p * (of.largest + of.smallest / 2 + of.prior)) * epsilon**2
    spread = of.n * of.squares + of.longest**2 * of.omega * delta
    c = delta**2 / 2 / (np.log(2 * of.p / FAILURE) * spread)
    return float(1 / (of.n * c + 1 / of.n))


def proved_size(of: Constants, epsilon: float) -> float:
    """Mini-batch for a total variation of epsilon with what the proof leaves out put right, failing at `FAILURE`.

    Let A be the precision of beta given omega of all the data, h the mean, and E = A^-1/2 (A_V - A) A^-1/2 with
    |E| <= e < 1. Then tr(I + E)^-1 - p + log det(I + E) <= p e^2 / (2 (1 - e)^2), and the squared distance of the means
    in units of A is at most (e / (1 - e))^2 h'Ah, so that

        KL <= (e / (1 - e))^2 (p / 2 + h'Ah) / 2,    TV <= sqrt(KL / 2).

    h'Ah is N times `fit`: this N is missing from appendix A (part c), which takes |W'kappa|^2 / N for bounded, where
    |W'kappa| is of order N. The matrix Bernstein inequality then gives m for |Sigma_V - Sigma_N| <= delta = e times the
    smallest eigenvalue, with summands of norm up to K max |W_i|^2 / m.
    """
    ratio = 2 * epsilon / np.sqrt(of.p / 2 + of.n * of.fit)
    delta = ratio / (1 + ratio) * (of.smallest + of.prior)
    log = np.log(2 * of.p / (FAILURE / 2))
    c = delta**2 / (2 * log)  # >= (1 / m - 1 / N) squares + K max |W_i|^2 delta / (3 m)
    linear = of.omega * of.longest * delta / 3
    return float(min((of.squares + linear) / (c + of.squares / of.n), of.n))


@dataclass(frozen=True)
class Limit:
    """Pólya-Gamma Gibbs sampling as N grows while m / N stays: a linear autoregression about the mode.

    With A = E[x' Omega x] + B^-1, H the negative Hessian of the log posterior and theta = x beta at the mode,
    to first order beta' - mode = (I - A^-1 H) (beta - mode) + A^-1/2 z - A^-1 xi, where xi is the deviation of the sum
    of omega_i theta_i x_i from its mean: with all the data of covariance G = sum of var(omega_i) theta_i^2 x_i x_i', so
    that H^-1 is stationary, for A = H + G; with mini-batches, of (N / m) G + (N / m - 1) F, F being N^2 / (N - 1) times
    the covariance of E[omega_i] theta_i x_i over observations.

    Attributes
    ----------
    precision, hessian, own, others : ndarray, shape (p, p)
        A, H, G and F.
    """

    precision: Array
    hessian: Array
    own: Array
    others: Array

    @classmethod
    def at(cls, regression: Regression, mode: Array) -> Limit:
        """The limit at the mode."""
        x, theta = regression.x, regression.x @ mode
        mean, variance = moments(theta)
        precision = (x * mean[:, np.newaxis]).T @ x + regression.prior_precision
        own = (x * (variance * theta**2)[:, np.newaxis]).T @ x
        pull = x * (mean * theta)[:, np.newaxis]
        n = regression.n_observations
        others = n / (n - 1) * (pull.T @ pull - np.outer(pull.sum(axis=0), pull.sum(axis=0)) / n)
        return cls(precision, precision - own, own, others)

    @property
    def rate(self) -> float:
        """Largest lag-one autocorrelation of any linear function of the weights."""
        return float(1 - eigh(self.hessian, self.precision, eigvals_only=True)[0])

    def noise(self, share: float) -> Array:
        """Covariance of the deviation, for mini-batches of a share of the data."""
        return self.own / share + (1 / share - 1) * self.others

    def covariance(self, share: float) -> Array:
        """What the draws have, shape (p, p); with all the data, that of the posterior."""
        inverse = np.linalg.inv(self.precision)
        step = np.eye(len(inverse)) - inverse @ self.hessian
        found: Array = solve_discrete_lyapunov(step, inverse + inverse @ self.noise(share) @ inverse)
        return found

    def too_wide(self, share: float) -> float:
        """Standard deviations of the draws in those of the posterior, averaged over the weights."""
        posterior = np.linalg.inv(self.hessian)
        return float(np.sqrt(np.diag(self.covariance(share)) / np.diag(posterior)).mean())

    @property
    def pull(self) -> float:
        """Expected squared distance of the means of a step with and without a mini-batch, at N / m - 1 = 1."""
        return float(np.trace(np.linalg.solve(self.precision, self.own + self.others)))

    def size(self, epsilon: float, n: int) -> float:
        """Mini-batch for a total variation of epsilon between the steps, given omega; see `first_order_size`."""
        return first_order_size(self.pull, epsilon, n)


def first_order_size(pull: float, epsilon: float, n: int) -> float:
    """Mini-batch for which normals are epsilon apart whose means have a squared distance of (N / m - 1) ``pull``.

    Two normals of one covariance whose means are d apart in its units have a total variation of 2 Phi(d / 2) - 1. The
    difference of the covariances, of order p / sqrt(m), is left out. The share m / N does not depend on N.
    """
    return float(n / (1 + (2 * ndtri((1 + epsilon) / 2)) ** 2 / pull))


def expected_distance(pull: float, share: float) -> float:
    """Total variation that `first_order_size` solves for."""
    return float(2 * ndtr(np.sqrt((1 / share - 1) * pull) / 2) - 1)


def distance(rng: np.random.Generator, regression: Regression, beta: Array, m: int, *, n_normals: int = 4000) -> float:
    """Total variation between the normals of equations 9 and 10 with the same omega, for one mini-batch.

    It is the mean of max(0, 1 - density ratio) under one of them.
    """
    from polyagamma import random_polyagamma

    x, n = regression.x, regression.n_observations
    omega = random_polyagamma(1.0, x @ beta, method="devroye", disable_checks=True, random_state=rng)
    which = rng.choice(n, m, replace=False)
    whole, part = (
        (x[rows] * omega[rows, np.newaxis]).T @ x[rows] * scale + regression.prior_precision
        for rows, scale in ((slice(None), 1.0), (which, n / m))
    )
    lower = np.linalg.cholesky(whole)
    z = rng.standard_normal((n_normals, regression.dim))
    # In coordinates where the first is standard normal.
    shift = lower.T @ (np.linalg.solve(part, regression.pull) - np.linalg.solve(whole, regression.pull))
    seen = np.linalg.solve(lower, np.linalg.solve(lower, part).T)
    off = z - shift
    log_ratio = 0.5 * (np.linalg.slogdet(seen)[1] - ((off @ seen) * off).sum(axis=1) + (z**2).sum(axis=1))
    return float(np.maximum(0.0, -np.expm1(np.minimum(log_ratio, 0.0))).mean())


@dataclass(frozen=True)
class AdaptiveSize:
    """Mini-batches for a target total variation of each step, from where the chain is and a pilot sample.

    Attributes
    ----------
    x : ndarray, shape (N, p)
    epsilon : float
    pilot : int
        Rows of the pilot sample, drawn anew at each step.
    """

    x: Array
    epsilon: float
    pilot: int = 2000

    def __call__(self, rng: np.random.Generator, beta: Any) -> int:
        n = len(self.x)
        rows = self.x[rng.integers(n, size=min(self.pilot, n))]
        return int(np.ceil(self.needed(rows, np.asarray(beta))))

    def needed(self, rows: Array, beta: Array) -> float:
        """By the limit of many data, at the weights in place of the mode."""
        pilot = Regression(rows, np.zeros(len(rows)), np.zeros(len(beta)), np.zeros((len(beta), len(beta))))
        return Limit.at(pilot, beta).size(self.epsilon, len(self.x))


@dataclass(frozen=True)
class TheoremSize(AdaptiveSize):
    """The same by theorem 4.1 as printed.

    Attributes
    ----------
    longest : float
        Largest squared length of a row of the design.
    eta : float
        Prior variance.
    """

    longest: float = np.inf
    eta: float = 1.0

    def needed(self, rows: Array, beta: Array) -> float:
        """By the constants of remark 4.1."""
        return printed_size(constants(rows, beta, len(self.x), self.longest, self.eta), self.epsilon)
