"""Signals that end a run: Ctrl-C, SIGTERM and the end of the terminal, treated alike."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from stansub import clock

_ENDINGS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
# Seconds within which signals count as one: `timeout`, shells and service managers send them twice.
_AT_ONCE = 1.0


class _Interrupt:
    """Handler that raises KeyboardInterrupt, once for signals that come twice at once."""

    def __init__(self) -> None:
        self._last = -math.inf

    def __call__(self, number: int, frame: FrameType | None) -> None:
        before = self._last
        self.note()
        if self._last - before >= _AT_ONCE:
            raise KeyboardInterrupt

    def note(self) -> None:
        """Take a signal of this moment for handled: its twin interrupts nothing."""
        self._last = clock.now()


@contextmanager
def like_ctrl_c() -> Iterator[None]:
    """Have SIGTERM and SIGHUP raise KeyboardInterrupt while the block runs, unless they are ignored (`nohup`)."""
    if not _in_main_thread():
        yield
        return
    handler = _Interrupt()
    taken = [number for number in _ENDINGS if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def first(handle: Callable[[], None]) -> Iterator[None]:
    """Have the first interrupt call ``handle`` while the block runs; those after it do what they did before.

    Interrupts are Ctrl-C, and SIGTERM and SIGHUP where these raise KeyboardInterrupt: in programs, they do if
    ``signal.default_int_handler`` is their handler. Nothing is changed outside the main thread, nor for signals that
    are ignored.
    """
    previous = {number: handler for number in (signal.SIGINT, *_ENDINGS) if (handler := _interrupting(number))}
    if not _in_main_thread():
        previous = {}
    seen: list[float] = []

    def on(number: int, frame: FrameType | None) -> None:
        if not seen:
            seen.append(clock.now())
            for handler in previous.values():
                if isinstance(handler, _Interrupt):
                    handler.note()
            handle()
        elif number == signal.SIGINT or clock.now() - seen[0] > _AT_ONCE:
            previous[signal.Signals(number)](number, frame)

    for number in previous:
        signal.signal(number, on)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _interrupting(number: signal.Signals) -> Callable[[int, FrameType | None], Any] | None:
    """The present handler of a signal if it interrupts."""
    handler = signal.getsignal(number)
    if not callable(handler):
        return None
    interrupts = isinstance(handler, _Interrupt) or handler is signal.default_int_handler
    return handler if interrupts or number == signal.SIGINT else None


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
