"""Effects and their scales: formula of the density; sweeps, and trajectories given the scales, are reversible."""

import ctypes
import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from generators import capsule
from numpy.typing import NDArray

from stansub._loop import SurrogateEffects, Transition
from stansub.target.cholesky import cholesky
from stansub.target.coordinates import Combination
from stansub.target.normal_effects import NormalEffects
from stansub.target.prior_means import PriorMeans

Array = NDArray[np.float64]
# Scales a, b, c with standard normal logarithms; three effects of a, the last one bounded by c; a pair with scales a, b
# and a correlation of c, as z; an effect of a and b, as u plus a mean, 0.7 times the last one; a common coefficient.
A, B, C = range(3)
TRIPLE, PAIR, SINGLE, COMMON = slice(3, 6), slice(6, 8), 8, 9
DIM, N_COEFFICIENTS = 10, 7
NODES = np.arange(-12, 12.5, 0.5)
NOISE, MEAN = 0.7, 0.7
DESIGN = np.random.default_rng(8).standard_normal((9, N_COEFFICIENTS))
# Functions of blocks by scales, with constants: three of a, one of them bounded, those of the pair by rows, and that of
# the single effect.
FUNCTIONS = sp.csr_array([[1, 0, 0]] * 3 + [[0, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 0], [1.0, 0.5, 0]])
COUNTS, CONSTANTS = [1, 1, 2, 1, 1, 1, 1], np.array([0, 0, 0, 0.2, 0.3, 0, -0.2, 0])
# Lines: each scale, and a against b, which leaves one effect as it is.
LINES = sp.csr_array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, -1, 0]] * 2)
FIXES = np.repeat([1, 0], 4).astype(np.uint8)
# Of proposals of all scales.
ROOT = np.array([[0.9, 0, 0], [-0.4, 0.8, 0], [0.2, 0.1, 1.1]])
UNIT = sp.eye_array(N_COEFFICIENTS, format="csr")
NO_PROPOSAL: dict[str, Any] = {"centre": np.empty(0), "root": np.empty((0, 0))}


def places(of: Any) -> NDArray[np.int32]:
    return np.asarray(of, np.int32)


@functools.cache
def without_observations(noise: float) -> NormalEffects:
    precision = DESIGN.T @ DESIGN / noise**2
    precision[-1, -1] += 0.25  # the common coefficient's prior
    rows, factor = sp.csr_array(precision), cholesky(sp.csc_array(precision + 10 * np.eye(N_COEFFICIENTS)))
    return NormalEffects(
        places(np.arange(3, DIM)), places([A, B, C]), NODES[0], 0.5,
        np.tile(-(NODES**2) / 2, (3, 1)), np.tile(-NODES, (3, 1)),
        places([1, 1, 1, 2, 1]), places(range(6)), places(COUNTS), places(FUNCTIONS.indptr), places(FUNCTIONS.indices),
        FUNCTIONS.data, CONSTANTS, np.array([0, 0, 0, 0, 1], np.uint8), places(rows.indptr), places(rows.indices),
        rows.data, np.zeros(N_COEFFICIENTS), places([N_COEFFICIENTS]), factor.starts, factor.rows, factor.order,
        places(LINES.indptr), places(LINES.indices), LINES.data, np.full(8, 1.0), FIXES, 1.0,
        np.array([0.2, -0.1, 0.3]), ROOT,
        PriorMeans(DIM, places([SINGLE]), places([0, 1]), places([COMMON]), np.array([MEAN])),
        Combination.of(UNIT.tocsc(), UNIT),
    )  # fmt: skip


def effects(y: Array, noise: float = NOISE) -> NormalEffects:
    """Given observations, normal about a design times the coefficients."""
    return replace(without_observations(noise), linear=DESIGN.T @ y / noise**2)


def coefficients(theta: Array) -> Array:
    """u of all effects, and the common coefficient."""
    a, b, c = theta[:3]
    first, second = theta[PAIR]
    pair = [np.exp(a + 0.3) * first, np.exp(b - 0.2) * (np.tanh(c) * first + second / np.cosh(c))]
    own = theta[SINGLE] - MEAN * theta[COMMON]
    bounded = np.exp(a) / np.sqrt(1 + np.exp(2 * (a - c - 0.2)))
    return np.concatenate([np.array([np.exp(a), np.exp(a), bounded]) * theta[TRIPLE], pair, [own, theta[COMMON]]])


