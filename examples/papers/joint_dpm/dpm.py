"""Joint Dirichlet process mixture of logistic experts in two dimensions, and the kernels that sample it.

Chen, Mansinghka and Ghahramani (2014), section 4.2, equations 8 and 9: (mu_k, Sigma_k) are integrated out, the
Dirichlet process is a Chinese restaurant process. A position holds log alpha, the weights w of up to ``n_slots``
clusters (those of empty slots are 0 and belong to nothing), and the slot z_i of each point.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from stansub import FunctionFactors, RunError
from stansub._loop import Subset
from stansub.kernels.base import BatchControl, Info, Records, Stat, State, step_by_step
from stansub.kernels.direct import DIRECT_STATS, MOVED, DirectKernel
from stansub.kernels.metropolis import COUNTS, STATS, MetropolisHastings
from stansub.kernels.recipes import Leaves
from stansub.run.context import ChainContext

Array = NDArray[np.float64]
Ints = NDArray[np.intp]
D, N_WEIGHTS = 2, 3  # inputs, and weights of an expert: intercept and slopes


@dataclass(frozen=True)
class Priors:
    """Hyperparameters; alpha ~ Gamma(1, 1).

    Attributes
    ----------
    k0, v0, s0 : float
        Of the normal-inverse-Wishart prior with mean 0: prior points behind the mean, degrees of freedom, and scale
        ``s0 * I``.
    sd_w : float
        Of each weight.
    """

    k0: float = 0.05
    v0: float = 4.0
    s0: float = 0.1
    sd_w: float = 4.0


class JointDPM(FunctionFactors):
    """The target of the weights given z: their priors, and a Bernoulli factor for each point.

    What is of alpha and z alone is left out, for no decision about weights depends on it; `Assignments` has it.

    Parameters
    ----------
    x : ndarray, shape (n, 2)
    y : ndarray of bool, shape (n,)
    priors : Priors
    n_slots : int
    """

    def __init__(self, x: Array, y: NDArray[np.bool_], priors: Priors = Priors(), n_slots: int = 40) -> None:
        self.x, self.y, self.priors, self.n_slots = x, y, priors, n_slots
        self.design, self.sign = np.column_stack([np.ones(len(x)), x]), np.where(y, 1.0, -1.0)
        self.of_w, self.of_z = slice(1, 1 + N_WEIGHTS * n_slots), slice(1 + N_WEIGHTS * n_slots, None)
        names = ["log_alpha", *(f"w.{k + 1}.{j + 1}" for k in range(n_slots) for j in range(N_WEIGHTS))]
        names += [f"z.{i + 1}" for i in range(len(x))]
        super().__init__(names, len(x), self._outcomes, log_density=self._prior, block_size=1, name="joint_dpm")

    def _prior(self, theta: Array) -> float:
        w = theta[self.of_w]
        return float(-0.5 * (w @ w) / self.priors.sd_w**2)

    def _outcomes(self, theta: Array, which: NDArray[np.int32]) -> Array:
        """log Logit(y_i | x_i, w_z) of equation 9."""
        z = theta[self.of_z].take(which).astype(np.intp)
        # Points of a trial of the functions, which are no positions, have some value too.
        w = theta[self.of_w].reshape(-1, N_WEIGHTS).take(z, axis=0, mode="clip")
        margins = self.sign.take(which) * np.einsum("ij,ij->i", self.design.take(which, axis=0), w)
        return -np.logaddexp(0.0, -margins)

    def z(self, theta: Array) -> Ints:
        """The slot of each point."""
        return theta[self.of_z].astype(np.intp)

    def w(self, theta: Array) -> Array:
        """Weights of each slot, shape (n_slots, 3)."""
        return theta[self.of_w].reshape(-1, N_WEIGHTS)

    def position(self, log_alpha: float, w: Array, z: Ints) -> Array:
        """As a vector."""
        return np.concatenate([[log_alpha], w.ravel(), z])


def restaurant(rng: np.random.Generator, n: int, alpha: float) -> Ints:
    """Tables of a Chinese restaurant process."""
    z: list[int] = []
    sizes: list[int] = []
    for i in range(n):
        k = int(np.searchsorted(np.cumsum(sizes), rng.random() * (i + alpha), side="right"))
        if k == len(sizes):
            sizes.append(0)
        sizes[k] += 1
        z.append(k)
    return np.array(z, np.intp)


def from_prior(rng: np.random.Generator, model: JointDPM) -> Array:
    """A position from the prior, within its slots."""
    while True:
        alpha = rng.gamma(1.0)
        z = restaurant(rng, len(model.x), alpha)
        if z.max() < model.n_slots:
            break
    w = np.zeros((model.n_slots, N_WEIGHTS))
    w[: z.max() + 1] = rng.normal(0, model.priors.sd_w, (z.max() + 1, N_WEIGHTS))
    return model.position(math.log(alpha), w, z)


class Inputs:
    """Collapsed Gaussians of the inputs: what a cluster's members say of the next one, updated a point at a time.

    The predictive density of a normal-inverse-Wishart prior is Student's t (Murphy 2007, equation 258), kept for each
    slot as its centre, the matrix of its quadratic form, log constant and power.

    Parameters
    ----------
    x : ndarray, shape (n, 2)
    priors : Priors
    n_slots : int
    """

    def __init__(self, x: Array, priors: Priors, n_slots: int) -> None:
        self.points, self.priors = x.tolist(), priors
        df = priors.v0 + np.arange(len(x) + 1) - D + 1
        self._constants = (gammaln((df + D) / 2) - gammaln(df / 2) - D / 2 * np.log(df * np.pi)).tolist()
        self.n = [0] * n_slots
        self._sums = [[0.0] * 5 for _ in range(n_slots)]
        self.next = [self._predictive(0, [0.0] * 5)] * n_slots
        self.empty = self.next[0]

    def put(self, i: int, k: int, sign: int = 1) -> None:
        """Add point ``i`` to slot ``k``, or with ``sign`` -1 take it away."""
        a, b = self.points[i]
        s = self._sums[k]
        self.n[k] += sign
        if self.n[k] == 0:  # rounding does not outlive a cluster
            self._sums[k], self.next[k] = [0.0] * 5, self.empty
            return
        s[0] += sign * a
        s[1] += sign * b
        s[2] += sign * a * a
        s[3] += sign * a * b
        s[4] += sign * b * b
        self.next[k] = self._predictive(self.n[k], s)

    def _predictive(self, n: int, sums: Sequence[float]) -> tuple[float, ...]:
        """Centre, quadratic form over the degrees of freedom, log constant, power."""
        prior = self.priors
        k = prior.k0 + n
        a, b = sums[0] / k, sums[1] / k
        s11, s12, s22 = prior.s0 + sums[2] - k * a * a, sums[3] - k * a * b, prior.s0 + sums[4] - k * b * b
        df = prior.v0 + n - D + 1
        scale = (k + 1) / (k * df)
        determinant = s11 * s22 - s12 * s12
        form = 1 / (determinant * scale * df)
        constant = self._constants[n] - 0.5 * math.log(determinant * scale * scale)
        return a, b, form * s22, -2 * form * s12, form * s11, constant, (df + D) / 2

    def save(self) -> Any:
        """Of every slot the number of its members, their sums, and what these say."""
        return self.n, self._sums, self.next

    def restore(self, saved: Any) -> None:
        """Continue from what `save` gave."""
        self.n, self._sums, self.next = saved

    def density(self, i: int, k: int) -> float:
        """Of point ``i`` given the members of slot ``k``; of an empty one the prior's."""
        return density(self.next[k], *self.points[i])


