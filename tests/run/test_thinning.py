"""Draws that are thinned by their effective sample size are those of the whole run, and no fewer than they need be."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import unconstrained

import stansub
from stansub import CompiledModel
from stansub.kernels.base import Records
from stansub.output import inference_data
from stansub.output.convergence import ess_bulk
from stansub.run import rows as rows_module
from stansub.run import thinning
from stansub.run.precision import Precision
from stansub.run.rows import Rows
from stansub.run.thinning import by_ess

RUN: dict[str, Any] = {
    "chains": 2, "iter_warmup": 300, "iter_sampling": 4000, "seed": 3, "show_progress": False, "audit": 0.0,
    "proposal": "random-walk", "inits": 0.1,
}  # fmt: skip


def autoregressive(correlation: float, *, n: int, chains: int = 4, seed: int = 1) -> list[Rows]:
    """Chains of three parameters: an autoregression, independent draws, and a constant."""
    rng, kept = np.random.default_rng(seed), []
    for _ in range(chains):
        noise, theta = rng.standard_normal((n, 2)), np.ones((n, 3))
        theta[0, 0] = noise[0, 0]
        for i in range(1, n):
            theta[i, 0] = correlation * theta[i - 1, 0] + np.sqrt(1 - correlation**2) * noise[i, 0]
        theta[:, 1] = noise[:, 1]
        one = Rows(n, 3, [])
        one.append(Records(theta, {}))
        kept.append(one)
    return kept


def test_the_interval_is_the_autocorrelation_time_of_the_slowest_parameter() -> None:
    found = by_ess(autoregressive(0.8, n=5000), None)  # (1 + 0.8) / (1 - 0.8) = 9
    assert 8 <= found.every <= 10
    assert found.required == 400
    assert found.left > 0.6 * found.ess
    assert "1 in" in found.describe()


def test_independent_draws_are_all_kept() -> None:
    found = by_ess(autoregressive(0.0, n=2000), None)
    assert found.every == 1
    assert "nearly uncorrelated" in found.describe()


def test_the_effective_sample_size_stays_above_what_is_required() -> None:
    kept = autoregressive(0.8, n=5000)
    free, strict = by_ess(kept, None), by_ess(kept, Precision(ess=free_ess(kept) * 0.9))
    assert 1 <= strict.every < free.every
    assert strict.left >= strict.required > free.left
    none = by_ess(kept, Precision(ess=10 * free.ess))
    assert none.every == 1
    assert "is required" in none.describe()


def free_ess(kept: list[Rows]) -> float:
    return float(ess_bulk(np.stack([one.read().theta[:, :1] for one in kept])).min())


def test_part_of_the_draws_suffices_to_find_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = autoregressive(0.8, n=8000)
    monkeypatch.setattr(thinning, "_VALUES", 2000 * 3 * 4)
    part = by_ess(kept, None)
    assert 7 <= part.every <= 11
    assert part.ess == pytest.approx(by_ess(autoregressive(0.8, n=8000), None).ess, rel=0.3)


@pytest.mark.parametrize("every", [1, 2, 3, 7, 50])
@pytest.mark.parametrize(("start", "end"), [(0, None), (5, 61), (63, 64), (13, 200)])
def test_rows_of_blocks_are_thinned_as_an_array_is(
    every: int, start: int, end: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_module, "_BLOCK_BYTES", 1)  # blocks of 64 rows
    theta = np.arange(200.0).reshape(200, 1)
    kept = Rows(200, 1, [])
    kept.append(Records(theta, {}))
    np.testing.assert_array_equal(kept.read(start, end, every=every).theta, theta[start:end][every - 1 :: every])


@pytest.fixture(scope="module")
def thinned(logistic: CompiledModel, logistic_data: dict[str, Any]) -> Any:
    return stansub.sample(logistic, logistic_data, **RUN, thin="auto")


def test_a_run_keeps_the_draws_of_the_interval_that_it_names(
    logistic: CompiledModel, logistic_data: dict[str, Any], thinned: Any
) -> None:
    whole = stansub.sample(logistic, logistic_data, **RUN)
    facts = inference_data.attrs(thinned)
    every = facts["settings"]["thin"]
    assert every > 1
    assert facts["asked"]["thin"] == "auto"
    assert f"1 in {every}" in facts["choices"]["thinning"]
    for group in ("posterior", "sample_stats", "unconstrained_posterior"):
        here, there = inference_data.group(thinned, group), inference_data.group(whole, group)
        for name in here.data_vars:
            if "time" not in str(name):
                np.testing.assert_array_equal(here[name].values, there[name].values[:, every - 1 :: every])
    steps = inference_data.group(thinned, inference_data.CHAIN_STATS)["n_steps"].values
    np.testing.assert_array_equal(steps, RUN["iter_sampling"])


def test_a_resumed_run_chooses_its_interval_anew(
    logistic: CompiledModel, logistic_data: dict[str, Any], thinned: Any, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "run.checkpoint"
    stansub.sample(logistic, logistic_data, **RUN | {"iter_sampling": 1500}, thin="auto", checkpoint=checkpoint)
    resumed = stansub.sample(logistic, logistic_data, **RUN, thin="auto", resume=checkpoint)
    np.testing.assert_array_equal(unconstrained(thinned), unconstrained(resumed))
