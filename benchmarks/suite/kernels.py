"""Compiled loops of scalable Metropolis-Hastings and of the zig-zag process, for logistic regression.

An observation is a row z = (2 y - 1) (1, x), so that its log likelihood is -log(1 + exp(-z theta)). Positions are
offsets from the mode. What belongs to an observation stands in one row, so that it costs one access to memory.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

# Orders of summation are free; infinities and NaN stay what they are.
_FAST = {"reassoc", "contract"}
# What rounding may add to a remainder or a rate, relative and absolute, before it counts as above its bound.
_RELATIVE, _ABSOLUTE = 1e-9, 1e-12


class Factors(NamedTuple):
    """The factors of scalable Metropolis-Hastings, one an observation.

    Attributes
    ----------
    rows : ndarray, shape (n, d + 2)
        z, the linear predictor at the mode, and psi, the observation's part of the bound.
    share, other : ndarray, shape (n,)
        Alias table of psi.
    total : float
        Sum of psi.
    euclidean : bool
        Whether the bounds are in the Euclidean norm of the offset, in place of the sum of its absolute values.
    """

    rows: FloatArray
    share: FloatArray
    other: NDArray[np.int64]
    total: float
    euclidean: bool


class Proposal(NamedTuple):
    """Preconditioned Crank-Nicolson about the mode.

    Attributes
    ----------
    root : ndarray, shape (d, d)
        Lower triangular root of the Laplace covariance.
    gradient : ndarray, shape (d,)
        What is left of the log density's gradient at the mode.
    keep : float
        Correlation of an offset with the proposed one.
    """

    root: FloatArray
    gradient: FloatArray
    keep: float


class Counts(NamedTuple):
    """Moves accepted (or switches of a velocity), single observations evaluated, bounds that did not hold."""

    accepted: int
    evaluated: int
    violations: int


class Rates(NamedTuple):
    """What the zig-zag process needs of the posterior.

    Attributes
    ----------
    rows : ndarray, shape (n, d + 2)
        z, the linear predictor at the mode, and the derivative of the log likelihood in it there.
    gradient : ndarray, shape (d,)
        Of the potential (the negative log density), at the mode.
    prior : ndarray, shape (d,)
        Prior precisions.
    lipschitz : ndarray, shape (d,)
        Bounds of the change of an observation's estimate of the partial derivatives, per unit of distance.
    """

    rows: FloatArray
    gradient: FloatArray
    prior: FloatArray
    lipschitz: FloatArray


@njit(cache=True, nogil=True)
def alias_table(weights: FloatArray) -> tuple[FloatArray, NDArray[np.int64]]:
    """Share of each place that is its own, and whose the rest is (Vose 1991, IEEE TSE 17)."""
    n = len(weights)
    share, other = weights * (n / weights.sum()), np.arange(n)
    places = np.empty(n, np.int64)
    small, large = 0, n
    for i in range(n):
        if share[i] < 1.0:
            places[small] = i
            small += 1
        else:
            large -= 1
            places[large] = i
    while small > 0 and large < n:
        small -= 1
        low, high = places[small], places[large]
        other[low] = high
        share[high] -= 1.0 - share[low]
        if share[high] < 1.0:
            large += 1
            places[small] = high
            small += 1
    # What rounding left over has its place for itself.
    for k in range(small):
        share[places[k]] = 1.0
    for k in range(large, n):
        share[places[k]] = 1.0
    return share, other


@njit(cache=True, nogil=True)
def _softplus(x: float) -> float:
    return max(x, 0.0) + np.log1p(np.exp(-abs(x)))


@njit(cache=True, nogil=True, fastmath=_FAST)
def _dot(rows: FloatArray, i: int, x: FloatArray, d: int) -> float:
    # Of indices, not of views: threads would count the views' references in one place.
    total = 0.0
    for j in range(d):
        total += rows[i, j] * x[j]
    return total


@njit(cache=True, nogil=True)
def _remainder(rows: FloatArray, i: int, before: FloatArray, after: FloatArray) -> float:
    """How far the change of observation i's log likelihood is from that of its expansion of second order."""
    d = len(before)
    a, b, eta = _dot(rows, i, before, d), _dot(rows, i, after, d), rows[i, d]
    p = 1.0 / (1.0 + np.exp(eta))
    change = _softplus(-(eta + a)) - _softplus(-(eta + b))
    return change - p * (b - a) + 0.5 * p * (1.0 - p) * (b * b - a * a)


@njit(cache=True, nogil=True)
def _cube(offset: FloatArray, euclidean: bool) -> float:
    total = 0.0
    for x in offset:
        total += x * x if euclidean else abs(x)
    return total**1.5 if euclidean else total**3


