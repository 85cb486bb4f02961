"""`sample`: from a program and data to InferenceData."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from stansub.decision.boundary import Test
from stansub.decision.decide import make_decider
from stansub.errors import InputError, RunError
from stansub.model.compiled import CompiledModel, compile_model
from stansub.model.posterior import Posterior
from stansub.sampling import choices, results
from stansub.sampling.adapt import Adapter, CovarianceAdapter, ScaleAdapter
from stansub.sampling.chain import Chain, Plan
from stansub.sampling.inits import Inits, start
from stansub.sampling.progress import (
    ChainStatus,
    ProgressView,
    chain_progress,
    default_console,
    wanted,
)

if TYPE_CHECKING:
    from stansub.output.inference_data import InferenceData

_ADAPTERS: dict[str, type[ScaleAdapter]] = {"adaptive-metropolis": CovarianceAdapter, "random-walk": ScaleAdapter}

# Seconds between two looks at the chains, two R-hats, and two changes of the chain a thread works on.
_POLL, _R_HAT_EVERY, _TURN = 0.1, 2.0, 0.5


@dataclass(frozen=True)
class Settings:
    """Everything that decides the draws, written to the output."""

    chains: int
    parallel_chains: int
    iter_warmup: int
    iter_sampling: int
    thin: int
    seed: int
    proposal: str
    max_time: float | None
    range_source: str
    audit: float
    block_size: int
    save_warmup: bool
    evaluator: str


def sample(
    model: str | Path | CompiledModel,
    data: str | Path | Mapping[str, Any],
    *,
    chains: int = 4,
    parallel_chains: int | None = None,
    iter_warmup: int = 2000,
    iter_sampling: int = 10_000,
    thin: int = 1,
    seed: int | None = None,
    inits: Inits = 2.0,
    proposal: Literal["adaptive-metropolis", "random-walk"] | str = "adaptive-metropolis",
    max_time: float | None = None,
    test: Test | str | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    range_source: str = "auto",
    looks: Literal["geometric", "fixed"] | str | None = None,
    first_look: int | None = None,
    audit: float = 0.01,
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
    model : path or CompiledModel
        The ``.stan`` file, or what `compile_model` made of it.
    data : path or mapping
        Data in CmdStan's JSON format, or the values by name.
    chains, parallel_chains : int
        Number of chains, and how many run at once (default: one a core) as threads over one copy of the data.
        The draws do not depend on ``parallel_chains``.
    iter_warmup, iter_sampling : int
        Steps a chain; a step of a random walk moves less far than one of NUTS, so there are more of them.
    thin : int
        Every ``thin``-th step is kept.
    seed : int, optional
        Seed of everything random; drawn and written to the output when not given.
    inits : float, path, mapping, or a sequence of them
        Radius of random inits on the unconstrained space, or constrained values, one for all chains or one a chain.
    proposal : {"adaptive-metropolis", "random-walk"}
        Whether warmup learns the covariance of the steps as well as their scale.
    max_time : float, optional
        Seconds after which sampling stops; what there is is returned.
    test : Test or {"austerity", "pocock", "hoeffding", "bernstein", "bernstein-serfling", "exact"}, optional
        How a decision is taken from a subset of the data.
    epsilon, delta : float, optional
        Error of the t-tests and of the bounds, when ``test`` is a name.
    range_source : {"auto", "lipschitz", "function", "scan", "estimate"}
        Where the range constant of the bounds comes from; an estimate voids their guarantee.
    looks : {"geometric", "fixed"}, optional
        Whether the subset doubles from look to look or grows by a fixed number of blocks, when ``test`` is a name.
    first_look : int, optional
        Blocks at the first look, and of each step of the fixed schedule.
    audit : float
        Share of the decisions that are taken again on all the data, so that the output can say how many were wrong.
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
        Progress bars; by default where someone is looking (a terminal, a notebook).
    console : rich.console.Console, optional
        Where progress goes.

    Returns
    -------
    InferenceData
        ``arviz.InferenceData`` under ArviZ 0.2x, ``xarray.DataTree`` under 1.x; groups ``posterior``,
        ``sample_stats``, ``unconstrained_posterior``, ``observed_data`` and, where asked for, others.

    Raises
    ------
    InputError
        When the program, the data or an option cannot be used.
    RunError
        When something fails at run time.
    """
    console = console or default_console()
    show = wanted(show_progress, console)
    for name, value, least in (
        ("chains", chains, 1),
        ("parallel_chains", parallel_chains if parallel_chains is not None else 1, 1),
        ("iter_warmup", iter_warmup, 0),
        ("iter_sampling", iter_sampling, 1),
        ("thin", thin, 1),
        ("block_size", block_size if block_size is not None else 1, 1),
        ("seed", seed if seed is not None else 0, 0),
    ):
        choices.check_count(name, value, at_least=least)
    if not 0 <= audit <= 1:
        raise InputError(f"audit {audit} must be a share between 0 and 1")
    if thin > iter_sampling:
        raise InputError(f"thin {thin} is more than iter_sampling {iter_sampling}: no draw would be kept")
    if max_time is not None and not max_time > 0:
        raise InputError(f"max_time {max_time} must be a number of seconds above 0")
    if proposal not in _ADAPTERS:
        raise InputError(f"proposal {proposal!r} is unknown; choose from {', '.join(_ADAPTERS)}")
    rule = choices.choose_test(test, epsilon=epsilon, delta=delta, looks=looks, first_look=first_look)
    seed = secrets.randbits(31) if seed is None else seed

    with _telling(console, show) as say:
        compiled = (
            model
            if isinstance(model, CompiledModel)
            else compile_model(model, progress=say, rewritten=evaluator != "instances")
        )
        posterior = compiled.with_data(
            data,
            block_size=block_size or (lambda n, instances: choices.choose_block_size(rule, n, instances=instances)),
            seed=seed,
            observations=observations,
            evaluator=evaluator,  # type: ignore[arg-type]
            progress=say,
        )
        ranges = choices.choose_range(rule, posterior, range_source, progress=say)
        plan = Plan(iter_warmup, iter_sampling, thin, audit, save_warmup)
        stop = np.zeros(1, dtype=np.int32)
        say("Finding starting values")
        made = [
            _make_chain(posterior, rule, ranges, plan, proposal, inits, seed, chain, chains, stop)
            for chain in range(chains)
        ]

    settings = Settings(
        chains=chains,
        parallel_chains=min(chains, parallel_chains or choices.cores()),
        iter_warmup=iter_warmup,
        iter_sampling=iter_sampling,
        thin=thin,
        seed=seed,
        proposal=proposal,
        max_time=max_time,
        range_source=ranges.kind,
        audit=audit,
        block_size=posterior.blocks.size,
        save_warmup=save_warmup,
        evaluator=type(posterior.population).__name__.lower(),
    )
    with chain_progress(chains, show=show, console=console) as view:
        stopped = _run(made, settings.parallel_chains, stop, max_time, view)
    with _telling(console, show) as say:
        return results.collect(
            posterior,
            made,
            test=rule,
            guarantee=choices.guarantee(rule, ranges.kind),
            settings=asdict(settings),
            stopped=stopped,
            generated_quantities=generated_quantities,
            observation_level=observation_level,
            progress=say,
        )


