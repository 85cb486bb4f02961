"""Control variates of single observations whose likelihood is of a known family.

Each observation's log likelihood is expanded to order p separately, with its known derivatives and its rows of the
design. With l_k = |L' z_k| for its argument k (see `stansub.target.remainders`) and delta_k the change of that argument
from the anchor, the error of the expansion is at most

    c t^(p + 1),    t = max_k |delta_k| / l_k,    c = largest derivative of order p + 1 / (p + 1)!,

which needs the rows but no likelihood. Since t <= |w|, the error is at most c |w|^(p + 1), by which observations are
picked. The order is 2, or 3 if that picks far fewer observations; the sum of the expansions is then a cubic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from stansub import _loop, memory
from stansub.codec import ANEW
from stansub.target.classes import Classes, keys
from stansub.target.factors import Target
from stansub.target.remainders import SHARE, LinearPredictors, NoPredictorsError, mean_power, reached
from stansub.target.rows import ColumnRows
from stansub.types import FloatArray

# Approximate nanoseconds per candidate, per covariate of a candidate, and per term of a cubic; and the number of
# products of three covariates that can be summed in a few seconds.
_CANDIDATE, _COVARIATE, _TERM = 100.0, 1.6, 0.5
_MOST_PRODUCTS = 4e10
# Parameters and expected candidates above which rows of 16 bits reject candidates; numbers of such a row per cache
# line; and candidates as a share of the observations above which evaluating all of these is no slower.
_SKETCHED, _LEAST_SKETCHED, _LINE, _SHARE_SKETCHED = 16, 1.0, 32, 2.0
# If rows are computed: expected candidates above which a table is worth its memory, the share of free memory that it
# may use, and bytes per observation of a stream.
_MOST_STREAMED, _TABLE_SHARE, _MEMBER = 2.0, 4, 8


@dataclass(frozen=True)
class ObservationVariates:
    """Expansions of all observations about an anchor, with bounds on their remainders.

    Attributes
    ----------
    order : {2, 3}
    anchor : ndarray, shape (dim,)
    cholesky : ndarray, shape (dim, dim)
        L, the factor of the covariance in whose metric the bounds are.
    hessian : ndarray, shape (dim, dim)
        Hessian of the sum of all log likelihoods at the anchor.
    expected : float
        Observations that a decision is expected to pick for independent draws from the normal approximation.
    """

    order: int
    anchor: FloatArray
    cholesky: FloatArray
    hessian: FloatArray
    expected: float
    _kept: list[_loop.Observations] = field(default_factory=list, repr=False, compare=False, metadata=ANEW)

    blockwise = None

    @classmethod
    def at(
        cls, predictors: LinearPredictors, anchor: FloatArray, cholesky: FloatArray, *, threads: int = 1
    ) -> ObservationVariates:
        """Return expansions at an anchor, with bounds in the metric of the covariance with this factor.

        Raises
        ------
        NoPredictorsError
            If the decision loop does not support the family.
        """
        site = _Site(predictors, anchor, cholesky)
        surveyed = site.survey((2, 3) if _is_affordable(predictors) else (2,), threads)
        order = _order(len(anchor), surveyed.bounds)
        made = site.expand(order, surveyed, threads)
        expected = 2 * mean_power(len(anchor), order + 1) * made.bound
        return cls(order, anchor, cholesky, made.hessian, expected, [made.loop])

    @property
    def box(self) -> tuple[FloatArray, FloatArray]:
        """Return the anchor and how far chains go from it in each parameter."""
        return reached(self.anchor, self.cholesky)

    def candidates(self, target: Target) -> float:
        """Return the number of observations that a decision is expected to pick."""
        return self.expected

    def parts(self, target: Target) -> dict[str, Any]:
        """Return the arguments of a `stansub._loop.Decider`."""
        if not self._kept:
            site = _Site(target.predictors(), self.anchor, self.cholesky)
            self._kept.append(site.expand(self.order, site.survey((self.order,), 1), 1).loop)
        return {"observations": self._kept[0]}

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields without objects of the decision loop, which belong to one process and are made again."""
        return {one.name: getattr(self, one.name) for one in fields(self)} | {"_kept": []}


class _Expanded(NamedTuple):
    """Input of the decision loop, the Hessian of the sum of all log likelihoods, and the sum of the bounds."""

    loop: _loop.Observations
    hessian: FloatArray
    bound: float


def memory_needed(predictors: LinearPredictors) -> int:
    """Return the minimum bytes that the decision loop needs for the observations."""
    return predictors.n_observations * _MEMBER if not predictors.is_in_memory else _table_size(predictors)


def _table_size(predictors: LinearPredictors) -> int:
    """Return the bytes of the records of all observations, of computed designs, and of the alias table."""
    each = (_width(predictors, 3) + 3) * np.dtype(np.float64).itemsize
    sketch = _sketch_width(predictors) * np.dtype(np.int16).itemsize if _can_be_sketched(predictors) else 0
    computed = sum(z.nbytes for z in predictors.design if isinstance(z, ColumnRows))
    return int(predictors.n_observations * (each + sketch)) + computed


