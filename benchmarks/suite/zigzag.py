"""The zig-zag process with control variates (Bierkens, Fearnhead and Roberts 2019, Annals of Statistics 47), ZZ-CV.

Code of our own after the paper. The partial derivatives of the potential are estimated from one observation, picked
evenly, as the gradient at the mode and n times the observation's change since; the prior's part is exact. An estimate
of coordinate k changes by at most C_k |theta - mode|, where C_k is n / 4 max_i |x_ik| |z_i| and the prior's precision,
so that the rate of switching is bounded by a_k + b_k t (section 5 there, Euclidean norms). Velocities are 1 and -1 in
the coordinates of the program; the variant ``scaled`` divides every coordinate by its sd in the normal approximation,
so that the process is as fast in all of them.

Draws are the positions at equally spaced times. The spacing is chosen in warmup such that there are about ten draws to
an effective one: fewer would lose some of what the trajectory tells, more would add nothing but draws. Chains start
from the normal approximation; the trial runs are their warmup.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite import logistic
from suite.base import Run, Task
from suite.logistic import Chains, Normal, Regression, effective_share

FloatArray = NDArray[np.float64]

_DRAWS, _STRETCH, _PILOT = 50_000, 100, 2000
# Effective draws to a draw: what is aimed at, and what is good enough.
_SHARE, _GOOD = 0.1, (0.06, 0.15)
_ROUNDS = 6
# Times of the widest coordinate's sd: the first spacing.
_FIRST = 0.5


def table(regression: Regression, mode: FloatArray) -> FloatArray:
    """Rows of the rates, shape (n, d + 2)."""
    eta = regression.rows @ mode
    return np.column_stack([regression.rows, eta, 0.5 - 0.5 * np.tanh(0.5 * eta)])


def lipschitz(regression: Regression) -> FloatArray:
    """C_k, shape (d,)."""
    z = regression.rows
    norms = np.sqrt(np.einsum("ij,ij->i", z, z))
    largest = np.array([np.max(np.abs(column) * norms) for column in z.T])
    return len(z) / 4 * largest + regression.prior


class ZigZag:
    """Chains of the zig-zag process.

    Parameters
    ----------
    kernels : module
        `suite.kernels`.
    rates : kernels.Rates
    normal : Normal
        In the coordinates of the process.
    rngs : list of Generator
        One a chain.
    scales : ndarray, shape (d,)
        By which the coordinates of the process are multiplied to have those of the program.
    """

    def __init__(
        self, kernels: ModuleType, rates: Any, normal: Normal, rngs: list[np.random.Generator], scales: FloatArray
    ) -> None:
        self._kernels, self._rates, self._normal, self._rngs, self._scales = kernels, rates, normal, rngs, scales
        root = np.linalg.cholesky(normal.covariance)
        self._at = [root @ rng.standard_normal(len(root)) for rng in rngs]
        self._velocities = [rng.choice([-1.0, 1.0], len(root)) for rng in rngs]
        self.spacing = _FIRST * float(np.sqrt(np.diag(normal.covariance)).max())

    def advance(self, number: int, draws: FloatArray) -> Any:
        """A draw every `spacing`."""
        state = self._rngs[number], self._at[number], self._velocities[number]
        return self._kernels.zigzag(*state, draws, self._rates, self.spacing)

    def tune(self, chains: Chains, until: float) -> int:
        """Bring the spacing to where a draw is a tenth of an effective one."""
        evaluated = 0
        for _ in range(_ROUNDS):
            draws, counts, _seconds = chains.draws(self, (_PILOT, len(self._scales)), stretch=_STRETCH, until=until)
            evaluated += sum(one.evaluated for one in counts)
            share = effective_share(draws)
            # A trial run that the clock ended is too short to tell.
            if draws.shape[1] < _PILOT or _GOOD[0] < share < _GOOD[1]:
                break
            self.spacing *= float(np.clip(_SHARE / share, 0.2, 5.0))
        return evaluated

    def theta(self, draws: FloatArray) -> FloatArray:
        """Offsets are from the mode, in the coordinates of the process."""
        return (self._normal.mode + draws) * self._scales

    def about(self) -> str:
        """The time between two draws."""
        sd = np.sqrt(np.diag(self._normal.covariance)).max()
        return f"draws as far apart as the process takes through {self.spacing / sd:.2g} sds of the widest coordinate"


def build(
    kernels: ModuleType, regression: Regression, normal: Normal, rngs: list[np.random.Generator], *, scaled: bool
) -> ZigZag:
    """The process on a regression, in the program's coordinates or in those divided by their sds."""
    sds = np.sqrt(np.diag(normal.covariance))
    scales = sds if scaled else np.ones_like(sds)
    own = regression.scaled(scales) if scaled else regression
    normal = replace(
        normal,
        mode=normal.mode / scales,
        gradient=normal.gradient * scales,
        covariance=normal.covariance / np.outer(scales, scales),
    )
    rates = kernels.Rates(table(own, normal.mode), normal.gradient, own.prior, lipschitz(own))
    return ZigZag(kernels, rates, normal, rngs, scales)


def run(task: Task, *, scaled: bool = False) -> Run:
    """The zig-zag process on a workload."""
    return logistic.run(task, partial(build, scaled=scaled), draws=_DRAWS, stretch=_STRETCH)