def density(predictive: tuple[float, ...], a: float, b: float) -> float:
    """Student's t in two dimensions, as `Inputs` keeps it."""
    m1, m2, f11, f12, f22, constant, power = predictive
    u, v = a - m1, b - m2
    return math.exp(constant - power * math.log1p(f11 * u * u + f12 * u * v + f22 * v * v))


N_CLUSTERS = Stat("n_clusters", np.int32, "Clusters that have members.")
CLOCK = Stat("clock", float, "Seconds since the epoch at the end of the step.")


class AssignmentsKernel(DirectKernel):
    """One Metropolis-Hastings move of log alpha, then ``n_moves`` Gibbs moves of assignments chosen at random.

    The latter are algorithm 8 of Neal (2000): a point joins a cluster in proportion to n_k t_k(x) Logit(y | x, w_k), or
    one of ``n_auxiliary`` new ones in proportion to alpha / n_auxiliary t_0(x) Logit(y | x, w), w from its prior.
    A move costs as much as there are clusters, whatever the number of points is.

    Parameters
    ----------
    model : JointDPM
    n_moves, n_auxiliary : int
    """

    stats = (*DIRECT_STATS, N_CLUSTERS, CLOCK)

    def __init__(self, model: JointDPM, n_moves: int, n_auxiliary: int) -> None:
        super().__init__(model.dim)
        self.model, self.n_moves, self.n_auxiliary = model, n_moves, n_auxiliary
        self._z: list[int] = []
        self._inputs = Inputs(model.x, model.priors, model.n_slots)

    def init(self, position: Array) -> State:
        """The clusters of a position."""
        self._rebuild(self.model.z(position))
        return State(np.array(position))

    def _rebuild(self, z: Ints) -> None:
        self._inputs = Inputs(self.model.x, self.model.priors, self.model.n_slots)
        self._z = z.tolist()
        for i, k in enumerate(self._z):
            self._inputs.put(i, k)

    def step(self, rng: np.random.Generator, state: State, params: Any, *, audit: bool = False) -> tuple[State, Info]:
        """All moves."""
        model, position = self.model, state.position.copy()
        if not np.array_equal(position[model.of_z], self._z):  # another kernel has moved points
            self._rebuild(model.z(position))
        occupied = [k for k, n in enumerate(self._inputs.n) if n]
        position[0] = self._alpha(rng, float(position[0]), len(occupied))
        w = model.w(position).tolist()
        weight_new = self.new_cluster(math.exp(position[0])) / self.n_auxiliary
        for i in rng.integers(len(self._z), size=self.n_moves).tolist():
            self._move(rng, i, occupied, w, weight_new)
        position[model.of_w], position[model.of_z] = np.ravel(w), self._z
        return State(position), {**MOVED, N_CLUSTERS.name: len(occupied), CLOCK.name: time.time()}

    def new_cluster(self, alpha: float) -> float:
        """Weight of all new clusters together in a restaurant process."""
        return alpha

    def _alpha(self, rng: np.random.Generator, log_alpha: float, n_clusters: int) -> float:
        """Random walk of log alpha given the number of clusters (Antoniak 1974), alpha ~ Gamma(1, 1)."""

        def log_density(value: float) -> float:
            alpha = math.exp(value)
            return (n_clusters + 1) * value - alpha + math.lgamma(alpha) - math.lgamma(alpha + len(self._z))

        proposed = log_alpha + 0.7 * rng.standard_normal()
        accepted = math.log1p(-rng.random()) < log_density(proposed) - log_density(log_alpha)
        return float(proposed) if accepted else log_alpha

    def _move(
        self, rng: np.random.Generator, i: int, occupied: list[int], w: list[list[float]], weight_new: float
    ) -> None:
        """Draw the cluster of one point again."""
        inputs, old = self._inputs, self._z[i]
        (a, b), sign = inputs.points[i], self.model.sign[i]
        inputs.put(i, old, -1)
        fresh = rng.normal(0.0, self.model.priors.sd_w, (self.n_auxiliary, N_WEIGHTS)).tolist()
        if not inputs.n[old]:  # the weights of a cluster of one are among the new ones
            fresh[0], w[old] = w[old], [0.0] * N_WEIGHTS
            occupied.remove(old)
        total, edges = 0.0, []
        for k in occupied:
            total += inputs.n[k] * density(inputs.next[k], a, b) * _logit(sign, a, b, w[k])
            edges.append(total)
        alone = weight_new * density(inputs.empty, a, b)
        for weights in fresh:
            total += alone * _logit(sign, a, b, weights)
            edges.append(total)
        u = rng.random() * total
        chosen = next(place for place, edge in enumerate(edges) if u < edge)
        if chosen < len(occupied):
            k = occupied[chosen]
        else:
            k = self._free()
            w[k] = fresh[chosen - len(occupied)]
            occupied.append(k)
        inputs.put(i, k)
        self._z[i] = k

    def _free(self) -> int:
        try:
            return self._inputs.n.index(0)
        except ValueError:
            raise RunError(f"more than {self.model.n_slots} clusters: give the model more slots") from None

    def save(self) -> Any:
        """Sufficient statistics, with the rounding that they have."""
        return self._z, self._inputs.save()

    def restore(self, state: State, saved: Any) -> None:
        """Continue from what `save` gave."""
        self._z, inputs = saved
        self._inputs.restore(inputs)


