"""Classes of observations by their constants, and numbers in less memory."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from stansub.target.classes import Classes, keys
from stansub.target.rows import ColumnRows, compact

Array = NDArray[np.float64]


def constants(n: int = 5000) -> Array:
    found = np.exp(np.random.default_rng(1).normal(-9, 3, n))
    found[::7] = 0
    found[:4] = [1e250, 5e-324, 1.0, 2.0**-3.5]
    return np.asarray(found)


@pytest.mark.parametrize("size", [5000, 700, 1])
def test_members_have_a_constant_that_is_no_less_than_their_own(size: int) -> None:
    own = constants(5000 if size > 1 else 50)
    found = Classes.of([keys(own[first : first + size]) for first in range(0, len(own), size)])
    assert sorted(found.members) == np.flatnonzero(own).tolist()
    of_class = np.repeat(found.constants, np.diff(found.starts))
    assert (of_class >= own[found.members]).all()
    usual = own[found.members] > 1e-300
    assert (of_class <= 1.0906 * own[found.members])[usual].all(), "at most an eighth of an octave more"
    assert found.total == pytest.approx(of_class.sum())
    assert (np.diff(found.constants) > 0).all()


def test_the_members_of_a_class_stand_in_their_order() -> None:
    found = Classes.of([keys(np.array([1.0, 3.0, 1.0])), keys(np.array([3.0, 1.0]))])
    assert found.members.tolist() == [0, 2, 4, 1, 3]


def test_constants_of_zero_have_no_class() -> None:
    found = Classes.of([keys(np.zeros(3))])
    assert (found.members.size, found.constants.size, found.starts.tolist()) == (0, 0, [0])


@pytest.mark.parametrize(
    ("values", "size"),
    [
        ([7.5] * 9, 0),
        ([0, 1, 255], 1),
        ([-1, 300], 2),
        ([70_000, 1], 4),
        ([0.5, 2.0**90], 4),
        ([0.1, 1], 8),
        ([2.0**900, 0], 8),
    ],
)
def test_numbers_in_less_memory_are_the_same(values: list[float], size: int) -> None:
    found = compact(np.array(values, float))
    assert np.array_equal(found, values)
    assert found.strides == (size,)


@pytest.mark.parametrize("values", [[np.nan, 1.0], [np.inf, 1.0], []])
def test_what_is_no_number_stays(values: list[float]) -> None:
    np.testing.assert_array_equal(compact(np.array(values, float)), values)


def test_rows_are_computed_from_columns() -> None:
    x = np.arange(12.0).reshape(4, 3)
    rows = ColumnRows((4, 5), ((slice(0, 1), 1.0), (slice(1, 4), x), (slice(4, 5), np.arange(4)[:, np.newaxis])))
    expected = np.column_stack([np.ones(4), x, np.arange(4)])
    np.testing.assert_array_equal(rows[:], expected)
    np.testing.assert_array_equal(rows[1:3], expected[1:3])
    np.testing.assert_array_equal(rows[np.array([3, 0])], expected[[3, 0]])
    assert rows.nbytes == expected.nbytes
