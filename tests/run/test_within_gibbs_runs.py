"""Metropolis within Gibbs from end to end on a small multilevel regression."""

from typing import Any

import multilevel
import numpy as np
import pytest
from agreement import z_scores

import stansub
from stansub import CompiledModel, InputError
from stansub.planning.plan import plan
from stansub.progress import Progress
from stansub.run.prepare import prepare
from stansub.tuning.within_gibbs import TunedWithinGibbs

OPTIONS: dict[str, Any] = {"seed": 3, "show_progress": False}


@pytest.fixture(scope="module")
def program() -> CompiledModel:
    return stansub.compile_model(multilevel.PROGRAM)


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    return multilevel.simulated()


@pytest.fixture(scope="module")
def ours(program: CompiledModel, data: dict[str, Any]) -> Any:
    return stansub.sample(program, data, **OPTIONS, proposal="gibbs", iter_sampling=700)


def test_draws_agree_with_surrogate_transitions(program: CompiledModel, data: dict[str, Any], ours: Any) -> None:
    """Means and mean squares of all parameters; draws that are 20 % wider must not agree."""
    theirs = stansub.sample(program, data, **OPTIONS, proposal="surrogate", iter_sampling=700)
    names = ("alpha", "beta", "sigma", "tau", "u", "v")
    assert max(z_scores(ours, theirs, names)) < 4.5
    assert max(z_scores(ours, theirs, names, wider=1.2)) > 4.5
    notes = str(ours.attrs["choices"])
    assert "9 levels" in notes
    assert "the common coefficients" in notes


def test_only_from_all_observations(program: CompiledModel, data: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="chooses its own test"):
        stansub.sample(program, data, proposal="gibbs", test="pocock")


def test_not_without_a_split_of_prior_and_likelihood() -> None:
    factors = stansub.FunctionFactors(["a"], 10, lambda theta, which: np.zeros(len(which)))
    with pytest.raises(InputError, match="Metropolis within Gibbs is not possible"):
        stansub.sample(factors, proposal="gibbs")


def test_plan(program: CompiledModel, data: dict[str, Any]) -> None:
    """The plan starts pilot chains from draws of the set-up, and NUTS is compared by a normal approximation."""
    made = plan(program, data, budget="20s", pilot_seconds=0.3, config=stansub.SampleConfig(proposal="gibbs", seed=1))
    (method,) = made.methods
    assert (method.label, method.exact) == ("gibbs", True)
    assert 0.5 < method.measurement.acceptance < 1
    assert method.options(20)["proposal"] == "gibbs"
    assert made.nuts is not None
    assert made.nuts.cost.leapfrog < 100


def test_the_normal_approximation_is_near_draws(program: CompiledModel, data: dict[str, Any], ours: Any) -> None:
    config = stansub.SampleConfig(proposal="gibbs", seed=1)
    prepared = prepare(program, data, config, Progress())
    assert isinstance(prepared.tuned, TunedWithinGibbs)
    centre, factor = (found := prepared.tuned.normal(prepared.posterior.split())).centre, found.covariance_factor
    for at, name in enumerate(("alpha", "beta")):
        assert prepared.posterior.full.param_unc_names()[at] == name
        values = ours.posterior[name].to_numpy().ravel()
        sd = float(np.sqrt((factor @ factor.T)[at, at]))
        assert abs(centre[at] - values.mean()) < 0.5 * values.std()
        assert 0.5 < sd / values.std() < 2
