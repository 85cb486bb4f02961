"""Sparse rows of a likelihood in its own arguments, followed through its text.

The text says which elements of which variables each observation reads, and with what factors. Columns that all
observations have are kept dense; of a variable of which each observation reads one element, only that is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.errors import InputError
from stansub.stan.likelihood import OwnArguments
from stansub.stan.observation import follow
from stansub.stan.predictors import arguments_of
from stansub.stan.row_program import Argument
from stansub.target.remainders import NoPredictorsError
from stansub.target.sparse import SparsePredictors, SparseRows, stacked
from stansub.types import FloatArray

# Variables of so many elements are dense.
_FEW = 8


def sparse_predictors(
    own: OwnArguments, values: Mapping[str, Any], n: int, *, of_family: bool = True
) -> SparsePredictors:
    """Return the rows of a likelihood with n observations, of a known family or else a program; to be proved.

    Raises
    ------
    NoPredictorsError
        When its text cannot be followed, it is no known family, if ``of_family``, or has too many arguments.
    """
    try:
        followed = follow(own.likelihood, values, n)
    except NoPredictorsError:
        raise
    except InputError as error:
        raise NoPredictorsError(f"its likelihood is not followed: {error}") from error
    family, arguments = arguments_of(followed, n, of_family=of_family)
    variables = [places for shape in followed.shapes for places in _vectors(shape)]
    del followed  # its terms have rows of their own, as large as those of the arguments
    return SparsePredictors(tuple(_rows(one, variables, n) for one in arguments), family)


def _rows(argument: Argument, variables: Sequence[NDArray[np.int64]], n: int) -> SparseRows:
    """The rows of an argument: columns of some variables, and of the others what each observation reads."""
    slopes = sp.csr_array(argument.slopes)
    n_rows, m = slopes.shape
    row = np.repeat(np.arange(n_rows, dtype=np.int32), np.diff(slopes.indptr))
    dense: list[FloatArray] = []
    places: list[int] = []
    gathered = sp.csr_array((n, m))
    for variable in variables:
        own = np.isin(np.arange(m), variable)[slopes.indices]
        if not own.any():
            continue
        reads = np.bincount(row[own], minlength=n_rows)
        if len(variable) > _FEW and n_rows == n and reads.max() <= 1:
            gathered = gathered + sp.csr_array((slopes.data[own], (row[own], slopes.indices[own])), shape=(n, m))
            continue
        some, column = np.unique(slopes.indices[own], return_inverse=True)
        places += some.tolist()
        block = sp.coo_array((slopes.data[own], (row[own], column)), shape=(n_rows, len(some))).toarray(order="F")
        dense += [_short(one) for one in block.T]
    return SparseRows(stacked(dense), np.array(places, np.int64), gathered, argument.offset)


def _vectors(places: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Places of a variable's elements; of a matrix or array by its shortest index."""
    if places.ndim < 2:
        yield places.ravel()
        return
    shortest = int(np.argmin(places.shape))
    for k in range(places.shape[shortest]):
        yield from _vectors(np.take(places, k, axis=shortest))


def _short(values: FloatArray) -> FloatArray:
    """One entry where all are the same."""
    return values[:1] if (values == values[0]).all() else values
