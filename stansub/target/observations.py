"""Control variates of single observations whose likelihood is of a known family.

Each observation's log likelihood is expanded to order p separately, with its known derivatives and its rows of the
design. With l_k = |L' z_k| for its argument k (see `stansub.target.remainders`) and delta_k the change of that argument
from the anchor, the error of the expansion is at most

    c t^(p + 1),    t = max_k |delta_k| / l_k,    c = largest derivative of order p + 1 / (p + 1)!,

which needs the rows but no likelihood. Since t <= |w|, the error is at most c |w|^(p + 1), by which observations are
picked. The order is 2, or 3 if that picks far fewer observations; the sum of the expansions is then a cubic.

If few observations have no bound, such as those near a branch on parameters, every decision evaluates them. Otherwise
every decision evaluates all observations.

Kinks are smoothed on the scale of the metric before log likelihoods are expanded. The errors are then at most
c (floor + t^(p + 1)): a kink within reach adds a multiple of t for small t.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stansub import _loop, memory
from stansub.codec import ANEW
from stansub.target.classes import Classes, Pooled, constants_of
from stansub.target.cubics import n_products
from stansub.target.factors import Target
from stansub.target.foreseeing import foreseeing
from stansub.target.partitioned import PartitionedPredictors, Predictors
from stansub.target.remainders import (
    LARGEST,
    SHARE,
    Family,
    LinearPredictors,
    mean_growth,
    mean_power,
    reached,
)
from stansub.target.rows import ColumnRows
from stansub.target.sites import Candidates, Each, Expand, Site, Start, Sums, Survey, Surveyed, record, width
from stansub.types import FloatArray

# Approximate nanoseconds per candidate, per covariate of a candidate, per term of a cubic, and per number of a screen;
# of a cubic besides its terms; and the number of products of three covariates that can be summed in a few seconds.
_CANDIDATE, _COVARIATE, _TERM, _SCREENED = 100.0, 1.6, 0.1, 0.025
_CUBIC, _MOST_PRODUCTS = 100.0, 4e10
# Parameters and expected candidates above which rows of 16 bits reject candidates, nanoseconds per candidate that they
# reject, numbers of such a row per cache line, and candidates as a share of the observations above which evaluating all
# of these is no slower.
_SKETCHED, _LEAST_SKETCHED, _REJECTED, _LINE, _SHARE_SKETCHED = 16, 1.0, 50.0, 32, 2.0
# Parameters up to which rows of 8 bits can screen all observations, and the length of the error of such a row and of a
# point, in their lengths, over the root of the number of parameters.
_MOST_SCREENED, _SCREEN_ERROR = _loop.MOST_SCREENED, 0.5 / _loop.SCREEN_UNIT + 0.5 / _loop.SCREEN_POINT_UNIT
# Candidates of a stream that are fetched at once from this process; from partitions those of so many decisions, within
# limits.
_BATCH_HERE, _DECISIONS, _LEAST_BATCH, _MOST_BATCH = 1 << 10, 1 << 14, 1 << 8, 1 << 12
# If rows are computed: expected candidates above which a table is worth its memory, the share of free memory that it
# may use, and bytes per observation of a stream.
_MOST_STREAMED, _TABLE_SHARE, _MEMBER = 2.0, 4, 8


@dataclass(frozen=True)
class ObservationVariates:
    """Expansions of all observations about an anchor, with bounds on their remainders."""

    order: int
    """2 or 3."""
    anchor: FloatArray
    """Shape (dim,)."""
    cholesky: FloatArray
    """Shape (dim, dim): L, the factor of the covariance in whose metric the bounds are."""
    hessian: FloatArray
    """Shape (dim, dim): Hessian of the sum of all log likelihoods at the anchor."""
    third: FloatArray
    """Shape (dim (dim + 1) (dim + 2) / 6,) or (0,): in the third order, its third derivatives, as coefficients of
    products (`stansub.target.cubics`).
    """
    expected: float
    """Observations that a decision is expected to pick for independent draws from the normal approximation."""
    screened: bool
    """Whether a decision finds bounds of all observations before it picks some."""
    _kept: list[_loop.Observations] = field(default_factory=list, repr=False, compare=False, metadata=ANEW)

    blockwise = None

    @classmethod
    def at(
        cls, predictors: Predictors, anchor: FloatArray, cholesky: FloatArray, *, threads: int = 1
    ) -> ObservationVariates:
        """Return expansions at an anchor, with bounds in the metric of the covariance with this factor.

        Raises
        ------
        NoPredictorsError
            If the decision loop does not support the family.
        """
        site = Site(anchor, cholesky)
        surveyed = _survey(predictors, site, (2, 3) if _is_affordable(predictors) else (2,), threads)
        way = _best_way(predictors, surveyed)
        made = _expand(predictors, site, way, surveyed, threads)
        expected, sums = way.expected(made.bound) + made.n_unbounded, made.sums
        return cls(way.order, anchor, cholesky, sums.hessian, sums.third, expected, way.screened, [made.loop])

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
            predictors, site = target.predictors(), Site(self.anchor, self.cholesky)
            surveyed = _survey(predictors, site, (self.order,), 1)
            way = _Way.of(predictors, self.order, screened=self.screened)
            self._kept.append(_expand(predictors, site, way, surveyed, 1).loop)
        return {"observations": self._kept[0]}

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields without objects of the decision loop, which belong to one process and are made again."""
        return {one.name: getattr(self, one.name) for one in fields(self)} | {"_kept": []}


