"""Data in partitions, opened where they are held: in threads of this process, or by the workers of a dask cluster."""

from __future__ import annotations

import importlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor
from concurrent.futures import wait as wait_for_threads
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from stansub import clock, memory
from stansub.errors import InputError, RunError, one_line
from stansub.progress import Progress
from stansub.run import executors
from stansub.run.config import SampleConfig
from stansub.run.constrain import SavedQuantities
from stansub.run.inits import near_inits
from stansub.run.posteriors import Data, Model
from stansub.stan import source
from stansub.stan.compilation import CompiledModel
from stansub.stan.data.data import Data as Values
from stansub.stan.data.formats import opened as opened_table
from stansub.stan.data.sources import DataSources
from stansub.stan.data.tables import Table
from stansub.stan.partition_requests import Describe
from stansub.stan.partitions import PartitionedData, PartitionRecipe, pooled, stamp_of
from stansub.stan.posterior import Posterior
from stansub.stan.proof import Near, NearPoints
from stansub.stan.proved import Proved
from stansub.stan.source import Source
from stansub.target.remainders import NoPredictorsError
from stansub.target.requests import Request
from stansub.target.threads import THREADS
from stansub.tuning.proposal_names import named
from stansub.types import FloatArray

# Rows from which files of a pattern stay in partitions, and the share of memory for partitions that stay open.
_LEAST, _SHARE = 1_000_000, 3
# Seconds between two checks while answers are waited for, and two counts of the workers that may give them.
_POLL, _PATIENCE = 0.2, 30.0
# Seconds between looks at the answers of dask workers: the first come in a millisecond, those of a pass much later.
_PAUSES = tuple(0.001 * 2**k for k in range(8))

A = TypeVar("A")
# A file, or a function that returns a table.
Part: TypeAlias = Path | Callable[[], Any]


class _Open:
    """Partitions that this process has opened, of which as many stay open as memory holds.

    Passes ask for one partition after the other. So if there is no room, the latest is closed: closing the oldest would
    close each partition before the next pass asks for it.
    """

    def __init__(self) -> None:
        self._kept: dict[PartitionRecipe, Posterior] = {}
        self._proved: dict[PartitionRecipe, Proved] = {}
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
            if (posterior := self._kept.get(recipe)) is None:
                posterior, proved = recipe.open(self._proved.get(recipe))
                with self._lock:
                    is_closed = self._opening.get(recipe) is not opening
                    if proved is not None and not is_closed:
                        self._proved[recipe] = proved
                    if not is_closed and self._has_room(posterior.values.nbytes):
                        self._kept[recipe] = posterior
        if digest and posterior.digest_of_rows() != digest:
            raise InputError(f"{recipe.name}: this worker has other rows than the one that opened them first")
        return posterior

    def _has_room(self, n_bytes: int) -> bool:
        """Return whether a partition of this size, which memory has already, may stay open."""
        kept = sum(one.values.nbytes for one in self._kept.values()) + n_bytes
        return kept <= (memory.room().size + kept) // _SHARE

    def close(self, recipes: Sequence[PartitionRecipe]) -> None:
        """Forget partitions."""
        with self._lock:
            for recipe in recipes:
                self._kept.pop(recipe, None)
                self._proved.pop(recipe, None)
                self._opening.pop(recipe, None)


_open = _Open()


def answer(recipe: PartitionRecipe, digest: str, request: Request[Posterior, A], threads: int = 1) -> A:
    """Return the answer of a partition, which is opened in this process unless it is open."""
    return request.answer(_open.get(recipe, digest), threads=threads)


def answer_on_worker(recipe: PartitionRecipe, digest: str, request: Request[Posterior, A]) -> A:
    """Return the answer of a partition in the process of a dask worker."""
    memory.keep_freed()
    return answer(recipe, digest, request)


