"""Sparse rows of a likelihood in its own arguments, followed through its text.

The text shows which elements of which variables each observation reads, with what factors. Variables of which
observations read most elements are kept dense. Of those of which they read few, such as the level of a grouping or the
two sides of a match, only what is read is kept. Tall data are processed in parts of the rows, because intermediate
results need several times the memory.

Terms over arrays of different lengths, such as event times and censored times, are sums of their own. The observations
of all of them have one program, one sum after the other. If that cannot be followed, the main sum is taken alone, and
the others are evaluated with the prior.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub import memory
from stansub.errors import InputError
from stansub.progress import as_progress
from stansub.stan.analysis import Analysis
from stansub.stan.cutting import FEWEST, first_rows
from stansub.stan.data.data import Data
from stansub.stan.likelihood import LikelihoodSplit
from stansub.stan.observations.design import TOGETHER, Cut, Part
from stansub.stan.observations.observation import ObservationTerm, follow
from stansub.stan.observations.predictors import Affine, affine_density, arguments_of, collected, reading
from stansub.stan.observations.row_program import Argument
from stansub.target.remainders import NoPredictorsError
from stansub.target.rows import shortest
from stansub.target.sparse import Column, SparsePredictors, SparseRows, columns_of
from stansub.target.threads import THREADS
from stansub.types import Check

_FOLLOWING = "Following the likelihood of an observation"
_UNREAD = "stansub cannot read its likelihood: "
# Elements of a variable, for each that an observation reads, up to which it is dense; observations from which they are
# processed in parts, the fewest of a part, up to how many parts, and the most; those that are tried before; share of
# the observations that read a variable from which it has a column of its own in any case.
_FEW, _ROWS, _PARTS, _MOST, _TRIED, _OWN = 8, 1 << 16, 32, 1 << 18, 1 << 12, 0.1


@dataclass(frozen=True)
class LikelihoodSums:
    """A likelihood in its own arguments, with the data of its sums."""

    own: LikelihoodSplit
    sizes: tuple[str, ...]
    """The integer that counts the terms of each sum."""
    values: Data
    """All data, with transformed data as far as known."""

    @property
    def is_cut(self) -> bool:
        """Return whether parts of the rows are followed one by one, unless all are followed ``as_whole``."""
        return len(self.sizes) == 1 and is_cut(self.own, self.values.integer(*self.sizes))

    def follow(self, *, as_whole: bool = False, progress: Callable[[str], None] | None = None) -> SparsePredictors:
        """Return the rows of all observations, not yet proved.

        Raises `NoPredictorsError` if the text cannot be followed.
        """
        if len(self.sizes) > 1:
            log = as_progress(progress)
            log(_FOLLOWING)
            return _predictors_of_sums(self.own, list(map(self._alone, self.sizes)), log.check)
        (size,) = self.sizes
        cut = None if as_whole else cutting(self.values, size)
        return sparse_predictors(self.own, self.values.values, self.values.integer(size), cut=cut, progress=progress)

    def _alone(self, size: str) -> tuple[Mapping[str, Any], int]:
        """Return the data of one sum, without rows of the others."""
        others = [(one,) for one in self.sizes if one != size]
        try:
            return first_rows(self.values, others, 0).values, self.values.integer(size)
        except InputError as error:
            raise NoPredictorsError(str(error)) from error


class Followed(NamedTuple):
    """A likelihood in its own arguments, with the rows of its observations."""

    sums: LikelihoodSums
    predictors: SparsePredictors


def follow_likelihood(
    analysis: Analysis,
    values: Data,
    size: str,
    *,
    alone: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Followed:
    """Return the likelihood with all of its sums or, if these cannot be followed, with the main one.

    Raises `NoPredictorsError` if that cannot be followed either; the message says where.

    Parameters
    ----------
    values : Data
        All data, with transformed data as far as known.
    size : str
        Counts the observations of the main sum.
    alone : bool
        Whether to take the main sum alone.
    """
    refusal = NoPredictorsError(f"{size} does not count the observations of the likelihood")
    for sizes in _choices(analysis, values, size, alone):
        try:
            sums = LikelihoodSums(analysis.likelihood_split(*sizes), sizes, values)
            return Followed(sums, sums.follow(progress=progress))
        except NoPredictorsError as error:
            refusal = error
    raise refusal


def _choices(analysis: Analysis, values: Data, size: str, alone: bool) -> Iterator[tuple[str, ...]]:
    """Yield integers that count the terms of each sum."""
    _, main = analysis.over_data(size)
    if not values.values.keys() >= set(main):
        return
    others = () if alone else analysis.other_sums(*main)
    if more := [other for other in others if values.integer(other) >= FEWEST]:
        yield *main, *more
    yield main


def sparse_predictors(
    own: LikelihoodSplit,
    values: Mapping[str, Any],
    n: int,
    *,
    cut: Cut | None = None,
    progress: Callable[[str], None] | None = None,
) -> SparsePredictors:
    """Return the rows of a likelihood with n observations, of a known family or else a program; not yet proved.

    Raises `NoPredictorsError` if its text cannot be followed, or it has too many arguments.

    Parameters
    ----------
    values : mapping
        Data of all observations.
    cut : Cut, optional
        The same data, to process them part by part.
    """
    log = as_progress(progress)
    log(_FOLLOWING)
    if cut is not None and is_cut(own, n):
        try:
            return _by_parts(own, n, cut, log.check)
        except InputError:  # followed as a whole, it has another reason, or none
            pass
        finally:
            memory.give_back()
    return _predictors_of_sums(own, [(values, n)], log.check)


def _predictors_of_sums(
    own: LikelihoodSplit, sums: Sequence[tuple[Mapping[str, Any], int]], check: Check
) -> SparsePredictors:
    """Return the rows of a likelihood, one sum after the other, from data and number of observations of each sum.

    They are not yet proved. Raises `NoPredictorsError` if its text cannot be followed, or it has too many arguments.
    """
    with reading(_UNREAD):
        followed = [follow(own.likelihood, values, n, sparse=True, check=check) for values, n in sums]
        family, arguments = arguments_of(followed, [n for _, n in sums], check=check)
    variables, n = _variables(followed[0]), sum(n for _, n in sums)
    del followed  # its terms have rows of their own, as large as those of the arguments
    if family.floor:
        raise NoPredictorsError("the log likelihood has a kink, which surrogate transitions do not support")
    m = arguments[0].slopes.shape[1]
    return SparsePredictors(tuple(_whole(_part(one, variables, n), m) for one in arguments), family)


def is_cut(own: LikelihoodSplit, n: int) -> bool:
    """Return whether parts can be followed: transformed data may be computed from all rows, which a part lacks."""
    return n > _ROWS and not own.likelihood.transformed_data.statements


def cutting(values: Data, size: str) -> Cut | None:
    """Return data that are cut along a size; None if they cannot be."""
    try:
        return Cut.of(values, size)
    except InputError:
        return None


def _variables(followed: ObservationTerm) -> list[NDArray[np.int64]]:
    """Return indices of the elements of each variable of phi."""
    return [places for shape in followed.shapes for places in _vectors(shape)]


def _by_parts(own: LikelihoodSplit, n: int, cut: Cut, check: Check) -> SparsePredictors:
    """Return the predictors of a known family."""
    n_parts = max(min(-(-n // _ROWS), _PARTS), -(-n // _MOST))
    ends = np.linspace(0, n, n_parts + 1).astype(int).tolist()
    parts = list(map(slice, ends, ends[1:]))

    def affine(rows: slice) -> tuple[slice, Affine, list[Part]]:
        k = rows.stop - rows.start
        with reading(_UNREAD):
            followed = follow(own.likelihood, cut.part(rows), k, sparse=True, check=check)
            found = affine_density(followed, k)
        return rows, found, [_part(one, _variables(followed), k) for one in found.arguments]

    affine(slice(0, _TRIED))  # a family that is not known mostly shows here
    with ThreadPoolExecutor(max_workers=THREADS) as pool:
        # A few at a time: what is followed takes more memory than what stays of it.
        some = (pool.map(affine, parts[first : first + THREADS]) for first in range(0, n_parts, THREADS))
        family, kept = collected(chain.from_iterable(some), n, cut)
    return SparsePredictors(tuple(one.rows() for one in kept), family)


def _part(argument: Argument, variables: Sequence[NDArray[np.int64]], n: int) -> Part:
    slopes = sp.csr_array(argument.slopes)
    n_rows, m = slopes.shape
    row = np.repeat(np.arange(n_rows, dtype=np.int32), np.diff(slopes.indptr))
    dense, columns = {}, dict[int, tuple[Column, ...]]()
    rare = list[sp.csr_array]()
    for k, variable in enumerate(variables):
        own = np.isin(np.arange(m), variable)[slopes.indices]
        if not own.any():
            continue
        reads = np.bincount(row[own], minlength=n_rows)
        if n_rows == n and len(variable) > _FEW * reads.max():
            read = sp.csr_array((slopes.data[own], (row[own], slopes.indices[own])), shape=(n, m))
            if reads.max() > 1:
                columns[k] = columns_of(_by_factor(read))
            elif np.count_nonzero(reads) > _OWN * n:
                columns[k] = columns_of(read)
            else:
                rare, columns[k] = _apart(rare, read), ()
            continue
        some = np.flatnonzero(np.bincount(slopes.indices[own], minlength=m))
        column = np.searchsorted(some, slopes.indices[own])
        block = sp.coo_array((slopes.data[own], (row[own], column)), shape=(n_rows, len(some))).toarray()
        dense[k] = some.astype(np.int64), block
    columns[TOGETHER] = tuple(column for one in rare for column in columns_of(one))
    return Part(n, dense, columns, argument.offset)


def _apart(several: Sequence[sp.csr_array], read: sp.csr_array) -> list[sp.csr_array]:
    """Return matrices with another added to the first in whose rows it has nothing, or at their end."""
    counts = np.diff(read.indptr)
    free = (k for k, one in enumerate(several) if not (np.diff(one.indptr) * counts).any())
    if (place := next(free, None)) is None:
        return [*several, read]
    return [one + read if k == place else one for k, one in enumerate(several)]


def _by_factor(read: sp.csr_array) -> sp.csr_array:
    """Return the same numbers, each row in increasing order: those of two sides of a match are then two columns."""
    read.eliminate_zeros()
    rows = np.repeat(np.arange(read.shape[0]), np.diff(read.indptr))
    order = np.lexsort((read.indices, read.data, rows))
    return sp.csr_array((read.data[order], read.indices[order], read.indptr), shape=read.shape)


def _whole(part: Part, m: int) -> SparseRows:
    """Return the rows of all observations."""
    places = np.concatenate([*(elements for elements, _ in part.dense.values()), np.empty(0, np.int64)])
    rows, first = np.zeros((part.n, len(places))), 0
    for _, block in part.dense.values():
        rows[:, first : first + block.shape[1]] = block
        first += block.shape[1]
    columns = tuple(column for _, own in sorted(part.columns.items()) for column in own)
    return SparseRows(shortest(rows), places.astype(np.int64), columns, shortest(part.offset), part.n, m)


def _vectors(places: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield indices of a variable's elements; for a matrix or array, along its shortest index."""
    if places.ndim < 2:
        yield places.ravel()
        return
    axis = int(np.argmin(places.shape))
    for k in range(places.shape[axis]):
        yield from _vectors(np.take(places, k, axis=axis))
