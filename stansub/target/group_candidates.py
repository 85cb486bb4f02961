"""Decisions about the remainders of an expansion with sparse rows, from a few of the observations.

The bounds are those of `stansub.target.remainders`, in an observation's own lengths l_ki: the change of its argument k
per standard deviation of the coefficients that it reads. `cpp/grouped.hpp` picks candidates from them group by group.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.linalg

from stansub import _loop
from stansub.target.groupings import Recentred, columns
from stansub.target.remainders import SHARE, NoPredictorsError
from stansub.target.sparse import Quadratic, SparsePredictors, SparseRows
from stansub.types import FloatArray

# Radii, in these lengths, of the boxes on which derivatives are bounded if they are unbounded on the whole line.
_RADII = (8.0, 16.0, 32.0)
# Target variance that joint decisions add to the log ratio, and maximum candidates per step, as a share of the
# observations for each number of arguments. A candidate, at a random place in memory, takes 0.2 us. An observation in
# order takes 0.013 us with one argument (logistic), 0.05 with two (negative binomial), and 0.08 with three (ordered).
_VARIANCE, _MOST_SHARE = 0.04, 0.1


def grouped(predictors: SparsePredictors, quadratic: Quadratic, sds: FloatArray) -> _loop.GroupedObservations:
    """Return the remainders of the expansion, for decisions.

    Parameters
    ----------
    quadratic : Quadratic
        Their expansion.
    sds : ndarray, shape (m,)
        Approximate sds of phi.

    Raises
    ------
    NoPredictorsError
        If C++ decisions do not support the family.
    """
    family, rows = predictors.family, predictors.rows
    if family.density is None:
        raise NoPredictorsError("the density of single observations is unknown")
    n, q = predictors.n_observations, len(rows)
    whitenings = [_whitening(row, quadratic) for row in rows]
    lengths = np.array([_lengths(row, a, sds) for row, a in zip(rows, whitenings, strict=True)])
    centre = predictors.at(quadratic.point)
    radii = (np.inf,) if family.bounded else _RADII
    each = [family.largest(3, centre, lengths, radius) / 6 for radius in radii]
    constants = np.nan_to_num(each[0], nan=np.inf)
    if not np.isfinite(constants).all():
        raise NoPredictorsError("the third derivatives of some observations have no bound")
    positive = constants > 0
    factors = [float((one[positive] / constants[positive]).max(initial=1.0)) for one in each]
    slopes, curves = family.derivatives((1, 2), centre)
    records = np.ascontiguousarray(
        np.stack(
            [
                constants,
                *(1 / lengths),
                *centre,
                *(np.broadcast_to(slope, n) for slope in slopes),
                *(np.broadcast_to(curves[k, j], n) for k in range(q) for j in range(k + 1)),
                *family.data,
            ],
            axis=1,
        )
    )
    groupings = [(k, *column) for k, row in enumerate(rows) for column in columns(row)]
    return _loop.GroupedObservations(
        family.density,
        [np.ascontiguousarray(row.dense, np.float64) for row in rows],
        [row.places.astype(np.int32) for row in rows],
        whitenings,
        [k for k, _, _ in groupings],
        [places for _, places, _ in groupings],
        [factors for _, _, factors in groupings],
        [_shares(row, a, one, sds) for row, a, one in zip(rows, whitenings, lengths, strict=True)],
        records,
        quadratic.point,
        np.array(radii),
        np.array(factors),
        SHARE,
    )


def shared(
    predictors: SparsePredictors, quadratic: Quadratic, sds: FloatArray
) -> tuple[_loop.GroupedObservations, Recentred]:
    """Return what all chains with an expansion share, created once."""
    latest = predictors.latest
    if not latest or latest[0][0] is not quadratic:
        made = grouped(predictors, quadratic, sds), Recentred(predictors, quadratic.point)
        latest[:] = [(quadratic, made)]
    found: tuple[_loop.GroupedObservations, Recentred] = latest[0][1]
    return found


class Joint(NamedTuple):
    """Settings of joint decisions.

    Attributes
    ----------
    kappa : float
        lambda_i = kappa b_i (see `stansub.acceptance.stopping.Poisson`).
    most : float
        Maximum expected candidates of a move; beyond it, kappa decreases.
    candidates : float
        Approximate number of candidates per step.
    """

    kappa: float
    most: float
    candidates: float


def choose_joint(
    observations: _loop.GroupedObservations, phis: Sequence[FloatArray], n: int, *, n_arguments: int = 1
) -> Joint | None:
    """Return settings of joint decisions that cost less than all observations; None if there are none.

    With kappa, the variance of the log ratio is sum_i r_i^2 / (kappa b_i).

    Parameters
    ----------
    phis : sequence of ndarray, shape (m,)
        Arguments at draws of the surrogate.
    n_arguments : int
        Arguments of one observation's likelihood.
    """
    decider, most = _loop.SurrogateDecider(observations, 1.0, 1.0), min(_MOST_SHARE * n_arguments, 1.0) * n
    rate, _, squares = np.median([decider.costs(a, b) for a, b in pairwise(phis)], axis=0)
    kappa = float(max(1.0, squares / _VARIANCE))
    candidates = float((kappa + 0.5) * rate)
    return Joint(kappa, float(most), candidates) if candidates <= most else None


def _shares(row: SparseRows, whitening: FloatArray, lengths: FloatArray, sds: FloatArray) -> list[float]:
    """Return the lengths of the terms for draws: sqrt(p) for the common numbers, and an sd of each coefficient."""
    sizes = []
    if row.places.size:
        sizes.append(np.sqrt(row.places.size) * float(np.mean(_reach(row, whitening) / lengths)))
    sizes += [float(np.mean(np.abs(factors) * sds[places] / lengths)) for places, factors in columns(row)]
    found = np.maximum(sizes, 1e-3 * max(sizes, default=1.0))
    return [float(one) for one in found / found.sum()]


def _reach(row: SparseRows, whitening: FloatArray) -> FloatArray:
    """Return how far the argument moves per unit step of the common numbers in the metric; shape (n,) or (1,)."""
    solved = scipy.linalg.solve_triangular(whitening, row.dense.T, trans="T", lower=False)
    return np.asarray(np.sqrt(np.einsum("ji,ji->i", solved, solved)))


def _whitening(row: SparseRows, quadratic: Quadratic) -> FloatArray:
    """Return an upper triangular A with A'A the precision of the coefficients that all observations read, (p, p)."""
    own = quadratic.precision[row.places][:, row.places].toarray()
    try:
        return np.ascontiguousarray(np.linalg.cholesky(own).T)
    except np.linalg.LinAlgError:
        return np.diag(np.sqrt(np.maximum(np.abs(np.diag(own)), 1e-10)))


def _lengths(row: SparseRows, whitening: FloatArray, sds: FloatArray) -> FloatArray:
    """Return how far the argument moves for an sd, shape (n,)."""
    squares = row.gathered.multiply(row.gathered) @ sds**2
    if row.places.size:
        squares = squares + _reach(row, whitening) ** 2
    return np.asarray(np.sqrt(np.maximum(np.broadcast_to(squares, row.n), 1e-20)))
