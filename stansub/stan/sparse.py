"""Sparse rows of a likelihood in its own arguments, found by probing a program that hands its predictors out.

Where each observation reads one element of a variable, linearly, two evaluations tell which and with what factor: all
elements moved by 1 give the factor, element k moved by k the factor times k. Other variables are moved element by
element. What is found is believed only after a proof on all observations, at other points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.stan.data import Data
from stansub.stan.densities import Rows
from stansub.stan.likelihood import OwnArguments
from stansub.stan.predictors import Columns, HandedOut
from stansub.stan.recognise import recognise
from stansub.target.remainders import NoPredictorsError
from stansub.target.sparse import SparsePredictors, SparseRows, stacked
from stansub.types import FloatArray

# Up to so many elements of a variable are moved one by one, without a guess that observations read one each.
_FEW = 8
# Relative rounding of predictors; points of the proof.
_AFFINE, _N_POINTS = 1e-9, 3
_ROUNDING = 1e-13


def sparse_predictors(
    own: OwnArguments,
    size: str,
    values: Data,
    n: int,
    name: str,
    progress: Callable[[str], None] | None = None,
) -> SparsePredictors:
    """The rows of a likelihood of a recognised family; it takes a compilation.

    Raises
    ------
    NoPredictorsError
        When it is of no recognised family, or its predictors are not affine in the arguments.
    """
    program = own.likelihood
    source = HandedOut.of(program, recognise(program), size, name, progress)
    columns = source.columns(values, n)
    names = columns.names
    rng = np.random.default_rng(0)
    base, *points = rng.uniform(-1, 1, (1 + _N_POINTS, len(names)))
    probe = _Probe(columns, base)
    parts = [probe.part(places) for places in _variables(names)]
    rows = [_joined([part[k] for part in parts], len(names), n) for k in range(len(probe.at_base))]
    found = [
        SparseRows(row.dense, row.places, row.gathered, _short(value - row(base)))
        for row, value in zip(rows, probe.at_base, strict=True)
    ]
    for point in points:
        given, predicted = columns(point)
        if not np.array_equal(given, probe.given):
            raise NoPredictorsError("what its density is of, or a known argument, depends on parameters")
        for k, (row, value) in enumerate(zip(found, predicted, strict=True)):
            _, link = columns.argument(k)
            scale = 1 + np.abs(value) + abs(row.dense) @ np.abs(point[row.places]) + abs(row.gathered) @ np.abs(point)
            error = np.abs(value - row(point) - row.offset)
            if not (error <= _AFFINE * scale + link.rounding(value)).all():
                raise NoPredictorsError(f"argument {k + 1} of {source.density} is not affine in what it is made of")
    constant = [_constant(row) for row in found]
    family, kept = columns.spec.choose(Rows(probe.given[0], list(probe.given[1:]), constant))
    return SparsePredictors(tuple(found[k] for k in kept), family)


class _Part(NamedTuple):
    """What one variable adds to the rows of one argument."""

    dense: list[FloatArray]
    places: list[int]
    place: NDArray[np.int64] | None
    factor: FloatArray | None


class _Probe:
    """The program's predictors about a point."""

    def __init__(self, columns: Columns, base: FloatArray) -> None:
        self._columns, self._base = columns, base
        self.given, self.at_base = columns(base)

    def part(self, places: NDArray[np.int64]) -> list[_Part]:
        """What a variable, by its places among the arguments, adds to each argument's rows."""
        whole = self._change(places, np.ones(len(places)))
        found: list[_Part] = []
        gathered = self._gathered(places, whole) if len(places) > _FEW else [None] * len(whole)
        each = None
        for k, one in enumerate(gathered):
            if one is not None:
                found.append(_Part([], [], *one))
                continue
            if each is None:
                each = [self._change(places[j : j + 1], np.ones(1)) for j in range(len(places))]
            some = [(_short(change[k]), int(place)) for change, place in zip(each, places, strict=True)]
            some = [(column, place) for column, place in some if column.any()]
            found.append(_Part([column for column, _ in some], [place for _, place in some], None, None))
        return found

    def _change(self, places: NDArray[np.int64], step: FloatArray) -> FloatArray:
        point = self._base.copy()
        point[places] += step
        with np.errstate(invalid="ignore"):
            return np.asarray(self._columns(point)[1] - self.at_base)

    def _gathered(
        self, places: NDArray[np.int64], whole: FloatArray
    ) -> list[tuple[NDArray[np.int64], FloatArray] | None]:
        """For each argument which element each observation reads, and its factor; None where it does not read one."""
        size = len(places)
        numbers = self._change(places, np.arange(1, size + 1) / size)
        check = np.random.default_rng(1).uniform(-1, 1, size)
        checked = self._change(places, check)
        found: list[tuple[NDArray[np.int64], FloatArray] | None] = []
        for factor, number, again in zip(whole, numbers, checked, strict=True):
            reads = np.abs(factor) > _AFFINE
            with np.errstate(divide="ignore", invalid="ignore"):
                place = np.where(reads, np.rint(number / factor * size), 1)
            if not np.isfinite(place).all() or place.min() < 1 or place.max() > size:
                found.append(None)
                continue
            index = place.astype(np.int64) - 1
            # Differences are off by rounding; factors of 1 are 1.
            near = np.rint(factor)
            used = np.where(reads, np.where(np.abs(factor - near) <= _ROUNDING, near, factor), 0.0)
            right = np.abs(again - used * check[index]) <= _AFFINE * (1 + np.abs(factor)) * 10
            found.append((places[index], used) if right.all() and reads.any() else None)
        return found


