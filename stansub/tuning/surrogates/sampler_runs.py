"""Runs of a surrogate's sampler, and what is tuned by them: steps of a trajectory, and transitions per decision."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from stansub.autocorrelation import autocorrelation_times
from stansub.kernels.surrogate import MAX_TREE_DEPTH
from stansub.target.split import HamiltonianSampler, Sampler, Transition
from stansub.types import FloatArray

# Transitions that test a sampler: at first, and if draws seem to resemble each other; the autocorrelation time above
# which few of them are independent.
SHOWING, SURE, UNSURE = 200, 800, 3.0
# Angle of a trajectory of fixed length, the most steps of one, and its target share of rejections.
ANGLE, MOST_STEPS, _REJECTED = 2 * np.pi / 3, 15, 0.05
# Target acceptance rate of trees, and maximum step size, in radians (`cpp/surrogate_system.hpp`): a tree of seven steps
# turns by more than half a circle and ends. Longer ones estimate means better but sds worse, and steps of a whole
# circle would always be accepted.
TARGET, _LARGEST = 0.8, 0.55
# Autocorrelation time that steps may have, and maximum number of transitions per step to reach it.
TIME, MOST_TRANSITIONS = 2.0, 50


class Run(NamedTuple):
    """Draws of a sampler, and the transition before each."""

    draws: FloatArray
    transitions: list[Transition]

    @property
    def acceptance(self) -> float:
        """Return the mean acceptance rate."""
        return float(np.mean([one.acceptance_rate for one in self.transitions]))

    @property
    def n_steps(self) -> float:
        """Return the integrator steps per transition."""
        return float(np.mean([one.n_steps for one in self.transitions]))

    @property
    def diverging(self) -> float:
        """Return the share of transitions that diverged."""
        return float(np.mean([one.diverging for one in self.transitions]))

    @property
    def deep(self) -> float:
        """Return the share of transitions whose trees were full."""
        return float(np.mean([one.tree_depth >= MAX_TREE_DEPTH for one in self.transitions]))


def _ignore(made: Transition) -> None:
    """Do nothing with a transition."""


def run(
    sampler: Sampler,
    theta: FloatArray,
    n: int,
    rng: np.random.Generator,
    check: Callable[[], None],
    count: Callable[[Transition], None] = _ignore,
) -> Run:
    """Return so many draws from a place, and what their transitions were like.

    ``check`` is called before each, and ``count`` with each; both may raise an exception to stop.
    """
    theta, draws, transitions = np.array(theta), np.empty((n, len(theta))), []
    for t in range(n):
        check()
        transitions.append(sampler(rng.bit_generator.capsule, theta))
        count(transitions[-1])
        draws[t] = theta
    return Run(draws, transitions)


class Adapted(NamedTuple):
    """Draws while the step size adapts, and the step size."""

    draws: FloatArray
    step_size: float


def adapted(
    system: HamiltonianSampler,
    theta: FloatArray,
    n: int,
    rng: np.random.Generator,
    check: Callable[[], None],
    target: float = TARGET,
    count: Callable[[Transition], None] = _ignore,
    depth: int = MAX_TREE_DEPTH,
) -> Adapted:
    """Return draws and a step size from dual averaging (Hoffman and Gelman 2014, section 3.2); see `run`."""
    theta, draws = np.array(theta), np.empty((n, len(theta)))
    mu, h, log_mean = np.log(2.0), 0.0, 0.0
    step_size = 0.2
    for t in range(1, n + 1):
        check()
        made = system.nuts(rng.bit_generator.capsule, theta, step_size=step_size, max_tree_depth=depth)
        count(made)
        draws[t - 1] = theta
        h += (target - made.acceptance_rate - h) / (t + 10)
        log_step = min(mu - np.sqrt(t) / 0.05 * h, np.log(_LARGEST))
        weight = t**-0.75
        log_mean = weight * log_step + (1 - weight) * log_mean
        step_size = float(np.exp(log_step))
    return Adapted(draws, float(np.exp(log_mean)))


def n_steps_needed(made: Run, n_steps: int) -> int:
    """Return the steps of trajectories of the same length that accept nearly all, given a run with ``n_steps``.

    Errors of the energy, and so rejections, decrease with the square of the step size.
    """
    rejected = 1 - made.acceptance
    return n_steps if rejected <= _REJECTED else int(np.ceil(n_steps * np.sqrt(rejected / _REJECTED)))


def n_transitions(time: float, *, left: float) -> int:
    """Return the transitions per step after which an autocorrelation time is about ``left``."""
    return int(np.clip(np.rint(time / left), 1, MOST_TRANSITIONS))


def slowest_time(draws: FloatArray) -> float:
    """Return the longest autocorrelation time of the parameters, in draws."""
    return float(autocorrelation_times(draws[np.newaxis])[0].max())


def spread(draws: FloatArray, n: int) -> FloatArray:
    """Return ``n`` of the draws, far apart in their order."""
    return np.asarray(draws[np.linspace(0, len(draws) - 1, n).astype(int)])
