"""A surrogate to sample from: where the likelihood is expanded.

The point of expansion is not the joint mode, which for effects with an unknown scale is where that scale is 0. First
the mode of the likelihood with a weak ridge, in its own arguments, which knows nothing of scales; then, as long as what
the surrogate leaves out varies less and less, the mean of short runs on the surrogate before. At first nothing but the
expansion is in the likelihood's place, then corrections for such draws are, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from stansub import memory
from stansub.errors import RunError
from stansub.kernels.surrogate import SurrogateTransition
from stansub.progress import Progress
from stansub.selection import SurrogateSettled
from stansub.target.approximation import Approximation, approximation
from stansub.target.cholesky import cholesky
from stansub.target.group_candidates import Joint, choose_joint, shared
from stansub.target.groupings import Recentred
from stansub.target.remainders import NoPredictorsError
from stansub.target.sparse import Quadratic, SparsePredictors
from stansub.target.split import Differentiable, Split
from stansub.tuning.coordinates import Inner, find_effects
from stansub.tuning.differences import Differences
from stansub.tuning.surrogate_nuts import POINTS, Tuned, Tuner, spread
from stansub.types import FloatArray

# Precision of the ridge, and steps and step halvings towards its mode, which need not be found exactly.
_RIDGE, _NEWTON, _HALVINGS, _DECREMENT = 0.1, 25, 12, 0.1
# Rounds with a new metric, and expansions.
_ROUNDS, _EXPANSIONS = 3, 4
# Starting values that are tried.
_STARTS = 50
# Draws whose remainders are looked at.
_LOOKED_AT = 12
# The sd of the remainders' differences below which another expansion gains nothing.
_SMALL = 0.05


@dataclass(frozen=True)
class Settled:
    """What surrogate transitions rest on.

    Attributes
    ----------
    transition : SurrogateTransition
    draws : ndarray, shape (n, dim)
        Of the surrogate: where chains may start.
    noise : float
        Standard deviation of what the expansion leaves out, over draws of the surrogate.
    diverging : float
        Share of the transitions on the surrogate that diverged.
    n_passes : int
        Evaluations of all observations.
    """

    transition: SurrogateTransition
    draws: FloatArray
    noise: float
    diverging: float
    n_passes: int

    def choice(self) -> SurrogateSettled:
        """For the record."""
        return SurrogateSettled(self.noise, self.n_passes, self.transition.n)

    def starts(self, n: int) -> tuple[FloatArray, ...]:
        """Draws of the surrogate, far from each other in their order."""
        return tuple(spread(self.draws, n))


def settle(split: Split, dim: int, rng: np.random.Generator, progress: Progress) -> Settled:
    """Find a point of expansion, a metric and a step size.

    Raises
    ------
    RunError
        When the likelihood or the surrogate is not defined where that begins.
    """
    progress("Finding a point of expansion")
    quadratic, n_passes = _ridge_mode(split.predictors, progress)
    if not (
        np.isfinite(quadratic.value) and np.isfinite(quadratic.gradient).all() and np.isfinite(quadratic.values).all()
    ):
        raise RunError("the likelihood has no expansion where its arguments are 0; use another proposal")
    plain = Approximation.plain(quadratic)
    surrogate = split.surrogate(plain)
    start = _start(surrogate.model, dim, rng)
    effects = find_effects(surrogate.phi, start, rng.spawn(1)[0], progress.check)
    # Halfway between both coordinates all parameters interact that do in any.
    half = effects.weighted(np.full(effects.n_blocks, 0.5))
    differences = Differences(Inner(surrogate.model, half), half.inward(start), progress.check)
    tuner = Tuner(effects, differences, rng, progress.check)
    exploration = _Exploration(split, tuner, progress)
    found = exploration(plain, start[np.newaxis], start[np.newaxis])
    n_passes += found.n_passes
    for approximated, passes in ((_expanded, 1), (approximation, 1 + len(found.draws))):
        for _ in range(_EXPANSIONS):
            if found.noise < _SMALL:
                break
            progress("Expanding again")
            surrogate = split.surrogate(found.approximation)
            about = approximated(split.predictors, [surrogate.phi(theta) for theta in found.draws])
            points = spread(found.draws, POINTS)
            again = exploration(about, found.draws[-1:], points)
            n_passes += passes + again.n_passes
            if not again.noise < found.noise:
                break
            found = again
    progress("Tuning the sampler of the surrogate")
    surrogate = split.surrogate(found.approximation)
    tuned = tuner.finish(surrogate, found.approximation.quadratic.precision, found.tuned)
    recentred = Recentred(split.predictors, found.approximation.point)
    phis = [recentred(surrogate.phi(theta)) for theta in tuned.draws]
    sds = np.std(phis, axis=0)
    transition = SurrogateTransition(
        found.approximation,
        tuned.coordinates,
        tuned.centre,
        tuned.factor,
        tuned.step_size,
        sds,
        _joint(split.predictors, found.approximation, sds, list(spread(np.array(phis), POINTS))),
        tuned.n,
    )
    memory.give_back()
    return Settled(transition, tuned.draws, found.noise, tuned.diverging, n_passes)


def _expanded(predictors: SparsePredictors, phis: Sequence[FloatArray]) -> Approximation:
    """About the mean of draws, with no corrections."""
    return Approximation.plain(predictors.expansion(np.mean(phis, axis=0)))


def _joint(
    predictors: SparsePredictors, about: Approximation, sds: FloatArray, phis: Sequence[FloatArray]
) -> Joint | None:
    """Joint decisions, where they cost less than all observations do."""
    try:
        observations, _ = shared(predictors, about.quadratic, sds)
    except NoPredictorsError:
        return None
    return choose_joint(observations, phis, predictors.n_observations, n_arguments=len(predictors.rows))


def _start(density: Differentiable, dim: int, rng: np.random.Generator) -> FloatArray:
    """Unconstrained parameters where the surrogate is defined.

    Raises
    ------
    RunError
        When none are found.
    """
    for attempt in range(_STARTS):
        theta = rng.uniform(-0.5, 0.5, dim) * 0.9**attempt
        try:
            value, gradient = density.log_density_gradient(theta)
        except RunError:
            continue
        if np.isfinite(value) and np.isfinite(gradient).all():
            return np.asarray(theta)
    raise RunError("the surrogate is not defined at any of the parameter values tried; choose another proposal")


def _ridge_mode(predictors: SparsePredictors, progress: Progress) -> tuple[Quadratic, int]:
    """The expansion at the mode of the likelihood with a ridge, about; and the passes that it took."""
    m, n_passes = predictors.dim, 1
    ridge = sp.identity(m, format="csr") * _RIDGE
    here = predictors.expansion(np.zeros(m))
    for _ in range(_NEWTON):
        progress.check()
        slope = here.gradient - _RIDGE * here.point
        step = cholesky(sp.csc_array(here.precision + ridge)).solve(slope)
        decrement = float(slope @ step)
        if not decrement > _DECREMENT:
            break
        value = here.value - 0.5 * _RIDGE * here.point @ here.point
        for halving in range(_HALVINGS):
            phi = here.point + 0.5**halving * step
            n_passes += 1
            if predictors.log_lik(phi) - 0.5 * _RIDGE * phi @ phi > value + 1e-4 * 0.5**halving * decrement:
                break
        else:
            break
        here = predictors.expansion(phi)
        n_passes += 1
    return here, n_passes


class _Explored(NamedTuple):
    approximation: Approximation
    tuned: Tuned
    noise: float
    n_passes: int

    @property
    def draws(self) -> FloatArray:
        """Of the surrogate."""
        return self.tuned.draws


@dataclass(frozen=True)
class _Exploration:
    """Draws of a surrogate, and what it leaves out over them."""

    split: Split
    tuner: Tuner
    progress: Progress

    def __call__(self, about: Approximation, draws: FloatArray, points: FloatArray) -> _Explored:
        """From the last of some draws; the first metric is that at the points."""
        surrogate = self.split.surrogate(about)
        for _ in range(_ROUNDS):
            tuned = self.tuner.round(surrogate, about.quadratic.precision, draws, points)
            draws, points = tuned.draws, spread(tuned.draws, POINTS)
        some = spread(draws, _LOOKED_AT)
        remainders = []
        for one in some:
            self.progress.check()
            phi = surrogate.phi(one)
            remainders.append(self.split.predictors.log_lik(phi) - about(phi))
        return _Explored(about, tuned, float(np.std(remainders)), len(some))
