"""Preparation of a run before its first step: posterior, test, mode and starting values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from stansub import streams
from stansub.acceptance.decreasing_level import DecreasingLevel
from stansub.acceptance.ranges import Range
from stansub.acceptance.stopping import Exact, Guarantee, StoppingRule
from stansub.decision_selection import ExactWithoutVariates
from stansub.errors import InputError
from stansub.kernels.proposals import Proposal
from stansub.kernels.recipes import Leaf, Recipe
from stansub.kernels.surrogate import SurrogateTransition
from stansub.kernels.within_gibbs import MetropolisWithinGibbs
from stansub.output.words import WITHOUT_MODE
from stansub.progress import Progress
from stansub.run import choices, range_sources, transitions
from stansub.run.config import SampleConfig
from stansub.run.constrain import SavedQuantities, check_draws
from stansub.run.cross_chain import CrossChainAdaptation
from stansub.run.inits import Init, given_points, load, near
from stansub.run.posteriors import Data, Model, ModelInput, make_posterior, read, recorded_of
from stansub.run.range_sources import Ranges
from stansub.run.state import Plan, SetupState
from stansub.selection import Choices, Chosen, ProductsLeft, TransitionsLeft, updated
from stansub.stan.analysis import Analysis
from stansub.stan.instances import Instances
from stansub.stan.posterior import Posterior
from stansub.target.blocks import coarse_size
from stansub.target.functions import FunctionFactors
from stansub.tuning.about_mode import or_along
from stansub.tuning.mode_setup import ModeSetup
from stansub.tuning.mode_tuner import MOST_BY_ALL, anchor
from stansub.tuning.mode_variates import ModeRequest
from stansub.tuning.modes.mode import NoModeError
from stansub.tuning.modes.starts import RADIUS
from stansub.tuning.proposal_names import named, without_race
from stansub.types import FloatArray
from stansub.variates_selection import NoVariatesWithoutMode


@dataclass(frozen=True, kw_only=True)
class Setup(SetupState):
    """Setup of a run as values; together with program and data it determines the draws."""

    config: SampleConfig
    """The options, with the seed drawn and the number of threads."""
    moves: str | Proposal | Recipe
    """The chains' proposal, or their kernel."""
    starts: tuple[Init | FloatArray | None, ...]
    """Starting value of each chain; None for overdispersed starts about the mode."""

    def adapted(self, adaptation: CrossChainAdaptation | None) -> Setup:
        """Return the setup with the results of cross-chain adaptation; the same for a run without it."""
        return self if adaptation is None else replace(self, found=adaptation.found, rule=adaptation.test)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields for workers in other processes, without the executor, which belongs to one process."""
        config = self.config
        if not isinstance(config.executor, str):
            config = replace(config, executor="threads")
        return {one.name: getattr(self, one.name) for one in fields(self)} | {"config": config}

    @property
    def threads(self) -> int:
        """Return the number of chains that run at once."""
        assert self.config.parallel_chains is not None
        return self.config.parallel_chains

    @property
    def choices(self) -> dict[str, Chosen]:
        """Return the choices made for the user, with reasons."""
        return updated(self.found.choices if self.found is not None else {}, *self.notes.values())

    @property
    def not_smooth(self) -> str:
        """Return why no mode was searched for; empty if one was."""
        if self.transition is not None:
            return WITHOUT_MODE[self.transition.name]
        return "" if self.config.smooth else self.config.not_smooth

    @property
    def order(self) -> int:
        """Return the order of the control variates."""
        return self.found.order if self.found is not None else 0

    def ranges(self, posterior: Posterior, progress: Progress | None = None) -> Ranges:
        """Return the source of the range that was chosen, for another process or a resumed run."""
        kind = "auto" if self.range_kind == "none" else self.range_kind
        return range_sources.choose_range(self.asked_rule, posterior, kind, order=self.config.order, progress=progress)


@dataclass(frozen=True)
class Prepared:
    """A run that is ready to start."""

    setup: Setup
    """Setup of the run; the other fields belong to this process."""
    posterior: Posterior
    ranges: Ranges
    """Source of the range for the chains' deciders."""
    compiled_at: float
    """Time when the program was compiled (see `stansub.clock.now`)."""
    data_file: str = ""
    """Source of the data, as in `DataSources.recorded`; empty if they were passed as values."""
    tuned: transitions.Tuned | None = None
    """Setup of the transition, if there is one."""


