"""Random subsets of the observations, and log likelihoods of single observations at draws."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stansub import streams
from stansub.errors import InputError
from stansub.output import inference_data
from stansub.run.limits import MOST, Count
from stansub.stan.partitions import PartitionedData
from stansub.stan.posterior import Posterior
from stansub.target.threads import THREADS
from stansub.types import FloatArray

if TYPE_CHECKING:
    from stansub.output.inference_data import InferenceData

Places = NDArray[np.int64]


def check_subset(observations: int, seed: int) -> None:
    """Raise InputError unless the size and seed of a subset are valid."""
    Count(at_least=2).check("observations", observations)
    Count(at_least=0, at_most=MOST["seed"]).check("seed", seed)


def random_rows(n: int, m: int, seed: int) -> Places:
    """Return a simple random sample of min(m, n) rows of n, drawn without replacement, in their order."""
    rng = streams.generator(seed, streams.Run.SUBSET)
    return np.sort(rng.choice(n, min(m, n), replace=False, shuffle=False)).astype(np.int64)


def unconstrained_draws(draws: InferenceData, posterior: Posterior) -> FloatArray:
    """Return unconstrained positions of draws, shape (chain, draw, dim), computed from the parameters for NUTS.

    Raises
    ------
    InputError
        If a parameter was not kept.
    """
    if "unconstrained_posterior" in inference_data.groups(draws):
        return np.asarray(inference_data.group(draws, "unconstrained_posterior")["theta"].values)
    held = inference_data.group(draws, "posterior")
    names = [one.name for one in posterior.program.parameters.declarations]
    if missing := [name for name in names if name not in held.data_vars]:
        raise InputError(f"the draws have no parameter {missing[0]}: sample again and keep all parameters")
    sizes = held.sizes["chain"], held.sizes["draw"]
    theta = np.empty((*sizes, posterior.dim))
    for at in np.ndindex(sizes):
        values = {name: held[name].values[at].tolist() for name in names}
        theta[at] = posterior.full.param_unconstrain_json(json.dumps(values).encode())
    return theta


def log_likelihoods(posterior: Posterior, theta: FloatArray, rows: Places) -> FloatArray:
    """Return log likelihoods of some rows of the data at draws, shape (chain, draw, len(rows)).

    Parameters
    ----------
    theta : ndarray, shape (chain, draw, dim)
    """
    flat, values = np.ascontiguousarray(theta.reshape(-1, theta.shape[2])), posterior.values
    if isinstance(values, PartitionedData):
        found = values.each(flat, rows)
    else:
        found = posterior.each(flat, rows, threads=THREADS)
    return found.reshape(*theta.shape[:2], len(rows))
