"""What is prepared for a run: what of it can be pickled gives the same draws where it is taken up again."""

import pickle
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from drawn import unconstrained
from rich.console import Console

import stansub
from stansub import CompiledModel, SampleConfig
from stansub.progress import Progress
from stansub.run import sample as driver
from stansub.run.prepare import Prepared, Setup, prepare

SHORT: dict[str, Any] = {"chains": 2, "iter_warmup": 100, "iter_sampling": 60, "seed": 5}


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="default"),
        pytest.param({"control_variates": 0, "proposal": "random-walk"}, id="plain"),
        pytest.param({"inits": {"alpha": 0.1}, "max_error": 0.05}, id="inits", marks=pytest.mark.slow),
    ],
)
def test_a_setup_that_was_pickled_gives_the_same_draws(
    logistic: CompiledModel, logistic_data: dict[str, Any], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    setups: list[Setup] = []

    def copied(*arguments: Any) -> Prepared:
        prepared = prepare(*arguments)
        setups.append(pickle.loads(pickle.dumps(prepared.setup)))
        return replace(prepared, setup=setups[-1])

    before = stansub.sample(logistic, logistic_data, **SHORT, **options)
    monkeypatch.setattr(driver, "prepare", copied)
    after = stansub.sample(logistic, logistic_data, console=Console(quiet=True), **SHORT, **options)
    assert len(setups) == 1
    np.testing.assert_array_equal(unconstrained(before), unconstrained(after))


def test_a_setup_holds_what_chance_and_the_machine_decide(
    logistic: CompiledModel, logistic_data: dict[str, Any]
) -> None:
    asked = SampleConfig(chains=2, control_variates=0, proposal="random-walk", console=Console(quiet=True))
    setup = prepare(logistic, logistic_data, asked, Progress()).setup
    assert setup.seed >= 0
    assert setup.threads in (1, 2)
    assert setup.config.console is None
    changed = {one.name for one in fields(asked) if getattr(setup.config, one.name) != getattr(asked, one.name)}
    assert changed == {"seed", "parallel_chains", "console", "iter_warmup", "iter_sampling"}
    assert asked.differences(setup.config) == ()
    assert "blocks" in setup.choices
