"""Differences between two samplers' draws of the same parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import arviz
import numpy as np
from scipy.stats import norm
from suite.figures import Draws


class Gap(NamedTuple):
    """Differences of all parameters in one statistic.

    Attributes
    ----------
    size : float
        The largest: of means in sds, of sds as the logarithm of their ratio.
    z : float
        The largest in standard errors.
    rms : float
        The root mean square in standard errors: 1 if both samplers draw from one distribution.
    n : int
        How many there are.
    """

    size: float
    z: float
    rms: float
    n: int

    @property
    def expected(self) -> float:
        """Return the z that the largest of as many independent normal values exceeds with probability 0.01."""
        return float(norm.isf(0.005 / self.n))


def gaps(one: Draws, other: Draws) -> dict[str, Gap]:
    """Compare means and sds of the parameters that both have."""
    both = [(one[name], other[name]) for name in one if name in other]
    mean = [
        (abs(a.mean() - b.mean()) / b.std(), np.hypot(_error(a, "mean"), _error(b, "mean")) / b.std()) for a, b in both
    ]
    sd = [
        (abs(np.log(a.std() / b.std())), np.hypot(_error(a, "sd") / a.std(), _error(b, "sd") / b.std()))
        for a, b in both
    ]
    return {"mean": _gap(mean), "sd": _gap(sd)}


def _error(draws: Any, statistic: str) -> float:
    return float(arviz.mcse(draws, method=statistic))


def _gap(found: Sequence[tuple[float, float]]) -> Gap:
    sizes, errors = np.array(found).T
    z = sizes / errors
    return Gap(float(sizes.max()), float(z.max()), float(np.sqrt(np.mean(z**2))), len(z))
