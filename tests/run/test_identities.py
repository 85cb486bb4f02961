"""Digests of options: the same for what is equal, others for what is not."""

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stansub import Metropolis, OnParameters, Pocock, RandomWalk, Sequence
from stansub.run.identity import digest_of


class Own:
    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def method(self) -> None: ...


def closure(number: float) -> Any:
    return lambda position: number * position


PAIRS: list[Any] = [
    (lambda: 1.0, lambda: 2.0),
    (lambda: 1, lambda: True),
    (lambda: np.ones(2), lambda: np.arange(2.0)),
    (lambda: np.ones(2), lambda: np.ones(2, np.float32)),
    (lambda: {"a": [1, 2], "b": 3}, lambda: {"a": [2, 1], "b": 3}),
    (lambda: {1, 2}, lambda: {1, 3}),
    (lambda: Own(a=1), lambda: Own(a=2)),
    (lambda: Own(a=1).method, lambda: Own(a=2).method),
    (lambda: closure(1.0), lambda: closure(2.0)),
    (lambda: lambda x: x + 1, lambda: lambda x: x - 1),
    (lambda: lambda x, y=1: x, lambda: lambda x, y=2: x),
    (lambda: functools.partial(max, 1), lambda: functools.partial(max, 2)),
    (lambda: functools.partial(max, 1), lambda: functools.partial(min, 1)),
    (lambda: np.random.default_rng(1), lambda: np.random.default_rng(2)),
    (lambda: RandomWalk(np.eye(2)), lambda: RandomWalk(2 * np.eye(2))),
    (lambda: Pocock(epsilon=0.1), lambda: Pocock(epsilon=0.2)),
    (lambda: Metropolis(), lambda: Metropolis(exact=True)),
    (
        lambda: Sequence(a=OnParameters(Metropolis(), ["a"], observations=lambda at: np.arange(3))),
        lambda: Sequence(a=OnParameters(Metropolis(), ["a"], observations=lambda at: np.arange(4))),
    ),
]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_equal_values_and_others(one: Any, other: Any) -> None:
    assert digest_of(one()) == digest_of(one()) != digest_of(other())


def test_the_order_of_a_mapping_and_what_is_shared_do_not_matter() -> None:
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    array = np.ones(2)
    assert digest_of([array, array]) == digest_of([array, array.copy()])


def test_values_within_themselves_modules_and_much_that_is_shared() -> None:
    itself = Own(module=np)
    itself.again = itself  # type: ignore[attr-defined]
    assert digest_of(itself) == digest_of(itself)
    deep: Any = []
    for _ in range(200):
        deep = [deep, deep]
    assert len(digest_of(deep)) == 16


def test_the_same_in_another_process() -> None:
    code = "from test_identities import PAIRS, digest_of; print(*(digest_of(one()) for one, _ in PAIRS))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [digest_of(one()) for one, _ in PAIRS]
