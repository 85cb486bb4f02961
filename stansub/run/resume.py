"""A run that goes on from a checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stansub.errors import InputError, RunError
from stansub.progress import Progress
from stansub.run import choices
from stansub.run.chain import Chain
from stansub.run.checkpoint import Checkpoint, check_same
from stansub.run.config import SampleConfig
from stansub.run.prepare import Data, Model, Prepared, make_chains, make_posterior
from stansub.run.stages import Meetings


def prepare(
    model: Model, data: Data, config: SampleConfig, found: Checkpoint, path: Path, progress: Progress
) -> Prepared:
    """What chains need, with all that was chosen when the run began.

    Raises
    ------
    InputError
        When the checkpoint is of another program, other data or other options.
    """
    setup = found.setup
    if differing := config.differences(setup.config):
        asked, before = config.record(), setup.config.record()
        shown = ", ".join(f"`{name}` was {before[name]} and is {asked[name]}" for name in differing)
        raise InputError(f"{path} is of a run with other options, which goes on with its own alone: {shown}")
    posterior, compiled_at = make_posterior(
        model,
        data,
        block_size=found.block_size,
        seed=setup.seed,
        observations=setup.config.observations,
        evaluator=found.evaluator,
        log=progress,
    )
    check_same(found, path, model_hash=posterior.model_hash, data_hash=posterior.values.digest())
    kind = "auto" if setup.range_kind == "none" else setup.range_kind
    ranges = choices.choose_range(setup.asked_rule, posterior, kind, order=setup.config.order, progress=progress)
    threads = min(config.chains, config.parallel_chains or choices.cores())
    now = replace(
        setup,
        config=replace(config, seed=setup.seed, parallel_chains=threads, console=None),
        plan=replace(setup.plan, iter_sampling=config.iter_sampling),
    )
    data_file = str(Path(data).resolve()) if isinstance(data, str | Path) else ""
    return Prepared(now, posterior, ranges, compiled_at, data_file)


def chains_of(
    prepared: Prepared, found: Checkpoint, meetings: Meetings | None, stop: NDArray[np.int32], progress: Progress
) -> list[Chain]:
    """The chains where they were, and the meetings too.

    Raises
    ------
    RunError
        When the file does not hold all chains.
    """
    setup = prepared.setup
    if set(found.chains) != set(range(len(setup.starts))):
        raise RunError(f"the checkpoint holds {len(found.chains)} of {len(setup.starts)} chains: the others had failed")
    if meetings is not None and found.meetings is not None:
        meetings.restore(found.meetings)
        setup = replace(setup, found=meetings.found, rule=meetings.test)
    anywhere = np.zeros(prepared.posterior.dim)
    setup = replace(setup, starts=(anywhere,) * len(setup.starts))
    chains = make_chains(replace(prepared, setup=setup), stop, progress)
    for number, chain in enumerate(chains):
        kept, none = found.chains[number], chain.warmup.kept.rows(slice(0, 0))
        chain.restore(
            kept.state,
            (none if kept.warmup is None else kept.warmup, none if kept.sampling is None else kept.sampling),
        )
    return chains
