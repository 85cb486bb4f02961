"""Surrogate transitions: proposals from a surrogate posterior, accepted or rejected by what the surrogate omits.

The surrogate is exp(G(theta) + A(phi(theta))), where A approximates the log likelihood L in its own arguments. A kernel
that is reversible for the surrogate proposes theta': a fixed number of trajectories with fixed step size and metric, or
with the scales fixed, or of sweeps of a Gibbs sampler (`stansub.target.normal_effects`). With R = L - A, the
Metropolis-Hastings ratio is that of the remainders alone,

    min(1, exp(R(phi(theta')) - R(phi(theta))))

(Liu 2001, section 9.4.3; Christen and Fox 2005). The proposal needs no data. The coordinates in which it moves
(`stansub.target.coordinates`) change neither the surrogate nor that ratio.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np

from stansub._loop import SurrogateDecider
from stansub.kernels.base import Info, Kernel, Stat, State
from stansub.kernels.direct import DirectKernel
from stansub.kernels.metropolis import COUNTS, STATS
from stansub.kernels.recipes import Context, NotAdapted
from stansub.target.approximation import Approximation
from stansub.target.coordinates import Coordinates
from stansub.target.group_candidates import Joint, shared
from stansub.target.metric import Metric
from stansub.target.normal_effects import NormalEffects
from stansub.target.sparse import SparsePredictors
from stansub.target.split import Dynamics, HamiltonianSampler, Sampler, Split, Surrogate, Transition
from stansub.types import FloatArray

MAX_TREE_DEPTH = 8

TRANSITION_STATS: tuple[Stat, ...] = (
    Stat("tree_depth", np.int32, "Depth of the tree, on the surrogate or on the posterior itself."),
    Stat("n_steps", np.int64, "Integrator steps, or sweeps of the Gibbs sampler.", "n_leapfrog"),
    Stat("diverging", bool, "Whether a tree diverged.", "n_diverging"),
)


class Decisions(Protocol):
    """Accept/reject decisions of one chain about what the surrogate omits."""

    n_evaluated: int
    """Observations so far."""

    def at(self, phi: FloatArray) -> Any:
        """Return what decisions need to know of a place, given the likelihood's arguments there."""

    def decide(self, rng: np.random.Generator, here: Any, there: Any) -> Info:
        """Decide whether to move between two places; return the statistics."""

    def counts(self) -> dict[str, float]:
        """Return the counts of statistics that have no value per step."""


class FullDataDecisions:
    """Decisions from all observations."""

    def __init__(self, predictors: SparsePredictors, approximation: Approximation) -> None:
        self._predictors, self._approximation, self.n_evaluated = predictors, approximation, 0

    def at(self, phi: FloatArray) -> float:
        """Return R."""
        self.n_evaluated += self._predictors.n_observations
        return self._predictors.log_lik(phi) - self._approximation(phi)

    def decide(self, rng: np.random.Generator, here: float, there: float) -> Info:
        """Decide exactly."""
        accepted = bool(np.log1p(-rng.random()) < there - here)
        return {"accepted": accepted, "n_obs_used": self._predictors.n_observations, "log_ratio": there - here}

    def counts(self) -> dict[str, float]:
        """Return no counts besides observations."""
        return {}


