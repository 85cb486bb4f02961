"""Programs as people write them: every one is cut correctly, whatever its types and blocks."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulated import BRMS, PROGRAMS, ROOT, Compiled, example, simulated
from test_identity import check_identity, points

from stansub.errors import InputError
from stansub.stan.cutting import Whole, _undefined
from stansub.stan.instances import Slicer
from stansub.stan.proof import explain_undefined

# Number of observations.
N_OBSERVATIONS = {
    "brms_gaussian": 107,
    "survival": 235,
}
# That of brms with threads takes longest to compile; what it shares with others is tested by them.
SLOW_N = {
    "threading_brms_style": 71,
    "centred": 53,
    "varying_dispersion": 53,
    "mixture": 103,
    "groups": 61,
    "autoregression": 52,
    "random_walk": 53,
    "item_response": 143,
    "partial_sums": 230,
    "multivariate": 47,
    "capture": 37,
    "training": 43,
    "sliced_parameters": 55,
    "log_lik_overloaded": 25,
}


def file_of(name: str) -> Path:
    return next(file for file in (PROGRAMS / f"{name}.stan", BRMS.parent / f"{name}.stan") if file.exists())


@pytest.mark.parametrize("block_size", [1, 8])
@pytest.mark.parametrize(
    ("name", "n"),
    [*N_OBSERVATIONS.items(), *(pytest.param(*item, marks=pytest.mark.slow) for item in SLOW_N.items())],
)
def test_program(name: str, n: int, block_size: int, compiled: Compiled) -> None:
    model, data = compiled(file_of(name)), simulated(file_of(name))
    posterior = model.with_data(data, block_size=block_size, seed=7)
    assert posterior.blocks.n_observations == n
    assert posterior.order is not None
    check_identity(posterior, model, data)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["groups_as_many", "groups_more"])
def test_size_variables_of_equal_or_greater_value(name: str, compiled: Compiled) -> None:
    model, data = compiled(PROGRAMS / "groups.stan"), simulated(PROGRAMS / f"{name}.stan")
    posterior = model.with_data(data, block_size=4)
    assert posterior.sizes == ("N",)
    assert posterior.order is not None
    check_identity(posterior, model, data)


@pytest.mark.slow
def test_global_part_of_a_program_that_needs_an_observation(compiled: Compiled) -> None:
    file = PROGRAMS / "varying_dispersion.stan"
    posterior = replace(compiled(file), divided=None).with_data(simulated(file), block_size=8)
    assert len(posterior.population.global_models) == 3
    theta = points(posterior, 1)[0]
    beta, a, b = theta[:3], theta[3], np.tanh(theta[4] / 2)  # inverse logit onto (-1, 1)
    prior = -0.5 * np.sum((beta / 2.5) ** 2) - 0.5 * a**2 - 3 * np.log(2.5) - 4 * 0.5 * np.log(2 * np.pi)
    jacobian = np.log((1 - b**2) / 2)
    assert posterior.population.evaluator().global_log_density(theta) == pytest.approx(prior + jacobian, rel=1e-10)


@pytest.mark.slow
def test_profiled_programs_are_evaluated_in_threads(compiled: Compiled) -> None:
    file = PROGRAMS / "varying_dispersion.stan"
    posterior = compiled(file).with_data(simulated(file), block_size=1)
    theta = points(posterior, 1)[0]
    expected = posterior.population.evaluator().block_log_lik(theta)

    def many(_: int) -> bool:
        evaluator = posterior.population.evaluator()
        return all(np.array_equal(evaluator.block_log_lik(theta), expected) for _ in range(200))

    with ThreadPoolExecutor(max_workers=4) as pool:
        assert all(pool.map(many, range(8)))


@pytest.mark.slow
def test_programs_print_nothing(compiled: Compiled, capfd: pytest.CaptureFixture[str]) -> None:
    file = PROGRAMS / "varying_dispersion.stan"
    posterior = compiled(file).with_data(simulated(file), block_size=8)
    posterior.population.evaluator().block_log_lik(np.zeros(posterior.dim))
    posterior.full.log_density(np.zeros(posterior.dim))
    assert capfd.readouterr().out == ""


@pytest.mark.slow
def test_rejection_is_a_log_density_of_minus_infinity(compiled: Compiled) -> None:
    file = PROGRAMS / "mixture.stan"
    posterior = compiled(file).with_data(simulated(file), block_size=8)
    theta = points(posterior, 1)[0]
    theta[-1] = np.log(1001.0)
    evaluator = posterior.population.evaluator()
    assert np.isfinite(evaluator.global_log_density(theta))
    assert np.all(evaluator.block_log_lik(theta) == -np.inf)
    assert explain_undefined(posterior.population, None, theta) == "observation 1 of the data is impossible"
    _, message = posterior.full.log_density_or_message(theta)
    assert "sigma is too large" in message


@pytest.mark.slow
def test_shuffling_moves_the_right_axis(compiled: Compiled) -> None:
    file = PROGRAMS / "groups.stan"
    data = simulated(file)
    posterior = compiled(file).with_data(data, block_size=8)
    theta = points(posterior, 1)[0]
    beta, alpha, gamma, z, tau = theta[:2], 0.5 + 2 * theta[2:5], theta[5], theta[6:13], np.exp(theta[13])
    effect = gamma * data["u"] + tau * z
    eta = data["x"].T @ beta + effect[data["group"] - 1] + np.log(data["exposure"])
    by_hand = np.zeros(61)
    for t in range(3):
        log_rate = alpha[t] + eta
        factorials = np.array([np.sum(np.log(np.arange(1, count + 1))) for count in data["count"][t]])
        by_hand += data["count"][t] * log_rate - np.exp(log_rate) - factorials
    np.testing.assert_allclose(posterior.each(theta[np.newaxis], np.arange(len(by_hand)))[0], by_hand, rtol=1e-9)


@pytest.mark.slow
def test_likelihood_that_is_switched_off(compiled: Compiled) -> None:
    with pytest.raises(InputError, match="there is no likelihood"):
        compiled(BRMS).with_data({**simulated(BRMS), "prior_only": 1}, block_size=8)


@pytest.mark.parametrize("observations", ["K", "absent"])
def test_wrong_size_variable(observations: str, compiled: Compiled) -> None:
    file = ROOT / "stan_models" / "logistic.stan"
    refused = r"`observations='absent'`.*candidates are N, K|not a sum over observations .*K: "
    with pytest.raises(InputError, match=refused):
        compiled(file).with_data(example(file), block_size=8, observations=observations)


@pytest.mark.parametrize("name", ["linear", "normal_mean"])
def test_impossible_observation_is_named(name: str, compiled: Compiled) -> None:
    file = ROOT / "stan_models" / f"{name}.stan"
    data = example(file)
    data["y"][16] = 1e200
    message = f"{name}: the log density is not finite at any .* observation 17 of the data is impossible"
    with pytest.raises(InputError, match=message):
        compiled(file).with_data(data, block_size=8)


def test_impossible_first_observation_is_no_prior(compiled: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    """The global part of a program with ``int<lower=1> N`` is computed from two observations."""
    model, data = compiled(ROOT / "stan_models" / "linear.stan"), example(ROOT / "stan_models" / "linear.stan")
    data["y"][0] = 1e200
    accepts = Slicer.model

    def needs_rows(slicer: Slicer, start: int, stop: int) -> Any:
        if start == stop:
            raise InputError("N is 0, but must be greater than or equal to 1")
        return accepts(slicer, start, stop)

    monkeypatch.setattr(Slicer, "model", needs_rows)
    values = model.read_data(data)
    cut = Whole(model.silent, values, ["N"], 0)
    theta = np.zeros(cut.model().dim)
    assert explain_undefined(cut.instances([("N",)], None, 8, ()), None, theta).startswith(
        "it is not finite even without observations"
    )
    assert _undefined(cut, ("N",), len(theta), theta) == "observation 1 of the data is impossible"
    assert _undefined(cut, ("N",), len(theta), np.full(len(theta), 1e160)).startswith(
        "the priors, or most observations"
    )


def test_impossible_observation_is_named_by_its_row_in_the_data(compiled: Compiled) -> None:
    file = ROOT / "stan_models" / "linear.stan"
    data = example(file)
    data["y"][16] = 1e150
    posterior = compiled(file).with_data(data, block_size=8, seed=6)
    theta = np.zeros(posterior.dim)
    assert explain_undefined(posterior.population, posterior.order, theta) == "the cause is not a single observation"
    theta[-1] = -10  # in units of so small a standard deviation the square of 1e150 overflows
    text = explain_undefined(posterior.population, posterior.order, theta)
    assert text == "observation 17 of the data is impossible"


def test_impossible_parameters_are_told_from_impossible_observations(compiled: Compiled) -> None:
    file = ROOT / "stan_models" / "normal_mean.stan"
    posterior = compiled(file).with_data(example(file), block_size=8)
    theta = np.full(posterior.dim, 1e160)
    assert "in a prior, or in an argument" in explain_undefined(posterior.population, posterior.order, theta)
