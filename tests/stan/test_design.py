"""Designs made of columns of the data: told from a few rows, computed from columns of the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stansub.stan.data import Data, read
from stansub.stan.design import design_of, guessed, telling_rows
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


def test_columns_are_told_from_a_few_rows() -> None:
    given = data(rare())
    z, rows = true_design(given), telling_rows(given, AXES, N)
    assert len(rows) < 100
    columns = guessed(z[rows].T, given.rows(AXES, ["N"], rows), AXES)
    assert columns == [1.0, DataColumn("x", 2), DataColumn("w", 1), DataColumn("group", 0), DataColumn("x", 0), 0.0]
    design = design_of(columns, given, AXES, N)
    assert isinstance(design, ColumnRows)
    np.testing.assert_array_equal(design[:], z)
    few = np.array([N - 1, 0, 7])
    np.testing.assert_array_equal(design[few], z[few])
    np.testing.assert_array_equal(design[3:9], z[3:9])
    assert design.any()


def test_one_row_serves_where_all_are_the_same() -> None:
    np.testing.assert_array_equal(design_of([1.0, 0.0], data(rare()), AXES, N), [[1.0, 0.0]])


@pytest.mark.parametrize(
    "change", [lambda z: z**2, lambda z: 0.5 + 0 * z, lambda z: -z], ids=["square", "half", "minus"]
)
def test_what_is_no_column_of_the_data_is_not_guessed(change: Any) -> None:
    given = data(rare())
    rows = telling_rows(given, AXES, N)
    steps = np.stack([change(given.values["x"][rows, 0])])
    assert guessed(steps, given.rows(AXES, ["N"], rows), AXES) is None