def _width(predictors: LinearPredictors, order: int) -> int:
    """Return the numbers per record."""
    q = len(predictors.design)
    # With no observations, because the data of all of them use smaller types.
    n_data = len(predictors.part(slice(0, 0)).family.data)
    return int(1 + 3 * q + q * (q + 1) // 2 + (order > 2) + n_data)


class _Start(NamedTuple):
    """For some observations: arguments at the anchor, their lengths, and the first radius's constants by order."""

    centre: FloatArray
    lengths: FloatArray
    constants: dict[int, FloatArray]


class _Survey(NamedTuple):
    """Sums of the first radius's constants by order, and the starts of all parts if memory holds them."""

    bounds: dict[int, float]
    starts: dict[int, _Start]


def _is_affordable(predictors: LinearPredictors) -> bool:
    """Return whether a cubic is affordable."""
    products = predictors.n_observations * predictors.design[0].shape[1] ** 3
    return predictors.family.highest >= 3 and products <= _MOST_PRODUCTS


def _order(dim: int, bounds: dict[int, float]) -> int:
    """Return the order of the expansions: 3 if it saves more candidates than its cubic costs."""
    costs = {2: 0.0, 3: _TERM * dim * (dim + 1) * (dim + 2) / 6}
    each = _CANDIDATE + _COVARIATE * dim
    for order, bound in bounds.items():
        costs[order] += 2 * mean_power(dim, order + 1) * bound * each
    return 3 if 3 in bounds and costs[3] < costs[2] else 2


@dataclass(frozen=True)
class _Site:
    """Point at which observations are expanded."""

    predictors: LinearPredictors
    anchor: FloatArray
    cholesky: FloatArray

    def start(self, part: LinearPredictors, orders: Sequence[int]) -> _Start:
        """Return the start for some observations."""
        centre, lengths, radius = part.at(self.anchor), part.lengths(self.cholesky), float(self.predictors.radii()[0])
        return _Start(
            centre, lengths, {order: part.constants(centre, lengths, radius, order=order) for order in orders}
        )

    def survey(self, orders: Sequence[int], threads: int) -> _Survey:
        """Return sums over all observations, from which the order is chosen."""
        bounds, starts = dict.fromkeys(orders, 0.0), {}

        def of(part: LinearPredictors, rows: slice) -> tuple[int, _Start | None, list[float]]:
            start = self.start(part, orders)
            kept = start if self.predictors.is_in_memory else None
            return rows.start, kept, [float(start.constants[order].sum()) for order in orders]

        # With parts this small, BLAS's own threads would wait for each other.
        with threadpool_limits(limits=1, user_api="blas"):
            for first, start, sums in self.predictors.each(of, threads=threads):
                if start is not None:
                    starts[first] = start
                for order, one in zip(orders, sums, strict=True):
                    bounds[order] += one
        return _Survey(bounds, starts)

    def expand(self, order: int, survey: _Survey, threads: int) -> _Expanded:
        """Return expansions of this order, in a table or as a stream."""
        predictors, bound = self.predictors, survey.bounds[order]
        if predictors.family.density is None:
            raise NoPredictorsError("the family has no density for single observations")
        expected = 2 * mean_power(len(self.anchor), order + 1) * bound
        big = expected > _MOST_STREAMED and _table_size(predictors) <= memory.room().size // _TABLE_SHARE
        table = _Table.of(predictors, order, expected) if predictors.is_in_memory or big else None
        radii = predictors.radii()
        found_keys = np.empty(predictors.n_observations if table is None else 0, np.int16)

        def expand(part: LinearPredictors, rows: slice) -> _Part:
            start = survey.starts.get(rows.start) or self.start(part, (order,))
            first = start.constants[order]
            slopes, curves, *third = part.family.derivatives(range(1, order + 1), start.centre)
            if table is not None:
                table.add(rows, part, start, first, [slopes, curves, *third], self.cholesky)
            else:
                found_keys[rows] = keys(first)
            further = [part.constants(start.centre, start.lengths, radius, order=order) for radius in radii[1:]]
            ratios = np.array([1.0, *(_ratio(constants, first) for constants in further)])
            summed = part.third(*third) if third else np.empty(0)
            return _Part(part.gradient(slopes), summed, ratios)

        with threadpool_limits(limits=1, user_api="blas"):
            parts = predictors.map(expand, threads=threads)
            hessian = predictors.hessian_at(self.anchor, threads=threads)
        # One set of constants, so that one table suffices; larger radii multiply them by the worst ratio.
        factors = np.maximum.accumulate(np.max([part.ratios for part in parts], axis=0))
        usable = np.isfinite(factors)
        common = (
            self.anchor,
            np.tril(np.linalg.inv(self.cholesky)),
            np.sum([part.gradient for part in parts], axis=0),
            hessian,
            np.sum([part.third for part in parts], axis=0),
            radii[usable],
            factors[usable],
        )
        if table is not None:
            return _Expanded(table.loop(predictors, common), hessian, bound)
        classes = Classes.of([found_keys[rows] for rows in predictors.ends])
        return _Expanded(self._stream(order, classes, common), hessian, classes.total)

    def _stream(self, order: int, classes: Classes, common: _Common) -> _loop.Observations:
        """Return candidates whose records are computed when they are drawn."""
        predictors = self.predictors
        assert predictors.family.density is not None
        anchor, whitening, gradient, hessian, third, radii, factors = common
        return _loop.Observations(
            predictors.family.density,
            tuple(z[: int(len(z) == 1)] for z in predictors.design),
            constants=classes.constants,
            starts=classes.starts,
            members=classes.members,
            source=partial(self._rows, order),
            n=predictors.n_observations,
            width=_width(predictors, order),
            anchor=anchor,
            whitening=whitening,
            gradient=gradient,
            hessian=hessian,
            third=third,
            radii=radii,
            factors=factors,
            share=SHARE,
        )

    def _rows(self, order: int, which: NDArray[np.int32]) -> tuple[FloatArray, list[FloatArray]]:
        """Return records of some observations, without constants, and their rows."""
        part = self.predictors.part(which)
        start, records = self.start(part, ()), np.empty((len(which), _width(self.predictors, order)))
        derivatives = part.family.derivatives(range(1, order + 1), start.centre)
        _record(records, part, start, np.zeros(len(which)), derivatives)
        return records, [np.ascontiguousarray(z, np.float64) for z in part.matrices]


# Common to table and stream: the sum of all expansions, and the radii of bounds.
_Common = tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]


