"""Control variates of single observations, where their likelihood is of a known family.

Each observation's log likelihood is expanded to order p by itself: its derivatives are known, and they are multiplied
with its rows of the design. With l_k = |L' z_k| for its argument k (see `stansub.target.remainders`) and delta_k the
change of that argument from the anchor, the expansion is off by at most

    c t^(p + 1),    t = max_k |delta_k| / l_k,    c = largest derivative of order p + 1 / (p + 1)!,

which takes the rows and no likelihood. Since t <= |w| it is at most c |w|^(p + 1), by which observations are picked.
The order is 2, or 3 where that leaves far fewer to be picked: then the sum of the expansions is a cubic.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from stansub import _loop
from stansub.target.factors import Target
from stansub.target.remainders import SHARE, LinearPredictors, NoPredictorsError, mean_power, reached
from stansub.types import FloatArray

# About what is taken by a candidate, by each of its covariates, and by each term of a cubic, in nanoseconds; so many
# products of three covariates are summed in a few seconds.
_CANDIDATE, _COVARIATE, _TERM = 100.0, 1.6, 0.5
_MOST_PRODUCTS = 4e10


@dataclass(frozen=True)
class ObservationVariates:
    """Expansions of all observations about an anchor, with bounds on their remainders.

    Attributes
    ----------
    order : {2, 3}
    anchor : ndarray, shape (dim,)
    cholesky : ndarray, shape (dim, dim)
        L, of the covariance in whose metric bounds are.
    hessian : ndarray, shape (dim, dim)
        Of the sum of all log likelihoods at the anchor.
    expected : float
        Observations that a decision is expected to pick between independent draws from the normal approximation.
    """

    order: int
    anchor: FloatArray
    cholesky: FloatArray
    hessian: FloatArray
    expected: float
    _kept: list[_loop.Observations] = field(default_factory=list, repr=False, compare=False)

    blockwise = None

    @classmethod
    def at(
        cls, predictors: LinearPredictors, anchor: FloatArray, cholesky: FloatArray, *, threads: int = 1
    ) -> ObservationVariates:
        """Expansions at an anchor, with bounds in the metric of a covariance with such a factor.

        Raises
        ------
        NoPredictorsError
            Where the family has no density in the decision loop.
        """
        order = _order(predictors, anchor, cholesky, threads)
        made = _expand(predictors, anchor, cholesky, order, threads)
        expected = 2 * mean_power(len(anchor), order + 1) * made.bound
        return cls(order, anchor, cholesky, made.hessian, expected, [made.loop])

    @property
    def box(self) -> tuple[FloatArray, FloatArray]:
        """The anchor and how far chains go from it in each parameter."""
        return reached(self.anchor, self.cholesky)

    def candidates(self, target: Target) -> float:
        """Observations that a decision is expected to pick."""
        return self.expected

    def parts(self, target: Target) -> dict[str, Any]:
        """What a `stansub._loop.Decider` takes."""
        if not self._kept:
            self._kept.append(_expand(target.predictors(), self.anchor, self.cholesky, self.order, 1).loop)
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
    return int(predictors.n_observations * (_width(predictors, 3) + 3) * np.dtype(np.float64).itemsize)


def _width(predictors: LinearPredictors, order: int) -> int:
    """Numbers of a record."""
    q, dim = len(predictors.design), predictors.design[0].shape[1]
    own = sum(len(z) > 1 for z in predictors.design)
    return int(1 + 3 * q + q * (q + 1) // 2 + (order > 2) + len(predictors.family.data) + own * dim)


def _order(predictors: LinearPredictors, anchor: FloatArray, cholesky: FloatArray, threads: int) -> int:
    """Of the expansions: 3 where that saves more candidates than its cubic costs."""
    dim = len(anchor)
    if predictors.family.highest < 3 or predictors.n_observations * dim**3 > _MOST_PRODUCTS:
        return 2

    def bounds(part: LinearPredictors, _: slice) -> list[float]:
        centre, lengths, radius = part.at(anchor), part.lengths(cholesky), float(part.radii()[0])
        return [float(part.constants(centre, lengths, radius, order=order).sum()) for order in (2, 3)]

    sums = np.sum(predictors.map(bounds, threads=threads), axis=0)
    each = _CANDIDATE + _COVARIATE * dim
    second, third = (2 * mean_power(dim, power) * sums[power - 3] * each for power in (3, 4))
    return 3 if third + _TERM * dim * (dim + 1) * (dim + 2) / 6 < second else 2


def _expand(
    predictors: LinearPredictors, anchor: FloatArray, cholesky: FloatArray, order: int, threads: int
) -> _Expanded:
    if predictors.family.density is None:
        raise NoPredictorsError("the family has no density for single observations")
    radii, records = predictors.radii(), np.empty((predictors.n_observations, _width(predictors, order)))

    def expand(part: LinearPredictors, rows: slice) -> _Part:
        centre, lengths = part.at(anchor), part.lengths(cholesky)
        constants = np.array([part.constants(centre, lengths, radius, order=order) for radius in radii])
        _record(records[rows], part, centre, lengths, constants[0], order)
        third = part.third(centre) if order > 2 else np.empty(0)
        return _Part(*part.derivatives(centre), third, _ratios(constants))

    # BLAS's own threads would wait for each other in parts as small as these.
    with threadpool_limits(limits=1, user_api="blas"):
        parts = predictors.map(expand, threads=threads)
    hessian = np.sum([part.hessian for part in parts], axis=0)
    # One set of constants, so that one alias table serves: at larger radii they are multiplied by the worst ratio.
    factors = np.maximum.accumulate(np.max([part.ratios for part in parts], axis=0))
    usable = np.isfinite(factors)
    loop = _loop.Observations(
        predictors.family.density,
        [None if len(z) > 1 else z[0] for z in predictors.design],
        records,
        anchor,
        np.tril(np.linalg.inv(cholesky)),
        np.sum([part.gradient for part in parts], axis=0),
        hessian,
        np.sum([part.third for part in parts], axis=0),
        radii[usable],
        factors[usable],
        SHARE,
    )
    return _Expanded(loop, hessian, float(records[:, 0].sum()))


class _Part(NamedTuple):
    """Of some observations: derivatives of the sum of log likelihoods, and by what bounds grow with radii."""

    gradient: FloatArray
    hessian: FloatArray
    third: FloatArray
    ratios: FloatArray


def _record(
    out: FloatArray, part: LinearPredictors, centre: FloatArray, lengths: FloatArray, constants: FloatArray, order: int
) -> None:
    family = part.family
    slopes, curves = family.gradient(centre), family.hessian(centre)
    inverse = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    lower = curves[np.tril_indices(len(slopes))]
    third = family.third(centre)[np.newaxis] if order > 2 else np.empty((0, len(constants)))  # type: ignore[attr-defined]
    columns = [constants[np.newaxis], inverse, centre, slopes, lower, third, family.data]
    np.concatenate([np.concatenate(columns).T, *(z for z in part.design if len(z) > 1)], axis=1, out=out)


def _ratios(constants: FloatArray) -> FloatArray:
    """The worst ratio of the constants of each radius to those of the first."""
    first = constants[0]
    worst = np.divide(constants, first, out=np.where(constants > 0, np.inf, 1.0), where=first > 0)
    return np.asarray(worst.max(axis=1))
