"""Search for inner coordinates that suit a posterior, from how the likelihood's arguments depend on parameters.

Effects z with phi = S z, where other parameters determine the matrix S, form a narrow curved ridge with those
parameters if the data are informative about phi; u = S z does not. If the data are uninformative, z itself is better.
Blocks therefore have weights between both (`stansub.tuning.effects.effects`).

Effects may also reach common arguments, each along a fixed direction, such as the steps of random walks, or two effects
that have shares of one variance: S is diagonal then, and phi = A S z with a constant matrix A.

The search does not read the program's text: evaluations of phi, which need no data, determine S, and random points
prove it. Effects that are u are found from their prior (`stansub.tuning.effects.normal_effects`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.errors import EndedError, RunError
from stansub.target.coordinates import Coordinates
from stansub.target.prior_means import PriorMeans
from stansub.target.separated import Separated
from stansub.target.soft_minima import SoftMinima
from stansub.tuning.effects.components import slots, square_components
from stansub.tuning.effects.effect_functions import functions_of
from stansub.tuning.effects.effects import Effects
from stansub.types import FloatArray

Map = Callable[[FloatArray], FloatArray]
Places = NDArray[np.int64]

# Distance of points from the first, and number of points for the proof.
_SPREAD, _PROVED = 0.5, 3
# Distances at which of two precisions the smaller is negligible; at the first, 1 less a probability may round to 0.
_FAR, _LESS_FAR = 40.0, 18.0
# Distance of points such that a bend is near one of them.
_VISIBLE = 4.0
# Slots of effects that reach common arguments, times parameters that scale them, above which these take too long.
_DEAR = 10_000
# Relative changes below which a value is constant, and by which functions may differ.
_ROUNDING, _SAME = 1e-9, 1e-6


def find_effects(
    phi: Map, start: FloatArray, rng: np.random.Generator, check: Callable[[], None] = lambda: None
) -> Effects:
    """Return blocks of effects, proved at random points; there are none if phi is affine.

    Parameters
    ----------
    phi : callable
        From parameters to arguments of the likelihood, shape (m,).
    start : ndarray, shape (dim,)
        A point near which phi is defined.
    check : callable, optional
        Called at each evaluation; may raise an exception to stop.
    """

    def checked(theta: FloatArray) -> FloatArray:
        check()
        return phi(theta)

    none = Effects.none(len(start))
    try:
        if not _changes(checked, start, rng.standard_normal(len(start))).any():
            return none
        effects, others, reads = _kinds(checked, start, rng)
        blocks, m = _turning(checked, start, rng.spawn(1)[0], effects, reads), reads.shape[0]
        found = _proved(_Matrices(checked, effects, blocks, m), start, rng, effects, others) if blocks else none
        rest = np.flatnonzero(~np.isin(effects, found.full.places))
        scaled = _Scaled(checked, start, effects[rest], reads[:, rest])
        is_dear = scaled.n_slots * len(others) > _DEAR or not len(rest)
        return found if is_dear else found.joined(_proved(scaled, start, rng, effects, others))
    except RunError:  # phi is not defined there
        return none


def _changes(phi: Map, at: FloatArray, step: FloatArray) -> NDArray[np.bool_]:
    """Return which arguments are not affine along a step, shape (m,)."""
    values = np.array([phi(at - 0.5 * step), phi(at), phi(at + 0.5 * step)])
    return np.asarray(np.abs(values[0] - 2 * values[1] + values[2]) > _ROUNDING * (1 + np.abs(values).max(axis=0)))


def _kinds(phi: Map, start: FloatArray, rng: np.random.Generator) -> tuple[Places, Places, sp.csc_array]:
    """Return parameters of three kinds with respect to phi.

    They are the parameters in which phi is affine with slopes that others change, those in which it is not affine, and
    the arguments that the first reach, shape (m, n_effects).
    """
    here, there = start + rng.uniform(-_SPREAD, _SPREAD, (2, len(start)))
    steps = np.ones(len(start))
    separated = Separated.of(phi, here, steps)
    first, second = (separated.changes(phi, at, steps) for at in (here, there))
    above, below = (separated.changes(phi, here, step) for step in (0.5 * steps, -0.5 * steps))
    size, bend = _largest(first), _largest(above + below)
    differs, bends = (~(one <= _ROUNDING * (1 + size)) for one in (_largest(first - second), bend))
    effects, others = np.flatnonzero(differs & ~bends), np.flatnonzero(differs & bends)
    return effects, others, sp.csc_array((abs(first) + abs(second))[:, effects] > _ROUNDING)


def _largest(changes: sp.csc_array) -> FloatArray:
    """Return the largest absolute value of each column."""
    return np.asarray(abs(changes).max(axis=0).toarray()).ravel()


def _turning(
    phi: Map, start: FloatArray, rng: np.random.Generator, effects: Places, reads: sp.csc_array
) -> list[tuple[Places, Places]]:
    """Return effects, by index, with an equal number of arguments that they alone reach: one, or several that turn.

    Others have a scale each (`_Scaled`). A matrix S of the steps of a random walk would have a function for each two.
    """
    blocks = square_components(reads)
    several = [own for own, _ in blocks if len(own) > 1]
    if not several:
        return blocks
    places = np.concatenate(several)
    scaled = _Scaled(phi, start, effects[places], reads[:, places])
    turns = np.isnan(scaled.functions(start + rng.uniform(-_SPREAD, _SPREAD, len(start))))
    of_block = np.repeat(np.arange(len(several)), [len(own) for own in several])
    stay = iter(np.bincount(of_block, turns, minlength=len(several)) > 0)
    return [block for block in blocks if len(block[0]) == 1 or next(stay)]


class _Blocks(NamedTuple):
    """All blocks of one size."""

    places: Places
    """Shape (n, size): the effects."""
    rows: Places
    """Shape (n, size): the arguments."""
    functions: Places
    """Shape (n, size (size + 1) / 2): places of their functions among those of all blocks."""


class _Candidates(ABC):
    """Blocks of effects, of which functions of other parameters may determine S.

    Attributes
    ----------
    sizes : ndarray, shape (n_blocks,)
        Number of effects of each block.
    places : ndarray, shape (n_effects,)
        The effects, block by block.
    """

    sizes: Places
    places: Places

    @property
    def numbers(self) -> Places:
        """Return the number of functions of each block."""
        return self.sizes * (self.sizes + 1) // 2

    @abstractmethod
    def functions(self, theta: FloatArray) -> FloatArray:
        """Return the values of all functions, block by block; NaN where S has another form."""

    @abstractmethod
    def images(self, kept: NDArray[np.bool_]) -> sp.csc_array:
        """Return the change of the arguments with each element of some blocks' S z, shape (m, n)."""


