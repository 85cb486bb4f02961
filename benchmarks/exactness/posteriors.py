"""Posteriors that are not normal: few events, and covariates with leverage. Their log densities in numpy too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

ROOT = Path(__file__).resolve().parent.parent.parent
_PRIOR_SD = 2.5

Array = NDArray[np.float64]
Data = dict[str, Any]


def _softplus(eta: Array) -> Array:
    """log(1 + e^eta) for predictors that are not in the hundreds, at half the price of `logaddexp`."""
    return np.asarray(np.log1p(np.exp(eta)))


@dataclass(frozen=True)
class Posterior:
    """A regression with a log likelihood y eta - A(eta) an observation, and normal priors with an sd of 2.5.

    Attributes
    ----------
    name, about : str
    program : Path
        Its Stan program, with data N, K, x, y.
    cumulant : callable
        A.
    simulate : callable
        From a generator to covariates and outcomes.
    steps : int
        Steps of the factorised sampler for an effective draw.
    """

    name: str
    about: str
    program: Path
    cumulant: Callable[[Array], Array]
    simulate: Callable[[np.random.Generator], tuple[Array, Array]]
    steps: int

    @cached_property
    def _simulated(self) -> tuple[Array, Array]:
        return self.simulate(np.random.default_rng(1))

    @property
    def names(self) -> list[str]:
        return ["alpha", *(f"beta[{k + 1}]" for k in range(self._simulated[0].shape[1]))]

    @property
    def data(self) -> Data:
        """What the program declares."""
        x, y = self._simulated
        data = {"N": len(y), "K": x.shape[1], "x": x, "y": y.astype(int)}
        return data | ({"log_exposure": np.zeros(len(y))} if "log_exposure" in self.program.read_text() else {})

    @cached_property
    def _design(self) -> tuple[Array, Array]:
        x, y = self._simulated
        z = np.column_stack([np.ones(len(y)), x])
        return z, z.T @ y

    def log_density(self, points: Array) -> Array:
        """Unnormalised, at points of shape (draw, parameter)."""
        z, sums = self._design
        log_lik = points @ sums - self.cumulant(points @ z.T).sum(axis=1)
        return np.asarray(log_lik - 0.5 * (points**2).sum(axis=1) / _PRIOR_SD**2)


def _present(rng: np.random.Generator, n: int) -> Array:
    """Three covariates of 0 and 1, present in a half, three tenths and a tenth of the observations."""
    return np.asarray((rng.random((n, 3)) < [0.5, 0.3, 0.1]).astype(float))


def _rare(rng: np.random.Generator) -> tuple[Array, Array]:
    x = _present(rng, 2000)
    return x, (rng.random(2000) < expit(-4 + x @ [0.8, -0.6, 0.5])).astype(float)


def _leverage(rng: np.random.Generator) -> tuple[Array, Array]:
    x = rng.standard_t(2, (500, 4))
    return x, (rng.random(500) < expit(-1.5 + x @ [0.6, -0.5, 0.4, 0.3])).astype(float)


def _counts(rng: np.random.Generator) -> tuple[Array, Array]:
    x = _present(rng, 500)
    return x, rng.poisson(np.exp(-2.5 + x @ [0.6, -0.4, 0.3])).astype(float)


_LOGISTIC = ROOT / "stan_models" / "logistic.stan"
_POISSON = ROOT / "benchmarks" / "suite" / "models" / "poisson.stan"

POSTERIORS = {
    one.name: one
    for one in (
        Posterior("rare", "logistic regression with few events", _LOGISTIC, _softplus, _rare, steps=5),
        Posterior("leverage", "logistic regression on t(2) covariates", _LOGISTIC, _softplus, _leverage, steps=4),
        Posterior("counts", "Poisson regression with few counts", _POISSON, np.exp, _counts, steps=8),
    )
}
