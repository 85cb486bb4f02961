"""Integers that differ among observations: nothing stays known of one after its cases."""

import numpy as np
import pytest

from stansub.stan.cases import VaryingError, by_cases
from stansub.stan.containers import Value
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
