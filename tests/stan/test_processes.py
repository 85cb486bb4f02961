"""What is started ends, with all that it started."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from clocks import HANGS, wait_until

from stansub.errors import RunError
from stansub.stan.toolchain import processes

CODE = "parameters { real x; } model { x ~ normal(0, 1); }"

# A compiler that starts another process, notes both and takes its time.
SLOW_COMPILER = """#!/bin/sh
case "$1" in --version) echo slow; exit;; esac
sleep {seconds} &
echo $$ >> {note}
echo $! >> {note}
wait
"""


def is_running(pid: int) -> bool:
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return done.stdout.strip()[:1] not in ("", "Z")


def noted(note: Path) -> list[int]:
    return [int(line) for line in note.read_text().split()] if note.exists() else []


def script(tmp_path: Path) -> tuple[list[str], Path]:
    """A command that starts another, and the file in which both note their ids."""
    note, command = tmp_path / "pids", tmp_path / "slow"
    command.write_text(SLOW_COMPILER.format(note=note, seconds=2 * HANGS))
    command.chmod(0o755)
    return [str(command)], note


def test_output_and_exit_code_are_taken_and_there_is_no_input(tmp_path):
    command = ["/bin/sh", "-c", 'cat; echo "$1"; echo problem >&2; exit 3', "sh", "two words"]
    done = processes.run(command, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (3, "two words\n", "problem\n")


def test_what_takes_too_long_is_ended(tmp_path, clock):
    command, note = script(tmp_path)

    def check() -> None:
        if len(noted(note)) == 2:
            clock.advance(0.6)

    with pytest.raises(subprocess.TimeoutExpired):
        processes.run(command, cwd=tmp_path, timeout=0.5, check=check)
    assert len(noted(note)) == 2
    assert not any(is_running(pid) for pid in noted(note))


def test_what_a_check_stops_is_ended(tmp_path):
    command, note = script(tmp_path)

    def check() -> None:
        if len(noted(note)) == 2:
            raise RunError("it was stopped")

    with pytest.raises(RunError, match="was stopped"):
        processes.run(command, cwd=tmp_path, check=check)
    assert len(noted(note)) == 2
    assert not any(is_running(pid) for pid in noted(note))


def test_what_is_left_behind_by_a_program_ends_with_it(tmp_path):
    note = tmp_path / "pid"
    processes.run(["/bin/sh", "-c", f"sleep {2 * HANGS} >/dev/null 2>&1 & echo $! > {note}"], cwd=tmp_path)
    wait_until(lambda: not is_running(noted(note)[0]))


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)], ids=lambda number: number.name
)
def test_a_signal_to_this_process_alone_ends_the_compiler(own_cache, tmp_path, number):
    """After an interrupt nothing is left; after a kill a build folder, which the next compilation removes."""
    command, note = script(tmp_path)
    own_cache.mkdir()
    program = tmp_path / "program.stan"
    program.write_text(CODE)
    start = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from stansub.stan.toolchain import download\n"
        "download._download = lambda folder: 'no network in tests'\n"
        f"import stansub; stansub.compile_model({str(program)!r})\n"
    )
    environment = os.environ | {"CXX": command[0], "PYTHONPATH": os.pathsep.join(sys.path)}
    running = subprocess.Popen([sys.executable, "-P", "-c", start], env=environment, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: len(noted(note)) >= 4, running)  # the program and the C API are compiled at once
    assert all(is_running(pid) for pid in noted(note))
    running.send_signal(number)
    _, err = running.communicate(timeout=HANGS)
    wait_until(lambda: not any(is_running(pid) for pid in noted(note)))
    if number == signal.SIGINT:
        assert err.splitlines()[-1] == "KeyboardInterrupt"
        assert not list((own_cache / "build").iterdir())
    else:
        assert len(list((own_cache / "build").iterdir())) == 1
