"""Metrics of posteriors that are bent: Hessians averaged over a few draws have directions of negative curvature."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stansub
from stansub import Posterior
from stansub.kernels.surrogate import NoUTurn
from stansub.progress import Progress
from stansub.target.cholesky import cholesky
from stansub.tuning import surrogate_hmc
from stansub.tuning.surrogate import tune

N, T = 20_000, 100


def simulated() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    f = np.zeros(T)
    f[0] = 0.3 / np.sqrt(1 - 0.7**2) * rng.standard_normal()
    for k in range(1, T):
        f[k] = 0.7 * f[k - 1] + 0.3 * rng.standard_normal()
    t = rng.integers(T, size=N)
    return {"N": N, "T": T, "y": 2 + f[t] + rng.standard_normal(N), "t": t + 1}


@pytest.fixture(scope="module")
def posterior() -> Posterior:
    return stansub.compile_model(Path(__file__).parents[1] / "run" / "programs" / "innovations.stan").with_data(
        simulated()
    )


def step_size(posterior: Posterior) -> float:
    inner = tune(posterior.split(), posterior.dim, np.random.default_rng(0), Progress()).transition.inner
    assert isinstance(inner, NoUTurn)
    return inner.step_size


def test_steps_are_long_with_absolute_curvatures(posterior: Posterior, monkeypatch: pytest.MonkeyPatch) -> None:
    """With increased diagonals instead, chains hardly moved: one program had an R-hat of 2.4."""
    assert step_size(posterior) > 0.1
    monkeypatch.setattr(surrogate_hmc, "of_metric", cholesky)
    assert step_size(posterior) < 0.01
