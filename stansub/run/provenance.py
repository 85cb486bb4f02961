"""Data and posterior of draws, restored from the attributes of their file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stansub.errors import InputError
from stansub.progress import Progress
from stansub.run.posteriors import make_posterior
from stansub.stan import data as data_module
from stansub.stan import syntax
from stansub.stan.posterior import Posterior
from stansub.stan.source import Source
from stansub.stan.sources import DataLike, DataSources
from stansub.stan.syntax import Declaration
from stansub.target.blocks import VARIATES_BLOCK_SIZE, coarse_size
from stansub.target.functions import FunctionFactors


def data_of(facts: Mapping[str, Any], data: DataLike | None, declarations: tuple[Declaration, ...]) -> DataLike:
    """Return the data of draws, after checking that they are unchanged.

    Parameters
    ----------
    facts : mapping
        Attributes of the draws.
    data : path, mapping, table or DataSources, optional
        The data, if the files that the draws record have been moved.

    Raises
    ------
    InputError
        If the data are missing or have changed.
    """
    if data is None:
        recorded = DataSources.restored(str(facts.get("data_file") or ""))
        if recorded is None:
            raise InputError("the draws do not record a data file: give `data`")
        if missing := recorded.missing():
            raise InputError(f"{missing}: the file from which the draws were made no longer exists; give `data`")
        data = recorded
    read = data_module.read(data, declarations)
    if read.digest() != facts.get("data_hash"):
        raise InputError(
            f"{DataSources.of(data).name}: these are not the data of the draws; give the original data as `data`"
        )
    return data


def posterior_of_draws(
    facts: Mapping[str, Any], *, model: Posterior | FunctionFactors | None, data: DataLike | None, log: Progress
) -> Posterior:
    """Return the posterior of draws, cut into blocks; compiled programs are reused.

    Parameters
    ----------
    facts : mapping
        Attributes of the draws.
    model : Posterior or FunctionFactors, optional
        The posterior sampled, if available; needed for a posterior of functions, which no file records.
    data : path, mapping, table or DataSources, optional
        The data, if the files that the draws record have been moved.

    Raises
    ------
    InputError
        If the program is not recorded, the data are missing, either differs from that of the draws, or the likelihood
        is not a sum over observations.
    """
    asked, settings = facts.get("asked", {}), facts.get("settings", {})
    code = str(facts.get("model_code", ""))
    if model is None and not code:
        raise InputError("the draws do not record their program: give the sampled model as `model` from Python")
    given = model or Source(str(facts.get("model", "model")), code, syntax.parse(code))
    if isinstance(given, Source):
        log("Reading the data")
        data = data_of(facts, data, given.program.data.declarations)
    posterior, _ = make_posterior(
        given,
        data,
        block_size=lambda analysis, n, instances: coarse_size(VARIATES_BLOCK_SIZE, n),
        seed=int(settings.get("seed") or 0),
        observations=asked.get("observations"),
        evaluator=str(asked.get("evaluator", "auto")),
        log=log,
    )
    if posterior.model_hash != facts.get("model_hash") or posterior.values.digest() != facts.get("data_hash"):
        raise InputError(f"{posterior.name}: these are not the program and data of the draws")
    return posterior
