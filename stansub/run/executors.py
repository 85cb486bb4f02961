"""Execution of chains on threads, processes or a cluster.

An executor is any object with the `submit` method of `concurrent.futures`. Work is submitted turn by turn, so that all
chains progress about equally. Between its turns a chain stands still and can be saved.
"""

from __future__ import annotations

import importlib
import logging
import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stansub import clock, interrupts
from stansub.errors import InputError
from stansub.target.threads import one_blas_thread

# Seconds between two progress checks, and of a turn, which is long compared with sending a chain there and back.
_POLL, TURN = 0.1, 0.5

EXECUTORS = ("threads", "processes", "dask")
BROKEN = "the worker processes failed (one was killed, or memory ran out)"


class Executor(Protocol):
    """Required part of `concurrent.futures.Executor`."""

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Future[Any]: ...


class Advancing(Protocol):
    """Work that is done piece by piece."""

    def advance(self) -> bool:
        """Do the next piece; return False if nothing is left or the work was stopped."""


class Work(Protocol):
    """Work that is done turn by turn on an executor."""

    def begin(self, executor: Executor) -> Future[Any]:
        """Submit the next turn."""

    def end(self, result: Any) -> bool:
        """Process the result of a turn; return False if nothing is left."""


@dataclass(frozen=True)
class Local:
    """Work on an object that stays in this process."""

    advancing: Advancing

    def begin(self, executor: Executor) -> Future[Any]:
        """Submit pieces for the time of a turn."""
        return executor.submit(turn, self.advancing, TURN)

    def end(self, result: bool) -> bool:
        """Return whether work is left."""
        return result


def turn(advancing: Advancing, seconds: float) -> bool:
    """Do pieces for ``seconds``, in this thread alone; return whether work is left."""
    end = clock.now() + seconds
    with one_blas_thread():
        while advancing.advance():
            if clock.now() > end:
                return True
    return False


@dataclass
class Outcome:
    """How the chains ended."""

    stopped: str = ""
    """Why: "interrupted", "max_time" or `BROKEN`; empty if the chains finished."""
    failures: dict[int, Exception] = field(default_factory=dict)
    """Errors by index of the chain."""


def run(
    work: Sequence[Work],
    *,
    parallel: int,
    stop: NDArray[np.int32],
    executor: Executor | None = None,
    max_time: float | None = None,
    watch: Callable[[], None] = lambda: None,
    between: Callable[[int, bool], None] = lambda index, more: None,
    on_interrupt: Callable[[], None] = lambda: None,
) -> Outcome:
    """Do all work until it finishes, an interrupt or the time limit.

    The first interrupt (see `stansub.interrupts.first`) stops the work after the current piece; a second one raises
    KeyboardInterrupt.

    Parameters
    ----------
    stop : ndarray of int32, shape (1,)
        Set to 1 to stop all work.
    executor : Executor, optional
        By default new threads.
    max_time : float, optional
        Seconds.
    watch : callable
        Called in this thread several times a second.
    between : callable
        Called in this thread after each turn, before the next, with the index of the work and whether it has another
        turn.
    on_interrupt : callable
        Called in this thread after the first interrupt.
    """
    outcome = Outcome()

    def finish(reason: str) -> None:
        if not stop[0]:
            outcome.stopped = reason
            stop[0] = 1

    unannounced = [on_interrupt]

    def announce() -> None:
        if outcome.stopped == "interrupted" and unannounced:
            unannounced.pop()()

    began = clock.now()
    waiting, pending = deque(range(len(work))), dict[Future[Any], int]()
    with interrupts.first(lambda: finish("interrupted")), _or_threads(executor, parallel) as pool:
        try:
            while pending or (waiting and not stop[0]):
                while waiting and len(pending) < parallel and not stop[0]:
                    try:
                        pending[work[waiting[0]].begin(pool)] = waiting[0]
                        waiting.popleft()
                    except BrokenExecutor:
                        finish(BROKEN)
                for future in wait(pending, timeout=_POLL, return_when=FIRST_COMPLETED).done:
                    index = pending.pop(future)
                    try:
                        more = work[index].end(future.result())
                        between(index, more)
                        if more:
                            waiting.append(index)
                    except BrokenExecutor:  # the chain is at the end of its last turn
                        finish(BROKEN)
                    except Exception as error:
                        outcome.failures[index] = error
                if max_time is not None and clock.now() - began > max_time:
                    finish("max_time")
                announce()
                watch()
        except BaseException:
            stop[0] = 1  # running turns finish
            for future in pending:
                future.cancel()
            raise
    announce()  # from an interrupt during the last turn
    return outcome


@contextmanager
def _or_threads(executor: Executor | None, parallel: int) -> Iterator[Executor]:
    if executor is not None:
        yield executor
        return
    with ThreadPoolExecutor(max_workers=parallel) as pool:
        yield pool


def check(executor: object) -> None:
    """Raise InputError unless the executor is known or has `submit`."""
    known = isinstance(executor, str) and (
        executor in EXECUTORS or executor.removeprefix("dask:") not in ("", executor)
    )
    if executor is not None and not known and not callable(getattr(executor, "submit", None)):
        raise InputError(
            f"unknown executor {executor!r}; choose from {', '.join(EXECUTORS)} or dask:ADDRESS (of a scheduler), or "
            "give an object with the `submit` method of concurrent.futures"
        )


@contextmanager
def opened(executor: str | Executor | None, parallel: int) -> Iterator[Executor | None]:
    """Open the executor of this name, or yield the one given; None for threads.

    Raises
    ------
    InputError
        If dask is not installed or its scheduler does not answer.
    """
    if executor is None or executor == "threads":
        yield None
    elif not isinstance(executor, str):
        yield executor
    elif executor == "processes":
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(parallel, mp_context=context, initializer=_ignore_interrupts) as pool:
            yield pool
    else:
        with dask_client(executor.removeprefix("dask").removeprefix(":"), parallel) as client:
            yield client.get_executor(pure=False)


@contextmanager
def dask_client(address: str, parallel: int) -> Iterator[Any]:
    """Open a client of the scheduler at an address, or of a new cluster on this machine.

    Raises
    ------
    InputError
        If dask is not installed or its scheduler does not answer.
    """
    try:
        distributed: Any = importlib.import_module("distributed")
    except ImportError as error:
        raise InputError("the executor dask needs the package distributed: pip install 'stansub[dask]'") from error
    with ExitStack() as stack:
        cluster = address
        if not address:
            options = {"n_workers": parallel, "threads_per_worker": 1, "dashboard_address": None}
            # messages between its parts during an interrupt are of no use to users
            quiet = {"silence_logs": logging.CRITICAL}
            cluster = distributed.LocalCluster(**options, **quiet)
            stack.callback(_close, cluster)
        try:
            client = stack.enter_context(distributed.Client(cluster, timeout=10))
        except (OSError, ValueError) as error:
            raise InputError(f"no dask scheduler answers at {address}: {error}") from error
        client.run(_ignore_interrupts)
        yield client


def _close(cluster: Any) -> None:
    """Close a cluster. dask may fail if a worker was replaced, when the workers have ended and all results are here."""
    with suppress(Exception):
        cluster.close()


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C, which reaches all processes of a terminal; the process that watches the chains handles it."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:  # outside the main thread, as in dask workers, interrupts are not handled anyway
        return
