"""Bounds on the remainders of control variates, for likelihoods of linear predictors.

Let observation i depend on the unconstrained parameters only through q arguments eta_ki = z_ki . theta + o_ki, with
log likelihood f_i(eta_i). Let L L' be the covariance at the mode m and w = L^-1 (theta - m). Between m and theta,
argument k changes by z_ki' L w, which is at most l_ki |w| with l_ki = |L' z_ki|. By Taylor's theorem, the error of an
expansion of order p = 1 or 2 is at most

    sup sum_(k, l, ...) |d^(p + 1) f_i / d eta_k d eta_l ...| l_ki l_li ... |w|^(p + 1) / (p + 1)!

with the supremum over the values of the arguments between the two. In this metric the bound does not depend on the
scaling or correlation of covariates (Cornish et al. 2019 use the raw metric). A block's bound is the sum of those of
its observations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, Self, TypeVar, cast

import numpy as np
import scipy
from numpy.typing import NDArray

from stansub import _loop
from stansub.errors import InputError
from stansub.target.blocks import Blocks
from stansub.target.cubics import permutations
from stansub.target.requests import Request
from stansub.target.rows import Design, Rows, count
from stansub.types import FloatArray, Places

# Radii in standard deviations, as multiples of the square root of the dimension: |w| of a draw of a normal posterior is
# within a few units of that. Beyond the last radius, everything is evaluated.
_RADII = (1.0, 2.5)
_RADIUS = 3.0
# Candidates as a share of the blocks, or observations, above which evaluating all of them in order is no slower.
SHARE = 0.3
# For one observation without a bound: with a constant this large, everything is evaluated, and sums over blocks do not
# overflow.
LARGEST = 1e250
# Maximum numbers of a part, which fit into a processor's second-level cache, and observations of it. With smaller
# parts, threads wait for the interpreter lock between operations.
_PART, _FEWEST, _MOST = 1 << 18, 1 << 11, 1 << 15
# Observations whose products of a covariate with the others are held at once, and columns of a Hessian that take as
# long as a gradient.
_PRODUCTS, _COLUMNS = 1 << 11, 12

R = TypeVar("R")
A = TypeVar("A")


class NoPredictorsError(InputError):
    """The likelihood is not of a recognised family with a linear predictor; the message says why."""


class Family(Protocol):
    """Log likelihoods of all observations as functions of their q arguments, `eta` of shape (q, n).

    Attributes
    ----------
    n_arguments : int
        q.
    bounded : bool
        Whether derivatives are bounded on the whole space.
    floor : float
        0 without kinks. With kinks, derivatives are those of a smooth function near them, bounds on the error of its
        expansion are c (floor + t^(p + 1)), and there is one radius.
    highest : {2, 3}
        Largest order of its expansions with derivatives and bounds; 3 for families of one argument.
    density : Density or Program
        The family for the decision loop.
    data : sequence of ndarray, shape (n,)
        Data of the density for each observation, p columns of any types.
    nanoseconds : float
        About how long a log likelihood takes in a pass over many, from their arguments; with its gradient, twice as
        long. It is the same on every machine, so that choices by it are.
    is_known : bool
        Whether it is a family with a name. Posteriors of other likelihoods may well have several modes.
    """

    @property
    def n_arguments(self) -> int: ...

    @property
    def bounded(self) -> bool: ...

    @property
    def floor(self) -> float: ...

    @property
    def highest(self) -> int: ...

    @property
    def density(self) -> _loop.Density | _loop.Program: ...

    @property
    def data(self) -> Sequence[NDArray[Any]] | FloatArray: ...

    @property
    def nanoseconds(self) -> float: ...

    @property
    def is_known(self) -> bool: ...

    def products(self) -> Iterable[tuple[frozenset[int], frozenset[int]]]:
        """Return the arguments that the two factors of each product of its program read."""

    def part(self, rows: Rows) -> Family:
        """Return the family of some observations."""

    def compacted(self) -> Family:
        """Return the family in less memory if possible; only its parts can then be evaluated."""

    def smoothed(self, centre: FloatArray, lengths: FloatArray) -> Family:
        """Return the family with kinks smoothed on the scale of the lengths of the arguments about a centre.

        Its log likelihoods keep their kinks; its derivatives, and values returned with these, are smooth.
        """

    def log_lik(self, eta: FloatArray) -> FloatArray:
        """Return all f_i, up to constants, shape (n,)."""

    def gradients(self, eta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return log likelihoods, shape (n,), and gradients, shape (q, n), at the least cost."""

    def derivatives(self, orders: Sequence[int], eta: FloatArray) -> list[FloatArray]:
        """Return derivatives in the arguments of some orders, at less than their total cost.

        Order 0 is `log_lik`, order 1 gives gradients, shape (q, n), and order 2 Hessians, shape (q, q, n). Order 3,
        available if `highest` is 3, gives third derivatives, shape (n,).
        """

    def largest(self, order: int, centre: FloatArray, lengths: FloatArray, radius: float) -> FloatArray:
        """Return bounds on errors of expansions on boxes, such as those from derivatives of an order, times lengths.

        Parameters
        ----------
        order : {2, 3, 4}
            4 only if `highest` is 3.
        centre, lengths : ndarray, shape (q, n)
            The arguments differ from the centre by at most `lengths * radius`.
        radius : float
            May be infinite if the family is `bounded`.

        Returns
        -------
        ndarray, shape (n,)
            Numbers such that the error of a Taylor expansion of one order less is at most these times t^order / order!
            if the arguments differ from the centre by at most `lengths * t`, t <= `radius`. One such number is the
            supremum of sum_(k, l, m) |d^3 f / d eta_k d eta_l d eta_m| l_k l_l l_m (order 3). With kinks,
            floor + t^order replaces t^order.
        """

    def split(self, order: int, centre: FloatArray, lengths: FloatArray, radii: Sequence[float]) -> FloatArray:
        """Return such bounds by radius and argument, shape (n_radii, q, n).

        If argument k differs from the centre by `lengths[k] * s_k`, |s_k| <= radius, the error is at most the sum over
        arguments of bounds times (floor + |s_k|^order) / order!.
        """


