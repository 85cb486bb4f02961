"""Chains on other executors: the same draws for the same seed."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import stansub
from stansub import CompiledModel, InputError
from stansub.output import inference_data

SHORT: dict[str, Any] = {"chains": 2, "iter_warmup": 300, "iter_sampling": 400, "seed": 3, "show_progress": False}


def theta(idata: Any) -> NDArray[np.float64]:
    values: NDArray[np.float64] = inference_data.group(idata, "unconstrained_posterior")["theta"].values
    return values


@pytest.fixture(scope="module")
def here(logistic: CompiledModel, logistic_data: dict[str, Any]) -> Any:
    """In threads."""
    return stansub.sample(logistic, logistic_data, **SHORT)


@pytest.mark.parametrize("executor", ["processes", "dask"])
def test_other_processes_make_the_same_draws(
    logistic: CompiledModel, logistic_data: dict[str, Any], here: Any, executor: str
) -> None:
    there = stansub.sample(logistic, logistic_data, executor=executor, **SHORT)
    np.testing.assert_array_equal(theta(there), theta(here))
    for name in ("accepted", "n_obs_used", "log_ratio", "audited"):
        one, other = (inference_data.group(idata, "sample_stats")[name].values for idata in (there, here))
        np.testing.assert_array_equal(one, other, err_msg=name)


def test_anything_with_submit_is_an_executor(normal_mean: CompiledModel, mean_data: dict[str, Any]) -> None:
    options = SHORT | {"proposal": "adaptive-metropolis", "control_variates": 0}
    with ThreadPoolExecutor(2) as pool:
        given = stansub.sample(normal_mean, mean_data, executor=pool, **options)
    np.testing.assert_array_equal(theta(given), theta(stansub.sample(normal_mean, mean_data, **options)))


def test_what_cannot_be_sent_is_refused(logistic: CompiledModel, logistic_data: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="cannot be sent to other processes"):
        stansub.sample(
            logistic, logistic_data, executor="processes", proposal=lambda rng, position: (position, 0.0), **SHORT
        )
    with pytest.raises(InputError, match="choose from threads, processes, dask"):
        stansub.sample(logistic, logistic_data, executor="cloud", **SHORT)
