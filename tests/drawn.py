"""Parts of draws as arrays."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stansub.output.inference_data import attrs, group


def unconstrained(idata: Any) -> NDArray[np.float64]:
    """Unconstrained draws, shape (chain, draw, dim)."""
    values: NDArray[np.float64] = group(idata, "unconstrained_posterior")["theta"].values
    return values


def statistic(idata: Any, name: str) -> NDArray[Any]:
    """A statistic of each step, shape (chain, draw)."""
    values: NDArray[Any] = group(idata, "sample_stats")[name].values
    return values


def share_used(idata: Any) -> float:
    """The mean share of the data that a decision used."""
    return float(statistic(idata, "n_obs_used").mean() / attrs(idata)["n_observations"])
