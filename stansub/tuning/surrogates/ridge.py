"""Maxima of a likelihood with a weak ridge, in its own arguments.

The ridge makes a maximum exist where observations do not determine all arguments, and does not depend on scales, as the
priors of effects do. Climbs of logarithms of a simplex stay on the surface where their exponentials add up to 1: beside
it the likelihood has no maximum.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from stansub.errors import RunError
from stansub.progress import Progress
from stansub.target.cholesky import Pattern, definite_factor, pattern_of
from stansub.target.conjugate_gradients import most_products, solve
from stansub.target.simplexes import NO_SIMPLEXES, Places, Simplexes
from stansub.target.sparse import Quadratic, SparsePredictors
from stansub.target.split import Split, Surrogate
from stansub.types import FloatArray

# Precision of the ridge; steps towards its mode, which need not be exact; the share of the promised gain with which one
# is taken; the factor of the damping from step to step; that of the last decrement of a damped step, which is short.
_RIDGE, _SEARCH, _DECREMENT, _ENOUGH, _FACTOR, _DAMPED = 0.1, 200, 0.1, 0.1, 4.0, 1e-3
# Steps that must gain this together: arguments that observations hardly determine go far for little.
_PATIENCE, _STALLED = 20, 1.0
# Times that arguments which would pass their bounds by more than rounding are stopped there, in a step.
_STOPS, _SLIGHT = 5, 1e-9
# Half widths of the cubes on the unconstrained space whose arguments are compared, points in each, and the relative
# difference of their extremes up to which these are bounds.
_WIDTHS, _POINTS, _EQUAL = (20.0, 40.0), 64, 1e-6
# Half width of the cube that shows the scale of arguments, and their mean square above which the ridge is weaker.
_NEAR, _SQUARE = 2.0, 4.0
# Distance from a bound at which climbs stop, at most and as a share of the distance between two; and what is added to
# the precision there.
_MARGIN, _FIXED = 1e-3, 1e12
# Share of the curvature that a weaker ridge adds, and its least factor.
_WEAKER, _WEAKEST = 0.01, 1e-12
# Difference of a sum from 1 up to which it is that of a simplex.
_ROUNDING = 1e-9


class Region(NamedTuple):
    """Where climbs may lead."""

    lower: FloatArray
    upper: FloatArray
    """Shape (m,): bounds on arguments; infinite for none. A likelihood may be defined, and even larger, where no
    parameters lead, such as a mixture at a negative scale.
    """
    weights: FloatArray
    """Shape (m,): factors of the ridge's precision: less than 1 for arguments of a large scale."""
    simplexes: Simplexes = NO_SIMPLEXES
    """Arguments that are logarithms of the elements of a simplex, or of a probability and its complement."""

    @classmethod
    def whole(cls, m: int) -> Region:
        """Return the region without bounds, for arguments of scale 1."""
        return cls(np.full(m, -np.inf), np.full(m, np.inf), np.ones(m))

    @classmethod
    def of_split(cls, split: Split, dim: int, rng: np.random.Generator) -> Region:
        """Return where climbs may lead: anywhere if the family is known, because its likelihood has one maximum."""
        predictors = split.predictors
        is_known = predictors.family.is_known
        return cls.whole(predictors.dim) if is_known else cls.of(split.prior(), dim, predictors.dim, rng)

    @classmethod
    def of(cls, prior: Surrogate, dim: int, m: int, rng: np.random.Generator) -> Region:
        """Return the region with bounds that arguments approach, but do not pass, as parameters become extreme."""

        def sample(width: float) -> FloatArray:
            points = (rng.uniform(-width, width, dim) for _ in range(_POINTS))
            return np.array([phi for theta in points if (phi := defined(prior, theta)) is not None]).reshape(-1, m)

        near, *far = (sample(width) for width in (_NEAR, *_WIDTHS))
        if not all(map(len, (near, *far))):
            return cls.whole(m)
        (low, lower), (high, upper) = (([*(extreme(one, axis=0) for one in far)]) for extreme in (np.min, np.max))
        simplexes = Simplexes(tuple(_simplexes(near)))
        varies, margin = lower < upper, _MARGIN * np.minimum(1.0, upper - lower)
        for one in simplexes.places:
            varies[one] = False
        return cls(
            np.where(varies & (np.abs(low - lower) <= _EQUAL * (1 + np.abs(lower))), lower + margin, -np.inf),
            np.where(varies & (np.abs(high - upper) <= _EQUAL * (1 + np.abs(upper))), upper - margin, np.inf),
            np.minimum(1.0, _SQUARE / np.maximum(np.mean(near**2, axis=0), _SQUARE)),
            simplexes,
        )

    def nearest(self, phi: FloatArray) -> FloatArray:
        """Return the nearest point within the bounds."""
        return np.clip(phi, self.lower, self.upper)

    def inside(self, phi: FloatArray) -> FloatArray:
        """Return a point within the bounds and on the surface of the simplexes near another."""
        return self.simplexes.nearest(self.nearest(phi))

    def with_ridge(self, value: float, phi: FloatArray) -> float:
        """Return a log likelihood with the ridge added."""
        return value - 0.5 * _RIDGE * float(phi @ (self.weights * phi))

    def expansion(self, here: Quadratic, damping: float = 0.0) -> tuple[FloatArray, sp.csc_array]:
        """Return gradient and precision with the ridge, and a damping, so that arguments do not pass their bounds."""
        slope, own = here.gradient - _RIDGE * self.weights * here.point, (_RIDGE + damping) * self.weights
        outward = np.where(slope < 0, here.point <= self.lower, here.point >= self.upper)
        added = sp.diags_array(own + _FIXED * outward, format="csr")
        slope, precision = self._along(here.point, np.where(outward, 0.0, slope), here.precision + added)
        return slope, sp.csc_array(precision)

    def curvature(self, here: Quadratic) -> sp.csr_array:
        """Return the precision of an expansion, along the surface of the simplexes."""
        return self._along(here.point, here.gradient, here.precision)[1]

    def _along(self, point: FloatArray, slope: FloatArray, precision: sp.csr_array) -> tuple[FloatArray, sp.csr_array]:
        """Return gradient and precision of the Lagrangian along the surface, and the precision 1 across it."""
        if not self.simplexes.places:
            return slope, precision
        across, shares = self.simplexes.constraint(point, slope), self.simplexes.columns(np.exp(point))
        normals = shares @ sp.diags_array(1 / np.sqrt((shares * shares).sum(axis=0)))
        normal = normals @ normals.T
        along = sp.eye_array(len(point), format="csr") - normal
        curved = precision + sp.diags_array(across, format="csr")
        return np.asarray(along @ (slope - across)), sp.csr_array(along @ curved @ along + normal)


