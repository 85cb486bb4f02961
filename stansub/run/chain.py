"""One chain: warmup with adaptation, then sampling with the proposal held fixed.

What a chain is beside its kernel is an explicit value, `ChainState`, of types that a checkpoint can hold: from it a
resumed run, or a worker in another process, continues draw for draw.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stansub import clock
from stansub.acceptance.normality import Trial
from stansub.codec import Encoded, MalformedError
from stansub.kernels.base import Kernel, Oversight, Records, Stat, State, totals_of
from stansub.kernels.proposals import Adapter, Proposal
from stansub.run.kinds import CODEC
from stansub.run.rows import Read, Rows
from stansub.run.state import ChainState, Counted, Plan, Totals
from stansub.tuning.trial import WarmupTrial
from stansub.types import FloatArray

# Steps between two updates of the adapter in warmup.
WARMUP_STRETCH = 25
# Steps between two looks at the records in sampling, at least: as many more as take so many seconds and fill so many
# bytes of records. How many they are changes no draw.
SAMPLING_STRETCH = 100
_SECONDS, _BYTES = 0.01, 1 << 20
# Draws of warmup that a chain remembers for a meeting, about.
_REMEMBERED = 4000


class Phase:
    """Warmup or sampling: the records that are kept, and how far it is."""

    def __init__(self, capacity: int, dim: int, stats: Sequence[Stat]) -> None:
        self.kept = Rows(capacity, dim, stats)
        self.counted, self._capacity = Counted(), capacity
        self._dim, self._stats = dim, stats
        # Rows that are kept elsewhere, by the process that this one works for.
        self._elsewhere = 0

    @property
    def n_kept(self) -> int:
        """Rows kept so far."""
        return self.counted.n_kept

    @property
    def totals(self) -> Totals:
        """Sums over all steps so far."""
        return self.counted.totals

    @property
    def n_steps(self) -> int:
        """Steps so far."""
        return int(self.totals["n_steps"])

    @property
    def bytes_ahead(self) -> int:
        """Bytes of the rows that are still to come, at most."""
        return self.kept.row_bytes * (self._capacity - self.n_kept)

    def take(self, records: Records, thin: int) -> None:
        """Keep every ``thin``-th of the steps, counted over the whole phase."""
        n, before = len(records), self.n_steps
        self.totals.add({"n_steps": n} | totals_of(self._stats, records))
        rows = np.arange(n)[(before + 1 + np.arange(n)) % thin == 0][: self._capacity - self.n_kept]
        self.put(records.rows(rows))

    def put(self, kept: Records) -> None:
        """Append rows that are to be kept."""
        self.kept.append(kept)
        self.counted.n_kept += len(kept)

    def go_on_from(self, counted: Counted, kept: Sequence[Read] | None) -> None:
        """Continue where a phase was, with the rows it has kept since this one's; None for rows kept elsewhere.

        Raises
        ------
        MalformedError
            When the rows are not those of such a phase.
        """
        if kept is None:
            self._elsewhere, self.kept = counted.n_kept, Rows(self._capacity, self._dim, self._stats)
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
        """The rows kept from row ``start`` on, all of which stand here."""
        return self.kept.read(start - self._elsewhere, None if end is None else end - self._elsewhere)


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
    kernel : Kernel
        The chain's own, standing at the starting value.
    state : State
        Where it stands.
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
        kernel: Kernel,
        state: State,
        adapter: Adapter,
        plan: Plan,
        *,
        rng: np.random.Generator,
        audit_rng: np.random.Generator,
        n_observations: int,
        stop: NDArray[np.int32],
        trial: WarmupTrial | None = None,
    ) -> None:
        self.kernel, self.plan, self.trial = kernel, plan, trial
        self._n_observations, self._stop = n_observations, stop
        self._length = SAMPLING_STRETCH
        self._every = min(WARMUP_STRETCH, -(-max(1, plan.iter_warmup) // _REMEMBERED))
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
        # Of the options, before anything is learned: the same where the run is resumed.
        self._foreign = CODEC.foreign(state, adapter, self._now.proposal)
        self._same_level()
        self._buffer = Records.allocate(max(WARMUP_STRETCH, SAMPLING_STRETCH), kernel.dim, kernel.stats)

    def advance(self) -> bool:
        """Run one stretch of steps; False when the chain has come to its end, has to wait, or was stopped."""
        if self._stop[0] or self.waits:
            return False
        if self.warmup.n_steps < self.plan.iter_warmup:
            self._warm_up()
            return not self.waits
        left = (self._now.rest or self.plan.iter_sampling) - self.sampling.n_steps
        if left > 0:
            began = clock.now()
            self._stretch(self.sampling, min(self._length, left, self._same_level()), self.plan.audit)
            self._suit(clock.now() - began)
        return not (self.done or self.waits)

    def _warm_up(self) -> None:
        now = self._now
        end = now.pause or self.plan.iter_warmup
        records = self._stretch(self.warmup, min(WARMUP_STRETCH, end - self.warmup.n_steps), 0.0)
        if len(records):
            if now.pause:
                now.remembered.append(records.theta[:: self._every].copy())
                now.accepted.append(float(records["accepted"].mean()))
            now.adapter.learn(records)
        if self.warmup.n_steps == self.plan.iter_warmup:
            now.proposal = now.adapter.final()
            now.counted_in_warmup = now.counters.copy()
            self._try_out()
        else:
            now.proposal = now.adapter.proposal()

    def _stretch(self, phase: Phase, n_steps: int, audit: float) -> Records:
        """Up to so many steps; the records of those that were made."""
        now, began, before = self._now, clock.now(), self._counts()
        oversight = Oversight(now.audit_rng, audit, self._stop, now.counters)
        now.state, n = self.kernel.batch(now.rng, now.state, now.proposal, self._buffer, n_steps, oversight)
        records = self._buffer.rows(slice(0, n))
        phase.take(records, self.plan.thin)
        counts = self._counts()
        largest = {one.name: counts.pop(one.name) for one in self.kernel.stats if one.largest}
        counted = {name: value - before[name] for name, value in counts.items()}
        seconds = clock.now() - began - counted.get("audit_time", 0.0)
        phase.totals.add(counted | {"seconds": seconds}, largest)
        return records

    def _suit(self, seconds: float) -> None:
        """Choose the length of the next stretch of sampling by what the one before took."""
        if seconds > 2 * _SECONDS:
            self._length = max(SAMPLING_STRETCH, self._length // 2)
        elif seconds < _SECONDS / 2 and 2 * self._length * self._buffer.row_bytes <= _BYTES:
            self._length *= 2
            if self._length > len(self._buffer):
                self._buffer = Records.allocate(self._length, self.kernel.dim, self.kernel.stats)

    def _same_level(self) -> int:
        """Have the kernel decide at the level of the next step; the number of steps that share it."""
        levels, done = self.plan.levels, self.sampling.n_steps
        if levels is None:
            return self._length
        self.kernel.set_level(levels.level(done))
        return levels.same_until(done) - done

    def _counts(self) -> dict[str, float]:
        """What kernel and adapter have counted so far."""
        counts = self.kernel.counts()
        return counts | {"n_obs_evaluated": counts.get("n_obs_evaluated", 0) + self._now.adapter.n_evaluated}

    def _try_out(self) -> None:
        if self.trial is None:
            return
        began, evaluated = clock.now(), self._counts()["n_obs_evaluated"]
        # A copy, for proposals that keep a state: draws are the same without a trial.
        self._now.trial, n_passes = self.trial(self.position, copy.deepcopy(self.proposal))
        evaluated = self._counts()["n_obs_evaluated"] - evaluated
        self.charge(n_passes * self._n_observations + int(evaluated), clock.now() - began)

    def rest_after(self, n_steps: int) -> None:
        """Have `advance` end after so many steps of sampling; 0 for after all of them."""
        self._now.rest, self._now.ended = n_steps, False

    def end(self) -> None:
        """The draws so far are enough."""
        self._now.ended = True

    def wait_after(self, n_steps: int) -> None:
        """Have `advance` end after so many steps of warmup and remember the draws until then; 0 for neither."""
        self._now.pause = n_steps
        if not n_steps:
            self._now.remembered, self._now.accepted = [], []

    def go_on_with(self, kernel: Kernel, adapter: Adapter | None, trial: WarmupTrial | None) -> None:
        """Go on from where the chain is with another kernel and, where one is given, adapter."""
        self.kernel, self.trial = kernel, trial
        self._same_level()
        self._now.state = kernel.init(self.position)
        if adapter is not None:
            self._now.adapter, self._now.proposal = adapter, adapter.proposal()

    def charge(self, n_obs_evaluated: int, seconds: float) -> None:
        """Count as warmup's what was done for the chain from outside."""
        self.warmup.totals.add({"n_obs_evaluated": n_obs_evaluated, "seconds": seconds})

    def save(self) -> Encoded:
        """The chain's `ChainState`; what belongs to the target (evaluators) or follows from options is left out.

        Raises
        ------
        NotKeptError
            When a kernel, proposal or adapter of the user's own holds what no checkpoint can.
        """
        self._now.kernel = self.kernel.save()
        return CODEC.encode(self._now, self._foreign)

    def restore(self, saved: Encoded, kept: tuple[Sequence[Read] | None, Sequence[Read] | None] = (None, None)) -> None:
        """Continue from what `save` gave.

        Parameters
        ----------
        kept : tuple of sequences of callables, or None
            What read, in turn, the rows that were kept of warmup and of sampling since this chain's own; None if they
            stay elsewhere.

        Raises
        ------
        MalformedError
            When it is no state of such a chain.
        """
        now: ChainState = CODEC.decode(saved, self._foreign, hint=ChainState)
        shapes = now.state.position.shape, now.counters.shape, now.counted_in_warmup.shape
        if shapes != ((self.kernel.dim,), (4,), (4,)):
            raise MalformedError("the state belongs to a chain with other parameters")
        for phase, counted, rows in ((self.warmup, now.warmup, kept[0]), (self.sampling, now.sampling, kept[1])):
            phase.go_on_from(counted, rows)
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
    def waits(self) -> bool:
        """Whether it has come so far as it is to come before the chains meet, or are looked at together."""
        return 0 < self._now.pause <= self.warmup.n_steps or 0 < self._now.rest <= self.sampling.n_steps

    @property
    def proposal(self) -> Proposal:
        """The present one."""
        proposal: Proposal = self._now.proposal
        return proposal

    @property
    def tried(self) -> Trial | None:
        """What the trial at the end of warmup came to."""
        return self._now.trial

    @property
    def recent(self) -> FloatArray:
        """The later half of the draws of warmup so far, shape (n, dim)."""
        remembered = self._now.remembered
        return np.concatenate([np.empty((0, self.kernel.dim)), *remembered[len(remembered) // 2 :]])

    @property
    def recent_acceptance(self) -> float:
        """Share of the proposals accepted in the later half of warmup so far; 0 before the first step."""
        accepted = self._now.accepted
        return float(np.mean(accepted[len(accepted) // 2 :] or [0.0]))

    @property
    def done(self) -> bool:
        """Whether the chain has run to its end."""
        return self._now.ended or self.sampling.n_steps >= self.plan.iter_sampling

    @property
    def status(self) -> Status:
        """How far the chain is; may be asked while it runs."""
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
        """Where the chain is, shape (dim,)."""
        return np.array(self._now.state.position)

    @property
    def draws(self) -> FloatArray:
        """Kept sampling draws so far, shape (n_kept, dim)."""
        return self.sampling.kept.read().theta
