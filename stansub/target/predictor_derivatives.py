"""The log density and its derivatives for likelihoods of linear predictors, without autodiff over the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stansub.target.gradients import Objective, ParallelEvaluator, Team, differenced
from stansub.target.partitioned import Predictors
from stansub.target.remainders import LinearPredictors
from stansub.types import FloatArray

_NONE = np.empty(0, np.int32)


class PredictorObjective(Objective):
    """The log density, like `Objective` of all blocks, from predictors and the global part.

    Parameters
    ----------
    predictors : Predictors
        Proved predictors; they give the log likelihoods up to a constant that is computed once. Kinks are smooth.
    which : ndarray of int32, optional
        Blocks that have the observations of the predictors; by default all.
    """

    def __init__(self, team: Team, predictors: Predictors, which: NDArray[np.int32] | None = None) -> None:
        super().__init__(team, which)
        self._predictors, self._evaluator = predictors, team.population.evaluator()
        self._constant = predictors.constant
        self._latest: _Pass | None = None

    def many(
        self, points: FloatArray, *, watch: Callable[[int, int], None] = lambda done, total: None
    ) -> tuple[FloatArray, FloatArray]:
        """Return the results of `Objective.many`."""
        values, gradients = np.empty(len(points)), np.empty(points.shape)
        for k, theta in enumerate(points):
            own, slope = self._evaluator.subset_log_density_gradient(theta, _NONE)
            found = self._at(theta)
            values[k], gradients[k] = own + self.weight * found.value, slope + self.weight * found.gradient
            watch(k + 1, len(points))
        defined = np.isfinite(gradients).all(1) & ~np.isnan(values)
        return np.where(defined, values, -np.inf), np.where(defined[:, np.newaxis], gradients, np.nan)

    def value(self, theta: FloatArray) -> float:
        """Return the result of `Objective.value`, without a gradient of all observations."""
        if self._constant is None or self._predictors.family.floor or self._known(theta) is not None:
            return super().value(theta)
        self.team.progress.check()
        own, _ = self._evaluator.subset_log_density_gradient(theta, _NONE)
        each = self._predictors.ask(LogLikelihood(theta), threads=self.team.threads)
        self.team.observations += self._n_obs
        value = own + sum(each) + self._constant
        return -np.inf if np.isnan(value) else value

    @property
    def hessian_passes(self) -> float:
        """Return the cost of a Hessian, as in `Objective.hessian_passes`."""
        return self._predictors.hessian_passes()

    @property
    def curvature(self) -> str:
        """Return how Hessians are computed, as in `Objective.curvature`."""
        return "a pass over all the data"

    def hessian(self, theta: FloatArray, steps: FloatArray) -> FloatArray:
        """Return the result of `Objective.hessian`; only the global part is differenced."""
        own = differenced(lambda at: self._evaluator.subset_log_density_gradient(at, _NONE)[1], theta, steps)
        self.team.progress.check()
        with np.errstate(over="ignore", invalid="ignore"):
            return own + self.weight * self._predictors.hessian_at(theta, threads=self.team.threads)

    def _at(self, theta: FloatArray) -> _Pass:
        """Return a pass over all observations, or the latest one if it was at the same place."""
        found = self._latest = self._known(theta) or self._pass(theta)
        return found

    def _known(self, theta: FloatArray) -> _Pass | None:
        latest = self._latest
        return latest if latest is not None and np.array_equal(latest.theta, theta) else None

    def _pass(self, theta: FloatArray) -> _Pass:
        self.team.progress.check()
        value, gradient = self._predictors.gradient_at(theta, threads=self.team.threads)
        if self._constant is None and np.isfinite(value):
            with Team(self.team.population.in_passing(), threads=self.team.threads) as team:
                self._constant = float(ParallelEvaluator(team).block_log_lik(theta).sum()) - value
        self.team.observations += self._n_obs
        return _Pass(theta.copy(), value + (self._constant or 0.0), gradient)


class _Pass(NamedTuple):
    """Log likelihood of all observations at a place, with its gradient."""

    theta: FloatArray
    value: float
    gradient: FloatArray


@dataclass(frozen=True)
class LogLikelihood:
    """Request for the sum of log likelihoods at ``theta``, up to a constant."""

    theta: FloatArray

    def answer(self, holder: LinearPredictors, *, threads: int = 1) -> float:
        """Return the sum over the holder's observations."""

        def of(part: LinearPredictors, _: slice) -> float:
            return float(part.family.log_lik(part.at(self.theta)).sum())

        return float(sum(holder.map(of, threads=threads)))
