"""Chains on executors: turns, failures, interrupts and the time limit, with chains that only count."""

import os
import signal
import threading
import time
from concurrent.futures import BrokenExecutor, Future
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stansub.errors import InputError
from stansub.run import executors
from stansub.run.config import SampleConfig


class Counting:
    """Advances ``n`` times, a hundredth of a second each; fails at ``fails_at``."""

    def __init__(self, n: int, stop: NDArray[np.int32], *, fails_at: int | None = None, pause: float = 0.01) -> None:
        self.n, self.stop, self.fails_at, self.pause = n, stop, fails_at, pause
        self.done = 0
        self.running_in: set[int] = set()

    def advance(self) -> bool:
        if self.stop[0]:
            return False
        self.running_in.add(threading.get_ident())
        time.sleep(self.pause)
        if self.done == self.fails_at:
            raise ValueError("the proposal broke")
        self.done += 1
        return self.done < self.n


def local(chains: list[Counting]) -> list[executors.Local]:
    return [executors.Local(chain) for chain in chains]


@pytest.fixture
def stop() -> NDArray[np.int32]:
    return np.zeros(1, np.int32)


@pytest.mark.parametrize("parallel", [1, 2, 5])
def test_all_chains_run_to_their_end(stop: NDArray[np.int32], parallel: int) -> None:
    chains = [Counting(3 + index, stop) for index in range(4)]
    outcome = executors.run(local(chains), parallel=parallel, stop=stop)
    assert [chain.done for chain in chains] == [3, 4, 5, 6]
    assert outcome == executors.Outcome()


@pytest.mark.parametrize("parallel", [1, 2])
def test_a_failing_chain_leaves_the_others_alone(stop: NDArray[np.int32], parallel: int) -> None:
    chains = [Counting(5, stop, fails_at=2 if index == 1 else None) for index in range(4)]
    outcome = executors.run(local(chains), parallel=parallel, stop=stop)
    assert [chain.done for chain in chains] == [5, 2, 5, 5]
    assert [str(error) for error in outcome.failures.values()] == ["the proposal broke"]
    assert list(outcome.failures) == [1]


def test_the_time_limit_finds_all_chains_about_equally_far(
    stop: NDArray[np.int32], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "_TURN", 0.05)
    chains = [Counting(10_000, stop) for _ in range(3)]
    began = time.perf_counter()
    outcome = executors.run(local(chains), parallel=1, stop=stop, max_time=0.6)
    assert outcome.stopped == "max_time"
    assert time.perf_counter() - began < 3
    assert min(chain.done for chain in chains) > 0.5 * max(chain.done for chain in chains)


def test_an_interrupt_stops_after_the_present_piece(stop: NDArray[np.int32]) -> None:
    chains, told = [Counting(10_000, stop) for _ in range(2)], []
    before = signal.getsignal(signal.SIGINT)
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    outcome = executors.run(local(chains), parallel=2, stop=stop, on_interrupt=lambda: told.append(True))
    assert outcome.stopped == "interrupted"
    assert told == [True]
    assert all(0 < chain.done < 10_000 for chain in chains)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_interrupt_gives_up(stop: NDArray[np.int32]) -> None:
    chains = [Counting(10, stop, pause=0.6)]
    for delay in (0.1, 0.3):
        threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        executors.run(local(chains), parallel=1, stop=stop)
    assert chains[0].done <= 1


def test_an_error_of_the_watcher_ends_the_chains(stop: NDArray[np.int32]) -> None:
    def watch() -> None:
        raise OSError("the terminal went away")

    with pytest.raises(OSError, match="terminal"):
        executors.run(local([Counting(10_000, stop)]), parallel=1, stop=stop, watch=watch)
    assert stop[0]


def test_outside_the_main_thread_interrupts_are_left_alone(stop: NDArray[np.int32]) -> None:
    before, found = signal.getsignal(signal.SIGINT), []
    worker = threading.Thread(
        target=lambda: found.append(executors.run(local([Counting(3, stop)]), parallel=1, stop=stop))
    )
    worker.start()
    worker.join()
    assert found == [executors.Outcome()]
    assert signal.getsignal(signal.SIGINT) is before


class Breaking:
    """Work whose process dies at its third turn, with all that wait for it."""

    def __init__(self, inner: executors.Local, *, when_begun: bool) -> None:
        self.inner, self.when_begun, self.turns = inner, when_begun, 0

    def begin(self, executor: executors.Executor) -> Future[Any]:
        self.turns += 1
        if self.turns == 3 and self.when_begun:
            raise BrokenExecutor("terminated abruptly")
        return self.inner.begin(executor)

    def end(self, result: Any) -> bool:
        if self.turns == 3:
            raise BrokenExecutor("terminated abruptly")
        return self.inner.end(result)


@pytest.mark.parametrize("when_begun", [False, True])
def test_processes_that_die_stop_the_run_and_fail_no_chain(
    stop: NDArray[np.int32], monkeypatch: pytest.MonkeyPatch, when_begun: bool
) -> None:
    monkeypatch.setattr(executors, "_TURN", 0.0)
    work = [Breaking(one, when_begun=when_begun) for one in local([Counting(1000, stop) for _ in range(2)])]
    outcome = executors.run(work, parallel=2, stop=stop)
    assert outcome == executors.Outcome(executors.BROKEN)
    assert stop[0]


@pytest.mark.parametrize("given", ["bogus", "", "dask:", "thread", 3])
def test_an_unknown_executor_is_refused_before_anything_is_done(given: Any) -> None:
    with pytest.raises(InputError, match=r"executor .* is unknown; choose from threads, processes, dask"):
        SampleConfig(executor=given)