class _Expanded(NamedTuple):
    """Input of the decision loop, sums over all observations, the sum of the bounds, and the number of observations
    that have none, which every decision evaluates.
    """

    loop: _loop.Observations
    sums: Sums
    bound: float
    n_unbounded: int = 0


def foreseen(predictors: LinearPredictors, anchor: FloatArray, cholesky: FloatArray) -> float:
    """Return about how many observations a decision will pick, from the bounds of a sample of them."""
    n, few = predictors.n_observations, foreseeing(predictors)
    surveyed = _survey(few, Site(anchor, cholesky), (2, 3) if _is_affordable(predictors) else (2,), 1)
    bounds = {order: n / few.n_observations * bound for order, bound in surveyed.bounds.items()}
    return min(_Way.of(few, order, screened=False).expected(bound) for order, bound in bounds.items())


def memory_needed(predictors: Predictors) -> int:
    """Return the minimum bytes that the decision loop needs in this process for the observations."""
    if isinstance(predictors, PartitionedPredictors):
        return 0
    return predictors.n_observations * _MEMBER if not predictors.is_in_memory else _table_size(predictors)


def _table_size(predictors: LinearPredictors) -> int:
    """Return the bytes of the records of all observations, of computed designs, and of the alias table."""
    each = (width(predictors, 3) + 3) * np.dtype(np.float64).itemsize
    sketch = _sketch_width(predictors) * np.dtype(np.int16).itemsize if _can_be_sketched(predictors) else 0
    computed = sum(z.nbytes for z in predictors.design if isinstance(z, ColumnRows))
    return int(predictors.n_observations * (each + sketch)) + computed


def _survey(predictors: Predictors, site: Site, orders: tuple[int, ...], threads: int) -> Surveyed:
    """Return sums over all observations, and the starts of their parts if this process holds the designs."""
    parts = predictors.ask(Survey(site, orders, keep=predictors.is_in_memory), threads=threads)
    bounds = {order: sum(part.bounds[order] for part in parts) for order in orders}
    return Surveyed(bounds, parts[0].starts)


def _is_affordable(predictors: Predictors) -> bool:
    """Return whether a cubic is affordable."""
    products = predictors.n_observations * predictors.design[0].shape[1] ** 3
    return predictors.family.highest >= 3 and products <= _MOST_PRODUCTS


class _Way(NamedTuple):
    """Order of the expansions, and how candidates are selected."""

    order: int
    screened: bool
    """Whether a decision first finds bounds of all observations, from rows of 8 bits."""
    growth: float
    """Mean of a bound over its constant, at either end of a move."""

    @classmethod
    def of(cls, predictors: Predictors, order: int, *, screened: bool) -> _Way:
        """Return a way for a likelihood."""
        growth = _screened_growth if screened else mean_growth
        return cls(order, screened, growth(predictors.family, predictors.design[0].shape[1], order))

    def expected(self, bound: float) -> float:
        """Return the number of candidates of a decision, where the bounds' constants have this sum."""
        return 2 * self.growth * bound

    def cost(self, predictors: Predictors, bound: float) -> float:
        """Return the approximate nanoseconds of a decision."""
        dim = int(predictors.design[0].shape[1])
        cubic = _CUBIC + _TERM * n_products(dim) if self.order == 3 else 0.0
        each = _CANDIDATE + _COVARIATE * dim
        if self.screened:
            return cubic + _SCREENED * predictors.n_observations * dim + each * self.expected(bound)
        rejected = isinstance(predictors, LinearPredictors) and _can_be_sketched(predictors)
        return cubic + (_REJECTED if rejected else each) * self.expected(bound)


