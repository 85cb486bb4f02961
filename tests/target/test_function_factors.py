"""Posteriors made of numpy functions, and which of their factors depend on which parameters."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from simulated import PROGRAMS, Compiled, simulated

from stansub import FunctionFactors, InputError
from stansub.target.factors import Target
from stansub.target.footprints import find_footprints
from stansub.tuning.modes.mode import find_modes

Array = NDArray[np.float64]
Places = NDArray[np.int32]

Y = np.random.default_rng(1).normal(1.0, 0.5, 30)
GROUP = np.repeat([0, 1, 2], 10)


def log_lik(theta: Array, which: Places) -> Array:
    return -0.5 * (Y[which] - theta[GROUP[which]]) ** 2


def slopes(theta: Array, which: Places) -> Array:
    out = np.zeros((len(which), 4))
    out[np.arange(len(which)), GROUP[which]] = Y[which] - theta[GROUP[which]]
    return out


def prior(theta: Array) -> float:
    """Of three means, given the log of their scale, which no observation depends on."""
    return float(-0.5 * (theta[:3] ** 2).sum() * np.exp(-2 * theta[3]) - 3 * theta[3] - 0.5 * theta[3] ** 2)


def prior_slope(theta: Array) -> Array:
    shrunk = np.exp(-2 * theta[3])
    return np.append(-theta[:3] * shrunk, (theta[:3] ** 2).sum() * shrunk - 3 - theta[3])


def groups(block_size: int = 1) -> FunctionFactors:
    return FunctionFactors(
        ["mu.1", "mu.2", "mu.3", "log_tau"],
        30,
        log_lik,
        log_density=prior,
        log_lik_gradient=slopes,
        log_density_gradient=prior_slope,
        block_size=block_size,
    )


THETA = np.array([0.3, -0.2, 0.9, 0.4])


@pytest.mark.parametrize("block_size", [1, 4, 7, 100])
def test_factors_are_sums_over_blocks(block_size: int) -> None:
    target: Target = groups(block_size)
    evaluator, each = target.population.evaluator(), log_lik(THETA, np.arange(30, dtype=np.int32))
    starts = target.blocks.starts
    np.testing.assert_allclose(evaluator.block_log_lik(THETA), np.add.reduceat(each, starts), rtol=1e-13)
    some = np.array([len(starts) - 1, 0], np.int32)[: len(starts)]
    np.testing.assert_array_equal(evaluator.block_log_lik(THETA, some), evaluator.block_log_lik(THETA)[some])
    gradients = np.add.reduceat(slopes(THETA, np.arange(30, dtype=np.int32)), starts)
    np.testing.assert_allclose(evaluator.block_gradients(THETA), gradients, atol=1e-13)
    assert target.full.log_density(THETA) == pytest.approx(prior(THETA) + each.sum())
    assert target.full.param_unc_names() == ["mu.1", "mu.2", "mu.3", "log_tau"]


def test_modes_are_found_with_it() -> None:
    means = FunctionFactors(
        ["mu.1", "mu.2", "mu.3"], 30, log_lik, log_lik_gradient=lambda theta, which: slopes(theta, which)[:, :3]
    )
    mode = find_modes(means, np.random.default_rng(1), starts=1).best
    np.testing.assert_allclose(mode.position, Y.reshape(3, 10).mean(axis=1), atol=1e-8)
    np.testing.assert_allclose(mode.covariance, np.eye(3) / 10, atol=1e-6)


def test_what_a_function_raises_passes_through() -> None:
    class OwnError(Exception):
        pass

    def failing(theta: Array, which: Places) -> Array:
        raise OwnError

    with pytest.raises(OwnError):
        FunctionFactors(["a"], 3, failing).evaluator().block_log_lik(np.zeros(1))
    with pytest.raises(InputError, match=r"log_lik returned an array of shape \(2,\), expected \(3,\)"):
        FunctionFactors(["a"], 3, lambda theta, which: np.zeros(2)).evaluator().block_log_lik(np.zeros(1))
    with pytest.raises(InputError, match="log_density_gradient"):
        FunctionFactors(["a"], 3, log_lik, log_density=prior, log_lik_gradient=slopes)
    with pytest.raises(InputError, match="at least one"):
        FunctionFactors([], 3, log_lik)
    undefined = FunctionFactors(["a"], 3, lambda theta, which: None).evaluator()
    assert (undefined.block_log_lik(np.zeros(1)) == -np.inf).all()


class TestFootprints:
    def test_factors_that_parameters_touch(self) -> None:
        found = find_footprints(groups(5), np.random.default_rng(1))
        assert found.touched_by([0]).tolist() == [0, 1]
        assert found.touched_by([0, 2]).tolist() == [0, 1, 4, 5]
        assert found.touched_by([3]).tolist() == []  # the prior alone knows it
        assert found.touched_by([]).tolist() == []
        assert found.touched_by([0, 1, 2, 3]).dtype == np.int32

    def test_blocks_across_groups_belong_to_both(self) -> None:
        found = find_footprints(groups(15), np.random.default_rng(1))
        assert found.depends.tolist() == [[True, True, False, False], [False, True, True, False]]

    def test_one_point_can_miss_what_several_show(self) -> None:
        def kinked(theta: Array, which: Places) -> Array:
            return np.full((len(which), 1), float(theta[0] > 0))

        flat = FunctionFactors(["a"], 5, lambda theta, which: np.zeros(len(which)), log_lik_gradient=kinked)
        missed = [not find_footprints(flat, np.random.default_rng(s), n_points=1).depends.any() for s in range(20)]
        assert 4 < sum(missed) < 16
        assert find_footprints(flat, np.random.default_rng(1), n_points=8).depends.all()

    def test_gradients_must_be_defined_somewhere(self) -> None:
        nowhere = FunctionFactors(
            ["a"], 5, lambda theta, which: np.zeros(len(which)), log_lik_gradient=lambda theta, which: None
        )
        with pytest.raises(InputError, match="not defined at any"):
            find_footprints(nowhere, np.random.default_rng(1))

    @pytest.mark.slow
    def test_of_a_stan_program(self, compiled: Compiled) -> None:
        """Effects belong to the blocks with observations of their group, and everything else to all."""
        file = PROGRAMS / "groups.stan"
        data = simulated(file)
        posterior = compiled(file).with_data(data, block_size=4, seed=3)
        found = find_footprints(posterior.population, np.random.default_rng(1))
        names = posterior.full.param_unc_names()
        group = data["group"] if posterior.order is None else data["group"][posterior.order]
        starts, stops = posterior.blocks.starts, posterior.blocks.stops
        effects = [names.index(f"z.{j}") for j in range(1, 8)]
        for j, place in enumerate(effects, start=1):
            wanted = [b for b, (one, end) in enumerate(zip(starts, stops, strict=True)) if j in group[one:end]]
            assert 0 < len(wanted) < len(starts)
            assert found.touched_by([place]).tolist() == wanted
        others = np.setdiff1d(np.arange(posterior.dim), effects)
        assert found.depends[:, others].all()


def test_what_functions_must_not_be_or_return_is_said() -> None:
    y = np.arange(5.0)

    def log_lik(theta: Any, places: Any) -> Any:
        return -((y[places] - theta[0]) ** 2)

    def gradient(theta: Any, places: Any) -> Any:
        return 2 * (y[places] - theta[0])[:, np.newaxis]

    given: Any
    for given in ("mu", [1]):
        with pytest.raises(InputError, match="must be a list of strings"):
            FunctionFactors(given, 5, log_lik)
    with pytest.raises(InputError, match=r"are inconsistent .*: mu: 2 names"):
        FunctionFactors(["mu", "mu"], 5, log_lik)
    for n, size in ((2.5, None), ("5", None), (0, None), (5, 1.5)):
        with pytest.raises(InputError, match="at least one parameter, one observation"):
            FunctionFactors(["mu"], n, log_lik, block_size=size)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="needs callables"):
        FunctionFactors(["mu"], 5, 3)  # type: ignore[arg-type]
    theta = np.zeros(1)

    def vector(theta: Any) -> Any:
        return theta

    def text(*theta: Any) -> Any:
        return "a"

    for prior in (vector, text):
        with pytest.raises(InputError, match=r"log_density (returned|did not return)"):
            FunctionFactors(["mu"], 5, log_lik, log_density=prior).log_density(theta)
    with pytest.raises(InputError, match="log_lik did not return an array of numbers"):
        FunctionFactors(["mu"], 5, text).log_density(theta)
    slopes = FunctionFactors(
        ["mu"],
        5,
        log_lik,
        log_density=lambda theta: 0.0,
        log_lik_gradient=gradient,
        log_density_gradient=lambda theta: np.zeros(4),
    )
    with pytest.raises(InputError, match="log_density_gradient returned an array of shape"):
        slopes.evaluator().global_gradient(theta)
