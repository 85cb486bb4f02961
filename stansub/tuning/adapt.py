"""Adaptation of proposals during warmup, outside the kernel and between batches of steps.

Adaptive Metropolis follows Haario, Saksman and Tamminen (2001), as used by Bardenet et al. (2014, section 4). The scale
is tuned to the acceptance rate that is optimal for Gaussian-like targets (Roberts, Gelman and Gilks 1997; Roberts and
Rosenthal 1998 for Langevin moves).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from stansub.codec import GIVEN
from stansub.errors import InputError
from stansub.kernels.base import Records
from stansub.kernels.proposals import Adapter, RandomWalk, optimal_scale
from stansub.kernels.recipes import Leaf, Leaves
from stansub.kernels.sgld import MiniBatches, Sgld
from stansub.types import FloatArray

# Initial scale on the unconstrained space, where inits are uniform within radius 2.
INITIAL_STEP = 0.1

# Optimal acceptance rate of Langevin moves in many dimensions, and l of their scale l dim^(-1/6) for independent
# standard normals (Roberts and Rosenthal 1998).
LANGEVIN_ACCEPTANCE, _LANGEVIN_SCALE = 0.574, 1.65

# Updates of the scale during which it may change fast.
FAR_UPDATES = 40

# Share of new draws at which the covariance is estimated again; otherwise long warmups would spend their time on it.
_NEW_SHARE = 0.05


def target_acceptance(dim: int) -> float:
    """Return the optimal acceptance rate of a random walk: 0.44 in one dimension, 0.234 in many."""
    return 0.44 if dim == 1 else 0.234


@dataclass(init=False, eq=False)
class ScaleAdapter:
    """Random walk of fixed shape whose scale is tuned to the acceptance rate (Robbins-Monro).

    Parameters
    ----------
    initial_step : float
        Standard deviation of the first steps in each direction.
    """

    shape: FloatArray
    target: float
    _log_scales: list[float]
    _first_scale: int
    _n_updates: int
    n_evaluated: ClassVar[int] = 0

    def __init__(self, dim: int, *, initial_step: float = INITIAL_STEP) -> None:
        if not initial_step > 0:
            raise InputError(f"the step size must be above 0, not {initial_step}")
        self.shape = np.eye(dim)
        self.target = target_acceptance(dim)
        self._log_scales = [float(np.log(initial_step))]
        self._first_scale = 0
        self._n_updates = 0

    def learn(self, records: Records) -> None:
        self.update(records.theta, float(records["accepted"].mean()))

    def update(self, draws: FloatArray, acceptance: float) -> None:
        """Adapt to a batch of draws, shape (n, dim), and the share of its proposals that were accepted."""
        self._n_updates += 1
        # If almost nothing or almost everything is accepted, the scale is off by orders of magnitude.
        far = not 0.25 * self.target < acceptance < 0.5 * (1.0 + self.target)
        gain = max(3.0 * self._n_updates**-0.6, 2.0 if far and self._n_updates < FAR_UPDATES else 0.1)
        self._log_scales.append(self._log_scales[-1] + gain * (acceptance - self.target))

    def proposal(self) -> RandomWalk:
        return RandomWalk(np.exp(self._log_scales[-1]) * self.shape)

    def final(self) -> RandomWalk:
        # The last scale is noisy; the mean over the last quarter of the batches is less so.
        n = len(self._log_scales)
        recent = self._log_scales[max(self._first_scale, n - max(1, n // 4)) :]
        return RandomWalk(np.exp(np.mean(recent)) * self.shape)


@dataclass(frozen=True)
class FirstWalk(RandomWalk):
    """Initial random walk of the adaptation of the scale and, as in adaptive Metropolis, the covariance."""

    covariance: bool = True
    """Whether to adapt the covariance as well."""

    def adapter(self, dim: int) -> ScaleAdapter:
        """Return the adapter that starts from this walk."""
        adapter = (CovarianceAdapter if self.covariance else ScaleAdapter)(dim, initial_step=1.0)
        adapter.shape = self.cholesky
        return adapter


@dataclass(init=False, eq=False)
class CovarianceAdapter(ScaleAdapter):
    """Adaptive Metropolis: steps have the covariance of the most recent half of the draws.

    The older half is dropped to forget the transient from the inits to the bulk of the posterior. During the transient,
    its drift is the main direction of the covariance, which shortens it.
    """

    _dim: int
    _history: list[FloatArray]
    _learned_at: int

    def __init__(self, dim: int, *, initial_step: float = INITIAL_STEP) -> None:
        super().__init__(dim, initial_step=initial_step)
        self._dim = dim
        self._history = []
        self._learned_at = 0

    def update(self, draws: FloatArray, acceptance: float) -> None:
        super().update(draws, acceptance)
        self._history.append(draws.copy())
        if len(self._history) < (1.0 + _NEW_SHARE) * self._learned_at:
            return
        recent = np.concatenate(self._history[len(self._history) // 2 :])
        n_distinct = 1 + int(np.count_nonzero(np.any(np.diff(recent, axis=0) != 0, axis=1)))
        if n_distinct <= 2 * self._dim and n_distinct < 50:
            return
        with np.errstate(over="ignore", invalid="ignore"):
            covariance = np.atleast_2d(np.cov(recent, rowvar=False))
        # If the posterior is improper, draws may run to infinity.
        if not (np.isfinite(covariance).all() and np.all(np.diag(covariance) > 0)):
            return
        if not self._learned_at:
            # Scales for the identity do not transfer to the covariance.
            self._first_scale = len(self._log_scales)
            self._log_scales.append(float(np.log(optimal_scale(self._dim))))
        self._learned_at = len(self._history)
        self.shape = np.asarray(np.linalg.cholesky(shrunk(covariance, n_distinct)), dtype=np.float64)


def shrunk(covariance: FloatArray, n: int) -> FloatArray:
    """Return a covariance of ``n`` different draws with smaller correlations, so that it is regular if they are few."""
    weight = (2.0 * len(covariance) / (n + 2.0 * len(covariance))) ** 2
    return np.asarray((1 - weight) * covariance + weight * np.diag(np.diag(covariance)))


@dataclass(init=False, eq=False)
class SgldAdapter:
    """Stochastic-gradient Langevin moves whose step size is tuned to the acceptance rate.

    Parameters
    ----------
    batches : MiniBatches
        The chain's own.
    cholesky : ndarray, shape (dim, dim), optional
        Covariance factor that preconditions moves, such as that of the Laplace approximation. Without it, moves start
        as in the paper and learn it as `CovarianceAdapter` does.
    """

    batches: MiniBatches = field(metadata=GIVEN)
    _walk: ScaleAdapter

    def __init__(self, batches: MiniBatches, dim: int, *, cholesky: FloatArray | None = None) -> None:
        self.batches = batches
        if cholesky is None:
            self._walk = CovarianceAdapter(dim)
        else:
            self._walk = ScaleAdapter(dim, initial_step=_LANGEVIN_SCALE * dim ** (-1 / 6))
            self._walk.shape = cholesky
        self._walk.target = LANGEVIN_ACCEPTANCE

    @property
    def n_evaluated(self) -> int:
        return self.batches.n_evaluated

    def learn(self, records: Records) -> None:
        self._walk.learn(records)

    def proposal(self) -> Sgld:
        return Sgld(self.batches, self._walk.proposal().cholesky)

    def final(self) -> Sgld:
        return Sgld(self.batches, self._walk.final().cholesky)


@dataclass(eq=False)
class SomeAdapter:
    """Adapter that sees some of the parameters: those, by index, that its proposal moves."""

    _adapter: Adapter
    _places: NDArray[np.int64]

    @property
    def n_evaluated(self) -> int:
        return self._adapter.n_evaluated

    def learn(self, records: Records) -> None:
        self._adapter.learn(Records(records.theta[:, self._places], records.stats))

    def proposal(self) -> Any:
        return self._adapter.proposal()

    def final(self) -> Any:
        return self._adapter.final()


@dataclass(eq=False)
class PartAdapters:
    """Adapters of a kernel's parts by name; each sees the statistics of its part."""

    _parts: dict[str, Adapter]

    @property
    def n_evaluated(self) -> int:
        return sum(adapter.n_evaluated for adapter in self._parts.values())

    def learn(self, records: Records) -> None:
        made = records.stats.get("component")
        for number, (name, adapter) in enumerate(self._parts.items()):
            own = records if made is None else records.rows(np.flatnonzero(made == number))
            if len(own):
                stats = {
                    key.removeprefix(f"{name}."): one for key, one in own.stats.items() if key.startswith(f"{name}.")
                }
                adapter.learn(Records(own.theta, stats))

    def proposal(self) -> Any:
        return {name: adapter.proposal() for name, adapter in self._parts.items()}

    def final(self) -> Any:
        return {name: adapter.final() for name, adapter in self._parts.items()}


def adapter_of(leaves: Leaves, dim: int, make: Callable[[Leaf], Adapter]) -> Adapter:
    """Return the adapter of a kernel on ``dim`` parameters, from its leaves and a function that adapts one proposal."""
    if isinstance(leaves, Leaf):
        adapter = make(leaves)
        return adapter if len(leaves.places) == dim else SomeAdapter(adapter, leaves.places)
    return PartAdapters({name: adapter_of(part, dim, make) for name, part in leaves.items()})
