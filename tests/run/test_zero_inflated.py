"""Surrogate transitions by default for a multilevel likelihood of no known family: zero-inflated counts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agreement import z_scores

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


@pytest.mark.slow
def test_draws_agree_with_nuts(data: dict[str, Any]) -> None:
    """Means and mean squares of all parameters; draws that are 10 % wider must not agree."""
    options: dict[str, Any] = {"seed": 4, "show_progress": False}
    idata = stansub.sample(PROGRAM, data, **options)
    assert "not used" not in str(idata.attrs["choices"])
    assert float(idata.sample_stats["accepted"].mean()) > 0.5
    reference = stansub.reference(PROGRAM, data, **options)
    assert max(z_scores(idata, reference, NAMES)) < MAX_Z
    assert max(z_scores(idata, reference, NAMES, wider=1.1)) > MAX_Z


@pytest.mark.slow
def test_a_run_resumes(data: dict[str, Any], tmp_path: Path) -> None:
    options: dict[str, Any] = {"seed": 4, "chains": 2, "iter_warmup": 20, "show_progress": False}
    idata = stansub.sample(PROGRAM, data, **options, iter_sampling=60)
    file = tmp_path / "run.checkpoint"
    stansub.sample(PROGRAM, data, **options, iter_sampling=30, checkpoint=file)
    resumed = stansub.sample(PROGRAM, data, **options, iter_sampling=60, resume=file)
    np.testing.assert_array_equal(resumed.posterior["z"], idata.posterior["z"])
