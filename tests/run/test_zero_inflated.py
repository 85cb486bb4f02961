"""Surrogate transitions by default for a multilevel likelihood of no known family: zero-inflated counts."""

from pathlib import Path
from typing import Any

import arviz as az
import numpy as np
import pytest

import stansub

PROGRAM = Path(__file__).parent / "programs" / "zero_inflated.stan"
NAMES = ("a", "b", "p", "z", "tau")
MAX_Z = 4.5


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    n, levels, rng = 6_000, 50, np.random.default_rng(8)
    x, g = rng.standard_normal(n), rng.integers(levels, size=n)
    mean = np.exp(0.4 + 0.3 * x + 0.5 * rng.standard_normal(levels)[g])
    y = rng.poisson(mean) * (rng.random(n) > 0.25)
    return {"N": n, "J": levels, "y": y, "x": x, "g": g + 1}


def z_scores(one: Any, other: Any, *, wider: float = 1.0) -> list[float]:
    """Of means and mean squares of all parameters, in standard errors of both sides; one side may be made wider."""
    found = []
    for name in NAMES:
        sides = [np.array(each.posterior[name]).reshape(*each.posterior[name].shape[:2], -1) for each in (one, other)]
        for k in range(sides[0].shape[2]):
            centre = sides[1][:, :, k].mean()
            sides[0][:, :, k] = centre + wider * (sides[0][:, :, k] - centre)
            for power in (1, 2):
                values = [(side[:, :, k] - centre) ** power for side in sides]
                error = np.hypot(*(float(az.mcse(each, method="mean")) for each in values))
                found.append(abs(values[0].mean() - values[1].mean()) / error)
    return found


@pytest.mark.slow
def test_draws_agree_with_nuts(data: dict[str, Any]) -> None:
    """Means and mean squares of all parameters; draws that are 10 % wider must not agree."""
    options: dict[str, Any] = {"seed": 4, "show_progress": False}
    idata = stansub.sample(PROGRAM, data, **options)
    assert "not used" not in str(idata.attrs["choices"])
    assert float(idata.sample_stats["accepted"].mean()) > 0.5
    reference = stansub.reference(PROGRAM, data, **options)
    assert max(z_scores(idata, reference)) < MAX_Z
    assert max(z_scores(idata, reference, wider=1.1)) > MAX_Z


@pytest.mark.slow
def test_a_run_resumes(data: dict[str, Any], tmp_path: Path) -> None:
    options: dict[str, Any] = {"seed": 4, "chains": 2, "iter_warmup": 20, "show_progress": False}
    idata = stansub.sample(PROGRAM, data, **options, iter_sampling=60)
    file = tmp_path / "run.checkpoint"
    stansub.sample(PROGRAM, data, **options, iter_sampling=30, checkpoint=file)
    resumed = stansub.sample(PROGRAM, data, **options, iter_sampling=60, resume=file)
    np.testing.assert_array_equal(resumed.posterior["z"], idata.posterior["z"])
