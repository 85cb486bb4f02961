"""Sparse rows of a likelihood in its own arguments, followed through its text.

The text shows which elements of which variables each observation reads, with what factors. Columns that all
observations have are kept dense; if each observation reads one element of a variable, only that is kept. Tall data are
processed in parts of the rows, because intermediate results need several times the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub import memory
from stansub.errors import InputError
from stansub.stan.data import Data
from stansub.stan.densities import Rows, Spec
from stansub.stan.likelihood import LikelihoodSplit
from stansub.stan.observation import ObservationTerm, follow
from stansub.stan.predictors import affine_density, arguments_of
from stansub.stan.row_program import Argument
from stansub.target.remainders import NoPredictorsError
from stansub.target.rows import compact, shortest
from stansub.target.sparse import SparsePredictors, SparseRows
from stansub.types import FloatArray

# Maximum elements of dense variables; minimum observations per part, and maximum number of parts.
_FEW, _ROWS, _PARTS = 8, 1 << 16, 32

Cut = Callable[[slice], Mapping[str, Any]]


def sparse_predictors(
    own: LikelihoodSplit, values: Mapping[str, Any], n: int, *, of_family: bool = False, cut: Cut | None = None
) -> SparsePredictors:
    """Return the rows of a likelihood with n observations, of a known family or else a program; not yet proved.

    Parameters
    ----------
    values : mapping
        Data of all observations.
    of_family : bool
        Whether only a known family is acceptable.
    cut : callable, optional
        Data of some rows, to process one part after the other.

    Raises
    ------
    NoPredictorsError
        If its text cannot be followed, it is no known family and ``of_family`` is set, or it has too many arguments.
    """
    if cut is not None and is_cut(own, n):
        try:
            return _by_parts(own, n, cut)
        except InputError:  # followed as a whole, it has another reason, or none
            pass
        finally:
            memory.give_back()
    followed = _followed(own, values, n)
    family, arguments = arguments_of(followed, n, of_family=of_family)
    variables = _variables(followed)
    del followed  # its terms have rows of their own, as large as those of the arguments
    return SparsePredictors(tuple(_joined([_part(one, variables, n)], n) for one in arguments), family)


def is_cut(own: LikelihoodSplit, n: int) -> bool:
    """Return whether parts can be followed: transformed data may be computed from all rows, which a part lacks."""
    return n > _ROWS and not own.likelihood.transformed_data.statements


def cutting(values: Data, size: str) -> Cut | None:
    """Return the function that cuts data along a size; None if they cannot be cut."""
    try:
        axes = values.axes((size,))
    except InputError:
        return None
    return lambda rows: values.rows(axes, (size,), rows).values


def _followed(own: LikelihoodSplit, values: Mapping[str, Any], n: int, *, sparse: bool = False) -> ObservationTerm:
    try:
        return follow(own.likelihood, values, n, sparse=sparse)
    except NoPredictorsError:
        raise
    except InputError as error:
        raise NoPredictorsError(f"stansub cannot read its likelihood: {error}") from error


def _variables(followed: ObservationTerm) -> list[NDArray[np.int64]]:
    """Return indices of the elements of each variable of phi."""
    return [places for shape in followed.shapes for places in _vectors(shape)]


def _by_parts(own: LikelihoodSplit, n: int, cut: Cut) -> SparsePredictors:
    """Return the predictors of a known family."""
    ends = np.linspace(0, n, min(-(-n // _ROWS), _PARTS) + 1).astype(int).tolist()
    specs: list[Spec] = []
    parts: list[list[_Part]] = []
    given: list[list[NDArray[Any]]] = []
    for rows in map(slice, ends, ends[1:]):
        k = rows.stop - rows.start
        followed = _followed(own, cut(rows), k, sparse=True)
        spec, known, arguments = affine_density(followed, k)
        specs.append(spec)
        parts.append([_part(one, _variables(followed), k) for one in arguments])
        given.append([compact(one) for one in known])
    if any(spec != specs[0] or len(one) != len(parts[0]) for spec, one in zip(specs, parts, strict=True)):
        raise NoPredictorsError("its density differs between parts of the data")
    each = list(map(list, zip(*parts, strict=True)))
    constant = [None if any(part.is_changing for part in one) else _offsets(one) for one in each]
    y, *others = (np.concatenate(one, dtype=np.float64) for one in zip(*given, strict=True))
    family, kept = specs[0].choose(Rows(y, others, constant))
    return SparsePredictors(tuple(_joined(each[k], n) for k in kept), family)


class _Part(NamedTuple):
    """Rows of an argument for some observations.

    Attributes
    ----------
    n : int
        Number of observations.
    dense : dict
        By variable: the elements read and their factors, shape (n or 1, number of elements).
    gathered : csr_array, shape (n, m)
        Factors of variables of which each observation reads one element.
    sparse : frozenset of int
        These variables.
    offset : ndarray, shape (n,) or (1,)
    """

    n: int
    dense: dict[int, tuple[NDArray[np.int64], FloatArray]]
    gathered: sp.csr_array
    sparse: frozenset[int]
    offset: FloatArray

    @property
    def is_changing(self) -> bool:
        """Return whether any variable is read."""
        return bool(self.dense or self.sparse)


def _part(argument: Argument, variables: Sequence[NDArray[np.int64]], n: int) -> _Part:
    slopes = sp.csr_array(argument.slopes)
    n_rows, m = slopes.shape
    row = np.repeat(np.arange(n_rows, dtype=np.int32), np.diff(slopes.indptr))
    dense, sparse = {}, set()
    gathered = sp.csr_array((n, m))
    for k, variable in enumerate(variables):
        own = np.isin(np.arange(m), variable)[slopes.indices]
        if not own.any():
            continue
        reads = np.bincount(row[own], minlength=n_rows)
        if len(variable) > _FEW and n_rows == n and reads.max() <= 1:
            gathered = gathered + sp.csr_array((slopes.data[own], (row[own], slopes.indices[own])), shape=(n, m))
            sparse.add(k)
            continue
        some, column = np.unique(slopes.indices[own], return_inverse=True)
        block = sp.coo_array((slopes.data[own], (row[own], column)), shape=(n_rows, len(some))).toarray()
        dense[k] = some.astype(np.int64), block
    return _Part(n, dense, gathered, frozenset(sparse), argument.offset)


def _joined(parts: list[_Part], n: int) -> SparseRows:
    """Return the rows of all observations; consumes the parts.

    Raises
    ------
    NoPredictorsError
        If a variable is dense in one part and not in another.
    """
    dense = {k for part in parts for k in part.dense}
    if dense & {k for part in parts for k in part.sparse}:
        raise NoPredictorsError("the form of its rows differs between parts of the data")
    some = ((k, [part.dense[k][0] for part in parts if k in part.dense]) for k in sorted(dense))
    read = {k: np.unique(np.concatenate(elements)) for k, elements in some}
    firsts = dict(zip(read, np.cumsum([0, *map(len, read.values())]), strict=False))
    places = np.concatenate([*read.values(), np.empty(0, np.int64)]).astype(np.int64)
    gathered = _stacked([part.gathered for part in parts])
    offset = shortest(_offsets(parts))
    rows, first = np.zeros((n, len(places))), 0
    for number, part in enumerate(parts):
        for k, (elements, block) in part.dense.items():
            rows[first : first + part.n, firsts[k] + np.searchsorted(read[k], elements)] = block
        first += part.n
        parts[number] = part._replace(dense={})
    return SparseRows(shortest(rows), places, gathered, offset)


def _stacked(parts: Sequence[sp.csr_array]) -> sp.csr_array:
    """Return rows stacked vertically, with indices of 32 bits."""
    found = sp.csr_array(sp.vstack(parts, format="csr"))
    if found.nnz > np.iinfo(np.int32).max:
        return found
    indices, starts = found.indices.astype(np.int32), found.indptr.astype(np.int32)
    return sp.csr_array((found.data, indices, starts), shape=found.shape)


def _offsets(parts: Sequence[_Part]) -> FloatArray:
    return np.concatenate([np.broadcast_to(part.offset, part.n) for part in parts])


def _vectors(places: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yield indices of a variable's elements; for a matrix or array, along its shortest index."""
    if places.ndim < 2:
        yield places.ravel()
        return
    axis = int(np.argmin(places.shape))
    for k in range(places.shape[axis]):
        yield from _vectors(np.take(places, k, axis=axis))
