"""Choice of the order of control variates by the cost of making and using them, measured on a few blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stansub import clock
from stansub.progress import Progress, as_progress
from stansub.target.factors import Evaluator, Population, Target
from stansub.target.laplace import Mode
from stansub.target.taylor import features, max_memory_default, memory_needed, n_features
from stansub.types import FloatArray
from stansub.variates_selection import TooLarge, VariatesByCost

# The pilot measurement: pairs of points, blocks, and parts in which these are differentiated.
_PAIRS, _BLOCKS, _PARTS = 16, 64, 8
# A decision stops when the log ratio is about this many standard errors from the log of a uniform number, and after at
# least this many blocks.
_STANDARD_ERRORS, _FIRST_LOOK = 3.0, 10
# Distances between these two, exponential if the log ratio is near 0, as for proposals from the Laplace approximation,
# with probabilities; the rare small ones use most of the blocks.
_GAPS = np.geomspace(1e-7, 20, 400)
_WEIGHTS = np.exp(-_GAPS) * _GAPS / np.sum(np.exp(-_GAPS) * _GAPS)
# Cost of a gradient of a block, and of a coefficient of its row in a decision, relative to the block's value. Measured
# times would be better, but the same seed would not always give the same draws.
_GRADIENT, _COEFFICIENT = 6.0, 5e-4
# If decisions need this share of all blocks, control variates save little.
_NO_HELP = 0.5


@dataclass(frozen=True)
class Pilot:
    """Cost of decisions near the mode with control variates of order 0 (none), 1 and 2."""

    scale: FloatArray
    """Shape (3,): M times the standard deviation of the blocks' remainders, as root mean square over pairs of points.
    An estimate from n blocks has this over sqrt(n) as its standard error, ignoring the finite population. If it is of
    the order of sqrt(M), a decision needs most of the data. inf if a log likelihood is not finite.
    """
    blocks: FloatArray
    """Shape (3,): mean number of blocks that a decision needs."""
    gradient_seconds: float
    """Seconds of one block's gradient."""
    n_obs_evaluated: int = 0
    """Observations that the measurement evaluated; a gradient counts as one evaluation."""


@dataclass(frozen=True)
class Choice:
    """Chosen order of control variates, with its reason and the measurement."""

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
    progress: Callable[[str], None] | None = None,
) -> Choice:
    """Choose the order for which set-up and decisions together take the least time.

    Parameters
    ----------
    mode : Mode
        Point at which the blocks would be expanded.
    n_steps : int
        Approximate number of decisions of all chains together.
    step : float, optional
        Length of random-walk steps, in sds of the Laplace approximation; by default proposals are independent draws.
    """
    population = posterior.population
    n_blocks, dim = len(population.blocks), population.dim
    allowed = max_memory_default()
    log = as_progress(progress)
    log("Trying control variates on a few blocks")
    which = some_blocks(population, rng)
    pilot = measure_pairs(population, mode.position, mode.steps, *_pairs(mode, rng, step), which, log)
    gradients = n_gradients(n_blocks, dim)
    cost = setup_cost(n_blocks, dim) + decision_cost(pilot, dim, n_steps)
    fits = np.array([memory_needed(n_blocks, dim, order) <= allowed for order in range(3)])
    # A saving below a tenth does not justify another approximation to explain.
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
    """Return the blocks that a decision needs with none, with order 1 and with order 2."""
    none, first, second = pilot.blocks.tolist()
    return none, first, second


def n_gradients(n_blocks: int, dim: int) -> NDArray[np.int64]:
    """Return the gradients of blocks that control variates of each order need, shape (3,)."""
    return n_blocks * np.array([0, 1, 1 + 2 * dim])


def setup_cost(n_blocks: int, dim: int) -> FloatArray:
    """Return the set-up cost of control variates of each order, shape (3,), in evaluations of a block."""
    return n_gradients(n_blocks, dim).astype(np.float64) * _GRADIENT


def decision_cost(pilot: Pilot, dim: int, n_steps: int) -> FloatArray:
    """Return the cost of ``n_steps`` decisions with each order, shape (3,), in evaluations of a block."""
    widths = np.array([n_features(dim, order) for order in range(3)])
    # Of the two values in a difference, that of the current state is often known.
    return np.asarray(n_steps * pilot.blocks * (1.5 + widths * _COEFFICIENT))


def _pairs(mode: Mode, rng: np.random.Generator, step: float | None) -> tuple[FloatArray, FloatArray]:
    """Draw pairs from the Laplace approximation: independent or, with ``step``, a step of this many sds apart."""
    draws, others = rng.standard_normal((2, _PAIRS, mode.dim)) @ mode.cholesky.T
    theta = mode.position + draws
    return theta, mode.position + others if step is None else theta + step * others


def measure_pairs(
    population: Population,
    anchor: FloatArray,
    steps: FloatArray,
    theta: FloatArray,
    proposed: FloatArray,
    which: NDArray[np.int32],
    progress: Progress,
) -> Pilot:
    """Measure the scatter of differences and remainders about any anchor, between pairs of points.

    Parameters
    ----------
    anchor, steps : ndarray, shape (dim,)
        Point at which blocks would be expanded, and steps of the gradient differences there.
    theta, proposed : ndarray, shape (k, dim)
    which : ndarray of int32
        Blocks that are evaluated (see `some_blocks`).

    Raises
    ------
    ValueError
        If a derivative is not defined at the anchor.
    """
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


def some_blocks(population: Population, rng: np.random.Generator) -> NDArray[np.int32]:
    """Draw the blocks on which control variates are tried."""
    n_blocks = len(population.blocks)
    return np.sort(rng.choice(n_blocks, size=min(_BLOCKS, n_blocks), replace=False)).astype(np.int32)


def _difference(evaluator: Evaluator, which: NDArray[np.int32], theta: FloatArray, proposed: FloatArray) -> FloatArray:
    with np.errstate(invalid="ignore"):
        return evaluator.block_log_lik(proposed, which) - evaluator.block_log_lik(theta, which)


def _scatter(remainders: FloatArray, n_blocks: int) -> FloatArray:
    """Return M times the standard deviation of each row; inf if undefined."""
    with np.errstate(invalid="ignore"):
        scale = n_blocks * remainders.std(axis=1, ddof=min(1, remainders.shape[1] - 1))
    return np.where(np.isfinite(scale), scale, np.inf)


def _blocks_needed(scale: FloatArray, n_blocks: int) -> float:
    """Return the blocks of a decision, averaged over the given scatters, shape (k,), and over the uniform number."""
    with np.errstate(over="ignore", invalid="ignore"):
        needed = (_STANDARD_ERRORS * scale[:, np.newaxis] / _GAPS) ** 2
        # Without replacement, the standard error vanishes as all blocks are drawn.
        needed = np.where(np.isfinite(needed), needed / (1 + needed / n_blocks), n_blocks)
    return float(np.mean(np.clip(needed, min(_FIRST_LOOK, n_blocks), n_blocks) @ _WEIGHTS))
