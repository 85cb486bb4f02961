"""Metropolis-Hastings with decisions from a subset of the data (Korattikara et al. 2014, algorithm 2).

A step draws d standard normals (or whatever its proposal draws), then one uniform, then block indices from the chain's
generator, in this order. The compiled loop and the Python loop make the same decisions on the same stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stansub._loop import Decider, Subset, Table
from stansub.acceptance.decide import Decision
from stansub.kernels.base import BatchControl, Info, Records, Stat, State, step_by_step
from stansub.kernels.proposals import Proposal, compiled
from stansub.types import FloatArray

STATS = (
    Stat("accepted", bool, "Whether the proposal was accepted.", "n_accepted"),
    Stat("n_obs_used", np.int64, "Observations in the subset that the decision used.", "n_obs_used"),
    Stat("n_looks", np.int32, "Looks at the test statistic."),
    Stat("undecided", bool, "Whether a sequential test needed all the data.", "n_undecided"),
    Stat("log_ratio", float, "Estimated log acceptance ratio; exact if all the data were used."),
    Stat("audited", bool, "Whether the decision was repeated on all the data.", "n_audited"),
    Stat("audit_wrong", bool, "Whether the repeated decision differed.", "n_audit_wrong"),
    Stat(
        "bound_violated",
        bool,
        "Whether a range constant or a learned bound was too small.",
        "n_bound_violated",
    ),
)

COUNTS = (
    Stat("n_obs_evaluated", int, "Observations evaluated, audits included.", "n_obs_evaluated", per_step=False),
    Stat("n_nonfinite", int, "Decisions where the log ratio was not a number.", "n_nonfinite", per_step=False),
    Stat("n_fallback", int, "Decisions whose estimate was too noisy for the test.", "n_fallback", False),
    Stat("n_audited_estimates", int, "Estimates compared with all the data.", "n_audited_estimates", False),
    Stat("audit_squares", float, "Sum of the squares of their standardised errors.", "audit_squares", False),
    Stat("n_candidates", int, "Observations, or blocks, drawn as candidates by thinning.", "n_candidates", False),
    Stat(
        "bound_tightness",
        float,
        "Largest remainder, as a share of its bound.",
        "bound_tightness",
        False,
        True,
    ),
    Stat(
        "n_audited_acceptances",
        int,
        "Acceptance probabilities compared with those of all data.",
        "n_audited_acceptances",
        False,
    ),
    Stat(
        "acceptance_error", float, "Sum of the amounts by which learned bounds raise them.", "acceptance_error", False
    ),
    Stat("audit_time", float, "Seconds taken by audits.", "audit_time", False),
    Stat("n_waits", int, "Batches of candidates that decisions waited for.", "n_waits", False),
    Stat("wait_time", float, "Seconds that decisions waited for candidates.", "wait_time", False),
)

DECISIONS = Stat("n_decisions", np.int32, "Decisions of the step, one for each kernel that moved.", "n_decisions")
LEVEL = Stat("error_level", float, "Error level of the decision, if the level decreases during the run.")


class MetropolisHastings:
    """Kernel with one decision per step and any proposal; its params are the proposal.

    Parameters
    ----------
    decider : Decider
        Accepts or rejects, and remembers the log density at its position.
    tables : callable, optional
        From an error level to the looks at that level, if the level changes during the run (see `set_level`).
    """

    def __init__(self, decider: Decider, tables: Callable[[float], Table] | None = None) -> None:
        self.decider, self._tables = decider, tables
        self._level = float("nan")

    @property
    def stats(self) -> tuple[Stat, ...]:
        """Return the statistics of a decision, and the level if it changes."""
        return (*STATS, *COUNTS) if self._tables is None else (*STATS, LEVEL, *COUNTS)

    def set_level(self, level: float) -> None:
        """Take decisions at another error level from now on."""
        if self._tables is not None and level != self._level:
            self._level = level
            self.decider.set_table(self._tables(level))

    @property
    def dim(self) -> int:
        """Return the number of parameters."""
        return len(self.decider.theta)

    @property
    def deciders(self) -> tuple[Decider, ...]:
        """Return the kernel's decider."""
        return (self.decider,)

    @property
    def n_evaluated(self) -> int:
        """Return the observations evaluated by decisions so far."""
        return int(self.decider.n_evaluated)

    @property
    def current_state(self) -> State:
        """Return the state at the decider's position."""
        return State(np.array(self.decider.theta))

    def init(self, position: FloatArray) -> State:
        """Move to a position and return its state."""
        self.decider.reset(position)
        return State(np.array(position))

    def step(
        self, rng: np.random.Generator, state: State, params: Proposal, *, audit: bool = False
    ) -> tuple[State, Info]:
        """Propose and decide; return the state and statistics."""
        proposed, log_q_ratio = params(rng, state.position)
        return self.decide(rng, state, proposed, log_q_ratio, audit=audit)

    def decide(
        self,
        rng: np.random.Generator,
        state: State,
        proposed: FloatArray,
        log_q_ratio: float,
        *,
        audit: bool = False,
        subset: Subset | None = None,
    ) -> tuple[State, Info]:
        """Accept or reject, from all factors or from those of a subset as if there were no others."""
        self._move_to(state)
        log_u = np.log1p(-rng.random())
        decision = self.decider.decide(proposed, log_u, log_q_ratio, rng.bit_generator.capsule, audit, subset)
        return (State(proposed) if decision.accepted else state), statistics(decision) | {LEVEL.name: self._level}

    def batch(
        self,
        rng: np.random.Generator,
        state: State,
        params: Proposal,
        out: Records,
        n_steps: int,
        control: BatchControl,
    ) -> tuple[State, int]:
        """Run up to ``n_steps`` steps.

        Random walks, affine proposals and mixtures of them run in C++ without the interpreter lock; other proposals are
        called from Python.
        """
        proposals = compiled(params)
        if proposals is None:
            return step_by_step(self, rng, state, params, out, n_steps, control)
        self._move_to(state)
        if self._tables is not None:
            out[LEVEL.name][:n_steps] = self._level
        columns = (out[one.name].view(np.uint8) if one.dtype is bool else out[one.name] for one in STATS)
        rows: list[Any] = [out.theta, *columns, control.stop, control.counters]
        n = self.decider.batch(
            n_steps,
            proposals,
            rng.bit_generator.capsule,
            control.audit_rng.bit_generator.capsule,
            control.audit_probability,
            *rows,
        )
        return (State(out.theta[n - 1].copy()) if n else state), int(n)

    def counts(self) -> dict[str, float]:
        """Return the counts of statistics that have no value per step."""
        return counts_of(self.decider)

    def save(self) -> Any:
        """Return the order of the blocks and what is known of the log density at the position."""
        return self.decider.state

    def restore(self, state: State, saved: Any) -> None:
        """Restore what `save` returned."""
        self.decider.state = saved

    def _move_to(self, state: State) -> None:
        # Another kernel may have moved since.
        if not np.array_equal(self.decider.theta, state.position):
            self.decider.reset(state.position)


def counts_of(decider: Decider) -> dict[str, float]:
    """Return the counts of a decider, by the names of `COUNTS`."""
    return {
        "n_obs_evaluated": decider.n_evaluated + decider.n_evaluated_extra,
        "n_nonfinite": decider.n_nonfinite,
        "n_fallback": decider.n_fallback,
        "n_audited_estimates": decider.n_audited_estimates,
        "audit_squares": decider.audit_squares,
        "n_candidates": decider.n_candidates,
        "bound_tightness": decider.bound_tightness,
        "n_audited_acceptances": decider.n_audited_acceptances,
        "acceptance_error": decider.acceptance_error,
        "audit_time": decider.audit_seconds,
        "n_waits": decider.n_waits,
        "wait_time": decider.wait_seconds,
    }


def statistics(decision: Decision) -> dict[str, Any]:
    """Return the statistics of a decision, by the names of `STATS`."""
    return {
        "accepted": decision.accepted,
        "n_obs_used": decision.n_obs_used,
        "n_looks": decision.n_looks,
        "undecided": decision.undecided,
        "log_ratio": decision.log_ratio,
        "audited": decision.audited,
        "audit_wrong": decision.wrong,
        "bound_violated": decision.bound_violated,
    }
