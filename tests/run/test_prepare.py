"""What is prepared for a run: what of it can be pickled gives the same draws where it is taken up again."""

import pickle
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import stansub
from stansub import CompiledModel, SampleConfig
from stansub.output import inference_data
from stansub.progress import Progress
from stansub.run import sample as driver
from stansub.run.prepare import Prepared, make_chains, prepare

SHORT: dict[str, Any] = {"chains": 2, "iter_warmup": 100, "iter_sampling": 60, "seed": 5}


def drawn(prepared: Prepared) -> Any:
    """Unconstrained draws of the chains, shape (chain, draw, dim)."""
    stop = np.zeros(1, np.int32)
    chains = make_chains(prepared, stop, Progress())
    driver.run_chains(prepared, chains, stop, max_time=None, console=Console(quiet=True), show=False)
    return np.stack([chain.draws for chain in chains])


@pytest.mark.parametrize(
    "options",
    [{}, {"control_variates": 0, "proposal": "random-walk"}, {"inits": {"alpha": 0.1}, "max_error": 0.05}],
    ids=["default", "plain", "inits"],
)
def test_a_setup_that_was_pickled_gives_the_same_draws(
    logistic: CompiledModel, logistic_data: dict[str, Any], options: dict[str, Any]
) -> None:
    config = SampleConfig(console=Console(quiet=True), **SHORT, **options)
    prepared = prepare(logistic, logistic_data, config, Progress())
    again = replace(prepared, setup=pickle.loads(pickle.dumps(prepared.setup)))
    before = drawn(prepared)
    np.testing.assert_array_equal(drawn(again), before)
    whole = stansub.sample(logistic, logistic_data, **SHORT, **options)
    np.testing.assert_array_equal(inference_data.group(whole, "unconstrained_posterior")["theta"].values, before)


def test_a_setup_holds_what_chance_and_the_machine_decide(
    logistic: CompiledModel, logistic_data: dict[str, Any]
) -> None:
    asked = SampleConfig(chains=2, control_variates=0, proposal="random-walk", console=Console(quiet=True))
    setup = prepare(logistic, logistic_data, asked, Progress()).setup
    assert setup.seed >= 0
    assert setup.threads in (1, 2)
    assert setup.config.console is None
    changed = {one.name for one in fields(asked) if getattr(setup.config, one.name) != getattr(asked, one.name)}
    assert changed == {"seed", "parallel_chains", "console"}
    assert asked.differences(setup.config) == ()
    assert "blocks" in setup.choices