def prior(rng: np.random.Generator) -> Array:
    theta = rng.standard_normal(DIM)
    theta[SINGLE] *= np.exp(theta[A] + 0.5 * theta[B])
    theta[COMMON] *= 2
    theta[SINGLE] += MEAN * theta[COMMON]
    return theta


def log_density(theta: Array, y: Array) -> float:
    a, b, _ = theta[:3]
    size = a + 0.5 * b
    others = np.delete(theta, [SINGLE, COMMON])
    residual = y - DESIGN @ coefficients(theta)
    own = theta[SINGLE] - MEAN * theta[COMMON]
    squares = others @ others + own**2 * np.exp(-2 * size) + theta[COMMON] ** 2 / 4
    return float(-0.5 * squares - size - 0.5 * residual @ residual / NOISE**2)


def test_the_density_is_that_of_the_formula() -> None:
    rng = np.random.default_rng(1)
    y = rng.standard_normal(9)
    found = effects(y).compiled()
    points = [prior(rng) for _ in range(6)]
    gaps = [found.log_density(theta) - log_density(theta, y) for theta in points]
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-9)


def combined(of: NormalEffects) -> NormalEffects:
    """The same effects, with combinations of those of all blocks but the common coefficient."""
    columns = np.eye(N_COEFFICIENTS)
    columns[:6, :6] += np.tril(np.round(np.random.default_rng(5).normal(0, 0.7, (6, 6)), 1), -1)
    rows = np.linalg.inv(columns)
    matrix = sp.csr_array((of.precision, of.precision_columns, of.precision_starts)).toarray()
    precision, combination = sp.csr_array(rows.T @ matrix @ rows), (sp.csc_array(columns), sp.csr_array(rows))
    factor = cholesky(sp.csc_array(precision.toarray() + 10 * np.eye(N_COEFFICIENTS)))
    return replace(
        of,
        precision_starts=places(precision.indptr),
        precision_columns=places(precision.indices),
        precision=precision.data,
        linear=rows.T @ of.linear,
        pattern_starts=factor.starts,
        pattern_rows=factor.rows,
        order=factor.order,
        combination=Combination.of(*combination),
    )


def test_the_density_is_that_of_the_formula_for_combinations_of_effects_too() -> None:
    rng = np.random.default_rng(1)
    y = rng.standard_normal(9)
    found = combined(effects(y)).compiled()
    points = [prior(rng) for _ in range(6)]
    gaps = [found.log_density(theta) - log_density(theta, y) for theta in points]
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-9)


Kernel = Callable[[NormalEffects, np.random.Generator, Array], None]


def sweep(of: NormalEffects, rng: np.random.Generator, theta: Array) -> None:
    assert of.compiled().sweep(rng.bit_generator.capsule, theta)


def sweep_of_combinations(of: NormalEffects, rng: np.random.Generator, theta: Array) -> None:
    sweep(combined(of), rng, theta)


def patterns(of: NormalEffects, members: list[list[int]]) -> NormalEffects:
    """With coefficients drawn in parts."""
    matrix = sp.csc_array((of.precision, of.precision_columns, of.precision_starts)).toarray() + 99 * UNIT.toarray()
    factors = [cholesky(sp.csc_array(matrix[np.ix_(own, own)])) for own in members]
    return replace(
        of,
        **NO_PROPOSAL,
        part_sizes=places([len(own) for own in members]),
        pattern_starts=np.concatenate([one.starts for one in factors]),
        pattern_rows=np.concatenate([one.rows for one in factors]),
        order=places(np.concatenate([np.array(own)[one.order] for own, one in zip(members, factors, strict=True)])),
    )


# The common coefficient is in each.
PARTS = [[0, 1, 2, 6], [3, 4, 6], [5, 6]]


def sweep_of_parts(of: NormalEffects, rng: np.random.Generator, theta: Array) -> None:
    sweep(patterns(of, PARTS), rng, theta)


