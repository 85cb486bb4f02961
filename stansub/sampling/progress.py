"""What is shown while chains run: a line a chain on a terminal or in a notebook, nothing elsewhere."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from stansub.sampling.chain import Status


def wanted(show_progress: bool | None, console: Console) -> bool:
    """Whether to show progress: as told or, if not told, where someone is looking.

    A notebook redraws bars through ipywidgets alone; without them rich would complain at every run.
    """
    if console.is_jupyter and importlib.util.find_spec("ipywidgets") is None:
        return False
    if show_progress is not None:
        return show_progress
    return console.is_terminal or console.is_jupyter


class ProgressView(Progress):
    """Bars of the chains and, below them, the largest R-hat so far."""

    def __init__(self, chains: int, console: Console) -> None:
        self._r_hat: float | None = None
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]:<8}"),
            TextColumn("{task.fields[detail]}"),
            TimeRemainingColumn(compact=True),
            console=console,
            refresh_per_second=5,
        )
        for chain in range(chains):
            self.add_task(f"Chain {chain + 1}", total=None, state="waiting", detail="")

    def get_renderables(self) -> Iterator[RenderableType]:
        """The bars, and the line below them once it is known."""
        yield self.make_tasks_table(self.tasks)
        if self._r_hat is not None:
            yield Text(f"R-hat {self._r_hat:.3f}")

    def show(self, statuses: Sequence[Status], r_hat: float | None) -> None:
        """Tell how far the chains are."""
        self._r_hat = r_hat
        for task, status in zip(self.task_ids, statuses, strict=True):
            state = "done" if status.steps == status.total else "warmup" if status.warmup else "sampling"
            self.update(
                task,
                completed=status.steps,
                total=status.total,
                state=state if status.steps else "waiting",
                detail=f"accept {status.acceptance:4.0%} data {status.share:6.1%}" if status.steps else "",
            )


@contextmanager
def chain_progress(chains: int, *, show: bool, console: Console) -> Iterator[ProgressView | None]:
    """Show bars while the block runs; gives None when nothing is to be shown."""
    if not show:
        yield None
        return
    with ProgressView(chains, console) as view:
        yield view
        view.refresh()  # notebooks would keep what was drawn before the end


@contextmanager
def telling(console: Console, *, show: bool) -> Iterator[Callable[[str], None]]:
    """A spinner whose line says what is being done; silent where nobody looks."""
    if not show:
        yield lambda message: None
        return
    with console.status("Starting") as status:
        yield status.update


def default_console() -> Console:
    """Console on standard error, so that standard output holds results alone; notebooks show it in the cell."""
    console = Console()
    return console if console.is_jupyter else Console(stderr=True)
