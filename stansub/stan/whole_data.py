"""A posterior that is not cut into blocks, for moves that use no single observations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from stansub._loop import FunctionEvaluator
from stansub.errors import RunError
from stansub.target.blocks import Blocks
from stansub.target.split import Differentiable
from stansub.types import FloatArray


@dataclass(frozen=True)
class OneBlock:
    """All observations as one block, which is the same however it is used."""

    n_observations: int

    @property
    def blocks(self) -> Blocks:
        """Return a single block."""
        return Blocks(self.n_observations, self.n_observations)

    def in_passing(self) -> Self:
        """Return itself."""
        return self

    def in_bulk(self) -> Self:
        """Return itself: it is one block."""
        return self

    def recut(self, size: int) -> Self:
        """Return itself: there are no smaller blocks."""
        return self

    def single(self, places: NDArray[np.int64]) -> FunctionEvaluator:
        """Raise an error: observations are not evaluated one by one."""
        raise RunError("this posterior is not cut into blocks of observations")


@dataclass(frozen=True)
class Uncut(OneBlock):
    """All observations as one block, whose value is the whole log density; the global part is 0."""

    kind: ClassVar[Literal["uncut"]] = "uncut"

    model: Differentiable
    """The user's program with all the data, or with shares of them."""

    @property
    def dim(self) -> int:
        """Return the number of unconstrained parameters."""
        return self.model.dim

    def evaluator(self) -> FunctionEvaluator:
        """Return a new evaluator of the block."""
        return FunctionEvaluator(self.dim, 1, lambda theta: 0.0, self._values, self._gradient)

    def _values(self, theta: FloatArray, which: NDArray[np.int32]) -> FloatArray:
        return np.full(len(which), self.model.log_density(theta))

    def _gradient(self, theta: FloatArray, which: NDArray[np.int32]) -> tuple[float, FloatArray] | None:
        if not which.size:
            return 0.0, np.zeros(self.dim)
        try:
            return self.model.log_density_gradient(theta)
        except RunError:
            return None
