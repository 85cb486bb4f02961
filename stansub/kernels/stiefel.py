"""Random walk on matrices with orthonormal rows, the Stiefel manifold (Korattikara et al. 2014, section 5.2).

The walk is that of Ouyang (2008), as that section describes it. The target density is with respect to the uniform
measure on the manifold. The proposal never leaves the manifold, so the density elsewhere does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from stansub.errors import InputError
from stansub.kernels.base import Records
from stansub.kernels.proposals import Adapter, BuiltIn, NoAdapter
from stansub.types import FloatArray

# Initial scale if it is adapted, and its maximum, at which directions are nearly uniform.
_FIRST, _LARGEST = 0.1, 10.0

# Optimal acceptance rate of a random walk in one dimension, because most moves are rotations by one angle.
_ACCEPTANCE = 0.44

# Tolerated deviation of a position's rows from orthonormality; the moves themselves keep it to rounding.
_TOLERANCE = 1e-6


@dataclass(frozen=True)
class StiefelWalk(BuiltIn):
    """Random walk that moves one row of an orthonormal matrix to a nearby unit vector orthogonal to the others.

    Row j becomes w_j + scale z, with z standard normal, projected on the orthogonal complement of the fixed rows and
    normalised. A square matrix leaves a row no freedom. In that case another row k is first discarded, and afterwards
    replaced by a unit vector orthogonal to all others. Its sign is random, so that the walk reaches matrices of either
    determinant. j and k are uniform.

    The proposal is symmetric. In the complement, of dimension m, the projection of z is standard normal, so the new row
    has a density on the unit sphere there that depends only on its angle to the old row. The way back has the same
    angle in the same complement, because neither j, k nor the fixed rows change. The sign of row k has probability 1/2
    both ways. The density with respect to the uniform measure is therefore the same both ways, and the log ratio is 0.

    Attributes
    ----------
    rows : int
        Rows of the matrix, at most its columns; elements are stored column by column, as in Stan.
    scale : float or None
        Standard deviation of a step in each direction, 1 / psi in the paper's notation. None adapts it in warmup.

    Raises
    ------
    InputError
        If ``rows`` is less than one or the scale is not positive; when called, if the position is not such a matrix.

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
            # In the plane of the two rows: a quarter turn from the new row.
            turned = sign * ((new[j] @ old[j]) * old[k] - (new[j] @ old[k]) * old[j])
            new[k] = _unit(turned, np.vstack([staying, new[j]]))
        return new.ravel(order="F"), 0.0

    @property
    def smooth(self) -> bool:
        return False

    def adapter(self, dim: int) -> Adapter:
        """Return an adapter of the scale, unless the scale is given."""
        if dim % self.rows or dim < self.rows**2 or dim == 1:
            raise InputError(
                f"{dim} parameters do not form a matrix with {self.rows} orthonormal rows and a free direction"
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
    """Adapter that tunes the scale to the acceptance rate (Robbins-Monro)."""

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
    """Return the unit vector along the part of ``vector`` orthogonal to all ``others``, which are orthonormal.

    Projecting twice makes it orthogonal to rounding, so that errors of earlier moves do not accumulate.
    """
    for _ in range(2):
        vector = vector - (others @ vector) @ others
        vector = vector / np.sqrt(vector @ vector)
    return vector
