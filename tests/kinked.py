"""Likelihoods with kinks: quantile regression as brms writes it, and absolute errors about a line."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from stansub.stan.observation import follow
from stansub.stan.predictors import _dense
from stansub.stan.row_program import in_program
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
