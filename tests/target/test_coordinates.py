"""Inner coordinates: that they are a change of variables, and that the sampler in them leaves its target as it is."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from itertools import count, pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hamiltonians import Array, Density, independent, sampler

from stansub.target.cholesky import Factor
from stansub.target.coordinates import Combination, Coordinates
from stansub.target.inner_density import InnerDensity
from stansub.target.metric import Metric
from stansub.target.prior_means import PriorMeans
from stansub.target.soft_minima import SoftMinima

DIM = 9


def two_blocks() -> Coordinates:
    """Of three effects with scales and correlations, and of one; a correlation and a scale are soft minima."""
    places = np.array([6, 1, 4, 8])
    columns = [0, 2, 3, 5, 7]
    rng = np.random.default_rng(1)
    rows = np.zeros((9, DIM))
    rows[:, columns] = rng.normal(0, 0.5, (9, 5)) * (rng.random((9, 5)) < 0.6)
    functions = SoftMinima(np.array([1, 1, 1, 2, 1, 1, 2]), sp.csr_array(rows), rng.normal(0, 0.3, 9))
    return Coordinates.of(np.array([3, 1]), places, functions)


def combination() -> Combination:
    """Of the effects of both blocks: sums of them, and other parameters as they are."""
    columns, places = np.eye(DIM), [6, 1, 4, 8]
    columns[np.ix_(places, places)] = np.tril(np.ones((4, 4)))
    return Combination.of(sp.csc_array(columns), sp.csr_array(np.linalg.inv(columns)))


def means() -> PriorMeans:
    """Of two effects of the first block, and of that of the other block, which is in the mean of the first."""
    matrix = np.zeros((DIM, DIM))
    matrix[1, [3, 8]], matrix[4, 0], matrix[8, [2, 5]] = [0.7, -1.2], 2, [-0.4, 1]
    return PriorMeans.of(sp.csr_array(matrix))


CHANGES: dict[str, dict[str, Any]] = {
    "neither": {},
    "combined": {"combination": combination()},
    "about means": {"means": means()},
    "divided": {"divided": np.array([1, 1], np.uint8)},
    "all": {"combination": combination(), "means": means(), "divided": np.array([1, 0], np.uint8)},
}


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


def test_combinations_are_of_effects() -> None:
    coordinates, theta = two_blocks(), np.random.default_rng(3).standard_normal(DIM)
    both = replace(coordinates, combination=combination())
    own = coordinates.inward(theta)
    expected = own.copy()
    expected[[6, 1, 4, 8]] = np.cumsum(own[[6, 1, 4, 8]])
    np.testing.assert_allclose(both.inward(theta), expected, rtol=1e-12)
    assert coordinates.combination.is_none
    assert not both.is_plain
    assert not replace(Coordinates.plain(DIM), combination=combination()).is_plain


def test_effects_are_less_their_means() -> None:
    coordinates, theta = two_blocks(), np.random.default_rng(3).standard_normal(DIM)
    x = theta.copy()
    x[1] -= 0.7 * theta[3] - 1.2 * theta[8]
    x[4] -= 2 * theta[0]
    x[8] -= theta[5] - 0.4 * theta[2]
    about = replace(coordinates, means=means())
    np.testing.assert_allclose(about.inward(theta), coordinates.inward(x), rtol=1e-12)


@pytest.mark.parametrize("change", CHANGES)
def test_there_and_back(change: str) -> None:
    coordinates = replace(two_blocks(), **CHANGES[change])
    for theta in np.random.default_rng(2).standard_normal((5, DIM)):
        inner = coordinates.inward(theta)
        assert np.abs((inner - theta)[coordinates.places]).min() > 1e-3
        kept = np.setdiff1d(np.arange(DIM), coordinates.places)
        np.testing.assert_array_equal(inner[kept], theta[kept])
        np.testing.assert_allclose(outward(coordinates, inner), theta, rtol=1e-12)


def test_blocks_may_be_divided_by_what_multiplies_others() -> None:
    coordinates = two_blocks()
    divided = replace(coordinates, divided=np.ones(2, np.uint8))
    for theta in np.random.default_rng(2).standard_normal((5, DIM)):
        np.testing.assert_allclose(divided.inward(coordinates.inward(theta)), theta, rtol=1e-12)


def test_norms_and_partial_correlations_are_those_of_the_functions() -> None:
    coordinates, theta = two_blocks(), np.random.default_rng(3).standard_normal(DIM)
    f = coordinates.functions(theta)
    matrix = derivative(coordinates.inward, theta)[np.ix_(coordinates.places, coordinates.places)]
    np.testing.assert_allclose(np.linalg.norm(matrix, axis=1), np.exp(f[[0, 2, 5, 6]]), rtol=1e-8)
    np.testing.assert_allclose(matrix[1, 0], np.exp(f[2]) * np.tanh(f[1]), rtol=1e-8)
    np.testing.assert_allclose(matrix[2, 1] / np.linalg.norm(matrix[2, 1:]), np.tanh(f[4]), rtol=1e-8)
    np.testing.assert_allclose(matrix[np.triu_indices(4, 1)], 0, atol=1e-9)


@pytest.mark.parametrize("change", CHANGES)
def test_the_density_is_that_of_a_change_of_variables(change: str) -> None:
    coordinates, density = replace(two_blocks(), **CHANGES[change]), Smooth()
    moved = InnerDensity(density, coordinates)
    for theta in np.random.default_rng(4).standard_normal((5, DIM)):
        inner = coordinates.inward(theta)
        value, gradient = moved.log_density_gradient(inner)
        _, log_det = np.linalg.slogdet(derivative(lambda x: outward(coordinates, x), inner))
        assert value == pytest.approx(density.log_density_gradient(theta)[0] + log_det, abs=1e-7)
        numerical = derivative(lambda x: np.array([moved.log_density_gradient(x)[0]]), inner)[0]
        np.testing.assert_allclose(gradient, numerical, atol=1e-7)


def test_parts_must_fit() -> None:
    good = two_blocks()
    functions = good.counts, good.starts, good.columns, good.coefficients, good.constants
    parts = good.sizes, good.places, good.divided, *functions
    for k, wrong, message in (
        (0, np.array([3, 0], np.int32), "no effects"),
        (0, np.array([4], np.int32), "do not fit"),
        (1, np.array([6, 1, 4, 4], np.int32), "overlap"),
        (1, np.array([6, 1, 4, 9], np.int32), "of no parameters"),
        (2, np.zeros(3, np.uint8), "do not fit"),
        (3, np.array([1, 1, 1, 2, 1, 1, 0], np.int32), "minimum of no rows"),
        (3, np.ones(7, np.int32), "do not fit"),
        (5, np.full_like(good.columns, 6), "depends on effects"),
        (7, good.constants[:-1], "do not fit"),
    ):
        given = (wrong if j == k else part for j, part in enumerate(parts))
        with pytest.raises(ValueError, match=message):
            Coordinates(DIM, *given, PriorMeans.none(DIM)).compiled()
    fine = combination()
    for changed, message in (
        ({"column_starts": fine.column_starts[:-1]}, "do not fit"),
        ({"row_values": fine.row_values[:-1]}, "do not fit"),
        ({"row_starts": fine.row_starts[::-1].copy()}, "do not fit"),
        ({"column_places": fine.column_places + 1}, "outside the matrix"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(good, combination=replace(fine, **changed)).compiled()


def test_means_must_fit() -> None:
    good, fine = two_blocks(), means()
    for changed, message in (
        ({"places": np.array([4, 1, 8], np.int32)}, "comes later"),
        ({"places": np.array([4, 4, 1], np.int32)}, "twice"),
        ({"places": np.array([4, 9, 1], np.int32)}, "of no parameter"),
        ({"places": np.array([3, 8, 1], np.int32)}, "of no block"),
        ({"columns": fine.columns + 4}, "reads no parameter"),
        ({"starts": fine.starts[:-1]}, "do not fit"),
        ({"starts": np.array([0, 9, 3, 5], np.int32)}, "do not fit"),
        ({"values": fine.values[:-1]}, "do not fit"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(good, means=replace(fine, **changed)).compiled()


def test_a_mean_does_not_depend_on_its_effect() -> None:
    matrix = np.zeros((DIM, DIM))
    matrix[[1, 4], [4, 1]] = 1
    with pytest.raises(ValueError, match="depends on this effect"):
        PriorMeans.of(sp.csr_array(matrix))


class Scaled:
    """Log tau and three effects that are tau times standard normals, two of which are observed well."""

    observed, errors = np.array([1.0, -0.6, 0.3]), np.array([0.1, 0.1, 3.0])
    widths = np.array([0.5, 0.2, 0.2, 1.0])
    suitable = np.array([1.0, 0.8, 0.2])

    def coordinates(self, weights: Array) -> Coordinates:
        """In place of each effect it times tau^weight."""
        rows = sp.csr_array(weights[:, np.newaxis] * [1.0, 0, 0, 0])
        return Coordinates.of(np.ones(3, np.int32), np.arange(1, 4), SoftMinima.affine(rows, np.zeros(3)))

    def density(self, theta: Array) -> tuple[float, Array]:
        """A normal prior of log tau and effects, and normal observations."""
        tau, z = np.exp(theta[0]), theta[1:]
        residuals = (self.observed - tau * z) / self.errors
        value = -0.5 * (theta @ theta + residuals @ residuals)
        slopes = residuals / self.errors
        return float(value), np.array([tau * z @ slopes, *(tau * slopes)]) - theta

    def log_determinant(self, theta: Array) -> tuple[float, Array]:
        """Of the suitable coordinates."""
        return float(self.suitable.sum() * theta[0]), self.suitable.sum() * np.eye(4)[0]

    def statistics(self, theta: Array) -> Array:
        """Log tau, its square and its product with an effect."""
        return np.array([theta[0], theta[0] ** 2, theta[0] * theta[3]])

    @cached_property
    def truth(self) -> Array:
        """By quadrature, effects integrated out."""
        grid = np.linspace(-6, 4, 4001)
        tau = np.exp(grid)[:, np.newaxis]
        variance = self.errors**2 + tau**2
        log_weight = -0.5 * grid**2 - 0.5 * np.sum(self.observed**2 / variance + np.log(variance), axis=1)
        weight = np.exp(log_weight - log_weight.max())
        mean = (tau * self.observed / variance)[:, 2]  # of the last effect
        return np.array([np.average(of, weights=weight) for of in (grid, grid**2, grid * mean)])


class Correlated:
    """Two log scales, a correlation's inverse hyperbolic tangent, and three pairs of effects diag(scales) L z."""

    observed = np.array([[0.9, 0.5], [-0.7, -1.2], [0.4, 0.2]])
    errors = np.array([[0.2, 0.2], [0.3, 0.1], [2.0, 1.0]])
    widths = np.array([0.5, 0.5, 0.4, 0.3, 0.3, 0.3, 0.3, 1.0, 1.0])
    suitable = np.array([1.0, 0.7, 0.2])

    def coordinates(self, weights: Array) -> Coordinates:
        """In place of each pair it times a matrix, whose functions have the weight of the pair."""
        rows = sp.csr_array((np.repeat(weights, 3), (np.arange(9), np.tile([0, 2, 1], 3))), shape=(9, 9))
        return Coordinates.of(np.full(3, 2), np.arange(3, 9), SoftMinima.affine(rows, np.zeros(9)))

    def density(self, theta: Array) -> tuple[float, Array]:
        """A normal prior of all, and normal observations."""
        p, q, f, *z = theta.tolist()  # numbers, which are faster than arrays of three
        first, second, tanh, sech = math.exp(p), math.exp(q), math.tanh(f), 1 / math.cosh(f)
        value, gradient = 0.0, [0.0] * 9
        for k, (y, error) in enumerate(zip(self.observed.tolist(), self.errors.tolist(), strict=True)):
            u, v = z[2 * k : 2 * k + 2]
            one, other = (y[0] - first * u) / error[0], (y[1] - second * (tanh * u + sech * v)) / error[1]
            value -= 0.5 * (one**2 + other**2)
            one, other = first * one / error[0], second * other / error[1]
            gradient[0] += one * u
            gradient[1] += other * (tanh * u + sech * v)
            gradient[2] += other * sech * (sech * u - tanh * v)
            gradient[3 + 2 * k], gradient[4 + 2 * k] = one + tanh * other, sech * other
        return value - 0.5 * float(theta @ theta), np.array(gradient) - theta

    def log_determinant(self, theta: Array) -> tuple[float, Array]:
        """Of the suitable coordinates: what the correlation has in it."""
        scaled = self.suitable * theta[2]
        value = -np.sum(np.log(np.cosh(scaled)))
        return float(value), -(self.suitable @ np.tanh(scaled)) * np.eye(9)[2]

    def statistics(self, theta: Array) -> Array:
        """Means and products of scales and correlation, and of the correlation with an effect."""
        pairs = np.outer(theta[:3], theta[:3])[np.triu_indices(3)]
        return np.array([*theta[:3], *pairs, theta[2] * theta[8]])

    @cached_property
    def truth(self) -> Array:
        """By quadrature, effects integrated out."""
        axis = np.linspace(-5, 5, 101)
        x = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), axis=-1).reshape(-1, 3)
        first, second, tanh = np.exp(x[:, 0]), np.exp(x[:, 1]), np.tanh(x[:, 2])
        log_weight = -0.5 * np.sum(x**2, axis=1)
        for (y, other), (error, of_other) in zip(self.observed, self.errors, strict=True):
            a, b, c = first**2 + error**2, second**2 + of_other**2, first * second * tanh
            determinant = a * b - c**2
            quadratic = (b * y**2 - 2 * c * y * other + a * other**2) / determinant
            log_weight -= 0.5 * (quadratic + np.log(determinant))
        # Of the last pair, whose second effect has the covariance (0, second / cosh) with the observations.
        mean = second / np.cosh(x[:, 2]) * (a * other - c * y) / determinant
        weight = np.exp(log_weight - log_weight.max())
        products = [x[:, i] * x[:, j] for i, j in zip(*np.triu_indices(3), strict=True)]
        return np.array([np.average(of, weights=weight) for of in (*x.T, *products, x[:, 2] * mean)])


