"""Signals that end a run."""

import os
import signal
import time
import weakref
from collections.abc import Iterator

import pytest
from clocks import HANGS, Clock

from stansub import interrupts


@pytest.fixture(autouse=True)
def harmless() -> Iterator[None]:
    """Signals that are let through count instead of ending the tests."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: int) -> None:
    """The handler has run when this returns."""
    signal.raise_signal(number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_is_handled_and_a_later_one_interrupts(number: int, clock: Clock) -> None:
    signal.signal(number, signal.default_int_handler)
    handled = []
    with interrupts.first(lambda: handled.append(True)):
        send(number)
        assert handled == [True]
        clock.advance(1.1)
        with pytest.raises(KeyboardInterrupt):
            send(number)
    assert handled == [True]
    assert signal.getsignal(number) is signal.default_int_handler


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_those_that_come_at_once_count_as_one(number: int, clock: Clock) -> None:
    signal.signal(number, signal.default_int_handler)
    handled = []
    with interrupts.first(lambda: handled.append(True)):
        send(number)
        clock.advance(0.9)
        send(number)
    assert handled == [True]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_twin_of_one_that_was_handled_may_come_after_the_block(number: int, clock: Clock) -> None:
    signal.signal(number, signal.SIG_DFL)
    handled = []
    with interrupts.handled():
        with interrupts.first(lambda: handled.append(True)):
            send(number)
        clock.advance(0.9)
        send(number)
        clock.advance(1.1)
        with pytest.raises(KeyboardInterrupt):
            send(number)
    assert handled == [True]


def test_one_that_python_ignores_in_a_callback_is_raised_after_it() -> None:
    """Exceptions in the callbacks of weak references are printed and ignored."""

    class Thing:
        pass

    def work() -> None:
        things.clear()
        time.sleep(HANGS)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    things = [Thing()]
    reference = weakref.ref(things[0], lambda _: send(signal.SIGINT))
    with interrupts.handled(), pytest.raises(KeyboardInterrupt):
        work()
    assert reference() is None


def test_handlers_of_the_program_are_left_alone() -> None:
    got = []
    signal.signal(signal.SIGTERM, lambda *_: got.append("own"))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with interrupts.handled(), interrupts.first(lambda: got.append("ours")):
        send(signal.SIGTERM)
        send(signal.SIGHUP)
    assert got == ["own"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_like_ctrl_c(number: int, clock: Clock) -> None:
    signal.signal(number, signal.SIG_DFL)
    with interrupts.handled():
        assert callable(signal.getsignal(number))
        with pytest.raises(KeyboardInterrupt):
            send(number)
        send(number)  # its twin
    assert signal.getsignal(number) is signal.SIG_DFL


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_exit_code_ends_the_process_at_once(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    signal.signal(number, signal.default_int_handler)
    with interrupts.handled(130) as interrupt:
        with pytest.raises(KeyboardInterrupt):  # it goes on only because nothing ends here
            send(number)
        interrupt.exit_code = None
        monkeypatch.setattr(interrupts, "_AT_ONCE", 0.0)
        with pytest.raises(KeyboardInterrupt):
            send(number)
        assert ended == [130]
        interrupt.exit_code = 4
    with pytest.raises(KeyboardInterrupt):
        send(number)
    assert ended == [130, 4]


def test_an_import_is_interrupted_within_a_module_and_not_between_two(clock: Clock) -> None:
    """Python's code for imports locks and unlocks; an exception between the two would leave a lock locked."""
    text = f"kill({os.getpid()}, {signal.SIGINT.value}); arrived.append(1)"
    sent = compile(text, "<frozen importlib._bootstrap>", "exec")
    arrived: list[int] = []
    with interrupts.handled():
        exec(sent, {"kill": os.kill, "arrived": arrived})
        with pytest.raises(KeyboardInterrupt):
            time.sleep(HANGS)
    assert arrived, "not interrupted there"
