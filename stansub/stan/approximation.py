"""The approximation of a likelihood in a surrogate's program: a C++ function of phi and of data.

Its value and gradient are hand-written (``cpp/stansub_approximation.hpp``). For Stan's autodiff the whole function is
one operation; with vectors of Stan, each element would be one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.target.approximation import LOW, STEP, Approximation
from stansub.target.directions import LIMIT, REACH

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
    "stansub_mean_of": f"array[{SIZE}] int",
    "stansub_weights": "vector[stansub_n_weights]",
    "stansub_weighed": "array[stansub_n_weights] int",
    "stansub_weights_starts": "array[stansub_n_means + 1] int",
    "stansub_common": "array[stansub_n_common] int",
    "stansub_inward": "matrix[stansub_n_common, stansub_n_common]",
    "stansub_along": f"matrix[{SIZE}, stansub_n_common]",
    "stansub_into": "array[stansub_n_shares] int",
    "stansub_others": "array[stansub_n_shares] int",
    "stansub_shares": "vector[stansub_n_shares]",
    "stansub_places": "array[stansub_n_places] int",
    "stansub_sizes": "vector[stansub_n_places]",
    "stansub_profiles": "matrix[stansub_n_profile_values, stansub_n_places]",
    "stansub_first": "array[stansub_n_pairs] int",
    "stansub_second": "array[stansub_n_pairs] int",
    "stansub_mixed": "matrix[stansub_n_pairs, 5]",
    "stansub_term_means": "vector[stansub_n_terms]",
    "stansub_term_diagonals": f"matrix[2 * stansub_n_terms, {SIZE}]",
    "stansub_term_values": "matrix[2 * stansub_n_terms, stansub_n_term_values]",
    "stansub_term_columns": "array[stansub_n_term_values] int",
    "stansub_term_starts": f"array[{SIZE} + 1] int",
}
_COUNTED = "values", "weights", "means", "common", "shares", "places", "profile_values", "pairs", "terms", "term_values"
_SIZES = (ADDED, SIZE, *(f"stansub_n_{name}" for name in _COUNTED))
_UNSIZED = {"vector": "vector", "matrix": "matrix", "array": "array[] int"}
_TAKEN = ", ".join(f"data {_UNSIZED[kind.partition('[')[0]]} {name}" for name, kind in _ARGUMENTS.items())

# Stan code: the declaration of the function, its data, and the call.
_SUM = "stansub_middle", "stansub_most"
_LIMITS = ", ".join(
    f"data real {name}" for name in (*_SUM, "stansub_limit", "stansub_reach", "stansub_low", "stansub_step")
)
FUNCTION = f"  real stansub_approximation(vector {PHI}, {_TAKEN}, {_LIMITS});"
_DECLARED = [
    *(f"int {name}" for name in _SIZES),
    *(f"real {name}" for name in _SUM),
    *(f"{kind} {name}" for name, kind in _ARGUMENTS.items()),
]
DATA = "\n".join(f"  {one};" for one in _DECLARED)
CALL = f"stansub_approximation({', '.join([PHI, *_ARGUMENTS, *_SUM, *map(str, (LIMIT, REACH, LOW, STEP))])})"


def as_data(approximation: Approximation, *, added: bool = True) -> dict[str, Any]:
    """Return an approximation as data of the program, which adds it to the log density or not."""
    quadratic, frame = approximation.quadratic, approximation.frame
    profiles, terms = approximation.profiles, approximation.terms
    left, m = _left(quadratic.precision), len(quadratic.point)
    own = [_left(one) for one in terms.matrices] or [sp.csr_array((m, m))]
    diagonals = [one.diagonal() for one in terms.matrices]
    data = (
        quadratic.point,
        quadratic.gradient + approximation.slope,
        quadratic.precision.diagonal(),
        left.data,
        left.indices,
        left.indptr,
        _heads(left),
        frame.means.of,
        frame.means.weights,
        frame.means.columns,
        frame.means.starts,
        frame.common,
        frame.inward,
        frame.along,
        frame.within.into,
        frame.within.others,
        frame.within.shares,
        profiles.places,
        profiles.sizes,
        profiles.tables.reshape(len(profiles.places), 2 * profiles.tables.shape[1]).T,
        *profiles.pairs,
        profiles.mixed.T,
        terms.means,
        np.reshape(diagonals, (len(diagonals), m)),
        np.reshape([one.data for one in own[: len(diagonals)]], (len(diagonals), own[0].nnz)),
        own[0].indices,
        own[0].indptr,
    )
    arrays = (np.ascontiguousarray(one if one.dtype.kind == "f" else one.astype(np.int64)) for one in data)
    sizes = (
        int(added),
        m,
        left.nnz,
        len(frame.means.weights),
        frame.means.n,
        len(frame.common),
        len(frame.within.shares),
        len(profiles.places),
        2 * profiles.tables.shape[1],
        profiles.pairs.shape[1],
        len(terms.means),
        own[0].nnz,
    )
    found = dict(zip(_SIZES, sizes, strict=True)) | dict(zip(_ARGUMENTS, arrays, strict=True))
    return found | {"stansub_middle": approximation.middle, "stansub_most": approximation.most}


def _left(matrix: sp.csr_array) -> sp.csr_array:
    """Return what is left of the diagonal."""
    return sp.csr_array(sp.tril(matrix, -1))


def _heads(rows: sp.csr_array) -> NDArray[np.int64]:
    """Return how many of the first elements of each row are adjacent."""
    starts, lengths = rows.indptr[:-1], np.diff(rows.indptr)
    row_of = np.repeat(np.arange(rows.shape[0]), lengths)
    within = np.arange(rows.nnz) - starts[row_of]
    first = rows.indices[starts[row_of]]
    return np.bincount(row_of[rows.indices - first == within], minlength=rows.shape[0])
