"""Search for effects that are normal given their scales under a surrogate, from evaluations of priors and arguments.

Priors of scales become functions of one number each, in tables, and priors of other coefficients quadratic functions.
Neither is exact. The Gibbs sampler corrects for the difference from the surrogate in its own decisions, so that errors
cost acceptance, never validity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.errors import EndedError, RunError
from stansub.target.affine import AffineMap
from stansub.target.approximation import Approximation
from stansub.target.coordinates import Combination, Coordinates
from stansub.target.normal_effects import NormalEffects
from stansub.target.prior_means import PriorMeans
from stansub.target.split import Split
from stansub.tuning.effects.centred_effects import ROUNDING, centred, means_of, without_means
from stansub.tuning.effects.combinations import combined
from stansub.tuning.effects.effect_functions import Functions, slopes_of_log_determinant, triangles_of
from stansub.tuning.effects.effects import Effects
from stansub.tuning.effects.parts import groups_of, parts_of
from stansub.types import FloatArray

Places = NDArray[np.int64]

# Grid of the tables: how far it extends beyond draws, and the distance of nodes.
_BELOW, _ABOVE, _STEP = 20.0, 10.0, 0.05
# Points of the proof, and relative differences up to which gradients may differ there, with other coefficients at their
# mean and elsewhere; step of differences of S.
_PROVED, _SAME, _NEARLY, _APART = 3, 1e-3, 0.05, 1e-5
# Smallest distance of differences of other coefficients' priors.
_LEAST_SD = 1e-3
# Share of precision from the data above which an effect hardly moves with a scale that it shares.
_STRONG = 0.5
# Most scales that are proposed at once, and draws for each to know their distribution.
_TOGETHER, _DRAWS = 12, 3
# Sd of the logarithm of a scale above which it may have a funnel (twelve levels, or a scale near 0).
_UNCERTAIN = 0.2
# First width of a slice, times the square root of the number of effects and scales that change along it.
_WIDTH = 3.0


class _Tables(NamedTuple):
    """Log priors of scales."""

    nodes: FloatArray
    """Shape (n_nodes,)."""
    values: FloatArray
    slopes: FloatArray
    """Shape (n_scales, n_nodes): log priors and their derivatives at the nodes."""


def find_normal_effects(
    split: Split,
    about: Approximation,
    full: Coordinates,
    draws: FloatArray,
    rng: np.random.Generator,
    check: Callable[[], None] = lambda: None,
) -> Structure | None:
    """Return normal effects and their scales, or None if the surrogate has none.

    Parameters
    ----------
    about : Approximation
        The surrogate's.
    full : Coordinates
        Coordinates in which arguments are affine if effects have scales in the likelihood.
    draws : ndarray, shape (n, dim)
        Draws of the surrogate.
    """
    try:
        return _Search(split, about, full, draws, rng, check).found()
    except EndedError:
        raise
    except RunError:
        return None  # not defined at one of the points


@dataclass(frozen=True)
class _Search:
    split: Split
    about: Approximation
    full: Coordinates
    draws: FloatArray
    rng: np.random.Generator
    check: Callable[[], None]

    @cached_property
    def means(self) -> PriorMeans:
        """What is added to coefficients as their mean."""
        is_read = _columns(self._likelihood.jacobian)
        candidates = np.setdiff1d(np.flatnonzero(~is_read), self.full.columns)
        others = np.setdiff1d(np.flatnonzero(is_read), self.full.places)
        return means_of(self._prior, np.asarray(self.draws.mean(axis=0)), others, candidates)

    @cached_property
    def centred_draws(self) -> FloatArray:
        """Draws without the means."""
        return self.means.removed(self.draws)

    @cached_property
    def mean(self) -> FloatArray:
        return np.asarray(self.centred_draws.mean(axis=0))

    @cached_property
    def _prior(self) -> Callable[[FloatArray], FloatArray]:
        model = self.split.prior().model

        def gradient(theta: FloatArray) -> FloatArray:
            self.check()
            return model.log_density_gradient(theta)[1]

        return gradient

    @cached_property
    def prior(self) -> Callable[[FloatArray], FloatArray]:
        """Gradient of the log density without the likelihood, by parameters without their means."""
        return without_means(self._prior, self.means)

    @cached_property
    def _likelihood(self) -> AffineMap:
        surrogate, coordinates = self.split.surrogate(self.about), self.full.compiled()

        def phi(x: FloatArray) -> FloatArray:
            self.check()
            theta = np.empty_like(x)
            coordinates.outward(x, theta)
            return surrogate.phi(theta)

        return AffineMap.of(phi, self.full.dim)

    @cached_property
    def phi(self) -> AffineMap:
        """The likelihood's arguments, by parameters without their means."""
        own, into = self._likelihood, self.means.inverse
        return AffineMap(lambda x: own.function(into @ x), sp.csc_array(own.jacobian @ into), own.constant)

    @cached_property
    def coefficients(self) -> Places:
        return np.flatnonzero(_columns(self.phi.jacobian))

    @cached_property
    def scales(self) -> Places:
        return np.setdiff1d(np.arange(self.full.dim), self.coefficients)

    def found(self) -> Structure | None:
        if not all(self._likelihood.error(self.full.inward(one)) <= ROUNDING for one in self.draws[[0, -1]]):
            return None
        others = np.setdiff1d(self.coefficients, self.full.places)
        moved = self.mean.copy()
        moved[self.scales] += self.rng.uniform(-0.5, 0.5, len(self.scales))
        effects = centred(self.prior, self.mean, moved, others, self.scales)
        if effects is None:
            return None
        functions = Functions.of(self.full).joined(effects)
        if not functions.places.size:
            return None
        if not np.isin(functions.minima.rows.indices, self.scales).all() or not self.scales.size:
            return None
        tables = self._tables(functions)
        if tables is None or not all(self._is_proved(functions, tables) for _ in range(_PROVED)):
            return None
        others = np.setdiff1d(others, effects.places)
        return Structure(self.prior, self.phi, self.means, self.coefficients, others, self.scales, functions, tables)

    def _tables(self, functions: Functions) -> _Tables | None:
        """Return the log priors of scales where all of them are defined."""
        lows, highs = (of(self.centred_draws[:, self.scales]) for of in (np.min, np.max))
        nodes = np.arange(lows - _BELOW, highs + _ABOVE, _STEP / 2)
        theta = self.mean.copy()
        theta[functions.places] = 0
        slopes = np.full((len(nodes), len(self.scales)), np.nan)
        for node, slope in zip(nodes, slopes, strict=True):
            theta[self.scales] = node
            try:
                # The density of u = 0 is 1 / |S|.
                slope[:] = (self.prior(theta) + _slopes(functions, theta))[self.scales]
            except EndedError:
                raise
            except RunError:
                pass
        middle = int(np.searchsorted(nodes, np.median(self.centred_draws[:, self.scales])))
        bad = np.flatnonzero(~np.isfinite(slopes).all(axis=1))
        first, end = bad[bad < middle].max(initial=-1) + 1, bad[bad >= middle].min(initial=len(nodes))
        n = (end - first - 1) // 2  # intervals, by Simpson's rule
        if n < 2:
            return None
        slopes = slopes[first : first + 2 * n + 1].T
        steps = _STEP / 6 * (slopes[:, :-2:2] + 4 * slopes[:, 1::2] + slopes[:, 2::2])
        values = np.concatenate([np.zeros((len(slopes), 1)), np.cumsum(steps, axis=1)], axis=1)
        nodes = nodes[first : first + 2 * n + 1 : 2]
        return _Tables(nodes, values - values.max(axis=1, keepdims=True), slopes[:, ::2].copy())

    def _is_proved(self, functions: Functions, tables: _Tables) -> bool:
        """Return whether the prior's gradient at a random point is that of effects and tables.

        Other coefficients are at their mean, and nearly so elsewhere: a scale's prior may depend on that of errors.
        """
        draws = self.centred_draws
        draw = draws[self.rng.integers(len(draws))]
        theta, others = draw.copy(), np.setdiff1d(self.coefficients, functions.places)
        theta[others] = self.mean[others]
        theta[self.scales] += self.rng.standard_normal(len(self.scales))
        nodes, values, slopes = tables
        theta[self.scales] = np.clip(theta[self.scales], nodes[0], nodes[-1])
        expected = np.zeros(len(theta))
        z = self.rng.standard_normal(len(theta))
        theta[functions.places], expected[functions.places] = z[functions.places], -z[functions.places]
        for k, place in enumerate(self.scales):
            expected[place] = scipy.interpolate.CubicHermiteSpline(nodes, values[k], slopes[k])(theta[place], 1)
        expected -= _slopes(functions, theta)
        scales, slopes_of = functions.minima(theta), functions.minima.jacobian(theta)
        for places, which in functions.by_size():
            k, f = places.shape[1], scales[which]
            lower, own = triangles_of(f, k), z[places]
            theta[places] = np.einsum("nij,nj->ni", lower, own)
            inverse = np.linalg.inv(lower)
            expected[places] = -np.einsum("nji,nj->ni", inverse, own)
            for j, step in enumerate(_APART * np.eye(f.shape[1])):
                change = (triangles_of(f + step, k) - triangles_of(f - step, k)) / (2 * _APART)
                expected += slopes_of[which[:, j]].T @ np.einsum("ni,nij,njk,nk->n", own, inverse, change, own)
        elsewhere = theta.copy()
        elsewhere[others] = draw[others]
        errors = np.abs([self.prior(theta) - expected, self.prior(elsewhere) - expected]) / (1 + np.abs(expected))
        return bool((np.delete(errors, others, axis=1).max(axis=1) < (_SAME, _NEARLY)).all())


