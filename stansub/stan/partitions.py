"""Posteriors of data in partitions, none of which this process needs to hold.

Every partition, such as one of many Parquet files, is a posterior of its own rows, opened where it is held: read,
cut into blocks, proved, and with linear predictors. Log densities, derivatives, constants and candidates of all
observations are answers of the partitions to requests, added up in order. This process has a random sample of the rows,
the pilot. It gives names and values of parameters, the global part, and starts of the search for modes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from stansub import streams
from stansub._loop import FunctionEvaluator
from stansub.errors import InputError, RunError
from stansub.progress import Progress
from stansub.stan.compilation import CompiledModel, compile_model
from stansub.stan.data.data import Data, Rows, digest_of, load
from stansub.stan.data.sources import DataPartitions, DataSources
from stansub.stan.partition_requests import BlockSum, Description, LogDensities, Sample, Single, shape_of
from stansub.stan.posterior import Posterior
from stansub.stan.proof import Near, Proof, Whole
from stansub.stan.proved import Proved
from stansub.stan.shares import SumOfParts, joined
from stansub.stan.source import Source
from stansub.stan.syntax import Declaration, parse
from stansub.stan.whole_data import OneBlock
from stansub.target.blocks import VARIATES_BLOCK_SIZE, coarse_size
from stansub.target.partitioned import PartitionedPredictors
from stansub.target.remainders import LinearPredictors
from stansub.target.requests import Holders, Request, ask_all
from stansub.types import FloatArray

# Rows of the pilot; and the size of a partition's blocks, which only its proof uses, if it has this many of them.
_PILOT, _BLOCK, _BLOCKS = 1 << 17, 1 << 12, 1 << 6
_NONE = np.empty(0, np.int32)

A = TypeVar("A")


@dataclass(frozen=True)
class PartitionRecipe:
    """A partition that is not opened; it can be pickled."""

    key: str
    """Identifies the partition among those of all runs."""
    model: str = field(compare=False)
    code: str = field(compare=False, repr=False)
    part: Path | Callable[[], Any] = field(compare=False)
    """The file, or a function without arguments that returns a table."""
    others: tuple[Mapping[str, Any], ...] = field(compare=False, repr=False)
    """Values that are not in the partitions, as in `DataSources`."""
    columns: Mapping[str, Sequence[str]] = field(compare=False)
    """Columns by variable."""
    seed: int = field(compare=False)
    observations: str | None = field(compare=False)
    """Name of the data variable that counts the observations, if given."""
    stamp: str = field(compare=False, default="")
    """Digest of the end of the file, where Parquet describes its content; empty for functions."""
    near: Near | None = field(compare=False, default=None, repr=False)
    """Where the log density should be finite, if known."""

    @property
    def name(self) -> str:
        """Return the name for messages."""
        return str(self.part) if isinstance(self.part, Path) else "a partition made by a function"

    def open(self, known: Proved | None = None) -> tuple[Posterior, Proved | None]:
        """Return the posterior of the partition's rows, and what stays known of it without them.

        If that is ``known`` from before, the rows are compared by their digest, and not proved again. Raises
        `InputError` if the file is not the one that the run was started with, or the rows do not fit the program.
        """
        if self.stamp and stamp_of(self.part) != self.stamp:
            raise InputError(f"{self.name}: this worker has another file than the process that started the run")
        raw = load(DataSources((DataPartitions((self.part,)), *self.others), self.columns))
        compiled = _compiled(self.model, self.code)
        values = raw.checked(compiled.program.data.declarations)
        if known is not None:
            known.check(values, self.name)
            return compiled.with_proof(values, known), known
        posterior = compiled.with_data(
            values,
            block_size=lambda n, instances: max(coarse_size(VARIATES_BLOCK_SIZE, n), min(_BLOCK, n // _BLOCKS)),
            seed=self.seed,
            observations=self.observations,
            near=self.near,
        )
        known = Proved.of(posterior)
        return (posterior if known is None else compiled.with_proof(values, known)), known


def stamp_of(part: Path | Callable[[], Any]) -> str:
    """Return a digest of a file's size and last bytes; empty for a function."""
    if not isinstance(part, Path):
        return ""
    try:
        with part.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _STAMPED))
            return f"{size} {hashlib.sha256(file.read()).hexdigest()[:16]}"
    except OSError as error:
        raise InputError(f"{part}: cannot read the file: {error.strerror}") from error


