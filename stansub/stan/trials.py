"""Calls in another process, which may crash without ending this one.

One process serves all calls of this one and ends with it. It starts with the first call, or earlier: importing what a
call needs takes some tenths of a second.
"""

from __future__ import annotations

import atexit
import importlib
import os
import pickle
import queue
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import Any, TypeVar

from stansub.errors import RunError, StansubError

T = TypeVar("T")

_POLL_SECONDS = 0.1
_PROGRAM = """\
import sys
_, channel, module, *sys.path[:] = sys.argv
from stansub.stan.trials import serve
serve(int(channel), module)
"""


class CrashError(StansubError):
    """The process in which a call was tried has ended."""


class _Helper:
    """The other process, with an imported module."""

    def __init__(self, module: str) -> None:
        self._channel, theirs = Pipe()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", _PROGRAM, str(theirs.fileno()), module, *sys.path],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # an interrupt is meant for this process, which ends the other
                )
            except OSError as error:
                raise RunError(f"cannot start {sys.executable}: {error.strerror}") from error
        self._is_ready = False
        self.owner = os.getpid()

    def ask(self, request: bytes, check: Callable[[], None]) -> tuple[bool, Any]:
        """Send a call; return whether it succeeded, and its result or exception.

        Raises `CrashError` if the process ends instead.
        """
        try:
            if not self._is_ready:
                self._receive(check)
                self._is_ready = True
            with suppress(ConnectionError):  # if the process has ended, it does not answer either
                self._channel.send_bytes(request)
            answer: tuple[bool, Any] = self._receive(check)
            return answer
        except EOFError:
            code = self.end()
            if not self._is_ready:
                raise RunError(
                    f"{sys.executable} cannot import stansub in a separate process; reinstall stansub in that "
                    "environment"
                ) from None
            name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            raise CrashError(f"evaluating it crashes ({name})") from None
        except BaseException:
            self.end()
            raise

    def end(self) -> int:
        """End the process; return its exit code, its own if it has ended already."""
        self._channel.close()
        if not self._is_ready:
            self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(1.0)  # it ends when nobody can call it any more
        self._process.kill()
        return self._process.wait()

    def _receive(self, check: Callable[[], None]) -> Any:
        while not self._channel.poll(_POLL_SECONDS):
            check()
        try:
            return self._channel.recv()
        except ConnectionError:
            raise EOFError from None


_helpers: list[_Helper] = []
_lock = threading.Lock()


def start(module: str) -> None:
    """Start the process, if there is none, and import a module there in parallel."""
    with _lock:
        _helper(module)


def attempt(function: Callable[..., T], /, *arguments: Any, check: Callable[[], None] = lambda: None) -> T:
    """Call a module-level function in the other process; its arguments and its result must support pickling.

    An exception of ``check``, which is called several times a second, ends the call. Raises `CrashError` if the process
    ends, `RunError` if it cannot be started, and exceptions of the function.
    """
    request = pickle.dumps((function, arguments), protocol=pickle.HIGHEST_PROTOCOL)
    with _lock:
        helper = _helper(function.__module__)
        try:
            returned, answer = helper.ask(request, check)
        except BaseException:
            _helpers.clear()
            raise
    if not returned:
        raise answer
    result: T = answer
    return result


def _helper(module: str) -> _Helper:
    if not _helpers or _helpers[0].owner != os.getpid():  # a fork shares the channel
        _helpers[:] = [_Helper(module)]
    return _helpers[0]


@atexit.register
def _end() -> None:
    if _helpers and _helpers[0].owner == os.getpid():
        _helpers.pop().end()


def serve(channel_number: int, module: str) -> None:
    """Serve calls in the other process until nobody can call it any more."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    importlib.import_module(module)
    channel, requests = Connection(channel_number), queue.SimpleQueue[bytes]()

    def read() -> None:
        with suppress(EOFError, OSError):
            while True:
                requests.put(channel.recv_bytes())
        os._exit(0)  # whatever is being evaluated

    threading.Thread(target=read, daemon=True).start()
    channel.send(None)
    while True:
        try:
            function, arguments = pickle.loads(requests.get())
            answer = (True, function(*arguments))
        except Exception as error:
            answer = (False, error)
        channel.send(answer)
