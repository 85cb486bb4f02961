"""Scalable Metropolis-Hastings (Cornish, Vanetti, Bouchard-Cote, Deligiannidis and Doucet 2019, ICML), SMH-2.

Code of our own after the paper. A factor an observation, with control variates of second order about the mode; the
prior is normal, so that its expansion is exact. With s = 1 / (6 sqrt 3) the largest third derivative, observation i's
remainder changes by at most psi_i (|theta - mode|^3 + |theta' - mode|^3), psi_i = s max_j |x_ij|^3 / 6, where offsets
are measured by the sum of their absolute values, in the coordinates of the program (equation 13 there).

Proposals are preconditioned Crank-Nicolson about the mode, which leave the normal approximation as it is, so that only
what the posterior differs by decides; a random walk would be rejected for its length as well, at the same cost. How
much of an offset is kept is chosen in warmup, as what gives most effective draws a second. Chains start from the normal
approximation.

The variant ``euclidean`` has psi_i = s |z_i|^3 / 6 and Euclidean norms of offsets: tighter where covariates are dense.
"""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite import logistic
from suite.base import Run, Task
from suite.logistic import Chains, Normal, Regression, effective_share

FloatArray = NDArray[np.float64]

_DRAWS, _STRETCH, _PILOT = 50_000, 500, 2000
_KEEP = (0.0, 0.5, 0.8, 0.95)
_THIRD_DERIVATIVE = 1 / (6 * np.sqrt(3))


def table(regression: Regression, mode: FloatArray, *, euclidean: bool) -> FloatArray:
    """Rows of the factors, shape (n, d + 2); the last column is psi."""
    z = regression.rows
    size = np.sqrt(np.einsum("ij,ij->i", z, z)) if euclidean else np.abs(z).max(axis=1)
    return np.column_stack([z, z @ mode, _THIRD_DERIVATIVE / 6 * size**3])


class ScalableMH:
    """Chains of scalable Metropolis-Hastings.

    Parameters
    ----------
    kernels : module
        `suite.kernels`.
    rows : ndarray, shape (n, d + 2)
        From `table`.
    normal : Normal
    rngs : list of Generator
        One a chain.
    euclidean : bool
        The norm of offsets.
    """

    def __init__(
        self,
        kernels: ModuleType,
        rows: FloatArray,
        normal: Normal,
        rngs: list[np.random.Generator],
        *,
        euclidean: bool = False,
    ) -> None:
        self._kernels, self._normal, self._rngs = kernels, normal, rngs
        psi = rows[:, -1].copy()
        self._factors = kernels.Factors(rows, *kernels.alias_table(psi), float(psi.sum()), euclidean)
        self._root = np.linalg.cholesky(normal.covariance)
        self._at = [self._root @ rng.standard_normal(len(self._root)) for rng in rngs]
        self.keep = _KEEP[0]

    def advance(self, number: int, draws: FloatArray) -> Any:
        """A step a draw."""
        proposal = self._kernels.Proposal(self._root, -self._normal.gradient, self.keep)
        return self._kernels.scalable_mh(self._rngs[number], self._at[number], draws, self._factors, proposal)

    def tune(self, chains: Chains, until: float) -> int:
        """Take what gives most effective draws a second in short runs."""
        rates, evaluated = [], 0
        for self.keep in _KEEP:
            draws, counts, seconds = chains.draws(self, (_PILOT, len(self._root)), stretch=_STRETCH, until=until)
            rates.append(effective_share(draws) * draws[..., 0].size / seconds)
            evaluated += sum(one.evaluated for one in counts)
        self.keep = _KEEP[int(np.argmax(rates))]
        return evaluated

    def theta(self, draws: FloatArray) -> FloatArray:
        """Offsets are from the mode."""
        return self._normal.mode + draws

    def about(self) -> str:
        """What of an offset proposals keep."""
        return f"proposals keep {self.keep:g} of the offset from the mode"


def build(
    kernels: ModuleType, regression: Regression, normal: Normal, rngs: list[np.random.Generator], *, euclidean: bool
) -> ScalableMH:
    """The chains on a regression."""
    rows = table(regression, normal.mode, euclidean=euclidean)
    return ScalableMH(kernels, rows, normal, rngs, euclidean=euclidean)


def run(task: Task, *, euclidean: bool = False) -> Run:
    """Scalable Metropolis-Hastings on a workload."""
    return logistic.run(task, partial(build, euclidean=euclidean), draws=_DRAWS, stretch=_STRETCH)
