"""PSIS-LOO of draws from a random subset of the observations."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console

from stansub.diagnostics.elpd import Loo, check_scale
from stansub.diagnostics.subsets import (
    Places,
    check_subset,
    log_likelihoods,
    places_of,
    random_rows,
    unconstrained_draws,
)
from stansub.errors import InputError, RunError
from stansub.output import inference_data, psis
from stansub.output.statistics import scalars
from stansub.progress import Progress
from stansub.run.progress import default_console, stage_progress, wanted
from stansub.run.provenance import posterior_of_draws
from stansub.run.reading import read_draws
from stansub.stan.posterior import Posterior
from stansub.stan.proof import TOLERANCE, relative_error
from stansub.stan.sources import DataLike
from stansub.target.functions import FunctionFactors
from stansub.target.gradients import THREADS
from stansub.types import FloatArray

if TYPE_CHECKING:
    from stansub.output.inference_data import InferenceData

# Observations evaluated at once, and log likelihoods held at once: 32 MB.
_PART, _HELD = 1 << 13, 1 << 22


def loo(
    draws: str | Path | InferenceData,
    *,
    data: DataLike | None = None,
    model: Posterior | FunctionFactors | None = None,
    observations: int = 1000,
    seed: int = 0,
    scale: str = "log",
    show_progress: bool | None = None,
    console: Console | None = None,
) -> Loo:
    """Estimate the expected log predictive density of a model by PSIS-LOO on a subset of the observations.

    The log likelihoods of all observations at the posterior mean, from one pass over the data, are the surrogates of a
    difference estimator (Magnusson, Vehtari, Jonasson and Andersen 2020); PSIS-LOO on a simple random sample without
    replacement corrects their sum. With all observations the result is that of `arviz.loo`.

    Parameters
    ----------
    draws : path or InferenceData
        Draws of `stansub.sample` or `stansub.reference`.
    data : path, mapping, table or DataSources, optional
        The data, if their file has moved since the run.
    model : Posterior or FunctionFactors, optional
        The posterior sampled; needed for a posterior of functions, which no file records.
    observations : int
        Size of the subset; all observations if there are no more.
    seed : int
        Seed of the subset. The same seed gives the same subset, as comparisons need.
    scale : {"log", "negative_log", "deviance"}
        Scale of the result, as in `arviz.loo`.
    show_progress : bool, optional
        Whether to show progress; by default on a terminal or in a notebook.
    console : rich.console.Console, optional
        Console for progress.

    Returns
    -------
    Loo

    Raises
    ------
    InputError
        If a file cannot be read, program or data of the draws are missing, or the likelihood is not a sum over
        observations.
    RunError
        If a log likelihood is not finite.
    """
    check_subset(observations, seed)
    check_scale(scale)
    own = read_draws(draws) if isinstance(draws, str | Path) else draws
    console = console or default_console()
    with stage_progress(console, show=wanted(show_progress, console)) as log:
        posterior = posterior_of_draws(inference_data.attrs(own), model=model, data=data, log=log)
        theta = unconstrained_draws(own, posterior)
        n = posterior.blocks.n_observations
        log("Evaluating all observations at the posterior mean")
        surrogate = _at_point(posterior, theta.mean(axis=(0, 1)), log)
        rows = random_rows(n, observations, seed)
        log(f"PSIS-LOO of {len(rows):,} observations")
        _, quantities = scalars(own)
        found = _leave_out(posterior, theta, rows, psis.relative_efficiency(quantities), log)
    n_samples = theta.shape[0] * theta.shape[1]
    good_k = psis.good_k(n_samples)
    return Loo(posterior.name, n_samples, scale, good_k, rows, *found, surrogate, _columns(posterior))


def _columns(posterior: Posterior) -> frozenset[str]:
    """Return digests of the data variables with a value per observation."""
    values, counts = posterior.values, set(posterior.counts)
    tall = [one.name for one in values.declarations if set(one.sizes) & counts and one.base != "tuple"]
    arrays = (np.ascontiguousarray(values.values[name], np.float64) for name in tall)
    return frozenset(hashlib.sha256(one.data).hexdigest() for one in arrays)


def _at_point(posterior: Posterior, theta: FloatArray, log: Progress) -> FloatArray:
    """Return log likelihoods of all observations in the order of the data, proved to add up to the log density's."""
    places = places_of(posterior)
    parts = np.array_split(places, -(-len(places) // _PART))
    values: list[FloatArray] = []
    with ThreadPoolExecutor(max_workers=THREADS) as pool:
        for part in pool.map(lambda part: posterior.each(theta, part), parts):
            values.append(part)
            log.advance(len(values), len(parts))
    surrogate = np.concatenate(values)
    whole, shared = posterior.full.log_density(theta), posterior.population.evaluator().global_log_density(theta)
    error = relative_error(whole, shared, surrogate)
    if not error <= TOLERANCE:
        raise InputError(
            f"{posterior.name}: at the posterior mean the log density differs from prior plus log likelihoods of "
            f"single observations by {error:.1e} (relative), so single observations cannot be left out"
        )
    return surrogate


def _leave_out(
    posterior: Posterior, theta: FloatArray, rows: Places, efficiency: float, log: Progress
) -> psis.Pointwise:
    """Return PSIS-LOO of some rows of the data, from draws of shape (chain, draw, dim)."""
    places = places_of(posterior)[rows]
    n_parts = -(-len(rows) * theta.shape[0] * theta.shape[1] // _HELD)
    found = []
    for part in np.array_split(np.arange(len(rows)), n_parts):
        log_lik = log_likelihoods(posterior, theta, places[part])
        if not (finite := np.isfinite(log_lik).all(axis=(0, 1))).all():
            row = int(rows[part[np.argmin(finite)]])
            raise RunError(
                f"{posterior.name}: the log likelihood of observation {row + 1:,} is not finite at some draws"
            )
        found.append(psis.psis_loo(log_lik, efficiency))
        log.advance(sum(len(one.elpd) for one in found), len(rows))
    return psis.Pointwise(*map(np.concatenate, zip(*found, strict=True)))
