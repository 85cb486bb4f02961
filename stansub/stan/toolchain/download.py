"""Download of BridgeStan's sources from its release page, like the ``bridgestan`` package's but with a time limit."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from stansub import clock
from stansub.stan.toolchain import processes
from stansub.stan.toolchain.cache import make_folder

CONNECT_SECONDS = 4.0
DOWNLOAD_SECONDS = 300.0
STANC_SECONDS = 60.0
RETRY_SECONDS = 24 * 3600.0
# curl's heading, and its figures, which may precede the reason on the same line.
_METER = re.compile(
    r"^\s*(% Total .*|Dload +Upload .*|(\d[\d.]*[kMGTP]?\s+){8}(([\d.]+d)?\s*[-\d:]{6,}\s+){3}\d[\d.]*[kMGTP]?)"
)


def bridgestan_version() -> str:
    """Return the version of the installed ``bridgestan`` package, with which a home's C API must agree."""
    return importlib.metadata.version("bridgestan")


def downloads_folder() -> Path:
    """Return the folder of the ``bridgestan`` package's downloads."""
    return Path.home() / ".bridgestan"


def is_complete(folder: Path) -> bool:
    """Return whether a folder of sources has what a compilation starts from, and is readable."""
    return os.path.isfile(folder / "Makefile") and os.path.isfile(folder / "bin/stanc")


def provide(folder: Path, cache: Path) -> None:
    """Download what a folder of sources lacks; a failure is recorded in the cache for a day and otherwise silent."""
    reason = _download(folder) or fetch_stanc(folder)
    if reason is not None:
        with suppress(OSError):
            make_folder(cache)
            _failure_file(cache).write_text(reason + "\n", encoding="utf-8")


def fetch_stanc(folder: Path) -> str | None:
    """Download stanc by BridgeStan's Makefile, as before a first compilation; return the reason if it fails."""
    if is_complete(folder):
        return None
    command = [os.environ.get("MAKE") or "make", "bin/stanc", "STANC=bin/stanc", "STANC_DL_RETRY=0"]
    try:
        done = processes.run(command, cwd=folder, timeout=STANC_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"stanc was not downloaded: {error}"
    if is_complete(folder):
        return None
    said = " | ".join(without_meter(done.stderr).splitlines())
    return f"stanc was not downloaded: {said or 'no message'}"


def without_meter(text: str) -> str:
    """Return a command's output, line by line, without curl's progress meter."""
    lines = (_METER.sub("", line).strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def _download(folder: Path) -> str | None:
    """Download and unpack the sources of the installed version unless they exist; return the reason if that fails."""
    if os.path.isfile(folder / "Makefile"):
        return None
    import tarfile  # imported here because they are slow to import
    import urllib.request

    url = f"https://github.com/roualdes/bridgestan/releases/download/v{bridgestan_version()}/{folder.name}.tar.gz"
    # Name resolution has no time limit, so it runs in a thread that can be abandoned.
    connected, answer = _within(CONNECT_SECONDS, lambda: urllib.request.urlopen(url, timeout=CONNECT_SECONDS))
    if not connected:
        return f"{url}: {answer}"
    try:
        folder.parent.mkdir(exist_ok=True)
        with answer, tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            archive = Path(scratch) / "sources.tar.gz"
            deadline = clock.now() + DOWNLOAD_SECONDS
            with archive.open("wb") as file:
                while chunk := answer.read(1 << 20):
                    file.write(chunk)
                    if clock.now() > deadline:
                        return f"{url}: not finished after {DOWNLOAD_SECONDS:.0f} s"
            with tarfile.open(archive) as tar:
                # Python 3.11 has filters from 3.11.4 on.
                tar.extraction_filter = getattr(tarfile, "data_filter", None)
                tar.extractall(scratch)
            (Path(scratch) / folder.name).rename(folder)
    except (OSError, tarfile.TarError) as error:
        # Another process may have created the folder meanwhile.
        return None if os.path.isfile(folder / "Makefile") else f"{url}: {error}"
    return None


def _within(seconds: float, call: Callable[[], Any]) -> tuple[bool, Any]:
    """Return ``(True, value)`` of a call, or ``(False, reason)`` if it fails or takes longer than ``seconds``."""
    outcome: list[tuple[bool, Any]] = []

    def run() -> None:
        try:
            outcome.append((True, call()))
        except Exception as error:  # any error means that there is no download
            outcome.append((False, str(error)))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    return outcome[0] if outcome else (False, f"no connection within {seconds:.0f} s")


def _failure_file(cache: Path) -> Path:
    return cache / f"download-of-{bridgestan_version()}-failed.txt"


def failed_download(cache: Path) -> str | None:
    """Return why the last download failed, if that was less than a day ago."""
    try:
        age = time.time() - _failure_file(cache).stat().st_mtime
        reason = _failure_file(cache).read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return reason if age < RETRY_SECONDS else None
