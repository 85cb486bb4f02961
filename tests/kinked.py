"""Likelihoods with kinks: quantile regression as brms writes it, and absolute errors about a line."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from stansub.stan.observations.observation import follow
from stansub.stan.observations.predictors import _dense
from stansub.stan.observations.row_program import in_program
from stansub.stan.syntax import parse
from stansub.target.remainders import LinearPredictors

Array = NDArray[np.float64]

# Functions of brms.
ASYM_LAPLACE = """
real rho_quantile(real y, real quantile) {
  if (y < 0) {
    return y * (quantile - 1);
  } else {
    return y * quantile;
  }
}
real asym_laplace_lpdf(real y, real mu, real sigma, real quantile) {
  return log(quantile * (1 - quantile)) - log(sigma) - rho_quantile((y - mu) / sigma, quantile);
}"""

SCALE = 0.7
_TEXT = f"""
data {{ int N; vector[N] x; vector[N] y; }}
parameters {{ real a; real b; }}
model {{ y ~ double_exponential(a + b * x, {SCALE}); }}
"""

_EFFECTS = f"""
data {{ int N; int J; vector[N] y; array[N] int g; }}
parameters {{ real a; real t; vector[J] z; }}
model {{ for (n in 1:N) y[n] ~ double_exponential(a + exp(t) * z[g[n]], {SCALE}); }}
"""


@cache
def line(n: int, intercept: float) -> tuple[Array, Array]:
    """Covariate and outcome of absolute errors about a line of slope 1."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal(n)
    return x, intercept + x + rng.laplace(0, SCALE, n)


@cache
def predictors(n: int, intercept: float) -> LinearPredictors:
    """Predictors of the same, with the two coefficients as parameters."""
    x, y = line(n, intercept)
    return _dense(*in_program(follow(parse(_TEXT), {"N": n, "x": x, "y": y}, n).term, n))


@cache
def effects(n: int, intercept: float, effects: tuple[float, ...]) -> LinearPredictors:
    """Predictors of absolute errors about effects of groups, whose parameters are standardised."""
    rng = np.random.default_rng(3)
    g = np.arange(n) % len(effects)
    y = intercept + np.array(effects)[g] + rng.laplace(0, SCALE, n)
    data = {"N": n, "J": len(effects), "y": y, "g": g + 1}
    return _dense(*in_program(follow(parse(_EFFECTS), data, n).term, n))
