"""Label switching is distinguished from other differences."""

import numpy as np
import pytest

from stansub.tuning.modes.labels import interchanged

NAMES = [
    "weight.1",
    "weight.2",
    "weight.3",
    "mu.1.1",
    "mu.2.1",
    "mu.3.1",
    "mu.1.2",
    "mu.2.2",
    "mu.3.2",
    "tau",
    "b.1",
    "b.2",
]
ONE = np.array([0.2, 0.3, 0.5, -1.0, 0.0, 4.0, 7.0, 8.0, 9.0, 0.7, 1.0, 2.0])


def switched(order: list[int]) -> np.ndarray:
    other = ONE.copy()
    for first in (0, 3, 6):
        other[first : first + 3] = ONE[first : first + 3][order]
    return other


@pytest.mark.parametrize("order", [[1, 0, 2], [2, 0, 1], [2, 1, 0]])
def test_a_permutation_of_all_parameters_of_a_length(order: list[int]) -> None:
    assert interchanged(NAMES, ONE, switched(order)) == ("weight", "mu")


def test_the_same_point_has_no_other_labels() -> None:
    assert interchanged(NAMES, ONE, ONE) == ()
    assert interchanged(NAMES, ONE, ONE + 1e-4) == ()


@pytest.mark.parametrize("place", [0, 5, 9, 10])
def test_what_differs_otherwise_is_no_switch(place: int) -> None:
    other = switched([1, 0, 2])
    other[place] += 0.5
    assert interchanged(NAMES, ONE, other) == ()


def test_a_permutation_of_one_parameter_alone_is_no_switch_where_others_belong_to_it() -> None:
    other = ONE.copy()
    other[:3] = ONE[[1, 0, 2]]
    assert interchanged(NAMES, ONE, other) == ()


def test_scalars_and_tuples() -> None:
    assert interchanged(["a", "b"], np.array([1.0, 2.0]), np.array([2.0, 1.0])) == ()
    names = ["t.1:1", "t.1:2", "mu.1", "mu.2"]
    assert interchanged(names, np.array([1.0, 2, 3, 4]), np.array([1.0, 2, 4, 3])) == ("mu",)
