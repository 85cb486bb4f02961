"""Taylor expansions of block log likelihoods at an anchor: the control variates of a decision.

With d = theta - m and d' = theta' - m, the log likelihood difference of block b is approximately c_b . w. Here c_b
holds the block's gradient and the lower triangle of its Hessian at the anchor m, and w is a function of (theta, theta')
alone (Bardenet, Doucet and Holmes 2017, JMLR 18, section 7, for single observations). A decision then samples only the
remainders, and the total of c_b . w over all blocks is exact.

Rows are stored in single precision, and the total sums the stored numbers. Rounding therefore enlarges the remainders
by about 1e-7 of the expansion and leaves decisions valid.
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
from stansub.progress import as_progress
from stansub.target.blocks import Blocks
from stansub.target.factors import Evaluator, Target, known_predictors
from stansub.target.gradients import ParallelEvaluator, Team
from stansub.target.laplace import Mode
from stansub.target.remainders import LinearPredictors, RemainderBounds, reached
from stansub.types import FloatArray

Rows = NDArray[np.float32]

# Bytes that control variates may use if the machine has twice as much free.
MAX_MEMORY = 2 * 10**9

# Tasks per thread in which rows are made, and minimum rows per task.
_TASKS, _TASK = 80, 16


@dataclass(frozen=True)
class Expansion:
    """Expansions of all blocks at one anchor."""

    anchor: FloatArray
    """Shape (dim,)."""
    order: int
    """1 or 2."""
    coefficients: Rows
    """Shape (M, n_features): A row per block: gradient and, in the second order, the lower triangle of the Hessian row
    by row.
    """

    @property
    def total(self) -> FloatArray:
        """Return the sum of the rows in double precision, shape (n_features,)."""
        return np.asarray(self.coefficients.sum(0, dtype=np.float64))

    def gradient_of(self, row: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """Return the gradient g + H (theta - m) of the expansion with this row of coefficients, shape (n_features,)."""
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
    """Expansions of all blocks at one anchor or, if a posterior has several modes, at each of them."""

    expansions: tuple[Expansion, ...]
    """All of the same order, the most important first."""
    values: tuple[FloatArray, ...] = ()
    """Each of shape (M,): log likelihoods of the blocks at the anchors, if there are several."""
    precisions: tuple[FloatArray, ...] = ()
    """Each of shape (dim, dim): matrices of the distances by which a point selects its nearest anchor, if there are
    several.
    """
    seconds: float = 0.0
    """Time to make them."""
    bounds: RemainderBounds | None = None
    """Bounds on the remainders, for factorised decisions or a range."""

    @property
    def first(self) -> Expansion:
        """Return the most important expansion."""
        return self.expansions[0]

    @property
    def anchor(self) -> FloatArray:
        """Return the anchor of the first expansion, shape (dim,)."""
        return self.first.anchor

    @property
    def order(self) -> int:
        """Return the order of the expansions."""
        return self.first.order

    @property
    def hessian(self) -> FloatArray | None:
        """Return the Hessian of the sum of all log likelihoods at the anchor, (dim, dim); None in the first order."""
        if self.order < 2:
            return None
        dim = len(self.anchor)
        hessian = np.empty((dim, dim))
        i, j = np.tril_indices(dim)
        hessian[i, j] = hessian[j, i] = self.first.total[dim:]
        return hessian

    @property
    def third(self) -> FloatArray:
        """Return no third derivatives: they are unknown."""
        return np.empty(0)

    @property
    def blockwise(self) -> ControlVariates:
        """Return itself."""
        return self

    def candidates(self, target: Target) -> float:
        """Return the observations that a factorised decision is expected to evaluate; infinite without bounds."""
        return self.bounds.candidates * target.blocks.size if self.bounds is not None else np.inf

    def parts(self, target: Target) -> dict[str, Any]:
        """Return the arguments of a decider."""
        return {"surrogate": self.surrogate, "bounds": self.bounds}

    @property
    def box(self) -> tuple[FloatArray, FloatArray] | None:
        """Return, if there are bounds, the anchor and how far chains go from it in each parameter."""
        if self.bounds is None:
            return None
        return reached(self.anchor, np.asarray(np.linalg.inv(self.bounds.whitening), np.float64))

    @cached_property
    def surrogate(self) -> Surrogate:
        """Return the control variates for the decision loop."""
        return Surrogate(
            [one.anchor for one in self.expansions],
            tuple(one.coefficients for one in self.expansions),
            self.values,
            self.precisions,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields without objects of the decision loop, which belong to one process."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def changes(self, theta: FloatArray, proposed: FloatArray) -> FloatArray:
        """Return changes of the blocks' expansions between two points, shape (M,)."""
        return self.surrogate.changes(theta, proposed)


