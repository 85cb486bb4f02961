"""A chain: warmup with adaptation, then sampling with a fixed proposal.

Everything about a chain besides its kernel is a value, `ChainState`, of types that a checkpoint can hold. A resumed
run, or a worker in another process, continues from it draw for draw.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stansub import clock
from stansub.acceptance.normality import Trial
from stansub.codec import Encoded, MalformedError
from stansub.kernels.base import BatchControl, Kernel, Records, Stat, State, totals_of
from stansub.kernels.proposals import Adapter, Proposal
from stansub.progress import StoppedError
from stansub.run.checkpoint_types import CODEC
from stansub.run.rows import Read, Rows
from stansub.run.state import ChainState, PhaseCounts, Plan, Totals
from stansub.tuning.trial import WarmupTrial
from stansub.types import FloatArray

# Steps between two updates of the adapter in warmup.
WARMUP_BATCH = 25
# Minimum number of steps in a batch of sampling. A batch is longer if this many seconds and bytes of records are
# not reached. Its length changes no draw.
SAMPLING_BATCH = 100
_SECONDS, _BYTES = 0.01, 1 << 20
# Approximate number of warmup draws that a chain remembers for pooling.
_REMEMBERED = 4000


class Phase:
    """Warmup or sampling of a chain: the records kept and the progress."""

    def __init__(self, capacity: int, dim: int, stats: Sequence[Stat]) -> None:
        self.kept = Rows(capacity, dim, stats)
        self.counted, self._capacity = PhaseCounts(), capacity
        self._dim, self._stats = dim, stats
        # Rows kept by the process that this worker serves.
        self._n_rows_remote = 0

    @property
    def n_kept(self) -> int:
        """Return the number of rows kept so far."""
        return self.counted.n_kept

    @property
    def totals(self) -> Totals:
        """Return the sums over all steps so far."""
        return self.counted.totals

    @property
    def n_steps(self) -> int:
        """Return the number of steps so far."""
        return int(self.totals["n_steps"])

    @property
    def bytes_ahead(self) -> int:
        """Return an upper bound of the bytes of the rows still to come."""
        return self.kept.row_bytes * (self._capacity - self.n_kept)

    def take(self, records: Records, thin: int) -> None:
        """Keep every ``thin``-th step, counted over the whole phase."""
        n, before = len(records), self.n_steps
        self.totals.add({"n_steps": n} | totals_of(self._stats, records))
        rows = np.arange(n)[(before + 1 + np.arange(n)) % thin == 0][: self._capacity - self.n_kept]
        self.put(records.rows(rows))

    def put(self, kept: Records) -> None:
        """Append rows to keep."""
        self.kept.append(kept)
        self.counted.n_kept += len(kept)

    def resume_from(self, counted: PhaseCounts, kept: Sequence[Read] | None) -> None:
        """Resume a phase with the rows it kept since this one's; None for rows kept by another process.

        Raises
        ------
        MalformedError
            If the rows are not those of such a phase.
        """
        if kept is None:
            self._n_rows_remote, self.kept = counted.n_kept, Rows(self._capacity, self._dim, self._stats)
        else:
            like, n = Records.allocate(0, self._dim, self._stats), min(counted.n_kept, self._capacity)
            for read in kept:
                records = read()
                if not records.is_like(like):
                    raise MalformedError("the records belong to another kernel")
                if len(self.kept) + len(records) <= n:
                    self.kept.attach(records, read)
            if len(self.kept) != counted.n_kept:
                raise MalformedError("the records do not match the state")
        self.counted = counted

    def rows(self, start: int, end: int | None = None) -> Records:
        """Return the rows kept from row ``start`` on; all must be in this process."""
        return self.kept.read(start - self._n_rows_remote, None if end is None else end - self._n_rows_remote)


class Status(NamedTuple):
    """Progress of a chain."""

    steps: int
    total: int
    """Steps done and planned, including warmup."""
    warmup: bool
    """Whether the chain is still in warmup."""
    acceptance: float = math.nan
    share: float = math.nan
    """Share of proposals accepted and share of the data used, over the steps of the current phase; NaN if unknown."""


class Chain:
    """A chain with its own random streams.

    Parameters
    ----------
    kernel : Kernel
        The chain's own kernel, at the starting value.
    rng, audit_rng : Generator
        Random streams of the chain and of the choice of audits. They are separate, so audits do not change the draws.
    n_observations : int
        Size of the data, to compute the share used.
    stop : ndarray of int32, shape (1,)
        Set to 1 to stop all chains after the current step.
    elsewhere : bool
        Whether other processes may hold the observations, so that a step may wait for them and be stopped there.
    trial : WarmupTrial, optional
        Run at the end of warmup; its evaluations and seconds count as warmup. It does not change the draws.
    """

    def __init__(
        self,
        kernel: Kernel,
        state: State,
        adapter: Adapter,
        plan: Plan,
        *,
        rng: np.random.Generator,
        audit_rng: np.random.Generator,
        n_observations: int,
        stop: NDArray[np.int32],
        elsewhere: bool = False,
        trial: WarmupTrial | None = None,
    ) -> None:
        self.kernel, self.plan, self.trial = kernel, plan, trial
        self._n_observations, self._stop, self._elsewhere = n_observations, stop, elsewhere
        self._length = SAMPLING_BATCH
        self._every = min(WARMUP_BATCH, -(-max(1, plan.iter_warmup) // _REMEMBERED))
        self.warmup = Phase(plan.iter_warmup // plan.thin if plan.save_warmup else 0, kernel.dim, kernel.stats)
        self.sampling = Phase(plan.iter_sampling // plan.thin, kernel.dim, kernel.stats)
        self._now = ChainState(
            state,
            adapter.proposal(),
            adapter,
            rng,
            audit_rng,
            trial_rng=trial.rng if trial is not None else None,
            warmup=self.warmup.counted,
            sampling=self.sampling.counted,
        )
        # Computed from the options, before any adaptation, so that it is the same when the run resumes.
        self._foreign = CODEC.foreign(state, adapter, self._now.proposal)
        self._set_level()
        self._buffer = Records.allocate(max(WARMUP_BATCH, SAMPLING_BATCH), kernel.dim, kernel.stats)

    def advance(self) -> bool:
        """Run one batch of steps; return False if the chain is done, must wait or was stopped."""
        if self._stop[0] or self.is_paused:
            return False
        if self.warmup.n_steps < self.plan.iter_warmup:
            self._warm_up()
            return not self.is_paused
        left = (self._now.rest or self.plan.iter_sampling) - self.sampling.n_steps
        if left > 0:
            began = clock.now()
            self._run_batch(self.sampling, min(self._length, left, self._set_level()), self.plan.audit)
            self._adapt_batch_length(clock.now() - began)
        return not (self.done or self.is_paused)

    def _warm_up(self) -> None:
        now = self._now
        end = now.pause or self.plan.iter_warmup
        records = self._run_batch(self.warmup, min(WARMUP_BATCH, end - self.warmup.n_steps), 0.0)
        if len(records):
            if now.pause:
                now.remembered.append(records.theta[:: self._every].copy())
                now.accepted.append(float(records["accepted"].mean()))
            now.adapter.learn(records)
        if self.warmup.n_steps == self.plan.iter_warmup:
            now.proposal = now.adapter.final()
            now.counted_in_warmup = now.counters.copy()
            self._test_normality()
        else:
            now.proposal = now.adapter.proposal()

    def _run_batch(self, phase: Phase, n_steps: int, audit: float) -> Records:
        """Run up to `n_steps` steps and return their records; none if they were stopped while one waited."""
        now, began, before = self._now, clock.now(), self._counts()
        go_back = self._place() if self._elsewhere else None
        control = BatchControl(now.audit_rng, audit, self._stop, now.counters)
        try:
            now.state, n = self.kernel.batch(now.rng, now.state, now.proposal, self._buffer, n_steps, control)
        except StoppedError:
            assert go_back is not None
            go_back()
            n = 0
        records = self._buffer.rows(slice(0, n))
        phase.take(records, self.plan.thin)
        counts = self._counts()
        largest = {one.name: counts.pop(one.name) for one in self.kernel.stats if one.largest}
        counted = {name: value - before[name] for name, value in counts.items()}
        seconds = clock.now() - began - counted.get("audit_time", 0.0)
        phase.totals.add(counted | {"seconds": seconds}, largest)
        return records

    def _place(self) -> Callable[[], None]:
        """Return a function that brings the chain back to where it is now."""
        now, saved = self._now, self.kernel.save()
        state, counters, proposal = now.state, now.counters.copy(), copy.deepcopy(now.proposal)
        generators = [(one.bit_generator, one.bit_generator.state) for one in (now.rng, now.audit_rng)]

        def go_back() -> None:
            now.state, now.proposal = state, proposal
            now.counters[:] = counters
            for generator, there in generators:
                generator.state = there
            self.kernel.init(state.position)
            self.kernel.restore(state, saved)

        return go_back

    def _adapt_batch_length(self, seconds: float) -> None:
        """Set the length of the next batch of sampling from the seconds of the last."""
        if seconds > 2 * _SECONDS:
            self._length = max(SAMPLING_BATCH, self._length // 2)
        elif seconds < _SECONDS / 2 and 2 * self._length * self._buffer.row_bytes <= _BYTES:
            self._length *= 2
            if self._length > len(self._buffer):
                self._buffer = Records.allocate(self._length, self.kernel.dim, self.kernel.stats)

    def _set_level(self) -> int:
        """Set the kernel to the level of the next step; return the number of steps that share it."""
        levels, done = self.plan.levels, self.sampling.n_steps
        if levels is None:
            return self._length
        self.kernel.set_level(levels.level(done))
        return levels.same_until(done) - done

    def _counts(self) -> dict[str, float]:
        """Return the counts of kernel and adapter so far."""
        counts = self.kernel.counts()
        return counts | {"n_obs_evaluated": counts.get("n_obs_evaluated", 0) + self._now.adapter.n_evaluated}

    def _test_normality(self) -> None:
        if self.trial is None:
            return
        began, evaluated = clock.now(), self._counts()["n_obs_evaluated"]
        # A copy, for proposals with a state, so that the trial does not change the draws.
        self._now.trial, n_passes = self.trial(self.position, copy.deepcopy(self.proposal))
        evaluated = self._counts()["n_obs_evaluated"] - evaluated
        self.charge(n_passes * self._n_observations + int(evaluated), clock.now() - began)

    def pause_sampling_after(self, n_steps: int) -> None:
        """Make `advance` stop after this many steps of sampling; 0 for after the last step."""
        self._now.rest, self._now.ended = n_steps, False

    def end(self) -> None:
        """End the chain: its draws suffice."""
        self._now.ended = True

    def pause_warmup_after(self, n_steps: int) -> None:
        """Make `advance` stop after this many steps of warmup and remember the draws until then; 0 for neither."""
        self._now.pause = n_steps
        if not n_steps:
            self._now.remembered, self._now.accepted = [], []

    def replace_kernel(self, kernel: Kernel, adapter: Adapter | None, trial: WarmupTrial | None) -> None:
        """Continue from the current state with another kernel and, if given, another adapter."""
        self.kernel, self.trial = kernel, trial
        self._set_level()
        self._now.state = kernel.init(self.position)
        if adapter is not None:
            self._now.adapter, self._now.proposal = adapter, adapter.proposal()

    def charge(self, n_obs_evaluated: int, seconds: float) -> None:
        """Add work done outside the chain to the costs of its warmup."""
        self.warmup.totals.add({"n_obs_evaluated": n_obs_evaluated, "seconds": seconds})

    def save(self) -> Encoded:
        """Return the chain's `ChainState`, without what belongs to the target (evaluators) or follows from options.

        Raises
        ------
        NotKeptError
            If a custom kernel, proposal or adapter holds values that no checkpoint can hold.
        """
        self._now.kernel = self.kernel.save()
        return CODEC.encode(self._now, self._foreign)

    def restore(self, saved: Encoded, kept: tuple[Sequence[Read] | None, Sequence[Read] | None] = (None, None)) -> None:
        """Continue from what `save` returned.

        Parameters
        ----------
        kept : tuple of sequences of callables, or None
            Callables that read, in turn, the rows kept of warmup and of sampling since this chain's own; None if
            another process keeps them.

        Raises
        ------
        MalformedError
            If the value is not the state of such a chain.
        """
        now: ChainState = CODEC.decode(saved, self._foreign, hint=ChainState)
        shapes = now.state.position.shape, now.counters.shape, now.counted_in_warmup.shape
        if shapes != ((self.kernel.dim,), (4,), (4,)):
            raise MalformedError("the state belongs to a chain with other parameters")
        for phase, counted, rows in ((self.warmup, now.warmup, kept[0]), (self.sampling, now.sampling, kept[1])):
            phase.resume_from(counted, rows)
        self._now = now
        self.kernel.init(now.state.position)
        if now.kernel is not None:
            try:
                self.kernel.restore(now.state, now.kernel)
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                raise MalformedError(f"the kernel cannot read its state: {error}") from error
        if self.trial is not None and now.trial_rng is not None:
            self.trial.rng = now.trial_rng

    @property
    def is_paused(self) -> bool:
        """Return whether the chain has reached the next pooling of draws or check."""
        return 0 < self._now.pause <= self.warmup.n_steps or 0 < self._now.rest <= self.sampling.n_steps

    @property
    def proposal(self) -> Proposal:
        """Return the current proposal."""
        proposal: Proposal = self._now.proposal
        return proposal

    @property
    def normality_trial(self) -> Trial | None:
        """Return the result of the trial at the end of warmup."""
        return self._now.trial

    @property
    def recent(self) -> FloatArray:
        """Return the later half of the warmup draws so far, shape (n, dim)."""
        remembered = self._now.remembered
        return np.concatenate([np.empty((0, self.kernel.dim)), *remembered[len(remembered) // 2 :]])

    @property
    def recent_acceptance(self) -> float:
        """Return the share of proposals accepted in the later half of warmup so far; 0 before the first step."""
        accepted = self._now.accepted
        return float(np.mean(accepted[len(accepted) // 2 :] or [0.0]))

    @property
    def done(self) -> bool:
        """Return whether the chain has finished."""
        return self._now.ended or self.sampling.n_steps >= self.plan.iter_sampling

    @property
    def status(self) -> Status:
        """Return the progress of the chain; safe to call while it runs."""
        now = self._now
        steps = int(now.counters[0])
        warmup = steps <= self.plan.iter_warmup and self.plan.iter_warmup > 0
        n, accepted, used, _ = now.counters - (0 if warmup else now.counted_in_warmup)
        return Status(
            steps=steps,
            total=steps if now.ended else self.plan.iter_warmup + self.plan.iter_sampling,
            warmup=warmup,
            acceptance=accepted / max(n, 1),
            share=used / max(n, 1) / self._n_observations,
        )

    @property
    def position(self) -> FloatArray:
        """Return the current position, shape (dim,)."""
        return np.array(self._now.state.position)

    @property
    def draws(self) -> FloatArray:
        """Return the sampling draws kept so far, shape (n_kept, dim)."""
        return self.sampling.kept.read().theta