def _logit(sign: float, a: float, b: float, w: Sequence[float]) -> float:
    """Logit(y | x, w) of equation 9."""
    margin = sign * (w[0] + w[1] * a + w[2] * b)
    return 1 / (1 + math.exp(-margin)) if margin > -700 else 0.0


@dataclass(frozen=True)
class Assignments:
    """Gibbs moves of z and a move of alpha, as `stansub.sample` takes them.

    Attributes
    ----------
    n_moves : int
        ``step_z`` of figure 7: assignments drawn in a step.
    n_auxiliary : int
        New clusters that are offered to a point.
    """

    n_moves: int
    n_auxiliary: int = 2

    def bind(self, context: ChainContext) -> AssignmentsKernel:
        """The kernel of one chain."""
        return AssignmentsKernel(model_of(context), self.n_moves, self.n_auxiliary)

    def leaves(self, names: Sequence[str]) -> Leaves:
        """Nothing is adapted."""
        return {}


MEMBERS = Stat("n_members", np.int64, "Members of the clusters whose experts were to move.", "n_members")
# Of a decision, counted over those of a step.
_COUNTED = tuple(
    replace(one, dtype=np.int32 if one.dtype is bool else one.dtype) for one in STATS if one.name != "log_ratio"
)


class ExpertsKernel(MetropolisHastings):
    """Moves of the weights of clusters chosen at random, decided from some of their members (paper's figure 7).

    Parameters
    ----------
    context : ChainContext
    model : JointDPM
    sd : float
        Of the random walk.
    n_moves : int
    exact : bool
        Whether all members are looked at.
    """

    def __init__(self, context: ChainContext, model: JointDPM, sd: float, n_moves: int, *, exact: bool) -> None:
        super().__init__(context.exact_decider if exact else context.decider)
        self.model, self.sd, self.n_moves = model, sd, n_moves
        self._bench, self._exact = context, exact

    @property
    def stats(self) -> tuple[Stat, ...]:
        """Sums over the moves of a step."""
        return (*_COUNTED, MEMBERS, *COUNTS)

    def step(self, rng: np.random.Generator, state: State, params: Any, *, audit: bool = False) -> tuple[State, Info]:
        """All moves."""
        z = self.model.z(state.position)
        sizes = np.bincount(z)
        clusters = np.flatnonzero(sizes)
        subsets: dict[int, Subset] = {}
        found = dict.fromkeys((*(one.name for one in _COUNTED), MEMBERS.name), 0)
        for k in clusters[rng.integers(clusters.size, size=self.n_moves)].tolist():
            if k not in subsets:
                subsets[k] = self._bench.among(self.members(z, k), exact=self._exact)
            proposed = state.position.copy()
            first = self.model.of_w.start + N_WEIGHTS * k
            proposed[first : first + N_WEIGHTS] += self.sd * rng.standard_normal(N_WEIGHTS)
            state, info = self.decide(rng, state, proposed, 0.0, audit=audit, subset=subsets[k])
            found[MEMBERS.name] += sizes[k]
            for one in _COUNTED:
                found[one.name] += info[one.name]
        return state, found | {"n_decisions": self.n_moves}

    def members(self, z: Ints, k: int) -> Ints:
        """Numbers of the points of a cluster."""
        return np.flatnonzero(z == k)

    def batch(
        self, rng: np.random.Generator, state: State, params: Any, out: Records, n_steps: int, control: BatchControl
    ) -> tuple[State, int]:
        """Step by step."""
        return step_by_step(self, rng, state, params, out, n_steps, control)


