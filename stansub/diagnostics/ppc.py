"""Posterior predictive draws of a random subset of the observations, from a program's generated quantities."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console

from stansub.diagnostics.subsets import Places, check_subset, log_likelihoods, random_rows, unconstrained_draws
from stansub.errors import InputError, RunError
from stansub.output import inference_data
from stansub.output.inference_data import InferenceData, attrs
from stansub.run.constrain import SavedQuantities, constrain
from stansub.run.limits import Count
from stansub.run.progress import Display, stage_progress
from stansub.run.provenance import posterior_of_draws
from stansub.run.reading import draws_of
from stansub.stan.data.data import Data
from stansub.stan.data.sources import DataLike
from stansub.stan.posterior import Posterior
from stansub.stan.proof import TOLERANCE, Whole, relative_error
from stansub.stan.shares import SumOfParts
from stansub.stan.syntax import Program, parse
from stansub.stan.toolchain.library import Library, Model
from stansub.target.threads import THREADS
from stansub.types import FloatArray

# Suffixes of replicated data, after the name of the data.
_SUFFIXES = ("_rep", "_hat")
_FACTS = ("model", "model_code", "model_hash", "data_hash", "data_file", "n_observations")


def ppc(
    draws: str | Path | InferenceData,
    *,
    data: DataLike | None = None,
    observations: int = 1000,
    n_draws: int = 200,
    seed: int = 0,
    executor: str | None = None,
    show_progress: bool | None = None,
    console: Console | None = None,
) -> InferenceData:
    """Draw replicated data of a random subset of the observations.

    The program's generated quantities ``y_rep`` (or ``y_hat``) of a data variable ``y`` are computed with the subset as
    the whole data, at draws evenly spaced in each chain.

    Parameters
    ----------
    draws : path or InferenceData
        Draws of `stansub.sample` or `stansub.reference`.
    data : path, mapping, table or DataSources, optional
        The data, if their file has moved since the run.
    observations : int
        Size of the subset; all observations if there are no more.
    n_draws : int
        Number of replicated data sets.
    seed : int
        Seed of the subset and of the replicated data.
    executor : str, optional
        Where to open the data if the run had them in partitions, as in `stansub.loo`.
    show_progress : bool, optional
        Whether to show progress; by default on a terminal or in a notebook.
    console : rich.console.Console, optional
        Console for progress.

    Returns
    -------
    InferenceData
        Groups ``posterior_predictive`` and ``observed_data``, in which replicated and observed data share the name of
        the data variable, as `arviz.plot_ppc_dist` expects (`plot_ppc` before ArviZ 1.0). The coordinate
        ``observation`` is the row of the data, from 0.

    Raises
    ------
    InputError
        If the program lacks such quantities, or they depend on more than the observations in the subset.
    RunError
        If generated quantities fail.
    """
    check_subset(observations, seed)
    Count().check("draws", n_draws)
    own = draws_of(draws)
    if code := attrs(own).get("model_code"):  # before it is compiled
        _predictions(str(attrs(own).get("model", "model")), parse(str(code)))
    with (
        stage_progress(Display.of(show_progress, console)) as log,
        posterior_of_draws(own, model=None, data=data, executor=executor, log=log) as posterior,
    ):
        names = _replicated(posterior)
        rows = random_rows(posterior.blocks.n_observations, observations, seed)
        theta = unconstrained_draws(own, posterior)
        log(f"Drawing replicated data of {len(rows):,} observations")
        values, model = _subset(posterior, rows, theta.mean(axis=(0, 1)))
        step = max(1, theta.shape[0] * theta.shape[1] // n_draws)
        kept = SavedQuantities(saved=frozenset(names))
        found, trouble = constrain(
            replace(posterior, full=model), theta[:, ::step], kept=kept, seed=seed, threads=THREADS
        )
    if trouble:
        raise RunError(trouble)
    observed = {base: np.asarray(values.values[base]) for base in names.values()}
    dims = {base: ["observation", *(f"{base}_dim_{k}" for k in range(1, one.ndim))] for base, one in observed.items()}
    tree = inference_data.build(
        posterior={},
        sample_stats={},
        posterior_predictive={base: found[name] for name, base in names.items()},
        observed_data=observed,
        dims=dims,
        coords={"observation": rows},
        attrs={name: value for name, value in attrs(own).items() if name in _FACTS},
    )
    return inference_data.container(tree)


def _replicated(posterior: Posterior) -> dict[str, str]:
    """Return names of replicated data, and of the data variables that they replicate."""
    if posterior.analysis.table:
        raise InputError(
            f"{posterior.name}: the observations are the cells of a table, and the program cannot predict some of them "
            "alone; keep the table that it predicts with `save` when you sample"
        )
    return _predictions(posterior.name, posterior.program, posterior.counts)


def _predictions(name: str, program: Program, counts: Collection[str] | None = None) -> dict[str, str]:
    """Return the same from the text of a program, of those that ``counts`` size, if it is given."""
    outcomes, found = {one.name: one for one in program.data.declarations}, {}
    for one in program.generated_quantities.declarations:
        base = next((one.name.removesuffix(end) for end in _SUFFIXES if one.name.endswith(end)), "")
        is_counted = one.sizes and (counts is None or one.sizes[0] in counts)
        if base in outcomes and is_counted and one.sizes == outcomes[base].sizes:
            found[one.name] = base
    if not found:
        raise InputError(
            f"{name}: no generated quantity replicates data: declare one with the name and sizes of a data variable "
            "followed by _rep, such as `array[N] real y_rep` for `vector[N] y`"
        )
    return found


def _subset(posterior: Posterior, rows: Places, theta: FloatArray) -> tuple[Data, Model]:
    """Return some rows of the data and the program with only them, proved to have the same log likelihoods."""
    try:
        values = posterior.values.rows(posterior.values.axes(posterior.sizes), posterior.sizes, rows)
        model = values.model(_library(posterior.full), seed=posterior.seed)
        whole = model.log_density(theta) if model.dim == posterior.dim else np.nan
    except InputError as error:
        raise InputError(f"{posterior.name}: single observations cannot be predicted: {error}") from error
    shared = posterior.population.evaluator().global_log_density(theta)
    terms = log_likelihoods(posterior, theta[np.newaxis, np.newaxis], rows)
    if not relative_error(whole, shared, terms.ravel()) <= TOLERANCE:
        raise InputError(
            f"{posterior.name}: single observations cannot be predicted: given a subset of the data, the program "
            "gives these observations another likelihood"
        )
    return values, model


def _library(whole: Whole) -> Library:
    """Return the compiled program of a log density, which may be a sum over parts of the data."""
    while isinstance(whole, SumOfParts):
        whole = whole.model
    assert isinstance(whole, Model)
    return whole.library
