"""Expansions of observations at a point: sums over many, and records of single ones for the decision loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from stansub.target.classes import Classes, keys
from stansub.target.partitioned import Predictors
from stansub.target.remainders import LARGEST, LinearPredictors
from stansub.types import FloatArray, Places


class Start(NamedTuple):
    """For some observations: arguments at the anchor, their lengths, and the first radius's constants by order."""

    centre: FloatArray
    lengths: FloatArray
    constants: dict[int, FloatArray]


class Surveyed(NamedTuple):
    """Sums of the first radius's constants by order, of observations that have a bound, and the starts of all parts if
    memory holds them.
    """

    bounds: dict[int, float]
    starts: dict[int, Start]


class Sums(NamedTuple):
    """For some observations: derivatives of the sum of log likelihoods, and growth of the bounds with the radius."""

    gradient: FloatArray
    hessian: FloatArray
    third: FloatArray
    ratios: FloatArray

    @classmethod
    def of(cls, parts: Sequence[Sums]) -> Sums:
        """Return the sums over several holders of observations."""
        gradient, hessian, third = (np.sum([part[k] for part in parts], axis=0) for k in range(3))
        return cls(gradient, hessian, third, np.max([part.ratios for part in parts], axis=0))


# Called with some observations, their predictors, start, constants and derivatives.
Each = Callable[[slice, LinearPredictors, Start, FloatArray, list[FloatArray]], None]


@dataclass(frozen=True)
class Site:
    """Point at which observations are expanded, with the metric of the bounds."""

    anchor: FloatArray
    cholesky: FloatArray

    @property
    def key(self) -> bytes:
        """Return bytes that identify the site."""
        return self.anchor.tobytes() + self.cholesky.tobytes()

    def start(self, part: LinearPredictors, orders: Sequence[int]) -> Start:
        """Return the start for some observations."""
        centre, lengths, radius = part.at(self.anchor), part.lengths(self.cholesky), float(part.radii()[0])
        part = part.smoothed(centre, lengths)
        return Start(centre, lengths, {order: part.constants(centre, lengths, radius, order=order) for order in orders})

    def sums(
        self, predictors: LinearPredictors, order: int, starts: Mapping[int, Start], each: Each, threads: int
    ) -> Sums:
        """Return sums over the observations of one holder; ``each`` receives what belongs to single observations."""
        radii = predictors.radii()

        def of(part: LinearPredictors, rows: slice) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
            start = starts.get(rows.start) or self.start(part, (order,))
            part = part.smoothed(start.centre, start.lengths)
            first = start.constants[order]
            slopes, curves, *third = part.family.derivatives(range(1, order + 1), start.centre)
            each(rows, part, start, first, [slopes, curves, *third])
            further = [part.constants(start.centre, start.lengths, radius, order=order) for radius in radii[1:]]
            ratios = np.array([1.0, *(_ratio(constants, first) for constants in further)])
            hessian = part.hessian(curves) if part.family.floor else np.empty(0)
            return part.gradient(slopes), hessian, part.third(*third) if third else np.empty(0), ratios

        # With parts this small, BLAS's own threads would wait for each other.
        with threadpool_limits(limits=1, user_api="blas"):
            gradients, hessians, thirds, ratios = zip(*predictors.map(of, threads=threads), strict=True)
            # The search for the mode has computed it, if there are no kinks to smooth on the scale of this site.
            smooth = not predictors.family.floor
            hessian = predictors.hessian_at(self.anchor, threads=threads) if smooth else np.sum(hessians, axis=0)
        return Sums(np.sum(gradients, axis=0), hessian, np.sum(thirds, axis=0), np.max(ratios, axis=0))

    def records(self, predictors: LinearPredictors, order: int, which: Places) -> tuple[FloatArray, list[FloatArray]]:
        """Return records of some observations, without constants, and their rows."""
        part = predictors.part(which)
        start, records = self.start(part, ()), np.empty((len(which), width(predictors, order)))
        part = part.smoothed(start.centre, start.lengths)
        derivatives = part.family.derivatives(range(1, order + 1), start.centre)
        record(records, part, start, np.zeros(len(which)), derivatives)
        return records, [np.ascontiguousarray(z, np.float64) for z in part.matrices]