def n_features(dim: int, order: int) -> int:
    """Return the coefficients per block: none, the gradient, or also half of the symmetric Hessian."""
    return {0: 0, 1: dim, 2: dim + dim * (dim + 1) // 2}[order]


def memory_needed(n_blocks: int, dim: int, order: int) -> int:
    """Return the bytes of the coefficients."""
    return n_blocks * n_features(dim, order) * np.dtype(np.float32).itemsize


def features(anchor: FloatArray, theta: FloatArray, proposed: FloatArray, *, order: int) -> FloatArray:
    """Return the factors of a row of coefficients.

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
    """Return the default limit in bytes: `MAX_MEMORY`, or half of what is free."""
    return min(MAX_MEMORY, memory.room().size // 2)


def build(
    posterior: Target,
    anchor: FloatArray,
    *,
    order: int,
    steps: FloatArray | None = None,
    threads: int = 1,
    progress: Callable[[str], None] | None = None,
) -> ControlVariates:
    """Differentiate all blocks at the anchor, from derivatives of observations in their linear predictors if known.

    Otherwise a block takes one gradient, and 2 dim more for the second order.

    Parameters
    ----------
    anchor : ndarray, shape (dim,)
    order : {1, 2}
    steps : ndarray, shape (dim,), optional
        Steps of gradient differences: ``Mode.steps``. Not used with linear predictors.

    Raises
    ------
    InputError
        If the coefficients would need more memory than is allowed, or a derivative is not defined.
    """
    began, log = clock.now(), as_progress(progress)
    population = posterior.population
    n_blocks, dim = len(population.blocks), population.dim
    check_memory(n_blocks, dim, order)
    coefficients = np.empty((n_blocks, n_features(dim, order)), np.float32)
    predictors = known_predictors(posterior, log)
    # Derivatives at kinks are left to the program, and so are observations that partitions hold.
    known = predictors if isinstance(predictors, LinearPredictors) and not predictors.family.floor else None

    def fill(evaluator: Evaluator, part: slice) -> None:
        if known is not None:
            coefficients[part] = _block_rows(known, anchor, order, population.blocks, part)
            return
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


def _block_rows(
    predictors: LinearPredictors, anchor: FloatArray, order: int, blocks: Blocks, part: slice
) -> FloatArray:
    """Return rows of coefficients of some blocks, from derivatives of their observations in the arguments.

    Stan's own derivatives can be wrong: those of `gamma_lccdf` in the shape differ from exact ones by up to 3 percent.

    Raises
    ------
    ValueError
        If a derivative is not defined.
    """
    starts, dim = blocks.starts[part], len(anchor)
    places = slice(int(starts[0]), int(blocks.stops[part][-1]))
    own = predictors.part(places if predictors.order is None else predictors.order[places])
    starts = starts - starts[0]
    designs = [np.broadcast_to(z, (own.n_observations, dim)) for z in own.matrices]
    with np.errstate(over="ignore", invalid="ignore"):
        slopes, *curves = own.family.derivatives((1, 2)[:order], own.at(anchor))
        gradients = sum(slope[:, np.newaxis] * z for slope, z in zip(slopes, designs, strict=True))
        rows = np.empty((len(starts), n_features(dim, order)))
        rows[:, :dim] = np.add.reduceat(gradients, starts)
        if curves:
            moves = [sum(one[:, np.newaxis] * z for one, z in zip(row, designs, strict=True)) for row in curves[0]]
            lower = np.tril_indices(dim)
            for row, start, stop in zip(rows, starts, [*starts[1:], own.n_observations], strict=True):
                each = [z[start:stop].T @ move[start:stop] for z, move in zip(designs, moves, strict=True)]
                row[dim:] = sum(each)[lower]
    bad = np.flatnonzero(~np.isfinite(rows).all(1))
    if bad.size:
        raise ValueError(f"the gradient of block {part.start + bad[0]} is not defined")
    return rows


def build_at_modes(
    posterior: Target,
    modes: Sequence[Mode],
    *,
    order: int,
    threads: int = 1,
    progress: Callable[[str], None] | None = None,
) -> ControlVariates:
    """Differentiate all blocks at each of several modes, the most important first.

    Raises
    ------
    InputError
        If the coefficients would need too much memory, or a derivative is not defined.
    """
    check_memory(len(modes) * len(posterior.population.blocks), posterior.population.dim, order)
    log = as_progress(progress)
    parts = [
        build(posterior, mode.position, order=order, steps=mode.steps, threads=threads, progress=log) for mode in modes
    ]
    if len(modes) == 1:
        return parts[0]
    with Team(posterior.population, threads=threads, progress=log) as team:
        values = tuple(ParallelEvaluator(team).block_log_lik(mode.position) for mode in modes)
    return ControlVariates(
        tuple(part.first for part in parts),
        values,
        tuple(-mode.hessian for mode in modes),
        sum(part.seconds for part in parts),
    )


def check_memory(n_blocks: int, dim: int, order: int) -> None:
    """Raise InputError if the coefficients would need more than is allowed."""
    needed, allowed = memory_needed(n_blocks, dim, order), max_memory_default()
    if needed <= allowed:
        return
    smaller = memory_needed(n_blocks, dim, 1)
    other = f"`control_variates=1` ({memory.amount(smaller)}) or " if order == 2 and smaller <= allowed else ""
    raise InputError(
        f"control variates of order {order} need {memory.amount(needed)} for {n_blocks:,} blocks and {dim:,} "
        f"parameters, more than the {memory.amount(allowed)} allowed: choose {other}a larger `block_size`"
    )
