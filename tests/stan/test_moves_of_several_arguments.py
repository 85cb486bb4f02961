"""Moves of coefficients in several arguments that change no log likelihood: location and scale of ordinal outcomes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stansub.stan.analysis import Analysis
from stansub.stan.data.data import load
from stansub.stan.sparse import follow_likelihood
from stansub.stan.syntax import parse
from stansub.target.sparse import SparsePredictors
from stansub.target.symmetries import Symmetry, symmetries

N, P, Q, K = 400, 20, 12, 4
CODE = """
data { int N; int P; int Q; int K; array[N] int y; array[N] int p; array[N] int q; vector[N] x; }
parameters { ordered[K - 1] c; real b; vector[P] shift; vector[P] d; vector[Q] stim; real<lower=0> tau; }
model {
  c ~ normal(0, 3);
  b ~ normal(0, 1);
  shift ~ normal(0, tau);
  d ~ normal(0, 1);
  stim ~ normal(0, 1);
  for (n in 1 : N) y[n] ~ ordered_logistic(PREDICTOR, CUTPOINTS);
}
"""
PLAIN = CODE.replace("PREDICTOR", "b * x[n] + stim[q[n]] - shift[p[n]]").replace("CUTPOINTS", "c")
FACTORS = CODE.replace("PREDICTOR", "exp(d[p[n]]) * (b * x[n] + stim[q[n]] - shift[p[n]])")


def followed(code: str) -> SparsePredictors:
    rng = np.random.default_rng(3)
    levels = {name: rng.integers(1, n + 1, N) for name, n in {"y": K, "p": P, "q": Q}.items()}
    data: dict[str, Any] = {"N": N, "P": P, "Q": Q, "K": K, "x": rng.standard_normal(N), **levels}
    program = parse(code)
    values = load(data).checked(program.data.declarations)
    return follow_likelihood(Analysis.of(program), values, "N").predictors


def moved(code: str) -> tuple[SparsePredictors, tuple[Symmetry, ...]]:
    predictors = followed(code)
    found = symmetries(predictors, np.random.default_rng(1))
    x = 0.3 * np.random.default_rng(2).standard_normal(predictors.dim)
    here = predictors.family.log_lik(predictors.at(x))
    for one in found:
        there = predictors.at(one(x, 0.7))
        np.testing.assert_allclose(predictors.family.log_lik(there), here, rtol=1e-9, atol=1e-9)
    return predictors, found


def changed(predictors: SparsePredictors, one: Symmetry) -> int:
    """The number of arguments that a move changes."""
    x = 0.3 * np.random.default_rng(2).standard_normal(predictors.dim)
    return int((np.abs(predictors.at(one(x, 0.7)) - predictors.at(x)).max(axis=1) > 1e-9).sum())


@pytest.mark.parametrize("code", [PLAIN, FACTORS.replace("CUTPOINTS", "exp(d[p[n]]) * c")])
def test_effects_and_cutpoints_are_shifted(code: str) -> None:
    predictors, found = moved(code)
    assert [changed(predictors, one) for one in found if not len(one.scaled)] == [0, 2, 2]


def test_discriminations_divide_effects_and_cutpoints() -> None:
    predictors, found = moved(FACTORS.replace("CUTPOINTS", "exp(d[p[n]]) * c"))
    (scale,) = (one for one in found if len(one.scaled))
    assert changed(predictors, scale) == K + 1
    assert len(scale.scaled) == 2 + P + Q


def test_cutpoints_without_the_factor_have_a_location_only_in_it() -> None:
    _, found = moved(FACTORS.replace("CUTPOINTS", "c"))
    assert not any(one.direction[:3].any() for one in found)
