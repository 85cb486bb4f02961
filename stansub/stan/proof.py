"""The numerical proof that a program's log density is a global part plus a sum over blocks of observations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from stansub._loop import Evaluator
from stansub.errors import InputError
from stansub.progress import Progress
from stansub.stan.whole_data import OneBlock
from stansub.target import factors
from stansub.target.gradients import Team
from stansub.target.threads import THREADS
from stansub.types import FloatArray, Places

# Relative rounding allowed between the full log density and global part plus blocks. Programs that are sums over
# observations agree to about 1e-14; programs that centre by the data's own means are off by 1e-5 and more.
TOLERANCE = 1e-10

_N_POINTS, _RADIUS = 3, 2.0
_MAX_TRIES = 100

# Observations per part when all blocks are evaluated.
_PART = 1 << 12

# Returns unconstrained parameters of a loaded program near which its log density should be finite. It can be pickled.
Near: TypeAlias = Callable[["Whole"], Sequence[FloatArray]]


class Writer(Protocol):
    """Writes values of many draws (see `stansub._loop.Writer`)."""

    def write(self, theta: FloatArray, out: FloatArray, stop: NDArray[np.int32]) -> tuple[int, bytes]: ...


class Whole(factors.Density, Protocol):
    """The whole log density, with methods to read and write values for a user."""

    def info(self) -> str: ...

    def rng(self, seed: int) -> Any: ...

    def log_density_or_message(self, theta: FloatArray) -> tuple[float, str]: ...

    def param_names(self, *, include_tp: bool = False, include_gq: bool = False) -> list[str]: ...

    def param_constrain(
        self,
        theta: FloatArray,
        *,
        include_tp: bool = False,
        include_gq: bool = False,
        rng: Any = None,
        out: FloatArray | None = None,
    ) -> FloatArray: ...

    def writer(
        self, *, include_tp: bool, include_gq: bool, rng: Any, n_written: int, columns: NDArray[np.int64]
    ) -> Writer: ...

    def param_unconstrain_json(self, values: bytes) -> FloatArray: ...


@dataclass(frozen=True)
class NearPoints:
    """Points near which the log density should be finite, unless the program has another number of parameters."""

    points: Sequence[FloatArray]

    def __call__(self, full: Whole) -> list[FloatArray]:
        return [one for one in self.points if len(one) == full.dim]


class Population(factors.Population, Protocol):
    """Blocks of a program's observations."""

    def single(self, places: NDArray[np.int64]) -> Evaluator:
        """Return an evaluator whose blocks are the observations at these places, one each."""

    @property
    def kind(self) -> Literal["instances", "uncut", "functions", "partitions"]: ...

    def recut(self, size: int) -> Population: ...


@dataclass(frozen=True)
class Proof:
    """Result of comparing the program's own log density with global part plus sum over blocks."""

    points: int
    """Number of parameter values compared."""
    error: float
    """Largest difference, relative to the sum of the absolute values of the terms."""
    is_empty: bool = False
    """Whether no block's value changed between parameter values, so that there is no likelihood."""
    terms: Sequence[FloatArray] = field(default=(), repr=False, compare=False)
    """Each of shape (n_blocks,): log likelihoods of the blocks at the points, if all could be compared."""

    @property
    def holds(self) -> bool:
        """Return whether the two agree to rounding."""
        return self.points > 0 and self.error <= TOLERANCE


