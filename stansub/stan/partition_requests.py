"""Requests to the partitions of data: what a run must know of them, and sums, rows and values of their observations."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stansub.stan.data.columns import Origins
from stansub.stan.posterior import Posterior
from stansub.stan.shares import writes_rows
from stansub.stan.syntax import Block
from stansub.target.gradients import ParallelEvaluator, Team
from stansub.target.partitioned import Predictors
from stansub.target.remainders import NoPredictorsError
from stansub.types import FloatArray


class Description(NamedTuple):
    """What a run must know of a partition."""

    n_observations: int
    digest: str
    """Digest of its rows."""
    fixed: dict[str, Any]
    """Values that are not read from its columns, except the number of observations."""
    origins: Origins
    shape: str
    """What the predictors of all partitions must share."""
    error: float
    """Of the proof."""
    constant: float | None
    """Of the predictors."""
    sizes: tuple[str, ...]


@dataclass(frozen=True)
class Describe:
    """Request for the description of a partition."""

    saved: frozenset[str] | None = frozenset()
    """Variables with a value per row that the run writes; None for all of them."""

    def answer(self, holder: Posterior, *, threads: int = 1) -> Description:
        """Return the description.

        Raises `NoPredictorsError` if the likelihood has no linear predictors of a family that decisions know.
        """
        values, predictors = holder.values, holder.predictors()
        if predictors.family.floor:
            raise NoPredictorsError("the log likelihood has kinks, which data in partitions do not support")
        if not holder.sizes or self._writes_rows(holder):
            raise NoPredictorsError("what it writes depends on all rows")
        rows = values.axes(holder.sizes)
        fixed = {key: value for key, value in values.values.items() if key not in rows and key not in holder.sizes}
        return Description(
            holder.blocks.n_observations,
            holder.digest_of_rows(),
            fixed,
            values.origins,
            shape_of(predictors),
            holder.proof.error,
            predictors.constant,
            holder.sizes,
        )

    def _writes_rows(self, holder: Posterior) -> bool:
        """Return whether what the run writes may depend on the rows."""
        program, counts = holder.program, set(holder.counts)

        def is_written(block: Block) -> bool:
            tall = all(set(one.sizes) & counts for one in block.declarations)
            return not tall or self.saved is None or any(one.name in self.saved for one in block.declarations)

        written = [one for one in (program.transformed_parameters, program.generated_quantities) if is_written(one)]
        return writes_rows((program.parameters, *written), program, holder.values, holder.sizes[0])


def shape_of(predictors: Predictors) -> str:
    family = predictors.family
    shared = [(z[:] + 0.0).tolist() if len(z) == 1 else z.shape[1] for z in predictors.design]
    return f"{type(family).__name__} {family.density} {family.bounded} {family.highest} {shared}"


@dataclass(frozen=True)
class Sample:
    """Request for some rows of a partition, by variable."""

    rows: NDArray[np.int64]

    def answer(self, holder: Posterior, *, threads: int = 1) -> dict[str, NDArray[Any]]:
        """Return the variables along the rows."""
        values = holder.values
        axes = values.axes(holder.sizes)
        taken = values.take(axes, self.rows).values
        return {name: taken[name] for name in axes}


@dataclass(frozen=True)
class LogDensities:
    """Request for log densities of a partition's posterior at some points, with messages for errors."""

    points: tuple[FloatArray, ...]

    def answer(self, holder: Posterior, *, threads: int = 1) -> list[tuple[float, str]]:
        """Return the log densities."""
        return holder.full.log_densities(self.points)


@dataclass(frozen=True)
class BlockSum:
    """Request for the sum of the log likelihoods of a partition's blocks, by the program."""

    theta: FloatArray

    def answer(self, holder: Posterior, *, threads: int = 1) -> float:
        """Return the sum."""
        with Team(holder.population.in_passing(), threads=threads) as team:
            return float(ParallelEvaluator(team).block_log_lik(self.theta).sum())


@dataclass(frozen=True)
class Single:
    """Request for log likelihoods of single rows of a partition at some points, shape (points, rows)."""

    points: FloatArray
    rows: NDArray[np.int64]

    def answer(self, holder: Posterior, *, threads: int = 1) -> FloatArray:
        """Return the log likelihoods."""
        return holder.each(self.points, self.rows, threads=threads)


@dataclass(frozen=True)
class SingleSums:
    """Request for sums over a partition's rows of their log likelihoods, the squares and the absolute values."""

    theta: FloatArray

    def answer(self, holder: Posterior, *, threads: int = 1) -> FloatArray:
        """Return the three sums."""
        parts = holder.in_parts(self.theta, threads=threads)
        return np.asarray(np.sum([[part.sum(), part @ part, np.abs(part).sum()] for part in parts], axis=0))


@dataclass(frozen=True)
class ColumnDigests:
    """Request for digests of the variables along the rows of a partition, whatever their types."""

    def answer(self, holder: Posterior, *, threads: int = 1) -> dict[str, str]:
        """Return the digests by variable."""
        return column_digests(holder)


def column_digests(posterior: Posterior) -> dict[str, str]:
    """Return digests, by name, of the data variables with a value per observation."""
    values, counts = posterior.values, set(posterior.counts)
    tall = [one.name for one in values.declarations if set(one.sizes) & counts and one.base != "tuple"]
    arrays = {name: np.ascontiguousarray(values.values[name], np.float64) for name in tall}
    return {name: hashlib.sha256(array.data).hexdigest() for name, array in arrays.items()}
