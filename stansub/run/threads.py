"""Chains in threads: turns, the time limit, interrupts, and chains that fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stansub import interrupts

# Seconds between two looks at the chains, and after which a thread takes the next chain.
_POLL, _TURN = 0.1, 0.5


class Advancing(Protocol):
    """Work that is done piece by piece."""

    def advance(self) -> bool:
        """Do the next piece; False when nothing is left or the work was stopped."""
        ...


@dataclass
class Outcome:
    """How the chains came to their end.

    Attributes
    ----------
    stopped : str
        "interrupted", "max_time", or nothing for chains that ran to their end.
    failures : dict
        Errors by position of the chain.
    """

    stopped: str = ""
    failures: dict[int, Exception] = field(default_factory=dict)


def run(
    chains: Sequence[Advancing],
    *,
    parallel: int,
    stop: NDArray[np.int32],
    max_time: float | None = None,
    watch: Callable[[], None] = lambda: None,
    on_interrupt: Callable[[], None] = lambda: None,
) -> Outcome:
    """Run chains to their end, an interrupt or the time limit.

    Threads take turns over the chains, so that all chains are about equally far whenever sampling stops.
    The first interrupt (see `stansub.interrupts.first`) stops the chains after the step they are in; a second one
    raises KeyboardInterrupt.

    Parameters
    ----------
    parallel : int
        Number of threads.
    stop : ndarray of int32, shape (1,)
        Set to 1 to have all chains stop.
    max_time : float, optional
        Seconds.
    watch : callable
        Called in this thread several times a second.
    on_interrupt : callable
        Called in this thread after the first interrupt.
    """
    outcome, queue = Outcome(), SimpleQueue[int]()
    for index in range(len(chains)):
        queue.put(index)

    def work() -> None:
        while True:
            try:
                index = queue.get_nowait()
            except Empty:
                return
            end = time.perf_counter() + _TURN
            try:
                while chains[index].advance():
                    if time.perf_counter() > end:
                        queue.put(index)
                        break
            except Exception as error:
                outcome.failures[index] = error

    def finish(reason: str) -> None:
        if not stop[0]:
            outcome.stopped = reason
            stop[0] = 1

    began, told = time.perf_counter(), False
    with interrupts.first(lambda: finish("interrupted")), ThreadPoolExecutor(max_workers=parallel) as pool:
        pending = {pool.submit(work) for _ in range(parallel)}
        try:
            while pending:
                _, pending = wait(pending, timeout=_POLL)
                if max_time is not None and time.perf_counter() - began > max_time:
                    finish("max_time")
                if outcome.stopped == "interrupted" and not told:
                    told = True
                    on_interrupt()
                watch()
        except BaseException:
            stop[0] = 1  # the pool waits for the chains
            raise
    return outcome