def _simplexes(phis: FloatArray) -> Iterator[Places]:
    """Yield places of arguments whose exponentials add up to 1 at all points, shape (k, m).

    They are consecutive, or two anywhere.
    """
    values = np.minimum(np.exp(np.minimum(phis, 1.0)), 2.0)
    sums, place, free = np.column_stack([np.zeros(len(phis)), np.cumsum(values, axis=1)]), 0, list[int]()
    while place < phis.shape[1]:
        end = int(np.searchsorted(sums[0], sums[0, place] + 1 - _ROUNDING))
        if place + 1 < end < sums.shape[1] and (abs(sums[:, end] - sums[:, place] - 1) < _ROUNDING).all():
            yield np.arange(place, end)
            place = end
        else:
            free.append(place)
            place += 1
    order = np.array(free, np.int64)[np.argsort(values[0, free], kind="stable")]
    while len(order):
        one, order = order[0], order[1:]
        partner = int(np.searchsorted(values[0, order], 1 - values[0, one] - _ROUNDING))
        if partner < len(order) and (abs(values[:, one] + values[:, order[partner]] - 1) < _ROUNDING).all():
            yield np.array([one, order[partner]])
            order = np.delete(order, partner)


def defined(prior: Surrogate, theta: FloatArray) -> FloatArray | None:
    """Return the arguments at parameters, shape (m,); None if they are not finite."""
    try:
        phi = prior.phi(theta)
    except RunError:
        return None
    return phi if np.isfinite(phi).all() else None