_STAMPED = 1 << 16


@lru_cache(maxsize=4)
def _compiled(model: str, code: str) -> CompiledModel:
    return compile_model(Source(model, code, parse(code)))


@dataclass(frozen=True)
class PartitionedData(Data):
    """Data in partitions; ``values`` has those that are not along the rows."""

    holders: Holders[Posterior] = field(kw_only=True, repr=False)
    described: tuple[Description, ...] = field(kw_only=True, repr=False)
    recorded: str = field(kw_only=True, default="")
    """The sources as text (see `DataSources.recorded`)."""

    def report_to(self, progress: Progress) -> None:
        """Let waits for partitions show in ``progress``, whose checks end them."""
        self.holders.progress = progress

    def digest(self) -> str:
        """Return the digest that all rows in one table have if they are read by the same pattern."""
        return digest_of(self.values, [one.digest for one in self.described])

    def each(self, points: FloatArray, rows: NDArray[np.int64]) -> FloatArray:
        """Return log likelihoods of single rows at some points, shape (points, rows)."""
        values = np.empty((len(points), len(rows)))
        found = self._of_rows(rows, lambda own: Single(points, own))
        for chosen, answer in found:
            values[:, chosen] = answer
        return values

    def rows(self, axes: Mapping[str, int], sizes: Iterable[str], rows: Rows) -> Data:
        """Return the given rows alone, fetched from the partitions."""
        places = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else np.asarray(rows, np.int64)
        order, parts = zip(*self._of_rows(places, Sample), strict=True)
        back = np.argsort(np.concatenate(order), kind="stable")
        taken = {
            name: np.take(np.concatenate([part[name] for part in parts], axis=axis), back, axis=axis)
            for name, axis in axes.items()
        }
        values = {**self.values, **taken, **dict.fromkeys(sizes, len(places))}
        given = {one.name: values[one.name] for one in self.declarations if one.name in values}
        return Data(given, self.declarations, self.source, self.origins)

    def _of_rows(
        self, rows: NDArray[np.int64], request: Callable[[NDArray[np.int64]], Request[Posterior, A]]
    ) -> list[tuple[NDArray[np.int64], A]]:
        """Return places among ``rows``, and the answer of the partition that has these, for each that has some."""
        ends = np.cumsum([one.n_observations for one in self.described])
        number = np.searchsorted(ends, rows, side="right")
        starts = ends - [one.n_observations for one in self.described]
        places = {int(one): np.flatnonzero(number == one) for one in np.unique(number)}
        asked = {one: request(rows[chosen] - starts[one]) for one, chosen in places.items()}
        return list(zip(places.values(), self.holders.answers(asked), strict=True))

    def posterior(
        self, compiled: CompiledModel, *, seed: int, observations: str | None, near: Near | None = None, log: Progress
    ) -> Posterior:
        """Return the posterior of all rows; InputError if the pilot does not fit the program."""
        pilot = self._pilot(compiled, seed, observations, near, log)
        counts = tuple(one.n_observations for one in self.described)
        found = pilot.predictors(log)
        if not isinstance(found, LinearPredictors) or shape_of(found) != self.described[0].shape:
            raise InputError(f"{self.source}: the likelihood of a sample of the rows reads differently from theirs")
        full = PartitionedDensity(pilot, self.holders)
        constants = [one.constant for one in self.described if one.constant is not None]
        constant = sum(constants) if len(constants) == len(self.described) else None
        return replace(
            pilot,
            full=full,
            population=PartitionedBlocks(sum(counts), pilot, self.holders),
            order=None,
            proof=Proof(len(pilot.points), max(one.error for one in self.described)),
            values=self,
            any_block_size=False,
            known_predictors=PartitionedPredictors(self.holders, counts, found.part(slice(0, 0)), constant),
            pilot=pilot,
        )

    def _pilot(
        self, compiled: CompiledModel, seed: int, observations: str | None, near: Near | None, log: Progress
    ) -> Posterior:
        """Return the posterior of a random sample of the rows, each partition's in proportion to its rows."""
        n, sizes = sum(one.n_observations for one in self.described), self.described[0].sizes
        rng = streams.generator(seed, streams.Run.PARTITIONS)
        chosen = np.sort(rng.choice(n, min(_PILOT, n), replace=False, shuffle=False))
        log(f"Taking a sample of {len(chosen):,} of {n:,} rows")
        return compiled.with_data(
            self.rows(self.axes(sizes), sizes, chosen),
            block_size=lambda n, instances: coarse_size(VARIATES_BLOCK_SIZE, n),
            seed=seed,
            observations=observations,
            near=near,
            progress=log,
        )