def _slopes(functions: Functions, theta: FloatArray) -> FloatArray:
    """Return the gradient of the sum of log |S| over blocks whose parameters are effects, shape (dim,)."""
    scales, slopes, found = functions.minima(theta), functions.minima.jacobian(theta), np.zeros(len(theta))
    for places, which in functions.by_size():
        found += slopes[which.ravel()].T @ slopes_of_log_determinant(scales[which], places.shape[1]).ravel()
    return found


def _columns(matrix: sp.csc_array) -> NDArray[np.bool_]:
    """Return which columns are not 0."""
    return np.asarray(abs(matrix).max(axis=0).toarray().ravel() > ROUNDING)


class _Move(NamedTuple):
    """A slice along a direction of the scales, with the effects fixed or their standardised values."""

    direction: FloatArray
    """Shape (dim,)."""
    fixes: bool
    """Whether the effects are fixed."""
    n: int
    """The number of effects and scales that change."""


@dataclass(frozen=True)
class Structure:
    """Normal effects and their scales, for any expansion of the likelihood."""

    prior: Callable[[FloatArray], FloatArray]
    """Gradient of the log density without the likelihood."""
    phi: AffineMap
    """The likelihood's arguments in coordinates with u in the place of z."""
    means: PriorMeans
    """What is added to coefficients; prior and phi are of parameters without it."""
    coefficients: Places
    others: Places
    scales: Places
    """Places of u or z and of other coefficients, of these others alone, and of scales."""
    functions: Functions
    tables: _Tables

    @property
    def dim(self) -> int:
        """Return the number of parameters."""
        return len(self.coefficients) + len(self.scales)

    @cached_property
    def _combined(self) -> tuple[sp.csc_array, sp.csr_array]:
        """Combinations of the coefficients, and the coefficients from these, each shape (n, n)."""
        places = self.functions.places
        columns, rows = combined(sp.csc_array(self.phi.jacobian[:, places]), places, self.dim)
        own = self.coefficients
        return sp.csc_array(columns[own][:, own]), sp.csr_array(rows[own][:, own])

    def is_uncertain(self, draws: FloatArray) -> bool:
        """Return whether a scale may have a funnel, by draws."""
        return bool((np.std(draws[:, self.scales], axis=0) > _UNCERTAIN).any())

    def about(self, approximation: Approximation, draws: FloatArray) -> NormalEffects:
        """Return them with an approximation's second-order expansion and mean slope, given draws of a surrogate."""
        draws = self.means.removed(draws)
        functions, index, of_scale = self.functions, np.full(self.dim, -1), np.full(self.dim, -1)
        index[self.coefficients] = np.arange(len(self.coefficients))
        of_scale[self.scales] = np.arange(len(self.scales))
        places = index[functions.places]
        precision, linear = self._normal(approximation, draws)
        groups = groups_of(self._reads(draws), functions.sizes, places, self._combined[1])
        parts = parts_of(self._pattern(precision, places), groups)
        part_starts, part_rows, order = (
            np.concatenate(own, dtype=np.int32) for own in zip(*(part.arrays for part in parts), strict=True)
        )
        moves = list(self._moves(precision, index, draws))
        directions = sp.csr_array(np.array([one.direction[self.scales] for one in moves]))
        return NormalEffects(
            self.coefficients.astype(np.int32),
            self.scales.astype(np.int32),
            float(self.tables.nodes[0]),
            _STEP,
            self.tables.values,
            self.tables.slopes,
            functions.sizes.astype(np.int32),
            places.astype(np.int32),
            functions.minima.counts.astype(np.int32),
            functions.minima.rows.indptr.astype(np.int32),
            of_scale[functions.minima.rows.indices].astype(np.int32),
            functions.minima.rows.data,
            functions.minima.constants,
            functions.has_effects.astype(np.uint8),
            precision.indptr.astype(np.int32),
            precision.indices.astype(np.int32),
            precision.data,
            linear,
            np.array([len(part.members) for part in parts], np.int32),
            part_starts,
            part_rows,
            order,
            directions.indptr.astype(np.int32),
            directions.indices.astype(np.int32),
            directions.data,
            np.array([_WIDTH / np.sqrt(1 + one.n) for one in moves]),
            np.array([one.fixes for one in moves], np.uint8),
            1.0,
            *self._proposal(draws if len(parts) == 1 else draws[:0]),
            self.means,
            Combination.of(*self._combined),
        )

    def _proposal(self, draws: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return centre and root of the scales' distribution, empty for many scales or few draws."""
        scales = draws[:, self.scales]
        n = len(self.scales)
        if n > _TOGETHER or len(draws) < _DRAWS * n or np.linalg.matrix_rank(scales - scales.mean(axis=0)) < n:
            return np.empty(0), np.empty((0, 0))
        return scales.mean(axis=0), np.linalg.cholesky(np.atleast_2d(np.cov(scales, rowvar=False)))

    def joined(self, effects: Effects) -> Effects:
        """Return effects with those that are parameters themselves, about their means."""
        functions, own = self.functions, self.functions.has_effects
        places = functions.places[np.repeat(own, functions.sizes)]
        minima = functions.minima[np.repeat(own, functions.numbers)]
        full = Coordinates.of(functions.sizes[own], places, minima)
        images = sp.csc_array(self.phi.jacobian[:, places])
        return effects.joined(Effects(full, images, np.ones(len(full.sizes), bool), self.means))

    def _pattern(self, precision: sp.csr_array, places: Places) -> sp.csc_array:
        """Return a matrix with the pattern of the coefficients' precision given scales."""
        sizes = self.functions.sizes
        blocks = sp.csr_array(
            (np.ones(len(places)), (places, np.repeat(np.arange(len(sizes)), sizes))),
            shape=(precision.shape[0], len(sizes)),
        )
        # Of two elements that rounding alone keeps from 0, one may be 0.
        rows = abs(self._combined[1])
        of_effects = rows.T @ (blocks @ blocks.T) @ rows
        return sp.csc_array(abs(precision) + abs(precision).T + of_effects + sp.eye_array(precision.shape[0]))

    def _reads(self, draws: FloatArray) -> sp.csr_array:
        """Return how much each block's functions change with each parameter, without signs, shape (n_blocks, dim)."""
        functions = self.functions
        block_of = np.repeat(np.arange(len(functions.sizes)), functions.numbers)
        of_block = sp.csr_array((np.ones(len(block_of)), (block_of, np.arange(len(block_of)))))
        return sp.csr_array(of_block @ abs(functions.minima.jacobian(draws.mean(axis=0))))

    def _normal(self, about: Approximation, draws: FloatArray) -> tuple[sp.csr_array, FloatArray]:
        """Return M and b of the likelihood and of the priors of other coefficients, by differences over their sds.

        They are by combinations of coefficients; the others are not combined.
        """
        quadratic, others, mean = about.quadratic, self.others, draws.mean(axis=0)
        jacobian = _product(sp.csr_array(self.phi.jacobian[:, self.coefficients]), self._combined[1])
        precision = sp.csr_array(jacobian.T @ quadratic.precision @ jacobian)
        slope = quadratic.gradient + about.mean_slope
        linear = jacobian.T @ (slope + quadratic.precision @ (quadratic.point - self.phi.constant))
        places = np.searchsorted(self.coefficients, others)
        here, curvatures = self.prior(mean)[others], np.zeros((len(others), len(others)))
        for k, (place, sd) in enumerate(zip(others, draws[:, others].std(axis=0), strict=True)):
            ends = []
            for sign in (-1, 1):
                theta = mean.copy()
                theta[place] += sign * max(sd, _LEAST_SD)
                ends.append(self.prior(theta)[others])
            curvatures[:, k] = (ends[0] - ends[1]) / (2 * max(sd, _LEAST_SD))
        curvatures = (curvatures + curvatures.T) / 2
        curvatures[np.abs(curvatures) < ROUNDING] = 0
        linear[places] += here + curvatures @ mean[others]
        spread = sp.csr_array(
            (np.ones(len(places)), (places, np.arange(len(places)))), shape=(len(linear), len(places))
        )
        found = sp.csr_array(precision + spread @ sp.csr_array(curvatures) @ spread.T)
        found.sort_indices()
        return found, linear

    def _moves(self, precision: sp.csr_array, index: Places, draws: FloatArray) -> Iterator[_Move]:
        """Yield those of each scale, and of scales that several blocks share."""
        functions, rows = self.functions, self.functions.minima.jacobian(draws.mean(axis=0))
        reads = sp.csc_array(self._reads(draws))
        lines = []
        for k in self.scales:
            direction = np.zeros(self.dim)
            direction[k] = 1
            readers = reads.indices[reads.indptr[k] : reads.indptr[k + 1]]
            lines.append((direction, int(functions.sizes[readers].sum())))
        for fixes in (True, False):
            yield from (_Move(direction, fixes, n) for direction, n in lines)
        alone = np.diff(reads.indptr) == 1
        columns = self._combined[0]
        own = np.asarray((columns * (precision @ columns)).sum(axis=0)).ravel()  # the effects' own precisions
        informed = np.mean([self._informed(own, index, theta) for theta in draws], axis=0)
        first, single = functions.firsts, functions.sizes == 1
        local, factor = _first_of(rows, alone)
        for k in self.scales[~alone[self.scales]]:
            column = rows[:, [k]].toarray().ravel()
            direction = np.zeros((2, self.dim))  # with all, and with the informed effects' scales
            direction[:, k] = 1
            blocks = np.flatnonzero(single & (column[first] != 0) & (local[first] >= 0))
            own = first[blocks]
            direction[0, local[own]] = -column[own] / factor[own]
            direction[1, local[own]] = direction[0, local[own]] * (informed[blocks] > _STRONG)
            for one, modes in ((direction[0], (True,)), (direction[1], (True, False))):
                n = int(np.count_nonzero(one))
                if n > 1:
                    changed = n + int(np.count_nonzero(rows @ np.asarray(one)))
                    yield from (_Move(one, fixes, changed) for fixes in modes)

    def _informed(self, precisions: FloatArray, index: Places, theta: FloatArray) -> FloatArray:
        """Return the share of the precision of each block's first effect that comes from the data."""
        functions = self.functions
        first = np.cumsum(functions.sizes) - functions.sizes
        scales = functions.minima(theta)[functions.firsts]
        own = precisions[index[functions.places[first]]] * np.exp(2 * scales)
        return np.asarray(own / (1 + own))


def _product(a: sp.csr_array, b: sp.csr_array) -> sp.csr_array:
    """Return the product without entries in which all but rounding cancels."""
    found, sizes = (sp.csr_array(one) for one in (a @ b, abs(a) @ abs(b)))
    kept = sp.csr_array(abs(found) > ROUNDING * sizes)
    return sp.csr_array(found.multiply(kept))


def _first_of(rows: sp.csr_array, which: NDArray[np.bool_]) -> tuple[Places, FloatArray]:
    """Return column and value of each row's first entry in some columns; -1 and 0 if it has none."""
    entries = rows.tocoo()
    own = np.flatnonzero(which[entries.col])[::-1]  # the first entry of a row is set last
    columns, values = np.full(rows.shape[0], -1), np.zeros(rows.shape[0])
    columns[entries.row[own]], values[entries.row[own]] = entries.col[own], entries.data[own]
    return columns, values