def _best_way(predictors: Predictors, surveyed: Surveyed) -> _Way:
    """Return the way of the cheapest decisions."""
    ways = [_Way.of(predictors, order, screened=False) for order in surveyed.bounds]
    if isinstance(predictors, LinearPredictors) and predictors.is_in_memory and _can_be_screened(predictors):
        ways += [_Way.of(predictors, order, screened=True) for order in surveyed.bounds]
    return min(ways, key=lambda way: way.cost(predictors, surveyed.bounds[way.order]))


def _screened_growth(family: Family, dim: int, order: int) -> float:
    """Return the mean of floor + (|t| + e)^(p + 1) for standard normal t; e is the screen's error for |w|^2 = dim."""
    error, power, growth = _SCREEN_ERROR * dim, order + 1, family.floor
    for k in range(power + 1):
        growth += math.comb(power, k) * mean_power(1, k) * error ** (power - k)
    return growth


def _expand(predictors: Predictors, site: Site, way: _Way, surveyed: Surveyed, threads: int) -> _Expanded:
    """Return expansions of this order, in a table or as a stream."""
    order, bound = way.order, surveyed.bounds[way.order]
    if isinstance(predictors, LinearPredictors):
        expected = way.expected(bound)
        big = expected > _MOST_STREAMED and _table_size(predictors) <= memory.room().size // _TABLE_SHARE
        if predictors.is_in_memory or big:
            table = _Table.of(predictors, way, expected)
            sums = site.sums(predictors, order, surveyed.starts, table.adding(site.cholesky), threads)
            n_unbounded = table.set_unbounded()
            loop = table.loop(predictors, _common(predictors, site, sums))
            return _Expanded(loop, sums, bound if n_unbounded is not None else LARGEST, n_unbounded or 0)
    expand = Expand(site, order)
    parts = predictors.ask(expand, threads=threads)
    sums = Sums.of([part.sums for part in parts])
    common = _common(predictors, site, sums)
    if isinstance(predictors, LinearPredictors):
        _, classes = expand.kept(predictors)
        source = partial(site.records, predictors, order)
        loop = _stream(predictors, expand, common, classes, classes.members, source, _BATCH_HERE)
        return _Expanded(loop, sums, classes.total)
    pooled = Pooled.of([(part.keys, part.counts) for part in parts])
    wanted = math.ceil(_DECISIONS * way.expected(pooled.total))
    batch = min(max(wanted, _LEAST_BATCH), _MOST_BATCH)
    loop = _stream(predictors, expand, common, pooled, None, _PartitionedSource(predictors, expand, pooled), batch)
    return _Expanded(loop, sums, pooled.total)


def _common(predictors: Predictors, site: Site, sums: Sums) -> _Common:
    # One set of constants, so that one table suffices; larger radii multiply them by the worst ratio.
    factors = np.maximum.accumulate(sums.ratios)
    usable = np.isfinite(factors)
    whitening = np.tril(np.linalg.inv(site.cholesky))
    radii = predictors.radii()[usable], factors[usable]
    return site.anchor, whitening, sums.gradient, sums.hessian, sums.third, *radii


def _stream(
    predictors: Predictors,
    expand: Expand,
    common: _Common,
    classes: Classes | Pooled,
    members: NDArray[np.int32] | None,
    source: _Source,
    batch: int,
) -> _loop.Observations:
    """Return candidates whose records are computed when they are drawn, in batches."""
    anchor, whitening, gradient, hessian, third, radii, factors = common
    return _loop.Observations(
        predictors.family.density,
        tuple(np.ascontiguousarray(z[: int(len(z) == 1)], np.float64) for z in predictors.design),
        constants=constants_of(classes.keys),
        starts=classes.starts,
        members=members,
        source=source,
        batch=batch,
        n=predictors.n_observations,
        width=width(predictors, expand.order),
        anchor=anchor,
        whitening=whitening,
        gradient=gradient,
        hessian=hessian,
        third=third,
        radii=radii,
        factors=factors,
        share=SHARE,
        floor=predictors.family.floor,
    )


