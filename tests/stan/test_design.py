"""Designs made of columns of the data: told from a few rows, put together from all, refused where they are wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stansub.stan.data import Data, read
from stansub.stan.densities import SPECS
from stansub.stan.design import DataColumn, design_of, guessed, telling_rows
from stansub.stan.predictors import Columns, _affine, _by_columns_of_data, _steps, is_proved, linear_predictors
from stansub.stan.recognise import Form
from stansub.stan.syntax import parse
from stansub.target.blocks import Blocks
from stansub.target.remainders import NoPredictorsError
from stansub.target.rows import ColumnRows

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


def test_a_guess_that_is_wrong_further_down_is_refused() -> None:
    given = data(rare())
    right = true_design(given)
    right[3000, 4] += 1e-3  # no column of the data any more, in a row that nobody looked at
    rows = telling_rows(given, AXES, N)
    assert 3000 not in rows
    guess = guessed(right[rows].T, given.rows(AXES, ["N"], rows), AXES)
    assert guess is not None
    wrong = design_of(guess, given, AXES, N)[:]
    points = list(np.random.default_rng(2).uniform(-1, 1, (3, right.shape[1])))
    columns = Columns(lambda theta: np.stack([given.values["y"].astype(float), right @ theta]), SPECS["poisson_log"])
    with pytest.raises(NoPredictorsError, match="not affine"):
        _affine("poisson_log", columns, [wrong], points)
    (design,) = _steps(columns, points[0])
    np.testing.assert_allclose(design, right, atol=1e-12)
    _affine("poisson_log", columns, [design], points)


@dataclass(frozen=True)
class Centring:
    """In place of a compiled program: a rate with a covariate and an offset less the mean of all that it is given."""

    density = "poisson_log"

    def points(self, values: Data) -> list[Array]:
        return list(np.random.default_rng(4).uniform(-0.5, 0.5, (3, 4)))

    def columns(self, values: Data, n: int) -> Columns:
        x, w, y = (np.asarray(values.values[name], float) for name in ("x", "w", "y"))

        def at(theta: Array) -> Array:
            return np.stack([y, theta[0] + x[:, :3] @ theta[1:] + w[1] - w[1].mean()])

        return Columns(at, SPECS[self.density])


def test_what_is_computed_of_all_the_data_is_asked_of_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of the data have other means: the proof shows it, and the program is asked as a whole."""
    monkeypatch.setattr("stansub.stan.predictors._ROWS", 1000)
    monkeypatch.setattr("stansub.stan.predictors.HandedOut.of", lambda *_: Centring())
    given, program = data(rare()), parse(PROGRAM)
    points = list(np.random.default_rng(3).uniform(-0.5, 0.5, (3, 4)))
    blocks = Blocks(N, 100)
    rows = [Centring().columns(given, N)(theta) for theta in points]
    terms = [np.add.reduceat(y[0] * eta[0] - np.exp(eta[0]), blocks.starts) for y, eta in rows]
    in_parts = _by_columns_of_data(Centring(), given, ["N"])  # type: ignore[arg-type]
    assert in_parts is not None
    assert not is_proved(in_parts, blocks, points, terms)
    found = linear_predictors(
        program,
        Form("sum"),
        given,
        blocks,
        sizes=["N"],
        order=None,
        points=points,
        terms=terms,
        name="centring",
        guess=in_parts,
    )
    assert is_proved(found, blocks, points, terms)
    w = given.values["w"][1]
    np.testing.assert_allclose(found.offset[0], w - w.mean(), atol=1e-12)
