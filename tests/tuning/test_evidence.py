"""Log evidence by path sampling, beside integrals that are known; shares of modes that rest on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hamiltonians import Array, Density, independent, sampler

from stansub.kernels.surrogate import NoUTurn
from stansub.progress import Progress
from stansub.target.coordinates import Coordinates
from stansub.target.metric import Metric
from stansub.target.soft_minima import SoftMinima
from stansub.tuning.surrogates.evidence import CHECKS, Evidence, path_sampled

DIM = 100


class Function:
    """A log density with its gradient, in place of a compiled program."""

    def __init__(self, density: Density) -> None:
        self._density = density

    def hamiltonian(self, centre: Array, metric: Metric, coordinates: Coordinates, *, power: float = 1.0) -> Any:
        return sampler(self._density, metric, coordinates, centre, power)


def gumbel(x: Array) -> tuple[float, Array]:
    """Gumbel densities, whose integral is 1."""
    with np.errstate(over="ignore"):
        tail = np.exp(-x)
    return -float((x + tail).sum()), tail - 1


def logistic(x: Array) -> tuple[float, Array]:
    """Logistic densities, whose integral is 1."""
    return -float((np.abs(x) + 2 * np.log1p(np.exp(-np.abs(x)))).sum()), -np.tanh(x / 2)


def draws_of(density: Density, rng: np.random.Generator, n: int) -> Array:
    return (rng.gumbel if density is gumbel else rng.logistic)(size=(n, DIM))


def by_draws(density: Density, centre: Array, widths: Array, draws: Array) -> float:
    """The mean of log density less normal log density over draws, which is too large by a divergence."""
    constant = np.log(widths).sum() + 0.5 * len(widths) * np.log(2 * np.pi)
    return float(np.mean([density(x)[0] + 0.5 * np.sum(((x - centre) / widths) ** 2) + constant for x in draws]))


@pytest.mark.parametrize(("density", "sd"), [(gumbel, np.pi / np.sqrt(6)), (logistic, np.pi / np.sqrt(3))])
@pytest.mark.parametrize("wider", [0.7, 1.0, 1.5])
def test_the_evidence_of_densities_that_are_not_normal(density: Density, sd: float, wider: float) -> None:
    """The normal density has the same means, and other sds by a factor; its own draws would mislead."""
    rng, centre = np.random.default_rng(1), np.full(DIM, 0.5772 * (density is gumbel))
    widths, checks = np.full(DIM, wider * sd), list[None]()
    inner, start = NoUTurn(Coordinates.plain(DIM), centre, independent(widths), 0.3), draws_of(density, rng, 1)[0]
    found = path_sampled(Function(density), inner, start, rng, lambda: checks.append(None))
    assert abs(found.log) < 4 * found.error < 12
    if wider != 1:
        assert by_draws(density, centre, widths, draws_of(density, rng, 200)) > 6 * found.error
    assert len(checks) == CHECKS


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0])
def test_the_evidence_of_effects_in_coordinates_of_their_own(weight: float) -> None:
    """The normal density is one of the coordinates; theirs has a Jacobian."""
    observed, errors, dim = np.linspace(-1.5, 1.5, 8), np.full(8, 0.5), 9

    def density(theta: Array) -> tuple[float, Array]:
        tau, z = np.exp(theta[0]), theta[1:]
        residuals = (observed - tau * z) / errors
        value = -0.5 * (theta @ theta + residuals @ residuals)
        return float(value), np.array([tau * z @ (residuals / errors), *(tau * residuals / errors)]) - theta

    grid = np.linspace(-8, 6, 20001)
    variance = errors**2 + np.exp(2 * grid[:, np.newaxis])
    given = -0.5 * np.sum(observed**2 / variance + np.log(variance / errors**2), axis=1) + 4 * np.log(2 * np.pi)
    truth = np.log(np.sum(np.exp(given - 0.5 * grid**2)) * (grid[1] - grid[0]))
    rows = sp.csr_array(np.full((8, 1), weight) * np.eye(dim)[0])
    coordinates = Coordinates.of(np.ones(8, np.int32), np.arange(1, dim), SoftMinima.affine(rows, np.zeros(8)))
    inner = NoUTurn(coordinates, np.zeros(dim), independent(np.array([0.5, *np.full(8, 0.7)])), 0.3)
    found = path_sampled(Function(density), inner, np.zeros(dim), np.random.default_rng(2), Progress().check)
    assert abs(found.log - truth) < 4 * found.error < 2


def test_the_density_between_two_is_sampled() -> None:
    """Between two normal densities, it is normal, and its precision a mean of both; the ratio is that of the two."""
    power, width, rng = 0.3, 2.0, np.random.default_rng(3)

    def density(x: Array) -> tuple[float, Array]:
        return -0.5 * float(x @ x) / width**2, -x / width**2

    between = sampler(density, independent(np.ones(DIM)), Coordinates.plain(DIM), np.ones(DIM), power)
    precision = power / width**2 + 1 - power
    theta, draws = np.zeros(DIM), np.empty((600, DIM))
    for k in range(len(draws)):
        between.nuts(rng.bit_generator.capsule, theta, step_size=0.5, max_tree_depth=5)
        draws[k] = theta
    kept = draws[100:]
    assert kept.mean() == pytest.approx((1 - power) / precision, abs=0.02)
    assert kept.var() == pytest.approx(1 / precision, rel=0.03)
    assert between.log_ratio(theta) == pytest.approx(density(theta)[0] + 0.5 * np.sum((theta - 1) ** 2))


@pytest.mark.parametrize("power", [0.0, -0.1, 1.1, np.nan])
def test_other_powers_are_refused(power: float) -> None:
    with pytest.raises(ValueError, match="power"):
        sampler(gumbel, independent(np.ones(DIM)), Coordinates.plain(DIM), power=power)


def test_a_factor_of_a_density_adds_its_logarithm() -> None:
    assert Evidence(1.0, 0.5).plus(2.0) == Evidence(3.0, 0.5)
