"""Data in partitions, opened where they are held: in threads of this process, or by the workers of a dask cluster."""

from __future__ import annotations

import importlib
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from stansub import memory
from stansub.errors import InputError, RunError, one_line
from stansub.progress import Progress
from stansub.run import executors
from stansub.run.config import SampleConfig
from stansub.run.posteriors import Data, Model
from stansub.stan import source
from stansub.stan.compilation import CompiledModel
from stansub.stan.data import Data as Values
from stansub.stan.formats import opened as opened_table
from stansub.stan.partitions import Describe, PartitionRecipe, digest_of_rows, pooled, stamp_of
from stansub.stan.posterior import Posterior
from stansub.stan.source import Source
from stansub.stan.sources import DataSources
from stansub.stan.tables import Table
from stansub.target.gradients import THREADS
from stansub.target.remainders import NoPredictorsError
from stansub.target.requests import Request
from stansub.tuning.proposal_names import named

# Rows from which files of a pattern stay in partitions, and the share of free memory for partitions that stay open.
_LEAST, _SHARE = 1_000_000, 4
# Seconds after which workers that are still asked are counted.
_PATIENCE = 30.0

A = TypeVar("A")
# A file, or a function that returns a table.
Part: TypeAlias = Path | Callable[[], Any]


class _Open:
    """Partitions that this process has open, up to a memory limit."""

    def __init__(self) -> None:
        self._kept: dict[PartitionRecipe, tuple[Posterior, str]] = {}
        self._opening: dict[PartitionRecipe, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, recipe: PartitionRecipe, digest: str) -> Posterior:
        """Return a partition, opened unless it is open.

        Raises
        ------
        InputError
            If its rows are not those of the digest, if one is given.
        """
        with self._lock:
            opening = self._opening.setdefault(recipe, threading.Lock())
        with opening:
            if (known := self._kept.get(recipe)) is None:
                posterior = recipe.open()
                known = posterior, digest_of_rows(posterior)
                with self._lock:
                    self._make_room(posterior.values.nbytes)
                    self._kept[recipe] = known
        posterior, found = known
        if digest and found != digest:
            raise InputError(f"{recipe.name}: this worker has other rows than the one that opened them first")
        return posterior

    def _make_room(self, n_bytes: int) -> None:
        room = memory.room().size // _SHARE
        while self._kept and sum(one.values.nbytes for one, _ in self._kept.values()) + n_bytes > room:
            del self._kept[next(iter(self._kept))]

    def close(self, recipes: Sequence[PartitionRecipe]) -> None:
        """Forget partitions."""
        with self._lock:
            for recipe in recipes:
                self._kept.pop(recipe, None)
                self._opening.pop(recipe, None)


_open = _Open()


def answer(recipe: PartitionRecipe, digest: str, request: Request[Posterior, A], threads: int = 1) -> A:
    """Return the answer of a partition, which is opened in this process unless it is open."""
    return request.answer(_open.get(recipe, digest), threads=threads)


