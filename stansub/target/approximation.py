"""Approximation of a log likelihood in a surrogate: a second-order expansion and corrections that need no data.

The remainder R of the expansion is of third order, and its variance grows with the number of groups. Three corrections
remove most of it and cost little compared with a gradient of the surrogate:

- A slope. Among linear functions, the one nearest to R under a normal distribution has the mean of R's gradient as its
  slope (Stein's lemma). It is averaged over draws of an earlier surrogate.
- A profile of each coefficient that a part of the observations reads. Along its coordinate, R is a function of one
  number, summed over those observations, and is interpolated from a table. If one level has several coefficients, such
  as an intercept and a slope, or a discrimination and a difficulty, a polynomial of each two of them is fitted to what
  their profiles omit, in bounded arguments, so that the surrogate stays a distribution.
- Terms of third and fourth order along directions that all observations share (`stansub.target.directions`).

Groupings whose changes other coefficients compensate have no profiles: no argument moves as far as their coefficients.

If arguments are logarithms of the elements of simplexes, the expansion is that of the Lagrangian
(`stansub.target.simplexes`). What it omits of the constraints is a sum of functions of one number each: profiles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from stansub.target.directions import LIMIT, DirectionalTerms, Frame, coordinates, directional, limited
from stansub.target.groupings import Means, Pairs, joined_columns, pairs
from stansub.target.simplexes import NO_SIMPLEXES, Simplexes, Surface
from stansub.target.sparse import Column, Quadratic, SparsePredictors
from stansub.types import FloatArray

# Nodes of a profile, in sds of a coordinate, and their distance.
LOW, STEP, _N_NODES = -6.0, 0.75, 17
_NODES: FloatArray = LOW + STEP * np.arange(_N_NODES, dtype=float)
# Nodes to which a profile must be finite.
_FINITE = np.abs(_NODES) <= 3
# Fitting points for each of two coefficients at once, in sds.
_BOTH = np.array([-3.0, -1.5, 1.5, 3.0])
# Most draws over which a slope is averaged: each is a pass over the data.
_SLOPES = 100
# Limit of terms, relative to the largest difference from their mean at the draws, and what is added.
_BEYOND, _SLACK = 2.0, 4.0
# Size of a grouping's changes, relative to those of the arguments that read it, above which it has no profiles.
_COMPENSATED = 1.75


@dataclass(frozen=True)
class Profiles:
    """Sum of functions of one coordinate each, from tables, and of two coordinates each.

    With t = y_j / size, functions of one coordinate are cubic polynomials between nodes of t, and lines outside; y are
    coordinates of a change (`Frame`). The functions of two coordinates are r s (a r + b s + c r^2 + d r s + e s^2), of
    their bounded arguments r and s, t / sqrt(1 + (t / `LIMIT`)^2).
    """

    places: NDArray[np.int32]
    """Shape (k,): indices of the coefficients."""
    sizes: FloatArray
    """Shape (k,)."""
    tables: FloatArray
    """Shape (k, n_nodes, 2): value and slope at each node, the slope for a step between nodes."""
    pairs: NDArray[np.int32]
    """Shape (2, p): indices of the profiles of the two coefficients."""
    mixed: FloatArray
    """Shape (5, p)."""

    @classmethod
    def none(cls) -> Profiles:
        """Return profiles of no coefficients."""
        nowhere = np.empty(0, np.int32)
        return cls(nowhere, np.empty(0), np.empty((0, _N_NODES, 2)), np.empty((2, 0), np.int32), np.empty((5, 0)))

    @classmethod
    def of_constraint(cls, constraint: FloatArray, sds: FloatArray) -> Profiles:
        """Return what the expansion of a constraint omits of it, between nodes that suit the sds of changes."""
        places = np.flatnonzero(constraint * sds).astype(np.int32)
        weights, sizes = constraint[places, np.newaxis], sds[places, np.newaxis]
        changes = sizes * _NODES
        slopes = np.expm1(changes) - changes
        tables = np.stack([-weights * (slopes - 0.5 * changes**2), -weights * sizes * slopes], axis=2)
        return replace(cls.none(), places=places, sizes=sds[places], tables=_continued(tables))

    def value(self, y: FloatArray) -> float:
        """Return the sum."""
        t = y[self.places] / self.sizes
        values, _ = self._from_tables(t)
        s, _ = _bounded(t)
        return float(values.sum() + np.sum(self.mixed * _mixed(*s[self.pairs])))

    def gradient(self, y: FloatArray) -> FloatArray:
        """Return the gradient of the sum by y, shape (m,)."""
        t = y[self.places] / self.sizes
        s, root = _bounded(t)
        slopes = np.zeros_like(s)
        for which, basis in zip(self.pairs, _mixed_slopes(*s[self.pairs]), strict=True):
            slopes += np.bincount(which, np.sum(self.mixed * basis, axis=0), minlength=len(s))
        slopes = (slopes * root * root * root + self._from_tables(t)[1]) / self.sizes
        return np.asarray(np.bincount(self.places, slopes, minlength=len(y)), np.float64)

    def _from_tables(self, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the values of functions of one coordinate, and their derivatives by t."""
        at = (t - LOW) / STEP
        first = np.clip(np.nan_to_num(at), 0, _N_NODES - 2).astype(int)
        w = np.clip(at - first, 0, 1)
        (v0, d0), (v1, d1) = (self.tables[np.arange(len(t)), first + k].T for k in (0, 1))
        rest = 1 - w
        slopes = 6 * w * rest * (v1 - v0) + rest * (1 - 3 * w) * d0 + w * (3 * w - 2) * d1
        values = rest * rest * ((1 + 2 * w) * v0 + w * d0) + w * w * ((3 - 2 * w) * v1 - rest * d1)
        return values + slopes * (at - first - w), slopes / STEP


