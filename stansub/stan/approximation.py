"""The approximation of a likelihood in a surrogate's program: a C++ function of phi and of data.

Its value and gradient are hand-written (``toolchain/cpp/stansub_approximation.hpp``). For Stan's autodiff the whole
function is one operation; with vectors of Stan, each element would be one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub._loop import FullData
from stansub.stan.toolchain.bridgestan_home import SOURCES
from stansub.target.approximation import LOW, STEP, Approximation
from stansub.target.directions import LIMIT, REACH

SIZE, PHI = "stansub_n_phi", "stansub_phi"
# Whether the program computes phi and adds the approximation.
ADDED = "stansub_adds_approximation"

# Options of `stansub.stan.toolchain.build.compile_library` for a program that calls the function.
COMPILED_WITH: dict[str, Any] = {
    "user_header": SOURCES / "stansub_approximation.hpp",
    "stanc_args": ["--allow-undefined"],
}

# Stan code: the declaration of the function, its data, and the call.
_INTEGERS, _NUMBERS = "stansub_integers", "stansub_numbers"
FUNCTION = f"  real stansub_approximation(vector {PHI}, data array[] int {_INTEGERS}, data vector {_NUMBERS});"
DATA = f"""\
  int {ADDED};
  int {SIZE};
  int stansub_n_integers;
  int stansub_n_numbers;
  array[stansub_n_integers] int {_INTEGERS};
  vector[stansub_n_numbers] {_NUMBERS};"""
CALL = f"stansub_approximation({PHI}, {_INTEGERS}, {_NUMBERS})"


def full_data(likelihood: FullData) -> dict[str, Any]:
    """Return a likelihood in this process as data of the program, which adds it to the log density."""
    numbers = np.array([FullData.function_address, likelihood.address], np.float64)  # addresses have 48 bits
    return {
        ADDED: 1,
        SIZE: likelihood.dim,
        "stansub_n_integers": 1,
        "stansub_n_numbers": len(numbers),
        _INTEGERS: np.zeros(1, np.int64),
        _NUMBERS: numbers,
    }


def as_data(approximation: Approximation, *, added: bool = True) -> dict[str, Any]:
    """Return an approximation as data of the program, which adds it to the log density or not."""
    quadratic, frame = approximation.quadratic, approximation.frame
    profiles, terms = approximation.profiles, approximation.terms
    left, m = _left(approximation.precision), len(quadratic.point)
    own = [_left(one) for one in terms.matrices] or [sp.csr_array((m, m))]
    diagonals = [one.diagonal() for one in terms.matrices]
    # In the order in which the function reads them.
    arrays: list[NDArray[Any]] = [
        quadratic.point,
        quadratic.gradient + approximation.slope - approximation.surface.slope,
        approximation.precision.diagonal(),
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
        np.array([approximation.middle, approximation.most, LIMIT, REACH, LOW, STEP]),
        terms.means,
        np.reshape(diagonals, (len(diagonals), m)),
        np.reshape([one.data for one in own[: len(diagonals)]], (len(diagonals), own[0].nnz)),
        own[0].indices,
        own[0].indptr,
        profiles.places,
        profiles.sizes,
        profiles.tables.reshape(len(profiles.places), 2 * profiles.tables.shape[1]).T,
        *profiles.pairs,
        profiles.mixed.T,
    ]
    sizes = [n for one in arrays for n in one.shape]
    integers = np.concatenate([[len(sizes), *sizes], *(one for one in arrays if one.dtype.kind != "f")])
    numbers = np.concatenate([one.ravel(order="F") for one in arrays if one.dtype.kind == "f"])
    return {
        ADDED: int(added),
        SIZE: m,
        "stansub_n_integers": len(integers),
        "stansub_n_numbers": len(numbers),
        _INTEGERS: integers.astype(np.int64),
        _NUMBERS: numbers,
    }


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