@dataclass
class Partitions:
    """Partitions that threads of this process hold.

    Attributes
    ----------
    recipes : tuple of PartitionRecipe
    digests : tuple of str
        Expected digests of the rows; empty until known.
    """

    recipes: tuple[PartitionRecipe, ...]
    digests: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.recipes)

    def answers(self, requests: Mapping[int, Request[Posterior, A]]) -> list[A]:
        """Return answers to requests, given by the number of the partition."""
        threads = max(1, THREADS // max(1, len(requests)))
        with ThreadPoolExecutor(max_workers=THREADS) as pool:
            return list(pool.map(lambda one: answer(*self._of(one[0]), one[1], threads), requests.items()))

    def _of(self, number: int) -> tuple[PartitionRecipe, str]:
        return self.recipes[number], self.digests[number] if self.digests else ""

    def close(self) -> None:
        """Forget what is open."""
        _open.close(self.recipes)


@dataclass
class DaskPartitions(Partitions):
    """Partitions that the workers of a dask cluster hold.

    A partition stays with the worker that opened it. If that worker dies, dask sends its requests to others, which open
    the partition again.
    """

    client: Any = None
    _homes: dict[int, str] = field(default_factory=dict)

    def answers(self, requests: Mapping[int, Request[Posterior, A]]) -> list[A]:
        """Return answers to requests, given by the number of the partition."""
        self._settle(requests)
        found = [
            self.client.submit(
                answer,
                *self._of(number),
                request,
                pure=False,
                workers=[self._homes[number]],
                allow_other_workers=True,
            )
            for number, request in requests.items()
        ]
        try:
            self._wait(found)
            return list(self.client.gather(found))
        except (InputError, RunError):
            raise
        except Exception as error:
            raise RunError(f"the dask workers did not answer: {one_line(error)}") from error
        finally:
            self.client.cancel(found)

    def _wait(self, found: Sequence[Any]) -> None:
        """Wait for answers as long as there are workers that may give them.

        Raises
        ------
        RunError
            If all workers are gone.
        """
        distributed: Any = importlib.import_module("distributed")
        while True:
            try:
                distributed.wait(found, timeout=_PATIENCE)
                return
            except TimeoutError:
                if not self.client.nthreads():
                    raise RunError("all dask workers are gone: start workers, and run again") from None

    def _settle(self, numbers: Mapping[int, Any]) -> None:
        """Give every partition a home among the living workers, the one with the fewest partitions."""
        taken = dict.fromkeys(sorted(self.client.nthreads()), 0)
        if not taken:
            raise RunError("the dask scheduler has no workers")
        for home in self._homes.values():
            if home in taken:
                taken[home] += 1
        for number in numbers:
            if self._homes.get(number) not in taken:
                home = min(taken, key=lambda worker: taken[worker])
                self._homes[number] = home
                taken[home] += 1

    def close(self) -> None:
        """Forget what is open, here and on the workers."""
        with suppress(Exception):  # workers that are gone have nothing open
            self.client.run(_forget, self.recipes, on_error="ignore")


def _forget(recipes: Sequence[PartitionRecipe]) -> None:
    _open.close(recipes)


@contextmanager
def opened(model: Model | Source, data: Data, config: SampleConfig, log: Progress) -> Iterator[Data]:
    """Yield data in partitions, if these can stay where they are; otherwise the data as given.

    They can if a pattern of Parquet files, or `DataPartitions`, have many rows, if decisions may use single
    observations, and if the program's likelihood has linear predictors.

    Raises
    ------
    InputError
        If partitions do not fit together or the program.
    """
    found = _of(model, data, config)
    if found is None:
        yield data
        return
    sources, program, parts = found
    with ExitStack() as stack:
        holders: Partitions = Partitions(_recipes(sources, program, parts, config))
        if isinstance(config.executor, str) and config.executor.partition(":")[0] == "dask":
            address = config.executor.partition(":")[2]
            client = stack.enter_context(executors.dask_client(address, config.parallel_chains or THREADS))
            holders = DaskPartitions(holders.recipes, client=client)
        stack.callback(holders.close)
        log(f"Opening {len(holders):,} partitions: {sources.name}")
        try:
            first = holders.answers({0: Describe()})
        except NoPredictorsError as error:
            log(f"Data in one process: {error}")
            yield data
            return
        rest = holders.answers(dict.fromkeys(range(1, len(holders)), Describe()))
        described = (*first, *rest)
        holders.digests = tuple(one.digest for one in described)
        names = [recipe.name for recipe in holders.recipes]
        found_data = pooled(program.program.data.declarations, sources.name, described, names, holders)
        yield replace(found_data, recorded=sources.recorded)


def _of(model: Model | Source, data: Data, config: SampleConfig) -> tuple[DataSources, Source, Sequence[Part]] | None:
    """Return sources, program and partitions, if they may stay in partitions as far as options and text show."""
    if data is None or isinstance(data, Values) or not isinstance(model, str | Path | Source | CompiledModel):
        return None
    sources = DataSources.of(data)
    partitions = sources.partitions
    if partitions is None or len(partitions.parts) < 2 or not _has_single(config):
        return None
    parts = [Path(os.path.abspath(one)) if isinstance(one, str | Path) else one for one in partitions.parts]
    tables = [opened_table(one, str(one)) for one in parts if isinstance(one, Path)]
    if tables and sum(table.n_rows for table in tables if isinstance(table, Table)) < _LEAST:
        return None
    if isinstance(model, CompiledModel):
        program = Source(model.name, model.program.code, model.program)
    else:
        program = model if isinstance(model, Source) else source.read(model)
    analysis = program.analysis
    if not analysis.has_family or analysis.form.kind != "sum" or analysis.effects(config.observations or ""):
        return None
    return sources, program, parts


def _has_single(config: SampleConfig) -> bool:
    """Return whether the options allow decisions from single observations."""
    free = config.exact_free and config.block_size is None and config.evaluator != "rewritten"
    return free and config.smooth and not config.surrogate and not named(str(config.proposal)).batches


def _recipes(
    sources: DataSources, program: Source, parts: Sequence[Part], config: SampleConfig
) -> tuple[PartitionRecipe, ...]:
    run, code = uuid.uuid4().hex, program.program.code
    others = tuple(dict(one) for one in sources.parts if isinstance(one, Mapping))
    given = others, sources.columns, config.seed or 0, config.observations
    return tuple(
        PartitionRecipe(f"{run}-{number}", program.name, code, part, *given, stamp_of(part))
        for number, part in enumerate(parts)
    )
