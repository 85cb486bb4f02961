"""Random subsets of the observations, and log likelihoods of single observations at draws."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stansub import streams
from stansub.errors import InputError
from stansub.output import inference_data
from stansub.output.inference_data import InferenceData
from stansub.output.layout import Layout
from stansub.run.inits import unconstrain
from stansub.run.limits import MOST, Count
from stansub.stan.partitions import PartitionedData
from stansub.stan.posterior import Posterior
from stansub.target.threads import THREADS
from stansub.types import FloatArray

Places = NDArray[np.int64]


def check_subset(observations: int, seed: int) -> None:
    """Raise InputError unless the size and seed of a subset are valid."""
    Count(at_least=2).check("observations", observations)
    Count(at_least=0, at_most=MOST["seed"]).check("seed", seed)


def random_rows(n: int, m: int, seed: int) -> Places:
    """Return a simple random sample of min(m, n) rows of n, drawn without replacement, in their order."""
    rng = streams.generator(seed, streams.Run.SUBSET)
    return np.sort(rng.choice(n, min(m, n), replace=False, shuffle=False)).astype(np.int64)


def unconstrained_draws(draws: InferenceData, posterior: Posterior, rows: Places | None = None) -> FloatArray:
    """Return unconstrained positions of draws, shape (chain, draw, dim), computed from the parameters for NUTS.

    Parameters
    ----------
    rows : ndarray of int64, optional
        Draws of each chain to return; all by default.

    Raises
    ------
    InputError
        If a parameter was not kept, or a draw does not fit the program.
    """
    held = inference_data.group(draws, "posterior")
    sizes = held.sizes["chain"], held.sizes["draw"]
    if "unconstrained_posterior" in inference_data.groups(draws):
        theta = inference_data.group(draws, "unconstrained_posterior")["theta"].values
        if theta.shape == (*sizes, posterior.dim):
            return np.asarray(theta if rows is None else theta[:, rows])
    names = Layout.from_names(posterior.full.param_names()).names
    if missing := [name for name in names if name not in held.data_vars]:
        raise InputError(f"the draws have no parameter {missing[0]}: sample again and keep all parameters")
    rows = np.arange(sizes[1]) if rows is None else rows
    values = {name: held[name].values for name in names}
    theta = np.empty((sizes[0], rows.size, posterior.dim))
    for chain, place in np.ndindex(theta.shape[:2]):
        row = rows[place]
        try:
            theta[chain, place] = unconstrain(
                posterior.full, {name: drawn[chain, row] for name, drawn in values.items()}
            )
        except InputError as error:
            raise InputError(f"draw {row + 1} of chain {chain + 1} does not fit the program ({error})") from error
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
