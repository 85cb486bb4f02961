"""Progress display of a run: bars on a terminal or in a notebook, lines in redirected output, or nothing."""

from __future__ import annotations

import importlib.util
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

from rich import progress as bars
from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from stansub import clock
from stansub.progress import Progress, Stage
from stansub.run.chain import Status
from stansub.wording import duration

# Minimum seconds of a stage for which a line is printed.
_SHORT = 1.0
# Seconds between two lines about a running stage, at first and at most, and between two checks of it.
_FIRST_LINE, _LINES_APART, _POLL = 5.0, 30.0, 0.2


def wanted(show_progress: bool | None, console: Console) -> bool:
    """Return whether to show progress: as set, or by default on a terminal or in a notebook.

    A notebook redraws bars through ipywidgets alone; without ipywidgets rich would warn at every run.
    """
    if console.is_jupyter and importlib.util.find_spec("ipywidgets") is None:
        return False
    if show_progress is not None:
        return show_progress
    return console.is_terminal or console.is_jupyter


@dataclass(frozen=True)
class Display:
    """Console for progress, and whether to show it."""

    console: Console
    show: bool

    @classmethod
    def of(cls, show_progress: bool | None, console: Console | None = None) -> Display:
        """Return the display that options of these names request."""
        console = console or default_console()
        return cls(console, wanted(show_progress, console))

    def line(self, text: str) -> None:
        """Print a line, whether or not progress is shown."""
        self.console.print(text, highlight=False, soft_wrap=True)


def redrawn(console: Console) -> bool:
    """Return whether the console can redraw what was written, as bars need."""
    return (console.is_terminal and not console.is_dumb_terminal) or console.is_jupyter


class View(Protocol):
    """Display of the chains' progress."""

    def show(self, statuses: Sequence[Status], r_hat: float | None) -> None: ...


class ProgressView(bars.Progress):
    """Bars of the chains and, below them, the pooling of draws that is running, or the largest R-hat so far."""

    def __init__(self, chains: int, pooling: Progress, console: Console) -> None:
        self._r_hat: float | None = None
        self._pooling = pooling
        super().__init__(
            bars.TextColumn("{task.description}"),
            bars.BarColumn(bar_width=16),
            bars.MofNCompleteColumn(),
            bars.TextColumn("{task.fields[state]:<8}"),
            bars.TextColumn("{task.fields[detail]}"),
            bars.TimeRemainingColumn(compact=True),
            console=console,
            refresh_per_second=5,
        )
        for chain in range(chains):
            self.add_task(f"Chain {chain + 1}", total=None, state="waiting", detail="")

    def get_renderables(self) -> Iterator[RenderableType]:
        """Yield the bars, and the line below them once it is known."""
        yield self.make_tasks_table(self.tasks)
        stage = self._pooling.stage
        if stage is not None and stage.seconds > _SHORT:
            yield Text(stage.line)
        elif self._pooling.waits:
            yield Text(f"The chains are {self._pooling.waits}")
        elif self._r_hat is not None:
            yield Text(f"R-hat {self._r_hat:.3f}")

    def show(self, statuses: Sequence[Status], r_hat: float | None) -> None:
        """Display the chains' progress."""
        self._r_hat = r_hat
        for task, status in zip(self.task_ids, statuses, strict=True):
            state = "done" if status.steps == status.total else "warmup" if status.warmup else "sampling"
            shown = status.steps and not math.isnan(status.acceptance)
            self.update(
                task,
                completed=status.steps,
                total=status.total,
                state=state if status.steps else "waiting",
                detail=f"accept {status.acceptance:4.0%} data {status.share:6.1%}" if shown else "",
            )


class _SamplingLines:
    """Counter of steps for lines that are printed at intervals."""

    def __init__(self, pooling: Progress) -> None:
        self._pooling, self._progress = pooling, Progress()
        self._progress("Sampling")

    @property
    def stage(self) -> Stage | None:
        if self._pooling.stage is not None:
            return self._pooling.stage
        self._progress.wait_for(self._pooling.waits)
        return self._progress.stage

    def show(self, statuses: Sequence[Status], r_hat: float | None) -> None:
        self._progress.advance(sum(one.steps for one in statuses), sum(one.total for one in statuses))


@contextmanager
def chain_progress(chains: int, pooling: Progress, display: Display) -> Iterator[View | None]:
    """Display progress of chains and their ``pooling`` of draws during the block; yields None if nothing is shown."""
    if not display.show:
        yield None
    elif redrawn(display.console):
        with ProgressView(chains, pooling, display.console) as view:
            yield view
            view.refresh()  # notebooks would keep what was drawn before the end
    else:
        lines = _SamplingLines(pooling)
        with _written(lambda: lines.stage, display.console):
            yield lines


@contextmanager
def stage_progress(display: Display, *, max_time: float | None = None) -> Iterator[Progress]:
    """Display the stages of the block: a bar for the current stage, and a line for each that took some time.

    If the console cannot redraw, lines at intervals replace the bar. After ``max_time`` seconds, calls raise
    `stansub.progress.TimeLimitError`.
    """
    if not display.show:
        progress = Progress(max_time=max_time)
        yield progress
        progress.end()
        return
    console = display.console
    progress = Progress(max_time=max_time, on_end=leaving_lines(console))
    shown = _drawn if redrawn(console) else _written
    with shown(lambda: progress.stage, console):
        yield progress
        progress.end()


def leaving_lines(console: Console) -> Callable[[str, float], None]:
    """Return a function that prints a line for each stage that took some time; for `stansub.progress.Progress`."""

    def ended(name: str, seconds: float) -> None:
        if seconds >= _SHORT:
            _write(console, f"{name}: {duration(seconds)}")

    return ended


def _drawn(stage: Callable[[], Stage | None], console: Console) -> AbstractContextManager[object]:
    spinner = Spinner("dots")

    def draw() -> RenderableType:
        now = stage()
        if now is None:
            return Text()
        row = Table.grid(padding=(0, 1))
        how_far = Text(", ".join(filter(None, [now.how_far, duration(now.seconds)])), style="dim", no_wrap=True)
        if now.total:
            row.add_row(spinner, Text(now.name, no_wrap=True), ProgressBar(now.total, now.done, width=16), how_far)
        else:
            row.add_row(spinner, Text(now.text, no_wrap=True), how_far)
        return row

    return Live(get_renderable=draw, console=console, refresh_per_second=8, transient=True)


def _written(stage: Callable[[], Stage | None], console: Console) -> AbstractContextManager[object]:
    """Print lines about a running stage, at growing intervals."""
    last = clock.now()

    def look() -> None:
        nonlocal last
        now = stage()
        if now is None:
            return
        waited = clock.now() - max(last, now.began)
        if waited >= min(max(now.seconds / 2, _FIRST_LINE), _LINES_APART):
            last = clock.now()
            _write(console, now.line)

    return repeating(look, _POLL)


@contextmanager
def repeating(look: Callable[[], None], seconds: float) -> Iterator[None]:
    """Call a function at intervals, in a thread of its own, during the block."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(seconds):
            look()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _write(console: Console, line: str) -> None:
    """Print a line if possible: a failure to print must not lose draws."""
    if redrawn(console):
        console.print(Text(line), soft_wrap=True)
        return
    with suppress(OSError, ValueError):
        console.file.write(f"{line}\n")
        console.file.flush()


def default_console() -> Console:
    """Return a console on standard error, so that standard output holds only results; notebooks show it in the cell."""
    console = Console(markup=False, highlight=False)
    return console if console.is_jupyter else Console(stderr=True, markup=False, highlight=False)
