"""Programs that start others, such as make and compilers, run in a process group that ends as a whole."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from stansub import clock

# A watcher in the group waits for the end of a pipe whose other end only this process has, and then ends the group,
# even if this process is killed. It is a grandchild, so that the program has no child that it did not start.
_WATCHED = 'exec 3<&0; ({ read -r _ <&3; kill -KILL 0; } >/dev/null 2>&1 &); exec "$@" </dev/null 3<&-'
_LOOK_SECONDS = 0.1
_END_SECONDS = 2.0


def run(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    check: Callable[[], None] = lambda: None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, without input, and return its output.

    Whatever ends the wait, such as an interrupt or the end of this process, ends the program and everything it started.

    Parameters
    ----------
    env : mapping, optional
        The environment; by default that of this process.
    timeout : float, optional
        Seconds after which the program is ended.
    check : callable, optional
        Called several times a second; an exception ends the program, even where interrupts do not arrive.

    Raises
    ------
    subprocess.TimeoutExpired
        After `timeout`.
    """
    end = None if timeout is None else clock.now() + timeout
    read, write = os.pipe()
    try:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHED, "sh", *command],
            cwd=cwd,
            env=env,
            stdin=read,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        try:
            while True:
                try:
                    out, err = process.communicate(timeout=_LOOK_SECONDS)
                    return subprocess.CompletedProcess(command, process.returncode, out, err)
                except subprocess.TimeoutExpired:
                    check()
                    if end is not None and clock.now() > end:
                        raise
        except BaseException:
            _end(process)
            raise
    finally:
        os.close(read)
        os.close(write)


def _end(process: subprocess.Popen[str]) -> None:
    """Kill a program's group, and wait until all its processes have closed the program's output."""
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.communicate(timeout=_END_SECONDS)
