"""The log density and its derivatives where the likelihood is of linear predictors: no autodiff over the data."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from stansub.target.gradients import Objective, Team, differenced
from stansub.target.remainders import LinearPredictors
from stansub.types import FloatArray

R = TypeVar("R")

_NONE = np.empty(0, np.int32)


class PredictedObjective(Objective):
    """The log density itself, as `Objective` of all blocks is, from predictors and the global part.

    Parameters
    ----------
    team : Team
    predictors : LinearPredictors
        Proved: what they say of the log likelihoods is taken for granted, up to a constant that is looked up once.
    """

    def __init__(self, team: Team, predictors: LinearPredictors) -> None:
        super().__init__(team)
        self._predictors, self._evaluator = predictors, team.population.evaluator()
        self._constant: float | None = None

    def many(
        self, points: FloatArray, *, watch: Callable[[int, int], None] = lambda done, total: None
    ) -> tuple[FloatArray, FloatArray]:
        """As `Objective.many`."""
        values, gradients = np.empty(len(points)), np.empty(points.shape)
        for k, theta in enumerate(points):
            self.team.progress.check()
            own, slope = self._evaluator.subset_log_density_gradient(theta, _NONE)
            value, gradient = self._log_lik(theta)
            values[k], gradients[k] = own + value, slope + gradient
            watch(k + 1, len(points))
        self.team.observations += len(points) * self._n_obs
        defined = np.isfinite(gradients).all(1) & ~np.isnan(values)
        return np.where(defined, values, -np.inf), np.where(defined[:, np.newaxis], gradients, np.nan)

    def hessian(self, theta: FloatArray, steps: FloatArray) -> FloatArray:
        """As `Objective.hessian`; only the global part is differenced."""
        own = differenced(lambda at: self._evaluator.subset_log_density_gradient(at, _NONE)[1], theta, steps)
        hessians = self._map(lambda part, _: part.derivatives(part.at(theta))[1])
        self.team.observations += self._n_obs
        return np.asarray(own + np.sum(hessians, axis=0))

    def _log_lik(self, theta: FloatArray) -> tuple[float, FloatArray]:
        """Of all observations, with the gradient."""

        def of(part: LinearPredictors, _: slice) -> tuple[float, FloatArray]:
            values, slopes = part.family.derivatives((0, 1), part.at(theta))
            return float(values.sum()), part.gradient(slopes)

        values, gradients = zip(*self._map(of), strict=True)
        if self._constant is None and np.isfinite(sum(values)):
            self._constant = float(self._evaluator.block_log_lik(theta).sum()) - sum(values)
        return sum(values) + (self._constant or 0.0), np.sum(gradients, axis=0)

    def _map(self, work: Callable[[LinearPredictors, slice], R]) -> list[R]:
        with np.errstate(over="ignore", invalid="ignore"):
            return self._predictors.map(work, threads=self.team.threads)
