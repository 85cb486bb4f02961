"""Parameters of one observation's likelihood from unconstrained ones, compared with Stan's inverse transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import logit

from stansub.stan.observations.observation import follow
from stansub.stan.observations.predictors import _dense
from stansub.stan.observations.row_program import in_program
from stansub.stan.observations.rowwise import NotFollowedError
from stansub.stan.syntax import parse

Array = NDArray[np.float64]

DATA: dict[str, Any] = {"N": 5, "z": np.arange(5.0)}
SIMPLEX = np.array([0.2, 0.5, 0.3])
CHOLESKY = np.linalg.cholesky([[1, 0.3, -0.4], [0.3, 1, 0.2], [-0.4, 0.2, 1]])
FACTOR = np.linalg.cholesky(
    0.4 * np.eye(4) + 0.6 * np.outer([1, -1, 0.5, 1], [1, -1, 0.5, 1]) + np.diag([0, 0, 0.45, 0])
)


def changes(declarations: str, mean: str, theta: Array, start: Array | None = None) -> Array:
    """Change of the log likelihood from the start, by default 0, to the parameters given."""
    code = f"data {{ int N; vector[N] z; }} parameters {{ {declarations} }} model {{ z ~ normal({mean}, 1); }}"
    found = _dense(*in_program(follow(parse(code), DATA, DATA["N"]).term, DATA["N"]))
    return np.subtract(*(found.log_lik(at) for at in (theta, np.zeros(len(theta)) if start is None else start)))


def of_simplex(x: Array) -> Array:
    """Stan Reference Manual, "Unit simplex": shares of the stick that is left."""
    left = 1 - np.concatenate([[0.0], np.cumsum(x)])[:-2]
    return np.asarray(logit(x[:-1] / left) + np.log(len(x) - 1 - np.arange(len(x) - 1)))


def of_correlations(factor: Array) -> Array:
    """The manual's "Cholesky factors of correlation matrices": partial correlations, row by row."""
    return np.array(
        [
            np.arctanh(factor[i, j] / np.sqrt(1 - np.sum(factor[i, :j] ** 2)))
            for i in range(1, len(factor))
            for j in range(i)
        ]
    )


