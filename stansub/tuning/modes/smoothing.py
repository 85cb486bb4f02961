"""Kinks of the log likelihood, smoothed on the scale of the posterior for the search for modes.

The scale is that of the outer products of the observations' gradients, which kinks do not affect, and of the curvatures
of the prior, at a maximum for some of the observations. The maximum is found with kinks that are smoothed less and
less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stansub.target.gradients import Team, default_steps, differenced
from stansub.target.predictor_derivatives import PredictorObjective
from stansub.target.remainders import LinearPredictors
from stansub.tuning.modes.climbing import lbfgs
from stansub.types import FloatArray

# Observations from which the scale is found, widths as multiples of the last ones, iterations with each, and tries to
# find a start with a finite log density.
_MOST, _TIMES, _ITERATIONS, _TRIES = 20_000, (16.0, 4.0, 1.0, 1.0), 100, 100
# Share of a parameter's own information that is added, so that a metric is defined.
_RIDGE = 1e-8
_NONE = np.empty(0, np.int32)


class SmoothObjectives:
    """Log densities of all and of some observations, with smooth kinks.

    Parameters
    ----------
    predictors : LinearPredictors
        Predictors of all observations, whose log likelihoods have kinks.
    rng : Generator
        Selects the observations from which the scale is found.
    """

    def __init__(self, team: Team, predictors: LinearPredictors, rng: np.random.Generator) -> None:
        self._team, self._predictors = team, predictors
        self._anchor, self._cholesky = _found(team, predictors, rng)

    def whole(self) -> PredictorObjective:
        """Return the log density of all the data."""
        smooth = self._predictors.smoothed_at(self._anchor, self._cholesky, threads=self._team.threads)
        return PredictorObjective(self._team, smooth)

    def share(self, which: NDArray[np.int32]) -> PredictorObjective:
        """Return that of some blocks, with kinks that are smoothed on the scale of these."""
        blocks, order = self._team.population.blocks, self._predictors.order
        places = np.concatenate([np.arange(blocks.starts[b], blocks.starts[b] + blocks.sizes[b]) for b in which])
        part = self._predictors.part(places if order is None else order[places])
        scale = np.sqrt(self._predictors.n_observations / len(places))
        smooth = part.smoothed_at(self._anchor, scale * self._cholesky)
        return PredictorObjective(self._team, replace(smooth, constant=0.0), which)


def _found(team: Team, predictors: LinearPredictors, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Return a maximum for some observations, and the factor of a covariance for all of them there."""
    n, evaluator = predictors.n_observations, team.population.evaluator()
    rows = np.sort(rng.choice(n, min(_MOST, n), replace=False, shuffle=False))
    part = predictors.part(rows)

    def prior(theta: FloatArray) -> tuple[float, FloatArray]:
        return evaluator.subset_log_density_gradient(theta, _NONE)

    def objective(theta: FloatArray) -> tuple[float, FloatArray]:
        own, slope = prior(theta)
        value, gradient = part.gradient_at(theta, threads=team.threads)
        return own + value, slope + gradient

    theta = np.zeros(team.population.dim)
    for _ in range(_TRIES):
        if np.isfinite(objective(theta)[0]):
            break
        theta = rng.uniform(-2, 2, len(theta))
    for times in _TIMES:
        part = part.smoothed_at(theta, times * _cholesky(part, theta, _curvatures(prior, theta)))
        theta, _ = lbfgs(objective, theta, max_iterations=_ITERATIONS)
    share = len(rows) / n
    return theta, _cholesky(part, theta, share * _curvatures(prior, theta)) * np.sqrt(share)


def _curvatures(prior: Callable[[FloatArray], tuple[float, FloatArray]], theta: FloatArray) -> FloatArray:
    """Return how far the prior bends down along each parameter, 0 where it bends up or is undefined."""
    curvatures = -np.diag(differenced(lambda at: prior(at)[1], theta, default_steps(theta)))
    return np.where((curvatures > 0) & np.isfinite(curvatures), curvatures, 0.0)


def _cholesky(part: LinearPredictors, theta: FloatArray, own: FloatArray) -> FloatArray:
    """Return a factor of the inverse of the sum of outer products of gradients, with own information added.

    Without the prior's, scales of effects that are all 0, and means of effects, would have no information.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        (slopes,) = part.family.derivatives((1,), part.at(theta))
        information = part.hessian(slopes[:, np.newaxis] * slopes) + np.diag(own)
    scales = np.sqrt(np.diag(information))
    scales[~((scales > 0) & np.isfinite(scales))] = 1.0
    scaled = np.nan_to_num(information / np.outer(scales, scales)) + _RIDGE * np.eye(len(scales))
    return np.asarray(np.linalg.inv(np.linalg.cholesky(scaled)).T / scales[:, np.newaxis])
