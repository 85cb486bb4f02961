"""Inner coordinates: that they are a change of variables, and that the sampler in them leaves its target as it is."""

import ctypes
from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub._loop import SurrogateNuts
from stansub.target.coordinates import Coordinates
from stansub.tuning.coordinates import Inner

Array = NDArray[np.float64]
Density = Callable[[Array], tuple[float, Array]]
DIM = 9


def two_blocks() -> Coordinates:
    """Of three effects with scales and correlations, and of one; three parameters are of no block."""
    places = np.array([6, 1, 4, 8], np.int32)
    columns = [0, 2, 3, 5, 7]
    rng = np.random.default_rng(1)
    functions = np.zeros((7, DIM))
    functions[:, columns] = rng.normal(0, 0.5, (7, 5)) * (rng.random((7, 5)) < 0.6)
    rows = sp.csr_array(functions)
    sizes = np.array([3, 1], np.int32)
    starts, at = rows.indptr.astype(np.int32), rows.indices.astype(np.int32)
    return Coordinates(DIM, sizes, places, starts, at, rows.data, rng.normal(0, 0.3, 7))


class Smooth:
    """A log density with a gradient."""

    dim = DIM

    def log_density_gradient(self, theta: Array) -> tuple[float, Array]:
        return float(np.sum(np.sin(theta)) - theta @ theta), np.cos(theta) - 2 * theta


def derivative(of: Callable[[Array], Array], at: Array, step: float = 1e-5) -> Array:
    return np.array([(of(at + step * e) - of(at - step * e)) / (2 * step) for e in np.eye(len(at))]).T


def outward(coordinates: Coordinates, inner: Array) -> Array:
    theta = np.empty_like(inner)
    coordinates.compiled().outward(inner, theta)
    return theta


def test_there_and_back() -> None:
    coordinates = two_blocks()
    for theta in np.random.default_rng(2).standard_normal((5, DIM)):
        inner = coordinates.inward(theta)
        assert np.abs((inner - theta)[coordinates.places]).min() > 1e-3
        kept = np.setdiff1d(np.arange(DIM), coordinates.places)
        np.testing.assert_array_equal(inner[kept], theta[kept])
        np.testing.assert_allclose(outward(coordinates, inner), theta, rtol=1e-12)


def test_norms_and_partial_correlations_are_those_of_the_functions() -> None:
    coordinates, theta = two_blocks(), np.random.default_rng(3).standard_normal(DIM)
    functions = sp.csr_array(
        (coordinates.coefficients, coordinates.columns, coordinates.starts), shape=(len(coordinates.constants), DIM)
    )
    f = functions @ theta + coordinates.constants
    matrix = derivative(coordinates.inward, theta)[np.ix_(coordinates.places, coordinates.places)]
    np.testing.assert_allclose(np.linalg.norm(matrix, axis=1), np.exp(f[[0, 2, 5, 6]]), rtol=1e-8)
    np.testing.assert_allclose(matrix[1, 0], np.exp(f[2]) * np.tanh(f[1]), rtol=1e-8)
    np.testing.assert_allclose(matrix[2, 1] / np.linalg.norm(matrix[2, 1:]), np.tanh(f[4]), rtol=1e-8)
    np.testing.assert_allclose(matrix[np.triu_indices(4, 1)], 0, atol=1e-9)


def test_the_density_is_that_of_a_change_of_variables() -> None:
    coordinates, density = two_blocks(), Smooth()
    moved = Inner(density, coordinates)
    for theta in np.random.default_rng(4).standard_normal((5, DIM)):
        inner = coordinates.inward(theta)
        value, gradient = moved.log_density_gradient(inner)
        _, log_det = np.linalg.slogdet(derivative(lambda x: outward(coordinates, x), inner))
        assert value == pytest.approx(density.log_density_gradient(theta)[0] + log_det, abs=1e-7)
        numerical = derivative(lambda x: np.array([moved.log_density_gradient(x)[0]]), inner)[0]
        np.testing.assert_allclose(gradient, numerical, atol=1e-7)


def test_parts_must_fit() -> None:
    good = two_blocks()
    parts = good.sizes, good.places, good.starts, good.columns, good.coefficients, good.constants
    for k, wrong, message in (
        (0, np.array([3, 0], np.int32), "no effects"),
        (0, np.array([4], np.int32), "do not fit"),
        (1, np.array([6, 1, 4, 4], np.int32), "overlap"),
        (1, np.array([6, 1, 4, 9], np.int32), "of no parameters"),
        (3, np.full_like(good.columns, 6), "depends on effects"),
        (5, good.constants[:-1], "do not fit"),
    ):
        with pytest.raises(ValueError, match=message):
            Coordinates(DIM, *(wrong if j == k else part for j, part in enumerate(parts))).compiled()


