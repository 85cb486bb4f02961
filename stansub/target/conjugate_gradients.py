"""Solutions of sparse symmetric systems from products with the matrix alone.

They suit matrices that have eigenvalues close to 1 at a diagonal of ones, except for a few (Hestenes and Stiefel 1952,
Methods of conjugate gradients for solving linear systems).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from stansub.target.cholesky import Pattern, cholesky, pattern_of, scale_of
from stansub.types import FloatArray

# Norm of the residual at a diagonal of ones, relative to the right side's.
_ERROR = 1e-8
# Operations of a factor in the time of one of a product with a sparse matrix.
_FASTER = 4.0


class Solved(NamedTuple):
    """End of a search for the solution of A x = b."""

    x: FloatArray
    """Shape (dim,)."""
    has_converged: bool
    """Whether the residual is small."""
    is_definite: bool = True
    """Whether the curvature along all directions of the search is positive."""


def solve(matrix: sp.csc_array, right: FloatArray, *, most: int) -> Solved:
    """Return the solution after at most so many products.

    Parameters
    ----------
    matrix : sparse array, shape (dim, dim)
        A symmetric matrix.
    right : ndarray, shape (dim,)
    """
    scale = scale_of(matrix.diagonal())
    x, residual = np.zeros(len(right)), right / scale
    direction, square = residual.copy(), float(residual @ residual)
    enough = _ERROR**2 * square
    for _ in range(most):
        if square <= enough:
            break
        product = (matrix @ (direction / scale)) / scale
        curvature = float(direction @ product)
        if not curvature > 0:
            return Solved(x / scale, has_converged=False, is_definite=False)
        length = square / curvature
        x += length * direction
        residual = residual - length * product
        before, square = square, float(residual @ residual)
        direction = residual + (square / before) * direction
    return Solved(x / scale, has_converged=square <= enough)


def most_products(pattern: Pattern, n_entries: int) -> int:
    """Return how many products with a matrix of so many entries take as long as its factor."""
    return int(pattern.operations / (_FASTER * n_entries))


def solutions(matrix: sp.csc_array, right: FloatArray) -> FloatArray:
    """Return the solutions for several right sides, shape (dim, n): by a factor unless it is dear.

    A matrix that is not positive definite has the factor of `cholesky`.
    """
    pattern = pattern_of(matrix)
    if pattern.is_dear:
        found = [solve(matrix, one, most=most_products(pattern, matrix.nnz)) for one in right.T]
        if all(one.has_converged for one in found):
            return np.column_stack([one.x for one in found])
    factor = cholesky(matrix, pattern.order)
    return np.column_stack([factor.solve(one) for one in right.T])