class WithoutDeterminant:
    """The target of a sampler whose change of variables lacks a part of its log determinant."""

    def __init__(self, posterior: Scaled | Correlated) -> None:
        self._posterior = posterior

    def __call__(self, theta: Array) -> tuple[float, Array]:
        value, gradient = self._posterior.density(theta)
        more, slope = self._posterior.log_determinant(theta)
        return value + more, gradient + slope


class NoEnergy:
    """Gradients of a density, without its energy."""

    def __init__(self, posterior: Scaled | Correlated) -> None:
        self._posterior = posterior

    def __call__(self, theta: Array) -> tuple[float, Array]:
        return 0.0, self._posterior.density(theta)[1]


# Steps of trees and of trajectories of fixed length. In coordinates that do not suit the posterior, trees of long steps
# are stuck for thousands of transitions where scales are large.
TREES: dict[str, Any] = {"step_size": 0.3, "max_tree_depth": 7}
TREES_OF_SHORT_STEPS: dict[str, Any] = {"step_size": 0.1, "max_tree_depth": 9}
TRAJECTORIES: dict[str, Any] = {"step_size": 0.2, "n_steps": 10}
OF_RANDOM_LENGTH: dict[str, Any] = {"step_size": 0.2, "most_steps": 10}


def z_scores(
    posterior: Scaled | Correlated, density: Density, weights: Array, n: int = 1500, *, options: dict[str, Any] = TREES
) -> Array:
    """Statistics beside quadrature, in standard errors."""
    hamiltonian = sampler(density, independent(posterior.widths), posterior.coordinates(weights))
    own = {"max_tree_depth": hamiltonian.nuts, "n_steps": hamiltonian.hmc, "most_steps": hamiltonian.random_length_hmc}
    transition = next(own[name] for name in options if name in own)
    options = {name.replace("most", "n"): value for name, value in options.items()}
    rng, theta, truth = np.random.default_rng(5), np.zeros(len(posterior.widths)), posterior.truth
    found = np.empty((n, len(truth)))
    for k in range(n):
        transition(rng.bit_generator.capsule, theta, **options)
        found[k] = posterior.statistics(theta)
    batches = found.reshape(60, -1, len(truth)).mean(axis=1)
    return np.asarray(np.abs(found.mean(axis=0) - truth) / (batches.std(axis=0, ddof=1) / np.sqrt(60)))


