"""The study of false alarms: what it does to runs that agree, what it calls a fault, and its page."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stansub.output import inference_data

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
MODULES = ("run", "pairs")


@pytest.fixture(scope="module")
def study() -> Iterator[Any]:
    """The command's modules, whose names are common ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        patch.syspath_prepend(str(BENCHMARKS / "false_alarms"))
        for name in MODULES:
            patch.delitem(sys.modules, name, raising=False)
        import pairs
        import run

        yield SimpleNamespace(pairs=pairs, run=run)
        for name in MODULES:
            sys.modules.pop(name, None)


def nuts(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    a, b, noise = rng.standard_normal((3, 4, 1000))
    posterior = {"a": a, "b": np.stack([b, 0.5 * b + noise], axis=2)}
    return inference_data.build(posterior=posterior, sample_stats={}, attrs={"model": "m"})


@pytest.fixture(scope="module")
def rows(study: Any) -> list[dict[str, Any]]:
    return list(study.pairs.rows("m", [nuts(seed) for seed in range(4)], seed=1))


def test_every_pair_is_compared_in_every_way(study: Any, rows: list[dict[str, Any]]) -> None:
    pairs = study.pairs
    each = [(kind, level) for kind in pairs.AGREEING for level in pairs.LEVELS] + [
        (kind, pairs.LEVELS[0]) for kind in pairs.FAULTS
    ]
    first = [(0, pairs.JOINED, level) for level in pairs.LEVELS]
    expected = first + [(n, *one) for n in range(2) for one in each]
    assert [(row["pair"], row["kind"], row["level"]) for row in rows] == expected
    assert all(row["quantities"] == 3 for row in rows)


def test_faults_are_what_they_say(study: Any) -> None:
    pairs, rng = study.pairs, np.random.default_rng(1)
    draws = pairs.Draws.of(nuts(1))
    before = draws.values.reshape(-1, 3)
    moved, widened, turned = (fault.change(draws, [2, 1], rng).reshape(-1, 3) for fault in pairs.FAULTS.values())
    assert (moved - before).mean(axis=0)[2] == pytest.approx(pairs.SHIFT * before[:, 2].std())
    assert widened.std(axis=0)[2] == pytest.approx(pairs.FACTOR * before[:, 2].std())
    assert widened.mean(axis=0)[2] == pytest.approx(before[:, 2].mean())
    for after in (moved, widened):
        np.testing.assert_array_equal(after[:, :2], before[:, :2])
    np.testing.assert_allclose(turned.mean(axis=0), before.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(turned.std(axis=0), before.std(axis=0))
    change = np.corrcoef(turned[:, 1:].T)[0, 1] - np.corrcoef(before[:, 1:].T)[0, 1]
    assert change == pytest.approx(-pairs.TURN)


def test_other_numbers_of_draws_are_of_the_same_chains(study: Any) -> None:
    pairs, rng = study.pairs, np.random.default_rng(1)
    draws = pairs.Draws.of(nuts(1))
    _, thinned, held = (change and change(draws, [], rng) for change in pairs.AGREEING.values())
    np.testing.assert_array_equal(thinned, draws.values[:, ::4])
    assert held.shape[1] == pytest.approx(4000, rel=0.1)
    changed = np.any(np.diff(held, axis=1) != 0, axis=(0, 2))
    np.testing.assert_array_equal(held[:, np.concatenate([[True], changed])], draws.values)


def test_runs_are_joined_by_their_chains(study: Any) -> None:
    sides = [
        study.pairs.Draws.of(nuts(seed))._replace(facts={"model": "m", "n_divergences": 4 * [seed]}) for seed in (1, 2)
    ]
    joined = study.pairs.Draws.joined(sides)
    assert joined.values.shape == (8, 1000, 3)
    assert joined.facts == {"model": "m", "n_divergences": [1, 1, 1, 1, 2, 2, 2, 2]}


def test_the_rate_is_held_against_the_level(study: Any, rows: list[dict[str, Any]]) -> None:
    run, level = study.run, study.pairs.LEVELS[0]
    alike = [row for row in rows if row["kind"] == study.pairs.AS_THEY_ARE and row["level"] == level]
    faulty = [row for row in rows if row["kind"] in study.pairs.FAULTS]

    def passed(words: list[str], found: str = "differs") -> bool:
        some = [alike[0] | {"word": word, "headline": word} for word in words]
        return bool(run.Findings([*some, *(row | {"word": found} for row in 10 * faulty)]).passed)

    assert passed(["agrees"] * 50)
    assert passed(["agrees"] * 50 + ["differs"])
    assert not passed(["agrees"] * 44 + ["differs"] * 6)
    assert passed(["agrees"] * 50 + ["do not use"] * 2 + ["inconclusive"] * 2)
    assert not passed(["agrees"] * 50, found="agrees")


def test_the_page_says_how_many_of_how_many(study: Any, rows: list[dict[str, Any]]) -> None:
    some = [row | {"word": "agrees"} for row in rows]
    next(row for row in some if row["kind"] == "as they are" and row["level"] == 0.2)["word"] = "differs"
    found = study.run.Findings(some)
    header = {
        "command": "python run.py",
        "engine": "nutpie",
        "left_out": {"n": "it has no parameters"},
        "machine": {"cpu": "a processor", "date": "2026-01-01T00:00:00", "versions": {"stansub": "0.1.0"}},
    }
    text = study.run.page(found, header)
    assert "| as they are | 0 of 2 (0.0%, 95 % interval 0.0% to 84.2%) | 1 of 2 (50.0%, 95 % interval 1.3%" in text
    assert "| `m` | 3 | 0 | 2 | 2 | 0 | 0 |" in text
    assert "`n` is excluded: it has no parameters." in text
