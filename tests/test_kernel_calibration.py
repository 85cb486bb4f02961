"""Simulation-based calibration of the kernels for multilevel programs, and of such kernels with an error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

STUDY = Path(__file__).resolve().parents[1] / "benchmarks" / "calibration"
MODULES = "multilevel", "kernels", "run_kernels"


@pytest.fixture(scope="module")
def study() -> Iterator[Any]:
    """The command's modules, whose names are common ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(STUDY))
        for name in MODULES:
            patch.delitem(sys.modules, name, raising=False)
        import kernels
        import multilevel
        import run_kernels

        yield SimpleNamespace(kernels=kernels, multilevel=multilevel, run=run_kernels)
        for name in MODULES:
            patch.delitem(sys.modules, name, raising=False)


@pytest.fixture(scope="module")
def made(study: Any) -> Any:
    """All kernels on all data sets."""
    own = study.multilevel.MODELS.values(), range(study.run.REPEATS)
    return study.run.Study.of(row for model in own[0] for k in own[1] for row in study.kernels.rows(model, k, 1))


def test_every_kernel_and_decision_is_tested(study: Any) -> None:
    """Kernels with an error are among them."""
    correct, broken = (
        {(one.name, one.decision) for one in study.kernels.KERNELS if bool(one.error) == error}
        for error in (False, True)
    )
    assert {one.partition(",")[0] for _, one in correct} == {"all observations", "joint Poisson"}
    assert broken <= correct


def test_errors_are_made_where_the_kernels_look(study: Any) -> None:
    """A renamed function or class would end the study after minutes."""
    broken = [one for one in study.kernels.KERNELS if one.error]
    for one in broken:
        with one.broken():
            pass
    assert len(broken) == 10


def rows_of(study: Any, k: int, model: str, uniforms: Any) -> list[Any]:
    return [study.kernels.Row(model, number, k, tuple(own), 0.5, 1.0) for number, own in enumerate(uniforms)]


def test_figures_of_the_study(study: Any, tmp_path: Path) -> None:
    """Ranks at one end of the chains are detected, uniform ones are not, and neither are failures overlooked."""
    kernels, (n, width) = study.kernels, (60, len(study.kernels.named(study.multilevel.MODELS["crossed"])))
    even = np.repeat((np.arange(n)[:, np.newaxis] + 0.5) / n, width, axis=1)
    wrong = next(k for k, one in enumerate(kernels.KERNELS) if one.error and "crossed" in one.models)
    found = study.run.Study.of([*rows_of(study, 0, "crossed", even), *rows_of(study, wrong, "crossed", even**2)])
    right, other = found.results
    assert (right.kernel.error, other.kernel.error) == ("", kernels.KERNELS[wrong].error)
    assert found.critical == pytest.approx(study.run.LEVEL / width)
    assert not found.fails(right)
    assert found.fails(other)
    assert found.fails(study.run.Study.of([kernels.Row("crossed", 0, 0, failure="no")]).results[0])
    page = study.run.write(found, tmp_path, repeats=n, seed=1).read_text()
    assert "All 1 combinations" in page
    assert "1 of 1 kernels with an error are detected" in page
    assert f"{width} comparisons" in page


@pytest.mark.slow
def test_ranks_of_correct_kernels_are_uniform(made: Any) -> None:
    """The probability of a false alarm is 1 % for all quantities, programs, kernels and decisions together."""
    assert [(one.kernel.name, one.model.name, one.least) for one in made.correct if made.fails(one)] == []
    assert made.n_comparisons > 100
    # Neither would mean anything if all proposals were accepted, or none decided by candidates.
    rough = [one for one in made.correct if "rough" in one.kernel.name]
    assert max(one.mean("moved") for one in rough) < 0.8
    assert min(one.mean("from_all") for one in made.correct) < 0.1


@pytest.mark.slow
def test_errors_are_detected(made: Any) -> None:
    """With the same data sets and the same limit, by ranks; bounds that are too small, by an exception."""
    (bounds,) = (one for one in made.broken if "bounds" in one.kernel.error)
    assert all("was proved to be at most" in failure for failure in bounds.failures)
    assert len(bounds.failures) > len(bounds.rows) / 2
    others = [one for one in made.broken if one is not bounds]
    assert [(one.kernel.error, one.least) for one in others if one.least[0] > made.critical] == []
