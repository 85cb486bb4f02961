"""PSIS-LOO of draws from a random subset of the observations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich.console import Console

from stansub.diagnostics.elpd import Loo, Sums, check_scale
from stansub.diagnostics.subsets import (
    Places,
    check_subset,
    log_likelihoods,
    random_rows,
    unconstrained_draws,
)
from stansub.errors import InputError, RunError
from stansub.output import psis
from stansub.output.inference_data import InferenceData
from stansub.output.statistics import scalars
from stansub.progress import Progress
from stansub.run.progress import Display, stage_progress
from stansub.run.provenance import posterior_of_draws
from stansub.run.reading import draws_of
from stansub.stan.data.data import digest_of
from stansub.stan.data.sources import DataLike
from stansub.stan.partition_requests import ColumnDigests, SingleSums, column_digests
from stansub.stan.partitions import PartitionedData
from stansub.stan.posterior import Posterior
from stansub.stan.proof import TOLERANCE, error_of_sums
from stansub.target.functions import FunctionFactors
from stansub.target.requests import ask_all
from stansub.target.threads import THREADS
from stansub.types import FloatArray

# Log likelihoods held at once: 32 MB.
_HELD = 1 << 22


def loo(
    draws: str | Path | InferenceData,
    *,
    data: DataLike | None = None,
    model: Posterior | FunctionFactors | None = None,
    observations: int = 1000,
    seed: int = 0,
    scale: str = "log",
    executor: str | None = None,
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
    executor : str, optional
        Where to open the data if the run had them in partitions: ``"threads"`` of this process (the default),
        ``"dask"`` or ``"dask:ADDRESS"``.
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
    own = draws_of(draws)
    with (
        stage_progress(Display.of(show_progress, console)) as log,
        posterior_of_draws(own, model=model, data=data, executor=executor, log=log) as posterior,
    ):
        theta = unconstrained_draws(own, posterior)
        n = posterior.blocks.n_observations
        rows = random_rows(n, observations, seed)
        log("Evaluating all observations at the posterior mean")
        surrogate = _at_point(posterior, theta.mean(axis=(0, 1)), rows, log)
        log(f"PSIS-LOO of {len(rows):,} observations")
        _, quantities = scalars(own)
        found = _leave_out(posterior, theta, rows, psis.relative_efficiency(quantities), log)
        columns = _columns(posterior)
    n_samples = theta.shape[0] * theta.shape[1]
    good_k = psis.good_k(n_samples)
    return Loo(posterior.name, n_samples, scale, good_k, rows, *found, surrogate, columns)


def _columns(posterior: Posterior) -> frozenset[str]:
    """Return digests of the data variables with a value per observation."""
    values = posterior.values
    if not isinstance(values, PartitionedData):
        return frozenset(column_digests(posterior).values())
    parts = ask_all(values.holders, ColumnDigests())
    return frozenset(digest_of({}, [part[name] for part in parts]) for name in parts[0])


def _at_point(posterior: Posterior, theta: FloatArray, rows: Places, log: Progress) -> FloatArray | Sums:
    """Return log likelihoods of all observations in the order of the data, proved to add up to the log density's.

    Of data in partitions, return their sums, and the log likelihoods of ``rows``.
    """
    values, n = posterior.values, posterior.blocks.n_observations
    found: FloatArray | Sums
    if isinstance(values, PartitionedData):
        total, squares, absolute = np.sum(ask_all(values.holders, SingleSums(theta)), axis=0)
        found = Sums(n, float(total), float(squares), values.each(theta[np.newaxis], rows)[0])
    else:
        parts: list[FloatArray] = []
        for part in posterior.in_parts(theta, threads=THREADS):
            parts.append(part)
            log.advance(sum(map(len, parts)), n)
        found = np.concatenate(parts)
        total, absolute = found.sum(), np.abs(found).sum()
    whole, shared = posterior.full.log_density(theta), posterior.population.evaluator().global_log_density(theta)
    error = error_of_sums(whole, shared, n, float(total), float(absolute))
    if not error <= TOLERANCE:
        raise InputError(
            f"{posterior.name}: at the posterior mean the log density differs from prior plus log likelihoods of "
            f"single observations by {error:.1e} (relative), so single observations cannot be left out"
        )
    return found


def _leave_out(
    posterior: Posterior, theta: FloatArray, rows: Places, efficiency: float, log: Progress
) -> psis.Pointwise:
    """Return PSIS-LOO of some rows of the data, from draws of shape (chain, draw, dim)."""
    n_parts = -(-len(rows) * theta.shape[0] * theta.shape[1] // _HELD)
    found = []
    for part in np.array_split(np.arange(len(rows)), n_parts):
        log_lik = log_likelihoods(posterior, theta, rows[part])
        if not (finite := np.isfinite(log_lik).all(axis=(0, 1))).all():
            row = int(rows[part[np.argmin(finite)]])
            raise RunError(
                f"{posterior.name}: the log likelihood of observation {row + 1:,} is not finite at some draws"
            )
        found.append(psis.psis_loo(log_lik, efficiency))
        log.advance(sum(len(one.elpd) for one in found), len(rows))
    return psis.Pointwise(*map(np.concatenate, zip(*found, strict=True)))