@contextmanager
def _telling(console: Console, show: bool) -> Iterator[Any]:
    """A spinner whose line says what is being done; silent where nobody looks."""
    if not show:
        yield lambda message: None
        return
    with console.status("Starting") as status:
        yield status.update


def _make_chain(
    posterior: Posterior,
    test: Test,
    ranges: choices.Ranges,
    plan: Plan,
    proposal: str,
    inits: Inits,
    seed: int,
    chain: int,
    chains: int,
    stop: NDArray[np.int32],
) -> Chain:
    init_rng, rng, audit_rng = (
        np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1 + chain, stream))) for stream in range(3)
    )
    theta = start(posterior, inits, init_rng, chain=chain, chains=chains)
    decider = make_decider(posterior.population.evaluator(), posterior.blocks.sizes, test, spread=ranges.source)
    decider.reset(theta)
    adapter: Adapter = _ADAPTERS[proposal](posterior.dim)
    n_observations = posterior.blocks.n_observations
    return Chain(decider, adapter, plan, rng=rng, audit_rng=audit_rng, n_observations=n_observations, stop=stop)


def _run(
    chains: list[Chain],
    parallel_chains: int,
    stop: NDArray[np.int32],
    max_time: float | None,
    view: ProgressView | None,
) -> str:
    """Run the chains to their end, an interrupt or the time limit; says which ("", "interrupted", "max_time").

    Threads take turns over the chains, so that all chains are about equally far whenever sampling stops.
    """
    queue: SimpleQueue[Chain] = SimpleQueue()
    for chain in chains:
        queue.put(chain)

    def work() -> None:
        while True:
            try:
                chain = queue.get_nowait()
            except Empty:
                return
            end = time.perf_counter() + _TURN
            while chain.advance():
                if time.perf_counter() > end:
                    queue.put(chain)
                    break

    stopped, began, r_hat, next_r_hat = "", time.perf_counter(), None, _R_HAT_EVERY
    with ThreadPoolExecutor(max_workers=parallel_chains) as pool:
        futures = [pool.submit(work) for _ in range(parallel_chains)]
        while not all(future.done() for future in futures):
            try:
                time.sleep(_POLL)
                elapsed = time.perf_counter() - began
                if max_time is not None and elapsed > max_time and not stop[0]:
                    stopped = "max_time"
                    stop[0] = 1
                if view is not None:
                    if elapsed > next_r_hat:
                        r_hat = results.worst_r_hat([chain.draws for chain in chains])
                        next_r_hat = time.perf_counter() - began + _R_HAT_EVERY
                    view.update([_status(chain) for chain in chains], r_hat)
            except KeyboardInterrupt:
                stopped = "interrupted"
                stop[0] = 1
    if view is not None:
        view.update([_status(chain) for chain in chains], r_hat)
    for future in futures:
        error = future.exception()
        if error is not None and not any(chain.sampling.n_kept for chain in chains):
            raise RunError(f"sampling failed: {error}") from error
        if error is not None:
            stopped = f"failed: {error}"
    return stopped


def _status(chain: Chain) -> ChainStatus:
    steps, accepted, used, _ = (int(count) for count in chain.counters)
    total = chain.plan.iter_warmup + chain.plan.iter_sampling
    return ChainStatus(
        steps=steps,
        total=total,
        warmup=steps <= chain.plan.iter_warmup,
        acceptance=accepted / max(steps, 1),
        share=used / max(steps, 1) / chain.n_observations,
    )
