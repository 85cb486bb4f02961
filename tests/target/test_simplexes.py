"""The Lagrangian of likelihoods whose arguments are logarithms of simplexes."""

from typing import Any

import numpy as np
import pytest

from stansub.stan.analysis import Analysis
from stansub.stan.sparse import sparse_predictors
from stansub.stan.syntax import parse
from stansub.stan.toolchain.stanc import canonical_code
from stansub.target.approximation import Approximation
from stansub.target.cholesky import is_definite
from stansub.target.simplexes import Simplexes
from stansub.target.sparse import SparsePredictors
from stansub.types import FloatArray

N, C, ITEMS = 2_000, 2, 4
CLASSES = """
data { int N; int C; int I; array[N, I] int y; }
parameters { simplex[C] share; array[C] vector<lower=0, upper=1>[I] p; }
model {
  for (n in 1 : N) {
    vector[C] lp = log(share);
    for (c in 1 : C) lp[c] += bernoulli_lpmf(y[n] | p[c]);
    target += log_sum_exp(lp);
  }
}
"""
K = C * ITEMS
SIMPLEXES = Simplexes((*(np.array([k, K + k]) for k in range(K)), np.array([2 * K, 2 * K + 1])))


@pytest.fixture(scope="module")
def found() -> tuple[SparsePredictors, Approximation, FloatArray]:
    """The likelihood, its approximation about the true parameters, and logits near these, shape (n, k)."""
    rng = np.random.default_rng(3)
    p, kind = np.array([[0.2, 0.3, 0.1, 0.4], [0.7, 0.8, 0.9, 0.5]]), (rng.random(N) < 0.3).astype(int)
    y = (rng.random((N, ITEMS)) < p[kind]).astype(int)
    own = Analysis.of(parse(canonical_code(CLASSES, "classes"))).likelihood_split()
    names = {one.name: one for one in own.arguments}
    assert len(names) == 3
    predictors = sparse_predictors(own, {"N": N, "C": C, "I": ITEMS, "y": y}, N)
    logits = np.concatenate([np.log(p / (1 - p)).ravel(), [np.log(7 / 3)]])
    near = logits + 0.02 * rng.standard_normal((200, K + 1))
    quadratic = predictors.expansion(phi(logits))
    return predictors, Approximation.on_simplexes(quadratic, SIMPLEXES, list(map(phi, near))), near


def phi(logits: FloatArray) -> FloatArray:
    """Return the arguments: logarithms of probabilities, of their complements, and of the shares."""
    yes, no = -np.logaddexp(0, -logits), -np.logaddexp(0, logits)
    return np.concatenate([yes[:-1], no[:-1], [yes[-1], no[-1]]])


def test_it_is_the_likelihood_on_the_surface_and_bends_down(found: tuple[Any, ...]) -> None:
    predictors, about, near = found
    omitted = np.array([predictors.log_lik(at) - about(at) for at in map(phi, near)])
    spread = np.std([predictors.log_lik(at) for at in map(phi, near)])
    assert np.abs(omitted).max() < 0.05 * spread
    assert is_definite(about.precision)
    assert not is_definite(about.quadratic.precision)


def test_its_expansion_alone_is_large_far_away(found: tuple[Any, ...]) -> None:
    predictors, about, near = found
    rng = np.random.default_rng(4)
    far = [phi(near[0] + 12 * rng.choice([-1, 1], K + 1)) for _ in range(50)]
    assert max(about.quadratic(at) - predictors.log_lik(at) for at in far) > 1_000
    assert all(about(at) < predictors.log_lik(at) for at in far)


def test_profiles_are_what_the_expansion_omits_of_the_constraint(found: tuple[Any, ...]) -> None:
    _, about, near = found
    slope = about.surface.slope
    for at in map(phi, near[:20]):
        d = at - about.point
        exact = -float(slope @ (np.expm1(d) - d - 0.5 * d**2))
        assert about.profiles.value(d) == pytest.approx(exact, abs=1e-4)


def test_gradients(found: tuple[Any, ...]) -> None:
    _, about, near = found
    at, h = phi(near[1]), 1e-5
    for k in range(len(at)):
        step = h * (np.arange(len(at)) == k)
        assert about.gradient(at)[k] == pytest.approx(
            (about(at + step) - about(at - step)) / (2 * h), rel=1e-5, abs=1e-3
        )


def test_without_simplexes_nothing_is_added(found: tuple[Any, ...]) -> None:
    _, about, near = found
    plain = Approximation.on_simplexes(about.quadratic, Simplexes(), list(map(phi, near)))
    at = phi(near[2])
    assert plain(at) == about.quadratic(at)
    assert plain.precision is plain.quadratic.precision
