"""Decision whether a run splits prior and likelihood: by name, or by default if effects have an unknown scale.

The text shows effects with an unknown scale, and whether the likelihood can be separated from the rest. With many
parameters, surrogate transitions are then used. With few, they are used unless draws of the surrogate show that the
posterior is so nearly normal that moves about the mode do better.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from stansub import streams
from stansub.acceptance.rules import Exact
from stansub.acceptance.stopping import Poisson as PoissonTest
from stansub.acceptance.stopping import StoppingRule
from stansub.errors import InputError, RunError
from stansub.kernels.surrogate import SurrogateTransition
from stansub.kernels.within_gibbs import MetropolisWithinGibbs
from stansub.progress import Progress
from stansub.run.config import SampleConfig
from stansub.run.posteriors import ModelInput, make_uncut
from stansub.selection import Chosen, TransitionsLeft, TransitionsTaken
from stansub.stan.posterior import Posterior
from stansub.stan.predictors import predictors_of
from stansub.target.remainders import NoPredictorsError
from stansub.tuning import within_gibbs
from stansub.tuning.surrogate import TunedSurrogate, tune
from stansub.tuning.transitions import accepted_rate, normal_rate
from stansub.tuning.within_gibbs import TunedWithinGibbs

# With more parameters, a posterior with effects is not tested for normality, and its likelihood may be of no known
# family: other moves would not mix. With fewer, they do, and the search for modes after them finds what an expansion
# about a single point does not show.
MANY = 50
# Acceptance rate of normal moves from which moves about the mode do better. It was 0.85 for 20 centred effects of
# 100,000 observations, which gave ten times the draws, and 0.48 for the same effects non-centred, where they stick.
NEAR_NORMAL = 0.7
# Acceptance rate of transitions below which nothing mixes.
LEAST_ACCEPTED = 0.05
# Share of divergent transitions above which chains stay for long where a scale is near 0.
MOST_DIVERGING = 0.1


@dataclass(frozen=True)
class TransitionSetup:
    """Transitions of a run: on a surrogate, or Metropolis within Gibbs.

    Attributes
    ----------
    compiled_at : float
        Time when the program was compiled.
    rule : StoppingRule
        Test of their decisions.
    notes : tuple of Chosen
    """

    posterior: Posterior
    compiled_at: float
    tuned: TunedSurrogate | TunedWithinGibbs
    rule: StoppingRule
    notes: tuple[Chosen, ...]

    @property
    def transition(self) -> SurrogateTransition | MetropolisWithinGibbs:
        """Return the kernel."""
        return self.tuned.transition


def find(given: ModelInput, config: SampleConfig, progress: Progress) -> TransitionSetup | TransitionsLeft | None:
    """Return transitions, the reason not to use them, or None if the text shows no suitable effects.

    Raises
    ------
    InputError
        If they were requested and do not suit the posterior, or the data cannot be used.
    RunError
        If they were requested and the surrogate is nowhere defined.
    """
    if config.within_gibbs:
        try:
            return _within_gibbs(given, config, progress)
        except NoPredictorsError as error:
            raise InputError(f"Metropolis within Gibbs is not possible: {error}; choose another proposal") from error
    effects = given.analysis.effects(config.observations or "")
    if config.surrogate:
        try:
            return _with_surrogate(given, config, effects, progress)
        except NoPredictorsError as error:
            raise InputError(f"this likelihood has no surrogate: {error}; choose another proposal") from error
    if not effects:
        return None
    try:
        return _with_surrogate(given, config, effects, progress)
    except (NoPredictorsError, RunError) as error:
        if isinstance(error, RunError) and type(error) is not RunError:  # an interrupt, or the time limit
            raise
        n = given.n_parameters
        return TransitionsLeft(effects, n, hardly_moves=n > MANY, reason=str(error))


def _within_gibbs(given: ModelInput, config: SampleConfig, progress: Progress) -> TransitionSetup:
    """Return Metropolis within Gibbs after setup."""
    assert config.seed is not None
    posterior, compiled_at = make_uncut(given, seed=config.seed, observations=config.observations, log=progress)
    rng = streams.generator(config.seed, streams.Run.LEVELS)
    tuned = within_gibbs.tune(posterior.split(progress), posterior.dim, rng, progress)
    return TransitionSetup(posterior, compiled_at, tuned, Exact(), (tuned.choice(),))


def _with_surrogate(
    given: ModelInput, config: SampleConfig, effects: tuple[str, ...], progress: Progress
) -> TransitionSetup | TransitionsLeft:
    """Return surrogate transitions after setup and a trial."""
    assert config.seed is not None
    posterior, compiled_at = make_uncut(
        given,
        seed=config.seed,
        observations=config.observations,
        log=progress,
        of_family=not config.surrogate and given.n_parameters <= MANY,
    )
    split = posterior.split(progress)
    tuned = tune(split, posterior.dim, streams.generator(config.seed, streams.Run.SURROGATE), progress)
    rng, normal = streams.generator(config.seed, streams.Run.TRANSITIONS), None
    chosen_if_better = not config.surrogate and posterior.dim <= MANY
    if chosen_if_better and _has_bounds(posterior):
        normal = normal_rate(split, tuned, rng)
        if normal >= NEAR_NORMAL:
            return TransitionsLeft(effects, posterior.dim, normal=normal)
    if config.test is not None:
        tuned = replace(tuned, transition=replace(tuned.transition, joint=None))
    accepted = accepted_rate(split, tuned, rng, progress)
    few = accepted < LEAST_ACCEPTED
    if chosen_if_better and few:
        return TransitionsLeft(effects, posterior.dim, accepted=accepted)
    hardly_moves = few or tuned.diverging > MOST_DIVERGING
    note = TransitionsTaken(config.surrogate, effects, posterior.dim, normal, accepted, hardly_moves, tuned.diverging)
    joint = tuned.transition.joint
    rule = Exact() if joint is None else PoissonTest(kappa=joint.kappa)
    return TransitionSetup(posterior, compiled_at, tuned, rule, (note, tuned.choice()))


def _has_bounds(posterior: Posterior) -> bool:
    """Return whether the text shows bounds for moves about the mode; without bounds, t-tests would decide."""
    try:
        predictors_of(posterior.followed, posterior.blocks.counts)
    except InputError:
        return False
    return True
