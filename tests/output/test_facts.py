"""Facts that no run records are named, whatever a file holds."""

from typing import Any

import pytest

from stansub.output.facts import misfits

RECORDED: dict[str, Any] = {
    "model": "logistic",
    "settings": {"proposal": "hmc", "thin": 2, "seed": None, "anything": {}},
    "choice_values": {"surrogate": {"kind": "SurrogateSettled", "n_starts": 8, "race": {}}, "test": {}},
}


def test_what_runs_record_fits() -> None:
    assert not list(misfits(RECORDED, {"n_steps": [10, 20]}))


@pytest.mark.parametrize(
    ("fact", "name", "value"),
    [
        ("settings", "proposal", {}),
        ("settings", "evaluator", ["partitions"]),
        ("settings", "thin", "2"),
        ("settings", "seed", 1.5),
        ("choice_values", "surrogate", []),
        ("choice_values", "labels", {"permuted": "mu"}),
        ("choice_values", "signs", {"names": ["mu"]}),
        ("choice_values", "test", {"kind": ["ExactAlong"]}),
    ],
)
def test_values_that_no_run_records_are_named(fact: str, name: str, value: Any) -> None:
    assert list(misfits({**RECORDED, fact: {**RECORDED[fact], name: value}}, {})) == [fact]
