"""Decisions about the remainders of an expansion with sparse rows, from a few of the observations.

The bounds are those of `stansub.target.remainders`, in an observation's own lengths l_ki: the change of its argument k
per standard deviation of the coefficients that it reads, times how many of these draws change that argument at most.
So boxes are no wider than they must be, and bounds on products of changes are shared among arguments by the size of
these. `cpp/grouped.hpp` picks candidates from them group by group.
Every decision evaluates observations that have no bound, such as those near a branch on parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.linalg

from stansub import _loop
from stansub.target.groupings import Recentred
from stansub.target.remainders import SHARE, Family, NoPredictorsError
from stansub.target.sparse import Quadratic, SparsePredictors, SparseRows, slices
from stansub.types import Check, FloatArray

# Radius, in sds, of the boxes on which derivatives are bounded if they are unbounded on the whole line, and
# multiples of it for moves that end beyond it.
RADIUS, _MULTIPLES = 8.0, (1.0, 2.0, 4.0)
# How much larger bounds on a wider box may be before decisions from all observations are cheaper, the number of
# observations at which this is tried first, and those that are then bounded at once.
_WIDE, _TRIED, _AT_ONCE = 1e3, 64, 1 << 10
# Relative to the diagonal of a precision.
_RIDGE = 1e-10


def grouped(
    predictors: SparsePredictors,
    quadratic: Quadratic,
    sds: FloatArray,
    radius: float | Sequence[float] = RADIUS,
    *,
    check: Check = lambda: None,
) -> _loop.GroupedObservations:
    """Return the remainders of the expansion, for decisions.

    Parameters
    ----------
    quadratic : Quadratic
        Their expansion.
    sds : ndarray, shape (m,)
        Approximate sds of phi.
    radius : float or sequence of float
        Half the width of the smallest boxes on which derivatives are bounded, in sds: of all arguments, or of each.
    check : callable
        Called often; raises an error if it is time to stop.

    Raises
    ------
    NoPredictorsError
        If the third derivatives of too many observations have no bound.
    """
    family, rows = predictors.family, predictors.rows
    whitenings = [_whitening(row, quadratic) for row in rows]
    q = len(rows)
    reach, radii = (1.0, (np.inf,)) if family.bounded else (np.reshape(radius, (-1, 1)), _MULTIPLES)
    records = np.empty((predictors.n_observations, 1 + 2 * q + q * (q + 1) // 2))
    lengths = np.empty((q, predictors.n_observations))

    def fill(part: SparsePredictors, own: slice) -> FloatArray:
        """Write the records of some observations; return factors of the radii."""
        sizes = [_lengths(row, a, sds) for row, a in zip(part.rows, whitenings, strict=True)]
        lengths[:, own] = reach * np.array(sizes)
        eta = part.at(quadratic.point)
        split, worst = _split(part.family, eta, lengths[:, own], radii, check)
        constants = split.sum(0)
        with np.errstate(invalid="ignore"):
            roots = np.where(np.isfinite(constants) & (constants > 0), np.cbrt(split / constants), 1.0)
        slopes, curves = part.family.derivatives((1, 2), eta)
        lower = (np.broadcast_to(curves[k, j], part.n_observations) for k in range(q) for j in range(k + 1))
        first = (np.broadcast_to(slope, part.n_observations) for slope in slopes)
        records[own] = np.stack([constants, *(roots / lengths[:, own]), *first, *lower], axis=1)
        return worst

    factors = list(predictors.each(fill))
    n = predictors.n_observations
    if np.isinf(records[:, 0]).sum() > SHARE * n:
        raise NoPredictorsError("the third derivatives of too many observations have no bound")
    return _loop.GroupedObservations(
        family.density,
        predictors.arguments,
        whitenings,
        sds,
        records,
        lengths,
        predictors.data,
        quadratic.point,
        np.array(radii),
        np.max(factors, axis=0),
        SHARE,
    )


def _split(
    family: Family, eta: FloatArray, lengths: FloatArray, radii: Sequence[float], check: Check
) -> tuple[FloatArray, FloatArray]:
    """Return constants by argument at the first radius, shape (q, n), and how much larger any are at each radius.

    Constants of observations without a bound are infinite. Others are infinitely larger at a radius if they are by far
    for a few of the observations.
    """
    few = np.arange(0, eta.shape[1], max(eta.shape[1] // _TRIED, 1))
    tried = _worst(family.part(few).split(3, eta[:, few], lengths[:, few], radii))
    narrow = int(np.argmax(np.append(tried, np.inf) > _WIDE))
    found = np.empty((narrow, *eta.shape))
    for rows in slices(eta.shape[1], _AT_ONCE):
        check()
        found[..., rows] = family.part(rows).split(3, eta[:, rows], lengths[:, rows], radii[:narrow]) / 6
    constants = np.where(np.isfinite(found[0]).all(0), found[0], np.inf)
    return constants, np.append(_worst(found), np.full(len(radii) - narrow, np.inf))


def _worst(constants: FloatArray) -> FloatArray:
    """Return by how much constants of radii exceed those of the first one at most, of observations that have these."""
    bounded = np.isfinite(constants[0]).all(0)
    return np.array([_times(one[:, bounded], constants[0][:, bounded]) for one in constants])


def _times(larger: FloatArray, constants: FloatArray) -> float:
    """Return by how much constants of a larger radius exceed others at most; infinite if only they are positive."""
    positive = constants > 0
    if (larger[~positive] > 0).any():
        return np.inf
    return float((larger[positive] / constants[positive]).max(initial=1.0))


def furthest(
    predictors: SparsePredictors, quadratic: Quadratic, sds: FloatArray, phis: Sequence[FloatArray]
) -> FloatArray:
    """Return upper limits, in sds, of how far each argument of any observation is from the expansion.

    There is a row for each of ``phis``, the arguments at draws, without shifts that cancel; shape (n_phis, q).
    """
    changes, found = np.array(phis) - quadratic.point, []
    for k, row in enumerate(predictors.rows):
        whitening = _whitening(row, quadratic)

        def largest(
            part: SparsePredictors, own: slice, k: int = k, whitening: FloatArray = whitening
        ) -> tuple[float, list[FloatArray]]:
            """Return the most sds for a unit step of the common numbers, and of each coefficient."""
            of_part = part.rows[k]
            lengths, each = _lengths(of_part, whitening, sds), []
            for one in of_part.columns:
                most, has = np.zeros(part.dim), one.places >= 0
                np.maximum.at(most, one.places[has], np.abs(one.factors[has]) / lengths[has])
                each.append(most)
            return float((_reach(of_part, whitening) / lengths).max()) if of_part.places.size else 0.0, each

        common, columns = zip(*predictors.each(largest), strict=True)
        own = max(common) * np.linalg.norm(changes[:, row.places] @ whitening.T, axis=1)
        for most in (np.max(one, axis=0) for one in zip(*columns, strict=True)):
            own = own + (most * np.abs(changes)).max(axis=1)
        found.append(own)
    return np.transpose(found)


def shared(
    predictors: SparsePredictors,
    quadratic: Quadratic,
    sds: FloatArray,
    radius: tuple[float, ...] = (RADIUS,),
    *,
    check: Check = lambda: None,
) -> tuple[_loop.GroupedObservations, Recentred]:
    """Return what all chains with an expansion share, created once."""
    latest = predictors.latest
    if not latest or latest[0][0] is not quadratic or latest[0][1][0] != radius:
        made = grouped(predictors, quadratic, sds, radius, check=check), Recentred(predictors, quadratic.point)
        latest[:] = [(quadratic, (radius, made))]
    found: tuple[_loop.GroupedObservations, Recentred] = latest[0][1][1]
    return found


class Joint(NamedTuple):
    """Settings of joint decisions."""

    kappa: float
    """lambda_i = kappa b_i (see `stansub.acceptance.stopping.Poisson`)."""
    most: float
    """Maximum expected candidates of a move; beyond it, kappa decreases."""
    candidates: float
    """Approximate number of candidates per step."""
    radius: tuple[float, ...] = (RADIUS,)
    """Half the width of the smallest boxes on which derivatives are bounded, in sds: of all arguments, or of each."""


def _reach(row: SparseRows, whitening: FloatArray) -> FloatArray:
    """Return how far the argument moves per unit step of the common numbers in the metric; shape (n,) or (1,)."""
    solved = scipy.linalg.solve_triangular(whitening, row.matrix.T, trans="T", lower=False)
    return np.asarray(np.sqrt(np.einsum("ji,ji->i", solved, solved)))


def _whitening(row: SparseRows, quadratic: Quadratic) -> FloatArray:
    """Return an upper triangular A with A'A the precision of the coefficients that all observations read, (p, p).

    If these coefficients compensate each other, such as an intercept and the effects of a few levels, the precision is
    singular. A ridge keeps rounding from making it indefinite.
    """
    own = quadratic.precision[row.places][:, row.places].toarray()
    own[np.diag_indices_from(own)] *= 1 + _RIDGE
    try:
        return np.ascontiguousarray(np.linalg.cholesky(own).T)
    except np.linalg.LinAlgError:
        return np.diag(np.sqrt(np.maximum(np.abs(np.diag(own)), 1e-10)))


def _lengths(row: SparseRows, whitening: FloatArray, sds: FloatArray) -> FloatArray:
    """Return how far the argument moves for an sd, shape (n,)."""
    squares, variances = np.zeros(row.n), sds**2
    for one in row.columns:
        squares += np.square(one.factors, dtype=np.float64) * variances[one.places]
    if row.places.size:
        squares = squares + _reach(row, whitening) ** 2
    return np.asarray(np.sqrt(np.maximum(np.broadcast_to(squares, row.n), 1e-20)))
