"""What is shown while chains run: a line a chain on a terminal or in a notebook, nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@dataclass(frozen=True)
class ChainStatus:
    """How far a chain is.

    Attributes
    ----------
    steps, total : int
        Steps done and to be done, warmup included.
    warmup : bool
        Whether the chain is still adapting.
    acceptance, share : float
        Share of proposals accepted and of the data used, over the steps so far.
    """

    steps: int
    total: int
    warmup: bool
    acceptance: float
    share: float


def wanted(show_progress: bool | None, console: Console) -> bool:
    """Whether to show progress: as told or, if not told, where someone is looking."""
    if show_progress is not None:
        return show_progress
    return console.is_terminal or console.is_jupyter


class ProgressView:
    """Bars of the chains and, once there are enough draws, the largest R-hat so far."""

    def __init__(self, progress: Progress, chains: int) -> None:
        self._progress = progress
        self._tasks = [
            progress.add_task(f"Chain {chain + 1}", total=None, state="waiting", detail="") for chain in range(chains)
        ]

    def update(self, statuses: list[ChainStatus], r_hat: float | None) -> None:
        """Redraw the bars."""
        for index, (task, status) in enumerate(zip(self._tasks, statuses, strict=True)):
            detail = f"accepted {status.acceptance:4.0%}  data {status.share:6.1%}" if status.steps else ""
            if r_hat is not None and index == 0:
                detail += f"  R-hat {r_hat:.3f}"
            state = "done" if status.steps == status.total else "warmup" if status.warmup else "sampling"
            self._progress.update(
                task,
                completed=status.steps,
                total=status.total,
                state=state if status.steps else "waiting",
                detail=detail,
            )


@contextmanager
def chain_progress(chains: int, *, show: bool, console: Console) -> Iterator[ProgressView | None]:
    """Show bars while the block runs; gives None when nothing is to be shown."""
    if not show:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]:<8}"),
        TextColumn("{task.fields[detail]}"),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console, refresh_per_second=5) as progress:
        yield ProgressView(progress, chains)


def default_console() -> Console:
    """Console on standard error, so that standard output holds results alone; notebooks show it in the cell."""
    console = Console()
    return console if console.is_jupyter else Console(file=sys.stderr)
