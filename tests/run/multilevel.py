"""A small logistic regression with two groupings."""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

PROGRAM = Path(__file__).parent / "programs" / "multilevel.stan"
N, J, K = 300, 6, 9


def simulated() -> dict[str, Any]:
    """Its data."""
    rng = np.random.default_rng(5)
    x, g, h = rng.standard_normal(N), rng.integers(J, size=N), rng.integers(K, size=N)
    eta = -0.4 + 0.5 * x + 0.6 * rng.standard_normal(J)[g] + 1.2 * rng.standard_normal(K)[h]
    y = (rng.random(N) < expit(eta)).astype(int)
    return {"N": N, "J": J, "K": K, "y": y, "x": x, "g": g + 1, "h": h + 1}
