"""Taylor expansions of block log likelihoods at an anchor: the control variates of a decision.

With d = theta - m and d' = theta' - m the log likelihood difference of block b is near c_b . w, where c_b holds the
block's gradient and the lower triangle of its Hessian at the anchor m, and w is a function of (theta, theta') alone
(Bardenet, Doucet and Holmes 2017, JMLR 18, section 7, for single observations). A decision then looks only at the
remainders, and the total of c_b . w over all blocks is exact.

Rows are kept in single precision; the total is taken of the very numbers that are kept, so that rounding makes the
remainders larger by some 1e-7 of the expansion and the decision no less valid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stansub import clock, memory
from stansub._loop import Surrogate
from stansub.errors import InputError
from stansub.progress import Progress, as_progress
from stansub.selection import TooLarge, VariatesByCost
from stansub.target.factors import Evaluator, Population, Target
from stansub.target.gradients import Team, Together
from stansub.target.laplace import Mode
from stansub.target.remainders import RemainderBounds, reached
from stansub.types import FloatArray

Rows = NDArray[np.float32]

# Bytes that control variates may take where the machine has twice as much free.
MAX_MEMORY = 2 * 10**9

# Tasks a thread in which rows are made, and rows a task at least.
_TASKS, _TASK = 80, 16

# The pilot measurement: pairs of points, blocks, and parts in which these are differentiated.
_PAIRS, _BLOCKS, _PARTS = 16, 64, 8
# A decision falls when the log ratio is about this many standard errors from the log of a uniform number, and after
# no fewer blocks than this.
_STANDARD_ERRORS, _FIRST_LOOK = 3.0, 10
# Distances between these two, exponential where the log ratio is near 0, as it is for proposals from the Laplace
# approximation, and their probabilities; the rare small ones take most of the blocks.
_GAPS = np.geomspace(1e-7, 20, 400)
_WEIGHTS = np.exp(-_GAPS) * _GAPS / np.sum(np.exp(-_GAPS) * _GAPS)
# What a gradient of a block, and a coefficient of its row at a decision, cost beside the block's value. Measured times
# would do better, but then the same seed would not always give the same draws.
_GRADIENT, _COEFFICIENT = 6.0, 5e-4
# Where decisions need this share of all blocks, control variates save little.
_NO_HELP = 0.5


@dataclass(frozen=True)
class Expansion:
    """Expansions of all blocks at one anchor.

    Attributes
    ----------
    anchor : ndarray, shape (dim,)
    order : {1, 2}
    coefficients : ndarray of float32, shape (M, n_features)
        A row a block: gradient and, in the second order, the lower triangle of the Hessian row by row.
    """

    anchor: FloatArray
    order: int
    coefficients: Rows

    @property
    def total(self) -> FloatArray:
        """Sum of the rows in double precision, shape (n_features,)."""
        total: FloatArray = self.coefficients.sum(0, dtype=np.float64)
        return total

    def features(self, theta: FloatArray, proposed: FloatArray) -> FloatArray:
        """The numbers by which rows are multiplied, shape (..., n_features), for points of shape (..., dim)."""
        return features(self.anchor, theta, proposed, order=self.order)

    def gradient_of(self, row: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """The gradient g + H (theta - m) of the expansion with such a row of coefficients, shape (n_features,)."""
        dim = len(self.anchor)
        slope = row[:dim]
        if self.order < 2:
            return lambda theta: slope
        hessian = np.empty((dim, dim))
        i, j = np.tril_indices(dim)
        hessian[i, j] = hessian[j, i] = row[dim:]
        return lambda theta: np.asarray(slope + hessian @ (theta - self.anchor))


@dataclass(frozen=True)
class ControlVariates:
    """Expansions of all blocks at one anchor or, where a posterior has several modes, at each of them.

    Attributes
    ----------
    expansions : tuple of Expansion
        All of the same order, the most important first.
    values : tuple of ndarray, shape (M,)
        Log likelihoods of the blocks at the anchors, where there are several.
    precisions : tuple of ndarray, shape (dim, dim)
        Each point takes the anchor that is nearest by its matrix, where there are several.
    seconds : float
        That making them took.
    bounds : RemainderBounds or None
        On their remainders, for factorised decisions or a range.
    """

    expansions: tuple[Expansion, ...]
    values: tuple[FloatArray, ...] = ()
    precisions: tuple[FloatArray, ...] = ()
    seconds: float = 0.0
    bounds: RemainderBounds | None = None

    @property
    def first(self) -> Expansion:
        """The most important."""
        return self.expansions[0]

    @property
    def anchor(self) -> FloatArray:
        """Of the first, shape (dim,)."""
        return self.first.anchor

    @property
    def order(self) -> int:
        """Of all expansions."""
        return self.first.order

    @property
    def hessian(self) -> FloatArray | None:
        """Of the sum of all log likelihoods at the anchor, shape (dim, dim); None in the first order."""
        if self.order < 2:
            return None
        dim = len(self.anchor)
        hessian = np.empty((dim, dim))
        i, j = np.tril_indices(dim)
        hessian[i, j] = hessian[j, i] = self.first.total[dim:]
        return hessian

    @property
    def blockwise(self) -> ControlVariates:
        """These."""
        return self

    def candidates(self, target: Target) -> float:
        """Observations that a factorised decision is expected to evaluate; infinite without bounds."""
        return self.bounds.candidates * target.blocks.size if self.bounds is not None else np.inf

    def parts(self, target: Target) -> dict[str, Any]:
        """What a decider takes of them."""
        return {"surrogate": self.surrogate, "bounds": self.bounds}

    @property
    def box(self) -> tuple[FloatArray, FloatArray] | None:
        """Where there are bounds, the anchor and how far chains go from it in each parameter."""
        if self.bounds is None:
            return None
        return reached(self.anchor, np.asarray(np.linalg.inv(self.bounds.whitening), np.float64))

    @property
    def memory(self) -> int:
        """Bytes of the coefficients."""
        return sum(one.coefficients.nbytes for one in self.expansions)

    @cached_property
    def surrogate(self) -> Surrogate:
        """The same for the decision loop."""
        return Surrogate(
            [one.anchor for one in self.expansions],
            tuple(one.coefficients for one in self.expansions),
            self.values,
            self.precisions,
        )

    def __getstate__(self) -> dict[str, Any]:
        """The fields: what is made for the decision loop belongs to one process."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def changes(self, theta: FloatArray, proposed: FloatArray) -> FloatArray:
        """Changes of the blocks' expansions between two points, shape (M,)."""
        return self.surrogate.changes(theta, proposed)