SAMPLERS = pytest.mark.parametrize(
    "options", [TREES, TRAJECTORIES, OF_RANDOM_LENGTH], ids=["nuts", "hmc", "random_length_hmc"]
)
POSTERIORS = pytest.mark.parametrize("posterior", [Scaled(), Correlated()])
SAME, OWN = np.ones(3), np.array([0.3, 0.5, 0.9])
SLOW = pytest.mark.slow
# Draws in coordinates that do not suit the posterior depend on each other for longer.
LONGER = 3000


@POSTERIORS
@pytest.mark.parametrize("weights", [pytest.param(np.zeros(3), marks=SLOW), pytest.param(SAME, marks=SLOW), None, OWN])
def test_the_target_stays_as_it_is(posterior: Scaled | Correlated, weights: Array | None) -> None:
    if weights is None:
        found = z_scores(posterior, posterior.density, posterior.suitable)
    else:
        found = z_scores(posterior, posterior.density, weights, LONGER, options=TREES_OF_SHORT_STEPS)
    assert found.max() < 4.5


@POSTERIORS
@pytest.mark.parametrize("weights", [pytest.param(SAME, marks=SLOW), None, pytest.param(OWN, marks=SLOW)])
def test_trajectories_of_fixed_length_leave_it_too(posterior: Scaled | Correlated, weights: Array | None) -> None:
    """Without inner coordinates, they would have to be very short in the neck of the funnel."""
    chosen, n = (posterior.suitable, 1500) if weights is None else (weights, LONGER)
    assert z_scores(posterior, posterior.density, chosen, n, options=TRAJECTORIES).max() < 4.5