# Log tau and three effects that are tau times standard normals, two of which are observed well.
OBSERVED, ERRORS = np.array([1.0, -0.6, 0.3]), np.array([0.1, 0.1, 3.0])
PLACES = np.array([1, 2, 3], np.int32)
SUITABLE = np.array([1.0, 0.8, 0.2])


def scaled(weights: Array) -> Coordinates:
    """In place of each effect it times tau^weight."""
    ones, starts = np.ones(3, np.int32), np.arange(4, dtype=np.int32)
    return Coordinates(4, ones, PLACES, starts, np.zeros(3, np.int32), weights, np.zeros(3))


def effects(theta: Array) -> tuple[float, Array]:
    """A normal prior of log tau and effects, and normal observations."""
    tau, z = np.exp(theta[0]), theta[1:]
    residuals = (OBSERVED - tau * z) / ERRORS
    value = -0.5 * (theta @ theta + residuals @ residuals)
    slopes = residuals / ERRORS
    return float(value), np.array([tau * z @ slopes, *(tau * slopes)]) - theta


def without_the_jacobian(theta: Array) -> tuple[float, Array]:
    """What the sampler would take for the target if the change of variables lacked its determinant."""
    value, gradient = effects(theta)
    return value + float(SUITABLE.sum() * theta[0]), gradient + SUITABLE.sum() * np.eye(4)[0]


def sampler(density: Density, coordinates: Coordinates) -> SurrogateNuts:
    """On a function in place of a compiled program."""
    pointer = ctypes.POINTER(ctypes.c_double)
    kind = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_void_p, ctypes.c_bool, ctypes.c_bool, pointer, pointer, pointer, ctypes.c_void_p
    )

    def called(model, propto, jacobian, theta, value, gradient, error):  # type: ignore[no-untyped-def]
        with np.errstate(all="ignore"):  # trees may run far off
            found, slope = density(np.ctypeslib.as_array(theta, (4,)))
        value[0] = found
        np.ctypeslib.as_array(gradient, (4,))[:] = slope
        return 0

    function = kind(called)
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    starts, rows = np.arange(5, dtype=np.int32), np.arange(4, dtype=np.int32)
    widths = np.array([0.5, 0.2, 0.2, 1.0])
    factor = starts, rows, 1 / widths, rows
    compiled = coordinates.compiled()
    return SurrogateNuts(address, address, address, np.zeros(4), *factor, compiled, owner=function)


def z_scores(density: Density, coordinates: Coordinates, n: int = 6000) -> Array:
    """Means and squares of log tau and its product with an effect, beside quadrature, in standard errors."""
    nuts, rng, theta = sampler(density, coordinates), np.random.default_rng(5), np.zeros(4)
    found = np.empty((n, 3))
    for k in range(n):
        nuts(rng.bit_generator.capsule, theta, step_size=0.6, max_tree_depth=7)
        found[k] = theta[0], theta[0] ** 2, theta[0] * theta[3]
    grid = np.linspace(-6, 4, 4001)
    tau = np.exp(grid)[:, np.newaxis]
    variance = ERRORS**2 + tau**2
    log_weight = -0.5 * grid**2 - 0.5 * np.sum(OBSERVED**2 / variance + np.log(variance), axis=1)
    weight = np.exp(log_weight - log_weight.max())
    mean = (tau * OBSERVED / variance)[:, 2]  # of the last effect
    truth = np.array([np.average(of, weights=weight) for of in (grid, grid**2, grid * mean)])
    batches = found.reshape(60, -1, 3).mean(axis=1)
    return np.asarray(np.abs(found.mean(axis=0) - truth) / (batches.std(axis=0, ddof=1) / np.sqrt(60)))


@pytest.mark.parametrize("weights", [np.zeros(3), np.ones(3), SUITABLE, np.array([0.3, 0.5, 0.9])])
def test_the_target_stays_as_it_is(weights: Array) -> None:
    assert z_scores(effects, scaled(weights)).max() < 4.5


def test_a_jacobian_that_is_left_out_is_seen() -> None:
    assert z_scores(without_the_jacobian, scaled(SUITABLE)).max() > 9
