"""One chain: warmup with adaptation, then sampling with the proposal held fixed."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stansub._loop import Decider
from stansub.kernels.metropolis import Control, Records, allocate, run_steps
from stansub.kernels.proposals import Proposal
from stansub.tuning.adapt import Adapter
from stansub.tuning.trial import WarmupTrial
from stansub.types import FloatArray

# Steps between two updates of the adapter in warmup, and between two looks at the records in sampling.
WARMUP_STRETCH = 25
SAMPLING_STRETCH = 100
# Draws of warmup that a chain remembers for a meeting, about.
_REMEMBERED = 4000


@dataclass(frozen=True)
class Plan:
    """How long a chain runs and what it keeps.

    Attributes
    ----------
    iter_warmup, iter_sampling : int
        Steps.
    thin : int
        Every ``thin``-th step is kept.
    audit : float
        Share of the sampling decisions decided again on all the data.
    save_warmup : bool
        Whether warmup steps are kept.
    """

    iter_warmup: int
    iter_sampling: int
    thin: int
    audit: float
    save_warmup: bool


@dataclass
class Totals:
    """Counts over all steps of a phase, thinned-away ones included; ``seconds`` are those without audits.

    Of the tests that count the noise in: ``n_fallback`` decisions whose noise was too large, and ``audit_squares``, the
    sum of the squared standardised errors of ``n_audited_estimates``.
    """

    n_steps: int = 0
    n_accepted: int = 0
    n_obs_used: int = 0
    n_obs_evaluated: int = 0
    n_undecided: int = 0
    n_audited: int = 0
    n_audit_wrong: int = 0
    n_bound_violated: int = 0
    n_nonfinite: int = 0
    n_fallback: int = 0
    n_audited_estimates: int = 0
    audit_squares: float = 0.0
    seconds: float = 0.0
    audit_seconds: float = 0.0

    def add(self, records: Records, n: int) -> None:
        """Count the first ``n`` records."""
        self.n_steps += n
        self.n_accepted += int(records.accepted[:n].sum())
        self.n_obs_used += int(records.n_obs_used[:n].sum())
        self.n_undecided += int(records.undecided[:n].sum())
        self.n_audited += int(records.audited[:n].sum())
        self.n_audit_wrong += int(records.audit_wrong[:n].sum())
        self.n_bound_violated += int(records.bound_violated[:n].sum())


@dataclass
class Phase:
    """Kept records of warmup or of sampling, and the totals."""

    kept: Records
    capacity: int
    n_kept: int = 0
    totals: Totals = field(default_factory=Totals)

    def take(self, records: Records, n: int, thin: int) -> None:
        """Keep every ``thin``-th of the steps, counted over the whole phase."""
        before = self.totals.n_steps
        self.totals.add(records, n)
        rows = np.arange(n)[(before + 1 + np.arange(n)) % thin == 0][: self.capacity - self.n_kept]
        end = self.n_kept + len(rows)
        for name in Records._fields:
            getattr(self.kept, name)[self.n_kept : end] = getattr(records, name)[rows]
        self.n_kept = end


class Status(NamedTuple):
    """How far a chain is.

    Attributes
    ----------
    steps, total : int
        Steps done and to be done, warmup included.
    warmup : bool
        Whether the chain is still adapting.
    acceptance, share : float
        Share of proposals accepted and of the data used, over the steps of the present phase.
    """

    steps: int
    total: int
    warmup: bool
    acceptance: float
    share: float


class Chain:
    """A chain with random streams of its own.

    Parameters
    ----------
    decider : Decider
        The chain's own, standing at the starting value.
    adapter : Adapter
        Learns the proposal in warmup.
    rng, audit_rng : Generator
        The chain's stream, and one for choosing which decisions are audited: audits leave the draws as they are.
    n_observations : int
        Size of the data, for the share that is used.
    stop : ndarray of int32, shape (1,)
        Set to 1 to stop all chains after the step they are in.
    trial : WarmupTrial, optional
        Made at the end of warmup; its evaluations and seconds are warmup's. The draws are the same without it.
    """

    def __init__(
        self,
        decider: Decider,
        adapter: Adapter,
        plan: Plan,
        *,
        rng: np.random.Generator,
        audit_rng: np.random.Generator,
        n_observations: int,
        stop: NDArray[np.int32],
        trial: WarmupTrial | None = None,
    ) -> None:
        self._decider = decider
        self._adapter = adapter
        self._n_observations = n_observations
        self.plan = plan
        self._rng = rng
        self._audit_rng = audit_rng
        self._stop = stop
        self.trial = trial
        # Steps of warmup after which the chain waits for the others; until then it remembers its draws.
        self._pause = 0
        self._every = min(WARMUP_STRETCH, -(-max(1, plan.iter_warmup) // _REMEMBERED))
        self._remembered: list[FloatArray] = []
        self._accepted: list[float] = []
        dim = decider.theta.size
        n_sampling = plan.iter_sampling // plan.thin
        n_warmup = plan.iter_warmup // plan.thin if plan.save_warmup else 0
        self.warmup = Phase(allocate(n_warmup, dim), n_warmup)
        self.sampling = Phase(allocate(n_sampling, dim), n_sampling)
        # Counted by the loop itself, because a stretch of slow steps may take minutes.
        self._counters = np.zeros(4, dtype=np.int64)
        self._counted_in_warmup = np.zeros(4, dtype=np.int64)
        self.proposal: Proposal = adapter.proposal()
        self._buffer = allocate(max(WARMUP_STRETCH, SAMPLING_STRETCH), dim)

    def advance(self) -> bool:
        """Run one stretch of steps; False when the chain has come to its end, has to wait, or was stopped."""
        if self._stop[0] or self._waits:
            return False
        if self.warmup.totals.n_steps < self.plan.iter_warmup:
            end = self._pause or self.plan.iter_warmup
            n = self._stretch(self.warmup, min(WARMUP_STRETCH, end - self.warmup.totals.n_steps), 0.0)
            if n:
                if self._pause:
                    self._remembered.append(self._buffer.theta[: n : self._every].copy())
                    self._accepted.append(float(self._buffer.accepted[:n].mean()))
                self._adapter.update(self._buffer.theta[:n], float(self._buffer.accepted[:n].mean()))
            if self.warmup.totals.n_steps == self.plan.iter_warmup:
                self.proposal = self._adapter.final()
                self._counted_in_warmup = self._counters.copy()
                self._try_out()
            else:
                self.proposal = self._adapter.proposal()
            return not self._waits
        left = self.plan.iter_sampling - self.sampling.totals.n_steps
        if left > 0:
            self._stretch(self.sampling, min(SAMPLING_STRETCH, left), self.plan.audit)
        return not self.done

    def wait_after(self, n_steps: int) -> None:
        """Have `advance` end after so many steps of warmup and remember the draws until then; 0 for neither."""
        self._pause = n_steps
        if not n_steps:
            self._remembered, self._accepted = [], []

    @property
    def _waits(self) -> bool:
        return 0 < self._pause <= self.warmup.totals.n_steps

    @property
    def recent(self) -> FloatArray:
        """The later half of the draws of warmup so far, shape (n, dim)."""
        stretches = self._remembered[len(self._remembered) // 2 :]
        return np.concatenate([np.empty((0, self._decider.theta.size)), *stretches])

    @property
    def recent_acceptance(self) -> float:
        """Share of the proposals accepted in the later half of warmup so far; 0 before the first step."""
        return float(np.mean(self._accepted[len(self._accepted) // 2 :] or [0.0]))

    def go_on_with(self, decider: Decider, adapter: Adapter | None, trial: WarmupTrial | None) -> None:
        """Go on from where the chain is with another decider and, where one is given, adapter."""
        decider.reset(self.position)
        self._decider, self.trial = decider, trial
        if adapter is not None:
            self._adapter, self.proposal = adapter, adapter.proposal()

    def charge(self, n_obs_evaluated: int, seconds: float) -> None:
        """Count as warmup's what was done for the chain from outside."""
        self.warmup.totals.n_obs_evaluated += n_obs_evaluated
        self.warmup.totals.seconds += seconds

    def _try_out(self) -> None:
        if self.trial is None:
            return
        began, evaluated = time.perf_counter(), self._n_evaluated
        n_passes = self.trial(self.position, self.proposal)
        self.warmup.totals.n_obs_evaluated += n_passes * self._n_observations + self._n_evaluated - evaluated
        self.warmup.totals.seconds += time.perf_counter() - began

    def _stretch(self, phase: Phase, n_steps: int, audit: float) -> int:
        decider, totals = self._decider, phase.totals
        began, evaluated, nonfinite = time.perf_counter(), self._n_evaluated, decider.n_nonfinite
        audited = decider.audit_seconds
        fallback, estimates, squares = decider.n_fallback, decider.n_audited_estimates, decider.audit_squares
        control = Control(self._audit_rng, audit, self._stop, self._counters)
        n = run_steps(decider, self.proposal, self._rng, self._buffer, n_steps, control)
        phase.take(self._buffer, n, self.plan.thin)
        totals.audit_seconds += decider.audit_seconds - audited
        totals.seconds += time.perf_counter() - began - (decider.audit_seconds - audited)
        totals.n_obs_evaluated += self._n_evaluated - evaluated
        totals.n_nonfinite += decider.n_nonfinite - nonfinite
        totals.n_fallback += decider.n_fallback - fallback
        totals.n_audited_estimates += decider.n_audited_estimates - estimates
        totals.audit_squares += decider.audit_squares - squares
        return n

    @property
    def _n_evaluated(self) -> int:
        """Observations evaluated by decisions, audits and proposals."""
        return self._decider.n_evaluated + self._decider.n_evaluated_extra + self._adapter.n_evaluated

    @property
    def done(self) -> bool:
        """Whether the chain has run to its end."""
        return self.sampling.totals.n_steps >= self.plan.iter_sampling

    @property
    def status(self) -> Status:
        """How far the chain is; may be asked while it runs."""
        steps = int(self._counters[0])
        warmup = steps <= self.plan.iter_warmup and self.plan.iter_warmup > 0
        n, accepted, used, _ = self._counters - (0 if warmup else self._counted_in_warmup)
        return Status(
            steps=steps,
            total=self.plan.iter_warmup + self.plan.iter_sampling,
            warmup=warmup,
            acceptance=accepted / max(n, 1),
            share=used / max(n, 1) / self._n_observations,
        )

    @property
    def position(self) -> FloatArray:
        """Where the chain is, shape (dim,)."""
        return np.array(self._decider.theta)

    @property
    def draws(self) -> FloatArray:
        """Kept sampling draws so far, shape (n_kept, dim)."""
        return self.sampling.kept.theta[: self.sampling.n_kept]