@POSTERIORS
def test_trajectories_of_random_length_leave_it_too(posterior: Scaled | Correlated) -> None:
    assert z_scores(posterior, posterior.density, posterior.suitable, LONGER, options=OF_RANDOM_LENGTH).max() < 4.5


@SAMPLERS
@POSTERIORS
def test_a_jacobian_that_is_left_out_is_seen(posterior: Scaled | Correlated, options: dict[str, Any]) -> None:
    assert z_scores(posterior, WithoutDeterminant(posterior), posterior.suitable, options=options).max() > 9


@SAMPLERS
@POSTERIORS
def test_an_energy_that_is_not_the_densitys_is_seen(posterior: Scaled | Correlated, options: dict[str, Any]) -> None:
    assert z_scores(posterior, NoEnergy(posterior), posterior.suitable, options=options).max() > 9


def skew_metric(rng: np.random.Generator, dim: int, share: float, n: int = 0) -> Metric:
    """Some share of the rows below each diagonal, or all of them, and n directions."""
    lower = sp.csc_array(np.tril(rng.normal(0, 0.3, (dim, dim)) * (rng.random((dim, dim)) < share), -1))
    lower = sp.csc_array(lower + sp.diags_array(rng.uniform(0.5, 2, dim)))
    lower.sort_indices()
    order = rng.permutation(dim).astype(np.int32)
    factor = Factor(lower.indptr.astype(np.int32), lower.indices.astype(np.int32), lower.data, order)
    directions = np.linalg.qr(rng.standard_normal((dim, n)))[0].T
    return Metric(factor, np.ascontiguousarray(directions), rng.uniform(0.2, 5.0, n))