def n_features(dim: int, order: int) -> int:
    """Coefficients a block: none, the gradient, or that and half of the symmetric Hessian."""
    return {0: 0, 1: dim, 2: dim + dim * (dim + 1) // 2}[order]


def memory_needed(n_blocks: int, dim: int, order: int) -> int:
    """Bytes of the coefficients."""
    return n_blocks * n_features(dim, order) * np.dtype(np.float32).itemsize


def features(anchor: FloatArray, theta: FloatArray, proposed: FloatArray, *, order: int) -> FloatArray:
    """What multiplies a row of coefficients.

    [d' - d ; S_ij for i >= j], S_ij = d'_i d'_j - d_i d_j and half of that where i = j.

    Parameters
    ----------
    anchor : ndarray, shape (dim,)
    theta, proposed : ndarray, shape (..., dim)
    order : {0, 1, 2}

    Returns
    -------
    ndarray, shape (..., n_features)
    """
    d, d_new = theta - anchor, proposed - anchor
    first = d_new - d
    if order < 2:
        return np.asarray(first[..., : n_features(len(anchor), order)])
    i, j = np.tril_indices(len(anchor))
    second = (d_new[..., i] * d_new[..., j] - d[..., i] * d[..., j]) * np.where(i == j, 0.5, 1.0)
    return np.concatenate([first, second], axis=-1)


def max_memory_default() -> int:
    """Bytes allowed where the user does not say: `MAX_MEMORY`, or half of what is free."""
    return min(MAX_MEMORY, memory.room().size // 2)


def build(
    posterior: Target,
    anchor: FloatArray,
    *,
    order: int,
    steps: FloatArray | None = None,
    threads: int = 1,
    max_memory: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> ControlVariates:
    """Differentiate all blocks at the anchor: one gradient each, and 2 dim more for the second order.

    Parameters
    ----------
    posterior : Posterior
    anchor : ndarray, shape (dim,)
    order : {1, 2}
    steps : ndarray, shape (dim,), optional
        By which gradients are differenced: ``Mode.steps``.
    threads : int
    max_memory : int, optional
        Bytes.
    progress : callable, optional
        Called with a line of text; a `Progress` notes how far it is, too.

    Raises
    ------
    InputError
        When the coefficients would take more than ``max_memory``, or a derivative is not defined.
    """
    began, log = clock.now(), as_progress(progress)
    population = posterior.population
    n_blocks, dim = len(population.blocks), population.dim
    check_memory(n_blocks, dim, order, max_memory)
    coefficients = np.empty((n_blocks, n_features(dim, order)), np.float32)

    def fill(evaluator: Evaluator, part: slice) -> None:
        which = np.arange(part.start, part.stop, dtype=np.int32)
        evaluator.block_taylor(anchor, which, order, coefficients[part], steps)

    less = " or 1" if order == 2 else ""
    log(
        f"Control variates of order {order}: {n_blocks:,} blocks",
        remedy=f"take `control_variates=0`{less} or a larger `block_size`",
    )
    with Team(population, threads=threads, progress=log) as team:
        places = np.arange(n_blocks)
        parts = np.array_split(places, min(_TASKS * team.threads, -(-n_blocks // _TASK)))
        try:
            team.map(
                fill,
                [slice(int(part[0]), int(part[-1]) + 1) for part in parts],
                watch=lambda done, _: log.advance(int(parts[done - 1][-1]) + 1, n_blocks),
            )
        except ValueError as error:
            raise InputError(
                f"no control variates: {error} at the expansion point; use another point, or sample with "
                "`control_variates=0`"
            ) from error
    expansion = Expansion(np.array(anchor), order, coefficients)
    return ControlVariates((expansion,), seconds=clock.now() - began)


def build_at_modes(
    posterior: Target,
    modes: Sequence[Mode],
    *,
    order: int,
    threads: int = 1,
    progress: Callable[[str], None] | None = None,
) -> ControlVariates:
    """Differentiate all blocks at each of several modes, the most important of which comes first.

    Raises
    ------
    InputError
        When the coefficients would take too much memory, or a derivative is not defined.
    """
    check_memory(len(modes) * len(posterior.population.blocks), posterior.population.dim, order)
    log = as_progress(progress)
    parts = [
        build(posterior, mode.position, order=order, steps=mode.steps, threads=threads, progress=log) for mode in modes
    ]
    if len(modes) == 1:
        return parts[0]
    with Team(posterior.population, threads=threads, progress=log) as team:
        values = tuple(Together(team).block_log_lik(mode.position) for mode in modes)
    return ControlVariates(
        tuple(part.first for part in parts),
        values,
        tuple(-mode.hessian for mode in modes),
        sum(part.seconds for part in parts),
    )


def check_memory(n_blocks: int, dim: int, order: int, max_memory: int | None = None) -> None:
    """Raise InputError when the coefficients would take more than is allowed."""
    needed, allowed = memory_needed(n_blocks, dim, order), max_memory_default() if max_memory is None else max_memory
    if needed <= allowed:
        return
    smaller = memory_needed(n_blocks, dim, 1)
    other = f"`control_variates=1` ({memory.amount(smaller)}) or " if order == 2 and smaller <= allowed else ""
    raise InputError(
        f"control variates of order {order} need {memory.amount(needed)} for {n_blocks:,} blocks and {dim:,} "
        f"parameters, more than the {memory.amount(allowed)} allowed: choose {other}a larger `block_size`"
    )


@dataclass(frozen=True)
class Pilot:
    """What decisions near the mode would need with control variates of order 0 (none), 1 and 2.

    Attributes
    ----------
    scale : ndarray, shape (3,)
        M times the standard deviation of the blocks' remainders, as root mean square over pairs of points: an estimate
        from n blocks has this over sqrt(n) as its standard error, but for the finite population. Where it is of the
        order of sqrt(M), a decision needs most of the data. inf where a log likelihood is not finite.
    blocks : ndarray, shape (3,)
        Blocks that a decision needs, on average.
    gradient_seconds : float
        Of one block.
    n_obs_evaluated : int
        Observations that the measurement evaluated, a gradient counted as one evaluation.
    """

    scale: FloatArray
    blocks: FloatArray
    gradient_seconds: float
    n_obs_evaluated: int = 0


@dataclass(frozen=True)
class Choice:
    """The order of control variates, why, and the measurement it rests on."""

    order: int
    reason: VariatesByCost
    pilot: Pilot


def choose_order(
    posterior: Target,
    mode: Mode,
    *,
    rng: np.random.Generator,
    n_steps: int = 50_000,
    step: float | None = None,
    threads: int = 1,
    max_memory: int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Choice:
    """Choose the order whose set-up and decisions together take least time.

    Parameters
    ----------
    posterior : Posterior
    mode : Mode
        Where the blocks would be expanded.
    rng : Generator
        Draws pairs of points from the Laplace approximation, and blocks.
    n_steps : int
        Decisions that all chains together will take, about.
    step : float, optional
        Length of random-walk steps, in sds of the Laplace approximation; without it proposals are independent draws.
    threads : int
        Of the set-up, for the time in the reason.
    max_memory : int, optional
        Bytes.
    progress : callable, optional
        Called with a line of text; a `Progress` notes how far it is, too.
    """
    population = posterior.population
    n_blocks, dim = len(population.blocks), population.dim
    allowed = max_memory_default() if max_memory is None else max_memory
    log = as_progress(progress)
    log("Trying control variates on a few blocks")
    pilot = measure(population, mode, rng=rng, step=step, progress=log)
    gradients = n_gradients(n_blocks, dim)
    cost = setup_cost(n_blocks, dim) + decision_cost(pilot, dim, n_steps)
    fits = np.array([memory_needed(n_blocks, dim, order) <= allowed for order in range(3)])
    # What saves less than a tenth is not worth an approximation more to explain.
    order = 0
    for higher in (1, 2):
        if fits[higher] and cost[higher] < 0.9 * cost[order]:
            order = higher
    seconds = float(gradients[order]) * pilot.gradient_seconds / threads
    reason = VariatesByCost(
        order,
        blocks=blocks_by_order(pilot),
        n_blocks=n_blocks,
        memory=memory_needed(n_blocks, dim, order) if order else 0,
        seconds=seconds if order else 0.0,
        far_from_quadratic=not order and bool(pilot.blocks.min() > _NO_HELP * n_blocks),
        too_large=tuple(TooLarge(one, memory_needed(n_blocks, dim, one)) for one in (1, 2) if not fits[one]),
        memory_allowed=allowed,
    )
    return Choice(order, reason, pilot)


def blocks_by_order(pilot: Pilot) -> tuple[float, float, float]:
    """Blocks that a decision needs with none, with order 1 and with order 2."""
    none, first, second = pilot.blocks.tolist()
    return none, first, second


def n_gradients(n_blocks: int, dim: int) -> NDArray[np.int64]:
    """Gradients of blocks that control variates of each order take, shape (3,)."""
    return n_blocks * np.array([0, 1, 1 + 2 * dim])


def setup_cost(n_blocks: int, dim: int) -> FloatArray:
    """What making control variates of each order costs, shape (3,), in evaluations of a block."""
    return n_gradients(n_blocks, dim).astype(np.float64) * _GRADIENT


def decision_cost(pilot: Pilot, dim: int, n_steps: int) -> FloatArray:
    """What so many decisions with each order cost, shape (3,), in evaluations of a block."""
    widths = np.array([n_features(dim, order) for order in range(3)])
    # Of the two values that a difference has, that of the current state is often known.
    cost: FloatArray = n_steps * pilot.blocks * (1.5 + widths * _COEFFICIENT)
    return cost


def measure(
    population: Population,
    mode: Mode,
    *,
    rng: np.random.Generator,
    step: float | None = None,
    progress: Progress | None = None,
) -> Pilot:
    """Scatter of differences and remainders between draws from the Laplace approximation.

    Pairs are independent or, with ``step``, a random-walk step of so many sds apart.
    """
    which, dim = _draw(population, rng, _BLOCKS), mode.dim
    draws, others = rng.standard_normal((2, _PAIRS, dim)) @ mode.cholesky.T
    theta = mode.position + draws
    proposed = mode.position + others if step is None else theta + step * others
    return _measure_pairs(population, mode.position, mode.steps, theta, proposed, which, progress or Progress())


def measure_pairs(
    population: Population,
    anchor: FloatArray,
    steps: FloatArray,
    theta: FloatArray,
    proposed: FloatArray,
    *,
    rng: np.random.Generator,
    progress: Progress | None = None,
) -> Pilot:
    """Scatter of differences and remainders about any anchor, between pairs of points.

    Parameters
    ----------
    anchor, steps : ndarray, shape (dim,)
        Where blocks would be expanded, and the steps by which gradients are differenced there.
    theta, proposed : ndarray, shape (k, dim)
    rng : Generator
        Draws the blocks.
    progress : Progress, optional
        Notes how far it is.

    Raises
    ------
    ValueError
        When a derivative is not defined at the anchor.
    """
    which = _draw(population, rng, _BLOCKS)
    return _measure_pairs(population, anchor, steps, theta, proposed, which, progress or Progress())


def _measure_pairs(
    population: Population,
    anchor: FloatArray,
    steps: FloatArray,
    theta: FloatArray,
    proposed: FloatArray,
    which: NDArray[np.int32],
    progress: Progress,
) -> Pilot:
    evaluator, dim, n_blocks = population.evaluator(), len(anchor), len(population.blocks)
    rows = np.empty((len(which), n_features(dim, 2)), np.float32)
    parts = np.array_split(np.arange(len(which)), min(_PARTS, len(which)))
    differences = []
    for pair in zip(theta, proposed, strict=True):
        differences.append(_difference(evaluator, which, *pair))
        progress.check()
    began = clock.now()
    for number, part in enumerate(parts, start=1):
        evaluator.block_taylor(anchor, which[part], 2, rows[part[0] : part[-1] + 1], steps)
        progress.advance(number, len(parts))
    seconds = clock.now() - began
    scales = np.empty((3, len(theta)))
    for order in range(3):
        w = features(anchor, theta, proposed, order=order)
        scales[order] = _scatter(np.array(differences) - w @ rows[:, : w.shape[1]].T.astype(float), n_blocks)
    return Pilot(
        scale=np.sqrt(np.mean(scales**2, axis=1)),
        blocks=np.array([_blocks_needed(scale, n_blocks) for scale in scales]),
        gradient_seconds=seconds / ((1 + 2 * dim) * len(which)),
        n_obs_evaluated=(2 * len(theta) + 1 + 2 * dim) * len(which) * population.blocks.size,
    )


def _draw(population: Population, rng: np.random.Generator, n: int) -> NDArray[np.int32]:
    n_blocks = len(population.blocks)
    return np.sort(rng.choice(n_blocks, size=min(n, n_blocks), replace=False)).astype(np.int32)


def _difference(evaluator: Evaluator, which: NDArray[np.int32], theta: FloatArray, proposed: FloatArray) -> FloatArray:
    with np.errstate(invalid="ignore"):
        return evaluator.block_log_lik(proposed, which) - evaluator.block_log_lik(theta, which)


def _scatter(remainders: FloatArray, n_blocks: int) -> FloatArray:
    """M times the standard deviation of each row; inf where that is not defined."""
    with np.errstate(invalid="ignore"):
        scale = n_blocks * remainders.std(axis=1, ddof=min(1, remainders.shape[1] - 1))
    return np.where(np.isfinite(scale), scale, np.inf)


def _blocks_needed(scale: FloatArray, n_blocks: int) -> float:
    """Blocks of a decision, averaged over the scatters given, shape (k,), and over where the uniform number falls."""
    with np.errstate(over="ignore", invalid="ignore"):
        needed = (_STANDARD_ERRORS * scale[:, np.newaxis] / _GAPS) ** 2
        # Without replacement the standard error vanishes as all blocks are drawn.
        needed = np.where(np.isfinite(needed), needed / (1 + needed / n_blocks), n_blocks)
    return float(np.mean(np.clip(needed, min(_FIRST_LOOK, n_blocks), n_blocks) @ _WEIGHTS))
