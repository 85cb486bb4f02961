"""Batches of Metropolis-Hastings steps for tests, from where a decider stands."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stansub._loop import Decider
from stansub.kernels.base import BatchControl, Records
from stansub.kernels.metropolis import STATS, MetropolisHastings
from stansub.kernels.proposals import Proposal

NAMES = ("theta", *(one.name for one in STATS))


def allocate(n: int, dim: int) -> Records:
    """Records of ``n`` steps."""
    return Records.allocate(n, dim, STATS)


def column(records: Records, name: str) -> NDArray[Any]:
    """Positions or a statistic."""
    return records.theta if name == "theta" else records[name]


def run_steps(
    decider: Decider, proposal: Proposal, rng: np.random.Generator, out: Records, n_steps: int, control: BatchControl
) -> int:
    """Steps done."""
    kernel = MetropolisHastings(decider)
    return kernel.batch(rng, kernel.current_state, proposal, out, n_steps, control)[1]