CASES: dict[str, tuple[str, str, Array, float, float]] = {
    "simplex": ("simplex[3] q;", "q[1] + 3 * q[2] + 5 * q[3]", of_simplex(SIMPLEX), SIMPLEX @ [1, 3, 5], 3.0),
    "simplices": (
        "array[2] simplex[3] q;",
        "q[1][1] + 3 * q[2][2]",
        np.concatenate([of_simplex(SIMPLEX), of_simplex(SIMPLEX[::-1])]),
        SIMPLEX @ [1, 3, 0],
        4 / 3,
    ),
    "factor of correlations": (
        "cholesky_factor_corr[3] q;",
        "q[1, 1] + 2 * q[2, 1] + 3 * q[2, 2] + 4 * q[3, 1] + 5 * q[3, 2] + 6 * q[3, 3] + q[1, 2]",
        of_correlations(CHOLESKY),
        CHOLESKY[np.tril_indices(3)] @ np.arange(1, 7),
        10.0,
    ),
    "ordered": ("ordered[3] q;", "q[1] + 2 * q[3]", np.array([-1.0, np.log(2), np.log(3)]), -1 + 2 * 4, 4.0),
    "positive and ordered": ("positive_ordered[2] q;", "2 * q[2]", np.log([1.5, 2]), 7.0, 4.0),
    "upper bound": ("real<upper=2> q;", "q", np.log([3.0]), -1.0, 1.0),
    "both bounds": ("real<lower=-1, upper=3> q;", "q", np.array([logit(0.25)]), 0.0, 1.0),
    "infinite bounds": (
        "real<lower=negative_infinity(), upper=positive_infinity()> q;",
        "q",
        np.array([2.0]),
        2.0,
        0.0,
    ),
    "bounds that are parameters": ("real p; real<lower=p> q;", "q", np.array([1.0, np.log(2)]), 3.0, 1.0),
    "bounds of elements": (
        "real p; vector<lower=[0, p]', upper=[2, 9]'>[2] q;",
        "q[1]",
        np.array([1.0, logit(0.25), 0.0]),
        0.5,
        1.0,
    ),
    "lower bounds of elements": (
        "vector<lower=[1, negative_infinity()]'>[2] q;",
        "q[1] + q[2]",
        np.array([np.log(2), 3.0]),
        6.0,
        2.0,
    ),
    "correlations": (
        "corr_matrix[3] q;",
        "q[1, 1] + 2 * q[2, 1] + 3 * q[2, 2] + 4 * q[3, 1] + 5 * q[2, 3]",
        of_correlations(CHOLESKY)[[0, 1, 2]],
        (CHOLESKY @ CHOLESKY.T)[[0, 1, 1, 2, 2], [0, 0, 1, 0, 1]] @ np.arange(1, 6),
        4.0,
    ),
    "larger correlation matrix": (
        "corr_matrix[4] q;",
        "q[4, 1] + 2 * q[3, 2] + 3 * q[4, 2] + 4 * q[4, 3]",
        of_correlations(FACTOR)[[0, 1, 3, 2, 4, 5]],
        (FACTOR @ FACTOR.T)[[3, 2, 3, 3], [0, 1, 1, 2]] @ np.arange(1, 5),
        0.0,
    ),
    "covariance": (
        "cov_matrix[2] q;",
        "q[1, 1] + 2 * q[2, 1] + 3 * q[2, 2]",
        np.array([np.log(2), 0.5, np.log(3)]),
        4 + 2 * 1 + 3 * (0.25 + 9),
        4.0,
    ),
    "factor of a covariance": (
        "cholesky_factor_cov[2] q;",
        "q[1, 1] + 2 * q[2, 1] + 3 * q[2, 2] + 4 * q[1, 2]",
        np.array([np.log(2), 0.5, np.log(3)]),
        2 + 1 + 9.0,
        4.0,
    ),
    "tall factor of a covariance": (
        "cholesky_factor_cov[3, 2] q;",
        "q[2, 2] + 2 * q[3, 1] + 3 * q[3, 2]",
        np.array([0.1, 0.2, np.log(3), 0.4, 0.5]),
        3 + 0.8 + 1.5,
        1.0,
    ),
    "sum to zero": (
        "sum_to_zero_vector[3] q;",
        "q[1] + 2 * q[2] + 5 * q[3]",
        np.array([1.0, 2.0]),
        (1 / np.sqrt(2) + 2 / np.sqrt(6)) + 2 * (2 / np.sqrt(6) - 1 / np.sqrt(2)) - 5 * 4 / np.sqrt(6),
        0.0,
    ),
    "columns of a matrix": ("matrix[2, 3] q;", "q[2, 1] + 3 * q[1, 3]", np.arange(6.0), 1 + 3 * 4, 0.0),
}


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_stans_transforms(name: str) -> None:
    declarations, mean, theta, value, at_zero = CASES[name]
    expected = -0.5 * (DATA["z"] - value) ** 2 + 0.5 * (DATA["z"] - at_zero) ** 2
    np.testing.assert_allclose(changes(declarations, mean, theta), expected, rtol=1e-9, atol=1e-9)


def test_unit_vectors_have_directions_of_the_unconstrained_parameters() -> None:
    found = changes("unit_vector[2] q;", "q[1] + 2 * q[2]", np.array([3.0, -4.0]), np.array([5.0, 0.0]))
    np.testing.assert_allclose(found, -0.5 * (DATA["z"] + 1.0) ** 2 + 0.5 * (DATA["z"] - 1.0) ** 2, rtol=1e-9)


@pytest.mark.parametrize(
    ("declarations", "mean", "reason"),
    [
        (
            "column_stochastic_matrix[2, 2] q;",
            "q[1, 1]",
            r"the parameter q has type column_stochastic_matrix\[2, 2\], wh",
        ),
        ("real p; vector<lower=p * z>[N] q;", "q[1]", "the bounds of a parameter are computed for each observation"),
        ("vector[100000000] q;", "q[1]", "100,000,000 unconstrained parameters are too many"),
    ],
)
def test_other_parameters_are_refused(declarations: str, mean: str, reason: str) -> None:
    with pytest.raises(NotFollowedError, match=reason):
        changes(declarations, mean, np.zeros(1))
