"""Names of unconstrained values in the order of the values, which Stan's list does not have for arrays."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from stansub.errors import RunError
from stansub.stan.toolchain.stored_order import in_stored_order
from stansub.types import FloatArray


def listed(name: str, shape: tuple[int, ...]) -> list[str]:
    """Return names with the last index slowest."""
    indices = itertools.product(*(range(1, side + 1) for side in reversed(shape)))
    return [".".join([name, *map(str, reversed(index))]) for index in indices]


def simplexes(x: FloatArray) -> FloatArray:
    odds = np.exp(np.column_stack([x, np.zeros(len(x))]))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def constrain(theta: FloatArray) -> FloatArray:
    """A number, an array of vectors, a matrix, an array of numbers, an array of matrices, an array of simplexes."""
    a, x, m, r, am, s = np.split(theta, np.cumsum([1, 6, 6, 6, 12]))
    matrices = am.reshape(2, 3, 2).transpose(0, 2, 1)
    parts = [x.reshape(2, 3), m.reshape(2, 3, order="F"), np.exp(r.reshape(2, 3)), matrices, simplexes(s.reshape(2, 2))]
    return np.concatenate([a, *(one.ravel(order="F") for one in parts)])


def test_names_are_in_the_order_of_the_values() -> None:
    shapes = {"x": (2, 3), "m": (2, 3), "r": (2, 3), "am": (2, 2, 3)}
    same = ["a", *(one for name, shape in shapes.items() for one in listed(name, shape))]
    found = in_stored_order([*same, *listed("s", (2, 2))], [*same, *listed("s", (2, 3))], constrain)
    assert found[:7] == ["a", "x.1.1", "x.1.2", "x.1.3", "x.2.1", "x.2.2", "x.2.3"]
    assert found[7:13] == listed("m", (2, 3))
    assert found[13:19] == ["r.1.1", "r.1.2", "r.1.3", "r.2.1", "r.2.2", "r.2.3"]
    first = ["am.1.1.1", "am.1.2.1", "am.1.1.2", "am.1.2.2", "am.1.1.3", "am.1.2.3"]
    assert found[19:31] == first + [one.replace("am.1", "am.2") for one in first]
    assert found[31:] == ["s.1.1", "s.1.2", "s.2.1", "s.2.2"]


@pytest.mark.parametrize("undefined", [False, True])
def test_names_stay_if_nothing_shows_their_order(undefined: bool) -> None:
    def without(theta: FloatArray) -> FloatArray:
        if undefined:
            raise RunError("undefined")
        return np.zeros(6)

    names = listed("x", (2, 3))
    assert in_stored_order(names, names, without) == names
