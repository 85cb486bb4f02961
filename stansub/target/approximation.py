"""Approximation of a log likelihood in a surrogate: a second-order expansion and corrections that need no data.

The remainder R of the expansion is of third order, and its variance grows with the number of groups. Three corrections
remove most of it and cost little compared with a gradient of the surrogate:

- A slope. Among linear functions, the one nearest to R under a normal distribution has the mean of R's gradient as its
  slope (Stein's lemma). It is averaged over draws of an earlier surrogate.
- A profile of each coefficient that a part of the observations reads. Along this coefficient, R is a function of one
  number, summed over those observations. A polynomial in a bounded argument is fitted to it, so that the surrogate
  stays a distribution. If one level has several coefficients, such as an intercept and a slope, or a discrimination and
  a difficulty, a polynomial of each two of them is fitted to what their profiles omit.
- Terms of third and fourth order along directions that all observations share (`stansub.target.directions`).

Groupings whose changes other coefficients compensate have no profiles: no argument moves as far as their coefficients.
Examples are effects of years beside a trend, and a slope of a covariate far from 0 beside an intercept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.target.directions import LIMIT, DirectionalTerms, Frame, directional, limited
from stansub.target.groupings import Means, Pairs, Recentred, pairs
from stansub.target.sparse import Quadratic, SparsePredictors
from stansub.types import FloatArray

# Fitting points of a profile, in sds of a coefficient, with their weights.
_NODES = np.array([-4.0, -3.0, -2.25, -1.5, -0.75, 0.75, 1.5, 2.25, 3.0, 4.0])
_WEIGHTS = np.exp(-(_NODES**2) / 4)
# The same for each of two coefficients at once.
_BOTH = np.array([-3.0, -1.5, 1.5, 3.0])
# Most draws over which a slope is averaged: each is a pass over the data.
_SLOPES = 100
# Limit of profiles and terms, relative to the largest difference from their mean at the draws, and what is added.
_BEYOND, _SLACK = 1.5, 1.0
# Size of a grouping's changes, relative to those of the arguments that read it, above which it has no profiles.
_COMPENSATED = 2.0


@dataclass(frozen=True)
class Profiles:
    """Sum of functions of one coordinate each, s^3 (a + b s + c s^2), and of two coordinates each.

    With t = y_j / size, s = t / sqrt(1 + (t / `LIMIT`)^2); y are coordinates of a change (`Frame`). The functions of
    two coordinates are r s (a r + b s + c r^2 + d r s + e s^2), of their bounded arguments r and s.

    Attributes
    ----------
    places : ndarray of int32, shape (k,)
        Indices of the coefficients.
    sizes : ndarray, shape (k,)
    coefficients : ndarray, shape (3, k)
    pairs : ndarray of int32, shape (2, p)
        Indices of the profiles of the two coefficients.
    mixed : ndarray, shape (5, p)
    """

    places: NDArray[np.int32]
    sizes: FloatArray
    coefficients: FloatArray
    pairs: NDArray[np.int32]
    mixed: FloatArray

    @classmethod
    def none(cls) -> Profiles:
        """Return profiles of no coefficients."""
        none, nowhere = np.empty(0), np.empty(0, np.int32)
        return cls(nowhere, none, np.empty((3, 0)), np.empty((2, 0), np.int32), np.empty((5, 0)))

    def value(self, y: FloatArray) -> float:
        """Return the sum."""
        s, _ = _bounded(y[self.places] / self.sizes)
        a, b, c = self.coefficients
        both = s[self.pairs]
        return float(np.sum(s * s * s * (a + s * (b + s * c))) + np.sum(self.mixed * _mixed(*both)))

    def gradient(self, y: FloatArray) -> FloatArray:
        """Return the gradient of the sum by y, shape (m,)."""
        s, root = _bounded(y[self.places] / self.sizes)
        a, b, c = self.coefficients
        slopes = s * s * (3 * a + s * (4 * b + 5 * s * c))
        for which, basis in zip(self.pairs, _mixed_slopes(*s[self.pairs]), strict=True):
            slopes += np.bincount(which, np.sum(self.mixed * basis, axis=0), minlength=len(s))
        slopes *= root * root * root / self.sizes
        return np.asarray(np.bincount(self.places, slopes, minlength=len(y)), np.float64)


@dataclass(frozen=True)
class Approximation:
    """Expansion of a log likelihood, with corrections.

    Attributes
    ----------
    slope : ndarray, shape (m,)
    frame : Frame
        Coordinates of profiles and terms.
    middle, most : float
        Mean of the sum of profiles and terms over draws, and limit of its difference from that, which would otherwise
        outweigh the quadratic far from the draws to which they were fitted.
    """

    quadratic: Quadratic
    slope: FloatArray
    frame: Frame
    profiles: Profiles
    terms: DirectionalTerms
    middle: float = 0.0
    most: float = 1.0

    @classmethod
    def plain(cls, quadratic: Quadratic) -> Approximation:
        """Return the approximation without corrections."""
        m = len(quadratic.point)
        return cls(quadratic, np.zeros(m), Frame.plain(Means.none(m)), Profiles.none(), DirectionalTerms.none(m))

    @property
    def is_corrected(self) -> bool:
        """Return whether there are corrections."""
        return bool(self.slope.any() or self.profiles.places.size or self.terms.means.size)

    @cached_property
    def point(self) -> FloatArray:
        """Return the expansion point."""
        return self.quadratic.point

    def correction(self, phi: FloatArray) -> float:
        """Return the corrections' value."""
        change = phi - self.point
        return float(self.slope @ change) + limited(self.bent(change) - self.middle, self.most)[0]

    def bent(self, change: FloatArray) -> float:
        """Return the sum of profiles and terms without its limit."""
        y = self.frame(change)
        return self.profiles.value(y) + self.terms.value(y, y[self.frame.common])

    def __call__(self, phi: FloatArray) -> float:
        """Return the value."""
        return self.quadratic(phi) + self.correction(phi)

    def gradient(self, phi: FloatArray) -> FloatArray:
        """Return the gradient, shape (m,)."""
        y, common = self.frame(phi - self.point), self.frame.common
        slopes, through = self.terms.gradient(y, y[common])
        slopes += self.profiles.gradient(y)
        slopes[common[: len(through)]] += through
        bent = self.profiles.value(y) + self.terms.value(y, y[common])
        _, share = limited(bent - self.middle, self.most)
        return self.quadratic.slope(phi) + self.slope + self.frame.back(share * slopes)