def prepare(model: Model, data: Data, config: SampleConfig, progress: Progress, folder: Path | None = None) -> Prepared:
    """Find and choose everything that chains need.

    Parameters
    ----------
    folder : Path, optional
        Folder of the files that receive the draws, if they need not all be in memory.

    Raises
    ------
    InputError
        If the program, the data or an option cannot be used.
    TimeLimitError
        If the time limit is reached before the run is ready.
    """
    config = with_seed(config, streams.given_or_drawn(config.seed))
    if isinstance(model, Posterior | FunctionFactors):
        _check_given(data, config)
    inits = load(RADIUS if config.inits is None else config.inits, config.chains)
    given = read(model, data, progress)._replace(near=near(inits))
    if known := SavedQuantities.known(given.analysis.program):
        SavedQuantities.of(config).check(known)
    with given.unchanged():
        prepared = _Preparation(given, inits, config, progress, folder).prepared()
    return replace(prepared, data_file=recorded_of(data))


class _Preparation(NamedTuple):
    """What a run is prepared from; see `prepare`."""

    given: ModelInput
    inits: Sequence[Init]
    config: SampleConfig
    progress: Progress
    folder: Path | None

    def prepared(self) -> Prepared:
        """Prepare surrogate transitions if they suit the model, otherwise decisions from parts of the data."""
        rejected = None
        if self.config.splits or self.config.moves_free:
            found = transitions.find(self.given, self.config, self.progress)
            if isinstance(found, transitions.TransitionSetup):
                return self._of_transitions(found)
            rejected = found
        return self._subsampled(rejected)

    def _of_transitions(self, found: transitions.TransitionSetup) -> Prepared:
        """Prepare a run of surrogate transitions."""
        config, posterior, rule = self.config.of_length(transitions=True), found.posterior, found.rule
        assert config.seed is not None
        _check_memory(posterior, config, self.folder)
        promise = rule.guarantee(None)
        audit, audit_note = _audits(posterior, rule, promise, config)
        starts, moved = found.starts(config, self.inits, self.progress)
        setup = Setup(
            config=config,
            seed=config.seed,
            asked_rule=rule,
            rule=rule,
            guarantee=promise.value,
            range_kind="none",
            found=None,
            transition=found.transition,
            moves=found.transition,
            starts=starts,
            plan=_plan(config, audit),
            trial=False,
            notes=updated({}, *found.notes, *_products(posterior, config), *moved, *audit_note),
        )
        return Prepared(setup, posterior, Ranges("none"), found.compiled_at, tuned=found.tuned)

    def _subsampled(self, rejected: TransitionsLeft | None) -> Prepared:
        """Prepare a run whose decisions use parts of the data; ``rejected`` says why not surrogate transitions."""
        given, config, progress = self.given, self.config.of_length(transitions=False), self.progress
        seed = config.seed
        assert seed is not None
        rule = config.make_test()
        sized = _block_size if isinstance(given.model, Posterior) else _first_size
        posterior, compiled_at = make_posterior(
            given.model,
            given.values,
            block_size=config.block_size or partial(sized, rule, config),
            seed=seed,
            observations=config.observations,
            near=given.near,
            log=progress,
        )
        posterior = _with_decision_size(posterior, rule, config)
        if config.max_error is not None:
            rule = rule.of_a_decision(config.max_error, len(posterior.blocks))
        _check_memory(posterior, config, self.folder)
        ranges = range_sources.choose_range(rule, posterior, config.range_source, order=config.order, progress=progress)
        found, fitted, notes = _mode_setup(posterior, rule, ranges, config, self.inits, progress)
        if found is not None and _is_poor(found, fitted, posterior, config):
            other = transitions.instead(given, config, found.independent, progress)
            if other is not None:
                return self._of_transitions(other)
            found, fitted = or_along(posterior, found, fitted, mode_request(config, ranges.source), progress)
            if found.trajectories is not None:
                config = self.config.of_length(transitions=True)
                transitions.forecast_from(found.choices, config, progress)
        if not _of_observations(found):
            posterior = posterior.for_decisions(progress)
        promise = fitted.guarantee(ranges.source)
        fixed = config.block_size is not None or (
            isinstance(given.model, Posterior | FunctionFactors) and not given.model.any_block_size
        )
        audit, audit_note = _audits(posterior, fitted, promise, config)
        block_note = _block_note(posterior, fitted, found, given=fixed)
        left = [_left(rejected, posterior.dim, found)] if rejected is not None else []
        setup = Setup(
            config=config,
            seed=seed,
            # Cross-chain adaptation begins with the test before its looks were fitted, or the test that replaced it.
            asked_rule=rule if rule.fits_looks and fitted.name == rule.name else fitted,
            rule=fitted,
            guarantee=promise.value,
            range_kind=ranges.kind,
            found=found,
            transition=None,
            moves=moves_of(config, found, None),
            starts=tuple(self.inits) if found is None or config.inits is not None else (None,) * config.chains,
            plan=_plan(config, audit, _levels(fitted, config)),
            trial=_tests_normality(promise, fitted, config, posterior.full.param_unc_names()),
            notes=updated(notes, block_note, *ranges.notes, *audit_note, *_products(posterior, config), *left),
        )
        return Prepared(setup, posterior, ranges, compiled_at)


