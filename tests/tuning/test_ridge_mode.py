"""The search for the first expansion point of a surrogate."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit

from stansub.errors import RunError
from stansub.progress import Progress
from stansub.stan.analysis import Analysis
from stansub.stan.sparse import sparse_predictors
from stansub.stan.stanc import canonical_code
from stansub.stan.syntax import parse
from stansub.target.families import Poisson
from stansub.target.sparse import Quadratic, SparsePredictors, SparseRows
from stansub.tuning import ridge as tuning

N, J = 3_000, 20
DISCOUNTING = """
data { int N; int J; array[N] int g; vector[N] later; vector[N] delay; vector[N] sooner; array[N] int y; }
parameters { vector<lower=0, upper=1>[J] k; vector<lower=0, upper=5>[J] b; }
model { for (n in 1 : N) y[n] ~ bernoulli_logit(b[g[n]] * (later[n] / (1 + k[g[n]] * delay[n]) - sooner[n])); }
"""


def test_the_mode_is_found_where_full_steps_overshoot() -> None:
    """From rates of 1 a full step leads to logarithms of rates of hundreds, where the likelihood is 0."""
    rng = np.random.default_rng(1)
    g = rng.integers(J, size=N)
    numbers = sp.csr_array((np.ones(N), g, np.arange(N + 1)), shape=(N, J))
    row = SparseRows.of(np.empty((1, 0)), np.empty(0, np.int64), numbers, np.zeros(1))
    counts = rng.poisson(np.exp(rng.normal(6.0, 1.0, J))[g]).astype(float)
    predictors = SparsePredictors((row,), Poisson(counts, np.ones(N)))
    found, n_passes = tuning.ridge_mode(predictors, Progress())
    means = np.bincount(g, counts) / np.bincount(g)
    np.testing.assert_allclose(found.point, np.log(means), atol=1e-2)
    assert n_passes < 60


def test_the_mode_is_found_where_many_groups_pass_saddles() -> None:
    """The search ended at a saddle, and the surrogate had no bound."""
    n, j, rng = 10_000, 100, np.random.default_rng(4)
    g, k, b = rng.integers(j, size=n), np.exp(rng.normal(-3, 0.8, j)), np.exp(rng.normal(-1.5, 0.3, j))
    later, delay = rng.uniform(20, 80, n), rng.choice([1.0, 7, 14, 30, 60, 90, 180], n)
    sooner = np.minimum(rng.uniform(5, 40, n), later)
    y = (rng.random(n) < expit(b[g] * (later / (1 + k[g] * delay) - sooner))).astype(int)
    data = {"N": n, "J": j, "g": g + 1, "later": later, "delay": delay, "sooner": sooner, "y": y}
    own = Analysis.of(parse(canonical_code(DISCOUNTING, "discounting"))).likelihood_split()
    found, n_passes = tuning.ridge_mode(sparse_predictors(own, data, n), Progress())
    assert np.abs(found.gradient - 0.1 * found.point).max() < 0.5
    assert np.linalg.eigvalsh(found.precision.toarray()).min() > 1
    assert n_passes < 120


def test_a_region_has_the_bounds_and_the_scales_of_arguments() -> None:
    """A number, a scale, a probability, and a place between 0 and 100; undefined for some parameters."""

    def phi(theta: np.ndarray) -> np.ndarray:
        if theta[3] > 0.9 * np.abs(theta).max():
            raise RunError("undefined")
        return np.array([theta[0], np.exp(theta[1]), expit(theta[2]), 100 * expit(theta[3])])

    prior: Any = SimpleNamespace(phi=phi)
    region = tuning.Region.of(prior, 4, 4, np.random.default_rng(1))
    np.testing.assert_allclose(region.lower, [-np.inf, 1e-3, 1e-3, 1e-3], atol=1e-5)
    np.testing.assert_allclose(region.upper, [np.inf, np.inf, 0.999, 99.999], atol=1e-5)
    assert (region.weights[[0, 2]] == 1).all()
    assert region.weights[3] < 0.01


def test_a_climb_stops_at_a_bound_and_goes_on_elsewhere() -> None:
    """Two arguments with maxima at 1 and 2, of observations of their own; the first may be 0.5 at most."""
    which = np.arange(N) % 2
    counts = np.random.default_rng(2).poisson(np.exp(1.0 + which)).astype(float)
    row = SparseRows(np.eye(2)[which], np.arange(2), (), np.zeros(1), N, 2)
    predictors = SparsePredictors((row,), Poisson(counts, np.ones(N)))
    region = tuning.Region(np.full(2, -np.inf), np.array([0.5, np.inf]), np.ones(2))
    found, _ = tuning.ridge_mode(predictors, Progress(), region=region)
    assert found.point[0] == 0.5
    free, _ = tuning.ridge_mode(predictors, Progress())
    np.testing.assert_allclose(free.point, [1.0, 2.0], atol=0.05)
    assert found.point[1] == pytest.approx(free.point[1], abs=0.01)


def test_other_arguments_move_as_is_best_given_those_at_bounds() -> None:
    """Of two slopes of nearly equal columns, the first is bounded. Steps with this alone cut short led down."""
    rng = np.random.default_rng(3)
    design = rng.standard_normal((N, 1)) + np.array([0.02, 0.05]) * rng.standard_normal((N, 2))
    counts = rng.poisson(np.exp(design @ [2.0, -1.5])).astype(float)
    predictors = SparsePredictors(
        (SparseRows(design, np.arange(2), (), np.zeros(1), N, 2),), Poisson(counts, np.ones(N))
    )
    region = tuning.Region(np.full(2, -np.inf), np.array([0.1, np.inf]), np.ones(2))
    found, n_passes = tuning.ridge_mode(predictors, Progress(), region=region)
    along = [np.array([0.1, second]) for second in np.linspace(0, 1, 1001)]
    assert found.point[0] == 0.1
    assert region.with_ridge(found.value, found.point) == pytest.approx(
        max(region.with_ridge(predictors.log_lik(one), one) for one in along), abs=0.1
    )
    assert n_passes < 15


def test_a_search_that_hardly_gains_ends() -> None:
    """A curved valley that rises by 5 over its length, in hundreds of short steps."""

    def log_lik(phi: np.ndarray) -> float:
        x, y = phi
        return float(x - 1e4 * (y - np.sin(20 * x) / 20) ** 2)

    def expansion(phi: np.ndarray) -> Quadratic:
        x, y = phi
        off, slope, curve = y - np.sin(20 * x) / 20, -np.cos(20 * x), 20 * np.sin(20 * x)
        gradient = np.array([1.0, 0.0]) - 2e4 * off * np.array([slope, 1.0])
        precision = 2e4 * (np.outer([slope, 1.0], [slope, 1.0]) + off * np.diag([curve, 0.0]))
        return Quadratic.of(phi, log_lik(phi), gradient, sp.csr_array(precision))

    valley: Any = SimpleNamespace(dim=2, log_lik=log_lik, expansion=expansion)
    found, n_passes = tuning.ridge_mode(valley, Progress())
    assert found.value < 1
    assert n_passes < 60
