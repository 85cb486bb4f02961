"""Posteriors of numpy functions as input of `sample`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stansub.stan.analysis import Analysis
from stansub.stan.data.data import Data
from stansub.stan.posterior import Posterior
from stansub.stan.proof import Proof, draw_points
from stansub.stan.syntax import Program
from stansub.target.functions import FunctionFactors


@dataclass(frozen=True)
class FunctionRecipe:
    """Recipe for a posterior whose functions can be pickled."""

    factors: FunctionFactors

    def make(self, progress: Callable[[str], None] | None = None) -> Posterior:
        """Return the posterior."""
        return posterior_of(self.factors)


def posterior_of(factors: FunctionFactors) -> Posterior:
    """Return the posterior of functions for sampling; it needs no proof, because its factors define it.

    Instead of code and data, log densities at a few points, to ten digits, identify it.
    """
    points = draw_points(np.random.default_rng(0), factors)
    facts = {
        "names": factors.names,
        "n_observations": factors.blocks.n_observations,
        "log_density": [f"{factors.log_density(theta):.9e}" for theta in points],
    }
    return Posterior(
        full=factors,
        population=factors,
        order=None,
        proof=Proof(0, 0.0),
        name=factors.name,
        analysis=Analysis.of(Program("")),
        values=Data(facts, (), factors.name),
        sizes=(),
        points=points,
        has_gradients=factors.has_gradients,
        known_predictors=factors.known_predictors,
    )
