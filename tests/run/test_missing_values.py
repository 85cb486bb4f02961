"""Missing values as parameters: surrogate transitions by default, and draws of the posterior."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agreement import z_scores

import stansub

PROGRAM = Path(__file__).parent / "programs" / "missing_covariate.stan"
NAMES = ("alpha", "beta", "sigma", "alpha_x", "beta_x", "sigma_x", "x_missing")
MAX_Z = 4.5


@pytest.mark.slow
def test_draws_agree_with_nuts() -> None:
    """Means and mean squares of all parameters; draws that are 10 % wider must not agree."""
    n, n_missing, rng = 600, 80, np.random.default_rng(3)
    w = rng.standard_normal(n)
    x = 0.5 + 0.8 * w + rng.standard_normal(n)
    y = 0.3 + 0.7 * x + rng.standard_normal(n)
    missing = np.sort(rng.choice(n, n_missing, replace=False))
    x[missing] = np.inf  # as in brms's data; never read
    data = {"N": n, "y": y, "N_x": n, "x": x, "w": w, "n_missing": n_missing, "missing": missing + 1}
    options: dict[str, Any] = {"seed": 4, "show_progress": False}
    idata = stansub.sample(PROGRAM, data, **options)
    assert "surrogate transitions: effects with an unknown scale (x_missing)" in str(idata.attrs["choices"])
    assert float(idata.sample_stats["accepted"].mean()) > 0.8
    reference = stansub.reference(PROGRAM, data, **options)
    assert max(z_scores(idata, reference, NAMES)) < MAX_Z
    assert max(z_scores(idata, reference, NAMES, wider=1.1)) > MAX_Z
