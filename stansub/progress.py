"""Progress of work: its stages, their completion, and its time limit.

Long work reports to a `Progress`; `stansub.run.progress` displays it. Through the same calls, a time limit or a stop
interrupts work.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from stansub import clock
from stansub.errors import EndedError
from stansub.wording import duration

# Seconds after which a stage is named, and of counting after which the remaining time is estimated.
_WORTH_NAMING, _COUNTED = 0.1, 1.0


class TimeLimitError(EndedError):
    """The time limit was reached before there were any draws."""


class StoppedError(EndedError):
    """Work was abandoned because the run was stopped."""


@dataclass(frozen=True)
class Stage:
    """A stage of work."""

    name: str
    text: str
    remedy: str
    """What would make it shorter."""
    began: float
    counted_from: float
    """Times when the stage and its current count began (see `stansub.clock.now`)."""
    done: int = 0
    total: int = 0
    """Its count; 0 of 0 if unknown."""
    waits: str = ""
    """What it waits for; empty if nothing."""

    @property
    def seconds(self) -> float:
        """Return the seconds since it began."""
        return clock.now() - self.began

    @property
    def seconds_left(self) -> float | None:
        """Return an estimate of the remaining seconds from the count; None without one."""
        passed = clock.now() - self.counted_from
        return passed * (self.total - self.done) / self.done if self.done and passed > _COUNTED else None

    @property
    def how_far(self) -> str:
        """Return the count, the estimate and what is waited for; empty without a count or at its end."""
        counted, left = "", self.seconds_left
        if self.done < self.total:
            counted = f"{self.done:,} of {self.total:,}{'' if left is None else f', about {duration(left)} left'}"
        return ", ".join(filter(None, [counted, self.waits]))

    @property
    def line(self) -> str:
        """Return stage, count and estimate in one line."""
        return f"{self.text}; {', '.join(filter(None, [f'{duration(self.seconds)} so far', self.how_far]))}"


class Progress:
    """Record of stages and their completion; displays nothing itself.

    Calling the object with a text starts a stage, which ends at the next call. The part before a colon or parenthesis
    is its name; consecutive texts of one name are one stage.

    Parameters
    ----------
    log : callable, optional
        Called with each text.
    max_time : float, optional
        Seconds from now after which every call raises `TimeLimitError`.
    on_end : callable, optional
        Called with the name and the seconds of each stage that ends.

    Attributes
    ----------
    began : float
        Time of creation (see `stansub.clock.now`).
    stop : ndarray of int32, shape (1,)
        Once set to 1, every call raises `StoppedError`.
    seconds : dict of str to float
        Seconds of finished stages, in order.
    waits : str
        What the work waits for, in or outside of a stage; empty if nothing.
    warn : callable
        Called with notes and warnings for the user.
    """

    def __init__(
        self,
        log: Callable[[str], None] | None = None,
        *,
        max_time: float | None = None,
        on_end: Callable[[str, float], None] | None = None,
    ) -> None:
        self.began, self.stop = clock.now(), np.zeros(1, np.int32)
        self.stage: Stage | None = None
        self.seconds: dict[str, float] = {}
        self.waits = ""
        self.warn: Callable[[str], object] = lambda line: None
        self._log, self._max_time, self._on_end = log, max_time, on_end
        self._lock = threading.Lock()  # programs are compiled in parallel

    def __call__(self, text: str, *, remedy: str = "") -> None:
        """Start a stage, or continue it, with a line of text; ``remedy`` says what can shorten it, to follow "or"."""
        self.check()
        name = re.split(r": | \(", text, maxsplit=1)[0]
        with self._lock:
            now = clock.now()  # while no other thread ends a stage, so that none overlap
            if self.stage is None or self.stage.name != name:
                self._end(now)
                self.stage = Stage(name, text, remedy, now, now)
            else:
                self.stage = replace(self.stage, text=text, counted_from=now, done=0, total=0)
        if self._log is not None:
            self._log(text)

    def advance(self, done: int, total: int) -> None:
        """Record the count of the current stage."""
        self.check()
        with self._lock:
            stage = self.stage
            if stage is not None:
                again = done < stage.done or total != stage.total
                since = clock.now() if again and stage.total else stage.counted_from
                self.stage = replace(stage, done=done, total=total, counted_from=since)

    def wait_for(self, what: str) -> None:
        """Record what the work waits for; empty if nothing."""
        with self._lock:
            self.waits = what
            if self.stage is not None:
                self.stage = replace(self.stage, waits=what)

    def check(self) -> None:
        """Raise TimeLimitError or StoppedError if it is time."""
        if self.stop[0]:
            raise StoppedError("the run was stopped")
        if self._max_time is not None and clock.now() - self.began > self._max_time:
            raise TimeLimitError(self._time_limit())

    def end(self) -> None:
        """End the last stage."""
        with self._lock:
            self._end(clock.now())

    def left(self) -> float | None:
        """Return the seconds until the time limit; None without a limit."""
        return None if self._max_time is None else self._max_time - (clock.now() - self.began)

    def spent(self) -> str:
        """Return the seconds of finished stages in words, without those that took no time."""
        return ", ".join(f"{name} {duration(s)}" for name, s in self.seconds.items() if s >= _WORTH_NAMING)

    def _end(self, now: float) -> None:
        stage, self.stage = self.stage, None
        if stage is not None:
            seconds = now - stage.began
            self.seconds[stage.name] = self.seconds.get(stage.name, 0.0) + seconds
            if self._on_end is not None:
                self._on_end(stage.name, seconds)

    def _time_limit(self) -> str:
        """Return what the limit interrupted, what was done before, and a remedy."""
        stage, before = self.stage, self.spent()
        here = f", in the stage '{stage.line}'" if stage is not None else ""
        return (
            f"`max_time={self._max_time:g}` was reached during set-up, before the first draw{here}"
            f"{f'; stages before it: {before}' if before else ''}; raise `max_time`"
            f"{f' or {stage.remedy}' if stage is not None and stage.remedy else ''}"
        )


def as_progress(log: Callable[[str], None] | None) -> Progress:
    """Return a `Progress` that calls ``log`` with each text, or ``log`` itself if it is a `Progress`."""
    if isinstance(log, Progress):
        return log
    return Progress(log)
