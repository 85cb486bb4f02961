"""Construction of a posterior from a program and data: read, compile, and cut into blocks or leave whole."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

from stansub import clock
from stansub.progress import Progress, as_progress
from stansub.run.functions import posterior_of
from stansub.stan import source
from stansub.stan.analysis import Analysis
from stansub.stan.compilation import CompiledModel, compile_model, compile_uncut
from stansub.stan.data import data as data_module
from stansub.stan.data.sources import DataLike, DataSources
from stansub.stan.effects import n_parameters
from stansub.stan.instances import Instances
from stansub.stan.partitions import PartitionedData
from stansub.stan.posterior import Posterior
from stansub.stan.proof import Near
from stansub.stan.source import Source
from stansub.stan.syntax import Program
from stansub.target.functions import FunctionFactors

Model = str | Path | CompiledModel | Posterior | FunctionFactors
Data: TypeAlias = DataLike | data_module.Data | None


class ModelInput(NamedTuple):
    """A program and its data, read."""

    model: Source | CompiledModel | Posterior | FunctionFactors
    values: data_module.Data | None
    """None if the model includes them."""
    near: Near | None = None
    """Where the log density should be finite, if known."""

    @property
    def analysis(self) -> Analysis:
        """Return what the text of the program shows."""
        return Analysis.of(Program("")) if isinstance(self.model, FunctionFactors) else self.model.analysis

    @property
    def n_parameters(self) -> int:
        """Return the approximate number of unconstrained parameters."""
        if isinstance(self.model, Posterior | FunctionFactors):
            return self.model.dim
        assert self.values is not None
        return n_parameters(self.model.program, self.values)

    def unchanged(self) -> AbstractContextManager[None]:
        """Return a context in which data may be read from files; at its end the files are checked for changes."""
        return nullcontext() if self.values is None else self.values.unchanged()


def read(model: Model | Source, data: Data, log: Callable[[str], None]) -> ModelInput:
    """Return a program and the data that it declares.

    Raises
    ------
    InputError
        If they cannot be read, or do not fit.
    """
    if isinstance(model, Posterior | FunctionFactors):
        return ModelInput(model, None)
    data = {} if data is None else data
    if isinstance(data, data_module.Data):
        return ModelInput(source.read(model) if isinstance(model, str | Path) else model, data)
    if isinstance(model, CompiledModel):
        log("Reading the data")
        return ModelInput(model, model.read_data(data))
    log("Reading program and data")
    # Errors in the data are raised before compiling, which takes a minute.
    with ThreadPoolExecutor(max_workers=1) as pool:
        raw = pool.submit(data_module.load, data)
        program = model if isinstance(model, Source) else source.read(model)
        return ModelInput(program, raw.result().checked(program.program.data.declarations))


def recorded_of(data: Data) -> str:
    """Return the source of the data in the form that `DataSources.restored` reads; empty for values."""
    if isinstance(data, PartitionedData):
        return data.recorded
    return "" if data is None or isinstance(data, data_module.Data) else DataSources.of(data).recorded


def make_uncut(given: ModelInput, *, seed: int, observations: str | None, log: Progress) -> tuple[Posterior, float]:
    """Return the posterior for surrogate transitions, and the time when its program was compiled.

    Raises
    ------
    InputError
        If the program or the data cannot be used.
    NoPredictorsError
        If the text shows no surrogate.
    """
    model, values, near = given
    if isinstance(model, FunctionFactors):
        return posterior_of(model), clock.now()
    if isinstance(model, Posterior):
        return model, clock.now()
    assert values is not None
    return compile_uncut(model, values, seed=seed, observations=observations, near=near, progress=log)


def make_posterior(
    model: Model | Source,
    data: Data,
    *,
    block_size: Callable[[Analysis, int, bool], int] | int,
    seed: int,
    observations: str | None,
    near: Near | None = None,
    log: Callable[[str], None],
) -> tuple[Posterior, float]:
    """Return the posterior, and the time when its program was compiled (see `stansub.clock.now`).

    Parameters
    ----------
    block_size : int or callable
        Observations per block, or a function that chooses it from the program, the number of observations and whether
        each block costs an instance.
    near : callable, optional
        Where the log density should be finite. See `sample` for the other arguments.

    Raises
    ------
    InputError
        If the program or the data cannot be used.
    """
    if isinstance(model, FunctionFactors):
        if model.any_block_size or not callable(block_size):
            n = model.blocks.n_observations
            model = model.recut(block_size(Analysis.of(Program("")), n, False) if callable(block_size) else block_size)
        return posterior_of(model), clock.now()
    if isinstance(model, Posterior):
        if model.any_block_size and callable(block_size):
            instances = isinstance(model.population, Instances)
            model = model.recut(block_size(model.analysis, model.blocks.n_observations, instances))
        return model, clock.now()
    given = read(model, data, log)
    values, compiled = given.values, given.model
    assert values is not None
    assert not isinstance(compiled, Posterior | FunctionFactors)
    if isinstance(compiled, Source):
        compiled = compile_model(compiled, progress=log)
    compiled_at = clock.now()
    if isinstance(values, PartitionedData):
        found = values.posterior(compiled, seed=seed, observations=observations, near=near, log=as_progress(log))
        return found, compiled_at
    found = compiled.with_data(
        values,
        block_size=partial(block_size, compiled.analysis) if callable(block_size) else block_size,
        seed=seed,
        observations=observations,
        near=near,
        progress=log,
    )
    return found, compiled_at
