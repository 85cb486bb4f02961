"""Options are declared once: signature, docstring, command line and record agree with the configuration."""

import inspect
import json
import pickle
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

import stansub
from stansub import InputError, Pocock, RandomWalk, SampleConfig
from stansub.cli.application import app
from stansub.cli.flags import OTHERS
from stansub.run import config

NAMES = [one.name for one in fields(SampleConfig)]


def flags(command: str) -> dict[str, inspect.Parameter]:
    """Options of a command by their Python name."""
    (callback,) = [one.callback for one in app.registered_commands if one.callback.__name__ == command]
    return dict(inspect.signature(callback).parameters)


def test_the_function_takes_what_is_declared() -> None:
    model, data, *options = inspect.signature(stansub.sample).parameters.values()
    assert (model.name, data.name, data.default) == ("model", "data", None)
    assert [one.name for one in options] == NAMES
    assert all(one.kind is one.KEYWORD_ONLY for one in options)
    assert {one.name: one.default for one in options} == config.DEFAULTS
    with pytest.raises(TypeError, match=r"^sample\(\) got an unexpected keyword argument 'chain'"):
        stansub.sample("model.stan", chain=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"missing .* 'model'"):
        stansub.sample()  # type: ignore[call-arg]


@pytest.mark.parametrize("what", [stansub.sample, SampleConfig], ids=["sample", "SampleConfig"])
def test_every_option_is_documented_in_its_place(what: Any) -> None:
    text = inspect.getdoc(what) or ""
    section = text.partition("Parameters\n----------\n")[2].partition("\n\n")[0]
    described = [line.partition(" : ")[0] for line in section.splitlines() if not line.startswith(" ")]
    assert [name for name in described if name not in ("model", "data")] == NAMES
    assert "{options}" not in text
    assert max(map(len, text.splitlines())) <= 140


def test_every_option_of_a_run_is_one_of_the_command() -> None:
    command = flags("sample")
    declared = [name for name in NAMES if config.declared(name).group]
    assert set(NAMES) - set(declared) == {"kernel", "show_progress", "console"}
    assert set(declared) < set(command)
    for name in declared:
        assert command[name].default == config.DEFAULTS[name], name


@pytest.mark.parametrize("command", ["diagnose", "risk", "compare", "reference", "check"])
def test_commands_share_declarations(command: str) -> None:
    shared = set(flags(command)) & set(NAMES)
    assert len(shared) >= {"check": 1, "compare": 5, "reference": 5}.get(command, 8)


def test_flags_in_messages_are_options_of_commands() -> None:
    everywhere = {name for one in app.registered_commands for name in inspect.signature(one.callback).parameters}
    assert set(OTHERS.values()) <= {f"--{name.replace('_', '-')}" for name in everywhere}


def test_a_record_is_json_and_a_configuration_can_be_pickled() -> None:
    given = SampleConfig(
        seed=np.int64(3), test=Pocock(epsilon=0.01), proposal=RandomWalk(np.eye(2)), inits={"mu": np.ones(2)}
    )
    record = given.record()
    assert json.loads(json.dumps(record)) == record
    handling = {"show_progress", "console", "checkpoint", "checkpoint_every", "resume"}
    assert set(NAMES) - set(record) == handling
    assert record["seed"] == 3
    assert str(record["test"]).startswith("Pocock ")
    assert str(record["proposal"]).startswith("RandomWalk ")
    again = pickle.loads(pickle.dumps(given))
    assert again.record() == record


DECIDING: dict[str, Any] = {
    "chains": 3,
    "iter_warmup": 10,
    "thin": 2,
    "seed": 2,
    "inits": 1.0,
    "proposal": "random-walk",
    "kernel": stansub.Metropolis("random-walk"),
    "test": "exact",
    "epsilon": 0.2,
    "final_epsilon": 0.1,
    "max_error": 0.2,
    "control_variates": 1,
    "looks": "fixed",
    "first_look": 7,
    "block_size": 7,
    "observations": "N",
    "save_warmup": True,
    "iter_sampling": 9_999,
}


def test_what_decides_the_draws_must_be_the_same_where_a_run_goes_on() -> None:
    earlier = SampleConfig(seed=1).of_length(transitions=False)
    for name, value in DECIDING.items():
        later = replace(earlier, **{name: value})
        assert later.differences(earlier) == (name,)
        assert later.differences(json.loads(json.dumps(earlier.record()))) == (name,)
    bounds = SampleConfig(seed=1, test="hoeffding")
    assert replace(bounds, delta=0.3, range_source="scan").differences(bounds) == ("delta", "range_source")
    factorised = SampleConfig(seed=1, test="factorised")
    assert replace(factorised, bounds="learned").differences(factorised) == ("bounds",)
    poisson = SampleConfig(seed=1, test="poisson")
    assert replace(poisson, kappa=2).differences(poisson) == ("kappa",)


def test_nothing_else_keeps_a_run_from_going_on() -> None:
    earlier = SampleConfig(seed=1, parallel_chains=2, max_time=3.0).of_length(transitions=False)
    free = {
        "parallel_chains": 1,
        "max_time": None,
        "until": "ess=400",
        "audit": 0.5,
        "show_progress": True,
        "generated_quantities": False,
        "save": "mu",
        "drop": "sigma",
        "executor": "processes",
        "checkpoint": "run.checkpoint",
        "checkpoint_every": 5.0,
        "resume": "run.checkpoint",
    }
    later = replace(earlier, iter_sampling=20_000, seed=None, observation_level=True, **free)  # type: ignore[arg-type]
    assert later.differences(earlier) == ()
    others = {"bounds", "kappa", "delta", "range_source", "observation_level", "console"}
    assert set(DECIDING) | set(free) | others == set(NAMES)


def test_numbers_of_steps_follow_the_moves_or_the_run_that_is_resumed() -> None:
    asked = SampleConfig(seed=1)
    lengths = [asked.of_length(transitions=one) for one in (False, True)]
    assert [(one.iter_warmup, one.iter_sampling) for one in lengths] == [(2_000, 10_000), (200, 1_000)]
    given = SampleConfig(iter_warmup=7, iter_sampling=9)
    assert given.of_length(transitions=True) == given
    for earlier in lengths:
        assert asked.differences(earlier.record()) == ()
        assert asked.continuing(earlier.record()) == earlier
    assert SampleConfig(iter_sampling=9).differences(lengths[1]) == ("iter_sampling",)


def test_values_without_a_name_are_told_apart() -> None:
    def own(size: float) -> SampleConfig:
        return SampleConfig(proposal=RandomWalk(size * np.eye(2)), inits={"mu": [size]}, test=Pocock(epsilon=size / 10))

    assert own(1.0).differences(own(1.0)) == ()
    assert own(1.0).differences(own(2.0)) == ("inits", "proposal", "test")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chains": 10_001}, "chains=10001` must be an integer of at most 10,000"),
        ({"thin": 1.0}, "thin=1.0` must be an integer of at least 1"),
        ({"max_error": 1.0}, "max_error=1.0` must be between 0 and 1; the exact test makes no errors"),
        ({"max_time": "10m"}, "max_time='10m'` must be a number of seconds above 0"),
        ({"audit": -0.1}, "audit=-0.1` must be a share between 0 and 1"),
        ({"control_variates": 3}, "unknown control_variates 3; choose from auto, 0, 1, 2"),
        ({"range_source": "all"}, "unknown range 'all'; choose from auto, lipschitz"),
    ],
    ids=str,
)
def test_a_configuration_is_checked_when_it_is_made(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        SampleConfig(**options)
    assert message in str(caught.value)