def root(metric: Metric) -> Array:
    """R with R R' the precision, in the order of the factor."""
    q = metric.directions
    return np.asarray(metric.factor.lower @ (np.eye(q.shape[1]) + (q.T * (1 / metric.sds - 1)) @ q))


@pytest.mark.parametrize(("share", "n"), [(0.0, 0), (0.4, 0), (1.0, 0), (0.0, 1), (0.4, 2)])
@pytest.mark.parametrize("seed", range(4))
def test_a_step_is_a_rotation_between_kicks_by_the_rest(share: float, n: int, seed: int) -> None:
    """In coordinates with the metric's precision, the rest is the log density less a standard normal one."""
    density, rng = Smooth(), np.random.default_rng(seed)
    metric, theta = skew_metric(rng, DIM, share, n), rng.normal(0, 0.3, DIM)
    nuts = sampler(density.log_density_gradient, metric, Coordinates.plain(DIM)).nuts
    ends, same = [], np.random.default_rng(seed)
    rng = np.random.default_rng(seed)
    for step_size in (0.05, 0.1, 0.2):
        before, lower, order = theta.copy(), root(metric), metric.factor.order
        nuts(rng.bit_generator.capsule, theta, step_size=step_size, max_tree_depth=1)
        momentum = same.standard_normal(DIM)
        step = step_size if same.random() < 0.5 else -step_size
        same.random()  # whether it moves
        slope = np.linalg.solve(lower, density.log_density_gradient(before)[1][order])
        z, moved = lower.T @ before[order], np.empty(DIM)
        kicked = momentum + 0.5 * step * (slope + z)
        moved[order] = np.linalg.solve(lower.T, np.cos(step) * z + np.sin(step) * kicked)
        ends.append(not np.allclose(theta, before))
        np.testing.assert_allclose(theta, moved if ends[-1] else before, rtol=1e-11)
    assert any(ends)