def draw_points(
    rng: np.random.Generator,
    full: Whole,
    *,
    n_points: int = _N_POINTS,
    near: Sequence[FloatArray] = (),
    progress: Progress | None = None,
) -> list[FloatArray]:
    """Draw unconstrained parameters, uniform in a box, at which the program's log density is finite.

    The box is about the points ``near`` in turn, or about 0 if none is found there. It shrinks while no point is found;
    fewer points than requested, even none, may be returned.
    """
    points: list[FloatArray] = []
    centres = near or [np.zeros(full.dim)]
    for first in range(0, _MAX_TRIES, n_points):
        if progress is not None:
            progress.check()
        tries = range(first, min(first + n_points, _MAX_TRIES))
        drawn = [
            centres[attempt % len(centres)] + rng.uniform(-_RADIUS, _RADIUS, full.dim) * 0.5 ** (attempt // 20)
            for attempt in tries
        ]
        values = full.log_densities(drawn)
        points += [theta for theta, (value, _) in zip(drawn, values, strict=True) if np.isfinite(value)]
        if len(points) >= n_points:
            break
    if near and not points:
        return draw_points(rng, full, n_points=n_points, progress=progress)
    return points[:n_points]


def prove(
    population: Population, full: Whole, points: Sequence[FloatArray], *, progress: Progress | None = None
) -> Proof:
    """Compare the full log density with global part plus blocks at the points where both are finite.

    The proof fails if this is not so at half of the points or more. At a few, an observation may underflow alone that
    does not in a vector: vectorised functions round differently.
    """
    if population.dim != full.dim:
        return Proof(0, float("inf"))
    progress = progress or Progress()
    blocks, errors = population.blocks, []
    found: list[FloatArray] = []
    is_empty = True
    # A block is evaluated at all points before the next one, because its instance may not be kept.
    n_parts = max(1, len(blocks) if blocks.size > _PART else blocks.n_observations // _PART)
    parts = np.array_split(np.arange(len(blocks), dtype=np.int32), n_parts)
    with Team(population.in_passing(), threads=THREADS, progress=progress) as team:
        wholes = [value for value, _ in full.log_densities(points)]
        usable = [(theta, whole) for theta, whole in zip(points, wholes, strict=True) if np.isfinite(whole)]

        def values(own: factors.Evaluator, part: NDArray[np.int32]) -> FloatArray:
            return np.array([own.block_log_lik(theta, part) for theta, _ in usable])

        shares = team.map(lambda own, at: own.global_log_density(at[0]), usable)
        terms = np.concatenate(team.map(values, parts, watch=progress.advance), axis=1) if usable else ()
        for own, (_, whole), shared in zip(terms, usable, shares, strict=True):
            error = relative_error(whole, shared, own)
            if math.isinf(error):
                continue
            found.append(own)
            errors.append(error)
            same = np.abs(own - found[0]) <= TOLERANCE * max(1.0, abs(shared))
            is_empty = is_empty and bool(same.all())
    compared = found if len(found) == len(points) else ()
    too_few = usable and 2 * len(errors) <= len(usable)
    error = math.inf if too_few else max(errors, default=0.0)
    return Proof(len(errors), error, is_empty and len(errors) > 1, compared)


def relative_error(whole: float, shared: float, terms: FloatArray) -> float:
    """Return the difference of a log density from the sum of its parts, relative to the terms' absolute sum."""
    return error_of_sums(whole, shared, len(terms), float(terms.sum()), float(np.abs(terms).sum()))


def error_of_sums(whole: float, shared: float, n: int, total: float, absolute: float) -> float:
    """Return `relative_error` of ``n`` terms from their sum and absolute sum."""
    if not np.isfinite([shared, absolute]).all():
        return math.inf
    # Every block value is a difference in which the global part cancels, hence the term in sqrt(M).
    scale = abs(whole) + abs(shared) * math.sqrt(n) + absolute
    return abs(whole - (shared + total)) / max(scale, 1.0)


def arrange(
    build: Callable[[Places | None], Population],
    full: Whole,
    *,
    counts: Sequence[int],
    rng: np.random.Generator,
    points: Sequence[FloatArray],
    progress: Progress,
) -> tuple[Population, Places | None, Proof]:
    """Build the population on shuffled data or, if that changes the log density, on the data as given.

    ``build`` makes it from an order of the rows (None: as given). Sums are shuffled separately; ``counts`` are their
    numbers of rows. The proof fails if neither order gives the program's own log density.
    """

    def proved(population: Population) -> Proof:
        progress("Proving the cut into blocks", remedy="take a larger `block_size`")
        return prove(population, full, points, progress=progress)

    shuffled = (rng.permutation(np.arange(rows, dtype=np.int32)) for rows in counts)
    order = np.concatenate([first + own for first, own in zip(accumulate(counts, initial=0), shuffled, strict=False)])
    # Data that refer to each other's places (neighbour lists, offsets) may not even load when reordered.
    with suppress(InputError):
        population = build(order)
        if (proof := proved(population)).holds:
            return population, order, proof
    population = build(None)
    return population, None, proved(population)


def explain_undefined(population: Population, order: Places | None, theta: FloatArray) -> str:
    """Return in words where the log density is not finite: without observations, or in which row of the user's data."""
    evaluator = population.evaluator()
    if not np.isfinite(evaluator.global_log_density(theta)):
        return (
            "it is not finite even without observations: in a prior, or in an argument of the likelihood that reads no "
            "data"
        )
    undefined = np.flatnonzero(~np.isfinite(evaluator.block_log_lik(theta)))
    if not undefined.size or isinstance(population, OneBlock):
        return "the cause is not a single observation"
    block = int(undefined[0])
    places = np.arange(population.blocks.starts[block], population.blocks.stops[block], dtype=np.int64)
    bad = np.flatnonzero(~np.isfinite(population.single(places).block_log_lik(theta)))
    first = int(places[bad[0] if bad.size else 0])
    row = first if order is None else int(order[first])
    ends = list(accumulate(population.blocks.sums))
    if not ends:
        return f"observation {row + 1:,} of the data is impossible"
    at = next(k for k, end in enumerate(ends) if row < end)
    before = ends[at - 1] if at else 0
    return f"observation {row - before + 1:,} of likelihood sum {at + 1} is impossible"
