"""Kinks of the log likelihood, smoothed on the scale of the posterior for the search for modes.

The scale is that of the outer products of the observations' gradients, which kinks do not affect, at a maximum for some
of the observations. The maximum is found with kinks that are smoothed less and less.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stansub.target.blocks import Blocks
from stansub.target.factors import Evaluator
from stansub.target.remainders import LinearPredictors
from stansub.tuning.climbing import lbfgs
from stansub.types import FloatArray

# Observations from which the scale is found, widths as multiples of the last ones, iterations with each, and tries to
# find a start with a finite log density.
_MOST, _TIMES, _ITERATIONS, _TRIES = 20_000, (16.0, 4.0, 1.0, 1.0), 100, 100
# Share of a parameter's own information that is added, so that a metric is defined.
_RIDGE = 1e-8
_NONE = np.empty(0, np.int32)


@dataclass(frozen=True)
class Smoothing:
    """A place, and the factor of a covariance there for all observations, on whose scale kinks are smoothed."""

    anchor: FloatArray
    cholesky: FloatArray

    @classmethod
    def of(
        cls, predictors: LinearPredictors, evaluator: Evaluator, rng: np.random.Generator, *, threads: int = 1
    ) -> Smoothing:
        """Return the place and scale of a posterior; the evaluator gives its global part."""
        n = predictors.n_observations
        rows = np.sort(rng.choice(n, min(_MOST, n), replace=False, shuffle=False))
        part = predictors.part(rows)

        def objective(theta: FloatArray) -> tuple[float, FloatArray]:
            own, slope = evaluator.subset_log_density_gradient(theta, _NONE)
            value, gradient = part.gradient_at(theta, threads=threads)
            return own + value, slope + gradient

        theta = np.zeros(predictors.design[0].shape[1])
        for _ in range(_TRIES):
            if np.isfinite(objective(theta)[0]):
                break
            theta = rng.uniform(-2, 2, len(theta))
        for times in _TIMES:
            part = part.smoothed_at(theta, times * _cholesky(part, theta))
            theta, _ = lbfgs(objective, theta, max_iterations=_ITERATIONS)
        return cls(theta, _cholesky(part, theta) * np.sqrt(len(rows) / n))

    def whole(self, predictors: LinearPredictors, *, threads: int = 1) -> LinearPredictors:
        """Return the predictors of all observations, with smooth kinks."""
        return predictors.smoothed_at(self.anchor, self.cholesky, threads=threads)

    def share(self, predictors: LinearPredictors, blocks: Blocks, which: NDArray[np.int32]) -> LinearPredictors:
        """Return those of the observations of some blocks, with kinks that are smoothed on the scale of these."""
        places = np.concatenate([np.arange(blocks.starts[b], blocks.starts[b] + blocks.sizes[b]) for b in which])
        part = predictors.part(places if predictors.order is None else predictors.order[places])
        scale = np.sqrt(predictors.n_observations / len(places))
        return replace(part.smoothed_at(self.anchor, scale * self.cholesky), constant=0.0)


def _cholesky(part: LinearPredictors, theta: FloatArray) -> FloatArray:
    """Return a factor of the inverse of the sum of outer products of gradients."""
    with np.errstate(over="ignore", invalid="ignore"):
        (slopes,) = part.family.derivatives((1,), part.at(theta))
        information = part.hessian(slopes[:, np.newaxis] * slopes)
    scales = np.sqrt(np.diag(information))
    scales[~((scales > 0) & np.isfinite(scales))] = 1.0
    scaled = np.nan_to_num(information / np.outer(scales, scales)) + _RIDGE * np.eye(len(scales))
    return np.asarray(np.linalg.inv(np.linalg.cholesky(scaled)).T / scales[:, np.newaxis])
