"""The number of threads, and work that uses them itself, or none: passes over data, set-up and chains."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from functools import cache
from threading import Event, Lock
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

from stansub.progress import Progress, StoppedError

T = TypeVar("T")
R = TypeVar("R")

# Threads for work before chains begin, if no number is given.
THREADS = min(4, os.cpu_count() or 1)

_lock = Lock()
# Work that runs, and what restores BLAS's threads after the last one.
_running: list[Any] = []


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let BLAS use one thread: for short vectors and beside other threads, its own mostly wait for each other."""
    with _lock:
        _running.append(_running[0] if _running else _controller().limit(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _lock:
            limit = _running.pop()
            if not _running:
                limit.restore_original_limits()


def together(work: Callable[[T, Callable[[], None]], R], items: Iterable[T], progress: Progress) -> list[R]:
    """Return the results of ``work`` on items, computed by threads.

    ``work`` calls its second argument now and then, which raises an exception at the time limit and if the others end:
    a pool waits for its threads, also when an interrupt, or what one of them raises, ends the work.
    """
    ended = Event()

    def check() -> None:
        progress.check()
        if ended.is_set():
            raise StoppedError("other work has ended")

    with one_blas_thread(), ThreadPoolExecutor(THREADS) as pool:
        futures = [pool.submit(work, one, check) for one in items]
        try:
            for future in as_completed(futures):
                future.result()
        finally:
            ended.set()
    return [future.result() for future in futures]


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
