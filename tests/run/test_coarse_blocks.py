"""Blocks are large where decisions look at single observations, and small again where they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stansub
from stansub import CompiledModel
from stansub.output.inference_data import attrs
from stansub.output.statistics import table
from stansub.progress import Progress
from stansub.run.config import SampleConfig
from stansub.run.prepare import Prepared, prepare
from stansub.target.blocks import coarse_size

N = 2000
SHORT: dict[str, Any] = {"chains": 2, "iter_warmup": 200, "iter_sampling": 2000, "seed": 1}


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten blocks are enough, and five times as many very many."""
    monkeypatch.setattr("stansub.target.blocks._ENOUGH", 10)
    monkeypatch.setattr("stansub.target.blocks._WORTH", 5)


def prepared(logistic: CompiledModel, data: dict[str, Any], **options: Any) -> Prepared:
    return prepare(logistic, data, SampleConfig(**SHORT | options), Progress())


def test_blocks_are_enlarged_only_where_they_are_very_many() -> None:
    assert coarse_size(20, N) == 200
    assert coarse_size(100, N) == 100


@pytest.mark.parametrize("options", [{}, {"test": "factorised"}], ids=["by default", "as asked"])
def test_decisions_about_single_observations_need_no_small_blocks(
    logistic: CompiledModel, logistic_data: dict[str, Any], options: dict[str, Any]
) -> None:
    made = prepared(logistic, logistic_data, **options)
    assert made.setup.rule.thins
    assert made.posterior.blocks.size == 200
    assert "single observations" in str(made.setup.choices["blocks"].reason)


@pytest.mark.parametrize(
    "options",
    [{"test": "pocock"}, {"proposal": "sgld"}, {"test": "factorised", "bounds": "learned"}, {"control_variates": 0}],
    ids=lambda options: str(*options.values()) if len(options) == 1 else "learned",
)
def test_others_have_their_blocks(
    logistic: CompiledModel, logistic_data: dict[str, Any], options: dict[str, Any]
) -> None:
    assert prepared(logistic, logistic_data, **options).posterior.blocks.size == 20


def test_blocks_are_cut_again_where_another_test_wins(
    logistic: CompiledModel, logistic_data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    large, wanted = prepared(logistic, logistic_data), 20
    monkeypatch.setattr("stansub.target.observations.ObservationVariates.candidates", lambda *_: np.inf)
    made = prepared(logistic, logistic_data, proposal="adaptive-metropolis")
    assert not made.setup.rule.thins
    assert made.posterior.blocks.size == wanted < large.posterior.blocks.size
    assert made.posterior.proof.holds


@pytest.mark.slow
def test_draws_are_of_the_same_posterior(logistic: CompiledModel, logistic_data: dict[str, Any]) -> None:
    options = SHORT | {"iter_sampling": 20_000, "show_progress": False}
    large = stansub.sample(logistic, logistic_data, **options)
    small = stansub.sample(logistic, logistic_data, block_size=20, **options)
    assert (attrs(large)["block_size"], attrs(small)["block_size"]) == (200, 20)
    one, other = (table(idata) for idata in (large, small))
    error = np.hypot(one["mcse_mean"], other["mcse_mean"])
    assert (np.abs(one["mean"] - other["mean"]) < 4.5 * error).all()
