"""Control variates of single observations, where their likelihood is of a known family.

Each observation's log likelihood is expanded to second order by itself: its derivatives are known, and they are
multiplied with its rows of the design. With l_k = |L' z_k| for its argument k (see `stansub.target.remainders`) and
delta_k the change of that argument from the anchor, the expansion is off by at most

    c t^3,    t = max_k |delta_k| / l_k,    c = largest third derivative / 6,

which takes the rows and no likelihood. Since t <= |w| it is no more than c |w|^3, by which observations are picked.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np

from stansub import _loop
from stansub.target.factors import Target
from stansub.target.remainders import SHARE, LinearPredictors, NoPredictorsError, mean_power
from stansub.types import FloatArray


@dataclass(frozen=True)
class ObservationVariates:
    """Second-order expansions of all observations about an anchor, with bounds on their remainders.

    Attributes
    ----------
    anchor : ndarray, shape (dim,)
    cholesky : ndarray, shape (dim, dim)
        L, of the covariance in whose metric bounds are.
    hessian : ndarray, shape (dim, dim)
        Of the sum of all log likelihoods at the anchor.
    expected : float
        Observations that a decision is expected to pick between independent draws from the normal approximation.
    """

    anchor: FloatArray
    cholesky: FloatArray
    hessian: FloatArray
    expected: float
    _kept: list[_loop.Observations] = field(default_factory=list, repr=False, compare=False)

    order = 2
    blockwise = None

    @classmethod
    def at(cls, predictors: LinearPredictors, anchor: FloatArray, cholesky: FloatArray) -> ObservationVariates:
        """Expansions at an anchor, with bounds in the metric of a covariance with such a factor.

        Raises
        ------
        NoPredictorsError
            Where the family has no density in the decision loop.
        """
        made = _expand(predictors, anchor, cholesky)
        return cls(anchor, cholesky, made.hessian, 2 * mean_power(len(anchor), 3) * made.bound, [made.loop])

    def candidates(self, target: Target) -> float:
        """Observations that a decision is expected to pick."""
        return self.expected

    def parts(self, target: Target) -> dict[str, Any]:
        """What a `stansub._loop.Decider` takes."""
        if not self._kept:
            self._kept.append(_expand(target.predictors(), self.anchor, self.cholesky).loop)
        return {"observations": self._kept[0]}

    def __getstate__(self) -> dict[str, Any]:
        """The fields: what is made for the decision loop belongs to one process, and another makes it again."""
        return {one.name: getattr(self, one.name) for one in fields(self)} | {"_kept": []}


class _Expanded(NamedTuple):
    """What the decision loop takes, the Hessian of the sum of all log likelihoods, and the sum of the bounds."""

    loop: _loop.Observations
    hessian: FloatArray
    bound: float


def memory_needed(predictors: LinearPredictors) -> int:
    """Bytes of what the decision loop keeps of the observations, its alias table included."""
    q, dim = len(predictors.design), predictors.design[0].shape[1]
    own = sum(len(z) > 1 for z in predictors.design)
    width = 1 + 3 * q + q * (q + 1) // 2 + len(predictors.family.data) + own * dim
    return int(predictors.n_observations * (width + 3) * np.dtype(np.float64).itemsize)


def _expand(predictors: LinearPredictors, anchor: FloatArray, cholesky: FloatArray) -> _Expanded:
    family, centre, lengths = predictors.family, predictors.at(anchor), predictors.lengths(cholesky)
    if family.density is None:
        raise NoPredictorsError("the family has no density for single observations")
    slopes, curves = family.gradient(centre), family.hessian(centre)
    least, radii, factors = _constants(predictors, centre, lengths)
    lower = np.tril_indices(len(slopes))
    inverse = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    own = [z.T for z in predictors.design if len(z) > 1]
    columns = [least[np.newaxis], inverse, centre, slopes, curves[lower], family.data, *own]
    records = np.empty((predictors.n_observations, sum(map(len, columns))))
    np.concatenate(columns, axis=0, out=records.T)
    gradient, hessian = _total(predictors, slopes, curves)
    shared = [None if len(z) > 1 else z[0] for z in predictors.design]
    whitening = np.asarray(np.linalg.inv(cholesky), np.float64)
    loop = _loop.Observations(
        family.density, shared, records, anchor, whitening, gradient, hessian, radii, factors, SHARE
    )
    return _Expanded(loop, hessian, float(least.sum()))


class _Constants(NamedTuple):
    """The c of all observations at the smallest radius, shape (n,); radii, and by what the c are larger there."""

    least: FloatArray
    radii: FloatArray
    factors: FloatArray


def _constants(predictors: LinearPredictors, centre: FloatArray, lengths: FloatArray) -> _Constants:
    """One set of constants, so that one alias table serves: at larger radii they are multiplied by the worst ratio."""
    radii, factors = predictors.radii(), [1.0]
    least = predictors.constants(centre, lengths, radii[0])
    for radius in radii[1:]:
        each = predictors.constants(centre, lengths, radius)
        ratio = np.divide(each, least, out=np.where(each > 0, np.inf, 1.0), where=least > 0)
        factors.append(max(factors[-1], float(ratio.max())))
    usable = np.isfinite(factors)
    return _Constants(least, radii[usable], np.array(factors)[usable])


def _total(predictors: LinearPredictors, slopes: FloatArray, curves: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Gradient and Hessian of the sum of all log likelihoods, from derivatives in their arguments."""
    design = predictors.design
    dim = design[0].shape[1]
    gradient, hessian = np.zeros(dim), np.zeros((dim, dim))
    for k, z in enumerate(design):
        gradient += slopes[k] @ z if len(z) > 1 else slopes[k].sum() * z[0]
        for other, curve in zip(design, curves[k], strict=True):
            hessian += _weighted(z, curve, other)
    return gradient, (hessian + hessian.T) / 2


def _weighted(z: FloatArray, weights: FloatArray, other: FloatArray) -> FloatArray:
    """The sum of weights times products of rows, of which there may be one for all."""
    if len(z) == len(other) == 1:
        return np.asarray(weights.sum() * z.T @ other)
    if len(z) == 1:
        return np.asarray(z.T @ (weights @ other)[np.newaxis])
    if len(other) == 1:
        return np.asarray((weights @ z)[:, np.newaxis] @ other)
    return np.asarray((z * weights[:, np.newaxis]).T @ other)
