"""Predicted cost of NUTS, from the time of a gradient and the normal approximation at the mode.

No tree is built. With a diagonal metric, as CmdStan adapts it, NUTS sees the posterior in units of its marginal sds.
The longest axis of the correlation matrix determines the length of a trajectory until it turns, and the shortest axis
the step size. On normal posteriors, the step is about 1.5 dim^(-1/4) shortest sds for 80 % acceptance, the trajectory
is pi longest sds (half a period), and a tree has 2^k - 1 steps. Posteriors that are not normal need more.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from stansub import clock
from stansub.stan.posterior import Posterior
from stansub.target.gradients import Objective, Team
from stansub.types import FloatArray

# Assumptions, not measurements: warmup draws; ratio of their leapfrog steps to those of sampling draws; effective draws
# per draw; and the factor by which leapfrog steps may differ.
WARMUP, WARMUP_FACTOR, ESS_OF_A_DRAW, RANGE = 1000, 1.5, 1.0, 2.0
_STEP = 1.5
# Gradients to time: minimum, maximum, and seconds.
_FEWEST, _MOST, _SECONDS = 3, 200, 1.0
_LARGEST_TREE = 2**10 - 1


@dataclass(frozen=True)
class NutsCost:
    """Basis of the prediction for NUTS."""

    seconds: float
    """Time of a gradient of the whole log density on one core."""
    seconds_error: float
    """Relative standard error of that time."""
    leapfrog: int


def leapfrog_steps(cholesky: FloatArray) -> int:
    """Return the leapfrog steps per draw on a normal posterior with this covariance factor, shape (dim, dim)."""
    covariance = cholesky @ cholesky.T
    sds = np.sqrt(np.diag(covariance))
    spectrum = np.linalg.eigvalsh(covariance / np.outer(sds, sds))
    longest, shortest = math.sqrt(spectrum[-1]), math.sqrt(max(spectrum[0], 1e-12))
    step = _STEP * len(sds) ** -0.25 * shortest
    depth = max(1, math.ceil(math.log2(math.pi * longest / step)))
    return int(min(2**depth - 1, _LARGEST_TREE))


def nuts_cost(
    posterior: Posterior, centre: FloatArray, cholesky: FloatArray, rng: np.random.Generator
) -> NutsCost | None:
    """Time some gradients at draws of a normal approximation; return None if there are no gradients.

    For a program, the program's own log density is differentiated, as NUTS does; for functions, the sum of the factors.

    Parameters
    ----------
    centre : ndarray, shape (dim,)
    cholesky : ndarray, shape (dim, dim)
        A factor of the covariance, F with F F' = covariance.
    """
    if not posterior.has_gradients:
        return None
    own: Any = getattr(posterior.full, "log_density_gradient", None)
    times: list[float] = []
    with ExitStack() as stack:
        gradient = own or Objective(stack.enter_context(Team(posterior.population)))
        gradient(centre)
        while len(times) < _FEWEST or (len(times) < _MOST and sum(times) < _SECONDS):
            theta = centre + cholesky @ rng.standard_normal(len(centre))
            began = clock.now()
            gradient(theta)
            times.append(clock.now() - began)
    seconds = float(np.mean(times))
    return NutsCost(seconds, float(np.std(times, ddof=1) / math.sqrt(len(times)) / seconds), leapfrog_steps(cholesky))
