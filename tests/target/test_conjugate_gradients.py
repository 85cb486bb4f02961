"""Solutions of sparse systems from products."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from stansub.target import cholesky, conjugate_gradients
from stansub.target.conjugate_gradients import solutions, solve


def crossed(n_first: int = 150, n_second: int = 90, n_observations: int = 4_000) -> sp.csc_array:
    """Precision of a mean and of crossed effects with a weak ridge, which determines their levels alone."""
    rng, every = np.random.default_rng(1), np.arange(n_observations)
    columns = [0 * every, 1 + rng.integers(n_first, size=n_observations)]
    columns.append(1 + n_first + rng.integers(n_second, size=n_observations))
    design = sp.csc_array((np.ones(3 * n_observations), (np.tile(every, 3), np.concatenate(columns))))
    return sp.csc_array(design.T @ design + 0.1 * sp.eye_array(1 + n_first + n_second))


@pytest.mark.parametrize("units", [1.0, 1e-3])
def test_few_products_solve_systems_of_crossed_effects(units: float) -> None:
    """In any units of the parameters."""
    scale = np.where(np.arange(241) < 100, units, 1.0)
    matrix = sp.csc_array(sp.diags_array(scale) @ crossed() @ sp.diags_array(scale))
    right = scale * np.random.default_rng(2).standard_normal(241)
    found = solve(matrix, right, most=50)
    assert found.has_converged
    expected: NDArray[np.float64] = np.linalg.solve(matrix.toarray(), right)
    np.testing.assert_allclose(scale * found.x, scale * expected, atol=1e-6 * np.abs(scale * expected).max())
    assert not solve(matrix, right, most=5).has_converged


def test_negative_curvature_ends_the_search() -> None:
    matrix = crossed().tolil()
    matrix[1, 3] = matrix[3, 1] = 1e3
    assert np.linalg.eigvalsh(matrix.toarray())[0] < -1
    found = solve(sp.csc_array(matrix), np.random.default_rng(2).standard_normal(241), most=50)
    assert not found.is_definite
    assert not found.has_converged


def test_the_solution_for_zeros_is_zero() -> None:
    found = solve(crossed(), np.zeros(241), most=50)
    assert found.has_converged
    np.testing.assert_array_equal(found.x, 0.0)


@pytest.mark.parametrize(("dear", "has_converged", "n_factors"), [(0.0, True, 0), (0.0, False, 1), (1e9, True, 1)])
def test_solutions_take_a_factor_unless_it_is_dear_and_products_converge(
    monkeypatch: pytest.MonkeyPatch, dear: float, has_converged: bool, n_factors: int
) -> None:
    factors = list[cholesky.Factor]()

    def factor(*given: Any) -> cholesky.Factor:
        factors.append(cholesky.cholesky(*given))
        return factors[-1]

    monkeypatch.setattr(cholesky, "_DEAR", dear)
    monkeypatch.setattr(conjugate_gradients, "cholesky", factor)
    monkeypatch.setattr(conjugate_gradients, "most_products", lambda *given: 50 if has_converged else 5)
    matrix, right = crossed(), np.random.default_rng(2).standard_normal((241, 2))
    np.testing.assert_allclose(solutions(matrix, right), np.linalg.solve(matrix.toarray(), right), rtol=1e-4, atol=1e-6)
    assert len(factors) == n_factors