@dataclass(frozen=True)
class LinearPredictors:
    """Dependence of observations on parameters: q arguments each, affine in the unconstrained parameters."""

    design: tuple[Design, ...]
    """Each of shape (n_observations, dim) or (1, dim): z_k for each argument; one row if all observations share it."""
    offset: tuple[FloatArray, ...]
    """Each of shape (n_observations,) or (1,): o_k. The first has `n_observations` entries."""
    family: Family
    order: Places | None = None
    """Shape (n_observations,): the observation at each place of the population; by default in order."""
    constant: float | None = None
    """What the sum of all log likelihoods lacks to the program's, if known."""
    _kept: dict[str, tuple[Any, Any]] = field(default_factory=dict, repr=False, compare=False)
    _there: list[tuple[FloatArray, dict[int, FloatArray]]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    @property
    def n_observations(self) -> int:
        """Return the number of observations in the population."""
        return len(self.offset[0])

    def over(self, design: tuple[Design, ...]) -> LinearPredictors:
        """Return the same predictors with the same rows in other memory; what they keep is shared (see `keep`)."""
        return replace(self, design=design)

    def part(self, rows: Rows) -> LinearPredictors:
        """Return the predictors of some observations."""
        design = tuple(z if len(z) == 1 else z[rows] for z in self.design)
        offset = tuple(o if len(o) == 1 else o[rows] for o in self.offset)
        n = count(rows, self.n_observations)
        first = np.broadcast_to(offset[0], n)
        return LinearPredictors(design, (first, *offset[1:]), self.family.part(rows))

    def smoothed(self, centre: FloatArray, lengths: FloatArray) -> LinearPredictors:
        """Return the same predictors with kinks smoothed (see `Family.smoothed`)."""
        if not self.family.floor:
            return self
        return replace(self, family=self.family.smoothed(centre, lengths), _kept={})

    def smoothed_at(self, anchor: FloatArray, cholesky: FloatArray, *, threads: int = 1) -> LinearPredictors:
        """Return the same predictors with kinks smoothed about an anchor, in the metric of a covariance."""

        def of(part: LinearPredictors, _: slice) -> tuple[FloatArray, FloatArray]:
            return part.at(anchor), part.lengths(cholesky)

        if not self.family.floor:
            return self
        centre, lengths = (np.concatenate(one, axis=1) for one in zip(*self.map(of, threads=threads), strict=True))
        return self.smoothed(centre, lengths)

    @property
    def matrices(self) -> tuple[FloatArray, ...]:
        """Return the designs as arrays, for a part of the observations or if memory holds them all."""
        return tuple(z[:] for z in self.design)

    @property
    def is_in_memory(self) -> bool:
        """Return whether designs are arrays and not computed from columns of the data."""
        return all(isinstance(z, np.ndarray) for z in self.design)

    @cached_property
    def ends(self) -> list[slice]:
        """Return slices of all observations in parts that fit into a processor's cache."""
        n, width = self.n_observations, sum(z.shape[1] for z in self.design if len(z) > 1)
        size = min(max(_PART // max(1, width), _FEWEST), _MOST)
        return [slice(first, min(first + size, n)) for first in range(0, n, size)]

    @cached_property
    def _parts(self) -> list[LinearPredictors]:
        """Return the parts themselves, whose arrays are views."""
        return [self.part(rows) for rows in self.ends]

    def each(self, work: Callable[[LinearPredictors, slice], R], *, threads: int = 1) -> Iterator[R]:
        """Map `work` over the parts using threads; yields the results in order, with the parts' slices."""

        def of(number: int) -> R:
            rows = self.ends[number]
            part = self._parts[number] if self.is_in_memory else self.part(rows)
            # Far from the mode, values may be infinite or undefined; each thread has its own setting.
            with np.errstate(over="ignore", invalid="ignore"):
                return work(part, rows)

        numbers = range(len(self.ends))
        if threads <= 1 or len(numbers) == 1:
            yield from map(of, numbers)
            return
        with ThreadPoolExecutor(max_workers=threads) as pool:
            yield from pool.map(of, numbers)

    def map(self, work: Callable[[LinearPredictors, slice], R], *, threads: int = 1) -> list[R]:
        """Return the results of `each` as a list."""
        return list(self.each(work, threads=threads))

    def ask(self, request: Request[LinearPredictors, A], *, threads: int = 1) -> list[A]:
        """Return the answer to a request, as the only holder of observations."""
        return [request.answer(self, threads=threads)]

    def map_at(
        self, theta: FloatArray, work: Callable[[LinearPredictors, FloatArray], R], *, threads: int = 1
    ) -> list[R]:
        """Return results of ``work`` on each part and its arguments at ``theta``.

        If designs are in memory, the arguments at the latest place are kept: the Hessian follows the gradient there.
        """
        known = next((kept for there, kept in self._there if np.array_equal(there, theta)), None)
        kept: dict[int, FloatArray] = {}

        def of(part: LinearPredictors, rows: slice) -> R:
            eta = part.at(theta) if known is None else known[rows.start]
            if self.is_in_memory:
                kept[rows.start] = eta
            return work(part, eta)

        found = self.map(of, threads=threads)
        self._there[:] = [(theta.copy(), kept)] if self.is_in_memory else []
        return found

    def at(self, theta: FloatArray) -> FloatArray:
        """Return the arguments, shape (q, n_observations)."""
        return self._spread([z @ theta + o for z, o in zip(self.matrices, self.offset, strict=True)])

    def lengths(self, cholesky: FloatArray) -> FloatArray:
        """Return |L' z_k|, how far each argument moves per unit step in the metric, shape (q, n_observations)."""
        moves = (cholesky.T @ z.T for z in self.matrices)
        return self._spread([np.sqrt(np.einsum("ji,ji->i", move, move)) for move in moves])

    def bounds(self, anchor: FloatArray, cholesky: FloatArray, blocks: Blocks, order: int) -> RemainderBounds:
        """Return bounds on the remainders of expansions of an order about an anchor, in a covariance's metric."""
        if self.family.floor:
            raise NoPredictorsError("the bounds of blocks are for log likelihoods without kinks")
        centre, lengths, radii = self.at(anchor), self.lengths(cholesky), self.radii()
        constants = [self.sums(self.constants(centre, lengths, radius, order=order), blocks) for radius in radii]
        whitening = np.asarray(np.linalg.inv(cholesky), np.float64)
        return RemainderBounds(anchor, whitening, order, radii, np.array(constants))

    def sums(self, values: FloatArray, blocks: Blocks) -> FloatArray:
        """Return sums of observations' values over the blocks of the population."""
        return np.asarray(np.add.reduceat(values if self.order is None else values[self.order], blocks.starts))

    def log_lik(self, theta: FloatArray) -> FloatArray:
        """Return log likelihoods of all observations, up to constants, shape (n_observations,)."""
        return np.concatenate(self.map(lambda part, _: part.family.log_lik(part.at(theta))))

    def radii(self) -> FloatArray:
        """Return the values of |w| up to which there are bounds, increasing."""
        finite = finite_radii(self.design[0].shape[1])
        # Within a smaller radius, many observations have no kink, and a factor for larger ones is infinite.
        return np.array([*finite[-1 if self.family.floor else 0 :], *[np.inf] * self.family.bounded])

    def constants(self, centre: FloatArray, lengths: FloatArray, radius: float, *, order: int = 2) -> FloatArray:
        """Return the bound of an observation's remainder as a multiple of |w|^(order + 1), shape (n_observations,).

        Parameters
        ----------
        centre, lengths : ndarray, shape (q, n_observations)
            Arguments at the anchor, and how far they move (see `lengths`).
        radius : float
            Largest |w| for which the bounds hold.
        order : {1, 2}
            Order of the expansion.
        """
        largest = self.family.largest(order + 1, centre, lengths, radius)
        return np.minimum(largest / math.factorial(order + 1), LARGEST)

    def gradient(self, slopes: FloatArray) -> FloatArray:
        """Return the gradient of the sum, (dim,), from those in the arguments, (q, n_observations)."""
        each = [slope @ z if len(z) > 1 else slope.sum() * z[0] for z, slope in zip(self.matrices, slopes, strict=True)]
        return np.asarray(np.sum(each, axis=0))

    def hessian(self, curves: FloatArray) -> FloatArray:
        """Return the Hessian of the sum, (dim, dim), from those in the arguments, (q, q, n_observations)."""
        designs, dim = self.matrices, self.design[0].shape[1]
        hessian = np.zeros((dim, dim))
        for k, (z, row) in enumerate(zip(designs, curves, strict=True)):
            for other, curve in zip(designs[:k], row[:k], strict=True):
                hessian += 2 * _weighted(z, curve, other)
            hessian += _weighted(z, row[k], z)
        return (hessian + hessian.T) / 2

    def hessian_passes(self) -> float:
        """Return the cost of a Hessian where the gradient is known, in passes over the observations."""
        return float(max(1.0, self.design[0].shape[1] / _COLUMNS))

    def gradient_at(self, theta: FloatArray, *, threads: int = 1) -> tuple[float, FloatArray]:
        """Return the sum of all log likelihoods, up to a constant, and its gradient, shape (dim,)."""

        def of(part: LinearPredictors, eta: FloatArray) -> tuple[float, FloatArray]:
            values, slopes = part.family.derivatives((0, 1), eta)
            return float(values.sum()), part.gradient(slopes)

        found = self.map_at(theta, of, threads=threads)
        value = float(sum(one for one, _ in found))
        with np.errstate(invalid="ignore"):
            return value, np.asarray(np.sum([slope for _, slope in found], axis=0))

    def hessian_at(self, theta: FloatArray, *, threads: int = 1) -> FloatArray:
        """Return the Hessian of the sum of all log likelihoods, shape (dim, dim).

        The latest result is kept, because the end of a search for the mode is the anchor of control variates.
        """

        def of(part: LinearPredictors, eta: FloatArray) -> FloatArray:
            return part.hessian(*part.family.derivatives((2,), eta))

        def made() -> FloatArray:
            return np.asarray(np.sum(self.map_at(theta, of, threads=threads), axis=0))

        return self.keep("hessian", theta.tobytes(), made)

    def keep(self, name: str, key: Any, make: Callable[[], R]) -> R:
        """Return what was made for a key, if it is the latest of its name, or make and keep it."""
        known, found = self._kept.get(name, (None, None))
        if known != key:
            found = make()
            self._kept[name] = key, found
        return cast("R", found)

    def third(self, weights: FloatArray) -> FloatArray:
        """Return third derivatives of the sum from those in one argument each, (n_observations,).

        They are for j, then k <= j, then l <= k, times the number of permutations of j, k and l.
        """
        (z,), dim = self.matrices, self.design[0].shape[1]
        sums = [np.zeros((j + 1, j + 1)) for j in range(dim)]
        for start in range(0, len(weights), _PRODUCTS):
            rows = slice(start, start + _PRODUCTS)
            own = np.broadcast_to(z, (len(weights), dim))[rows]
            weighted = own * weights[rows, np.newaxis]
            for j, total in enumerate(sums):
                total += (weighted[:, j, np.newaxis] * own[:, : j + 1]).T @ own[:, : j + 1]
        lower = [total[np.tril_indices(len(total))] for total in sums]
        return np.asarray(permutations(dim) * np.concatenate(lower))

    def _spread(self, rows: Sequence[FloatArray]) -> FloatArray:
        return np.array([np.broadcast_to(row, self.n_observations) for row in rows])


@dataclass(frozen=True)
class RemainderBounds:
    """Bounds c_b |w|^(p + 1) on the remainders of expansions of order p at a point, w = A (theta - anchor)."""

    anchor: FloatArray
    """Shape (dim,)."""
    whitening: FloatArray
    """Shape (dim, dim): A."""
    order: int
    """p. One of 1, 2."""
    radii: FloatArray
    """Shape (k,): increasing; row k of the constants holds for |w| up to radius k."""
    constants: FloatArray
    """Shape (k, M): c_b."""
    proved: bool = True
    """Whether they hold for certain; otherwise they were learned from trials."""

    @classmethod
    def of_derivatives(cls, anchor: FloatArray, cholesky: FloatArray, order: int, norms: FloatArray) -> Self:
        """Return bounds from uniform bounds on the derivative of order p + 1 of each block's log likelihood.

        Parameters
        ----------
        cholesky : ndarray, shape (dim, dim)
            L, the metric's factor.
        norms : ndarray, shape (M,)
            At least |D^(p + 1) f [L u, ..., L u]| for any u of length 1.
        """
        constants = np.minimum(norms / math.factorial(order + 1), LARGEST)
        whitening = np.asarray(np.linalg.inv(cholesky), np.float64)
        return cls(anchor, whitening, order, np.array([np.inf]), constants[np.newaxis])

    @property
    def candidates(self) -> float:
        """Return the blocks that a decision is expected to pick for independent draws of a normal posterior."""
        return 2 * mean_power(len(self.anchor), self.order + 1) * float(self.constants[0].sum())

    def compiled(self, share: float = SHARE) -> _loop.RemainderBounds:
        """Return the bounds for the decision loop, which evaluates all blocks if it would pick more than this share."""
        return _loop.RemainderBounds(
            self.anchor, self.whitening, self.order, self.radii, self.constants, share, self.proved
        )


def finite_radii(dim: int) -> list[float]:
    """Return the finite values of |w| up to which there are bounds, increasing."""
    return [_RADIUS + k * math.sqrt(dim) for k in _RADII]


def reached(anchor: FloatArray, cholesky: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return a box that contains all points of the largest finite radius: its centre and half its sides."""
    return anchor, np.asarray(finite_radii(len(anchor))[-1] * np.linalg.norm(cholesky, axis=1), np.float64)


def mean_growth(family: Family, dim: int, order: int) -> float:
    """Return the mean of floor + |w|^(p + 1), of which bounds are multiples, for standard normal w."""
    return family.floor + mean_power(dim, order + 1)


def mean_power(dim: int, power: int) -> float:
    """Return the mean of |w|^power for standard normal w of this dimension."""
    return float(2 ** (power / 2) * np.exp(scipy.special.gammaln((dim + power) / 2) - scipy.special.gammaln(dim / 2)))


def _weighted(z: FloatArray, weights: FloatArray, other: FloatArray) -> FloatArray:
    """Return the sum of weights times products of rows; a single row is common to all."""
    if len(z) == len(other) == 1:
        return np.asarray(weights.sum() * z.T @ other)
    if len(z) == 1:
        return np.asarray(z.T @ (weights @ other)[np.newaxis])
    if len(other) == 1:
        return np.asarray((weights @ z)[:, np.newaxis] @ other)
    return np.asarray((z * weights[:, np.newaxis]).T @ other)
