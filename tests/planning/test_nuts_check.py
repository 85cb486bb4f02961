"""The check of what a plan says of NUTS: its ranges, and how it counts."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from stansub.planning.nuts_cost import WARMUP, WARMUP_FACTOR, NutsCost
from stansub.planning.plan import PredictedNuts

FILE = Path(__file__).resolve().parents[2] / "benchmarks" / "planning" / "nuts.py"


@pytest.fixture(scope="module")
def working() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FILE.parents[1]))
        spec = importlib.util.spec_from_file_location("planning_nuts", FILE)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        yield module


NUTS = PredictedNuts(NutsCost(1e-3, 0.0, 7), chains=4, threads=2)


def test_seconds_are_those_of_which_the_risk_is_made() -> None:
    predicted = NUTS.seconds(1000)
    assert predicted.value == pytest.approx(4 * (WARMUP * WARMUP_FACTOR + 1000) * 7e-3 / 2)
    assert predicted.low < predicted.value / 2
    assert predicted.high > predicted.value * 2
    # In that time there are as many effective draws.
    assert NUTS.risk(predicted.value).value == pytest.approx(1 / 4000, rel=1e-3)
    assert math.isinf(NUTS.risk(NUTS.seconds(0).value).value)


@pytest.mark.parametrize(("gradients", "seconds", "hits"), [(7.0, 35.0, 2), (15.0, 35.0, 1), (3.0, 5.0, 0)])
def test_hits_and_misses(working: Any, gradients: float, seconds: float, hits: int) -> None:
    nuts = working.Nuts("some engine", seconds, gradients, 2 * gradients, 0.8)
    found = working.checks("one", NUTS, nuts, 1000)
    assert sum(one.hit for one in found) == hits
    text = list(working.conclusions(found, {"one": nuts}))
    assert sum(int(line.split(": ")[1].split()[0]) for line in text[:2]) == hits
    assert "0.80 effective draws of a draw (1 assumed); 2.00 times" in text[-1]
    assert [working.cells(one)[-1] == "hit" for one in found] == [one.hit for one in found]