def parts_without_others(of: NormalEffects, rng: np.random.Generator, theta: Array) -> None:
    """Without the products with coefficients of other parts."""
    matrix = sp.csr_array((of.precision, of.precision_columns, of.precision_starts)).toarray()
    own = np.zeros_like(matrix)
    for part in PARTS:
        own[np.ix_(part, part)] = matrix[np.ix_(part, part)]
    rows = sp.csr_array(own)
    precision = {"precision": rows.data, "precision_columns": places(rows.indices)}
    sweep(patterns(replace(of, **precision, precision_starts=places(rows.indptr)), PARTS), rng, theta)


def with_moves(of: NormalEffects, n: int) -> NormalEffects:
    """Of the first lines only, along which effects are fixed."""
    rows = LINES[:n]
    directions = {"move_starts": places(rows.indptr), "move_columns": places(rows.indices), "directions": rows.data}
    return replace(of, **directions, widths=of.widths[:n], fixes_effects=of.fixes_effects[:n])


def by_halves(of: NormalEffects, rng: np.random.Generator, theta: Array) -> None:
    """Two sweeps, one of them without moves; without proposals of all scales."""
    of = replace(of, **NO_PROPOSAL)
    sweep(with_moves(of, 0), rng, theta)
    sweep(with_moves(of, 3), rng, theta)


def there_and_back(of: NormalEffects, rng: np.random.Generator, theta: Array) -> None:
    by_halves(of, rng, theta)
    sweep(with_moves(replace(of, **NO_PROPOSAL), 0), rng, theta)


def without_jacobian(of: NormalEffects, rng: np.random.Generator, theta: Array) -> None:
    """A centred effect taken for a standardised one."""
    replace(of, has_effects=np.zeros(5, np.uint8)).compiled().sweep(rng.bit_generator.capsule, theta)


def other_prior(of: NormalEffects, rng: np.random.Generator, theta: Array) -> None:
    sweep(replace(of, slopes=0.6 * of.slopes, values=0.6 * of.values), rng, theta)


def other_rate(of: NormalEffects, rng: np.random.Generator, theta: Array) -> None:
    """Functions in which a scale counts less than in the model."""
    sweep(replace(of, factors=0.7 * of.factors), rng, theta)


def functions(theta: Array, y: Array, noise: float) -> Array:
    """Of parameters and data: moments, and the fit."""
    fitted = DESIGN @ coefficients(theta)
    residual = y - fitted
    bounded = np.tanh(np.r_[theta[:3], theta[TRIPLE], theta[PAIR], theta[COMMON]])
    standard = (theta[SINGLE] - MEAN * theta[COMMON]) * np.exp(-theta[A] - 0.5 * theta[B])
    return np.r_[
        bounded, theta[:3] ** 2, theta[TRIPLE] ** 2, standard**2, np.tanh(residual @ residual / 9 / noise**2),
        np.tanh(residual @ fitted / 9 / noise), bounded[0] * np.tanh(np.abs(fitted).mean()),
        np.tanh(np.log(np.mean(coefficients(theta)[:3] ** 2)) / 2),
    ]  # fmt: skip


def differences(kernel: Kernel, noise: float = NOISE, n: int = 2000) -> tuple[Array, Array]:
    """z of how a step changes the joint distribution of parameters and data, and of how it is not reversible."""
    rng = np.random.default_rng(2)
    changes, flows = [], []
    for _ in range(n):
        theta = prior(rng)
        y = DESIGN @ coefficients(theta) + noise * rng.standard_normal(9)
        end = theta.copy()
        kernel(effects(y, noise), rng, end)
        here, there = functions(theta, y, noise), functions(end, y, noise)
        changes.append(there - here)
        flow = np.outer(here, there)
        flows.append((flow - flow.T)[np.triu_indices(len(here), 1)])

    def z(of: list[Array]) -> Array:
        values = np.array(of)
        return np.asarray(values.mean(0) / (values.std(0) / np.sqrt(n)))

    return z(changes), z(flows)


@pytest.mark.parametrize("kernel", [sweep, sweep_of_combinations, sweep_of_parts])
def test_a_sweep_is_reversible(kernel: Kernel) -> None:
    changes, flows = differences(kernel)
    assert np.abs(changes).max() < 4
    assert np.abs(flows).max() < 4.5


