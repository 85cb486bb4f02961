"""Metropolis-Hastings with a decision from a subset of the data (Korattikara et al. 2014, algorithm 2).

A step takes d standard normals (or whatever its proposal draws), then one uniform, then block indices from the
chain's generator, in this order; the compiled loop and the Python one make the same decisions on the same stream.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stansub._loop import Decider
from stansub.acceptance.decide import Decision
from stansub.kernels.base import State
from stansub.kernels.proposals import Proposal, compiled
from stansub.types import FloatArray


class Records(NamedTuple):
    """One row a step; the statistics and their types are declared here once.

    Attributes
    ----------
    theta : float64, shape (n, dim)
        Unconstrained position after the step.
    accepted : uint8
        Whether the proposal was accepted.
    n_obs_used : int64
        Observations in the subset that the decision was taken from.
    n_looks : int32
        Looks at the test statistic.
    undecided : uint8
        Whether a sequential test ran to all the data.
    log_ratio : float64
        Estimated log acceptance ratio; exact where all the data were used.
    audited, audit_wrong : uint8
        Whether the decision was taken again on all the data, and came out differently.
    bound_violated : uint8
        Whether a range constant was seen to be too small.
    """

    theta: FloatArray
    accepted: NDArray[np.uint8]
    n_obs_used: NDArray[np.int64]
    n_looks: NDArray[np.int32]
    undecided: NDArray[np.uint8]
    log_ratio: FloatArray
    audited: NDArray[np.uint8]
    audit_wrong: NDArray[np.uint8]
    bound_violated: NDArray[np.uint8]


class Control(NamedTuple):
    """What steers a stretch of steps from outside.

    Attributes
    ----------
    audit_rng : Generator
        Chooses the decisions that are audited.
    audit_probability : float
        Share of the decisions that are audited.
    stop : int32, shape (1,)
        Read before every step; not 0 stops.
    counters : int64, shape (4,)
        Steps, accepted, observations used and observations evaluated so far, for progress.
    """

    audit_rng: np.random.Generator
    audit_probability: float
    stop: NDArray[np.int32]
    counters: NDArray[np.int64]


def allocate(n: int, dim: int) -> Records:
    """Empty records of ``n`` steps."""
    return Records(
        np.empty((n, dim)),
        np.zeros(n, np.uint8),
        np.zeros(n, np.int64),
        np.zeros(n, np.int32),
        np.zeros(n, np.uint8),
        np.zeros(n),
        np.zeros(n, np.uint8),
        np.zeros(n, np.uint8),
        np.zeros(n, np.uint8),
    )


class MetropolisHastings:
    """Kernel of one step with any proposal.

    Parameters
    ----------
    decider : Decider
        Settles accept or reject; holds the position and what is known of it.
    proposal : Proposal
        Draws candidates.
    """

    def __init__(self, decider: Decider, proposal: Proposal) -> None:
        self._decider = decider
        self._proposal = proposal

    def __call__(self, rng: np.random.Generator, state: State, *, audit: bool = False) -> tuple[State, Decision]:
        """Propose and decide."""
        proposed, log_q_ratio = self._proposal(rng, state.position)
        log_u = np.log1p(-rng.random())
        decision = self._decider.decide(proposed, log_u, log_q_ratio, rng.bit_generator.capsule, audit)
        return (State(proposed) if decision.accepted else state), decision


def run_steps(
    decider: Decider,
    proposal: Proposal,
    rng: np.random.Generator,
    out: Records,
    n_steps: int,
    control: Control,
) -> int:
    """Fill the first rows of ``out`` with up to ``n_steps`` steps.

    Random walks, affine proposals and mixtures of them run in C++ without the interpreter's lock; other proposals are
    asked from Python.

    Returns
    -------
    int
        Steps done; fewer than asked when stopped.
    """
    proposals = compiled(proposal)
    if proposals is not None:
        return int(
            decider.stretch(
                n_steps,
                proposals,
                rng.bit_generator.capsule,
                control.audit_rng.bit_generator.capsule,
                control.audit_probability,
                *out,
                control.stop,
                control.counters,
            )
        )
    kernel, state = MetropolisHastings(decider, proposal), State(np.array(decider.theta))
    for step in range(n_steps):
        if control.stop[0]:
            return step
        audit = control.audit_probability > 0 and control.audit_rng.random() < control.audit_probability
        evaluated = decider.n_evaluated
        state, decision = kernel(rng, state, audit=audit)
        out.theta[step] = state.position
        out.accepted[step] = decision.accepted
        out.n_obs_used[step] = decision.n_obs_used
        out.n_looks[step] = decision.n_looks
        out.undecided[step] = decision.undecided
        out.log_ratio[step] = decision.log_ratio
        out.audited[step] = decision.audited
        out.audit_wrong[step] = decision.wrong
        out.bound_violated[step] = decision.bound_violated
        control.counters[:] += (1, decision.accepted, decision.n_obs_used, decider.n_evaluated - evaluated)
    return n_steps
