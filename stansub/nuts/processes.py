"""Commands run side by side, none of which outlives the call."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

# Seconds between two looks at what is running.
_POLL = 0.02


def run_all(commands: Sequence[Sequence[str]], consoles: Sequence[Path], *, parallel: int) -> list[int]:
    """Run commands, so many at once; one that fails does not keep the others from running.

    An interrupt, or any other exception, ends those that run, and no other is started.

    Parameters
    ----------
    commands
        Each with its arguments.
    consoles
        For each, the file for what it says.
    parallel
        How many run at once.

    Returns
    -------
    list of int
        Exit codes; minus the signal's number for those ended by a signal.
    """
    processes: list[subprocess.Popen[bytes]] = []
    with ExitStack() as files:
        try:
            while any(process.poll() is None for process in processes) or len(processes) < len(commands):
                running = sum(process.poll() is None for process in processes)
                for k in range(len(processes), min(len(commands), len(processes) + parallel - running)):
                    console = files.enter_context(consoles[k].open("wb"))
                    processes.append(
                        subprocess.Popen(
                            commands[k], stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT
                        )
                    )
                time.sleep(_POLL)
        finally:
            for process in processes:
                process.kill()  # nothing happens to those that have ended
                process.wait()
    return [process.returncode for process in processes]