class JointDecisions:
    """Joint Poisson decisions from a few of the observations (see `stansub.target.group_candidates`).

    They concern what the expansion omits; the correction for it is known without observations.
    """

    def __init__(
        self, predictors: SparsePredictors, approximation: Approximation, sds: FloatArray, joint: Joint
    ) -> None:
        self._approximation = approximation
        self._observations, self._recentred = shared(predictors, approximation.quadratic, sds, joint.radius)
        self._decider = SurrogateDecider(self._observations, joint.kappa, joint.most)
        self._before = 0

    @property
    def n_evaluated(self) -> int:
        return self._before + self._decider.n_evaluated

    @n_evaluated.setter
    def n_evaluated(self, n: int) -> None:
        self._before = n - self._decider.n_evaluated

    def at(self, phi: FloatArray) -> tuple[FloatArray, float]:
        """Return the arguments, with shifts that cancel removed, and the correction."""
        return self._recentred(phi), self._approximation.correction(phi)

    def decide(self, rng: np.random.Generator, here: tuple[FloatArray, float], there: tuple[FloatArray, float]) -> Info:
        """Decide, also exactly."""
        corrected = here[1] - there[1]
        log_u = np.log1p(-rng.random()) - corrected
        found = self._decider.decide(here[0], there[0], log_u, rng.bit_generator.capsule)
        return {
            "accepted": found.accepted,
            "n_obs_used": found.n_obs_used,
            "n_looks": found.n_looks,
            "undecided": found.undecided,
            "log_ratio": found.log_ratio + corrected,
        }

    def counts(self) -> dict[str, float]:
        """Return the candidates and how near remainders came to their bounds."""
        return {
            "n_candidates": float(self._decider.n_candidates),
            "bound_tightness": self._decider.bound_tightness,
        }


def _info(decision: Info, made: Transition) -> Info:
    """Return the statistics of a step, from those of its decision and of the transition that it proposed."""
    none = {one.name: one.dtype(0) for one in STATS}
    return none | {**decision, **{one.name: getattr(made, one.name) for one in TRANSITION_STATS}}


class SurrogateTransitions(DirectKernel):
    """Kernel of surrogate transitions; nothing is adapted."""

    stats = (*STATS, *TRANSITION_STATS, *COUNTS)

    def __init__(self, split: Split, transition: SurrogateTransition) -> None:
        super().__init__(transition.inner.dim)
        self._transition = transition
        self._surrogate = split.surrogate(transition.approximation)
        self._inner = transition.inner.bound(self._surrogate)
        self._decisions = transition.decisions(split.predictors)
        self._at: tuple[FloatArray, Any] | None = None

    @property
    def n_evaluated(self) -> int:
        """Return the observations evaluated by decisions so far."""
        return self._decisions.n_evaluated

    @n_evaluated.setter
    def n_evaluated(self, n: int) -> None:
        self._decisions.n_evaluated = n

    def step(self, rng: np.random.Generator, state: State, params: Any, *, audit: bool = False) -> tuple[State, Info]:
        """Run the transitions on the surrogate and decide."""
        proposed = np.array(state.position)
        made = self._inner(rng.bit_generator.capsule, proposed, self._transition.n)
        if self._at is None or not np.array_equal(self._at[0], state.position):
            self._at = state.position, self._decisions.at(self._surrogate.phi(state.position))
        there = self._decisions.at(self._surrogate.phi(proposed))
        decision = self._decisions.decide(rng, self._at[1], there)
        if decision["accepted"]:
            self._at = proposed, there
        return (State(proposed) if decision["accepted"] else state), _info(decision, made)

    def counts(self) -> dict[str, float]:
        """Return the observations evaluated and the counts of the decisions."""
        return super().counts() | self._decisions.counts()


class PosteriorTrajectories(DirectKernel):
    """Kernel of trajectories on the posterior itself, as set up with the help of a surrogate or about a mode.

    There are no decisions about a surrogate; each gradient evaluates all observations.
    """

    stats = (*STATS, *TRANSITION_STATS, *COUNTS)

    def __init__(
        self, posterior: Dynamics | None, n_observations: int, inner: NoUTurn | FixedLength, n: int = 1
    ) -> None:
        super().__init__(inner.dim)
        assert posterior is not None
        self._n, self._transition = n_observations, partial(inner.bound(posterior), n=n)

    def step(self, rng: np.random.Generator, state: State, params: Any, *, audit: bool = False) -> tuple[State, Info]:
        """Run the transitions."""
        theta = np.array(state.position)
        made = self._transition(rng.bit_generator.capsule, theta)
        self.n_evaluated += made.n_steps * self._n
        moved = {"accepted": not np.array_equal(theta, state.position), "n_obs_used": self._n}
        return State(theta), _info(moved, made)