class _Table(NamedTuple):
    """Records of all observations and, if these pay, their rows of 16 bits."""

    records: FloatArray
    sketch: NDArray[np.int16] | None

    @classmethod
    def of(cls, predictors: LinearPredictors, order: int, expected: float) -> _Table:
        """Return an empty table."""
        n = predictors.n_observations
        sketched = _can_be_sketched(predictors) and expected >= _LEAST_SKETCHED
        sketch = np.zeros((n, _sketch_width(predictors)), np.int16) if sketched else None
        return cls(np.empty((n, _width(predictors, order))), sketch)

    def add(
        self,
        rows: slice,
        part: LinearPredictors,
        start: _Start,
        constants: FloatArray,
        derivatives: Sequence[FloatArray],
        cholesky: FloatArray,
    ) -> None:
        """Fill in some observations."""
        _record(self.records[rows], part, start, constants, derivatives)
        if self.sketch is not None:
            _sketch(self.sketch[rows], part, start, cholesky)

    def loop(self, predictors: LinearPredictors, common: _Common) -> _loop.Observations:
        """Return the input of the decision loop."""
        assert predictors.family.density is not None
        return _loop.Observations(
            predictors.family.density,
            tuple(np.ascontiguousarray(z, np.float64) for z in predictors.matrices),
            self.records,
            *common,
            SHARE if self.sketch is None else _SHARE_SKETCHED,
            self.sketch,
        )


class _Part(NamedTuple):
    """For some observations: derivatives of the sum of log likelihoods, and growth of the bounds with the radius."""

    gradient: FloatArray
    third: FloatArray
    ratios: FloatArray


def _record(
    out: FloatArray,
    part: LinearPredictors,
    start: _Start,
    constants: FloatArray,
    derivatives: Sequence[FloatArray],
) -> None:
    """Write the records of some observations for the decision loop (see `cpp/observations.hpp`)."""
    slopes, curves, *third = derivatives
    lengths = start.lengths
    inverse = 1 / lengths if lengths.all() else np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    lower = curves[np.tril_indices(len(slopes))]
    columns = [constants, *inverse, *start.centre, *slopes, *lower, *third, *part.family.data]
    # Transposing one array of them takes a third of the time of writing them one by one.
    out[:] = np.array(columns).T


def _can_be_sketched(predictors: LinearPredictors) -> bool:
    """Return whether a single argument has a row for each observation, and a long one."""
    return predictors.design[0].shape[1] >= _SKETCHED and sum(len(z) > 1 for z in predictors.design) == 1


def _sketch_width(predictors: LinearPredictors) -> int:
    """Return the numbers per row of 16 bits."""
    return int(math.ceil(predictors.design[0].shape[1] / _LINE) * _LINE)


def _sketch(out: NDArray[np.int16], part: LinearPredictors, start: _Start, cholesky: FloatArray) -> None:
    """Write L' z / l of the argument that has rows, to 16 bits."""
    ((place, z),) = ((k, z) for k, z in enumerate(part.matrices) if len(z) > 1)
    lengths = start.lengths[place]
    rows = z @ cholesky
    rows *= np.divide(_loop.SKETCH_UNIT, lengths, out=np.zeros_like(lengths), where=lengths > 0)[:, np.newaxis]
    out[:, : rows.shape[1]] = np.rint(rows)


def _ratio(constants: FloatArray, first: FloatArray) -> float:
    """Return the worst ratio of a radius's constants to those of the first."""
    if (first > 0).all():
        return float((constants / first).max())
    where = first > 0
    return np.inf if (constants[~where] > 0).any() else float((constants[where] / first[where]).max(initial=1.0))