@dataclass(frozen=True)
class Survey:
    """Request for sums of constants, from which the order is chosen; ``keep`` says whether to return starts, too."""

    site: Site
    orders: tuple[int, ...]
    keep: bool = False

    def answer(self, holder: LinearPredictors, *, threads: int = 1) -> Surveyed:
        """Return the sums for the holder's observations."""
        bounds, starts = dict.fromkeys(self.orders, 0.0), {}

        def of(part: LinearPredictors, rows: slice) -> tuple[int, Start | None, list[float]]:
            start = self.site.start(part, self.orders)
            return rows.start, start if self.keep else None, [_bounded(start.constants[k]) for k in self.orders]

        with threadpool_limits(limits=1, user_api="blas"):
            for first, start, sums in holder.each(of, threads=threads):
                if start is not None:
                    starts[first] = start
                for order, one in zip(self.orders, sums, strict=True):
                    bounds[order] += one
        return Surveyed(bounds, starts)


class Expanded(NamedTuple):
    """Answer to `Expand`: sums, keys of the classes of constants, and the number of observations in each."""

    sums: Sums
    keys: NDArray[np.int16]
    counts: NDArray[np.int64]


@dataclass(frozen=True)
class Expand:
    """Request for the expansions of all observations, whose classes the holder keeps for `Candidates`."""

    site: Site
    order: int

    def answer(self, holder: LinearPredictors, *, threads: int = 1) -> Expanded:
        """Return sums and classes of the holder's observations."""
        sums, classes = self.kept(holder, threads)
        return Expanded(sums, classes.keys, np.diff(classes.starts))

    def kept(self, holder: LinearPredictors, threads: int = 1) -> tuple[Sums, Classes]:
        """Return sums and classes, computed again unless they are the latest that the holder computed."""

        def made() -> tuple[Sums, Classes]:
            found = np.empty(holder.n_observations, np.int16)

            def each(rows: slice, _: LinearPredictors, __: Start, constants: FloatArray, *___: object) -> None:
                found[rows] = keys(constants)

            sums = self.site.sums(holder, self.order, {}, each, threads)
            return sums, Classes.of([found[rows] for rows in holder.ends])

        return holder.keep("classes", (self.order, self.site.key), made)


@dataclass(frozen=True)
class Candidates:
    """Request for records and rows of the members of the classes at some places."""

    expand: Expand
    places: NDArray[np.int64]

    def answer(self, holder: LinearPredictors, *, threads: int = 1) -> tuple[FloatArray, list[FloatArray]]:
        """Return the records, without constants, and the rows of each argument."""
        _, classes = self.expand.kept(holder, threads)
        return self.expand.site.records(holder, self.expand.order, classes.members[self.places])


def width(predictors: Predictors, order: int) -> int:
    """Return the numbers per record."""
    q = len(predictors.design)
    # With no observations, because the data of all of them use smaller types.
    n_data = len(predictors.family.part(slice(0, 0)).data)
    return int(1 + 3 * q + q * (q + 1) // 2 + (order > 2) + n_data)


def record(
    out: FloatArray,
    part: LinearPredictors,
    start: Start,
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


def _bounded(constants: FloatArray) -> float:
    """Return the sum of the constants of observations that have a bound."""
    return float(constants[constants < LARGEST].sum())


def _ratio(constants: FloatArray, first: FloatArray) -> float:
    """Return the worst ratio of a radius's constants to those of the first, of observations that have a bound there."""
    constants, first = constants[first < LARGEST], first[first < LARGEST]
    if (first > 0).all():
        return float((constants / first).max(initial=1.0))
    where = first > 0
    return np.inf if (constants[~where] > 0).any() else float((constants[where] / first[where]).max(initial=1.0))
