"""Parameters from which explorations of surrogates start."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from stansub.errors import RunError
from stansub.target.cholesky import is_definite
from stansub.tuning.surrogates.starting import highest

POINT = np.array([1.0, -2.0, 0.5])


def log_density_gradient(theta: np.ndarray) -> tuple[float, np.ndarray]:
    """Return those of a normal density with mean POINT, undefined where the first parameter exceeds 3."""
    if theta[0] > 3:
        raise RunError("undefined")
    return -0.5 * float(np.sum((theta - POINT) ** 2)), POINT - theta


def test_the_highest_point_is_found_beside_where_a_density_is_undefined() -> None:
    density: Any = SimpleNamespace(log_density_gradient=log_density_gradient)
    np.testing.assert_allclose(highest(density, np.zeros(3)), POINT, atol=1e-4)
    np.testing.assert_allclose(highest(density, np.zeros(3), ridge=1.0), POINT / 2, atol=1e-4)


@pytest.mark.parametrize(
    ("eigenvalues", "found"),
    [((1.0, 2.0, 3.0), True), ((0.0, 0.0, 3.0), True), ((0.0, 0.0, 0.0), True), ((-1e-3, 2.0, 3.0), False)],
    ids=["definite", "singular", "flat", "bends up"],
)
def test_expansions_that_bend_up(eigenvalues: tuple[float, ...], found: bool) -> None:
    basis, _ = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))
    precision = sp.csr_array(basis @ np.diag(eigenvalues) @ basis.T)
    assert is_definite(precision) == found