def _joined(parts: Sequence[_Part], m: int, n: int) -> SparseRows:
    dense = stacked([column for part in parts for column in part.dense])
    places = np.array([place for part in parts for place in part.places], np.int64)
    several = [(part.place, part.factor) for part in parts if part.place is not None and part.factor is not None]
    if several:
        index = np.stack([np.broadcast_to(index, n) for index, _ in several], 1)
        factor = np.stack([np.broadcast_to(factor, n) for _, factor in several], 1)
        starts = np.arange(0, n * len(several) + 1, len(several))
        gathered = sp.csr_array((factor.ravel(), index.ravel(), starts), shape=(n, m))
        gathered.eliminate_zeros()
    else:
        gathered = sp.csr_array((n, m))
    return SparseRows(dense, places, gathered, np.zeros(1))


def _variables(names: Sequence[str]) -> Iterator[NDArray[np.int64]]:
    """Places of each variable's elements; a matrix's or array's by its first or last index, whichever is shorter."""
    heads: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        heads.setdefault(name.split(".")[0], []).append(place)
    for places in heads.values():
        yield from _vectors(np.array(places, np.int64), [names[place].split(".")[1:] for place in places])


def _vectors(places: NDArray[np.int64], indices: Sequence[Sequence[str]]) -> Iterator[NDArray[np.int64]]:
    if len(indices[0]) < 2:
        yield places
        return
    spread = [len({index[k] for index in indices}) for k in range(len(indices[0]))]
    shorter = int(np.argmin(spread))
    for value in dict.fromkeys(index[shorter] for index in indices):
        own = [k for k, index in enumerate(indices) if index[shorter] == value]
        rest = [[part for k, part in enumerate(indices[at]) if k != shorter] for at in own]
        yield from _vectors(places[own], rest)


def _short(values: FloatArray) -> FloatArray:
    """One entry where all are the same."""
    return values[:1] if (values == values[0]).all() else values


def _constant(row: SparseRows) -> FloatArray | None:
    """The value of an argument that depends on nothing."""
    if row.dense.size or row.gathered.nnz:
        return None
    return np.broadcast_to(row.offset, row.n)
