"""Progress of NUTS: CmdStan's chains from their output files, or a line at intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from stansub.nuts.base import Settings
from stansub.progress import Progress
from stansub.run.chain import Status
from stansub.run.progress import Display, ProgressView, redrawn, repeating, stage_progress

# Seconds between two checks of the files.
_POLL = 0.3


@contextmanager
def line_progress(display: Display) -> Iterator[None]:
    """Print a line at intervals during the block, unless an engine's bars can be drawn."""
    with stage_progress(replace(display, show=display.show and not redrawn(display.console))) as log:
        log("Running NUTS")
        yield


@contextmanager
def file_progress(outputs: Sequence[Path], settings: Settings, display: Display) -> Iterator[None]:
    """Display a bar per chain during the block, from the lines of its CSV file.

    CmdStan flushes every draw to its file, while cmdstanpy captures the console output and draws its own bars on
    standard output.
    """
    if not (display.show and redrawn(display.console)):
        with line_progress(display):
            yield
        return
    total, files = settings.iter_warmup + settings.iter_sampling, [_Lines(output) for output in outputs]
    with ProgressView(len(files), Progress(), display.console) as bars:

        def look() -> None:
            done = [min(file.count(), total) for file in files]
            bars.show([Status(n, total, warmup=n <= settings.iter_warmup) for n in done], None)

        with repeating(look, _POLL):
            yield
            look()


class _Lines:
    """Draws in a growing CSV file: its lines without comments and header."""

    def __init__(self, file: Path) -> None:
        self._file, self._read, self._seen = file, 0, 0

    def count(self) -> int:
        """Return the number of lines so far."""
        if self._file.exists():
            with self._file.open("rb") as stream:
                stream.seek(self._read)
                new = stream.read()
            whole = new[: new.rfind(b"\n") + 1]
            self._read += len(whole)
            self._seen += sum(not line.startswith(b"#") and bool(line.strip()) for line in whole.splitlines())
        return max(0, self._seen - 1)