def all_at_once(of: NormalEffects, rng: np.random.Generator, theta: Array) -> None:
    """Proposals of all scales, and a draw of the coefficients."""
    sweep(with_moves(of, 0), rng, theta)


@pytest.mark.parametrize("noise", [NOISE, 20.0])
def test_proposals_of_all_scales_are_reversible(noise: float) -> None:
    changes, flows = differences(all_at_once, noise)
    assert np.abs(changes).max() < 4
    assert np.abs(flows).max() < 4.5


def test_fitted_proposals_of_all_scales_are_accepted() -> None:
    rng = np.random.default_rng(5)
    theta = prior(rng)
    y = DESIGN @ coefficients(theta) + NOISE * rng.standard_normal(9)

    def scales(of: NormalEffects) -> Array:
        kernel, found = of.compiled(), np.empty((500, 3))
        for row in found:
            assert kernel.sweep(rng.bit_generator.capsule, theta)
            row[:] = theta[:3]
        return found

    by_lines = scales(replace(effects(y), **NO_PROPOSAL))
    fitted = {"centre": by_lines.mean(axis=0), "root": np.linalg.cholesky(np.cov(by_lines, rowvar=False))}
    at_once = scales(replace(with_moves(effects(y), 0), **fitted))
    assert np.diff(at_once, axis=0).any(axis=1).mean() > 0.8
    assert not np.diff(scales(replace(with_moves(effects(y), 0), **NO_PROPOSAL)), axis=0).any()


@pytest.mark.parametrize("broken", [without_jacobian, other_prior, other_rate, parts_without_others])
def test_broken_sweeps_are_seen(broken: Kernel) -> None:
    assert np.abs(differences(broken)[0]).max() > 6


@pytest.mark.slow
def test_order_matters() -> None:
    """The same parts in an order that is not the same in reverse, with weak data, so that draws resemble each other."""
    changes, flows = differences(by_halves, 20.0, 4000)
    assert np.abs(changes).max() < 4
    assert np.abs(flows).max() > 6
    assert np.abs(differences(there_and_back, 20.0, 4000)[1]).max() < 4.5


def given_scales(own: NormalEffects, of: NormalEffects) -> Callable[..., Transition]:
    """Trajectories and proposals of some normal effects, with decisions about the density of others."""
    found, numbers, step = of.compiled(), ctypes.POINTER(ctypes.c_double), 1e-5 * np.eye(DIM)

    def gradient(_: Any, _propto: bool, _jacobian: bool, at: Any, value: Any, slope: Any, _error: Any) -> int:
        theta = np.ctypeslib.as_array(at, (DIM,)).copy()
        value[0] = found.log_density(theta)
        for k in range(DIM):
            slope[k] = (found.log_density(theta + step[k]) - found.log_density(theta - step[k])) / 2e-5
        return 0

    arguments = ctypes.c_void_p, ctypes.c_bool, ctypes.c_bool, numbers, numbers, numbers, ctypes.c_void_p
    function = ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(gradient)
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return SurrogateEffects(address, address, address, own.compiled(), owner=function).given_scales


def rough(of: NormalEffects) -> NormalEffects:
    """Of another likelihood and other coefficients' prior."""
    return replace(of, linear=0.7 * of.linear + 0.3, precision=1.4 * of.precision)


def trajectory(of: NormalEffects, rng: np.random.Generator, theta: Array) -> None:
    given_scales(rough(of), of)(rng.bit_generator.capsule, theta, step_size=0.7, n_steps=3)


def trajectory_of_combinations(of: NormalEffects, rng: np.random.Generator, theta: Array) -> None:
    given_scales(combined(rough(of)), of)(rng.bit_generator.capsule, theta, step_size=0.7, n_steps=3)


def of_other_prior(of: NormalEffects, rng: np.random.Generator, theta: Array) -> None:
    other = replace(of, slopes=0.6 * of.slopes, values=0.6 * of.values)
    given_scales(rough(of), other)(rng.bit_generator.capsule, theta, step_size=0.7, n_steps=3)


@pytest.mark.parametrize(
    ("kernel", "noise"), [(trajectory, NOISE), (trajectory, 20.0), (trajectory_of_combinations, NOISE)]
)
def test_trajectories_given_the_scales_are_reversible(kernel: Kernel, noise: float) -> None:
    """Also with an approximate normal likelihood."""
    changes, flows = differences(kernel, noise)
    assert np.abs(changes).max() < 4
    assert np.abs(flows).max() < 4.5


