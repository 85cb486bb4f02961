"""The chains of a run, from first step to last: stages of warmup with meetings between them, then sampling."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from stansub.progress import StoppedError
from stansub.run import executors
from stansub.run.chain import Chain
from stansub.run.checkpoint import Keeper
from stansub.run.elsewhere import Elsewhere
from stansub.run.stages import Meetings


class _Pieces:
    """Work of a generator, piece by piece."""

    def __init__(self, work: Iterator[None], stop: NDArray[np.int32]) -> None:
        self._work, self._stop = work, stop

    def advance(self) -> bool:
        try:
            return not self._stop[0] and next(self._work, self) is None
        except StoppedError:
            return False


def run(
    chains: Sequence[Chain],
    meetings: Meetings | None,
    *,
    parallel: int,
    stop: NDArray[np.int32],
    elsewhere: Elsewhere | None = None,
    keeper: Keeper | None = None,
    max_time: float | None = None,
    watch: Callable[[], None] = lambda: None,
    on_interrupt: Callable[[], None] = lambda: None,
) -> executors.Outcome:
    """Run chains to their end, an interrupt or the time limit, with their meetings; see `stansub.run.executors.run`.

    A chain that fails in a stage takes no part in what follows.

    Parameters
    ----------
    elsewhere : Elsewhere, optional
        Takes the chains to other processes; threads of this one by default.
    keeper : Keeper, optional
        Writes checkpoints.
    """
    began, outcome = time.perf_counter(), executors.Outcome()

    def go(
        work: Sequence[executors.Work],
        n_turns: int,
        executor: executors.Executor | None = None,
        between: Callable[[int], None] = lambda place: None,
    ) -> dict[int, Exception]:
        part = executors.run(
            work,
            parallel=n_turns,
            stop=stop,
            executor=executor,
            max_time=None if max_time is None else max_time - (time.perf_counter() - began),
            watch=watch,
            between=between,
            on_interrupt=on_interrupt,
        )
        outcome.stopped = part.stopped
        return part.failures

    def advance(living: Sequence[int]) -> None:
        work: list[executors.Work] = [executors.Local(chains[number]) for number in living]
        if elsewhere is not None:
            elsewhere.settle(meetings)
            work = [elsewhere.work(chains[number], number) for number in living]

        def between(place: int) -> None:
            if keeper is not None:
                keeper.between(living[place], [one for one in living if one not in outcome.failures])

        failed = go(work, parallel, elsewhere.executor if elsewhere is not None else None, between)
        outcome.failures.update({living[place]: error for place, error in failed.items()})

    stages = [n_steps for n_steps in meetings.at if n_steps > meetings.last] if meetings is not None else []
    for n_steps in (*stages, 0):
        living = [number for number in range(len(chains)) if number not in outcome.failures]
        for number in living:
            chains[number].wait_after(n_steps)
        advance(living)
        met = [chains[number] for number in living if number not in outcome.failures]
        if meetings is None or not n_steps or stop[0] or not met:
            break
        for error in go([executors.Local(_Pieces(meetings.meet(met, n_steps), stop))], 1).values():
            raise error
        if stop[0]:
            break
        if keeper is not None:
            keeper.met()
    if keeper is not None:
        keeper.finish([number for number in range(len(chains)) if number not in outcome.failures])
    return outcome
