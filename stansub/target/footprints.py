"""Footprints: which factors depend on which parameters, found from structural zeros of the factors' gradients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stansub.errors import InputError
from stansub.target.factors import Population
from stansub.types import IntArray

# Points at which gradients are evaluated, half width of their box, and number of attempts.
_POINTS, _RADIUS, _TRIES = 3, 1.0, 60
# Maximum number of gradient entries held at a time.
_CHUNK = 1 << 22


@dataclass(frozen=True)
class Footprints:
    """Which factors depend on which parameters."""

    depends: NDArray[np.bool_]
    """Shape (n_factors, dim): whether a factor's log likelihood changes with an unconstrained parameter."""

    def touched_by(self, parameters: ArrayLike) -> IntArray:
        """Return the factors, as int32, that depend on any of the parameters, given by their indices."""
        return np.flatnonzero(self.depends[:, np.asarray(parameters, np.int64)].any(axis=1)).astype(np.int32)


def find_footprints(population: Population, rng: np.random.Generator, *, n_points: int = _POINTS) -> Footprints:
    """Return the footprints of all factors.

    A factor does not depend on a parameter if its derivative is exactly 0 at each of several random points. The points
    are uniform in a box about 0 that shrinks while gradients there are not defined. A derivative that is 0 at one point
    by chance is nonzero at another; a dependence is missed only if the derivative is 0 at all of the points, as in a
    whole region beyond a truncation.

    Raises
    ------
    InputError
        If the gradients of the factors are defined at none of the points tried.
    RuntimeError
        If the population was made without gradients.
    """
    evaluator, dim, n_factors = population.evaluator(), population.dim, len(population.blocks)
    depends = np.zeros((n_factors, dim), np.bool_)
    parts = np.array_split(np.arange(n_factors, dtype=np.int32), -(-n_factors * dim // _CHUNK))
    found = 0
    for attempt in range(_TRIES):
        theta = rng.uniform(-_RADIUS, _RADIUS, dim) * 0.5 ** (attempt // 20)
        try:
            for part in parts:
                depends[part] |= evaluator.block_gradients(theta, part) != 0
        except ValueError:  # not defined here
            continue
        found += 1
        if found == n_points:
            return Footprints(depends)
    if not found:
        raise InputError(f"the gradients of the blocks are not defined at any of {_TRIES} random points")
    return Footprints(depends)