class MixedTransitions(DirectKernel):
    """Kernel of surrogate transitions, some of whose steps are trajectories on the posterior itself.

    Which ones is decided at random. By these, a chain leaves places where the surrogate omits much of the density.
    """

    stats = (*STATS, *TRANSITION_STATS, *COUNTS)

    def __init__(self, surrogate: SurrogateTransitions, posterior: PosteriorTrajectories, share: float) -> None:
        super().__init__(surrogate.dim)
        self._surrogate, self._posterior, self._share = surrogate, posterior, share

    @property
    def n_evaluated(self) -> int:
        """Return the observations evaluated so far."""
        return self._surrogate.n_evaluated + self._posterior.n_evaluated

    @n_evaluated.setter
    def n_evaluated(self, n: int) -> None:
        self._posterior.n_evaluated = n - self._surrogate.n_evaluated

    def step(self, rng: np.random.Generator, state: State, params: Any, *, audit: bool = False) -> tuple[State, Info]:
        """Run a step of either kind."""
        kernel = self._posterior if rng.random() < self._share else self._surrogate
        return kernel.step(rng, state, params)

    def counts(self) -> dict[str, float]:
        """Return the counts of the decisions, and the observations evaluated by both kinds of steps."""
        return self._surrogate.counts() | {"n_obs_evaluated": float(self.n_evaluated)}


class InnerSampler(ABC):
    """Sampler of a surrogate as set up for a run."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """Return the number of parameters."""

    @property
    def centred_metric(self) -> tuple[FloatArray, Metric] | None:
        """Return the centre and the metric of the parameters themselves; None for those of other coordinates."""
        return None

    @abstractmethod
    def bound(self, surrogate: Surrogate) -> Sampler:
        """Return the sampler of a surrogate."""

    def of_random_length(self) -> InnerSampler:
        """Return the sampler with trajectories of random length; itself if they have no fixed length."""
        return self

    @abstractmethod
    def describe(self, n: int) -> str:
        """Return the sampler in words, with its transitions per decision."""


@dataclass(frozen=True)
class Hamiltonian(InnerSampler):
    """Hamiltonian Monte Carlo as set up for a surrogate."""

    coordinates: Coordinates
    """Coordinates in which it moves."""
    centre: FloatArray
    """Shape (dim,): centre in these coordinates."""
    metric: Metric
    """Of the surrogate's mean precision in these coordinates."""
    step_size: float

    @property
    def dim(self) -> int:
        return len(self.centre)

    @property
    def centred_metric(self) -> tuple[FloatArray, Metric] | None:
        return (self.centre, self.metric) if self.coordinates.is_plain else None

    def on(self, surrogate: Dynamics, *, power: float = 1.0) -> HamiltonianSampler:
        """Return it on a surrogate, or between its normal approximation and the surrogate."""
        return surrogate.hamiltonian(self.centre, self.metric, self.coordinates, power=power)


@dataclass(frozen=True)
class NoUTurn(Hamiltonian):
    """The no-U-turn sampler."""

    method: ClassVar[str] = "NUTS"

    def bound(self, surrogate: Dynamics) -> Sampler:
        return partial(self.on(surrogate).nuts, step_size=self.step_size, max_tree_depth=MAX_TREE_DEPTH)

    def describe(self, n: int) -> str:
        return f"NUTS, {n} transition{'s' * (n > 1)} a decision"


@dataclass(frozen=True)
class FixedLength(Hamiltonian):
    """Trajectories of a fixed number of steps."""

    n_steps: int

    @property
    def method(self) -> str:
        """Return the method in words."""
        return f"HMC with {self.n_steps} steps"

    def bound(self, surrogate: Dynamics) -> Sampler:
        return partial(self.on(surrogate).hmc, step_size=self.step_size, n_steps=self.n_steps)

    def of_random_length(self) -> RandomLength:
        return RandomLength(self.coordinates, self.centre, self.metric, self.step_size, self.n_steps)

    def describe(self, n: int) -> str:
        return f"HMC, {n} transition{'s' * (n > 1)} of {self.n_steps} steps a decision"