def approximation(
    predictors: SparsePredictors, phis: Sequence[FloatArray], *, directions: bool = True
) -> tuple[Approximation, int]:
    """Return the expansion about the mean of draws, with the corrections that leave the smallest remainders there.

    Parameters
    ----------
    phis : sequence of ndarray, shape (m,)
        Arguments at draws of a surrogate.
    directions : bool
        Whether terms along directions are among the corrections: only if the draws are close to the posterior.

    Returns
    -------
    tuple
        The approximation, and the number of passes over the data.
    """
    quadratic = predictors.expansion(np.mean(phis, axis=0))
    m, point = predictors.dim, quadratic.point
    if directions:
        frame, terms, n_passes = directional(predictors, point, quadratic.precision, phis)
    else:
        frame, terms, n_passes = Frame.plain(Recentred(predictors, point).means()), DirectionalTerms.none(m), 0
    ys = np.array([frame(phi - point) for phi in phis])
    profiles = _profiles(predictors, quadratic, ys, frame.common)
    found = Approximation(quadratic, np.zeros(m), frame, profiles, terms)
    bent = np.array([found.bent(phi - point) for phi in phis])
    middle = float(bent.mean())
    found = replace(found, middle=middle, most=float(_BEYOND * np.abs(bent - middle).max() + _SLACK))
    some = phis[:: -(-len(phis) // _SLOPES)]
    slope = np.mean([predictors.gradient(phi) - found.gradient(phi) for phi in some], axis=0)
    return replace(found, slope=slope), 1 + len(some) + n_passes


def _mixed(r: FloatArray, s: FloatArray) -> FloatArray:
    """Return the basis of functions of two coefficients, shape (5, n)."""
    return r * s * np.stack([r, s, r * r, r * s, s * s])


def _mixed_slopes(r: FloatArray, s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return its derivatives by the first and by the second."""
    return s * np.stack([2 * r, s, 3 * r * r, 2 * r * s, s * s]), r * np.stack([r, 2 * s, r * r, 2 * r * s, 3 * s * s])


def _profiles(
    predictors: SparsePredictors, quadratic: Quadratic, ys: FloatArray, without: NDArray[np.int32]
) -> Profiles:
    """Return polynomials fitted by weighted least squares, except along some coefficients.

    Parameters
    ----------
    ys : ndarray, shape (n, m)
        Coordinates of draws.
    """
    draws = ys.copy()
    draws[:, without] = 0.0
    sds, levels = draws.std(axis=0), pairs(predictors)
    along = _Along(predictors, quadratic.point, sds)
    values = along.each(_NODES)
    read = along.read & (sds > 0) & np.isfinite(values).all(axis=0)
    read &= ~_compensated(along.groupings, levels, quadratic.precision, draws)
    places = np.flatnonzero(read).astype(np.int32)
    if not places.size:
        return Profiles.none()
    basis = _bounded(_NODES)[0][:, np.newaxis] ** np.array([3, 4, 5])
    joint, mixed = _joint_profiles(along, levels, read)
    index = np.cumsum(read) - 1
    return Profiles(
        places, sds[places], _fitted(basis, _WEIGHTS, values[:, places]), index[joint].astype(np.int32), mixed
    )


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
    """What the expansion omits along one or two coefficients of the groupings, from a point, in sds."""

    predictors: SparsePredictors
    point: FloatArray
    sds: FloatArray

    @cached_property
    def groupings(self) -> list[NDArray[np.bool_]]:
        """Return which coefficients each column reads, shape (m,)."""
        m = self.predictors.dim
        return [column.counts(m) > 0 for row in self.predictors.rows for column in row.columns]

    @cached_property
    def read(self) -> NDArray[np.bool_]:
        """Return which coefficients belong to groupings, shape (m,)."""
        return np.asarray(np.any([np.zeros(self.predictors.dim, bool), *self.groupings], axis=0))

    def each(self, nodes: FloatArray) -> FloatArray:
        """Return the sums over the observations of each coefficient, shape (n_nodes, m)."""
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
        self._part, self._family, self._sds = part, part.family, along.sds
        self._centre = part.at(along.point)
        self._value, self._slopes, self._curves = self._family.derivatives((0, 1, 2), self._centre)

    def each(self, nodes: FloatArray) -> FloatArray:
        found = np.zeros((len(nodes), self._part.dim))
        for sums, node in zip(found, nodes, strict=True):
            for k, row in enumerate(self._part.rows):
                for column in row.columns:
                    change = column.change(node * self._sds)
                    omitted = self._moved((k, change)) - change * (self._slopes[k] + 0.5 * change * self._curves[k, k])
                    sums += column.sums(omitted, len(sums))
        return found

    def both(self, level: Pairs, nodes: FloatArray) -> Iterator[FloatArray]:
        first, second = (
            [((k, change), self._moved((k, change))) for change in (column.change(node * self._sds) for node in nodes)]
            for k, column in zip(level.arguments, level.of(self._part), strict=True)
        )
        for ((j, one), of_one), ((k, other), of_other) in product(first, second):
            expanded = one * other * self._curves[j, k]
            yield level.sums(self._part, self._moved((j, one), (k, other)) - of_one - of_other - expanded)

    def _moved(self, *changes: tuple[int, FloatArray]) -> FloatArray:
        """Return the change of log likelihoods with changes of arguments."""
        moved = self._centre.copy()
        for k, change in changes:
            moved[k] += change
        return np.asarray(self._family.log_lik(moved) - self._value)
