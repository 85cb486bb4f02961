"""Draws of two samplers beside each other, in Monte Carlo standard errors."""

from collections.abc import Sequence
from typing import Any

import arviz as az
import numpy as np


def z_scores(one: Any, other: Any, names: Sequence[str], *, wider: float = 1.0) -> list[float]:
    """Of means and mean squares of all parameters, in standard errors of both sides; one side may be made wider."""
    found = []
    for name in names:
        sides = [np.array(each.posterior[name]).reshape(*each.posterior[name].shape[:2], -1) for each in (one, other)]
        for k in range(sides[0].shape[2]):
            centre = sides[1][:, :, k].mean()
            sides[0][:, :, k] = centre + wider * (sides[0][:, :, k] - centre)
            for power in (1, 2):
                values = [(side[:, :, k] - centre) ** power for side in sides]
                error = np.hypot(*(float(az.mcse(each, method="mean")) for each in values))
                found.append(abs(values[0].mean() - values[1].mean()) / error)
    return found