@pytest.mark.parametrize("n", [0, 3])
@pytest.mark.parametrize(("wider", "exact"), [(1.0, True), (1.1, False)])
def test_steps_are_exact_for_the_normal_distribution_of_the_metric(wider: float, exact: bool, n: int) -> None:
    """In any number of dimensions, at any step size; that of another metric changes the energy."""
    rng, dim = np.random.default_rng(3), 200
    metric = skew_metric(rng, dim, 0.1, n)
    lower, order = root(metric), metric.factor.order

    def density(theta: Array) -> tuple[float, Array]:
        z, slope = lower.T @ theta[order] / wider, np.empty(dim)
        slope[order] = -lower @ z / wider
        return -0.5 * float(z @ z), slope

    hamiltonian, theta, bits = (
        sampler(density, metric, Coordinates.plain(dim)),
        np.zeros(dim),
        rng.bit_generator.capsule,
    )
    for step_size in (0.2, 0.5, 0.9):
        trees = [hamiltonian.nuts(bits, theta, step_size=step_size, max_tree_depth=3) for _ in range(5)]
        trajectories = [hamiltonian.hmc(bits, theta, step_size=step_size, n_steps=3) for _ in range(5)]
        for made in (trees, trajectories):
            assert (min(one.acceptance_rate for one in made) == pytest.approx(1, abs=1e-9)) == exact


def test_a_rejected_trajectory_leaves_all_numbers_as_they_are() -> None:
    """Otherwise the rounding of coordinates would order what is equal."""
    density, falling, rng = Smooth(), count(), np.random.default_rng(4)
    metric, theta = skew_metric(rng, DIM, 0.4), rng.normal(0, 0.3, DIM)

    def lower_each_time(theta: Array) -> tuple[float, Array]:
        return -1e6 * next(falling), density.log_density_gradient(theta)[1]

    hmc, before = sampler(lower_each_time, metric, Coordinates.plain(DIM)).hmc, theta.copy()
    for _ in range(20):
        assert hmc(rng.bit_generator.capsule, theta, step_size=0.1, n_steps=3).acceptance_rate == 0
    np.testing.assert_array_equal(theta, before)


def normal_draws(angle: float, n: int = 2000) -> Array:
    """Trajectories of six steps on a standard normal distribution in one dimension."""
    hmc = sampler(
        lambda theta: (-0.5 * float(theta @ theta), -theta), independent(np.ones(1)), Coordinates.plain(1)
    ).hmc
    rng, theta, draws = np.random.default_rng(8), np.zeros(1), np.empty(n)
    for k in range(n):
        hmc(rng.bit_generator.capsule, theta, step_size=angle / 6, n_steps=6)
        draws[k] = theta[0]
    return draws


def test_a_third_of_a_circle_is_better_than_independent_draws() -> None:
    """Correlations of successive draws are cos 120 for means and its square for squares, less for the jitter."""
    draws = normal_draws(2 * np.pi / 3)
    for values, true in ((draws, -0.5), (draws**2, 0.25)):
        assert np.corrcoef(values[1:], values[:-1])[0, 1] == pytest.approx(true, abs=0.08)


def test_trajectories_of_random_length_are_uniform_up_to_the_longest() -> None:
    """On a standard normal distribution the mean correlation with the start is the mean of cosines, sin(L) / L."""
    normal = sampler(lambda theta: (-0.5 * float(theta @ theta), -theta), independent(np.ones(1)), Coordinates.plain(1))
    rng, longest, draws, n_steps = np.random.default_rng(8), 2 * np.pi / 3, np.zeros((4000, 1)), []
    for before, after in pairwise(draws):
        after[:] = before
        made = normal.random_length_hmc(rng.bit_generator.capsule, after, step_size=longest / 6, n_steps=6)
        n_steps.append(made.n_steps)
    assert np.corrcoef(draws[1:, 0], draws[:-1, 0])[0, 1] == pytest.approx(np.sin(longest) / longest, abs=0.06)
    assert np.unique(n_steps, return_counts=True)[1] == pytest.approx(np.full(6, 4000 / 6), rel=0.15)


def test_no_trajectory_is_a_period() -> None:
    """A circle ends where it began, but for the jitter: 15 % of a circle at most, whose cosine is 0.86 on average."""
    draws = normal_draws(2 * np.pi)
    assert np.corrcoef(draws[1:], draws[:-1])[0, 1] == pytest.approx(np.sin(0.3 * np.pi) / (0.3 * np.pi), abs=0.04)
