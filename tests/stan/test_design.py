"""Designs made of columns of the data: recognised part by part, computed from columns of the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stansub.stan.data.data import Data, read
from stansub.stan.observations.design import CollectedNumbers, Cut
from stansub.stan.syntax import parse
from stansub.target.rows import ColumnRows, DataColumn

Array = NDArray[np.float64]
N = 5000
PROGRAM = """
data { int N; int K; matrix[N, K] x; array[N] int group; array[2] vector[N] w; array[N] int y; int unused; }
parameters { real a; }
model { y ~ poisson_log(rep_vector(a, N)); }
"""
AXES = {"x": 0, "group": 0, "w": 1, "y": 0}


def data(x: Array) -> Data:
    rng = np.random.default_rng(1)
    values: dict[str, Any] = {
        "N": len(x),
        "K": x.shape[1],
        "x": x,
        "group": rng.integers(0, 5, len(x)),
        "w": rng.standard_normal((2, len(x))),
        "y": rng.poisson(2.0, len(x)),
        "unused": 3,
    }
    return read(values, parse(PROGRAM).data.declarations)


def rare() -> Array:
    """Normal covariates, and an indicator that is 0 in all but a row."""
    x = np.random.default_rng(0).standard_normal((N, 3))
    x[:, 2] = 0
    x[4321, 2] = 1
    return x


def true_design(given: Data) -> Array:
    x, w = given.values["x"], given.values["w"]
    return np.column_stack([np.ones(N), x[:, 2], w[1], given.values["group"], x[:, 0], np.zeros(N)])


def cut(given: Data) -> Cut:
    return Cut(given, ("N",), AXES)


def collected(z: Array, given: Data) -> list[CollectedNumbers]:
    """The numbers of each column, collected from a few rows and then from the rest."""
    numbers = [CollectedNumbers(N, cut(given), cut(given).columns) for _ in z.T]
    for rows in (slice(0, 10), slice(10, 3000), slice(3000, N)):
        for one, column in zip(numbers, z[rows].T, strict=True):
            one.add(rows, column)
    return numbers


def test_columns_are_told_part_by_part() -> None:
    given = data(rare())
    z = true_design(given)
    numbers = collected(z, given)
    assert all(one.is_known for one in numbers)
    columns = [one.found() for one in numbers]
    assert columns == [1.0, DataColumn("x", 2), DataColumn("w", 1), DataColumn("group", 0), DataColumn("x", 0), 0.0]
    design = cut(given).design(columns, N)
    assert isinstance(design, ColumnRows)
    assert design.columns == tuple(columns)
    np.testing.assert_array_equal(design[:], z)
    few = np.array([N - 1, 0, 7])
    np.testing.assert_array_equal(design[few], z[few])
    np.testing.assert_array_equal(design[3:9], z[3:9])
    assert design.any()


def test_one_row_serves_where_all_are_the_same() -> None:
    np.testing.assert_array_equal(cut(data(rare())).design([1.0, 0.0], N), [[1.0, 0.0]])


def test_a_number_common_to_all_rows_is_told() -> None:
    (number,) = collected(np.full((N, 1), 0.5), data(rare()))
    assert number.found() == 0.5


@pytest.mark.parametrize(
    "change", [lambda z: z**2, lambda z: -z, lambda z: z + (z > 2.5)], ids=["square", "minus", "few"]
)
def test_what_is_no_column_of_the_data_is_kept(change: Any) -> None:
    given = data(rare())
    z = change(given.values["x"][:, :1])
    (number,) = collected(z, given)
    assert not number.is_known
    np.testing.assert_array_equal(number.array(), z[:, 0])
    design = cut(given).design([DataColumn("x", 1), number.found()], N)
    assert isinstance(design, ColumnRows)
    assert not design.columns
    np.testing.assert_array_equal(design[:], np.column_stack([given.values["x"][:, 1], z]))
