"""A clock that tests move, and waiting for what happens in another thread or process."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from stansub.run.chain import Chain

# Seconds after which a test that waits for something fails: only a defect makes it wait so long.
HANGS = 900.0


class Clock:
    """Stands still unless it is advanced; with a tick, every look at it takes so many seconds."""

    def __init__(self) -> None:
        self.tick, self.n_looks = 0.0, 0
        self._seconds = 1000.0
        self._lock = threading.Lock()

    def __call__(self) -> float:
        self.n_looks += 1
        return self.advance(self.tick)

    def advance(self, seconds: float) -> float:
        """Let time pass; the time then."""
        with self._lock:
            self._seconds += seconds
            return self._seconds

    def advance_with_batches(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        """Let every batch of steps of any chain take so many seconds."""
        batch = Chain._run_batch

        def taking_time(chain: Chain, *arguments: object) -> object:
            self.advance(seconds)
            return batch(chain, *arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(Chain, "_run_batch", taking_time)


@contextmanager
def set_clock() -> Iterator[Clock]:
    """A clock in the place of the computer's."""
    made = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stansub.clock.now", made)
        yield made


def wait_until(condition: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
    """Wait for a condition that comes true sooner or later, or for a process to end without it."""
    end = time.monotonic() + HANGS
    while not condition():
        ended = process is not None and process.poll() is not None
        assert condition() or not ended, "the process has ended before"
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)