@dataclass(frozen=True)
class _PartitionedSource:
    """Source of candidates that partitions hold."""

    predictors: PartitionedPredictors
    expand: Expand
    classes: Pooled

    def __call__(self, places: NDArray[np.int64]) -> tuple[FloatArray, list[FloatArray]]:
        """Return records and rows of the members at some places, with one request to each partition that has some."""
        partitions, own = self.classes.located(places)
        records = np.empty((len(places), width(self.predictors, self.expand.order)))
        designs = [np.empty((1 if len(z) == 1 else len(places), z.shape[1])) for z in self.predictors.design]
        chosen = {int(number): partitions == number for number in np.unique(partitions)}
        asked = {number: Candidates(self.expand, own[some]) for number, some in chosen.items()}
        for some, (found, rows) in zip(chosen.values(), self.predictors.ask_some(asked), strict=True):
            records[some] = found
            for design, z in zip(designs, rows, strict=True):
                design[some if len(design) > 1 else slice(None)] = z
        return records, designs


_Source = Callable[[NDArray[np.int64]], tuple[FloatArray, list[FloatArray]]]
# Common to table and stream: the sum of all expansions, and the radii of bounds.
_Common = tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]


class _Table(NamedTuple):
    """Records of all observations and, if these pay, their rows of 16 or 8 bits."""

    records: FloatArray
    sketch: NDArray[np.int16] | None
    screen: NDArray[np.int8] | None

    @classmethod
    def of(cls, predictors: LinearPredictors, way: _Way, expected: float) -> _Table:
        """Return an empty table."""
        n, dim = predictors.n_observations, predictors.design[0].shape[1]
        sketched = not way.screened and _can_be_sketched(predictors) and expected >= _LEAST_SKETCHED
        return cls(
            np.empty((n, width(predictors, way.order))),
            np.zeros((n, _sketch_width(predictors)), np.int16) if sketched else None,
            np.empty((n, dim), np.int8) if way.screened else None,
        )

    def adding(self, cholesky: FloatArray) -> Each:
        """Return a function that fills in some observations."""

        def add(
            rows: slice, part: LinearPredictors, start: Start, constants: FloatArray, derivatives: list[FloatArray]
        ) -> None:
            record(self.records[rows], part, start, constants, derivatives)
            if self.sketch is not None:
                _round(self.sketch[rows], _loop.SKETCH_UNIT, part, start, cholesky)
            if self.screen is not None:
                _round(self.screen[rows], _loop.SCREEN_UNIT, part, start, cholesky)

        return add

    def set_unbounded(self) -> int | None:
        """Make the constants of observations without a bound infinite; return their number, or None if it is large."""
        without = self.records[:, 0] >= LARGEST
        if np.count_nonzero(without) > SHARE * len(without):
            return None
        self.records[without, 0] = np.inf
        return int(np.count_nonzero(without))

    def loop(self, predictors: LinearPredictors, common: _Common) -> _loop.Observations:
        """Return the input of the decision loop."""
        return _loop.Observations(
            predictors.family.density,
            tuple(np.ascontiguousarray(z, np.float64) for z in predictors.matrices),
            self.records,
            *common,
            SHARE if self.sketch is None else _SHARE_SKETCHED,
            self.sketch,
            self.screen,
            predictors.family.floor,
        )


def _can_be_sketched(predictors: LinearPredictors) -> bool:
    """Return whether a single argument has a row for each observation, and a long one."""
    return predictors.design[0].shape[1] >= _SKETCHED and sum(len(z) > 1 for z in predictors.design) == 1


def _can_be_screened(predictors: LinearPredictors) -> bool:
    """Return whether bounds of all observations can follow from rows of 8 bits."""
    return _can_be_sketched(predictors) and predictors.design[0].shape[1] <= _MOST_SCREENED


def _sketch_width(predictors: LinearPredictors) -> int:
    """Return the numbers per row of 16 bits."""
    return int(math.ceil(predictors.design[0].shape[1] / _LINE) * _LINE)


def _round(
    out: NDArray[np.signedinteger[Any]], unit: float, part: LinearPredictors, start: Start, cholesky: FloatArray
) -> None:
    """Write L' z / l of the argument that has rows, in these units."""
    ((place, z),) = ((k, z) for k, z in enumerate(part.matrices) if len(z) > 1)
    lengths = start.lengths[place]
    rows = z @ cholesky
    rows *= np.divide(unit, lengths, out=np.zeros_like(lengths), where=lengths > 0)[:, np.newaxis]
    out[:, : rows.shape[1]] = np.rint(rows)
