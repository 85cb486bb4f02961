"""The neck of a funnel: a scale near 0, against its exact distribution."""

from pathlib import Path
from typing import Any

import arviz as az
import numpy as np
import pytest
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray
from scipy.special import logsumexp

import stansub

PROGRAM = Path(__file__).parent / "programs" / "rare.stan"
Array = NDArray[np.float64]
N, J = 30_000, 300
MAX_Z, NECK = 4.0, -2.0


def simulated() -> dict[str, Any]:
    """Some 100 outcomes in 300 groups."""
    rng = np.random.default_rng(5)
    g = rng.integers(J, size=N)
    p = 1 / (1 + np.exp(6 - 0.7 * rng.standard_normal(J)[g]))
    return {"N": N, "J": J, "g": g + 1, "y": (rng.random(N) < p).astype(int)}


def exact(data: dict[str, Any]) -> tuple[Array, Array]:
    """The logarithm of the scale on a grid, and its probabilities: other parameters are integrated out numerically."""
    g = np.asarray(data["g"]) - 1
    n, events = np.bincount(g, minlength=J), np.bincount(g, data["y"], minlength=J)
    z, z_weights = hermegauss(40)
    log_weights = np.log(z_weights / z_weights.sum())
    a = np.linspace(-9, -4, 121)

    def log_density(log_tau: float) -> float:
        eta = a[:, np.newaxis] + np.exp(log_tau) * z
        each = events * eta[:, :, np.newaxis] - n * np.log1p(np.exp(eta))[:, :, np.newaxis]
        of_groups = logsumexp(each + log_weights[:, np.newaxis], axis=1).sum(axis=1)
        return float(logsumexp(of_groups - 0.5 * (a / 5) ** 2) - 0.5 * np.exp(2 * log_tau) + log_tau)

    grid = np.arange(-12, 1.2, 0.05)
    logs = np.array([log_density(s) for s in grid])
    p = np.exp(logs - logs.max())
    return grid, p / p.sum()


def largest_z(data: dict[str, Any], grid: Array, p: Array, seed: int) -> float:
    """Of the mean and the variance of the scale's logarithm, and of the probability of the neck."""
    mean, below = float(grid @ p), float(p[grid < NECK].sum())
    assert below > 0.004
    idata = stansub.sample(PROGRAM, data, seed=seed, show_progress=False)
    draws = np.log(idata["posterior"]["tau"].values)
    found = []
    for values, truth in ((draws, mean), ((draws - mean) ** 2, (grid - mean) ** 2 @ p), (draws < NECK, below)):
        error = float(np.std(values) / np.sqrt(float(az.ess(np.asarray(values, float)))))
        found.append(abs(values.mean() - truth) / error if error else np.inf)
    return float(max(found))


@pytest.mark.slow
def test_chains_reach_the_neck_of_a_funnel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scale's logarithm has a long lower tail, which R-hat and ESS do not show if chains stay out of it."""
    data = simulated()
    of = data, *exact(data)
    assert max(largest_z(*of, seed) for seed in (1, 2)) < MAX_Z
    monkeypatch.setattr("stansub.tuning.effects.normal_effects._UNCERTAIN", np.inf)  # trajectories in one metric
    assert max(largest_z(*of, seed) for seed in (1, 2, 3)) > MAX_Z