class _Matrices(_Candidates):
    """Blocks that alone reach as many arguments as they have effects."""

    def __init__(self, phi: Map, effects: Places, blocks: list[tuple[Places, Places]], m: int) -> None:
        self._m = m
        self._phi, self.sizes = phi, np.array([len(rows) for _, rows in blocks])
        self.places = effects[np.concatenate([places for places, _ in blocks])]
        self._rows = np.concatenate([rows for _, rows in blocks])
        numbers = self.numbers
        self._alike = []
        for k in np.unique(self.sizes):
            which = np.flatnonzero(self.sizes == k)
            places, rows = (np.array([blocks[j][part] for j in which]) for part in (0, 1))
            firsts = (np.cumsum(numbers) - numbers)[which, np.newaxis]
            self._alike.append(_Blocks(effects[places], rows, firsts + np.arange(k * (k + 1) // 2)))

    def images(self, kept: NDArray[np.bool_]) -> sp.csc_array:
        rows = self._rows[np.repeat(kept, self.sizes)]
        return unit_columns(rows, self._m)

    def functions(self, theta: FloatArray) -> FloatArray:
        """Return logarithms of rows' norms, and inverse hyperbolic tangents of partial correlations, by rows.

        They are those of the lower triangles; NaN for a matrix that is not triangular.
        """
        base, matrices = self._phi(theta), [np.zeros((*own.rows.shape, own.rows.shape[1])) for own in self._alike]
        for slot in range(self.sizes.max()):
            has = [(own, matrix) for own, matrix in zip(self._alike, matrices, strict=True) if slot < matrix.shape[1]]
            shifted = theta.copy()
            for own, _ in has:
                shifted[own.places[:, slot]] += 1
            column = self._phi(shifted) - base
            for own, matrix in has:
                matrix[..., slot] = column[own.rows]
        found = np.full(self.numbers.sum(), np.nan)
        for own, matrix in zip(self._alike, matrices, strict=True):
            is_triangular = (np.abs(np.triu(matrix, 1)) <= _ROUNDING).all(axis=(1, 2))
            good = is_triangular & (np.diagonal(matrix, axis1=1, axis2=2) > 0).all(axis=1)
            found[own.functions[good]] = functions_of(np.tril(matrix[good]))
        return found


class _Scaled(_Candidates):
    """Single effects that each change arguments along a fixed direction, such as the steps of random walks.

    Several may reach an argument: then phi = A S z, with these directions as columns of A.
    """

    def __init__(self, phi: Map, start: FloatArray, places: Places, reads: sp.csc_array) -> None:
        self._phi, self.reads, n = phi, reads, len(places)
        self.sizes = np.ones(n, np.int64)
        self._of = np.repeat(np.arange(n), np.diff(reads.indptr))
        self.places, self._slots = places, slots(reads)
        self.n_slots = self._slots.max(initial=-1) + 1
        values = self._values(start)
        largest = np.zeros(n)
        np.maximum.at(largest, self._of, np.abs(values))
        self._directions = np.divide(values, largest[self._of], out=np.zeros_like(values), where=largest[self._of] > 0)

    def functions(self, theta: FloatArray) -> FloatArray:
        """Return logarithms of the scales; NaN for a direction that changes."""
        values = self._values(theta)
        weights = np.bincount(self._of, self._directions**2, minlength=len(self.sizes))
        sums = np.bincount(self._of, values * self._directions, minlength=len(self.sizes))
        good = (sums > 0) & (weights > 0)
        scales = np.divide(sums, weights, out=np.zeros_like(sums), where=good)
        wrong = np.abs(values - scales[self._of] * self._directions) > _SAME * scales[self._of]
        good &= np.bincount(self._of, wrong, minlength=len(self.sizes)) == 0
        return np.log(scales, out=np.full(len(scales), np.nan), where=good)

    def images(self, kept: NDArray[np.bool_]) -> sp.csc_array:
        return sp.csc_array((self._directions, self.reads.indices, self.reads.indptr), shape=self.reads.shape)[:, kept]

    def _values(self, theta: FloatArray) -> FloatArray:
        """Return the changes of arguments with each effect, ordered as in ``reads``."""
        base = self._phi(theta)
        changes = np.zeros((self.n_slots, len(base)))
        for slot, change in enumerate(changes):
            moved = theta.copy()
            moved[self.places[self._slots == slot]] += 1
            change[:] = self._phi(moved) - base
        return changes[self._slots[self._of], self.reads.indices]


def unit_columns(rows: Places, m: int) -> sp.csc_array:
    """Return the matrix whose columns have a 1 in these rows."""
    return sp.csc_array((np.ones(len(rows)), rows, np.arange(len(rows) + 1)), shape=(m, len(rows)))


def _proved(
    candidates: _Candidates, start: FloatArray, rng: np.random.Generator, effects: Places, others: Places
) -> Effects:
    """Return the blocks whose functions are affine, or soft minima, at random points."""
    numbers = candidates.numbers
    points = start + rng.uniform(-_SPREAD, _SPREAD, (_PROVED, len(start)))
    values = [candidates.functions(theta) for theta in points]

    def agree(functions: SoftMinima) -> NDArray[np.bool_]:
        gaps = [np.abs(functions(theta) - own) for theta, own in zip(points, values, strict=True)]
        return np.asarray(np.max(gaps, axis=0) < _SAME)

    functions = _affine(candidates, start, others)
    good = agree(functions)
    rest = np.setdiff1d(np.arange(len(start)), effects)
    single, unknown = np.repeat(candidates.sizes == 1, numbers), np.ones(len(good), bool)
    for distance in (_FAR, _LESS_FAR):
        bounded, is_bounded = _bounded(candidates, start, others, rest, functions, single & unknown, distance)
        better = np.flatnonzero(is_bounded & agree(bounded))
        functions, good[better] = functions.replaced(better, bounded[better]), True
        unknown = ~good
    kept = np.logical_and.reduceat(good, np.cumsum(numbers) - numbers)
    if not kept.any():
        return Effects.none(len(start))
    places = candidates.places[np.repeat(kept, candidates.sizes)]
    full = Coordinates.of(candidates.sizes[kept], places, functions[np.repeat(kept, numbers)])
    return Effects(full, candidates.images(kept), np.zeros(kept.sum(), bool), PriorMeans.none(len(start)))


def _affine(
    candidates: _Candidates, theta: FloatArray, others: Places, which: slice | Places = slice(None)
) -> SoftMinima:
    """Return some functions as they would be if affine, from their values at and about a point."""
    here = candidates.functions(theta)[which]
    columns = [sp.csc_array((len(here), 0))]
    for k in others:
        moved = theta.copy()
        moved[k] += _SPREAD
        slopes = (candidates.functions(moved)[which] - here) / _SPREAD
        columns.append(sp.csc_array(np.where(np.abs(slopes) < _SAME, 0.0, slopes)[:, np.newaxis]))
    rows = sp.csr_array(sp.hstack(columns))
    spread = sp.csr_array((rows.data, others[rows.indices], rows.indptr), shape=(len(here), len(theta)))
    return SoftMinima.affine(spread, here - rows @ theta[others])


def _bounded(
    candidates: _Candidates,
    start: FloatArray,
    others: Places,
    rest: Places,
    functions: SoftMinima,
    which: NDArray[np.bool_],
    distance: float,
) -> tuple[SoftMinima, NDArray[np.bool_]]:
    """Return functions of which some are replaced by soft minima of the affine functions at both ends of a line.

    Far along a parameter that only one of the two depends on, the function is affine: one on either side. Of a
    parameter that only the other depends on, nothing may be visible near the start, so that all the rest are tried.

    Returns
    -------
    functions : SoftMinima
    is_bounded : ndarray of bool
        Which were replaced, and are so where both affine functions are equal.
    """
    here, is_bounded = candidates.functions(start), np.zeros(len(functions), bool)
    bends = np.zeros((len(others), len(here)), bool)

    def far(sign: int, k: int) -> FloatArray:
        theta = start.copy()
        theta[k] += sign * distance
        return theta

    for row, k in zip(bends, others, strict=True):
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                low, high = (candidates.functions(far(sign, k)) for sign in (-1, 1))
        except EndedError:
            raise
        except RunError:  # phi is not defined there
            continue
        row[:] = which & (np.abs(low + high - 2 * here) > _SAME)
    while bends.any():
        most = int(bends.sum(axis=1).argmax())
        bent, k = np.flatnonzero(bends[most]), others[most]
        before, beyond = (_affine(candidates, far(sign, k), rest, bent) for sign in (-1, 1))
        functions = functions.replaced(bent, SoftMinima.of(before, beyond))
        is_bounded[bent] = _bend_softly(candidates, start, k, before, beyond, bent)
        bends[:, bent] = False
    return functions, is_bounded


def _bend_softly(
    candidates: _Candidates, start: FloatArray, k: int, low: SoftMinima, high: SoftMinima, which: Places
) -> NDArray[np.bool_]:
    """Return which functions are the soft minima of two affine ones where these are equal, along parameter k."""
    with np.errstate(divide="ignore", invalid="ignore"):
        equal = (high(start) - low(start)) / (low.rows - high.rows)[:, [k]].toarray().ravel()
    good = np.abs(equal) <= _FAR
    if good.any():
        first, last, theta, soft = equal[good].min(), equal[good].max(), start.copy(), SoftMinima.of(low, high)
        for step in np.linspace(first, last, 1 + int(np.ceil((last - first) / _VISIBLE))):
            theta[k] = start[k] + step
            good &= np.abs(soft(theta) - candidates.functions(theta)[which]) < _SAME
    return np.asarray(good)
