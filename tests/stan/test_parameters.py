"""Parameters of one observation's likelihood from unconstrained ones, compared with Stan's inverse transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import logit

from stansub.stan.observation import follow
from stansub.stan.predictors import _dense
from stansub.stan.row_program import in_program
from stansub.stan.rowwise import NotFollowedError
from stansub.stan.syntax import parse

Array = NDArray[np.float64]

DATA: dict[str, Any] = {"N": 5, "z": np.arange(5.0)}
SIMPLEX = np.array([0.2, 0.5, 0.3])
CHOLESKY = np.linalg.cholesky([[1, 0.3, -0.4], [0.3, 1, 0.2], [-0.4, 0.2, 1]])


def changes(declarations: str, mean: str, theta: Array) -> Array:
    """Change of the log likelihood from the parameters at 0 to those given."""
    code = f"data {{ int N; vector[N] z; }} parameters {{ {declarations} }} model {{ z ~ normal({mean}, 1); }}"
    found = _dense(*in_program(follow(parse(code), DATA, DATA["N"]).term, DATA["N"]))
    return np.subtract(*(found.log_lik(at) for at in (theta, np.zeros(len(theta)))))


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
    "columns of a matrix": ("matrix[2, 3] q;", "q[2, 1] + 3 * q[1, 3]", np.arange(6.0), 1 + 3 * 4, 0.0),
}


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_stans_transforms(name: str) -> None:
    declarations, mean, theta, value, at_zero = CASES[name]
    expected = -0.5 * (DATA["z"] - value) ** 2 + 0.5 * (DATA["z"] - at_zero) ** 2
    np.testing.assert_allclose(changes(declarations, mean, theta), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("declarations", "mean", "reason"),
    [
        ("cholesky_factor_cov[2] q;", "q[1, 1]", r"the parameter q has type cholesky_factor_cov\[2\], which is not"),
        ("vector<lower=z>[N] q;", "q", "the bounds of a parameter are not single numbers"),
        ("vector[100000000] q;", "q[1]", "100,000,000 unconstrained parameters are too many"),
    ],
)
def test_other_parameters_are_refused(declarations: str, mean: str, reason: str) -> None:
    with pytest.raises(NotFollowedError, match=reason):
        changes(declarations, mean, np.zeros(1))
