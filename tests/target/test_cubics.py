"""Cubic forms as coefficients of products."""

import itertools

import numpy as np
import pytest

from stansub.target import cubics


def symmetric(dim: int, seed: int = 1) -> np.ndarray:
    tensor = np.random.default_rng(seed).normal(size=(dim, dim, dim))
    orders = itertools.permutations(range(3))
    return np.asarray(sum(tensor.transpose(order) for order in orders))


def value(tensor: np.ndarray, x: np.ndarray) -> float:
    return float(np.einsum("jkl,j,k,l", tensor, x, x, x))


def of_products(coefficients: np.ndarray, x: np.ndarray) -> float:
    products = [x[j] * x[k] * x[i] for j in range(len(x)) for k in range(j + 1) for i in range(k + 1)]
    return float(coefficients @ products)


@pytest.mark.parametrize("dim", [1, 2, 3, 7])
def test_coefficients_are_those_of_products(dim: int) -> None:
    tensor, x = symmetric(dim), np.random.default_rng(2).normal(size=dim)
    coefficients = cubics.packed(tensor)
    assert coefficients.shape == (cubics.n_products(dim),)
    assert cubics.permutations(dim).sum() == dim**3
    np.testing.assert_allclose(of_products(coefficients, x), value(tensor, x), rtol=1e-12)
    np.testing.assert_allclose(cubics.unpacked(coefficients, dim), tensor, rtol=1e-14)


def test_other_coordinates() -> None:
    tensor, rng = symmetric(4), np.random.default_rng(3)
    matrix, w = rng.normal(size=(4, 4)), rng.normal(size=4)
    moved = cubics.in_coordinates(cubics.packed(tensor), matrix)
    np.testing.assert_allclose(of_products(moved, w), value(tensor, matrix @ w), rtol=1e-11)
    assert abs(of_products(moved, w) - value(tensor, matrix.T @ w)) > 1
