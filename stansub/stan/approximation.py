"""The approximation of a likelihood in a surrogate's program: a C++ function of phi and of data.

Its value and gradient are hand-written (``cpp/stansub_approximation.hpp``). For Stan's autodiff the whole function is
one operation; with vectors of Stan, each element would be one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.target.approximation import Approximation
from stansub.target.interpolation import LIMIT
from stansub.types import FloatArray

SIZE, PHI = "stansub_n_phi", "stansub_phi"
# Whether the program computes phi and adds the approximation.
ADDED = "stansub_adds_approximation"

# Options of `stansub.stan.toolchain.compile_library` for a program that calls the function.
COMPILED_WITH: dict[str, Any] = {
    "user_header": Path(__file__).parent / "cpp" / "stansub_approximation.hpp",
    "stanc_args": ["--allow-undefined"],
}

# Arguments of the function besides phi, in order: names, and types in the data block.
_ARGUMENTS = {
    "stansub_point": f"vector[{SIZE}]",
    "stansub_gradient": f"vector[{SIZE}]",
    "stansub_diagonal": f"vector[{SIZE}]",
    "stansub_values": "vector[stansub_n_values]",
    "stansub_columns": "array[stansub_n_values] int",
    "stansub_starts": f"array[{SIZE} + 1] int",
    "stansub_heads": f"array[{SIZE}] int",
    "stansub_places": "array[stansub_n_places] int",
    "stansub_profiles": "matrix[stansub_n_places, 4]",
    "stansub_profiles_starts": "array[stansub_n_means + 1] int",
    "stansub_weights": "vector[stansub_n_weights]",
    "stansub_weighed": "array[stansub_n_weights] int",
    "stansub_weights_starts": "array[stansub_n_means + 1] int",
    "stansub_first": "array[stansub_n_pairs] int",
    "stansub_second": "array[stansub_n_pairs] int",
    "stansub_mixed": "matrix[stansub_n_pairs, 5]",
    "stansub_common": "array[stansub_n_common] int",
    "stansub_common_scales": "vector[stansub_n_common]",
    "stansub_common_constants": "matrix[2, stansub_n_common]",
    "stansub_common_gradients": f"matrix[{SIZE}, 2 * stansub_n_common]",
    "stansub_common_diagonals": f"matrix[{SIZE}, 2 * stansub_n_common]",
    "stansub_common_values": "matrix[stansub_n_values, 2 * stansub_n_common]",
}
_SIZES = (ADDED, SIZE, *(f"stansub_n_{name}" for name in ("values", "places", "weights", "means", "pairs", "common")))
_UNSIZED = {"vector": "vector", "matrix": "matrix", "array": "array[] int"}
_TAKEN = ", ".join(f"data {_UNSIZED[kind.partition('[')[0]]} {name}" for name, kind in _ARGUMENTS.items())

# Stan code: the declaration of the function, its data, and the call.
FUNCTION = f"  real stansub_approximation(vector {PHI}, {_TAKEN}, data real stansub_limit);"
DATA = "\n".join([*(f"  int {name};" for name in _SIZES), *(f"  {kind} {name};" for name, kind in _ARGUMENTS.items())])
CALL = f"stansub_approximation({', '.join([PHI, *_ARGUMENTS])}, {LIMIT})"


def as_data(approximation: Approximation, *, added: bool = True) -> dict[str, Any]:
    """Return an approximation as data of the program, which adds it to the log density or not."""
    quadratic, profiles, interpolated = approximation.quadratic, approximation.profiles, approximation.interpolations
    terms = [term for one in interpolated for term in one.terms]
    left, *others = _same_pattern([_left(one.precision) for one in (quadratic, *terms)])
    m, by_mean = len(quadratic.point), np.argsort(profiles.means, kind="stable")
    first, second = np.argsort(by_mean)[profiles.pairs]
    data = (
        quadratic.point,
        quadratic.gradient + approximation.slope,
        quadratic.precision.diagonal(),
        left.data,
        left.indices,
        left.indptr,
        _heads(left),
        profiles.places[by_mean],
        np.column_stack([1 / profiles.sizes, *profiles.coefficients])[by_mean],
        np.searchsorted(profiles.means[by_mean], np.arange(len(profiles.starts))),
        profiles.weights,
        profiles.columns,
        profiles.starts,
        first,
        second,
        profiles.mixed.T,
        np.array([one.place for one in interpolated], np.int64),
        np.array([1 / one.size for one in interpolated]),
        np.reshape([term.value for term in terms], (len(interpolated), 2)).T,
        _columns([term.gradient for term in terms], m),
        _columns([term.precision.diagonal() for term in terms], m),
        _columns([one.data for one in others], left.nnz),
    )
    arrays = (np.ascontiguousarray(one if one.dtype.kind == "f" else one.astype(np.int64)) for one in data)
    n_means, n_common = len(profiles.starts) - 1, len(interpolated)
    sizes = int(added), m, left.nnz, len(profiles.places), len(profiles.weights), n_means, len(first), n_common
    return dict(zip(_SIZES, sizes, strict=True)) | dict(zip(_ARGUMENTS, arrays, strict=True))


def _left(precision: sp.csr_array) -> sp.csr_array:
    """Return what is left of the diagonal."""
    return sp.csr_array(sp.tril(precision, -1))


def _same_pattern(matrices: Sequence[sp.csr_array]) -> list[sp.csr_array]:
    """Return the same matrices with an entry wherever one of them has one."""
    pattern = sp.csr_array(sum((_ones(one) for one in matrices[1:]), start=_ones(matrices[0])))
    pattern.sort_indices()
    codes, found = _codes(pattern), []
    for one in matrices:
        values = np.zeros(pattern.nnz)
        values[np.searchsorted(codes, _codes(one))] = one.data
        found.append(sp.csr_array((values, pattern.indices, pattern.indptr), pattern.shape))
    return found


def _ones(matrix: sp.csr_array) -> sp.csr_array:
    return sp.csr_array((np.ones(matrix.nnz), matrix.indices, matrix.indptr), matrix.shape)


def _codes(matrix: sp.csr_array) -> NDArray[np.int64]:
    """Return the places of the entries as numbers, by rows."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return np.asarray(rows * matrix.shape[1] + matrix.indices, np.int64)


def _columns(columns: Sequence[FloatArray], n: int) -> FloatArray:
    """Return columns as a matrix, shape (n, number of columns)."""
    return np.reshape(columns, (len(columns), n)).T


def _heads(rows: sp.csr_array) -> NDArray[np.int64]:
    """Return how many of the first elements of each row are adjacent."""
    starts, lengths = rows.indptr[:-1], np.diff(rows.indptr)
    row_of = np.repeat(np.arange(rows.shape[0]), lengths)
    within = np.arange(rows.nnz) - starts[row_of]
    first = rows.indices[starts[row_of]]
    return np.bincount(row_of[rows.indices - first == within], minlength=rows.shape[0])
