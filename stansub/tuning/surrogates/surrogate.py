"""Setup of a surrogate posterior: the choice of the expansion point of the likelihood.

The expansion point is not the joint mode, which for effects with an unknown scale is where that scale is 0. It is first
the mode of the likelihood with a weak ridge, in its own arguments, which does not depend on scales. As long as the
variance of what the surrogate omits decreases, it is then the mean of short runs on the previous surrogate. At first
only the expansion replaces the likelihood; later, corrections for such draws are added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from stansub import memory
from stansub.errors import RunError
from stansub.kernels.surrogate import FixedLength, Hamiltonian, NoUTurn, SurrogateTransition
from stansub.mode_findings import ENOUGH_CLIMBS
from stansub.progress import Progress
from stansub.selection import Along, SurrogateSettled
from stansub.target.approximation import Approximation, approximation
from stansub.target.cholesky import is_definite
from stansub.target.directions import common_coefficients
from stansub.target.groupings import Recentred
from stansub.target.joint_settings import Choice, choose_joint
from stansub.target.simplexes import NO_SIMPLEXES, Simplexes
from stansub.target.sparse import Quadratic, SparsePredictors
from stansub.target.split import Split, Surrogate
from stansub.tuning.effects.coordinates import find_effects
from stansub.tuning.effects.normal_effects import find_normal_effects
from stansub.tuning.surrogates.differences import Differences
from stansub.tuning.surrogates.hmc import POINTS, Tuned, Tuner
from stansub.tuning.surrogates.interactions import surrogate_interactions
from stansub.tuning.surrogates.normal import NormalApproximation, of_surrogate
from stansub.tuning.surrogates.of_effects import EffectsTuner
from stansub.tuning.surrogates.omissions import noise_of, remainders, selected
from stansub.tuning.surrogates.on_posterior import is_cheap, tuned_on_posterior
from stansub.tuning.surrogates.ridge import ridge_mode
from stansub.tuning.surrogates.sampler_choice import choose_sampler
from stansub.tuning.surrogates.sampler_runs import spread
from stansub.tuning.surrogates.signs import Mirror
from stansub.tuning.surrogates.starting import find_start, highest, pinned
from stansub.types import Check, FloatArray

# Rounds with a new metric if draws before are far from the posterior, and expansions.
_ROUNDS, _EXPANSIONS = 3, 4
# Ratio of remainders at draws for steps to those before, above which draws left the region where a surrogate is good.
_FARTHER = 5.0
# Sds by which the level of remainders may be below that at earlier draws.
_STRAYS = 3.0
# Draws between which candidates of joint decisions are counted; their number varies by factors of ten.
_DECIDED = 16
# Sds of the remainders below which another expansion gains nothing, and one with terms along directions, which makes
# gradients of the surrogate dearer.
_SMALL, _SMALL_ENOUGH = 0.05, 0.2
# Sd above which the draws of an approximation without these terms that is no better are tried for the next one.
_POOR = 0.4
# Sd above which draws are far from the posterior, and the same relative to the sd of the log density, about the root of
# half the dimension; most expansions then.
_FAR, _SHARE, _APPROACH = 1.0, 0.1, 10
# Ratio of an sd to the one before above which another expansion is not worth its time; estimates are off by as much.
_HARDLY = 0.9
# Most expansions in a row that are damped if draws are so far that only the first ones lead nearer.
_DAMPED = 2
# Sd from which trajectories lead to the posterior.
_NEAR = 10.0
# Draws over which expansions are averaged.
_AVERAGED = 8
# Draws of the final sampler at which remainders are measured, and times that a surrogate is made again about these.
_SHOWN, _AGAIN = 60, 2
# Draws about which these terms are made: directions are those of their covariance.
_MANY_DRAWS = 200


class FarError(RunError):
    """No expansion of the likelihood leads to the posterior: draws of surrogates stay where the posterior is tiny.

    What they omit varies by more than the posterior's log density, whose sd is about the root of half the dimension.

    Attributes
    ----------
    begin : Quadratic or None
        The first expansion, if there was one alone.
    """

    def __init__(self, begin: Quadratic | None = None) -> None:
        super().__init__("no expansion of the likelihood leads to the posterior")
        self.begin = begin


@dataclass(frozen=True)
class TunedSurrogate:
    """Setup of surrogate transitions."""

    transition: SurrogateTransition
    draws: FloatArray
    """Shape (n, dim): draws of the surrogate, from which chains may start."""
    noise: float
    """Standard deviation of what the approximation omits, over its draws; may be infinite; 0 if it is not sampled."""
    diverging: float
    """Share of the transitions on the surrogate that diverged."""
    n_passes: int
    mirrors: tuple[Mirror, ...] = ()
    """Changes of signs that leave the posterior unchanged, if they were searched for."""
    others: tuple[TunedSurrogate, ...] = ()
    """Surrogates about other modes of the posterior, if they were searched for."""
    behind: float | None = None
    """Difference in log evidence between the best mode and the best of those that were left out, if there are any."""
    n_starts: int = 0
    n_reached: int = 0
    """Climbs of that search, and those of them that reached the highest maximum."""
    n_seen: int = 0
    """Modes at which trajectories from random starts arrived, if there were any."""
    by_all: str = ""
    """Why decisions use all observations, if they do."""
    tuner: Tuner | None = field(default=None, repr=False)
    """Tuner of Hamiltonian Monte Carlo."""
    along: Along | None = None
    """Why trajectories are on the posterior itself from the first, if they are."""

    @property
    def may_be_lower(self) -> bool:
        """Return whether so few climbs reached the highest maximum that others may be missed."""
        return self.n_starts > 0 and self.n_reached < ENOUGH_CLIMBS

    def choice(self) -> SurrogateSettled:
        """Return the choice for the record."""
        sampler, n_modes = self.transition.describe(), 1 + len(self.others)
        counts = self.n_starts, self.n_reached, n_modes, self.n_seen
        return SurrogateSettled(self.noise, self.n_passes, sampler, *counts, self.behind)

    def normal(self, split: Split) -> NormalApproximation:
        """Return a normal approximation of the posterior."""
        return of_surrogate(split, self.transition, self.draws)

    def hamiltonian(self, surrogate: Surrogate) -> Hamiltonian:
        """Return a sampler of trajectories on the surrogate, even if steps are made by another one."""
        inner = self.transition.inner
        if isinstance(inner, Hamiltonian):
            return inner
        assert self.tuner is not None
        return self.tuner.about(surrogate, self.transition.approximation.precision, self.draws)

    def starts(self, n: int) -> tuple[FloatArray, ...]:
        """Return draws of the surrogates in turn, far apart in their order; every second one with changed signs."""
        each = [spread(one.draws, n) for one in (self, *self.others)]
        found = np.array([each[k % len(each)][k] for k in range(n)])
        for mirror in self.mirrors:
            found[1::2, mirror.places] *= -1
        return tuple(found)


def tune(
    split: Split,
    dim: int,
    rng: np.random.Generator,
    progress: Progress,
    *,
    begin: Quadratic | None = None,
    simplexes: Simplexes = NO_SIMPLEXES,
) -> TunedSurrogate:
    """Find an expansion point, a metric and a step size.

    Parameters
    ----------
    begin : Quadratic, optional
        The first expansion; by default that near the mode of the likelihood with a ridge.
    simplexes : Simplexes, optional
        Arguments that are logarithms of the elements of a simplex.

    Raises
    ------
    FarError
        If no expansion leads to the posterior.
    RunError
        If the likelihood or the surrogate is undefined at the start.
    """
    progress("Finding the expansion point")
    quadratic, n_passes = (begin, 0) if begin is not None else ridge_mode(split.predictors, progress)
    if not quadratic.is_finite:
        raise RunError("the likelihood has no expansion where its arguments are 0; use another proposal")
    plain = Approximation.plain(quadratic, simplexes=simplexes)
    exploration, start = Exploration.of(split, plain, dim, rng, progress)
    found = exploration.begin(plain, start)
    not_near = max(_FAR, _SHARE * float(np.sqrt(dim / 2)))
    stages, n_passes = list(_stages(split.predictors, simplexes, not_near, progress)), n_passes + found.n_passes
    cheap = is_cheap(split.predictors, quadratic, exploration.tuner.differences.pattern_metric)
    far = max(_NEAR, np.sqrt(dim))
    # Where draws run away from the posterior, an expansion costs as much as trajectories on it.
    near = stages[0]._replace(small=_NEAR if cheap else far, most_damped=0 if cheap else _DAMPED)
    found, _, n_passes = exploration.improved(found, [near], n_passes)
    if found.noise > far:
        raise FarError(quadratic)
    on_posterior = exploration.on_posterior(found, n_passes) if cheap else None
    if on_posterior is not None:
        return on_posterior
    found, first, n_passes = exploration.improved(found, stages, n_passes)
    last = stages[0] if found.approximation.simplexes.places else stages[-1]
    return exploration.tuned(found, first, n_passes, last)


class _Stage(NamedTuple):
    """Approximations of one kind."""

    approximated: Callable[[Sequence[FloatArray], float], tuple[Approximation, int]]
    """Function from arguments at draws of a surrogate, and the sd of its remainders there, to an approximation, and the
    passes over the data that it took.
    """
    small: float
    """Sd of the remainders below which none is made."""
    n_draws: int = 0
    """Fewest draws about which they are made."""
    poor: float = _POOR
    """Sd above which the draws of one that is no better are tried for the next one."""
    most: int = _EXPANSIONS
    """Most expansions."""
    far: float = np.inf
    """Sd above which draws are far from the posterior, and selected by what the previous surrogate omits."""
    most_damped: int = 0
    """Most expansions in a row that are damped."""


def _stages(predictors: SparsePredictors, simplexes: Simplexes, far: float, progress: Progress) -> Iterator[_Stage]:
    """Yield kinds of approximations, each for draws closer to the posterior.

    Corrections are those of the likelihood, not of the Lagrangian, which mostly needs none.
    """
    found = partial(approximation, predictors, advance=progress.advance)
    yield _Stage(
        partial(_normal, predictors, simplexes, far),
        _SMALL,
        poor=far,
        most=_APPROACH,
        far=far,
        most_damped=_APPROACH,
    )
    yield _Stage(lambda phis, _: found(phis, directions=False), _SMALL_ENOUGH if simplexes.places else _SMALL)
    if common_coefficients(predictors).size:
        yield _Stage(lambda phis, _: found(phis), _SMALL_ENOUGH, _MANY_DRAWS, _SMALL_ENOUGH)


def _normal(
    predictors: SparsePredictors, simplexes: Simplexes, far: float, phis: Sequence[FloatArray], noise: float
) -> tuple[Approximation, int]:
    """Return the expansion about the mean of draws; if they are far from the posterior, the mean of several expansions.

    On a bent ridge, the curvature at the mean is that of no draw and may be negative. Under a normal distribution, the
    nearest normal likelihood has the mean gradient and curvature.
    """
    if noise < far:
        quadratic = predictors.expansion(simplexes.nearest(np.mean(phis, axis=0)))
        return Approximation.on_simplexes(quadratic, simplexes, phis), 1
    some = spread(np.array(phis), _AVERAGED)
    quadratic = Quadratic.mean(predictors.expansions(list(some)))
    return Approximation.plain(quadratic, is_mean=True, simplexes=simplexes), len(some)


def _between(one: Approximation, other: Approximation) -> Approximation:
    """Return the approximation half way between two without corrections."""
    quadratic = Quadratic.mean([one.quadratic, other.quadratic])
    return Approximation.plain(quadratic, is_mean=True, simplexes=one.simplexes)


def _choice(
    predictors: SparsePredictors,
    about: Approximation,
    sds: FloatArray,
    phis: Sequence[FloatArray],
    *,
    check: Check,
    **costs: float,
) -> Choice:
    """Return settings of joint decisions, or why decisions use all observations (see `choose_joint`)."""
    if about.is_mean:
        return Choice(None, "the approximation is a mean of several expansions, on whose errors no bounds are known")
    return choose_joint(predictors, about.quadratic, sds, phis, check=check, **costs)


class _Explored(NamedTuple):
    """A surrogate with draws of it."""

    approximation: Approximation
    tuned: Tuned
    level: float
    noise: float
    """Mean and standard deviation of what it omits, over the draws."""
    remainders: FloatArray
    """What it omits at each draw."""

    @property
    def n_passes(self) -> int:
        """Return the passes over the data that it took."""
        return len(self.remainders)

    @property
    def draws(self) -> FloatArray:
        """Return draws of the surrogate."""
        return self.tuned.draws

    def selected(self) -> FloatArray:
        """Return as many draws, closer to the posterior."""
        return np.asarray(self.draws[selected(self.remainders)])


@dataclass(frozen=True)
class Exploration:
    """Draws of a surrogate, by a sampler of effects if one suits or else without U-turns, and what it omits there."""

    split: Split
    tuner: Tuner
    effects: EffectsTuner | None
    progress: Progress

    @classmethod
    def of(
        cls, split: Split, plain: Approximation, dim: int, rng: np.random.Generator, progress: Progress
    ) -> tuple[Exploration, FloatArray]:
        """Return the exploration of a split, and parameters where the surrogate with this expansion is defined."""
        surrogate = split.surrogate(plain)
        start = find_start(surrogate.model, dim, rng)
        # If the expansion bends up somewhere, draws that start far from its point may run away from it.
        if not is_definite(plain.precision):
            start = highest(pinned(split, plain.point), start)
        effects = find_effects(surrogate.phi, start, rng.spawn(1)[0], progress.check)
        own = rng.spawn(1)[0]
        structure = find_normal_effects(split, plain, effects.full, start[np.newaxis], own, progress.check)
        effects = structure.joined(effects) if structure else effects
        half = effects.halfway()
        pattern = surrogate_interactions(split, plain, half, half.inward(start), progress.check)
        differences = Differences(pattern, progress.check)
        of_effects = None if structure is None else EffectsTuner.of(structure, own, progress.check)
        return cls(split, Tuner(effects, differences, rng, progress.check), of_effects, progress), start

    def improved(self, found: _Explored, stages: Iterable[_Stage], n_passes: int) -> tuple[_Explored, _Explored, int]:
        """Return the best surrogate, the best without corrections, and the passes over the data up to here."""
        first = found
        for stage in stages:
            latest, damped = found, 0
            for _ in range(stage.most):
                if found.noise < stage.small:
                    break
                self.progress("Expanding again")
                surrogate = self.split.surrogate(latest.approximation)
                draws = latest.selected() if latest.noise > stage.far else latest.draws
                drawn = self.drawn(latest, stage.n_draws) if stage.n_draws else draws
                about, n_more = stage.approximated([surrogate.phi(theta) for theta in drawn], latest.noise)
                for _ in range(damped):
                    about = _between(found.approximation, about)
                again = self(about, draws, latest.noise)
                n_passes += n_more + again.n_passes
                strays, n_more = self.strays(again, latest.draws) if again.noise < found.noise else (True, 0)
                n_passes += n_more
                if not strays:
                    hardly = again.noise > _HARDLY * found.noise
                    found, latest, damped = again, again, 0
                    first = first if found.approximation.is_corrected else found
                    if hardly and found.noise <= stage.poor:
                        break
                elif found.noise <= stage.poor:
                    break
                elif damped < stage.most_damped:
                    damped += 1
                elif latest is found and np.isfinite(again.noise):
                    latest = again
                else:
                    break
        return found, first, n_passes

    def on_posterior(self, found: _Explored, n_passes: int) -> TunedSurrogate | None:
        """Return trajectories on the posterior itself; None if a scale is uncertain, or if they diverge."""
        if found.noise < _SMALL_ENOUGH or not np.isfinite(found.noise):
            return None
        self.progress("Tuning trajectories on the posterior")
        is_uncertain = self.effects.structure.is_uncertain if self.effects else lambda draws: False
        made = tuned_on_posterior(self.split, self.tuner, found.approximation, found.draws, is_uncertain)
        if made is None:
            return None
        tuned, about, inner = made.tuned, made.about, made.tuned.inner
        if tuned.diverges:
            return None
        assert isinstance(inner, NoUTurn | FixedLength)
        transition = SurrogateTransition(about, inner, made.sds, None, tuned.n, on_posterior=inner, share=1.0)
        n_passes += made.n_passes
        return TunedSurrogate(
            transition, tuned.draws, 0.0, tuned.diverging, n_passes, tuner=self.tuner, along=Along.CHEAP
        )

    def tuned(self, found: _Explored, first: _Explored, n_passes: int, last: _Stage) -> TunedSurrogate:
        """Return the setup with the sampler for steps, and decisions; parameters as `improved` returns them."""
        self.progress("Tuning the surrogate's sampler")
        predictors = self.split.predictors
        found, n_more = self.finished(found, first, last)
        surrogate, tuned = self.split.surrogate(found.approximation), found.tuned
        recentred = Recentred(predictors, found.approximation.point)
        phis = [recentred(surrogate.phi(theta)) for theta in tuned.draws]
        sds = np.std(phis, axis=0)
        some = list(spread(np.array(phis), _DECIDED))
        microseconds = tuned.n * tuned.transition_cost if np.isfinite(tuned.transition_cost) else 0.0
        costs = {"noise": found.noise, "microseconds": microseconds}
        choice = _choice(predictors, found.approximation, sds, some, check=self.progress.check, **costs)
        transition = SurrogateTransition(found.approximation, tuned.inner, sds, choice.joint, tuned.n)
        memory.give_back()
        return TunedSurrogate(
            transition,
            tuned.draws,
            found.noise,
            tuned.diverging,
            n_passes + n_more,
            by_all=choice.reason,
            tuner=self.tuner,
        )

    def begin(self, about: Approximation, start: FloatArray) -> _Explored:
        """Explore from the first parameters."""
        if self.effects is None:
            return self._explored(about, self._rounds(about, start[np.newaxis], start[np.newaxis], _ROUNDS))
        return self(about, self.effects.gibbs.begin(about, start))

    def __call__(self, about: Approximation, draws: FloatArray, noise: float = np.inf) -> _Explored:
        """Explore from the last draw of a surrogate that omits so much; little if its draws suit the next metric."""
        tuned = self.effects and self.effects.round(self.split.surrogate(about), about, draws)
        n = 1 if noise < _FAR else _ROUNDS
        return self._explored(about, tuned or self._rounds(about, draws, spread(draws, POINTS), n))

    def drawn(self, found: _Explored, n: int) -> FloatArray:
        """Return the draws of a surrogate, and more if they are fewer than ``n``, shape (n, dim)."""
        sampler = found.tuned.inner.bound(self.split.surrogate(found.approximation))
        n_more = max(n - len(found.draws), 0)
        more = self.tuner.drawn(sampler, found.draws[-1], n_more, apart=found.tuned.n)
        return np.vstack([found.draws, more])

    def finished(self, found: _Explored, plain: _Explored, last: _Stage) -> tuple[_Explored, int]:
        """Return the surrogate with the sampler for steps, and the number of passes over the data.

        Corrections may be wrong where no draws were, and longer runs get there. The surrogate is then made again, about
        these draws. If it is still wrong by far, that without corrections is used if it is better.
        """
        best, least = self._ended(found), max(found.noise, _SMALL)
        n_passes = len(best.remainders)
        for _ in range(_AGAIN):
            if best.noise < _SMALL_ENOUGH or not np.isfinite(best.noise):
                break
            surrogate = self.split.surrogate(best.approximation)
            phis = [surrogate.phi(theta) for theta in spread(best.draws, _MANY_DRAWS)]
            about, n_more = last.approximated(phis, best.noise)
            again = self(about, best.draws, best.noise)
            n_passes += n_more + again.n_passes
            if again.noise > _HARDLY * best.noise:
                break
            again = self._ended(again)
            n_passes += len(again.remainders)
            if again.noise >= best.noise:
                break
            best = again
        if best.noise > _FARTHER * least and found is not plain:
            other = self._ended(plain)
            n_passes += len(other.remainders)
            best = min(best, other, key=lambda one: one.noise)
        return best, n_passes

    def _ended(self, found: _Explored) -> _Explored:
        """Return a surrogate with the sampler for steps, and what it omits over the draws of that."""
        surrogate = self.split.surrogate(found.approximation)
        tuned = choose_sampler(surrogate, found.approximation, found.tuned, self.tuner, self.effects)
        about = found.approximation.loosened([surrogate.phi(theta) for theta in tuned.draws])
        remainders = self._remainders(about, spread(tuned.draws, _SHOWN))
        noise = noise_of(remainders)
        error = float(np.hypot(noise, np.mean(remainders) - found.level)) if np.isfinite(noise) else noise
        return found._replace(approximation=about, tuned=tuned, noise=error, remainders=remainders)

    def strays(self, found: _Explored, before: FloatArray) -> tuple[bool, int]:
        """Return whether corrections attract draws to where there was none before, and the passes over the data.

        The density is less there. Under the posterior the mean of the remainders is larger than under the surrogate by
        about their variance.
        """
        if not found.approximation.is_corrected:
            return False, 0
        there = self._remainders(found.approximation, spread(before, _DECIDED))
        least = found.noise**2 + _STRAYS * max(found.noise, _SMALL)
        return bool(np.median(there) - found.level > least), len(there)

    def _rounds(self, about: Approximation, draws: FloatArray, points: FloatArray, n: int) -> Tuned:
        """Return draws without U-turns from the last of some draws; the first metric is that at the points."""
        surrogate = self.split.surrogate(about)
        for _ in range(n):
            tuned = self.tuner.round(surrogate, about.precision, draws, points)
            draws, points = tuned.draws, spread(tuned.draws, POINTS)
        return tuned

    def _explored(self, about: Approximation, tuned: Tuned) -> _Explored:
        remainders = self._remainders(about, tuned.draws)
        noise = np.inf if tuned.is_stuck else noise_of(remainders)
        return _Explored(about, tuned, float(np.mean(remainders)), noise, remainders)

    def _remainders(self, about: Approximation, draws: FloatArray) -> FloatArray:
        return remainders(self.split, about, draws, self.progress)