@dataclass(frozen=True)
class Approximation:
    """Expansion of a log likelihood, with corrections."""

    quadratic: Quadratic
    slope: FloatArray
    """Shape (m,): that of what profiles and terms omit."""
    mean_slope: FloatArray
    """Shape (m,): that of what the expansion alone omits: with it, the expansion is the nearest normal likelihood."""
    frame: Frame
    """Coordinates of profiles and terms."""
    profiles: Profiles
    terms: DirectionalTerms
    middle: float = 0.0
    most: float = 1.0
    """Mean of the sum of terms over draws, and limit of its difference from that, which would otherwise outweigh the
    quadratic far from these draws.
    """
    is_mean: bool = False
    """Whether the quadratic is a mean over draws, not the second-order expansion at its point."""
    simplexes: Simplexes = NO_SIMPLEXES
    """Arguments that are logarithms of the elements of a simplex."""

    @classmethod
    def plain(
        cls, quadratic: Quadratic, *, is_mean: bool = False, simplexes: Simplexes = NO_SIMPLEXES
    ) -> Approximation:
        """Return the approximation without corrections."""
        m = len(quadratic.point)
        none, frame, terms = np.zeros(m), Frame.plain(Means.none(m)), DirectionalTerms.none(m)
        return cls(quadratic, none, none, frame, Profiles.none(), terms, is_mean=is_mean, simplexes=simplexes)

    @classmethod
    def on_simplexes(cls, quadratic: Quadratic, simplexes: Simplexes, phis: Sequence[FloatArray]) -> Approximation:
        """Return the approximation with what the expansion of the constraints omits of them at draws."""
        plain, sds = cls.plain(quadratic, simplexes=simplexes), np.std(phis, axis=0)
        return replace(plain, profiles=Profiles.of_constraint(plain.surface.slope, sds)) if simplexes.places else plain

    @property
    def is_corrected(self) -> bool:
        """Return whether there are corrections."""
        return bool(self.slope.any() or self.profiles.places.size or self.terms.means.size)

    @cached_property
    def point(self) -> FloatArray:
        """Return the expansion point."""
        return self.quadratic.point

    @cached_property
    def surface(self) -> Surface:
        """Return what the Lagrangian adds to the expansion, with its sign changed."""
        return Surface.of(self.simplexes, self.quadratic)

    @cached_property
    def precision(self) -> sp.csr_array:
        """Return the precision of the expansion, that of the Lagrangian, shape (m, m)."""
        own = self.quadratic.precision
        return sp.csr_array(own + self.surface.precision) if self.simplexes.places else own

    def loosened(self, phis: Sequence[FloatArray]) -> Approximation:
        """Return it with a limit of terms that suits these draws, too, if they are further out."""
        if not self.terms.means.size:
            return self
        bent = [self._bent(self.frame(phi - self.point)) for phi in phis]
        return replace(self, most=max(self.most, _limit(bent)))

    def correction(self, phi: FloatArray) -> float:
        """Return the corrections' value."""
        change = phi - self.point
        y = self.frame(change)
        bent, _ = limited(self._bent(y), self.most)
        return float(self.slope @ change) - self.surface.value(change) + self.profiles.value(y) + bent

    def _bent(self, y: FloatArray) -> float:
        """Return the sum of terms less its mean, without its limit."""
        return self.terms.value(y, y[self.frame.common]) - self.middle

    def __call__(self, phi: FloatArray) -> float:
        """Return the value."""
        return self.quadratic(phi) + self.correction(phi)

    def gradient(self, phi: FloatArray) -> FloatArray:
        """Return the gradient, shape (m,)."""
        y, common = self.frame(phi - self.point), self.frame.common
        slopes, through = self.terms.gradient(y, y[common])
        slopes[common[: len(through)]] += through
        _, share = limited(self._bent(y), self.most)
        known = self.quadratic.slope(phi) + self.slope - self.surface.gradient(phi - self.point)
        return known + self.frame.back(share * slopes + self.profiles.gradient(y))


