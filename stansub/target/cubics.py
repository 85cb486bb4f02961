"""Cubic forms: symmetric tensors of the third order, stored as the coefficients of products of three parameters."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from stansub.types import FloatArray


def n_products(dim: int) -> int:
    """Return the number of products of three of ``dim`` numbers."""
    return math.comb(dim + 2, 3)


def permutations(dim: int) -> NDArray[np.int64]:
    """Return the number of orders in which three parameters can stand, for j, then k <= j, then l <= k."""
    j, k, last = _places(dim)
    return np.asarray(np.array([6, 3, 1])[(k == j).astype(int) + (last == k)])


def packed(tensor: FloatArray) -> FloatArray:
    """Return the coefficients of products from a symmetric tensor, shape (dim, dim, dim)."""
    dim = len(tensor)
    return np.asarray(permutations(dim) * tensor[_places(dim)])


def unpacked(coefficients: FloatArray, dim: int) -> FloatArray:
    """Return the symmetric tensor, shape (dim, dim, dim), from coefficients of products."""
    j, k, last = _places(dim)
    tensor = np.empty((dim, dim, dim))
    values = coefficients / permutations(dim)
    for order in ((j, k, last), (j, last, k), (k, j, last), (k, last, j), (last, j, k), (last, k, j)):
        tensor[order] = values
    return tensor


def in_coordinates(coefficients: FloatArray, matrix: FloatArray) -> FloatArray:
    """Return the coefficients of a form at A w, as a function of w; those given are of the form itself."""
    tensor = unpacked(coefficients, len(matrix))
    for _ in range(3):
        tensor = np.tensordot(tensor, matrix, axes=(0, 0))  # the axes turn: after three products they are as before
    return packed(tensor)


def _places(dim: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return j, k and l of all products, for j, then k <= j, then l <= k."""
    k, last = np.tril_indices(dim)
    sizes = np.arange(1, dim + 1) * np.arange(2, dim + 2) // 2
    within = np.concatenate([np.arange(size) for size in sizes])
    return np.repeat(np.arange(dim), sizes), k[within], last[within]
