"""Draws against reference posteriors sampled by CmdStan's NUTS.

``STANSUB_REFERENCE`` names a folder with ``NAME.stan``, ``NAME.npz`` (draws by variable) and ``make_data.py``, which
writes the data: ``python make_data.py NAME out.json``; the names are covtype10 and mnist7v9.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

import stansub
from stansub.output import inference_data

if TYPE_CHECKING:
    from stansub.acceptance.rules import StoppingRule
    from stansub.output.inference_data import InferenceData

REFERENCE = Path(os.environ.get("STANSUB_REFERENCE", "no reference"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not REFERENCE.is_dir(), reason="STANSUB_REFERENCE names no folder of reference draws"),
]


class Case(NamedTuple):
    """A program, its data, and NUTS draws of its posterior."""

    compiled: stansub.CompiledModel
    data: Path
    reference: InferenceData


def case(name: str, folder: Path) -> Case:
    data = folder / f"{name}.json"
    subprocess.run([sys.executable, REFERENCE / "make_data.py", name, data], check=True)
    with np.load(REFERENCE / f"{name}.npz") as arrays:
        draws = {variable: arrays[variable] for variable in arrays.files}
    made = inference_data.build(posterior=draws, sample_stats={}, attrs={"engine": "cmdstan"})
    return Case(stansub.compile_model(REFERENCE / f"{name}.stan"), data, made)


@pytest.fixture(scope="module")
def mnist(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Logistic regression of the digits 7 and 9 on 50 principal components (12,214 observations)."""
    return case("mnist7v9", tmp_path_factory.mktemp("mnist"))


@pytest.fixture(scope="module")
def covtype(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Logistic regression of forest cover on ten correlated attributes (400,000 observations)."""
    return case("covtype10", tmp_path_factory.mktemp("covtype"))


def compared(
    case: Case, test: StoppingRule | None, *, iter_warmup: int, iter_sampling: int, thin: int = 10, **options: Any
) -> stansub.Comparison:
    draws = stansub.sample(
        case.compiled,
        case.data,
        chains=4,
        iter_warmup=iter_warmup,
        iter_sampling=iter_sampling,
        thin=thin,
        seed=7,
        test=test,
        audit=0.0,
        **options,
    )
    return stansub.compare(draws, case.reference)


@pytest.mark.parametrize("test", [stansub.Exact(), None], ids=["exact", "default"])
def test_mnist_agrees_with_nuts(mnist: Case, test: StoppingRule | None) -> None:
    comparison = compared(mnist, test, iter_warmup=20_000, iter_sampling=100_000)
    assert comparison.verdict.word == "agrees", comparison.verdict
    # A single ratio's own error is 2 to 3 percent; the parameters are many.
    assert abs(comparison.parameters["sd_ratio"].mean() - 1) < 0.02


def test_a_loose_test_is_caught(mnist: Case) -> None:
    loose = stansub.Austerity(epsilon=0.2, looks=stansub.Geometric(first=5))
    plain = {"proposal": "adaptive-metropolis", "control_variates": 0}
    comparison = compared(mnist, loose, iter_warmup=20_000, iter_sampling=100_000, **plain)
    assert comparison.verdict.word in ("differs", "do not use"), comparison.verdict
    assert comparison.parameters["sd_ratio"].mean() > 1.1


def test_covtype_agrees_with_nuts(covtype: Case) -> None:
    comparison = compared(covtype, None, iter_warmup=3000, iter_sampling=20_000)
    assert comparison.verdict.word == "agrees", comparison.verdict
