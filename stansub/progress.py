"""What is being done, how far it is, and when it has to end.

What takes long reports to a `Progress`; whoever looks shows it (`stansub.run.progress`). The same calls are where a
time limit or a stop reaches work that is on its way.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stansub import clock
from stansub.errors import RunError

# Seconds from which on a stage is worth naming, and of counting before the time left is estimated.
_WORTH_NAMING, _COUNTED = 0.1, 1.0


class TimeLimitError(RunError):
    """The time limit was reached before there were any draws."""


class StoppedError(RunError):
    """Work was given up because the run was stopped."""


@dataclass(frozen=True)
class Stage:
    """Something that takes its time.

    Attributes
    ----------
    name, text : str
        What it is, and the same with details.
    remedy : str
        What would make it shorter.
    began, counted_from : float
        When it and its present count began, as `stansub.clock.now` gives it.
    done, total : int
        How far it is; 0 of 0 where that is not known.
    """

    name: str
    text: str
    remedy: str
    began: float
    counted_from: float
    done: int = 0
    total: int = 0

    @property
    def seconds(self) -> float:
        """Since it began."""
        return clock.now() - self.began

    @property
    def seconds_left(self) -> float | None:
        """An estimate from the count; None where there is none."""
        passed = clock.now() - self.counted_from
        return passed * (self.total - self.done) / self.done if self.done and passed > _COUNTED else None

    @property
    def how_far(self) -> str:
        """The count and the estimate; nothing where nothing is counted, or all is done that was."""
        if self.done >= self.total:
            return ""
        left = self.seconds_left
        return f"{self.done:,} of {self.total:,}{'' if left is None else f', about {duration(left)} left'}"

    @property
    def line(self) -> str:
        """All of it in one line."""
        return f"{self.text}; {', '.join(filter(None, [f'{duration(self.seconds)} so far', self.how_far]))}"


class Progress:
    """Takes note of stages and of how far they are; shows nothing itself.

    A stage begins when its text is given, by calling this, and ends with the next one. What stands before a colon or
    a parenthesis is its name: texts of one name after each other are one stage.

    Parameters
    ----------
    log : callable, optional
        Called with each text.
    max_time : float, optional
        Seconds from now after which every call raises `TimeLimitError`.
    stop : ndarray of int32, shape (1,), optional
        Once it is set to 1 every call raises `StoppedError`.
    on_end : callable, optional
        Called with the name of each stage that ends, and its seconds.

    Attributes
    ----------
    began : float
        When this was made, as `stansub.clock.now` gives it.
    stage : Stage or None
        The present one.
    seconds : dict of str to float
        What stages have taken that are over, in their order.
    """

    def __init__(
        self,
        log: Callable[[str], None] | None = None,
        *,
        max_time: float | None = None,
        stop: NDArray[np.int32] | None = None,
        on_end: Callable[[str, float], None] | None = None,
    ) -> None:
        self.began = clock.now()
        self.stage: Stage | None = None
        self.seconds: dict[str, float] = {}
        self._log, self._max_time, self._stop, self._on_end = log, max_time, stop, on_end
        self._lock = threading.Lock()  # programs are compiled side by side

    def __call__(self, text: str, *, remedy: str = "") -> None:
        """Begin a stage, or go on with it, with a line of text.

        Parameters
        ----------
        remedy : str
            What the user can do for it to take less time, to follow "or".
        """
        self.check()
        name, now = re.split(r": | \(", text, maxsplit=1)[0], clock.now()
        with self._lock:
            if self.stage is None or self.stage.name != name:
                self._end()
                self.stage = Stage(name, text, remedy, now, now)
            else:
                self.stage = replace(self.stage, text=text, counted_from=now, done=0, total=0)
        if self._log is not None:
            self._log(text)

    def advance(self, done: int, total: int) -> None:
        """Note how far the present stage is."""
        self.check()
        with self._lock:
            stage = self.stage
            if stage is not None:
                again = done < stage.done or total != stage.total
                since = clock.now() if again and stage.total else stage.counted_from
                self.stage = replace(stage, done=done, total=total, counted_from=since)

    def check(self) -> None:
        """Raise TimeLimitError or StoppedError where it is time."""
        if self._stop is not None and self._stop[0]:
            raise StoppedError("the run was stopped")
        if self._max_time is not None and clock.now() - self.began > self._max_time:
            raise TimeLimitError(self._time_limit())

    def end(self) -> None:
        """The last stage is over."""
        with self._lock:
            self._end()

    def left(self) -> float | None:
        """Seconds until the time limit; None without one."""
        return None if self._max_time is None else self._max_time - (clock.now() - self.began)

    def spent(self) -> str:
        """What the stages that are over have taken, in words; those that took no time are left out."""
        return ", ".join(f"{name} {duration(s)}" for name, s in self.seconds.items() if s >= _WORTH_NAMING)

    def _end(self) -> None:
        stage, self.stage = self.stage, None
        if stage is not None:
            seconds = stage.seconds
            self.seconds[stage.name] = self.seconds.get(stage.name, 0.0) + seconds
            if self._on_end is not None:
                self._on_end(stage.name, seconds)

    def _time_limit(self) -> str:
        """What the limit cut short, what had been done, and what would help."""
        stage, before = self.stage, self.spent()
        here = f" in the stage '{stage.line}'" if stage is not None else ""
        return (
            f"`max_time={self._max_time:g}` was reached during set-up, before the first draw{here}"
            f"{f'; stages before it: {before}' if before else ''}; raise `max_time`"
            f"{f' or {stage.remedy}' if stage is not None and stage.remedy else ''}"
        )


def as_progress(log: Callable[[str], None] | None) -> Progress:
    """A `Progress` that calls ``log`` with each text; ``log`` itself if it is one."""
    if isinstance(log, Progress):
        return log
    return Progress(log)


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, with about two digits."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 119.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
