"""Random walk on matrices with orthonormal rows: the Stiefel manifold (Korattikara et al. 2014, section 5.2).

The walk is that of Ouyang (2008), as that section describes it. The density that is sampled is taken
with respect to the uniform measure on the manifold: the proposal never leaves it, and what the density is elsewhere
counts for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from stansub.errors import InputError
from stansub.kernels.base import Records
from stansub.kernels.proposals import Adapter, BuiltIn, NoAdapter
from stansub.types import FloatArray

# Scale of the first steps where it is learned, and the largest: there directions are all but uniform already.
_FIRST, _LARGEST = 0.1, 10.0

# Optimal acceptance rate of a random walk in one dimension: most moves are rotations by one angle.
_ACCEPTANCE = 0.44

# How far the rows of a position may be from orthonormal; moves themselves keep to rounding.
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class StiefelWalk(BuiltIn):
    """One row of a matrix with orthonormal rows moves to a random unit vector nearby, orthogonal to the others.

    Row j becomes w_j + scale z, z standard normal, projected on the orthogonal complement of the rows that stay and
    brought to unit length. A square matrix leaves a row no room, so that another one, k, is discarded before, and
    becomes afterwards a unit vector orthogonal to all others, with a random sign: there are two, and matrices of
    either determinant are reached. Uniform random j and k.

    The proposal is symmetric. In the complement, of dimension m, the projection of z is standard normal, so that the
    new row has a density on the unit sphere there that depends on its angle to the old one alone; that is the same
    angle on the way back, in the same complement, for neither j, k nor the rows that stay have changed. The sign of
    row k has probability 1/2 both ways. So the density with respect to the uniform measure is the same both ways, and
    the log ratio is 0.

    Attributes
    ----------
    rows : int
        Of the matrix, whose elements stand column by column, as Stan has them; no more than its columns.
    scale : float or None
        Standard deviation of a step in each direction, 1 / psi in the paper's words. None to learn it in warmup.

    Raises
    ------
    InputError
        When there is less than one row or the scale is not positive; when called, if the position is no such matrix.

    Examples
    --------
    >>> import numpy as np, stansub
    >>> centre = np.array([0.0, 0.6, 0.8])
    >>> towards = stansub.FunctionFactors(  # von Mises-Fisher directions: a manifold of one row
    ...     [f"w.1.{j}" for j in (1, 2, 3)], 100, lambda w, which: np.full(len(which), 0.5 * w @ centre)
    ... )
    >>> walk = stansub.StiefelWalk(rows=1)
    >>> idata = stansub.sample(towards, proposal=walk, inits={"w": [[1, 0, 0]]}, seed=1)  # doctest: +SKIP
    """

    rows: int
    scale: float | None = None

    def __post_init__(self) -> None:
        if self.rows < 1 or (self.scale is not None and not 0 < self.scale < np.inf):
            raise InputError(
                "a walk on matrices with orthonormal rows needs at least one row and a positive scale, not "
                f"{self.rows} rows and scale {self.scale}"
            )

    def __call__(self, rng: np.random.Generator, position: FloatArray) -> tuple[FloatArray, float]:
        old = self._matrix(position)
        n, columns = old.shape
        square = n == columns
        moved = rng.permutation(n)[: 1 + square]
        j, k = moved[0], moved[-1]
        staying = np.delete(old, moved, axis=0)
        new = old.copy()
        new[j] = _unit(old[j] + (self.scale or _FIRST) * rng.standard_normal(columns), staying)
        if square:
            sign = 1.0 if rng.random() < 0.5 else -1.0
            # In the plane of the two rows, a quarter turn from the new one.
            turned = sign * ((new[j] @ old[j]) * old[k] - (new[j] @ old[k]) * old[j])
            new[k] = _unit(turned, np.vstack([staying, new[j]]))
        return new.ravel(order="F"), 0.0

    @property
    def smooth(self) -> bool:
        return False

    def adapter(self, dim: int) -> Adapter:
        """Learns the scale unless it is given."""
        if dim % self.rows or dim < self.rows**2 or dim == 1:
            raise InputError(
                f"{dim} parameters do not form a matrix with {self.rows} orthonormal rows and room to move"
            )
        return NoAdapter(self) if self.scale is not None else ScaleLearner(self)

    def _matrix(self, position: FloatArray) -> FloatArray:
        matrix = position.reshape(-1, self.rows).T
        if not np.abs(matrix @ matrix.T - np.eye(self.rows)).max() < _TOLERANCE:
            raise InputError(
                f"the {self.rows} rows of StiefelWalk's matrix are not orthonormal: give each chain `inits` with "
                "orthonormal rows"
            )
        return matrix


@dataclass(eq=False)
class ScaleLearner:
    """The scale follows the acceptance rate (Robbins-Monro)."""

    _walk: StiefelWalk
    _log_scales: list[float] = field(default_factory=lambda: [float(np.log(_FIRST))])
    n_evaluated: ClassVar[int] = 0

    def learn(self, records: Records) -> None:
        gain = max(3.0 * len(self._log_scales) ** -0.6, 0.1)
        moved = self._log_scales[-1] + gain * (float(records["accepted"].mean()) - _ACCEPTANCE)
        self._log_scales.append(min(moved, float(np.log(_LARGEST))))

    def proposal(self) -> StiefelWalk:
        return replace(self._walk, scale=float(np.exp(self._log_scales[-1])))

    def final(self) -> StiefelWalk:
        recent = self._log_scales[-max(1, len(self._log_scales) // 4) :]
        return replace(self._walk, scale=float(np.exp(np.mean(recent))))


def _unit(vector: FloatArray, others: FloatArray) -> FloatArray:
    """The unit vector along the part of ``vector`` that is orthogonal to all ``others``, which are orthonormal.

    Projected twice, which is enough for orthogonality to rounding: errors of earlier moves do not add up.
    """
    for _ in range(2):
        vector = vector - (others @ vector) @ others
        vector = vector / np.sqrt(vector @ vector)
    return vector
