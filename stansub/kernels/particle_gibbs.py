"""Particle Gibbs: conditional sequential Monte Carlo for paths of hidden states given the parameters.

A sweep runs a particle filter in which one particle is fixed to the current path, and draws a new path from the
particles (Andrieu, Doucet and Holenstein 2010, section 4.5). It leaves p(path | parameters, data) invariant with two or
more particles. With ancestor sampling (Lindsten, Jordan and Schön 2014, algorithm 2) the current path draws a new
ancestor at each time, so that few particles renew long paths too.

stansub does not check that the state-space model matches the posterior that is sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from stansub.errors import InputError, RunError
from stansub.kernels.base import Info, Kernel, Stat, State
from stansub.kernels.direct import DIRECT_STATS, MOVED, DirectKernel
from stansub.kernels.recipes import Context, NotAdapted, parameters
from stansub.output.layout import Layout
from stansub.types import FloatArray

Places = NDArray[np.int64]

_OWN = (
    Stat("path_renewed", float, "Share of the states on the path that come from a new particle."),
    Stat("n_effective", float, "Effective number of particles, averaged over times and series."),
)


@runtime_checkable
class StateSpace(Protocol):
    """Several independent series with one hidden path each, as four functions vectorised over particles.

    Arrays of states have the shape (n, n_series), or (n, n_series, k) if a state has k components. Log densities have
    the shape (n, n_series), with -inf where the density is 0. Times count from 0. ``position`` is the whole
    unconstrained vector, shape (dim,), which holds the parameters.
    """

    def draw_first(self, rng: np.random.Generator, position: FloatArray, shape: tuple[int, ...]) -> FloatArray:
        """Draw states at time 0, of the given shape."""

    def draw_next(self, rng: np.random.Generator, position: FloatArray, t: int, states: FloatArray) -> FloatArray:
        """Draw states at time t, one for each of the states at time t - 1."""

    def log_transition(self, position: FloatArray, t: int, states: FloatArray, following: FloatArray) -> FloatArray:
        """Return the log density of the states at time t given those at time t - 1; ``following`` has n = 1."""

    def log_observation(self, position: FloatArray, t: int, states: FloatArray) -> FloatArray:
        """Return the log density of the observations at time t given the states there."""


class Sweep(NamedTuple):
    """Result of a sweep."""

    path: FloatArray
    """Shape (n_times, n_series) or (n_times, n_series, k)."""
    renewed: float
    """Share of the states that do not come from the previous path."""
    n_effective: float
    """1 / (sum of the squared weights), averaged over times and series."""


def sweep(
    rng: np.random.Generator,
    model: StateSpace,
    position: FloatArray,
    path: FloatArray,
    *,
    n_particles: int,
    ancestor_sampling: bool = True,
) -> Sweep:
    """Draw a new path given the current path (Lindsten, Jordan and Schön 2014, algorithm 2).

    States are proposed from the transition of the model. The last particle is the current path. The others draw their
    ancestors independently of each other (multinomial resampling), which keeps the conditional filter simple: fixing
    one ancestor does not affect the rest. Systematic resampling would have to condition on the survival of the current
    path.

    Parameters
    ----------
    position : ndarray, shape (dim,)
    path : ndarray, shape (n_times, n_series) or (n_times, n_series, k)
    n_particles : int
        At least 2.

    Raises
    ------
    RunError
        If a path has no particle of positive density, or a log density is nan.
    """
    n_times, series = len(path), np.arange(path.shape[1])
    particles = np.empty((n_times, n_particles, *path.shape[1:]))
    ancestors = np.empty((n_times, n_particles, len(series)), np.int64)
    particles[:, -1], ancestors[:, -1] = path, n_particles - 1
    particles[0, :-1] = model.draw_first(rng, position, (n_particles - 1, *path.shape[1:]))
    n_effective = np.empty(n_times)
    for t in range(n_times):
        log_weights = model.log_observation(position, t, particles[t])
        weights = _weights(log_weights, t, "observation")
        n_effective[t] = (1 / (weights**2).sum(axis=0)).mean()
        if t + 1 == n_times:
            break
        ancestors[t + 1, :-1] = _draw(rng, weights, n_particles - 1)
        drawn_from = particles[t][ancestors[t + 1, :-1], series]
        particles[t + 1, :-1] = model.draw_next(rng, position, t + 1, drawn_from)
        if ancestor_sampling:
            log_transition = model.log_transition(position, t + 1, particles[t], path[np.newaxis, t + 1])
            backward = _weights(log_weights + log_transition, t + 1, "transition")
            ancestors[t + 1, -1] = _draw(rng, backward, 1)[0]
    new, renewed = _trace(particles, ancestors, _draw(rng, weights, 1)[0])
    return Sweep(new, renewed, float(n_effective.mean()))


def _trace(particles: FloatArray, ancestors: Places, chosen: Places) -> tuple[FloatArray, float]:
    """Return the path that ends in the chosen particles, one per series, and its share not from the last particle."""
    path, series = np.empty_like(particles[:, 0]), np.arange(len(chosen))
    renewed = np.empty(len(path))
    for t in reversed(range(len(path))):
        path[t] = particles[t, chosen, series]
        renewed[t] = (chosen != particles.shape[1] - 1).mean()
        chosen = ancestors[t, chosen, series]
    return path, float(renewed.mean())


def _weights(log_weights: FloatArray, t: int, what: str) -> FloatArray:
    """Return weights that sum to 1 over the particles of each series, shape (n_particles, n_series)."""
    top = log_weights.max(axis=0)
    if not np.isfinite(top).all():
        raise RunError(
            f"the log density of the {what} at time {t} is nan, or inf, or -inf for all particles of a series: the "
            "model must give the initial path a positive density"
        )
    weights: FloatArray = np.exp(log_weights - top)
    weights /= weights.sum(axis=0)
    return weights


def _draw(rng: np.random.Generator, weights: FloatArray, n: int) -> Places:
    """Draw n independent particles of each series in proportion to weights, shape (n, n_series)."""
    # Counting the levels reached is faster, for few particles, than a search in each series.
    levels = np.cumsum(weights, axis=0)
    reached = rng.random((n, weights.shape[1])) * levels[-1]
    return np.asarray((reached >= levels[:-1, np.newaxis]).sum(axis=0))


class ParticleGibbsKernel(DirectKernel):
    """Kernel that draws the paths of all series given everything else.

    Parameters
    ----------
    places : ndarray of int64, shape (n_times, n_series) or (n_times, n_series, k)
        Indices of the states in a position.
    """

    stats = (*DIRECT_STATS, *_OWN)

    def __init__(
        self, model: StateSpace, places: Places, dim: int, *, n_particles: int, ancestor_sampling: bool = True
    ) -> None:
        super().__init__(dim)
        self.model, self.places = model, places
        self._options: Any = {"n_particles": n_particles, "ancestor_sampling": ancestor_sampling}

    def step(self, rng: np.random.Generator, state: State, params: Any, *, audit: bool = False) -> tuple[State, Info]:
        """Run one sweep and return the state with statistics."""
        found = sweep(rng, self.model, state.position, state.position[self.places], **self._options)
        position = state.position.copy()
        position[self.places] = found.path
        return State(position), {**MOVED, "path_renewed": found.renewed, "n_effective": found.n_effective}


@dataclass(frozen=True)
class ParticleGibbs(NotAdapted):
    """Kernel for `stansub.sample` that draws the paths of hidden states by particle Gibbs.

    Combine it with a kernel for the parameters: ``stansub.Sequence(states=ParticleGibbs(model, ["h"]), rest=...)``.

    Attributes
    ----------
    model : StateSpace
        Must be the conditional distribution of the states under the posterior that is sampled. stansub does not check
        this.
    names : sequence of str
        Parameters that hold the paths, one for each component of a state: ``h`` of shape (n_times,) for one series, or
        (n_series, n_times). They must be unconstrained.
    n_particles : int
        Number of particles, including the current path. Any number from 2 on is correct; more particles renew more of
        the path. Time and memory grow with its square, which is negligible for the tens of particles that ancestor
        sampling needs.
    ancestor_sampling : bool
        Whether the current path draws new ancestors; without it, long paths need many particles.

    Raises
    ------
    InputError
        If the model lacks a function or there are fewer than two particles; when bound, if the names are not paths of
        one shape.
    """

    model: StateSpace
    names: Sequence[str]
    n_particles: int = 20
    ancestor_sampling: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.model, type) or not isinstance(self.model, StateSpace):
            raise InputError("ParticleGibbs needs a model with draw_first, draw_next, log_transition, log_observation")
        if isinstance(self.names, str) or not self.names:
            raise InputError(f"ParticleGibbs needs the names of the parameters that hold paths, not {self.names!r}")
        if self.n_particles < 2:
            raise InputError(
                f"n_particles must be at least 2, not {self.n_particles}: one particle is the current path"
            )

    def bind(self, context: Context) -> Kernel:
        """Return the kernel of one chain."""
        return ParticleGibbsKernel(
            self.model,
            _places(context.names, self.names),
            len(context.names),
            n_particles=self.n_particles,
            ancestor_sampling=self.ancestor_sampling,
        )


def _places(known: Sequence[str], names: Sequence[str]) -> Places:
    """Return indices of the states, shape (n_times, n_series), or (n_times, n_series, k) with several components."""
    columns = Layout.from_names(list(known)).columns
    found = []
    for name in names:
        if name not in columns:
            raise InputError(f"{name!r} is not a parameter of the model; it has {', '.join(parameters(known))}")
        if columns[name].ndim not in (1, 2):
            raise InputError(f"{name} cannot hold paths: its shape must be (n_times,) or (n_series, n_times)")
        found.append(np.atleast_2d(columns[name]).T)
    if len({one.shape for one in found}) > 1:
        raise InputError(f"{', '.join(names)} must have the same shape, one for each component of a state")
    return np.stack(found, axis=-1) if len(found) > 1 else found[0]
