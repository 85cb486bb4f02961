"""Integers that differ among observations: their cases, and the iterations of loops that end at them."""

import numpy as np
import pytest

from stansub.stan.cases import VaryingError, by_cases, iterations
from stansub.stan.containers import Value
from stansub.stan.rowwise import Expression as Own
from stansub.stan.rowwise import NotFollowedError
from stansub.stan.syntax import Expression, Name

NODE = Name("visits")


@pytest.mark.parametrize("wrong", [None, 1, 2])
def test_each_value_is_known_only_while_it_is_followed(wrong: int | None) -> None:
    """Also if one of the cases cannot be followed: later statements would read its value."""
    known: dict[Expression, int] = {}

    def evaluate() -> Value:
        if NODE not in known:
            raise VaryingError(NODE, np.array([2, 1, 2]))
        if known[NODE] == wrong:
            raise NotFollowedError("no rule")
        return 10.0 * known[NODE]

    if wrong is None:
        np.testing.assert_array_equal(by_cases(evaluate, known).values, [20.0, 10.0, 20.0])
    else:
        with pytest.raises(NotFollowedError, match="no rule"):
            by_cases(evaluate, known)
    assert not known


@pytest.mark.parametrize(
    ("low", "high", "n_iterations"),
    [
        ([1, 1, 1], [3, 1, 0], 3),
        ([2, 4, 7], [7, 7, 7], 6),
        ([1, 3, 6, 8, 11, 14], [2, 5, 7, 10, 13, 13], 3),
        ([5, 9], [4, 8], 0),
    ],
    ids=["ends", "starts", "consecutive", "none"],
)
def test_each_observation_runs_its_own_iterations(low: list[int], high: list[int], n_iterations: int) -> None:
    """There are as many as in the longest loop if observations read consecutive parts of an array."""
    found: list[list[int]] = [[] for _ in low]
    made = list(iterations(np.array(low), np.array(high)))
    assert len(made) == n_iterations
    for k, runs in made:
        values = np.broadcast_to(k.values if isinstance(k, Own) else k, len(low))
        assert values.min() >= min(low)
        assert values.max() <= max(high)
        for n in np.flatnonzero(runs):
            found[n].append(int(values[n]))
    assert found == [list(range(a, b + 1)) for a, b in zip(low, high, strict=True)]