def _left(rejected: TransitionsLeft, dim: int, found: ModeSetup | None) -> TransitionsLeft:
    """Return why surrogate transitions are not used; a race may show that moves about the mode suit instead.

    The number of parameters is no longer an estimate from the text.
    """
    suits = found is not None and found.merit > 0 and found.independent >= transitions.NEAR_NORMAL
    return replace(rejected, n_parameters=dim, hardly_moves=rejected.hardly_moves and not suits)


def _is_poor(found: ModeSetup, test: StoppingRule, posterior: Posterior, config: SampleConfig) -> bool:
    """Return whether moves about the mode are poor: without bounds, on a posterior far from normal, from few data."""
    free = config.moves_free and not test.thins and len(found.modes.found) == 1
    is_small = posterior.blocks.n_observations <= MOST_BY_ALL and posterior.pilot is None
    return free and is_small and found.independent < transitions.NEAR_NORMAL


def _products(posterior: Posterior, config: SampleConfig) -> tuple[Chosen, ...]:
    """Return a note of effects whose products with other parameters are not declared; empty if there are none."""
    if not posterior.program.code:
        return ()
    values = {name: value for text in posterior.followed for name, value in text.values.values.items()}
    effects = posterior.analysis.undeclared(config.observations or "", values)
    return (ProductsLeft(effects),) if effects else ()


def _plan(config: SampleConfig, audit: float, levels: DecreasingLevel | None = None) -> Plan:
    return Plan(config.iter_warmup, config.iter_sampling, config.stored_every, audit, config.save_warmup, levels)


def moves_of(
    config: SampleConfig, found: ModeSetup | None, transition: SurrogateTransition | MetropolisWithinGibbs | None
) -> str | Proposal | Recipe:
    """Return the chains' proposal, or their kernel."""
    if transition is not None:
        return transition
    about = (found.trajectories or found.proposal) if found is not None else None
    moves = config.kernel or about or config.proposal
    return without_race(moves) if isinstance(moves, str) else moves


def with_seed(config: SampleConfig, seed: int) -> SampleConfig:
    """Return the options with a seed and the number of threads set, and without the console, which cannot be shared."""
    threads = min(config.chains, config.parallel_chains or choices.cores())
    return replace(config, seed=seed, parallel_chains=threads, console=None)


def _check_given(data: Data, config: SampleConfig) -> None:
    if any(one is not None for one in (data, config.block_size, config.observations)):
        raise InputError("the given posterior fixes data, block_size and observations: leave them out")


def _block_size(rule: StoppingRule, config: SampleConfig, analysis: Analysis, n: int, instances: bool) -> int:
    """Return the default observations per block."""
    variates = config.order != "0"
    if rule.needs_range:
        request = range_sources.RangeRequest(analysis, config.order)
        variates = range_sources.bounds_remainders(rule, request, config.range_source)
    return rule.block_size(n, instances=instances, variates=variates)


def _first_size(rule: StoppingRule, config: SampleConfig, analysis: Analysis, n: int, instances: bool) -> int:
    """Return the default observations per block, more if decisions may use single observations."""
    size = _block_size(rule, config, analysis, n, instances)
    bounded = config.exact_free or (rule.thins and not rule.learns_bounds and config.kernel is None)
    batches = isinstance(config.proposal, str) and named(config.proposal).batches
    return coarse_size(size, n) if bounded and instances and not batches and analysis.has_family else size


def _with_decision_size(posterior: Posterior, rule: StoppingRule, config: SampleConfig) -> Posterior:
    """Return the posterior with the block size for decisions noted, if its blocks are larger."""
    if config.block_size is not None or not isinstance(posterior.population, Instances):
        return posterior
    size = _block_size(rule, config, posterior.analysis, posterior.blocks.n_observations, True)
    return replace(posterior, decision_size=size) if size < posterior.blocks.size else posterior


def _of_observations(found: ModeSetup | None) -> bool:
    """Return whether decisions use single observations."""
    return found is not None and found.variates is not None and found.variates.blockwise is None


def _block_note(posterior: Posterior, rule: StoppingRule, found: ModeSetup | None, *, given: bool) -> Chosen:
    some = found is not None and found.variates is not None
    single = _of_observations(found)
    return choices.block_size_chosen(posterior.blocks.size, given=given, test=rule, variates=some, single=single)