def pooled(
    declarations: tuple[Declaration, ...],
    source: str,
    described: Sequence[Description],
    names: Sequence[str],
    holders: Holders[Posterior],
) -> PartitionedData:
    """Return data in partitions from the descriptions of these, with the names of the partitions and of all.

    Raises `InputError` if partitions have different values of what all observations share.
    """
    one, *others = described
    for name, other in zip(names[1:], others, strict=True):
        for key, value in one.fixed.items():
            if not np.array_equal(value, other.fixed[key]):
                raise InputError(
                    f"{name}: {key} is {other.fixed[key]}, but {value} in {names[0]}; give it as {key}=VALUE"
                )
        if other.origins.levels != one.origins.levels:
            raise InputError(f"{name}: a column of text has other levels than in {names[0]}; give numbers")
        if other.shape != one.shape:
            raise InputError(f"{name}: the likelihood of these rows reads differently from that in {names[0]}")
    values = {**one.fixed, **dict.fromkeys(one.sizes, sum(part.n_observations for part in described))}
    return PartitionedData(
        {part.name: values[part.name] for part in declarations if part.name in values},
        declarations,
        source,
        one.origins,
        holders=holders,
        described=tuple(described),
    )


@dataclass(frozen=True)
class PartitionedDensity(SumOfParts):
    """The whole log density: those of partitions, less the repeated global parts."""

    pilot: Posterior
    holders: Holders[Posterior]

    @property
    def model(self) -> Whole:
        """Return the program with the pilot's rows."""
        return self.pilot.full

    def _evaluated(self, points: Sequence[FloatArray]) -> list[tuple[float, str]]:
        parts = ask_all(self.holders, LogDensities(tuple(points)))
        own = self.pilot.population.evaluator()
        return [joined([part[k] for part in parts], own.global_log_density(theta)) for k, theta in enumerate(points)]


@dataclass(frozen=True)
class PartitionedBlocks(OneBlock):
    """All observations as one block; the global part is the pilot's."""

    kind: ClassVar[Literal["partitions"]] = "partitions"

    pilot: Posterior
    holders: Holders[Posterior]

    @property
    def dim(self) -> int:
        """Return the number of unconstrained parameters."""
        return self.pilot.dim

    def evaluator(self) -> FunctionEvaluator:
        """Return a new evaluator of the block."""
        own = self.pilot.population.evaluator()

        def values(theta: FloatArray, which: NDArray[np.int32]) -> FloatArray:
            return np.full(len(which), sum(ask_all(self.holders, BlockSum(theta))) if len(which) else 0.0)

        def gradient(theta: FloatArray, which: NDArray[np.int32]) -> tuple[float, FloatArray]:
            if len(which):
                raise RunError("gradients of data in partitions are those of linear predictors")
            return own.subset_log_density_gradient(theta, _NONE)

        return FunctionEvaluator(self.dim, 1, own.global_log_density, values, gradient)