@njit(cache=True, nogil=True)
def scalable_mh(
    rng: np.random.Generator, at: FloatArray, draws: FloatArray, factors: Factors, proposal: Proposal
) -> Counts:
    """A step a draw; ``at`` is where the chain is and is moved.

    Candidates for a rejection are a Poisson number of observations picked in proportion to psi (Fukui and Todo 2009);
    where more are expected than there are observations, Metropolis and Hastings' decision on all of them takes the
    place of the factorised one, as in the paper.
    """
    rows, share, other, root = factors.rows, factors.share, factors.other, proposal.root
    n, d = len(rows), len(at)
    fresh = np.sqrt(1.0 - proposal.keep**2)
    cube = _cube(at, factors.euclidean)
    accepted, evaluated, violations = 0, 0, 0
    noise, new = np.empty(d), np.empty(d)
    for t in range(len(draws)):
        log_ratio = 0.0
        for j in range(d):
            noise[j] = rng.standard_normal()
        for j in range(d):
            new[j] = proposal.keep * at[j] + fresh * _dot(root, j, noise, j + 1)
            log_ratio += proposal.gradient[j] * (new[j] - at[j])
        new_cube = _cube(new, factors.euclidean)
        scale = cube + new_cube
        if scale * factors.total < n:
            go = rng.standard_exponential() > -log_ratio
            candidates = rng.poisson(scale * factors.total) if go else 0
            for _ in range(candidates):
                place = rng.random() * n
                i = int(place)
                if place - i >= share[i]:
                    i = other[i]
                loss, bound = -_remainder(rows, i, at, new), scale * rows[i, d + 1]
                evaluated += 2
                violations += abs(loss) > bound * (1.0 + _RELATIVE) + _ABSOLUTE
                if rng.random() * bound < loss:
                    go = False
                    break
        else:
            for i in range(n):
                log_ratio += _remainder(rows, i, at, new)
            evaluated += 2 * n
            go = rng.standard_exponential() > -log_ratio
        if go:
            at[:] = new
            cube = new_cube
            accepted += 1
        draws[t] = at
    return Counts(accepted, evaluated, violations)


@njit(cache=True, nogil=True)
def _chosen(place: float, velocity: FloatArray, gradient: FloatArray, lipschitz: FloatArray, reach: float) -> int:
    """The coordinate whose part of the sum of the bounds holds ``place``."""
    k = 0
    while k < len(velocity) - 1:
        part = max(velocity[k] * gradient[k], 0.0) + lipschitz[k] * reach
        if place < part:
            break
        place -= part
        k += 1
    return k


@njit(cache=True, nogil=True)
def zigzag(
    rng: np.random.Generator,
    at: FloatArray,
    velocity: FloatArray,
    draws: FloatArray,
    rates: Rates,
    spacing: float,
) -> Counts:
    """Positions at equally spaced times; ``at`` and ``velocity``, whose elements are 1 or -1, are moved.

    Coordinate k proposes to switch at the rate (v_k g_k)+ + C_k (|offset| + t sqrt d); one proposal of the sum of these
    processes is made and given to a coordinate, which is the same as the first of them. Between two calls the process
    starts anew, which changes nothing: it has no memory.
    """
    rows, gradient, prior, lipschitz = rates.rows, rates.gradient, rates.prior, rates.lipschitz
    n, d = len(rows), len(at)
    slopes = lipschitz.sum()
    growth = np.sqrt(d) * slopes
    switches, evaluated, violations = 0, 0, 0
    made, wait = 0, spacing
    while True:
        distance, drift = 0.0, 0.0
        for j in range(d):
            distance += at[j] * at[j]
            drift += max(velocity[j] * gradient[j], 0.0)
        distance = np.sqrt(distance)
        rate = drift + slopes * distance
        # The time at which the integrated bound, rate t + growth t^2 / 2, has reached an exponential variate.
        target = 2.0 * rng.standard_exponential()
        t = target / (rate + np.sqrt(rate * rate + growth * target))
        moved = 0.0
        while wait <= t - moved:
            moved += wait
            for j in range(d):
                draws[made, j] = at[j] + moved * velocity[j]
            made += 1
            wait = spacing
            if made == len(draws):
                at[:] = draws[-1]
                return Counts(switches, evaluated, violations)
        wait -= t - moved
        for j in range(d):
            at[j] += t * velocity[j]
        reach = distance + t * np.sqrt(d)
        k = _chosen(rng.random() * (drift + slopes * reach), velocity, gradient, lipschitz, reach)
        i = int(rng.random() * n)
        change = rows[i, d + 1] - 1.0 / (1.0 + np.exp(rows[i, d] + _dot(rows, i, at, d)))
        actual = velocity[k] * (gradient[k] + prior[k] * at[k] + n * change * rows[i, k])
        bound = max(velocity[k] * gradient[k], 0.0) + lipschitz[k] * reach
        evaluated += 1
        violations += actual > bound * (1.0 + _RELATIVE) + _ABSOLUTE
        if rng.random() * bound < actual:
            velocity[k] = -velocity[k]
            switches += 1


def compile_all() -> float:
    """Seconds of compiling the loops; 0 where they came from the cache."""
    before, began = _compiled(), time.perf_counter()
    rng, at, draws = np.random.default_rng(1), np.zeros(1), np.zeros((1, 1))
    share, other = alias_table(np.ones(1))
    factors = Factors(np.zeros((1, 3)), share, other, 1.0, False)
    scalable_mh(rng, at, draws, factors, Proposal(np.eye(1), np.zeros(1), 0.0))
    zigzag(rng, at, np.ones(1), draws, Rates(np.zeros((1, 3)), np.zeros(1), np.ones(1), np.ones(1)), 1.0)
    return time.perf_counter() - began if _compiled() > before else 0.0


def _compiled() -> int:
    return sum(sum(loop.stats.cache_misses.values()) for loop in (alias_table, scalable_mh, zigzag))
