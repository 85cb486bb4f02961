"""Kernels for multilevel programs, each with each of its decisions, and such kernels with a deliberate error.

Parameters from the prior, with data given them, are a draw of the posterior of these data. From there a chain is
extended in both directions: forth by the kernel, and back by its reverse. If the kernel leaves the posterior invariant,
the chain is stationary. The draw has a random place in it, so that the rank of any function of the parameters is
uniform, for any number of steps and any autocorrelation (Besag and Clifford 1989; Gandy and Scott 2020). Chains
therefore need neither warmup nor thinning. Kernels are tuned on the data alone.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import count
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from multilevel import MODELS, Multilevel, Values
from numpy.typing import NDArray

import stansub
from stansub._loop import GroupedObservations, SurrogateHamiltonian
from stansub.diagnostics.ranks import Rank
from stansub.errors import RunError, one_line
from stansub.kernels.base import Info, State
from stansub.kernels.direct import DirectKernel
from stansub.kernels.surrogate import (
    MAX_TREE_DEPTH,
    FixedLength,
    Gibbs,
    GivenScales,
    NoUTurn,
    PosteriorTrajectories,
    SurrogateTransition,
    SurrogateTransitions,
)
from stansub.kernels.within_gibbs import GradientMove, MetropolisWithinGibbs, WithinGibbs
from stansub.progress import Progress
from stansub.run.posteriors import make_uncut, read
from stansub.stan.toolchain.library import Model
from stansub.target import group_candidates
from stansub.target.affine import AffinePosterior
from stansub.target.approximation import Approximation
from stansub.target.group_candidates import Joint
from stansub.target.split import Split
from stansub.target.symmetries import Equivalence
from stansub.tuning import within_gibbs
from stansub.tuning.effects.coordinates import find_effects
from stansub.tuning.effects.normal_effects import find_normal_effects
from stansub.tuning.surrogates import surrogate
from stansub.tuning.surrogates.hmc import Tuner

Array = NDArray[np.float64]
Pair = tuple[DirectKernel, DirectKernel]

N_STEPS = 100
# Distance of the rough surrogate's expansion point from the tuned one, in sds of the arguments.
_OFF = 0.7
# Steps of trajectories of fixed length: so few that some are rejected.
_FEW_STEPS = 2
# Joint decisions with the smallest kappa, and candidates for each observation up to which they decide: otherwise all
# observations would, because there are few.
_JOINT, _SHARE = Joint(kappa=1.0, most=1e9, candidates=0.0), 20.0


@dataclass(frozen=True)
class Setup:
    """Kernels tuned on one simulated data set.

    Attributes
    ----------
    theta : ndarray, shape (dim,)
        The parameters from which the data were simulated, unconstrained.
    tuned, rough : SurrogateTransition
        Set-up of surrogate transitions with the no-U-turn sampler, and the same with an expansion elsewhere and without
        corrections, so that much depends on decisions.
    gibbs, rough_gibbs : Gibbs or None
        The Gibbs sampler on these two surrogates; None if effects are not normal under them.
    """

    split: Split
    full: Model
    theta: Array
    tuned: SurrogateTransition
    rough: SurrogateTransition
    gibbs: Gibbs | None
    rough_gibbs: Gibbs | None
    levels: MetropolisWithinGibbs

    def transitions(self, *, rough: bool = False, sampler: str = "nuts", **changes: Any) -> SurrogateTransition:
        """Return surrogate transitions with decisions from all observations, unless changed."""
        own, gibbs = (self.rough, self.rough_gibbs) if rough else (self.tuned, self.gibbs)
        trajectories = _trajectories(own)
        inner = {
            "nuts": own.inner,
            "hmc": trajectories,
            "random-length": trajectories.of_random_length(),
            "gibbs": gibbs,
            "given scales": gibbs and GivenScales(gibbs.effects, trajectories.step_size, trajectories.n_steps),
        }[sampler]
        if inner is None:
            raise RuntimeError("effects were not found to be normal under the surrogate")
        return replace(own, inner=inner, **{"joint": None, **changes})


def _on_posterior(own: Setup) -> PosteriorTrajectories:
    n_observations = own.split.predictors.n_observations
    return PosteriorTrajectories(own.split.posterior(), n_observations, _trajectories(own.tuned))


def _trajectories(transition: SurrogateTransition) -> FixedLength:
    """Return trajectories of a third of a circle in the metric of the no-U-turn sampler."""
    own = transition.inner
    assert isinstance(own, NoUTurn)
    return FixedLength(own.coordinates, own.centre, own.metric, 2 * np.pi / 3 / _FEW_STEPS, _FEW_STEPS)


@cache
def compiled(name: str) -> stansub.CompiledModel:
    """Return a compiled program, once for each process."""
    return stansub.compile_model(MODELS[name].path)


def set_up(model: Multilevel, number: int, seed: int) -> Setup:
    """Simulate parameters and data, and tune the kernels."""
    simulating, tuning = np.random.SeedSequence([seed, number]).spawn(2)
    values, data = model.simulate(np.random.default_rng(simulating))
    rng, progress = np.random.default_rng(tuning), Progress()
    given = read(compiled(model.name), data, progress)
    posterior, _ = make_uncut(given, seed=1, observations=None, log=progress)
    split = posterior.split()
    with (
        patch.object(surrogate, "find_normal_effects", lambda *given: None),
        patch.object(Tuner, "_fixed_length", lambda *given: None),
        # Kernels are correct however far draws of the surrogate are from the posterior.
        patch.object(surrogate, "_NEAR", np.inf),
    ):
        found = surrogate.tune(split, posterior.dim, rng, progress)
    tuned = found.transition
    off = tuned.approximation.point + _OFF * tuned.sds * rng.standard_normal(len(tuned.sds))
    rough = replace(tuned, approximation=Approximation.plain(split.predictors.expansion(off)))
    full = find_effects(split.surrogate(tuned.approximation).phi, found.draws[0], rng).full
    structure = find_normal_effects(split, tuned.approximation, full, found.draws, rng)
    gibbs, rough_gibbs = (
        None if structure is None else Gibbs(structure.about(one.approximation, found.draws)) for one in (tuned, rough)
    )
    levels = within_gibbs.tune(split, posterior.dim, rng, progress).transition
    plain = {name: np.asarray(value).tolist() for name, value in values.items()}
    theta = posterior.full.param_unconstrain_json(json.dumps(plain).encode())
    return Setup(split, posterior.full, theta, tuned, rough, gibbs, rough_gibbs, levels)


class Backward(WithinGibbs):
    """The reverse of Metropolis within Gibbs: the same moves in reverse order."""

    def step(self, rng: np.random.Generator, state: State, params: Any, *, audit: bool = False) -> tuple[State, Info]:
        """Move the levels of all groupings, and along slices after each half."""
        x = self._coordinates.inward(state.position)
        if not np.array_equal(state.position, self._position):
            self.place(x)
        for half in reversed(self._halves):
            for which in reversed(half):
                x, _ = self.move(rng, which, x)
            x, _ = self.without_data(rng, x)
        self._position = self._density.outward(x)
        return State(self._position), {}


def _by_levels(setup: Setup) -> Pair:
    own = setup.levels
    posterior = AffinePosterior.of(setup.split, own.coordinates)
    back = replace(own, slices=own.slices[::-1], widths=own.widths[::-1])
    return WithinGibbs(posterior, own), Backward(posterior, back)


LogDensity = Callable[[Array], tuple[float, Array]]


def _hamiltonian(model: Model, own: NoUTurn | FixedLength, log_density: LogDensity) -> SurrogateHamiltonian:
    """Return Hamiltonian Monte Carlo as set up for a surrogate, on another log density with its gradient."""
    numbers = ctypes.POINTER(ctypes.c_double)

    def gradient(_: Any, _propto: bool, _jacobian: bool, at: Any, value: Any, slope: Any, _error: Any) -> int:
        try:
            value[0], found = log_density(np.ctypeslib.as_array(at, (own.dim,)).copy())
        except RunError:
            return 1
        np.ctypeslib.as_array(slope, (own.dim,))[:] = found
        return 0

    arguments = ctypes.c_void_p, ctypes.c_bool, ctypes.c_bool, numbers, numbers, numbers, ctypes.c_void_p
    function = ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(gradient)
    address = ctypes.cast(function, ctypes.c_void_p).value
    free_error, compiled = model.library.address("bs_free_error_msg"), own.coordinates.compiled()
    return SurrogateHamiltonian(
        model.pointer, address, free_error, own.centre, *own.metric.compiled, compiled, owner=(model, function)
    )


class WithoutVolume(SurrogateTransitions):
    """The no-U-turn sampler omits the volume of its inner coordinates."""

    def __init__(self, split: Split, transition: SurrogateTransition) -> None:
        super().__init__(split, transition)
        own = transition.inner
        assert isinstance(own, NoUTurn)
        model, coordinates = self._surrogate.model, own.coordinates.compiled()

        def log_density(theta: Array) -> tuple[float, Array]:
            inner, of_volume = np.empty(len(theta)), np.zeros(len(theta))
            value, slope = model.log_density_gradient(theta)
            coordinates.inward(theta, inner)
            return value - coordinates.pull(inner, 0.0, of_volume), slope - of_volume

        system = _hamiltonian(model, own, log_density)
        self._inner = partial(system.nuts, step_size=own.step_size, max_tree_depth=MAX_TREE_DEPTH)


class UndecidedTrajectories(SurrogateTransitions):
    """Trajectories of longer steps are accepted whatever the energy at their end."""

    def __init__(self, split: Split, transition: SurrogateTransition) -> None:
        super().__init__(split, transition)
        own = transition.inner
        assert isinstance(own, FixedLength)
        model, rising = self._surrogate.model, count()

        def log_density(theta: Array) -> tuple[float, Array]:
            return 1e6 * next(rising), model.log_density_gradient(theta)[1]

        system = _hamiltonian(model, own, log_density)
        self._inner = partial(system.hmc, step_size=1.5 * own.step_size, n_steps=own.n_steps)


class UndecidedSweeps(SurrogateTransitions):
    """Sweeps are not accepted against the surrogate, though their density is another one."""

    def __init__(self, split: Split, transition: SurrogateTransition) -> None:
        super().__init__(split, transition)
        assert isinstance(transition.inner, Gibbs)
        effects = transition.inner.effects
        own = replace(effects, linear=effects.linear + 0.3, slopes=0.5 * effects.slopes, values=0.5 * effects.values)
        sampler, decided = own.compiled(), self._inner

        def sweeps(bits: Any, theta: Array, n: int = 1) -> Any:
            made = decided(bits, theta.copy(), 1)
            for _ in range(n):
                sampler.sweep(bits, theta)
            return made

        self._inner = sweeps


class WithoutSurrogate(SurrogateTransitions):
    """The acceptance ratio is that of the likelihood, as if the prior had proposed."""

    def __init__(self, split: Split, transition: SurrogateTransition) -> None:
        super().__init__(split, transition)
        self._decisions._approximation = lambda phi: 0.0


class Undecided(SurrogateTransitions):
    """Every proposal is accepted."""

    def __init__(self, split: Split, transition: SurrogateTransition) -> None:
        super().__init__(split, transition)
        self._decisions.decide = lambda rng, here, there: {"accepted": True}


class StepSizeOfState(SurrogateTransitions):
    """The step size is a thousandth where the first parameter is below its centre."""

    def step(self, rng: np.random.Generator, state: State, params: Any, *, audit: bool = False) -> tuple[State, Info]:
        """Set the step size, run the transitions and decide."""
        tuned = self._transition.inner
        assert isinstance(tuned, NoUTurn)
        factor = 1.0 if state.position[0] > tuned.centre[0] else 1e-3
        self._inner = replace(tuned, step_size=factor * tuned.step_size).bound(self._surrogate)
        return super().step(rng, state, params)


def _at_a_tenth_of_the_rate(*parts: Any) -> GroupedObservations:
    """Return remainders whose candidates are drawn as if bounds were a tenth as large."""
    constants = parts[4][:, 0]
    constants /= 10
    made = GroupedObservations(*parts)
    constants *= 10
    return made


def _a_tenth_of_the_rate() -> AbstractContextManager[Any]:
    return patch.object(group_candidates._loop, "GroupedObservations", _at_a_tenth_of_the_rate)


def _half_the_bounds() -> AbstractContextManager[Any]:
    whole = group_candidates._split

    def halves(*given: Any) -> tuple[Array, Array]:
        split, worst = whole(*given)
        return split / 2, worst

    return patch.object(group_candidates, "_split", halves)


def _symmetric() -> AbstractContextManager[Any]:
    return patch.object(GradientMove, "log_ratio", lambda self, change, *others: change)


def _forgotten() -> AbstractContextManager[Any]:
    return patch.object(Equivalence, "copy", lambda self: Equivalence.none(len(self.scale)))


@dataclass(frozen=True)
class Kernel:
    """A kernel with a decision.

    Attributes
    ----------
    make : callable
        From a set-up to the kernel and its reverse.
    error : str
        What is wrong; empty for a correct kernel.
    models : tuple of str
        Names of the programs.
    broken : callable
        Returns a context in which the error is made.
    """

    name: str
    decision: str
    make: Callable[[Setup], Pair]
    error: str = ""
    models: tuple[str, ...] = tuple(MODELS)
    broken: Callable[[], AbstractContextManager[Any]] = nullcontext


def _transitions(
    name: str,
    decision: str,
    *,
    error: str = "",
    models: tuple[str, ...] = tuple(MODELS),
    broken: Callable[[], AbstractContextManager[Any]] = nullcontext,
    of: type[SurrogateTransitions] = SurrogateTransitions,
    **options: Any,
) -> Kernel:
    """Return a kernel of surrogate transitions, which is its own reverse; see `Setup.transitions` for the options."""

    def make(setup: Setup) -> Pair:
        own = setup.transitions(**options)
        return of(setup.split, own), of(setup.split, own)

    return Kernel(name, decision, make, error, models, broken)


HMC, RANDOM_LENGTH = "HMC on the surrogate", "HMC of random length on the surrogate"
NUTS, ROUGH, LEVELS = "NUTS on the surrogate", "three NUTS transitions on a rough surrogate", "Metropolis within Gibbs"
_SWEEPS = "sweeps of another density are not decided"
GIBBS, ROUGH_GIBBS = "Gibbs sampling on the surrogate", "three Gibbs sweeps on a rough surrogate"
GIVEN_SCALES, ROUGH_GIVEN = "HMC given the scales on the surrogate", "three such transitions on a rough surrogate"
ALL, POISSON, BY_LEVEL = "all observations", "joint Poisson", "all observations, by level"
# Bounds of products of coefficients are so wide that all observations would decide, and the products are not normal.
_BOUNDED = ("crossed", "correlated", "horseshoe")
_POOR: Values = {"models": ("crossed",), "rough": True, "n": 3}
_JOINTLY: Values = {"joint": _JOINT, "models": _BOUNDED}

KERNELS = (
    _transitions(NUTS, ALL),
    _transitions(NUTS, POISSON, **_JOINTLY),
    _transitions(ROUGH, ALL, rough=True, n=3),
    _transitions(ROUGH, POISSON, rough=True, n=3, **_JOINTLY),
    _transitions(HMC, ALL, sampler="hmc"),
    _transitions(HMC, POISSON, sampler="hmc", **_JOINTLY),
    _transitions(RANDOM_LENGTH, ALL, sampler="random-length"),
    _transitions(GIBBS, ALL, sampler="gibbs", models=_BOUNDED),
    _transitions(GIBBS, POISSON, sampler="gibbs", **_JOINTLY),
    _transitions(ROUGH_GIBBS, ALL, sampler="gibbs", rough=True, n=3, models=_BOUNDED),
    _transitions(GIVEN_SCALES, ALL, sampler="given scales", models=_BOUNDED),
    _transitions(ROUGH_GIVEN, ALL, sampler="given scales", rough=True, n=3, models=_BOUNDED),
    Kernel("HMC on the posterior", ALL, lambda own: 2 * (_on_posterior(own),)),
    Kernel(LEVELS, BY_LEVEL, _by_levels),
    _transitions(
        NUTS, ALL, error="the volume of inner coordinates is omitted", of=WithoutVolume, models=("correlated",), n=1
    ),
    _transitions(
        GIBBS,
        ALL,
        error="sweeps of another density are not decided",
        of=UndecidedSweeps,
        sampler="gibbs",
        models=("crossed",),
    ),
    _transitions(ROUGH, ALL, error="every proposal is accepted", of=Undecided, **_POOR),
    _transitions(ROUGH, ALL, error="the acceptance ratio omits the surrogate", of=WithoutSurrogate, **_POOR),
    _transitions(
        HMC,
        ALL,
        error="trajectories are not decided",
        of=UndecidedTrajectories,
        sampler="hmc",
        models=("crossed",),
        n=1,
    ),
    _transitions(NUTS, ALL, error="the step size changes", of=StepSizeOfState, models=("crossed",), n=1),
    _transitions(
        ROUGH, POISSON, error="candidates at a tenth of the rate", broken=_a_tenth_of_the_rate, joint=_JOINT, **_POOR
    ),
    _transitions(ROUGH, POISSON, error="half the bounds", broken=_half_the_bounds, joint=_JOINT, **_POOR),
    Kernel(LEVELS, BY_LEVEL, _by_levels, "moves accepted as if symmetric", ("crossed",), _symmetric),
    Kernel(LEVELS, BY_LEVEL, _by_levels, "moves of scales forget earlier ones", ("item_response",), _forgotten),
)


class Row(NamedTuple):
    """Result of a kernel on one data set.

    Attributes
    ----------
    kernel : int
        Index in `KERNELS`.
    uniforms : tuple of float
        Ranks between 0 and 1, of the quantities of `named`.
    moved : float
        Share of the steps that changed the parameters.
    from_all : float
        Share of the decisions from all observations.
    failure : str
        Why there are no ranks; empty if there are.
    """

    model: str
    number: int
    kernel: int
    uniforms: tuple[float, ...] = ()
    moved: float = float("nan")
    from_all: float = float("nan")
    failure: str = ""


def named(model: Multilevel) -> tuple[str, ...]:
    """Return the names of the ranked quantities of a program."""
    return (*model.quantities, "log likelihood", "remainder")


def _values(model: Multilevel, setup: Setup) -> Callable[[Array], Array]:
    """Return the function from unconstrained parameters to the quantities of `named`."""
    names, approximation = setup.full.param_names(include_tp=True), setup.rough.approximation
    which, about = [names.index(name) for name in model.quantities], setup.split.surrogate(approximation)

    def values(theta: Array) -> Array:
        phi = about.phi(theta)
        log_lik = setup.split.predictors.log_lik(phi)
        own = setup.full.param_constrain(theta, include_tp=True)[which]
        return np.array([*own, log_lik, log_lik - approximation(phi)])

    return values


class _Chain(NamedTuple):
    positions: list[Array]
    moved: float
    from_all: float


def _chain(setup: Setup, kernel: Kernel, rng: np.random.Generator) -> _Chain:
    """Return the other positions of a chain with the simulated parameters in a random place."""
    setup.split.predictors.latest.clear()  # remainders of another kernel
    forth, back = kernel.make(setup)
    before = int(rng.integers(N_STEPS + 1))
    positions, moved, from_all = [], 0, 0
    for one, n in ((back, before), (forth, N_STEPS - before)):
        state = one.init(setup.theta)
        for _ in range(n):
            last = state.position
            state, info = one.step(rng, state, None)
            positions.append(state.position)
            moved += not np.array_equal(last, state.position)
            from_all += kernel.decision != POISSON or bool(info["undecided"])
    return _Chain(positions, moved / N_STEPS, from_all / N_STEPS)


def rows(model: Multilevel, number: int, seed: int) -> Iterator[Row]:
    """Yield the results of all kernels on one data set."""
    setup = set_up(model, number, seed)
    values = _values(model, setup)
    truth = values(setup.theta)
    for k, kernel in enumerate(KERNELS):
        if model.name not in kernel.models:
            continue
        rng = np.random.default_rng([seed, number, k])
        try:
            with patch.object(group_candidates, "SHARE", _SHARE), kernel.broken():
                chain = _chain(setup, kernel, rng)
        except RuntimeError as error:
            yield Row(model.name, number, k, failure=one_line(error))
            continue
        draws = np.array([values(position) for position in chain.positions])
        below, ties = (draws < truth).sum(axis=0), (draws == truth).sum(axis=0)
        ranks = [Rank(int(a + rng.integers(b + 1)), N_STEPS) for a, b in zip(below, ties, strict=True)]
        yield Row(model.name, number, k, tuple(one.uniform(rng) for one in ranks), chain.moved, chain.from_all)
