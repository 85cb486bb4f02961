"""The chains of a run from first step to last: warmup in stages, then sampling.

After each stage of warmup the chains pool their draws and adapt to them. Sampling is one stage, or several stages with
a precision check after each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stansub import clock
from stansub.progress import StoppedError
from stansub.run import executors
from stansub.run.chain import Chain
from stansub.run.checkpoint import CheckpointWriter
from stansub.run.cross_chain import CrossChainAdaptation
from stansub.run.early_stopping import EarlyStopping
from stansub.run.remote import RemoteChains


class _Pieces:
    """Pieces of work from a generator."""

    def __init__(self, work: Iterator[None], stop: NDArray[np.int32]) -> None:
        self._work, self._stop = work, stop

    def advance(self) -> bool:
        try:
            return not self._stop[0] and next(self._work, self) is None
        except StoppedError:
            return False


def run(
    chains: Sequence[Chain],
    adaptation: CrossChainAdaptation | None,
    *,
    parallel: int,
    stop: NDArray[np.int32],
    remote: RemoteChains | None = None,
    writer: CheckpointWriter | None = None,
    until: EarlyStopping | None = None,
    max_time: float | None = None,
    watch: Callable[[], None] = lambda: None,
    on_interrupt: Callable[[], None] = lambda: None,
) -> executors.Outcome:
    """Run chains, with cross-chain adaptation in warmup, until they finish, an interrupt or the time limit; see
    `stansub.run.executors.run`.

    A chain that fails in a stage is left out of later stages.

    Parameters
    ----------
    remote : RemoteChains, optional
        Runs the chains in other processes; by default threads of this process run them.
    until : EarlyStopping, optional
        Ends the run when the draws are precise enough.
    """
    turns = partial(executors.run, stop=stop, watch=watch, on_interrupt=on_interrupt)
    stage = _Stage(chains, adaptation, turns, parallel, remote, writer, max_time)
    ahead = [n_steps for n_steps in adaptation.at if n_steps > adaptation.last] if adaptation is not None else []
    for n_steps in ahead:
        stage.advance(n_steps)
        if stop[0] or not stage.living:
            break
        stage.adapt(n_steps, stop)
        if stop[0]:
            break
    else:
        stage.sample(until, stop)
    if writer is not None:
        writer.finish(stage.living)
    return stage.outcome


class _Stage:
    """State shared by the stages of a run: remaining chains, remaining time and the outcome so far."""

    def __init__(
        self,
        chains: Sequence[Chain],
        adaptation: CrossChainAdaptation | None,
        turns: Callable[..., executors.Outcome],
        parallel: int,
        remote: RemoteChains | None,
        writer: CheckpointWriter | None,
        max_time: float | None,
    ) -> None:
        self._chains, self._adaptation, self._turns, self._parallel = chains, adaptation, turns, parallel
        self._remote, self._writer = remote, writer
        self._end = None if max_time is None else clock.now() + max_time
        self.outcome = executors.Outcome()
        self._send_setup()

    def _send_setup(self) -> None:
        """Send the results of adaptation to chains in other processes."""
        if self._remote is not None:
            self._remote.update_setup(self._adaptation)

    @property
    def living(self) -> list[int]:
        """Return the numbers of the chains that have not failed."""
        return [number for number in range(len(self._chains)) if number not in self.outcome.failures]

    def advance(self, n_steps: int, n_sampling: int = 0) -> None:
        """Advance the chains by one stage, which ends after ``n_steps`` of warmup or ``n_sampling`` of sampling.

        0 advances them to their end.
        """
        living = self.living
        for number in living:
            self._chains[number].pause_warmup_after(n_steps)
            self._chains[number].pause_sampling_after(n_sampling)
        work: list[executors.Work] = [executors.Local(self._chains[number]) for number in living]
        if self._remote is not None:
            work = [self._remote.work(self._chains[number], number) for number in living]

        def between(place: int, more: bool) -> None:
            if self._writer is not None:
                self._writer.after_turn(living[place], more, self.living)

        executor = None if self._remote is None else self._remote.executor
        failed = self._go(work, parallel=self._parallel, executor=executor, between=between)
        self.outcome.failures.update({living[place]: error for place, error in failed.items()})

    def adapt(self, n_steps: int, stop: NDArray[np.int32]) -> None:
        """Adapt the chains to their pooled draws, in this process; a failure ends the run."""
        assert self._adaptation is not None
        self._together(self._adaptation.adapt([self._chains[number] for number in self.living], n_steps), stop)
        self._send_setup()

    def sample(self, until: EarlyStopping | None, stop: NDArray[np.int32]) -> None:
        """Advance the chains to their end or, if requested, until their draws are precise enough."""
        if until is None:
            self.advance(0)
            return
        for n_steps in until.ahead(self._chains):
            self.advance(0, n_steps)
            chains = [self._chains[number] for number in self.living]
            if stop[0] or not chains:
                return
            self._together(until.check(chains), stop)
            if until.reached:
                for chain in chains:
                    chain.end()
            if stop[0] or until.reached:
                return

    def _together(self, work: Iterator[None], stop: NDArray[np.int32]) -> None:
        """Work on all waiting chains in this process; a failure ends the run."""
        for error in self._go([executors.Local(_Pieces(work, stop))], parallel=1).values():
            raise error
        if self._writer is not None:
            self._writer.discard_states()

    def _go(self, work: Sequence[executors.Work], **options: Any) -> dict[int, Exception]:
        part = self._turns(work, max_time=None if self._end is None else self._end - clock.now(), **options)
        self.outcome.stopped = part.stopped
        return part.failures
