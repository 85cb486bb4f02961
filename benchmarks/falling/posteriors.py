"""Two posteriors with skewed data, whose means are known: in closed form, and by quadrature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

import stansub

STAN_MODELS = Path(__file__).resolve().parents[2] / "stan_models"
OBSERVATIONS, BLOCK = 2000, 20
_PRIOR_SD = 2.5

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Target:
    """A posterior.

    Attributes
    ----------
    posterior : Posterior
    mean : ndarray, shape (dim,)
    cholesky : ndarray, shape (dim, dim)
        Factor of the covariance: the exact one of a normal posterior, else that of the approximation at the mode.
    sd : ndarray, shape (dim,)
    inits : callable
        From a point to starting values as `stansub.sample` takes them.
    """

    posterior: stansub.Posterior
    mean: Array
    cholesky: Array
    sd: Array
    inits: Callable[[Array], dict[str, float | list[float]]]


def normal_mean(seed: int) -> Target:
    """The mean of lognormal data, taken for normal with sd 1; prior N(0, 10): exactly normal."""
    y = _skewed(np.random.default_rng(seed), 1.0)
    precision = len(y) + 0.01
    sd = np.array([precision**-0.5])
    data = {"N": len(y), "y": y, "sigma": 1.0}
    posterior = _posterior("normal_mean", data, seed)
    return Target(posterior, np.array([y.sum() / precision]), np.diag(sd), sd, lambda at: {"mu": float(at[0])})


def rare_events(seed: int) -> Target:
    """Logistic regression of some hundred events on a lognormal covariate; means by quadrature."""
    rng = np.random.default_rng(seed)
    x = _skewed(rng, 0.7)
    y = (rng.random(len(x)) < expit(-3 + 0.6 * x)).astype(int)
    z = np.column_stack([np.ones(len(x)), x])
    mode, cholesky = _mode(z, y)
    mean, sd = _by_quadrature(z, y, mode, cholesky)
    data = {"N": len(x), "K": 1, "x": x[:, np.newaxis], "y": y}
    posterior = _posterior("logistic", data, seed)
    return Target(posterior, mean, cholesky, sd, lambda at: {"alpha": float(at[0]), "beta": [float(at[1])]})


POSTERIORS: dict[str, Callable[[int], Target]] = {"normal mean": normal_mean, "rare events": rare_events}


def _posterior(program: str, data: dict[str, object], seed: int) -> stansub.Posterior:
    model = stansub.compile_model(STAN_MODELS / f"{program}.stan")
    return model.with_data(data, block_size=BLOCK, seed=seed)


def _skewed(rng: np.random.Generator, spread: float) -> Array:
    """Lognormal values, standardised."""
    x = rng.lognormal(0.0, spread, OBSERVATIONS)
    return np.asarray((x - x.mean()) / x.std())


def log_posterior(z: Array, y: Array, theta: Array) -> float:
    """Of the regression, up to a constant."""
    eta = z @ theta
    return float(y @ eta - np.logaddexp(0, eta).sum() - 0.5 * theta @ theta / _PRIOR_SD**2)


def _mode(z: Array, y: Array) -> tuple[Array, Array]:
    """Mode, and the factor of the covariance there."""
    theta = np.zeros(z.shape[1])
    for _ in range(30):
        p = expit(z @ theta)
        precision = (z * (p * (1 - p))[:, np.newaxis]).T @ z + np.eye(len(theta)) / _PRIOR_SD**2
        theta = theta + np.linalg.solve(precision, z.T @ (y - p) - theta / _PRIOR_SD**2)
    return theta, np.linalg.cholesky(np.linalg.inv(precision))


def _by_quadrature(z: Array, y: Array, mode: Array, cholesky: Array) -> tuple[Array, Array]:
    """Means and sds, by Gauss and Hermite about the mode."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    grid = np.array([(a, b) for a in nodes for b in nodes])
    points = mode + grid @ cholesky.T
    logs = np.log(np.outer(weights, weights).ravel()) + 0.5 * (grid**2).sum(1)
    logs += np.array([log_posterior(z, y, one) for one in points])
    share = np.exp(logs - logs.max())
    share /= share.sum()
    mean = share @ points
    return np.asarray(mean), np.asarray(np.sqrt(share @ (points - mean) ** 2))
