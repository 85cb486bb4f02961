"""`sample`: from a program and data to InferenceData."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from stansub import memory, streams
from stansub.acceptance.decide import Derivative, Range, make_decider
from stansub.acceptance.rules import Austerity, Test, is_t_test
from stansub.chosen import Choices, Chosen, NoVariatesWithoutMode, updated
from stansub.errors import DrawsWarning, InputError
from stansub.findings import NotChecked
from stansub.kernels.proposals import Proposal
from stansub.kernels.sgld import MiniBatches, Sgld
from stansub.memory import reason
from stansub.output import files
from stansub.output.inference_data import arviz_module
from stansub.output.summary import Summary, summarise
from stansub.output.words import sentence, words
from stansub.progress import Progress, TimeLimitError
from stansub.run import choices, results, stages
from stansub.run.chain import Chain, Plan
from stansub.run.constrain import Kept, check_draws
from stansub.run.inits import RADIUS, Init, Inits, load, start
from stansub.run.progress import View, chain_progress, default_console, leaving_lines, telling, wanted
from stansub.stan import data as data_module
from stansub.stan import source
from stansub.stan.compiled import CompiledModel, compile_model
from stansub.stan.instances import Instances
from stansub.stan.posterior import Posterior
from stansub.stan.syntax import Program
from stansub.tuning.adapt import SGLD, check_proposal, make_adapter
from stansub.tuning.anchored import PROPOSALS, Anchored, anchor, check_order
from stansub.tuning.missed import ModeCheck, check_modes
from stansub.tuning.mode import NoModeError
from stansub.tuning.trial import WarmupTrial

if TYPE_CHECKING:
    from stansub.output.inference_data import InferenceData

# Seconds between two R-hats.
_R_HAT_EVERY = 2.0

_EVALUATORS = ("auto", "instances", "rewritten")

_Options = ParamSpec("_Options")


@dataclass(frozen=True)
class Settings:
    """What was asked for and chosen, as it is written to the output; with the test it decides the draws."""

    chains: int
    parallel_chains: int
    iter_warmup: int
    iter_sampling: int
    thin: int
    seed: int
    inits: str
    proposal: str
    control_variates: int
    max_time: float | None
    max_error: float | None
    range_source: str
    audit: float
    block_size: int
    observations: str | None
    evaluator: str
    save_warmup: bool
    generated_quantities: bool
    observation_level: bool


def draw(
    model: str | Path | CompiledModel | Posterior,
    data: str | Path | Mapping[str, Any] | None = None,
    *,
    chains: int = 4,
    parallel_chains: int | None = None,
    iter_warmup: int = 2000,
    iter_sampling: int = 10_000,
    thin: int = 1,
    seed: int | None = None,
    inits: Inits | None = None,
    proposal: Literal["auto", "laplace-pcn", "langevin", "adaptive-metropolis", "random-walk", "sgld"]
    | str
    | Proposal = "auto",
    control_variates: Literal["auto", 0, 1, 2] | int | str = "auto",
    max_time: float | None = None,
    test: Test | str | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    max_error: float | None = None,
    range_source: str = "auto",
    looks: Literal["geometric", "fixed"] | str | None = None,
    first_look: int | None = None,
    audit: float | None = None,
    block_size: int | None = None,
    observations: str | None = None,
    evaluator: Literal["auto", "instances", "rewritten"] | str = "auto",
    save_warmup: bool = False,
    generated_quantities: bool = True,
    observation_level: bool = False,
    show_progress: bool | None = None,
    console: Console | None = None,
) -> InferenceData:
    """Sample the posterior of a Stan program by Metropolis-Hastings with subsampled decisions.

    Parameters
    ----------
    model : path, CompiledModel or Posterior
        The ``.stan`` file, what `compile_model` made of it, or that with data (`CompiledModel.with_data`).
    data : path or mapping, optional
        Data in CmdStan's JSON format, or the values by name. With a Posterior there are none to give, nor
        ``block_size``, ``observations`` or ``evaluator``: it has them. A block size that nobody has named is
        chosen as without one.
    chains, parallel_chains : int
        Number of chains, and how many run at once (default: one a core) as threads over one copy of the data.
        The draws do not depend on ``parallel_chains``.
    iter_warmup, iter_sampling : int
        Steps a chain; a step of a random walk moves less far than one of NUTS, so there are more of them.
    thin : int
        Every ``thin``-th step is kept.
    seed : int, optional
        Seed of everything random; drawn and written to the output when not given.
    inits : float, path, mapping, or a sequence of them, optional
        Radius of random inits on the unconstrained space, or constrained values, one for all chains or one a chain. By
        default chains start widely about the mode or, where there is none, within radius 2.
    proposal : {"auto", "laplace-pcn", "langevin", "adaptive-metropolis", "random-walk", "sgld"} or Proposal
        Moves about the mode, random walks that learn their scale and, as ``adaptive-metropolis``, their covariance
        in warmup, or Langevin moves with the gradient of a mini-batch; ``auto`` has a race of those about the mode.
        Or a proposal that is used as it is,
        such as ``stansub.RandomWalk(cholesky)`` or any function of (generator, unconstrained position) that returns the
        proposed position and log q(position | proposed) - log q(proposed | position). Several threads call it.
    control_variates : {"auto", 0, 1, 2}
        Order of the Taylor expansions at the mode which are taken from the blocks' log likelihoods, so that a decision
        looks at small remainders only; ``auto`` weighs what they save against what they cost.
    max_time : float, optional
        Seconds after which the run stops, set-up included; the draws there are are returned. So does Ctrl-C, and
        SIGTERM where ``signal.default_int_handler`` is its handler; a second one raises KeyboardInterrupt.
    test : Test or name, optional
        How a decision is taken from a subset of the data: by a t-test (``"pocock"``, the default, or ``"austerity"``),
        by a bound (``"hoeffding"``, ``"bernstein"``, ``"bernstein-serfling"``), with the noise of the estimated log
        ratio counted in (``"barker"``, ``"penalty"``), or from all the data (``"exact"``).
    epsilon, delta : float, optional
        Error of the t-tests (also those on which ``barker`` and ``penalty`` fall back) and of the bounds, when ``test``
        is a name.
    max_error : float, optional
        Error of a whole decision that is accepted, whatever the test; instead of ``epsilon`` or ``delta``. As many
        decisions are audited as it takes to tell, if that is affordable.
    range_source : {"auto", "lipschitz", "function", "derivative", "scan", "estimate"}
        Where the range constant of the bounds comes from: functions of the program, ``derivative`` with control
        variates and the others without; an estimate voids their guarantee.
    looks : {"geometric", "fixed"}, optional
        Whether the subset grows by a factor from look to look or by a fixed number of blocks, when ``test`` is a name.
    first_look : int, optional
        Blocks at the first look, and of each step of the fixed schedule.
    audit : float, optional
        Share of the decisions that are taken again on all the data, so that the output can say how many were wrong; by
        default one in a hundred, of many cheap ones some hundreds.
    block_size : int, optional
        Observations a block, the unit that is drawn.
    observations : str, optional
        Name of the integer data variable that counts the observations; found when not given.
    evaluator : {"auto", "instances", "rewritten"}
        How block log likelihoods are evaluated.
    save_warmup : bool
        Whether to keep the warmup draws, in groups of their own.
    generated_quantities : bool
        Whether to compute transformed parameters and generated quantities of the draws.
    observation_level : bool
        Whether to keep those that have a value per observation.
    show_progress : bool, optional
        Progress: bars on a terminal or in a notebook, where it is the default; elsewhere a line a stage.
    console : rich.console.Console, optional
        Where progress goes.

    Returns
    -------
    InferenceData
        ``arviz.InferenceData`` under ArviZ 0.2x, ``xarray.DataTree`` under 1.x; groups ``posterior``,
        ``sample_stats``, ``unconstrained_posterior``, ``observed_data`` and, where asked for, others. Whatever speaks
        against the draws is in the attribute ``warnings``, a line each.

    Warns
    -----
    DrawsWarning
        Of each such thing, with a remedy.

    Raises
    ------
    InputError
        When the program, the data or an option cannot be used.
    RunError
        When something fails at run time; draws that there are have been kept in a file, which the message names.
        `InterruptError` and `TimeLimitError`, kinds of it, when there is no draw yet to return.
    """
    console = console or default_console()
    show = wanted(show_progress, console)
    for name, value, least in (
        ("chains", chains, 1),
        ("parallel_chains", parallel_chains, 1),
        ("iter_warmup", iter_warmup, 0),
        ("iter_sampling", iter_sampling, 1),
        ("thin", thin, 1),
        ("block_size", block_size, 1),
        ("seed", seed, 0),
    ):
        if value is not None:
            choices.check_count(name, value, at_least=least)
    if audit is not None and not 0 <= audit <= 1:
        raise InputError(f"audit {audit} must be a share between 0 and 1")
    if thin > iter_sampling:
        raise InputError(f"thin {thin} is more than iter_sampling {iter_sampling}: no draw would be kept")
    if max_time is not None and not max_time > 0:
        raise InputError(f"max_time {max_time} must be a number of seconds above 0")
    if evaluator not in _EVALUATORS:
        raise InputError(f"evaluator {evaluator!r} is unknown; choose from {', '.join(_EVALUATORS)}")
    settled = any(given is not None for given in (data, block_size, observations)) or evaluator != "auto"
    if isinstance(model, Posterior) and settled:
        raise InputError("data, block_size, observations and evaluator are settled in the posterior that was given")
    order = check_order(control_variates)
    check_proposal(proposal)
    rule = choices.choose_test(
        test, epsilon=epsilon, delta=delta, looks=looks, first_look=first_look, max_error=max_error
    )
    looks_given = not (test is None or isinstance(test, str)) or looks is not None or first_look is not None
    choices.check_range(rule, range_source)
    seed = secrets.randbits(31) if seed is None else int(seed)
    starts = load(RADIUS if inits is None else inits, chains)
    kept = Kept(generated_quantities, observation_level, save_warmup)
    parallel = min(chains, parallel_chains or choices.cores())
    stop = np.zeros(1, dtype=np.int32)

    memory.check_start()
    # ArviZ takes a second or two to import: while data are read and compilers run, not beside the chains. A daemon that
    # still imports when an error ends the program would crash the interpreter.
    threading.Thread(target=_import_arviz).start()
    with telling(console, show=show, max_time=max_time) as say:
        posterior, compiled_at = make_posterior(
            model,
            data,
            block_size=block_size
            or (
                lambda program, n, instances: choices.choose_block_size(
                    rule,
                    n,
                    instances=instances,
                    variates=bool(choices.bounded_order(rule, program, order, range_source))
                    if rule.needs_range
                    else order != "0",
                )
            ),
            seed=seed,
            observations=observations,
            evaluator=evaluator,
            say=say,
        )
        rule = choices.within(rule, max_error, len(posterior.blocks))
        check_draws(posterior, chains=chains, draws=iter_sampling // thin, warmup=iter_warmup // thin, kept=kept)
        ranges = choices.choose_range(rule, posterior, range_source, order=order, progress=say)
        promise, asked = choices.guarantee(rule, ranges.kind), rule
        found, rule, chosen = about_mode(
            posterior,
            rule,
            order=order,
            proposal=proposal,
            n_steps=chains * (iter_warmup + iter_sampling),
            seed=seed,
            threads=parallel,
            looks_given=looks_given,
            test_free=test is None and epsilon is None and max_error is None,
            spread=ranges.source,
            say=say,
        )
        # What meetings begin with is the test before its looks were fitted, or that which took its place.
        asked = asked if type(rule) is type(asked) else rule
        tried = promise == "asymptotic" and is_t_test(rule) and iter_warmup > 0
        n_decisions, n_observations = chains * iter_sampling, posterior.blocks.n_observations
        share = choices.choose_audit(audit, n_decisions, n_observations)
        blocks = choices.block_size_chosen(
            posterior.blocks.size,
            given=block_size is not None or (isinstance(model, Posterior) and not model.any_block_size),
            test=rule,
            variates=found is not None and found.order > 0,
        )
        further: list[Chosen] = [blocks]
        if max_error is not None and audit is None and promise != "exact":
            share, audits = choices.audit_within(max_error, n_decisions, n_observations)
            further.append(replace(audits, per_look=rule.epsilon) if isinstance(rule, Austerity) else audits)
        plan = Plan(iter_warmup, iter_sampling, thin, share, save_warmup)
        moves = found.proposal if found is not None and found.proposal is not None else proposal
        moves = "adaptive-metropolis" if isinstance(moves, str) and moves == "auto" else moves
        say("Finding starting values")
        made = []
        for chain, init in enumerate(starts):
            say.advance(chain, chains)
            made.append(
                make_chain(
                    posterior,
                    rule,
                    ranges,
                    plan,
                    moves,
                    None if found is not None and inits is None else init,
                    seed=seed,
                    chain=chain,
                    n_chains=chains,
                    stop=stop,
                    trial=tried,
                    found=found,
                )
            )
        moves = made[0].proposal
        if isinstance(moves, Sgld):
            further.append(moves.batches.choice())
        meetings, meeting = None, Progress(stop=stop, on_end=leaving_lines(console) if show else None)
        if found is not None and len(found.modes.found) == 1:
            wishes = stages.Asked(
                test=asked,
                order=order,
                proposal=proposal if isinstance(proposal, str) else "given",
                looks_given=looks_given,
                spread=ranges.source,
                iter_warmup=iter_warmup,
                iter_sampling=iter_sampling,
                seed=seed,
                threads=parallel,
            )
            meetings = stages.Meetings(posterior, found, rule, wishes, meeting)
    evaluated = _evaluated(found, posterior)
    ready_at = time.perf_counter()
    keep = partial(results.keep_unconstrained, made)
    rescuing = partial(files.rescuing, keep, called="unconstrained draws")
    with rescuing(failures=(Exception,)), chain_progress(chains, meeting, show=show, console=console) as view:
        outcome = stages.run(
            made,
            meetings,
            parallel=parallel,
            stop=stop,
            max_time=say.left(),
            watch=_Watch(made, view),
            on_interrupt=lambda: console.print(
                "Stopping after the current step to write what there is; Ctrl-C again gives it up"
            ),
        )
    with rescuing():
        if meetings is not None:
            found, rule, chosen = meetings.found, meetings.test, meetings.found.choices
        chosen = updated(chosen, *further)
        settings = Settings(
            chains=chains,
            parallel_chains=parallel,
            iter_warmup=iter_warmup,
            iter_sampling=iter_sampling,
            thin=thin,
            seed=seed,
            inits=_text(inits) if inits is not None else "about the mode" if found is not None else str(RADIUS),
            proposal=_named(proposal, found),
            control_variates=found.order if found is not None else 0,
            max_time=max_time,
            max_error=max_error,
            range_source=ranges.kind,
            audit=share,
            block_size=posterior.blocks.size,
            observations=observations,
            evaluator=type(posterior.population).__name__.lower(),
            save_warmup=save_warmup,
            generated_quantities=generated_quantities,
            observation_level=observation_level,
        )
        drawn, stopped = results.usable(made, outcome, before=say.spent())
        with telling(console, show=show, max_time=say.left()) as check:
            checked = _check_modes(posterior, drawn, stopped, seed=seed, threads=parallel, say=check)
        attrs = {
            **results.facts(posterior, rule, promise),
            "normality": results.normality(
                drawn, rule, variates=found is not None and found.order > 0, max_error=max_error
            ),
            "choices": {name: sentence(one) for name, one in chosen.items()},
            "choice_values": {name: one.record() for name, one in chosen.items()},
            "starts": _starts(found),
            "mode_check": checked.record(),
            "anchor_n_obs_evaluated": evaluated,
            "settings": asdict(settings),
            "data_file": str(Path(data).resolve()) if isinstance(data, str | Path) else "",
            "stopped": stopped,
            "compile_time": compiled_at - say.began,
            "setup_time": ready_at - compiled_at,
            "setup_times": say.seconds,
            "wall_time": time.perf_counter() - ready_at,
        }
        with telling(console, show=show) as say:
            idata = results.collect(posterior, drawn, kept=kept, seed=seed, threads=parallel, attrs=attrs, progress=say)
    return idata


def _import_arviz() -> None:
    with contextlib.suppress(Exception):  # told where it is needed
        arviz_module()


def _check_modes(
    posterior: Posterior,
    chains: Sequence[Chain],
    stopped: str,
    *,
    seed: int,
    threads: int,
    say: Callable[[str], None],
) -> ModeCheck:
    """Whether chains missed a mode; no failure to find that out keeps the draws back."""
    if stopped:
        return ModeCheck(reason="the run was stopped")
    rng = streams.generator(seed, streams.Run.CHECK)
    try:
        return check_modes(posterior, [chain.draws for chain in chains], rng, threads=threads, progress=say)
    except TimeLimitError:
        return ModeCheck(reason="--max-time was reached")
    except (Exception, KeyboardInterrupt) as error:
        return ModeCheck(reason=reason(error), failed=True)


def _starts(found: Anchored | None) -> list[dict[str, Any]] | None:
    """What came of every start of the search for modes."""
    if found is None:
        return None
    return [
        {name: getattr(one, name) for name in ("kind", "log_density", "n_iterations", "outcome")}
        for one in found.modes.starts
    ]


def check(idata: InferenceData) -> Summary | None:
    """Summarise draws and write into them what speaks against them, so that it stays with them, whoever reads the file.

    No failure to do so keeps the draws back: that is then what is written.
    """
    summary = None
    try:
        summary = summarise(idata)
        lines = [words(finding).line for finding in summary.findings]
    except (Exception, KeyboardInterrupt) as error:
        lines = [words(NotChecked(reason(error))).line]
    idata.attrs["warnings"] = "\n".join(lines)
    return summary


def _checked(draw: Callable[_Options, InferenceData]) -> Callable[_Options, InferenceData]:
    """The function that makes draws, with a warning of whatever speaks against them."""

    @wraps(draw)
    def sample(*args: _Options.args, **options: _Options.kwargs) -> InferenceData:
        idata = draw(*args, **options)
        check(idata)
        for line in idata.attrs["warnings"].splitlines():
            warnings.warn(line, DrawsWarning, stacklevel=2)
        return idata

    sample.__name__ = sample.__qualname__ = "sample"
    return sample


# The command line takes `draw` and `check`, and prints what the latter has computed.
sample = _checked(draw)


def about_mode(
    posterior: Posterior,
    test: Test,
    *,
    order: str,
    proposal: str | Proposal,
    n_steps: int,
    seed: int,
    threads: int,
    looks_given: bool,
    test_free: bool = False,
    spread: Range | None = None,
    say: Callable[[str], None],
) -> tuple[Anchored | None, Test, Choices]:
    """What sampling about the mode rests on, or nothing where that is not to be; the test; and what was chosen why.

    Raises
    ------
    NoModeError
        Where there is no mode and the user has asked for what needs one.
    """
    name = proposal if isinstance(proposal, str) else "given"
    if order == "0" and name not in PROPOSALS:
        return None, test, {}
    try:
        found, test = anchor(
            posterior,
            test,
            order=order,
            proposal=name,
            n_steps=n_steps,
            seed=seed,
            threads=threads,
            looks_given=looks_given,
            test_free=test_free,
            spread=spread,
            progress=say,
        )
    except NoModeError as error:
        if order in ("1", "2") or name in PROPOSALS[1:] or isinstance(spread, Derivative):
            raise
        return None, test, updated({}, NoVariatesWithoutMode(str(error)))
    return found, test, found.choices


def _named(proposal: str | Proposal, found: Anchored | None) -> str:
    """The proposal for the record."""
    if not isinstance(proposal, str):
        return type(proposal).__name__
    if found is not None:
        return found.name
    return "adaptive-metropolis" if proposal == "auto" else proposal


def _evaluated(found: Anchored | None, posterior: Posterior) -> float:
    """Observations evaluated before any chain, a gradient counted as one evaluation of each."""
    if found is None:
        return 0.0
    gradients = {0: 0, 1: 1, 2: 1 + 2 * posterior.dim}[found.order]
    return (
        found.n_obs_evaluated
        + (found.modes.n_passes + len(found.modes.found) * gradients) * posterior.blocks.n_observations
    )


def _text(inits: Inits) -> str:
    """Inits for the record; values given from Python are not repeated."""
    if isinstance(inits, Mapping):
        return "given values"
    if isinstance(inits, str | Path) or not isinstance(inits, Sequence):
        return str(inits)
    return ",".join(_text(one) for one in inits)


def make_posterior(
    model: str | Path | CompiledModel | Posterior,
    data: str | Path | Mapping[str, Any] | None,
    *,
    block_size: Callable[[Program, int, bool], int] | int,
    seed: int,
    observations: str | None,
    evaluator: str,
    say: Callable[[str], None],
) -> tuple[Posterior, float]:
    """The posterior, and when its program was compiled (as `time.perf_counter` gives it).

    Parameters
    ----------
    block_size : int or callable
        Observations a block, or a function that chooses: of the program, the number of observations, and whether each
        block costs an instance. See `sample` for the other arguments.

    Raises
    ------
    InputError
        When the program or the data cannot be used.
    """
    if isinstance(model, Posterior):
        if model.any_block_size and callable(block_size):
            instances = isinstance(model.population, Instances)
            model = model.recut(block_size(model.program, model.blocks.n_observations, instances))
        return model, time.perf_counter()
    given = {} if data is None else data
    say(f"Reading {'the data' if isinstance(model, CompiledModel) else 'program and data'}")
    if isinstance(model, CompiledModel):
        compiled, values = model, model.read_data(given)
    else:
        # What does not fit is told before the minute that a compilation takes.
        read = source.read(model)
        if not read.program.parameters.declarations:
            raise InputError(f"{model}: the program has no parameters, so there is nothing to sample")
        values = data_module.read(given, read.program.data.declarations)
        compiled = compile_model(read, progress=say, rewritten=evaluator != "instances")
    compiled_at = time.perf_counter()
    posterior = compiled.with_data(
        values,
        block_size=partial(block_size, compiled.program) if callable(block_size) else block_size,
        seed=seed,
        observations=observations,
        evaluator=evaluator,  # type: ignore[arg-type]
        progress=say,
    )
    if observations is not None and posterior.form.kind != "sum" and observations not in posterior.sizes:
        raise InputError(
            f"--observations {observations}: the program's own sum runs over {posterior.form.n}; leave it out"
        )
    return posterior, compiled_at


def make_chain(
    posterior: Posterior,
    test: Test,
    ranges: choices.Ranges,
    plan: Plan,
    proposal: str | Proposal,
    init: Init | None,
    *,
    seed: int,
    chain: int,
    n_chains: int = 1,
    stop: NDArray[np.int32],
    trial: bool = False,
    found: Anchored | None = None,
) -> Chain:
    """Chain number ``chain``, standing at its starting value, with random streams that follow from ``seed``.

    Parameters
    ----------
    init : Init or None
        Where it starts; None for widely about the mode.
    stop : ndarray of int32, shape (1,)
        Set to 1 to have all chains stop.
    found : Anchored, optional
        The mode, and control variates there.
    trial : bool
        Whether to try at the end of warmup if the normality that a t-test relies on is in order; nothing is to be tried
        where the first look takes all the blocks.

    Raises
    ------
    InputError
        When no starting value has a finite log density, or the proposal does not fit the program.
    """
    init_rng, rng, audit_rng, trial_rng = (
        streams.generator(seed, stream, chain=chain)
        for stream in (streams.Chain.INIT, streams.Chain.STEPS, streams.Chain.AUDITS, streams.Chain.TRIAL)
    )
    evaluator = posterior.population.evaluator()
    if found is None or init is not None:
        theta = start(posterior, init or Init(), init_rng, chain=chain)
    else:
        first = streams.generator(seed, streams.Run.STARTS).random()
        theta = found.start(posterior, init_rng, (first + chain / n_chains) % 1.0)
    if found is None:
        decider = make_decider(evaluator, posterior.blocks.sizes, test, spread=ranges.source)
    else:
        decider = found.decider(posterior, evaluator, test, ranges.source)
    decider.reset(theta)
    table = test.table(len(posterior.blocks))
    variates = found.variates if found is not None else None
    adapter = make_adapter(
        proposal,
        posterior.dim,
        batches=MiniBatches(evaluator, posterior.blocks.sizes, variates) if proposal == SGLD else None,
        cholesky=found.mode.cholesky if found is not None else None,
    )
    return Chain(
        decider,
        adapter,
        plan,
        rng=rng,
        audit_rng=audit_rng,
        n_observations=posterior.blocks.n_observations,
        stop=stop,
        trial=WarmupTrial(evaluator, table, trial_rng, variates) if trial and table.n.size > 1 else None,
    )


class _Watch:
    """Shows how far chains are, and now and then how well they agree."""

    def __init__(self, chains: Sequence[Chain], view: View | None) -> None:
        self._chains, self._view = chains, view
        self._r_hat: float | None = None
        self._next = time.perf_counter() + _R_HAT_EVERY

    def __call__(self) -> None:
        if self._view is None:
            return
        if time.perf_counter() > self._next:
            self._r_hat = results.worst_r_hat([chain.draws for chain in self._chains])
            self._next = time.perf_counter() + _R_HAT_EVERY
        self._view.show([chain.status for chain in self._chains], self._r_hat)
