"""Soft minima of affine functions: precisions that add up."""

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.target.soft_minima import SoftMinima

Array = NDArray[np.float64]
ROWS = np.random.default_rng(1).normal(0, 1, (6, 4))
CONSTANTS = np.array([0.3, -0.2, 0.5, 0.0, -1.0, 0.1])
COUNTS = np.array([1, 3, 2])


def functions() -> SoftMinima:
    return SoftMinima(COUNTS, sp.csr_array(ROWS), CONSTANTS)


def expected(theta: Array) -> Array:
    precisions = np.exp(-2 * (ROWS @ theta + CONSTANTS))
    return np.array([-0.5 * np.log(np.sum(own)) for own in np.split(precisions, np.cumsum(COUNTS)[:-1])])


def test_precisions_add_up() -> None:
    for theta in np.random.default_rng(2).standard_normal((4, 4)):
        np.testing.assert_allclose(functions()(theta), expected(theta), rtol=1e-12)


def test_far_rows_do_not_matter() -> None:
    """Where one of two scales is beyond the range of numbers."""
    bounded = SoftMinima(np.array([2]), sp.csr_array([[1.0], [0.0]]), np.array([0.0, 1.5]))
    np.testing.assert_allclose(bounded(np.array([1e4])), [1.5])
    np.testing.assert_allclose(bounded(np.array([-1e4])), [-1e4])


def test_derivatives() -> None:
    theta, step = np.random.default_rng(3).standard_normal(4), 1e-6
    numerical = [(expected(theta + step * e) - expected(theta - step * e)) / (2 * step) for e in np.eye(4)]
    np.testing.assert_allclose(functions().jacobian(theta).toarray(), np.array(numerical).T, atol=1e-8)


def test_parts_are_functions() -> None:
    theta, whole = np.random.default_rng(4).standard_normal(4), functions()
    values = expected(theta)
    np.testing.assert_allclose(whole[np.array([2, 0])](theta), values[[2, 0]])
    np.testing.assert_allclose(whole.joined(whole[np.array([1])])(theta), [*values, values[1]])
    np.testing.assert_allclose(whole.replaced(np.array([0, 2]), whole[np.array([1, 1])])(theta), values[1])
    pairs = SoftMinima.of(whole[np.array([0, 1])], whole[np.array([1, 2])])
    sums = [np.exp(-2 * values[k]) + np.exp(-2 * values[k + 1]) for k in (0, 1)]
    np.testing.assert_allclose(pairs(theta), -0.5 * np.log(sums))
    np.testing.assert_array_equal(pairs.counts, [4, 5])
    assert len(SoftMinima.none(4)) == 0
    assert SoftMinima.none(4)(theta).shape == (0,)


def test_factors_are_those_of_rows() -> None:
    theta, factors = np.random.default_rng(5).standard_normal(4), np.array([2.0, 0.5, 1.0])
    by_row = np.repeat(factors, COUNTS)
    scaled = SoftMinima(COUNTS, sp.csr_array(ROWS * by_row[:, np.newaxis]), CONSTANTS * by_row)
    np.testing.assert_allclose(functions().scaled(factors)(theta), scaled(theta))
