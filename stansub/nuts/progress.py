"""Progress of NUTS: CmdStan's chains from their output files, or a line at intervals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from stansub.nuts.base import Settings
from stansub.run.progress import Display, redrawn, repeating, stage_progress

# Seconds between two checks of the files.
_POLL = 0.3


@contextmanager
def line_progress(display: Display) -> Iterator[None]:
    """Print a line at intervals during the block, unless an engine's bars can be drawn."""
    with stage_progress(replace(display, show=display.show and not redrawn(display.console))) as log:
        log("Running NUTS")
        yield


@contextmanager
def file_progress(folder: Path, settings: Settings, display: Display) -> Iterator[None]:
    """Display a bar per chain during the block, from the lines of the CSV files in ``folder``.

    CmdStan flushes every draw to its file, while cmdstanpy captures the console output and draws its own bars on
    standard output.
    """
    if not (display.show and redrawn(display.console)):
        with line_progress(display):
            yield
        return
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]:<8}"),
        TimeRemainingColumn(compact=True),
        console=display.console,
        refresh_per_second=5,
    ) as bars:
        chains = range(settings.chains)
        total = settings.iter_warmup + settings.iter_sampling
        tasks = [bars.add_task(f"Chain {chain + 1}", total=total, state="waiting") for chain in chains]
        counts = [_Lines(folder, "*.csv" if len(chains) == 1 else f"*_{chain + 1}.csv") for chain in chains]

        def look() -> None:
            for task, lines in zip(tasks, counts, strict=True):
                n = min(lines.count(), total)
                state = "done" if n == total else "sampling" if n > settings.iter_warmup else "warmup"
                bars.update(task, completed=n, state=state if n else "waiting")

        with repeating(look, _POLL):
            yield
            look()


class _Lines:
    """Draws in a growing CSV file: its lines without comments and header."""

    def __init__(self, folder: Path, pattern: str) -> None:
        self._folder, self._pattern = folder, pattern
        self._read, self._seen = 0, 0

    def count(self) -> int:
        """Return the number of lines so far."""
        for file in self._folder.glob(self._pattern):
            with file.open("rb") as stream:
                stream.seek(self._read)
                new = stream.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._read += len(whole)
            self._seen += sum(not line.startswith(b"#") and bool(line.strip()) for line in whole.splitlines())
        return max(0, self._seen - 1)
