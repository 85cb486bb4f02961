"""Derivatives of blocks against their formulas."""

import numpy as np
import pytest
from populations import Model, logistic, taylor

THETA = np.array([0.3, -0.5, 1.2])
X = np.random.default_rng(1).normal(0.5, 1, (50, 3))
LOWER = np.tril_indices(3)


def analytic(theta=THETA, x=X):
    """Gradients and packed Hessians of the blocks of a logistic regression."""
    p = 1 / (1 + np.exp(-x @ theta))
    hessians = -(p * (1 - p))[:, np.newaxis, np.newaxis] * x[:, :, np.newaxis] * x[:, np.newaxis, :]
    return (1 - p)[:, np.newaxis] * x, hessians[:, *LOWER]


def test_gradients_are_the_slopes_of_the_values():
    evaluator = logistic(X).evaluator()
    got, h = evaluator.block_gradients(THETA), 1e-5
    np.testing.assert_allclose(got, analytic()[0], rtol=1e-12, atol=1e-14)
    for i, step in enumerate(np.eye(3) * h):
        slope = (evaluator.block_log_lik(THETA + step) - evaluator.block_log_lik(THETA - step)) / (2 * h)
        np.testing.assert_allclose(got[:, i], slope, atol=1e-9)
    np.testing.assert_allclose(evaluator.global_gradient(THETA), -THETA)
    value, total = evaluator.subset_log_density_gradient(THETA)
    assert value == pytest.approx(evaluator.global_log_density(THETA) + evaluator.block_log_lik(THETA).sum())
    np.testing.assert_allclose(total, got.sum(0) - THETA)


def test_rows_are_gradient_and_packed_hessian():
    gradients, hessians = analytic()
    first, second = taylor(logistic(X), THETA, 1), taylor(logistic(X), THETA, 2)
    assert first.dtype == second.dtype == np.float32
    np.testing.assert_array_equal(first, gradients.astype(np.float32))
    np.testing.assert_array_equal(second[:, :3], first)
    np.testing.assert_allclose(second[:, 3:], hessians, rtol=2e-7, atol=1e-9)


def test_chosen_blocks_fill_their_rows():
    model, which = logistic(X), np.array([7, 3, 7], np.int32)
    out = np.empty((3, 9), np.float32)
    model.evaluator().block_taylor(THETA, which, 2, out)
    np.testing.assert_array_equal(out, taylor(model, THETA, 2)[which])


def test_steps_are_those_given_and_grow_with_the_parameter():
    seen: list[np.ndarray] = []

    def slopes(theta, which):
        seen.append(theta.copy())
        return np.outer(np.ones(len(which)), theta**3)

    model = Model(2, 1, lambda theta, which: np.zeros(len(which)), slopes=slopes)
    at, out = np.array([1000.0, 0.1]), np.empty((1, 5), np.float32)
    for steps, wanted in ((None, np.cbrt(np.finfo(float).eps) * np.array([1000.0, 1.0])), (np.array([0.5, 0.25]),) * 2):
        seen.clear()
        model.evaluator().block_taylor(at, np.zeros(1, np.int32), 2, out, steps)
        np.testing.assert_allclose(np.ptp(seen, axis=0), 2 * wanted, rtol=1e-9)
    # the central difference of x^3 is 3 x^2 + h^2
    np.testing.assert_allclose(out[0, 2:], [3e6 + 0.25, 0, 0.03 + 0.0625], rtol=1e-6)


def test_the_hessian_is_symmetric():
    lopsided = np.array([[-2.0, 1.0], [3.0, -4.0]])

    def slopes(theta, which):
        return np.tile(lopsided @ theta, (len(which), 1))

    model = Model(2, 1, lambda theta, which: 0.0 * which, slopes=slopes)
    np.testing.assert_allclose(taylor(model, np.zeros(2), 2), [[0, 0, -2, 2, -4]], rtol=1e-6)


def test_undefined_derivatives_are_refused():
    # defined at 0 and above only
    def slopes(theta, which):
        return None if theta[0] < 0 and 2 in which else np.ones((len(which), 1))

    evaluator = Model(1, 3, lambda theta, which: np.zeros(len(which)), slopes=slopes).evaluator()
    which, zero = np.arange(3, dtype=np.int32), np.zeros(1)
    evaluator.block_taylor(zero, which, 1, np.empty((3, 1), np.float32))
    with pytest.raises(ValueError, match="block 2 is not defined"):
        evaluator.block_taylor(zero, which, 2, np.empty((3, 2), np.float32))
    for value in (np.nan, np.inf):
        bad = Model(
            1, 3, lambda theta, which: 0.0 * which, slopes=lambda theta, which, v=value: np.full((len(which), 1), v)
        )
        with pytest.raises(ValueError, match="block 0 is not defined"):
            bad.evaluator().block_gradients(zero, which[:1])
    large = Model(1, 3, lambda theta, which: 0.0 * which, slopes=lambda theta, which: np.full((len(which), 1), 1e300))
    with pytest.raises(ValueError, match="block 0 are too large"):
        large.evaluator().block_taylor(zero, which, 1, np.empty((3, 1), np.float32))


def test_arguments():
    evaluator, which = logistic(X).evaluator(), np.arange(4, dtype=np.int32)
    out = np.empty((4, 9), np.float32)
    for order, rows, steps, message in (
        (3, out, None, "order must be 1 or 2"),
        (0, out, None, "order must be 1 or 2"),
        (1, out, None, "length 3, not 9"),
        (2, out[:3], None, "length 4, not 3"),
        (2, out, np.ones(2), "length 3, not 2"),
        (2, out, np.array([1.0, 0.0, 1.0]), "positive"),
        (2, out, np.array([1.0, np.nan, 1.0]), "positive"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluator.block_taylor(THETA, which, order, rows, steps)
    with pytest.raises(IndexError, match="no block 50"):
        evaluator.block_taylor(THETA, np.array([50], np.int32), 2, out[:1])
    for wrong in (out.astype(float), out[:, ::-1], np.empty((4, 18), np.float32)[:, ::2]):
        with pytest.raises(TypeError):
            evaluator.block_taylor(THETA, which, 2, wrong)
