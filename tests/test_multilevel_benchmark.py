"""The benchmark of multilevel programs: data from a seed, what the text of its programs shows, and its figures."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stansub.stan import data as data_module
from stansub.stan.effects import n_parameters
from stansub.stan.source import read
from stansub.stan.sparse import sparse_predictors

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
ROWS = (
    *("crossed", "poisson", "negative_binomial", "groups", "cumulative", "horseshoe", "smooths_linear"),
    *("smooths_logistic", "item_response"),
)


@pytest.fixture(scope="module")
def study() -> Iterator[Any]:
    """The command's modules, whose names are common ones."""
    with pytest.MonkeyPatch.context() as patch:
        for folder in (BENCHMARKS, BENCHMARKS / "multilevel"):
            patch.syspath_prepend(str(folder))
        for name in ("run", "rows"):
            patch.delitem(sys.modules, name, raising=False)
        import rows
        import run

        yield SimpleNamespace(rows=rows, run=run)
        for name in ("run", "rows"):
            patch.delitem(sys.modules, name, raising=False)


@pytest.mark.parametrize("name", ROWS)
def test_data_fit_their_program_and_its_effects_are_seen(study: Any, name: str) -> None:
    assert tuple(study.rows.ROWS) == ROWS
    row = study.rows.ROWS[name]
    one, other = row.data("small"), row.data("small")
    for key, value in one.items():
        np.testing.assert_array_equal(value, other[key])
    source = read(row.program)
    values = data_module.load(one).checked(source.program.data.declarations)
    assert source.analysis.effects()
    assert n_parameters(source.program, values) > 6
    own, n = source.analysis.likelihood_split(), values.integer(source.analysis.size)
    assert sparse_predictors(own, values.values, n).n_observations == n


def test_figures_are_of_the_slowest_parameter(study: Any) -> None:
    rng = np.random.default_rng(1)
    slow = np.cumsum(rng.standard_normal((4, 500)), axis=1)
    draws = {"a": rng.standard_normal((4, 500)), "b": np.stack([slow, np.ones_like(slow)], axis=2)}
    found = study.run.parameters(draws, ["a", "b"])
    assert set(found) == {"a", "b[1]"}
    side = study.run.summarised(found, seconds=2.0, set_up=0.5, cores=4.0, note="")
    assert side.slowest == "b[1]"
    assert side.rate == side.ess / 2
    assert side.per_core == side.ess / 4
    assert side.r_hat > 1.1
    moved = study.run.summarised({"a": found["a"] * 2 + 1}, seconds=2.0, set_up=0.5, cores=4.0, note="")
    gaps = study.run.differences(moved, side)
    assert gaps["mean"] == pytest.approx(1, abs=0.1)
    assert gaps["sd"] == pytest.approx(np.log(2))
    assert gaps["mean_z"] > 4
    assert gaps["sd_z"] > 4
    record = {"row": "x", "n": 10, "load": 1.0, "stansub": side.record(), "nuts": {"failed": "still in warmup"}}
    assert "still in warmup" in study.run.table([record])
    record["nuts"] = study.run.Bound(0.02, 25.0, "still in warmup").record()
    assert f"below 2 | above {side.per_core / 2:.3g} |" in study.run.table([record])