def approximation(
    predictors: SparsePredictors,
    phis: Sequence[FloatArray],
    *,
    directions: bool = True,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[Approximation, int]:
    """Return the expansion about the mean of draws, with the corrections that leave the smallest remainders there.

    Parameters
    ----------
    phis : sequence of ndarray, shape (m,)
        Arguments at draws of a surrogate.
    directions : bool
        Whether terms along directions are among the corrections: only if the draws are close to the posterior.
    advance : callable
        Called with the number of gradients of all the data so far and their total.

    Returns
    -------
    tuple
        The approximation, and the number of passes over the data.
    """
    quadratic = predictors.expansion(np.mean(phis, axis=0))
    m, point = predictors.dim, quadratic.point
    levels, terms, n_passes = pairs(predictors), DirectionalTerms.none(m), 0
    frame = coordinates(predictors, levels, point, quadratic.precision, phis)
    if directions:
        frame, terms, n_passes = directional(predictors, point, quadratic.precision, phis, frame)
    ys = np.array([frame(phi - point) for phi in phis])
    profiles = _profiles(predictors, levels, quadratic, ys, frame)
    bent = np.array([terms.value(y, y[frame.common]) for y in ys])
    middle = float(bent.mean())
    found = Approximation(quadratic, np.zeros(m), np.zeros(m), frame, profiles, terms, middle, _limit(bent - middle))
    some = phis[:: -(-len(phis) // _SLOPES)]
    gradients = list[FloatArray]()
    for phi in some:
        advance(len(gradients), len(some))
        gradients.append(predictors.gradient(phi))
    advance(len(some), len(some))
    gradient = np.mean(gradients, axis=0)
    own, expanded = (np.mean([of(phi) for phi in some], axis=0) for of in (found.gradient, quadratic.slope))
    return replace(found, slope=gradient - own, mean_slope=gradient - expanded), 1 + len(some) + n_passes


def _mixed(r: FloatArray, s: FloatArray) -> FloatArray:
    """Return the basis of functions of two coefficients, shape (5, n)."""
    return r * s * np.stack([r, s, r * r, r * s, s * s])


def _mixed_slopes(r: FloatArray, s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return its derivatives by the first and by the second."""
    return s * np.stack([2 * r, s, 3 * r * r, 2 * r * s, s * s]), r * np.stack([r, 2 * s, r * r, 2 * r * s, 3 * s * s])


def _profiles(
    predictors: SparsePredictors, levels: Sequence[Pairs], quadratic: Quadratic, ys: FloatArray, frame: Frame
) -> Profiles:
    """Return profiles of coordinates, except of common ones, and functions of two.

    ``ys`` are the coordinates of draws, shape (n, m).
    """
    draws = ys.copy()
    draws[:, frame.common] = 0.0
    sds, inverse = draws.std(axis=0), frame.within.inverse(predictors.dim)
    along = _Along(predictors, quadratic.point, sds, inverse)
    tables = along.each(_NODES)
    read = along.read & (sds > 0) & np.isfinite(tables[:, _FINITE]).all(axis=(1, 2))
    precision = sp.csr_array(inverse.T @ quadratic.precision @ inverse)
    read &= ~_compensated(along.groupings, levels, precision, draws)
    places = np.flatnonzero(read).astype(np.int32)
    if not places.size:
        return Profiles.none()
    joint, mixed = _joint_profiles(along, levels, read)
    index = np.cumsum(read) - 1
    return Profiles(places, sds[places], _continued(tables[places]), index[joint].astype(np.int32), mixed)


def _continued(tables: FloatArray) -> FloatArray:
    """Return tables that are lines from where they are not finite."""
    found = tables.copy()
    found[..., 1] *= STEP
    middle = len(_NODES) // 2
    for step, nodes in ((1, range(middle + 1, len(_NODES))), (-1, range(middle - 1, -1, -1))):
        for k in nodes:
            value, slope = found[:, k - step].T
            bad = ~np.isfinite(found[:, k]).all(axis=1)
            found[bad, k] = np.column_stack([value + step * slope, slope])[bad]
    return found


def _compensated(
    groupings: Sequence[NDArray[np.bool_]], levels: Sequence[Pairs], precision: sp.csr_array, draws: FloatArray
) -> NDArray[np.bool_]:
    """Return the coefficients of groupings that move further than the arguments that read them, shape (m,).

    The other coefficients of their levels are included. With a change d and the likelihood's precision P,
    (P d)_j / P_jj is the mean change of the arguments that read coefficient j, weighted by curvature: that by all
    coefficients together.
    """
    diagonal = np.abs(precision.diagonal())
    own, of_arguments = diagonal * draws.var(axis=0), (draws @ precision).var(axis=0)
    of_arguments = np.divide(of_arguments, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0)
    found = np.zeros(len(diagonal), bool)
    for places in groupings:
        found[places] |= own[places].sum() > _COMPENSATED**2 * of_arguments[places].sum()
    for one in levels:
        found[one.places] |= found[one.places].any(axis=0)
    return found


def _joint_profiles(
    along: _Along, levels: Sequence[Pairs], read: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], FloatArray]:
    """Return pairs of coefficients, shape (2, p), and the functions of both, shape (5, p)."""
    nodes = np.array(list(product(_BOTH, _BOTH))).T
    weights, basis = np.exp(-np.sum(nodes**2, axis=0) / 4), _mixed(*_bounded(nodes)[0]).T
    found = [(np.empty((2, 0), np.int64), np.empty((5, 0)))]
    for one in levels:
        values = along.both(one, _BOTH)
        keep = read[one.places].all(axis=0) & np.isfinite(values).all(axis=0)
        found.append((one.places[:, keep], _fitted(basis, weights, values[:, keep])))
    joint, mixed = zip(*found, strict=True)
    return np.concatenate(joint, axis=1), np.concatenate(mixed, axis=1)


def _bounded(t: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return s and s / t."""
    root = 1 / np.sqrt(1 + (t / LIMIT) ** 2)
    return t * root, root


def _fitted(basis: FloatArray, weights: FloatArray, values: FloatArray) -> FloatArray:
    """Return coefficients by weighted least squares, shape (n_functions, n)."""
    root = np.sqrt(weights)[:, np.newaxis]
    found, *_ = np.linalg.lstsq(root * basis, root * values, rcond=None)
    return np.asarray(found)


@dataclass(frozen=True)
class _Along:
    """What the expansion omits along one or two coordinates of the groupings, from a point, in sds."""

    predictors: SparsePredictors
    point: FloatArray
    sds: FloatArray
    inverse: sp.csr_array
    """Shape (m, m): matrix from these coordinates to changes of coefficients."""

    @cached_property
    def groupings(self) -> list[NDArray[np.bool_]]:
        """Return which coefficients belong to each, shape (m,)."""
        return [one.counts > 0 for row in self.predictors.rows for one in joined_columns(row)]

    @cached_property
    def read(self) -> NDArray[np.bool_]:
        """Return which coefficients belong to groupings, shape (m,)."""
        return np.asarray(np.any([np.zeros(self.predictors.dim, bool), *self.groupings], axis=0))

    @cached_property
    def absorbs(self) -> NDArray[np.bool_]:
        """Return which coefficients change with coordinates of others, shape (m,)."""
        return np.diff(self.inverse.indptr) > 1

    def each(self, nodes: FloatArray) -> FloatArray:
        """Return the sums over the observations of each coefficient and their derivatives, shape (m, n_nodes, 2)."""
        parts = self.predictors.each(lambda part, _: _PartAlong(part, self).each(nodes))
        return np.asarray(np.sum(parts, axis=0))

    def both(self, level: Pairs, nodes: FloatArray) -> FloatArray:
        """Return the sums over the observations of each pair, without what changes with one of them, shape (k, p).

        There is one for each two nodes; the second changes first.
        """
        parts = self.predictors.each(lambda part, _: list(_PartAlong(part, self).both(level, nodes)))
        return np.asarray(np.sum(parts, axis=0))


class _PartAlong:
    """The same of a part of the observations."""

    def __init__(self, part: SparsePredictors, along: _Along) -> None:
        self._part, self._along, self._family = part, along, part.family
        self._centre = part.at(along.point)
        self._value, self._slopes, self._curves = self._family.derivatives((0, 1, 2), self._centre)

    def each(self, nodes: FloatArray) -> FloatArray:
        found = np.zeros((self._part.dim, len(nodes), 2))
        before: list[Column] = []
        for column in (column for row in self._part.rows for column in row.columns):
            places = column.places
            is_first = ~np.any([np.zeros(len(places), bool), *(one.places == places for one in before)], axis=0)
            before.append(column)
            if not is_first.any():
                continue
            unit = self._unit(places)
            slope = np.sum(unit * self._slopes, axis=0)
            curves = np.einsum("kn,kln->ln", unit, self._curves)
            curve = np.sum(unit * curves, axis=0)
            for j, node in enumerate(nodes):
                value, slopes = self._family.derivatives((0, 1), self._centre + node * unit)
                omitted = value - self._value - node * (slope + 0.5 * node * curve)
                along = np.sum(unit * slopes, axis=0) - slope - node * curve
                found[:, j, 0] += column.sums(np.where(is_first, omitted, 0.0), len(found))
                found[:, j, 1] += column.sums(np.where(is_first, along, 0.0), len(found))
        return found

    def both(self, level: Pairs, nodes: FloatArray) -> Iterator[FloatArray]:
        one, other = (self._unit(column.places) for column in level.of(self._part))
        expanded = np.einsum("kn,kln,ln->n", one, self._curves, other)
        first, second = ([(node, self._moved(node * unit)) for node in nodes] for unit in (one, other))
        for (t, of_one), (s, of_other) in product(first, second):
            yield level.sums(self._part, self._moved(t * one + s * other) - of_one - of_other - t * s * expanded)

    def _unit(self, places: NDArray[np.int32]) -> FloatArray:
        """Return the change of arguments with the coordinate of the coefficient at each observation's place, (q, n).

        Several arguments may read it, and other coefficients change with it.
        """
        unit = np.zeros_like(self._centre)
        for k, row in enumerate(self._part.rows):
            for column in row.columns:
                is_own = column.places == places
                unit[k] += np.where(is_own, column.change(self._along.sds), 0.0)
                beside = ~is_own & (places >= 0) & (column.places >= 0) & self._along.absorbs[column.places]
                if beside.any():
                    own, other = places[beside], column.places[beside]
                    share = np.asarray(self._along.inverse[other, own]).ravel() * self._along.sds[own]
                    unit[k, beside] += column.factors[beside] * share
        return unit

    def _moved(self, change: FloatArray) -> FloatArray:
        """Return the change of log likelihoods with a change of arguments."""
        return np.asarray(self._family.log_lik(self._centre + change) - self._value)


def _limit(bent: ArrayLike) -> float:
    """Return the limit of terms, given their differences from the mean at draws."""
    return float(_BEYOND * np.abs(bent).max() + _SLACK)
