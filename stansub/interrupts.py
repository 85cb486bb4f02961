"""Signals that end a run: Ctrl-C, SIGTERM and SIGHUP, all handled alike."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from stansub import clock

_ENDINGS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
# Seconds within which signals count as one: `timeout`, shells and service managers send them twice.
_AT_ONCE = 1.0
# Python's own code for imports, and seconds until a signal that arrived there is sent again.
_IMPORTS, _AGAIN = "<frozen importlib._bootstrap>", 0.01


class Interrupt:
    """Handler that raises KeyboardInterrupt or ends the process at once.

    Attributes
    ----------
    exit_code : int or None
        Exit code of a process that must end at once, because nothing has begun or all is done. Exceptions raised during
        imports or while the interpreter shuts down may be lost or printed.
    """

    def __init__(self, exit_code: int | None = None) -> None:
        self.exit_code = exit_code
        self._last = -math.inf

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.exit_code is not None:
            os._exit(self.exit_code)
        if _postponed(number, frame):
            return
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        before = self._last
        self.note()
        if self._last - before >= _AT_ONCE:
            raise KeyboardInterrupt

    def note(self) -> None:
        """Treat a signal of this moment as handled, so that a repetition of it interrupts nothing."""
        self._last = clock.now()


@contextmanager
def handled(exit_code: int | None = None) -> Iterator[Interrupt]:
    """Handle SIGINT, SIGTERM and SIGHUP alike during the block, unless they are ignored (`nohup`).

    If the handler has an exit code at the end of the block, it stays installed: the process is about to end too.
    """
    handler = Interrupt(exit_code)
    if not _in_main_thread():
        yield handler
        return
    defaults = (signal.SIG_DFL, signal.default_int_handler)
    taken = {number: old for number in (signal.SIGINT, *_ENDINGS) if (old := signal.getsignal(number)) in defaults}
    for number in taken:
        signal.signal(number, handler)
    ignored = sys.unraisablehook
    sys.unraisablehook = _raised_again(ignored)
    try:
        yield handler
    finally:
        sys.unraisablehook = ignored
        if handler.exit_code is None:
            for number, old in taken.items():
                signal.signal(number, old)


@contextmanager
def first(handle: Callable[[], None]) -> Iterator[None]:
    """Let the first interrupt during the block call ``handle``; later ones have their previous effect.

    Interrupts are Ctrl-C, and SIGTERM and SIGHUP if they raise KeyboardInterrupt, as they do with
    ``signal.default_int_handler``. Nothing changes outside the main thread, or for ignored signals.
    """
    previous = {number: handler for number in (signal.SIGINT, *_ENDINGS) if (handler := _interrupting(number))}
    if not _in_main_thread():
        previous = {}
    seen: list[float] = []

    def on(number: int, frame: FrameType | None) -> None:
        if not seen:
            seen.append(clock.now())
            for handler in previous.values():
                if isinstance(handler, Interrupt):
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
    """Return the current handler of a signal if it interrupts."""
    handler = signal.getsignal(number)
    if not callable(handler):
        return None
    interrupts = isinstance(handler, Interrupt) or handler is signal.default_int_handler
    return handler if interrupts or number == signal.SIGINT else None


def _postponed(number: int, frame: FrameType | None) -> bool:
    """Send a signal again if it arrived between two modules: an exception could leave the lock of all imports locked.

    A thread that imports would then never end, and the process neither.
    """
    if frame is None or frame.f_code.co_filename != _IMPORTS:
        return False
    _send_again(number)
    return True


def _raised_again(otherwise: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Return a hook that sends an interrupt again if it arrived in a callback whose exceptions Python ignores."""

    def hook(unraisable: Any) -> None:
        if unraisable.exc_type is not None and issubclass(unraisable.exc_type, KeyboardInterrupt):
            _send_again(signal.SIGINT)
        else:
            otherwise(unraisable)

    return hook


def _send_again(number: int) -> None:
    again = threading.Timer(_AGAIN, os.kill, (os.getpid(), number))
    again.daemon = True
    again.start()


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