def _check_memory(posterior: Posterior, config: SampleConfig, folder: Path | None) -> None:
    check_draws(
        posterior,
        chains=config.chains,
        draws=config.iter_sampling // config.stored_every,
        warmup=config.iter_warmup // config.stored_every,
        kept=SavedQuantities.of(config),
        folder=folder,
    )


def _levels(rule: StoppingRule, config: SampleConfig) -> DecreasingLevel | None:
    """Return how the error level decreases after warmup; None if it is constant."""
    if config.final_epsilon is None:
        return None
    if rule.error is None or rule.error.value == 0 or config.kernel is not None:
        raise InputError(
            "`final_epsilon` needs the built-in kernel and a test with an error level above 0: leave it out"
        )
    return DecreasingLevel(rule.error.value, config.final_epsilon, config.iter_sampling)


def _tests_normality(promise: Guarantee, rule: StoppingRule, config: SampleConfig, names: Sequence[str]) -> bool:
    """Return whether to test the normality assumption of a t-test at the end of warmup."""
    asymptotic = promise == Guarantee.ASYMPTOTIC and rule.rests_on_t
    return asymptotic and config.iter_warmup > 0 and (config.kernel is None or _decides_among_all(config.kernel, names))


def _decides_among_all(kernel: Recipe, names: Sequence[str]) -> bool:
    """Return whether a kernel takes one decision per step, by the test, among all blocks, as the trial does."""
    leaf = kernel.leaves(names)
    return isinstance(leaf, Leaf) and len(leaf.places) == len(names) and not leaf.exact


def _audits(
    posterior: Posterior, rule: StoppingRule, promise: Guarantee, config: SampleConfig
) -> tuple[float, tuple[Chosen, ...]]:
    """Return the share of decisions to audit and, if the user accepts an error, what these audits can detect."""
    if promise == Guarantee.PROVED or (promise == Guarantee.EXACT and config.audit is None):
        return 0.0, ()
    n_decisions, n_observations = config.chains * config.iter_foreseen, posterior.blocks.n_observations
    if config.max_error is None or config.audit is not None:
        return choices.choose_audit(config.audit, n_decisions, n_observations), ()
    share, note = choices.audit_within(config.max_error, n_decisions, n_observations)
    return share, (replace(note, per_look=rule.error.value) if rule.level_of_a_look and rule.error else note,)


def _mode_setup(
    posterior: Posterior,
    rule: StoppingRule,
    ranges: Ranges,
    config: SampleConfig,
    inits: Sequence[Init],
    progress: Progress,
) -> tuple[ModeSetup | None, StoppingRule, Choices]:
    """Call `find_mode_setup` with these options; return its reasons if nothing was found."""
    if not config.smooth:
        return None, rule, updated({}, NoVariatesWithoutMode(config.not_smooth))
    request = replace(mode_request(config, ranges.source), points=given_points(posterior, inits, config.seed))
    found, rule, chosen = find_mode_setup(posterior, rule, request, progress)
    return found, rule, {} if found is not None else chosen


def mode_request(config: SampleConfig, spread: Range | None) -> ModeRequest:
    """Return the request that these options make of the search for a mode."""
    assert config.seed is not None
    assert config.parallel_chains is not None
    return ModeRequest(
        order=config.order,
        proposal=config.proposal if isinstance(config.proposal, str) else "given",
        n_steps=config.chains * (config.iter_warmup + config.iter_foreseen),
        seed=config.seed,
        threads=config.parallel_chains,
        looks_given=config.looks_given,
        test_free=config.test_free,
        exact_free=config.exact_free,
        spread=spread,
    )


def find_mode_setup(
    posterior: Posterior, test: StoppingRule, request: ModeRequest, progress: Callable[[str], None]
) -> tuple[ModeSetup | None, StoppingRule, Choices]:
    """Return the setup about the mode (None if not used), the test, and the choices with reasons.

    Raises
    ------
    NoModeError
        If there is no mode and the user requested something that needs one.
    """
    moves, spread = named(request.proposal), request.spread
    if request.order == "0" and moves.race is None:
        return None, test, {}
    try:
        if not posterior.has_gradients:
            raise NoModeError("no search for modes: the posterior has no `log_lik_gradient`", "undefined")
        found, test = anchor(posterior, test, request, progress)
    except NoModeError as error:
        if request.order in ("1", "2") or moves.needs_mode or (spread is not None and spread.order):
            raise
        chosen = updated({}, NoVariatesWithoutMode(str(error)))
        if request.exact_free and posterior.blocks.n_observations <= MOST_BY_ALL:
            return None, Exact(), updated(chosen, ExactWithoutVariates(test.name))
        return None, test, chosen
    return found, test, found.choices
