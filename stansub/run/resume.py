"""Resuming a run from a checkpoint."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stansub.errors import InputError, RunError
from stansub.progress import Progress
from stansub.run.chain import Chain
from stansub.run.chain_factory import make_chains
from stansub.run.checkpoint import Checkpoint, check_same, undamaged
from stansub.run.config import SampleConfig
from stansub.run.cross_chain import CrossChainAdaptation
from stansub.run.posteriors import Data, Model, ModelInput, make_posterior, make_uncut, read, recorded_of
from stansub.run.prepare import Prepared, Setup, moves_of, with_seed
from stansub.run.state import Facts
from stansub.stan.posterior import Posterior
from stansub.stan.proof import NearPoints


def prepare(model: Model, data: Data, config: SampleConfig, found: Checkpoint, progress: Progress) -> Prepared:
    """Return what chains need, with everything that was chosen when the run began.

    Raises
    ------
    InputError
        If the checkpoint is of another program, other data or other options.
    """
    before = found.options.record
    if differing := config.differences(before):
        asked = config.record()
        shown = ", ".join(
            f"`{name}` was {before.get(name)} and is {asked[name]}{' (it may only grow)' * (name == 'iter_sampling')}"
            for name in differing
        )
        raise InputError(f"{found.path} belongs to a run with other options; resume it with the same ones: {shown}")
    config = config.continuing(before)
    facts = found.facts(config)
    if facts.evaluator == "rewritten":
        raise InputError(f"{found.path} was written with `evaluator='rewritten'`, which is gone: start a new run")
    # Another program than the run's may have other parameters; it is refused below.
    given = read(model, data, progress)._replace(near=NearPoints(facts.points))
    with given.unchanged():
        posterior, compiled_at = _posterior(given, facts, config, progress)
        digest = posterior.values.digest()
    check_same(facts, found.path, model_hash=posterior.model_hash, data_hash=digest)
    setup = Setup(
        **replace(facts, plan=replace(facts.plan, iter_sampling=config.iter_sampling)).chosen(),
        config=with_seed(config, facts.seed),
        moves=moves_of(config, facts.found, facts.transition),
        starts=(None,) * config.chains,
    )
    return Prepared(setup, posterior, setup.ranges(posterior, progress), compiled_at, recorded_of(data))


def _posterior(given: ModelInput, facts: Facts, config: SampleConfig, progress: Progress) -> tuple[Posterior, float]:
    if facts.evaluator == "uncut":
        return make_uncut(given, seed=facts.seed, observations=config.observations, log=progress)
    return make_posterior(
        given.model,
        given.values,
        block_size=facts.block_size,
        seed=facts.seed,
        observations=config.observations,
        near=given.near,
        log=progress,
    )


def chains_of(
    prepared: Prepared,
    found: Checkpoint,
    adaptation: CrossChainAdaptation | None,
    stop: NDArray[np.int32],
    progress: Progress,
) -> list[Chain]:
    """Return the chains at their saved states, and restore cross-chain adaptation.

    Raises
    ------
    RunError
        If the file does not hold all chains.
    InputError
        If its content is not that of such chains.
    """
    setup = prepared.setup
    if set(found.chains) != set(range(len(setup.starts))):
        raise RunError(f"the checkpoint holds {len(found.chains)} of {len(setup.starts)} chains: the others failed")
    saved = found.adaptation(setup.config)
    if adaptation is not None and saved is not None:
        adaptation.restore(saved)
    anywhere = np.zeros(prepared.posterior.dim)
    setup = replace(setup.adapted(adaptation), starts=(anywhere,) * len(setup.starts))
    chains = make_chains(replace(prepared, setup=setup), stop, progress)
    for number, chain in enumerate(chains):
        kept = found.chains[number]
        with undamaged(found.path):
            chain.restore(kept.state, (kept.warmup, kept.sampling))
    return chains