def ridge_mode(
    predictors: SparsePredictors, progress: Progress, start: FloatArray | None = None, *, region: Region | None = None
) -> tuple[Quadratic, int]:
    """Return the expansion near a mode of the likelihood with a ridge, and the passes that it took.

    The search begins where the arguments are 0, unless there is a start.

    The search is Levenberg and Marquardt's: a likelihood of products, such as a discrimination times an ability, has
    saddles, and damping makes every step go up.
    """
    region = Region.whole(predictors.dim) if region is None else region
    begin = region.inside(np.zeros(predictors.dim) if start is None else start)
    here, n_passes, damping, newton = predictors.expansion(begin), 1, 0.0, _Newton()
    heights = list[float]()
    for _ in range(_SEARCH):
        progress.check()
        heights.append(region.with_ridge(here.value, here.point))
        has_stalled = len(heights) > _PATIENCE and heights[-1] - heights[-1 - _PATIENCE] < _STALLED
        if not here.is_finite or has_stalled:
            break
        slope, precision = region.expansion(here, damping)
        step, is_definite, is_bounded = _step(region, here.point, slope, precision, newton)
        decrement = float(slope @ step)
        is_short = is_definite and not is_bounded and decrement <= (_DAMPED if damping else 1) * _DECREMENT
        if not np.isfinite(decrement) or is_short:
            break
        share = -np.inf  # of the gain that the expansion promises
        if is_definite:
            phi = region.inside(here.point + step)
            promised = region.with_ridge(here(phi), phi) - heights[-1]
            gained = region.with_ridge(predictors.log_lik(phi), phi) - heights[-1]
            share = gained / promised if promised > 0 else -np.inf
            n_passes += 1
        if share > _ENOUGH:
            here = predictors.expansion(phi)
            n_passes += 1
        less = damping / _FACTOR if damping > 1 else 0.0
        damping = less if share > 0.5 else max(_FACTOR * damping, 1.0)
    return here, n_passes


def beyond(end: Quadratic, predictors: SparsePredictors, progress: Progress) -> Quadratic | None:
    """Return the expansion near a mode with a weaker ridge than that of ``end``; None if it is not worth it.

    The ridge draws means of outcomes that are far from 0, such as weights in grams, towards 0, where the scale of the
    outcomes is so large that the likelihood hardly resists. The weaker ridge is a share of the curvature there. What
    the log likelihood must gain is the difference of the ridges' normalising constants, as normal densities.
    """
    weights = np.clip(_WEAKER * end.precision.diagonal() / _RIDGE, _WEAKEST, 1.0)
    region = Region.whole(predictors.dim)._replace(weights=weights)
    found, _ = ridge_mode(predictors, progress, end.point, region=region)
    return found if found.is_finite and found.value - end.value > -0.5 * np.log(weights).sum() else None


def is_maximum(end: Quadratic, region: Region) -> bool:
    """Return whether the likelihood with the ridge bends down in all directions at the end of a climb."""
    return definite_factor(region.expansion(end)[1]) is not None


class _Newton:
    """Newton steps of a climb: by factors, or by conjugate gradients if factors are dear and these converge.

    Conjugate gradients may miss negative curvature across the gradient; their steps lead up all the same.
    The factors' pattern is found anew only for more entries than before. Where observations saturate, entries vanish,
    and nearly every step would have a pattern of its own.
    """

    def __init__(self) -> None:
        self._pattern: Pattern | None = None
        self._n_entries, self._converge = -1, True

    def step(self, precision: sp.csc_array, slope: FloatArray) -> tuple[FloatArray, bool]:
        """Return the step and True; no step and False if the precision is not positive definite."""
        if self._pattern is None or precision.nnz > self._n_entries:
            self._pattern, self._n_entries = pattern_of(precision), precision.nnz
        if self._pattern.is_dear and self._converge:
            found = solve(precision, slope, most=most_products(self._pattern, precision.nnz))
            if found.has_converged or not found.is_definite:
                return (found.x, True) if found.is_definite else (np.zeros_like(slope), False)
            self._converge = False
        factor = definite_factor(precision, self._pattern.order)
        return (np.zeros_like(slope), False) if factor is None else (factor.solve(slope), True)


def _step(
    region: Region, point: FloatArray, slope: FloatArray, precision: sp.csc_array, newton: _Newton
) -> tuple[FloatArray, bool, bool]:
    """Return the step, whether there is one, and whether bounds end it.

    Arguments that would pass their bounds move there, and the others as is best given these: if only the arguments that
    pass were stopped, the step might lead down.
    """
    stopped, moves, diagonal = np.zeros(len(point), bool), np.zeros(len(point)), np.abs(precision.diagonal())
    step, is_definite = newton.step(precision, slope)
    for _ in range(_STOPS):
        more = ~stopped & (np.abs(region.nearest(point + step) - point - step) > _SLIGHT)
        if not is_definite or not more.any():
            break
        stopped |= more
        moves[more] = (region.nearest(point + step) - point)[more]
        free = sp.diags_array((~stopped).astype(float))
        own = free @ precision @ free + sp.diags_array(np.where(stopped, diagonal, 0.0))
        right = np.where(stopped, diagonal * moves, slope - precision @ moves)
        step, is_definite = newton.step(sp.csc_array(own), right)
    return step, is_definite, bool(moves.any())