@dataclass
class Partitions:
    """Partitions that threads of this process hold."""

    recipes: tuple[PartitionRecipe, ...]
    digests: tuple[str, ...] = ()
    """Expected digests of the rows; empty until known."""
    progress: Progress = field(default_factory=Progress)
    """Shows how many partitions have not answered; if its checks raise, waiting ends."""

    def __len__(self) -> int:
        return len(self.recipes)

    def answers(self, requests: Mapping[int, Request[Posterior, A]]) -> list[A]:
        """Return answers to requests, given by the number of the partition."""
        threads = max(1, THREADS // max(1, len(requests)))
        with ThreadPoolExecutor(max_workers=THREADS) as pool:
            work = [partial(answer, *self._of(number), one, threads) for number, one in requests.items()]
            found = [pool.submit(one) for one in work]
            try:
                self._wait(found)
                return [one.result() for one in found]
            finally:
                for one in found:
                    one.cancel()

    def _wait(self, found: Sequence[Any]) -> None:
        """Wait until all have answered or one failed, as long as the checks of `progress` allow."""
        try:
            while n_left := self._n_left(found):
                self.progress.wait_for(f"waiting for {n_left:,} of {len(found):,} partitions")
                self.progress.check()
        finally:
            self.progress.wait_for("")

    def _n_left(self, found: Sequence[Any]) -> int:
        """Wait a little; return how many answers are still waited for."""
        done, left = wait_for_threads(found, timeout=_POLL, return_when=FIRST_EXCEPTION)
        return 0 if any(one.exception() for one in done) else len(left)

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
    _counted: float = field(default_factory=lambda: clock.now())

    def answers(self, requests: Mapping[int, Request[Posterior, A]]) -> list[A]:
        """Return answers to requests, given by the number of the partition."""
        self._settle(requests)
        found = [
            self.client.submit(
                answer_on_worker,
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
        except (InputError, RunError):  # also those that end the waiting
            raise
        except Exception as error:
            raise RunError(f"the dask workers did not answer: {one_line(error)}") from error
        finally:
            for one in found:
                one.release()  # unlike cancelling, this waits for nobody

    def _n_left(self, found: Sequence[Any]) -> int:
        """Wait a little; return how many answers are still waited for.

        Raises
        ------
        RunError
            If all workers are gone.
        """
        # `distributed.wait` with a time limit leaves a task behind for each future, and passes poll for hours.
        for pause in _PAUSES:
            left = [one for one in found if not one.done()]
            if not left or any(one.status == "error" for one in found):
                return 0
            time.sleep(pause)
        if clock.now() - self._counted > _PATIENCE:
            self._counted = clock.now()
            if not self.client.nthreads():
                raise RunError("all dask workers are gone: start workers, and run again")
        return len(left)

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
        distributed: Any = importlib.import_module("distributed")
        with suppress(Exception):  # workers that are gone have nothing open
            for worker in self.client.nthreads():  # which may be at work: nobody waits for them
                distributed.fire_and_forget(self.client.submit(_forget, self.recipes, pure=False, workers=[worker]))


def _forget(recipes: Sequence[PartitionRecipe]) -> None:
    _open.close(recipes)


@contextmanager
def opened(
    model: Model | Source, data: Data, config: SampleConfig, log: Progress, *, points: Sequence[FloatArray] = ()
) -> Iterator[Data]:
    """Yield data in partitions, if these can stay where they are; otherwise the data as given.

    They can if a pattern of Parquet files, or `DataPartitions`, have many rows, if decisions may use single
    observations, and if the program's likelihood has linear predictors.

    Parameters
    ----------
    points : sequence of ndarray
        Unconstrained parameters near which the log density is finite; by default the inits.

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
    about = NearPoints(points) if points else near_inits(config.inits, config.chains)
    recipes = _recipes(sources, program, parts, seed=config.seed or 0, observations=config.observations, near=about)
    saved = None if config.observation_level else SavedQuantities.of(config).saved
    with ExitStack() as stack:
        try:
            holders = stack.enter_context(holding(recipes, config.executor, config.parallel_chains or THREADS, log))
            data = described(holders, sources, program, Describe(saved), log)
        except NoPredictorsError as error:
            stack.close()
            log(f"Data in one process: {error}")
        yield data


@contextmanager
def reopened(
    program: Source,
    sources: DataSources,
    *,
    seed: int,
    observations: str | None,
    near: Near | None = None,
    executor: str | None,
    log: Progress,
) -> Iterator[PartitionedData]:
    """Yield the data of an earlier run that had them in partitions.

    Raises
    ------
    InputError
        If the sources are not partitions any more, or do not fit the program.
    """
    if (parts := _parts(sources)) is None:
        raise InputError(f"{sources.name}: the run had these data in partitions; give them as partitions again")
    recipes = _recipes(sources, program, parts, seed=seed, observations=observations, near=near)
    with holding(recipes, executor, THREADS, log) as holders:
        yield described(holders, sources, program, Describe(), log)


@contextmanager
def holding(
    recipes: tuple[PartitionRecipe, ...], executor: object, parallel: int, log: Progress
) -> Iterator[Partitions]:
    """Yield partitions that dask workers hold, if the executor is dask, or threads of this process."""
    with ExitStack() as stack:
        holders = Partitions(recipes, progress=log)
        if isinstance(executor, str) and executor.partition(":")[0] == "dask":
            client = stack.enter_context(executors.dask_client(executor.partition(":")[2], parallel))
            holders = DaskPartitions(recipes, progress=log, client=client)
        stack.callback(holders.close)
        yield holders


def described(
    holders: Partitions, sources: DataSources, program: Source, request: Describe, log: Progress
) -> PartitionedData:
    """Return data in partitions after opening all of these, the first one alone.

    Raises
    ------
    InputError
        If partitions do not fit together or the program.
    NoPredictorsError
        If they cannot stay partitions.
    """
    log(f"Opening {len(holders):,} partitions: {sources.name}")
    first = holders.answers({0: request})
    found = (*first, *holders.answers(dict.fromkeys(range(1, len(holders)), request)))
    holders.digests = tuple(one.digest for one in found)
    names = [recipe.name for recipe in holders.recipes]
    return replace(
        pooled(program.program.data.declarations, sources.name, found, names, holders), recorded=sources.recorded
    )


def _parts(sources: DataSources) -> list[Part] | None:
    """Return the partitions of a table, if it has several."""
    partitions = sources.partitions
    if partitions is None or len(partitions.parts) < 2:
        return None
    return [Path(os.path.abspath(one)) if isinstance(one, str | Path) else one for one in partitions.parts]


def _of(model: Model | Source, data: Data, config: SampleConfig) -> tuple[DataSources, Source, Sequence[Part]] | None:
    """Return sources, program and partitions, if they may stay in partitions as far as options and text show."""
    if data is None or isinstance(data, Values) or not isinstance(model, str | Path | Source | CompiledModel):
        return None
    sources = DataSources.of(data)
    parts = _parts(sources)
    if parts is None or not _has_single(config):
        return None
    tables = [opened_table(one, str(one)) for one in parts if isinstance(one, Path)]
    if tables and sum(table.n_rows for table in tables if isinstance(table, Table)) < _LEAST:
        return None
    if isinstance(model, CompiledModel):
        program = Source(model.name, model.program.code, model.program)
    else:
        program = model if isinstance(model, Source) else source.read(model)
    analysis = program.analysis
    if not analysis.has_family or analysis.hints(config.observations or "").effects:
        return None
    return sources, program, parts


def _has_single(config: SampleConfig) -> bool:
    """Return whether the options allow decisions from single observations."""
    free = config.exact_free and config.block_size is None
    return free and config.smooth and not config.splits and not named(str(config.proposal)).batches


def _recipes(
    sources: DataSources,
    program: Source,
    parts: Sequence[Part],
    *,
    seed: int,
    observations: str | None,
    near: Near | None,
) -> tuple[PartitionRecipe, ...]:
    run, code = uuid.uuid4().hex, program.program.code
    others = tuple(dict(one) for one in sources.parts if isinstance(one, Mapping))
    given = others, sources.columns, seed, observations
    return tuple(
        PartitionRecipe(f"{run}-{number}", program.name, code, part, *given, stamp_of(part), near)
        for number, part in enumerate(parts)
    )
