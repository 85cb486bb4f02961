"""Chains on other executors: the same draws for the same seed."""

import gc
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clocks import HANGS, wait_until
from drawn import statistic, unconstrained

import stansub
from stansub import CompiledModel, InputError, _loop
from stansub.output import inference_data
from stansub.run import checkpoint

EXAMPLES = Path(__file__).parents[2] / "stan_models"
SHORT: dict[str, Any] = {"chains": 2, "iter_warmup": 300, "iter_sampling": 400, "seed": 3, "show_progress": False}


@pytest.fixture(scope="module")
def here(logistic: CompiledModel, logistic_data: dict[str, Any]) -> Any:
    """In threads."""
    return stansub.sample(logistic, logistic_data, **SHORT)


@pytest.mark.parametrize("executor", ["processes", "dask"])
def test_other_processes_make_the_same_draws(
    logistic: CompiledModel, logistic_data: dict[str, Any], here: Any, executor: str
) -> None:
    there = stansub.sample(logistic, logistic_data, executor=executor, **SHORT)
    np.testing.assert_array_equal(unconstrained(there), unconstrained(here))
    for name in ("accepted", "n_obs_used", "log_ratio", "audited"):
        one, other = (statistic(idata, name) for idata in (there, here))
        np.testing.assert_array_equal(one, other, err_msg=name)


def test_anything_with_submit_is_an_executor(normal_mean: CompiledModel, mean_data: dict[str, Any]) -> None:
    options = SHORT | {"proposal": "adaptive-metropolis", "control_variates": 0}
    with ThreadPoolExecutor(2) as pool:
        given = stansub.sample(normal_mean, mean_data, executor=pool, **options)
    np.testing.assert_array_equal(
        unconstrained(given), unconstrained(stansub.sample(normal_mean, mean_data, **options))
    )


def test_a_run_in_threads_of_an_executor_leaves_nothing_behind(
    normal_mean: CompiledModel, mean_data: dict[str, Any]
) -> None:
    def deciders() -> dict[int, _loop.Decider]:
        gc.collect()
        return {id(one): one for one in gc.get_objects() if type(one) is _loop.Decider}

    before = deciders()
    with ThreadPoolExecutor(2) as pool:
        stansub.sample(normal_mean, mean_data, executor=pool, proposal="adaptive-metropolis", **SHORT)
    assert deciders().keys() <= before.keys()


def test_what_cannot_be_sent_is_refused(logistic: CompiledModel, logistic_data: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="cannot be sent to other processes"):
        stansub.sample(
            logistic, logistic_data, executor="processes", proposal=lambda rng, position: (position, 0.0), **SHORT
        )
    with pytest.raises(InputError, match="choose from threads, processes, dask"):
        stansub.sample(logistic, logistic_data, executor="cloud", **SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["processes", "dask"])
def test_ctrl_c_stops_chains_elsewhere_and_keeps_the_draws(
    mean_data: dict[str, Any], tmp_path: Path, executor: str
) -> None:
    """As a terminal does it: the signal reaches every process of the group."""
    data = tmp_path / "data.json"
    data.write_text(json.dumps({name: np.asarray(value).tolist() for name, value in mean_data.items()}))
    command = [sys.executable, "-P", "-m", "stansub.cli", "sample", str(EXAMPLES / "normal_mean.stan"), str(data)]
    options = ["--executor", executor, "--iter-warmup", "200", "--iter-sampling", "1000000000", "--thin", "10000"]
    options += ["--chains", "2", "--seed", "1", "--checkpoint-every", "0.2"]
    process = subprocess.Popen(
        [*command, *options],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )

    kept = tmp_path / "normal_mean.checkpoint"

    def all_have_drawn() -> bool:
        return kept.exists() and all(one.sampling for one in checkpoint.read(kept).chains.values())

    wait_until(all_have_drawn, process)
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=HANGS)
    assert process.returncode == 3, errors
    assert "Stopping. Draws so far will be saved" in errors
    assert "Traceback" not in output + errors
    assert unconstrained(inference_data.read(tmp_path / "normal_mean.nc")).shape[1] > 0
