"""Control variates of single observations, whose likelihood is of a known family.

Each observation's log likelihood is expanded to second order by itself: its derivatives are known, and they are
multiplied with its rows of the design. With l_k = |L' z_k| for its argument k (see `stansub.target.remainders`) and
delta_k the change of that argument from the anchor, the expansion is off by at most

    c t^3,    t = max_k |delta_k| / l_k,    c = largest third derivative / 6,

which takes the rows and no likelihood. Since t <= |w| it is no more than c |w|^3, by which observations are picked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from stansub import _loop
from stansub.target.remainders import SHARE, LinearPredictors
from stansub.types import FloatArray

_ORDER = 3


@dataclass(frozen=True)
class ObservationVariates:
    """Second-order expansions of all observations about an anchor, with bounds on their remainders.

    What takes memory is made from the linear predictors when it is asked for, once a process.

    Attributes
    ----------
    anchor : ndarray, shape (dim,)
    cholesky : ndarray, shape (dim, dim)
        L, of the covariance in whose metric bounds are.
    gradient, hessian : ndarray, shapes (dim,) and (dim, dim)
        Of the sum of all log likelihoods at the anchor.
    candidates : float
        Observations that a decision is expected to pick between independent draws from the normal approximation.
    """

    anchor: FloatArray
    cholesky: FloatArray
    gradient: FloatArray
    hessian: FloatArray
    candidates: float
    _made: list[_loop.Observations] = field(default_factory=list, repr=False, compare=False)

    order = 2

    @classmethod
    def at(cls, predictors: LinearPredictors, anchor: FloatArray, cholesky: FloatArray) -> ObservationVariates:
        """Expansions at an anchor, and bounds in the metric of a covariance with such a factor."""
        eta, dim = predictors.at(anchor), len(anchor)
        slopes, curves = predictors.family.gradient(eta), predictors.family.hessian(eta)
        gradient, hessian = np.zeros(dim), np.zeros((dim, dim))
        for k, (z, slope) in enumerate(zip(predictors.design, slopes, strict=True)):
            gradient += _summed(z, slope)
            for other, curve in zip(predictors.design, curves[k], strict=True):
                hessian += _product(z, curve, other)
        records, _, _ = _records(predictors, anchor, cholesky)
    
    def __getstate__(self) -> dict[str, Any]:
        """The fields, without what is made for the decision loop, which belongs to one process."""
        return {one.name: getattr(self, one.name) for one in fields(self)} | {"_made": []}
