"""Chains on executors: turns, failures, interrupts and the time limit, with chains that only count."""

import math
import signal
import threading
from concurrent.futures import BrokenExecutor, Future
from typing import Any

import numpy as np
import pytest
from clocks import Clock
from numpy.typing import NDArray

from stansub.errors import InputError
from stansub.run import executors
from stansub.run.config import SampleConfig


class Counting:
    """Advances ``n`` times, a hundredth of a second each if there is a clock; fails at ``fails_at``."""

    def __init__(
        self, n: float, stop: NDArray[np.int32], *, fails_at: int | None = None, clock: Clock | None = None
    ) -> None:
        self.n, self.stop, self.fails_at, self.clock = n, stop, fails_at, clock
        self.done = 0
        self.running_in: set[int] = set()

    def advance(self) -> bool:
        if self.stop[0]:
            return False
        self.running_in.add(threading.get_ident())
        if self.clock is not None:
            self.clock.advance(0.01)
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
    stop: NDArray[np.int32], monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(executors, "TURN", 0.05)
    chains = [Counting(math.inf, stop, clock=clock) for _ in range(3)]
    began = clock()
    outcome = executors.run(local(chains), parallel=1, stop=stop, max_time=0.6)
    assert outcome.stopped == "max_time"
    assert clock() - began < 0.7
    assert min(chain.done for chain in chains) > 0.5 * max(chain.done for chain in chains)


def test_an_interrupt_stops_after_the_present_piece(stop: NDArray[np.int32]) -> None:
    chains, told = [Counting(math.inf, stop) for _ in range(2)], []
    before = signal.getsignal(signal.SIGINT)

    def watch() -> None:
        if not stop[0] and all(chain.done for chain in chains):
            signal.raise_signal(signal.SIGINT)

    outcome = executors.run(local(chains), parallel=2, stop=stop, watch=watch, on_interrupt=lambda: told.append(True))
    assert outcome.stopped == "interrupted"
    assert told == [True]
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("n", [1, math.inf], ids=["as the last turn ends", "within a turn"])
def test_an_interrupt_is_announced_once(stop: NDArray[np.int32], n: float) -> None:
    told = []

    def watch() -> None:
        if not stop[0]:
            signal.raise_signal(signal.SIGINT)

    executors.run(
        local([Counting(n, stop)]), parallel=1, stop=stop, watch=watch, on_interrupt=lambda: told.append(True)
    )
    assert told == [True]


def test_a_second_interrupt_gives_up(stop: NDArray[np.int32]) -> None:
    with pytest.raises(KeyboardInterrupt):
        executors.run(
            local([Counting(math.inf, stop)]),
            parallel=1,
            stop=stop,
            watch=lambda: signal.raise_signal(signal.SIGINT),
        )
    assert stop[0]


def test_an_error_of_the_watcher_ends_the_chains(stop: NDArray[np.int32]) -> None:
    def watch() -> None:
        raise OSError("the terminal went away")

    with pytest.raises(OSError, match="terminal"):
        executors.run(local([Counting(math.inf, stop)]), parallel=1, stop=stop, watch=watch)
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
    monkeypatch.setattr(executors, "TURN", 0.0)
    work = [Breaking(one, when_begun=when_begun) for one in local([Counting(math.inf, stop) for _ in range(2)])]
    outcome = executors.run(work, parallel=2, stop=stop)
    assert outcome == executors.Outcome(executors.BROKEN)
    assert stop[0]


@pytest.mark.parametrize("given", ["bogus", "", "dask:", "thread", 3])
def test_an_unknown_executor_is_refused_before_anything_is_done(given: Any) -> None:
    with pytest.raises(InputError, match=r"unknown executor .*; choose from threads, processes, dask"):
        SampleConfig(executor=given)
