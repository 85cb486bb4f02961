"""Commands run in parallel, none of which outlives the call."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

# Seconds between two checks of running commands.
_POLL = 0.02


def run_all(commands: Sequence[Sequence[str]], consoles: Sequence[Path], *, parallel: int) -> list[int]:
    """Run commands, ``parallel`` at once; a failure does not stop the others.

    An interrupt, or any other exception, stops the running commands and starts no other.

    Parameters
    ----------
    consoles
        For each command, the file for its output.
    parallel
        Number of commands run at once.

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
                process.kill()  # no effect on commands that have ended
                process.wait()
    return [process.returncode for process in processes]
