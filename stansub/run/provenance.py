"""Data and posterior of draws, restored from the attributes of their file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from stansub.errors import InputError
from stansub.output import inference_data
from stansub.output.inference_data import InferenceData
from stansub.progress import Progress
from stansub.run import executors, partitions
from stansub.run.inits import near_draws
from stansub.run.posteriors import Data, make_posterior
from stansub.stan import syntax
from stansub.stan.data import data as data_module
from stansub.stan.data.sources import DataLike, DataSources
from stansub.stan.posterior import Posterior
from stansub.stan.source import Source
from stansub.stan.syntax import Declaration
from stansub.target.blocks import VARIATES_BLOCK_SIZE, coarse_size
from stansub.target.functions import FunctionFactors


def data_of(facts: Mapping[str, Any], data: DataLike | None, declarations: tuple[Declaration, ...]) -> DataLike:
    """Return the data of draws, as given or from the files that the draws record, once they are found unchanged.

    Raises
    ------
    InputError
        If the data are missing or have changed.
    """
    data = data if data is not None else _recorded(facts)
    _check_digest(data_module.read(data, declarations), facts)
    return data


def _recorded(facts: Mapping[str, Any]) -> DataSources:
    recorded = DataSources.restored(str(facts.get("data_file") or ""))
    if recorded is None:
        raise InputError("the draws do not record a data file: give `data`")
    if missing := recorded.missing():
        raise InputError(f"{missing}: the file from which the draws were made no longer exists; give `data`")
    return recorded


def _check_digest(values: data_module.Data, facts: Mapping[str, Any]) -> None:
    if values.digest() != facts.get("data_hash"):
        raise InputError(f"{values.source}: these are not the data of the draws; give the original data as `data`")


@contextmanager
def posterior_of_draws(
    draws: InferenceData,
    *,
    model: Posterior | FunctionFactors | None,
    data: DataLike | None,
    executor: str | None = None,
    log: Progress,
) -> Iterator[Posterior]:
    """Yield the posterior of draws, cut into blocks; compiled programs are reused.

    If the run had its data in partitions, they are opened as partitions again. The cut is proved near some draws.

    Parameters
    ----------
    model : Posterior or FunctionFactors, optional
        The posterior sampled, if available; needed for a posterior of functions, which no file records.
    data : path, mapping, table or DataSources, optional
        The data, if the files that the draws record have been moved.
    executor : str, optional
        Who opens data in partitions.

    Raises
    ------
    InputError
        If the program is not recorded, the data are missing, either differs from that of the draws, or the likelihood
        is not a sum over observations.
    """
    facts, about = inference_data.attrs(draws), near_draws(draws)
    asked, settings = facts.get("asked", {}), facts.get("settings", {})
    code = str(facts.get("model_code", ""))
    if model is None and not code:
        raise InputError("the draws do not record their program: give the sampled model as `model` from Python")
    given = model or Source(str(facts.get("model", "model")), code, syntax.parse(code))
    seed, observations = int(settings.get("seed") or 0), asked.get("observations")
    in_partitions = isinstance(given, Source) and settings.get("evaluator") == "partitions"
    executors.check(executor)
    if executor is not None and not in_partitions:
        raise InputError("these draws are not of data in partitions: leave out `executor`")
    with ExitStack() as stack:
        values: Data = data
        if isinstance(given, Source) and in_partitions:
            sources = DataSources.of(data) if data is not None else _recorded(facts)
            options: dict[str, Any] = {"seed": seed, "observations": observations, "near": about, "log": log}
            values = stack.enter_context(partitions.reopened(given, sources, executor=executor, **options))
            _check_digest(values, facts)
        elif isinstance(given, Source):
            log("Reading the data")
            values = data_of(facts, data, given.program.data.declarations)
        posterior, _ = make_posterior(
            given,
            values,
            block_size=lambda analysis, n, instances: coarse_size(VARIATES_BLOCK_SIZE, n),
            seed=seed,
            observations=observations,
            near=about,
            log=log,
        )
        if posterior.model_hash != facts.get("model_hash") or posterior.values.digest() != facts.get("data_hash"):
            raise InputError(f"{posterior.name}: these are not the program and data of the draws")
        yield posterior