@dataclass(frozen=True)
class Experts:
    """Moves of the weights, as `stansub.sample` takes them.

    Attributes
    ----------
    sd : float
        Of the random walk of a cluster's weights.
    n_moves : int
        Moves of a step, each of one cluster.
    exact : bool
        Whether decisions look at all members of the cluster.
    """

    sd: float
    n_moves: int
    exact: bool = False

    def bind(self, context: ChainContext) -> ExpertsKernel:
        """The kernel of one chain."""
        return ExpertsKernel(context, model_of(context), self.sd, self.n_moves, exact=self.exact)

    def leaves(self, names: Sequence[str]) -> Leaves:
        """Nothing is adapted."""
        return {}


def model_of(context: ChainContext) -> JointDPM:
    """The model that a kernel is bound to."""
    model = context.target.population
    assert isinstance(model, JointDPM)
    return model


def predict(model: JointDPM, theta: Array, x: Array) -> tuple[Array, Array]:
    """What a position says of new inputs.

    Returns
    -------
    probability : ndarray, shape (n,)
        Of class 1: equation 9 given z, w and the inputs of the training points, a new cluster included.
    responsibility : ndarray, shape (n, n_slots + 1)
        Of each slot for the inputs, and of a new cluster.
    """
    z, w, inputs = model.z(theta), model.w(theta), Inputs(model.x, model.priors, model.n_slots)
    density_, odds = np.zeros((len(x), model.n_slots + 1)), np.zeros((len(x), model.n_slots + 1))
    for k in np.flatnonzero(np.bincount(z, minlength=model.n_slots)).tolist():
        own = model.x[z == k]
        squares = own.T @ own
        sums = [*own.sum(axis=0), squares[0, 0], squares[0, 1], squares[1, 1]]
        density_[:, k] = len(own) * _densities(inputs._predictive(len(own), sums), x)
        odds[:, k] = w[k, 0] + x @ w[k, 1:]
    density_[:, -1] = math.exp(theta[0]) * _densities(inputs.empty, x)
    responsibility = density_ / density_.sum(axis=1, keepdims=True)
    # The experts of a new cluster are symmetric about 0: one half.
    return (responsibility / (1 + np.exp(-np.clip(odds, -700, 700)))).sum(axis=1), responsibility


def _densities(predictive: tuple[float, ...], x: Array) -> Array:
    m1, m2, f11, f12, f22, constant, power = predictive
    u, v = x[:, 0] - m1, x[:, 1] - m2
    return np.exp(constant - power * np.log1p(f11 * u * u + f12 * u * v + f22 * v * v))
