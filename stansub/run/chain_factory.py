"""Construction of the chains of a prepared run, at their starting values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stansub import streams
from stansub.acceptance.stopping import StoppingRule
from stansub.kernels.proposals import Proposal
from stansub.kernels.recipes import Metropolis, Recipe
from stansub.progress import Progress
from stansub.run.chain import Chain
from stansub.run.context import ChainContext
from stansub.run.inits import Init, start
from stansub.run.prepare import Prepared, Setup
from stansub.run.range_sources import Ranges
from stansub.run.state import Plan
from stansub.stan.posterior import Posterior
from stansub.tuning.adapt import adapter_of
from stansub.tuning.mode_setup import ModeSetup
from stansub.types import FloatArray


def make_chains(prepared: Prepared, stop: NDArray[np.int32], progress: Progress) -> list[Chain]:
    """Return all chains of a run, each at its starting value (see `make_chain`)."""
    setup, chains = prepared.setup, []
    progress("Finding starting values")
    starts = starting_values(prepared.posterior, setup.found, setup.starts, setup.seed)
    for number, theta in enumerate(starts):
        progress.advance(number, len(setup.starts))
        chains.append(chain_of(prepared.posterior, setup, prepared.ranges, theta, chain=number, stop=stop))
    return chains


def chain_of(
    posterior: Posterior,
    setup: Setup,
    ranges: Ranges,
    theta: FloatArray,
    *,
    chain: int,
    stop: NDArray[np.int32],
) -> Chain:
    """Return a chain with this setup (see `make_chain`)."""
    return make_chain(
        posterior,
        setup.rule,
        ranges,
        setup.plan,
        setup.moves,
        theta,
        seed=setup.seed,
        chain=chain,
        stop=stop,
        trial=setup.trial,
        found=setup.found,
    )


def starting_values(
    posterior: Posterior, found: ModeSetup | None, inits: Sequence[Init | FloatArray | None], seed: int
) -> list[FloatArray]:
    """Return a starting value for each chain: as given or, without inits, overdispersed about the mode if it is known.

    Raises
    ------
    InputError
        If no starting value has a finite log density.
    """
    n, about = len(inits), dict[int, FloatArray]()
    rngs = [streams.generator(seed, streams.Chain.INIT, chain=chain) for chain in range(n)]
    if found is not None and (free := [chain for chain, init in enumerate(inits) if init is None]):
        first = streams.generator(seed, streams.Run.STARTS).random()
        places = [(first + chain / n) % 1.0 for chain in free]
        about = dict(zip(free, found.starts(posterior, [rngs[chain] for chain in free], places), strict=True))
    values = []
    for chain, init in enumerate(inits):
        if isinstance(init, np.ndarray):
            values.append(init)
        elif chain in about:
            values.append(about[chain])
        else:
            values.append(start(posterior, init or Init(), rngs[chain], chain=chain))
    return values


def make_chain(
    posterior: Posterior,
    test: StoppingRule,
    ranges: Ranges,
    plan: Plan,
    moves: str | Proposal | Recipe,
    theta: FloatArray,
    *,
    seed: int,
    chain: int,
    stop: NDArray[np.int32],
    trial: bool = False,
    found: ModeSetup | None = None,
) -> Chain:
    """Return chain number ``chain`` at its starting value ``theta``, with random streams derived from ``seed``.

    Parameters
    ----------
    stop : ndarray of int32, shape (1,)
        Set to 1 to stop all chains.
    trial : bool
        Whether to test the normality assumption of a t-test at the end of warmup. If the first look uses all the
        blocks, there is nothing to test.

    Raises
    ------
    InputError
        If the proposal does not fit the program.
    """
    rng, audit_rng, trial_rng = (
        streams.generator(seed, stream, chain=chain)
        for stream in (streams.Chain.STEPS, streams.Chain.AUDITS, streams.Chain.TRIAL)
    )
    context = ChainContext(
        posterior,
        test,
        seed,
        spread=ranges.source,
        found=found,
        level_decreases=plan.levels is not None,
        has_gradients=posterior.has_gradients,
        order=posterior.order,
    )
    recipe: Recipe = moves if isinstance(moves, Recipe) else Metropolis(moves)
    kernel, adapter = recipe.bind(context), adapter_of(recipe.leaves(context.names), posterior.dim, context.adapter)
    return Chain(
        kernel,
        kernel.init(theta),
        adapter,
        plan,
        rng=rng,
        audit_rng=audit_rng,
        n_observations=posterior.blocks.n_observations,
        stop=stop,
        elsewhere=posterior.pilot is not None,
        trial=context.trial(trial_rng) if trial else None,
    )