@dataclass(frozen=True)
class RandomLength(Hamiltonian):
    """Trajectories of a random length, uniform up to that of ``n_steps``.

    Where a surrogate omits much of the density, a chain rejects all distant points; short trajectories end nearby.
    """

    n_steps: int

    def bound(self, surrogate: Dynamics) -> Sampler:
        return partial(self.on(surrogate).random_length_hmc, step_size=self.step_size, n_steps=self.n_steps)

    def describe(self, n: int) -> str:
        return f"HMC, {n} transition{'s' * (n > 1)} of up to {self.n_steps} steps a decision"


@dataclass(frozen=True)
class OfEffects(InnerSampler):
    """Sampler of effects and their scales."""

    effects: NormalEffects

    @property
    def dim(self) -> int:
        return self.effects.dim


@dataclass(frozen=True)
class Gibbs(OfEffects):
    """The Gibbs sampler as set up for a surrogate."""

    def bound(self, surrogate: Surrogate) -> Sampler:
        return surrogate.of_effects(self.effects).gibbs

    def describe(self, n: int) -> str:
        return f"Gibbs sampling, {n} sweep{'s' * (n > 1)} a decision"


@dataclass(frozen=True)
class GivenScales(OfEffects):
    """Trajectories of effects with their scales fixed, between proposals of all scales.

    Both are in coefficients that are standard normal given the scales under a normal likelihood.
    """

    step_size: float
    n_steps: int

    def bound(self, surrogate: Surrogate) -> Sampler:
        given_scales = surrogate.of_effects(self.effects).given_scales
        return partial(given_scales, step_size=self.step_size, n_steps=self.n_steps)

    def describe(self, n: int) -> str:
        return f"HMC given the scales, {n} transition{'s' * (n > 1)} of {self.n_steps} steps a decision"


@dataclass(frozen=True)
class SurrogateTransition(NotAdapted):
    """Surrogate transitions as set up for a run."""

    name: ClassVar[str] = "surrogate"
    starts_from: ClassVar[str] = "on the surrogate"

    approximation: Approximation
    """Approximation of the log likelihood."""
    inner: InnerSampler
    """Sampler of the surrogate."""
    sds: FloatArray
    """Shape (m,): approximate sds of phi."""
    joint: Joint | None = None
    """Settings of joint decisions; None for decisions from all observations."""
    n: int = 1
    """Transitions of this sampler per decision."""
    on_posterior: NoUTurn | FixedLength | None = None
    """Sampler of the posterior itself, which needs no decisions."""
    share: float = 0.0
    """Share of the steps that it makes."""

    def describe(self) -> str:
        """Return the sampler in words."""
        on_surrogate = self.inner.describe(self.n)
        if self.on_posterior is None:
            return on_surrogate
        itself = f"{self.on_posterior.method} on the posterior itself, in the coordinates of the approximation"
        return itself if self.share == 1 else f"{on_surrogate}; {100 * self.share:.0f} % of the steps by {itself}"

    def decisions(self, predictors: SparsePredictors) -> Decisions:
        """Return the decisions of one chain."""
        if self.joint is None:
            return FullDataDecisions(predictors, self.approximation)
        return JointDecisions(predictors, self.approximation, self.sds, self.joint)

    def bind(self, context: Context) -> Kernel:
        """Return the kernel of one chain."""
        return self.kernel(context.split)

    def kernel(self, split: Split) -> Kernel:
        """Return the kernel of one chain on a posterior."""
        if self.on_posterior is None:
            return SurrogateTransitions(split, self)
        of_all = split.posterior(), split.predictors.n_observations, self.on_posterior
        if self.share == 1:
            return PosteriorTrajectories(*of_all, self.n)
        posterior = PosteriorTrajectories(*of_all)
        return MixedTransitions(SurrogateTransitions(split, self), posterior, self.share)


@dataclass(frozen=True)
class PosteriorTransition(NotAdapted):
    """Trajectories on the posterior itself as set up about a mode."""

    name: ClassVar[str] = "nuts"

    inner: NoUTurn | FixedLength

    def bind(self, context: Context) -> Kernel:
        """Return the kernel of one chain."""
        return PosteriorTrajectories(context.dynamics, context.n_observations, self.inner)
