"""Decision whether a run splits prior and likelihood: by name, or by default if effects have an unknown scale.

The text shows effects with an unknown scale, and whether the likelihood can be separated from the rest. With many
parameters, surrogate transitions are then used. With few, they are not used if the posterior has several modes, or if
the likelihood is of a known family and draws of the surrogate show that the posterior is so nearly normal that moves
about the mode do better.

With many parameters of which an observation reads few, surrogate transitions are used even if the scales are known,
unless they hardly move.

If observations multiply coefficients of two groupings, as in item response models, a surrogate omits much. With many
parameters, Metropolis within Gibbs is then used, whether or not the scales are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import numpy as np

from stansub import streams
from stansub.acceptance.rules import Exact
from stansub.acceptance.stopping import Poisson as PoissonTest
from stansub.acceptance.stopping import StoppingRule
from stansub.decision_selection import ExactOfTransitions
from stansub.errors import EndedError, InputError, RunError
from stansub.findings import LongRun
from stansub.kernels.surrogate import SurrogateTransition
from stansub.kernels.within_gibbs import MetropolisWithinGibbs
from stansub.output.checks import LEAST_ACCEPTED
from stansub.output.layout import Layout
from stansub.progress import Progress
from stansub.run.choices import cores
from stansub.run.config import SampleConfig
from stansub.run.inits import Init, start
from stansub.run.posteriors import ModelInput, make_uncut
from stansub.selection import (
    Chosen,
    LevelsSettled,
    SignsChange,
    StartsAtOneCopy,
    StartsMoved,
    StepCost,
    TransitionsLeft,
    TransitionsTaken,
)
from stansub.stan.posterior import Posterior
from stansub.target.levels import multiplies
from stansub.target.remainders import NoPredictorsError
from stansub.target.threads import one_blas_thread
from stansub.tuning import within_gibbs
from stansub.tuning.surrogates.far_starts import begun
from stansub.tuning.surrogates.maxima import tune
from stansub.tuning.surrogates.signs import Places, find_mirrors
from stansub.tuning.surrogates.surrogate import TunedSurrogate
from stansub.tuning.transitions import normal_rate, tried
from stansub.tuning.visited_modes import copies
from stansub.tuning.within_gibbs import TunedWithinGibbs
from stansub.types import FloatArray

# With more parameters, a posterior with effects is not tested for normality, and may have several modes: other moves
# would not mix. With fewer, they do, and jump between modes.
MANY = 50
# Acceptance rate of normal moves from which moves about the mode do better. It was 0.85 for 20 centred effects of
# 100,000 observations, which gave ten times the draws, and 0.48 for the same effects non-centred, where they stick.
NEAR_NORMAL = 0.7
# Share of divergent transitions above which chains stay for long where a scale is near 0.
MOST_DIVERGING = 0.1
# Why transitions that move on the posterior itself use all observations.
_BY_PASSES = "each pass over them decides about all levels of a grouping, one by one"
_BY_GRADIENTS = "trajectories on the posterior itself take gradients of all of them, and need no other decisions"
# Seconds of sampling from which its time is forecast.
_LONG = 300.0


Tuned: TypeAlias = TunedSurrogate | TunedWithinGibbs


@dataclass(frozen=True)
class TransitionSetup:
    """Transitions of a run: on a surrogate, or Metropolis within Gibbs."""

    posterior: Posterior
    compiled_at: float
    """Time when the program was compiled."""
    tuned: Tuned
    rule: StoppingRule
    """Test of their decisions."""
    notes: tuple[Chosen, ...]

    @property
    def transition(self) -> SurrogateTransition | MetropolisWithinGibbs:
        """Return the kernel."""
        return self.tuned.transition

    def starts(
        self, config: SampleConfig, inits: Sequence[Init], progress: Progress
    ) -> tuple[tuple[FloatArray, ...], tuple[Chosen, ...]]:
        """Return where chains start, and a note if some do not start at their inits."""
        if config.inits is None:
            return self.tuned.starts(config.chains), ()
        assert config.seed is not None
        rngs = [streams.generator(config.seed, streams.Chain.INIT, chain=chain) for chain in range(len(inits))]
        given = [start(self.posterior, *each, chain=k) for k, each in enumerate(zip(inits, rngs, strict=True))]
        split = self.posterior.split(progress)
        if isinstance(self.tuned, TunedSurrogate):
            starts, far = begun(split, self.tuned, given, rngs[0], progress)
        else:
            starts, far = within_gibbs.begun(split, self.tuned.transition, given, rngs[0], progress)
        return starts, (StartsMoved(tuple(chain + 1 for chain in far)),) if far else ()

    @property
    def hardly_moves(self) -> bool:
        """Return whether trial moves show that the chains will not mix."""
        return any(one.hardly_moves for one in self.notes if isinstance(one, TransitionsTaken | LevelsSettled))


def find(given: ModelInput, config: SampleConfig, progress: Progress) -> TransitionSetup | TransitionsLeft | None:
    """Return transitions, the reason not to use them, or None if the text does not suggest them.

    Raises
    ------
    InputError
        If they were requested and do not suit the posterior, or the data cannot be used.
    RunError
        If they were requested and the surrogate is nowhere defined.
    """
    if config.splits:
        make, refusal = _REQUESTED[str(config.proposal)]
        try:
            return make(*_split(given, config, progress), config, progress)
        except NoPredictorsError as error:
            raise InputError(f"{refusal}: {error}; choose another proposal") from error
    size = config.observations or ""
    hints, many = given.analysis.hints(size), given.n_parameters > MANY
    if not hints.suits_any(many=many):
        return None
    try:
        return _by_default(given, config, progress)
    except EndedError:
        raise
    except (NoPredictorsError, RunError) as error:
        if not hints.suits_surrogate(many=many):
            return None
        effects, adds = hints.effects, hints.adds_logarithms
        hardly_moves = many and bool(effects)
        return TransitionsLeft(effects, given.n_parameters, hardly_moves, str(error), adds_logarithms=adds)


def instead(given: ModelInput, config: SampleConfig, independent: float, progress: Progress) -> TransitionSetup | None:
    """Return surrogate transitions instead of moves about the mode that stay in tails; None if they do not suit.

    ``independent`` is the acceptance rate of independent draws from the normal approximation at the mode.
    """
    try:
        found = _with_surrogate(*_split(given, config, progress), config, progress, independent=independent)
    except EndedError:
        raise
    except (NoPredictorsError, RunError):
        return None
    return found if isinstance(found, TransitionSetup) and not found.hardly_moves else None


def _by_default(
    given: ModelInput, config: SampleConfig, progress: Progress
) -> TransitionSetup | TransitionsLeft | None:
    """Return Metropolis within Gibbs if the likelihood has products, or else surrogate transitions for effects."""
    posterior, compiled_at = _split(given, config, progress)
    if multiplies(posterior.split(progress).predictors):
        with suppress(NoPredictorsError):
            found = _within_gibbs(posterior, compiled_at, config, progress)
            if not found.hardly_moves:
                return found
    if given.analysis.hints(config.observations or "").suits_surrogate(many=True):
        return _with_surrogate(posterior, compiled_at, config, progress)
    return None


def _split(given: ModelInput, config: SampleConfig, progress: Progress) -> tuple[Posterior, float]:
    """Return the posterior for a split, and the time when its program was compiled."""
    assert config.seed is not None
    return make_uncut(given, seed=config.seed, observations=config.observations, log=progress)


def _within_gibbs(
    posterior: Posterior, compiled_at: float, config: SampleConfig, progress: Progress
) -> TransitionSetup:
    """Return Metropolis within Gibbs after setup."""
    assert config.seed is not None
    rng = streams.generator(config.seed, streams.Run.LEVELS)
    tuned = within_gibbs.tune(posterior.split(progress), posterior.dim, rng, progress)
    note = tuned.choice(asked=config.splits, hardly_moves=min(tuned.accepted) < LEAST_ACCEPTED)
    return TransitionSetup(posterior, compiled_at, tuned, Exact(), (note, ExactOfTransitions(_BY_PASSES)))


# Surrogates may lead so far that sds of draws overflow: they are infinite then.
@np.errstate(over="ignore")
@one_blas_thread()
def _with_surrogate(
    posterior: Posterior,
    compiled_at: float,
    config: SampleConfig,
    progress: Progress,
    *,
    independent: float | None = None,
) -> TransitionSetup | TransitionsLeft:
    """Return surrogate transitions after setup and a trial, or why they are not used by default.

    If they hardly move, they are not used with few parameters, or without effects of unknown scale: other moves may do.
    """
    assert config.seed is not None
    hints = posterior.analysis.hints(config.observations or "")
    effects, adds = hints.effects, hints.adds_logarithms
    left = partial(TransitionsLeft, effects, posterior.dim, adds_logarithms=adds)
    split = posterior.split(progress)
    rng, rng_of_starts = (streams.generator(config.seed, one) for one in (streams.Run.SURROGATE, streams.Run.MAXIMA))
    tuned = tune(split, posterior.dim, rng, rng_of_starts, progress)
    tuned, labels = _without_copies(posterior, tuned)
    rng, normal = streams.generator(config.seed, streams.Run.TRANSITIONS), None
    by_default, few = not config.splits, posterior.dim <= MANY
    # If it is nearly normal, moves about the mode do better, and they are exact.
    simple = by_default and few and split.predictors.family.is_known
    if by_default and few and (tuned.others or tuned.may_be_lower):
        reason = "the posterior has several modes" if tuned.others else "the search for its mode was not conclusive"
        return left(reason=reason)
    if simple:
        normal = normal_rate(split, tuned, rng)
        if normal >= NEAR_NORMAL:
            return left(normal=normal)
    if config.all_data:
        tuned = replace(tuned, transition=replace(tuned.transition, joint=None), by_all="as requested")
    foretold = partial(forecast, config.of_length(transitions=True), progress)
    trial = tried(split, tuned, rng, progress, on_posterior=not simple, forecast=foretold)
    tuned, accepted, of_surrogate, cost = trial
    sticks = accepted < LEAST_ACCEPTED
    hardly_moves = sticks or tuned.diverging > MOST_DIVERGING
    if by_default and ((sticks and few) or (hardly_moves and not effects)):
        return left(accepted=accepted, diverging=tuned.diverging)
    note = TransitionsTaken(
        config.splits,
        effects,
        posterior.dim,
        normal,
        accepted,
        hardly_moves,
        tuned.diverging,
        of_surrogate,
        tuned.along,
        independent,
        adds,
    )
    joint = tuned.transition.joint
    rule = Exact() if joint is None else PoissonTest(kappa=joint.kappa)
    unbounded = _unbounded(posterior, tuned.draws[0])
    mirrors = find_mirrors(unbounded, split.surrogate(tuned.transition.approximation), tuned.draws)
    signs = (SignsChange(tuple(one.names for one in mirrors)),) if mirrors else ()
    if cost is not None:
        foretold(cost)
    by_all = _BY_GRADIENTS if tuned.transition.share == 1 else tuned.by_all
    test = (ExactOfTransitions(by_all),) if joint is None else ()
    notes = (note, *test, tuned.choice(), *([cost] if cost is not None else ()), *signs, *labels)
    return TransitionSetup(posterior, compiled_at, replace(tuned, mirrors=mirrors), rule, notes)


def _without_copies(posterior: Posterior, tuned: TunedSurrogate) -> tuple[TunedSurrogate, tuple[StartsAtOneCopy, ...]]:
    """Return a setup without surrogates about copies of its mode, and a note if there were any."""
    if not tuned.others:
        return tuned, ()
    found = copies(posterior.full, [one.draws for one in (tuned, *tuned.others)])
    others = tuple(one for one, first in zip(tuned.others, found.copy_of[1:], strict=True) if first > 0)
    if len(others) == len(tuned.others):
        return tuned, ()
    return replace(tuned, others=others), (StartsAtOneCopy(tuple(found.permuted), found.becomes),)


def forecast(config: SampleConfig, progress: Progress, cost: StepCost, *, n_done: int = 0) -> None:
    """Warn of the time that sampling will take, if it is long; ``n_done`` steps of all chains are done."""
    assert config.parallel_chains is not None
    n_steps, at_once = config.chains * (config.iter_warmup + config.iter_sampling) - n_done, config.parallel_chains
    seconds, left = cost.seconds * n_steps / at_once, progress.left()
    if seconds >= _LONG:
        share = min(1.0, left / seconds) if left is not None else 1.0
        idle = cores() if cores() > at_once else 0
        found = LongRun(seconds, n_steps, cost.describe(), config.until is not None, share, idle)
        progress.warn(f"{found.lead}: {found.describe().line}")


def forecast_from(choices: Mapping[str, Chosen], config: SampleConfig, progress: Progress, *, n_done: int = 0) -> None:
    """Warn likewise if the cost of a step is among the choices."""
    for one in choices.values():
        if isinstance(one, StepCost):
            forecast(config, progress, one, n_done=n_done)


# Transitions by the name of their proposal, and what a refusal says.
_REQUESTED: dict[str, tuple[Callable[..., TransitionSetup | TransitionsLeft], str]] = {
    "surrogate": (_with_surrogate, "this likelihood has no surrogate"),
    "gibbs": (_within_gibbs, "Metropolis within Gibbs is not possible"),
}


def _unbounded(posterior: Posterior, theta: FloatArray) -> dict[str, Places]:
    """Return the places of parameters whose constrained values are the unconstrained ones, in their shapes."""
    model = posterior.full
    names, values = model.param_unc_names(), dict(zip(model.param_names(), model.param_constrain(theta), strict=True))
    same = np.array([values.get(name) == value for name, value in zip(names, theta, strict=True)])
    return {name: places for name, places in Layout.from_names(names).columns.items() if same[places].all()}
