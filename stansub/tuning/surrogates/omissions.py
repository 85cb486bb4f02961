"""What an approximation of a likelihood omits at draws of a surrogate: its errors there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stansub.progress import Progress
from stansub.target.approximation import Approximation
from stansub.target.split import Split
from stansub.types import FloatArray

# Effective share of the draws that selection leaves.
_DIFFERENT = 1 / 3


def remainders(
    split: Split, about: Approximation, draws: FloatArray | Sequence[FloatArray], progress: Progress
) -> FloatArray:
    """Return what an approximation omits at draws, shape (n,)."""
    surrogate, found = split.surrogate(about), np.empty(len(draws))
    for k, theta in enumerate(draws):
        progress.advance(k, len(draws))
        phi = surrogate.phi(theta)
        found[k] = split.predictors.log_lik(phi) - about(phi)
    progress.advance(len(draws), len(draws))
    return found


def selected(remainders: FloatArray) -> NDArray[np.int64]:
    """Return as many places of draws, in proportion to exp(kappa R); with kappa = 1 as if drawn from the posterior.

    If that would leave few different ones, kappa is smaller: draws far from the posterior approach it in steps.
    """
    places, kappa = np.flatnonzero(np.isfinite(remainders)), 1.0
    if not places.size:
        return np.arange(len(remainders))
    logs = remainders[places] - remainders[places].max()
    while True:
        weights = np.exp(kappa * logs)
        weights /= weights.sum()
        if np.sum(weights**2) <= 1 / (_DIFFERENT * len(places)):
            break
        kappa /= 2
    chosen = np.searchsorted(np.cumsum(weights), (np.arange(len(remainders)) + 0.5) / len(remainders))
    return np.asarray(places[chosen.clip(max=len(places) - 1)])


def noise_of(remainders: FloatArray) -> float:
    """Return the standard deviation of remainders; infinite if the likelihood is 0 or undefined at some draws."""
    return float(np.std(remainders)) if np.isfinite(remainders).all() else np.inf
