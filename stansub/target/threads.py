"""The number of threads, and work that uses them itself, or none: passes over data, set-up and chains."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

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


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
