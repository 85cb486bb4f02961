"""Starts of the search for modes: points of different kinds, so that no basin is missed for its location.

``random``
    Uniform on the unconstrained space, like CmdStan's inits.
``prior``
    An approximate draw from the global part: the end of a short random walk that evaluates no data.
``subsample``
    The maximum for a few observations, then for four times as many, each time a random subset: with few data the log
    density has few maxima, and each subset leads elsewhere.
"""

from __future__ import annotations

import numpy as np

from stansub.target.gradients import Objective, Team
from stansub.tuning.modes.climbing import lbfgs
from stansub.types import FloatArray

KINDS = ("random", "prior", "subsample")

# Half width of the cube on the unconstrained space from which starts are drawn, as in CmdStan.
RADIUS = 2.0

_MAX_TRIES = 100
# Steps of the random walk on the global part (minimum, and per parameter) and its longest step, for priors may be flat.
_STEPS, _STEPS_EACH, _LONGEST = 200, 20, 5.0
# Observations of the smallest subsample (minimum, and per parameter), growth factor, and iterations on each.
_LEAST, _LEAST_EACH, _GROWTH, _ITERATIONS = 50, 5, 4, 100


class Starts:
    """Draws points at which the log density is finite.

    Parameters
    ----------
    first : Objective
        The share of the data on which the search starts.
    radius : float
        Half width of the uniform distribution.
    """

    def __init__(self, team: Team, first: Objective, rng: np.random.Generator, radius: float) -> None:
        self._team, self._first, self._rng, self._radius = team, first, rng, radius
        self._evaluator = team.population.evaluator()

    def draw(self, kind: str) -> FloatArray | None:
        """Draw a point of this kind, shape (dim,); None if none with a finite log density is found."""
        begin = self._random()
        if begin is None or kind == "random":
            return begin
        theta = self._from_prior(begin) if kind == "prior" else self._from_subsamples(begin)
        return theta if np.isfinite(self._first(theta)[0]) else begin

    def _random(self) -> FloatArray | None:
        for attempt in range(_MAX_TRIES):
            # The box shrinks while no point is found.
            theta = self._rng.uniform(-self._radius, self._radius, self._first.dim) * 0.5 ** (attempt // 20)
            if np.isfinite(self._first(theta)[0]):
                return theta
        return None

    def _from_prior(self, theta: FloatArray) -> FloatArray:
        """Run random-walk Metropolis on the global part alone, tuning the scale to the acceptance rate."""
        value, scale = self._evaluator.global_log_density(theta), 0.5
        for _ in range(_STEPS + _STEPS_EACH * len(theta)):
            proposed = theta + scale * self._rng.standard_normal(len(theta))
            there = self._evaluator.global_log_density(proposed)
            accepted = np.isfinite(there) and -self._rng.exponential() < there - value
            theta, value = (proposed, there) if accepted else (theta, value)
            scale = min(scale * (1.1 if accepted else 0.96), _LONGEST)
        return theta

    def _from_subsamples(self, theta: FloatArray) -> FloatArray:
        blocks = self._team.population.blocks
        size = -(-max(_LEAST, _LEAST_EACH * len(theta)) // blocks.size)
        while size < len(self._first.which):
            which = np.sort(self._rng.choice(len(blocks), size, replace=False)).astype(np.int32)
            theta, _ = lbfgs(Objective(self._team, which, weight=1.0), theta, max_iterations=_ITERATIONS)
            size *= _GROWTH
        return theta