def test_broken_trajectories_given_the_scales_are_seen() -> None:
    assert np.abs(differences(of_other_prior)[0]).max() > 6


def test_trajectories_keep_the_energy() -> None:
    """Exactly under the normal likelihood, and with an error of the second order under another density."""
    rng = np.random.default_rng(6)
    theta = prior(rng)
    of = effects(DESIGN @ coefficients(theta) + NOISE * rng.standard_normal(9))

    def rejected(own: NormalEffects, step_size: float, n_steps: int) -> float:
        sampler, at = given_scales(own, of), theta.copy()
        bits = capsule(np.random.default_rng(7))
        made = [sampler(bits, at, step_size=step_size, n_steps=n_steps).acceptance_rate for _ in range(200)]
        return 1 - float(np.mean(made))

    assert rejected(of, 0.7, 3) < 1e-6
    assert rejected(combined(of), 0.7, 3) < 1e-6
    large, small = rejected(rough(of), 0.8, 2), rejected(rough(of), 0.2, 8)
    assert large > 0.02
    assert small < large / 8


def test_several_transitions_are_those_one_by_one() -> None:
    rng = np.random.default_rng(3)
    of, start = effects(rng.standard_normal(9)), prior(rng)
    sampler, ends = given_scales(rough(of), of), []
    for several in (1, 4):
        theta, bits = start.copy(), capsule(np.random.default_rng(9))
        for _ in range(4 // several):
            sampler(bits, theta, several, step_size=0.7, n_steps=3)
        ends.append(theta)
    np.testing.assert_allclose(*ends, rtol=1e-9)


def test_trajectories_given_the_scales_need_proposals_of_them() -> None:
    of, bits = effects(np.zeros(9)), capsule(np.random.default_rng(3))
    sampler = given_scales(replace(of, **NO_PROPOSAL), of)
    with pytest.raises(ValueError, match="no proposals"):
        sampler(bits, np.zeros(DIM), step_size=0.7, n_steps=3)


def test_no_distribution_no_move() -> None:
    y = np.zeros(9)
    found, theta = effects(y), prior(np.random.default_rng(3))
    negative = replace(found, precision=-found.precision).compiled()
    before = theta.copy()
    assert not negative.sweep(capsule(np.random.default_rng(4)), theta)
    np.testing.assert_array_equal(theta, before)
    made = given_scales(replace(found, precision=-found.precision), found)(
        capsule(np.random.default_rng(4)), theta, step_size=0.7, n_steps=3
    )
    assert made.acceptance_rate == 0
    np.testing.assert_array_equal(theta, before)


def test_parts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit together"):
        replace(effects(np.zeros(9)), linear=np.zeros(3)).compiled()
    with pytest.raises(ValueError, match="do not fit together"):
        replace(effects(np.zeros(9)), root=np.eye(2)).compiled()
    with pytest.raises(ValueError, match="do not fit together"):
        replace(effects(np.zeros(9)), combination=Combination.none()).compiled()


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ([[0, 1, 2, 6], [3, 4, 6]], "a coefficient is in no part"),
        ([[0, 1, 2, 3, 6], [4, 5, 6]], "a block of effects is in several parts"),
    ],
)
def test_parts_of_coefficients_that_do_not_fit_are_refused(members: list[list[int]], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        patterns(effects(np.zeros(9)), members).compiled()


@pytest.mark.parametrize("member", [-1, N_COEFFICIENTS])
def test_a_part_without_a_coefficient_is_refused(member: int) -> None:
    of = patterns(effects(np.zeros(9)), PARTS)
    of.order[-1] = member
    with pytest.raises(ValueError, match="do not fit together"):
        of.compiled()
    with pytest.raises(ValueError, match="no parts"):
        replace(of, part_sizes=places([])).compiled()


def test_all_scales_are_not_proposed_with_several_parts() -> None:
    of = effects(np.zeros(9))
    with pytest.raises(ValueError, match="do not fit together"):
        replace(patterns(of, PARTS), centre=of.centre, root=of.root).compiled()
