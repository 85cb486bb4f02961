"""What is tried in another process may end that one, never ours."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stansub.errors import InputError
from stansub.stan import trials
from stansub.stan.trials import CrashError, attempt

# A process that tries what never returns, and notes the id of the process in which it does.
OWNER = """
import sys
sys.path.insert(0, {folder!r})
from test_trials import sleep_noted
from stansub.stan.trials import attempt
attempt(sleep_noted, {note!r})
"""


def double(number: int) -> int:
    return 2 * number


def abort() -> None:
    os.abort()


def leave(code: int) -> None:
    os._exit(code)


def refuse() -> None:
    raise InputError("these data will not do")


def own_id() -> int:
    return os.getpid()


def say() -> str:
    print("words of a program", flush=True)
    os.write(1, b"and of its C++")
    return "said"


def sleep_noted(note: str) -> None:
    Path(note).write_text(str(os.getpid()))
    time.sleep(600)


def wait_for(note: Path) -> int:
    while not (note.exists() and note.read_text()):
        time.sleep(0.05)
    return int(note.read_text())


def has_ended(process_id: int) -> bool:
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(process_id)], capture_output=True, text=True, check=False)
    return done.stdout.strip()[:1] in ("", "Z")


def test_a_call_returns_what_the_function_returns_in_one_other_process():
    first = attempt(own_id)
    assert attempt(double, 21) == 42
    assert attempt(own_id) == first != os.getpid()


def test_what_the_function_raises_is_raised_here():
    with pytest.raises(InputError, match="these data will not do"):
        attempt(refuse)


@pytest.mark.parametrize(("function", "arguments", "how"), [(abort, (), "SIGABRT"), (leave, (7,), "exit code 7")])
def test_a_crash_is_an_answer_and_the_next_call_has_a_new_process(function, arguments, how):
    first = attempt(own_id)
    with pytest.raises(CrashError, match=how):
        attempt(function, *arguments)
    assert attempt(own_id) not in (first, os.getpid())


def test_what_is_printed_there_is_dropped(capfd):
    assert attempt(say) == "said"
    assert capfd.readouterr().out == ""


def test_a_call_ends_with_the_time_limit_and_its_process_too(tmp_path):
    note = tmp_path / "id"

    def check() -> None:
        if note.exists() and note.read_text():
            raise TimeoutError

    with pytest.raises(TimeoutError):
        attempt(sleep_noted, str(note), check=check)
    assert has_ended(int(note.read_text()))
    assert attempt(double, 2) == 4


def test_the_process_ends_with_the_one_that_calls_it(tmp_path):
    note = tmp_path / "id"
    code = OWNER.format(folder=str(Path(__file__).parent), note=str(note))
    owner = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    there = wait_for(note)
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    while not has_ended(there):
        time.sleep(0.05)


def test_a_process_that_cannot_be_started_is_an_error_in_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(trials, "_helpers", [])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    with pytest.raises(trials.RunError, match=r"cannot start .*no-python: No such file"):
        attempt(double, 1)
