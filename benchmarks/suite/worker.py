"""The process in which one thing is done: ``python -m suite.worker JOB.json``.

Each engine has a process of its own for each workload, so that memory and caches are its own and a crash or a
timeout loses one row only. The answer is a JSON file named in the job.
"""

from __future__ import annotations

import json
import resource
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

from suite import reference
from suite.base import Task, Unavailable
from suite.engines import ENGINES
from suite.measure import measure
from suite.workloads import WORKLOADS, data_files

# Characters of a failure's message that a row has room for.
_MESSAGE = 300


def prepare(job: dict[str, Any]) -> dict[str, Any]:
    """Data, reference and compiled programs; returns the seconds of the latter by engine, for what was not there."""
    workload, folder = WORKLOADS[job["workload"]], Path(job["folder"])
    data, small = data_files(workload, folder)
    task = Task(workload, small, job["seed"], job["chains"], job["seconds"], folder)
    compile_s = {}
    for name in job["engines"]:
        began = time.perf_counter()
        if ENGINES[name].prepare(task):
            compile_s[name] = time.perf_counter() - began
    reference.load(workload, data, folder / "reference", say=_say)
    return {"compile_s": compile_s}


def run(job: dict[str, Any]) -> dict[str, Any]:
    """The figures of one engine on one workload."""
    workload, folder = WORKLOADS[job["workload"]], Path(job["folder"])
    data, _ = data_files(workload, folder)
    task = Task(workload, data, job["seed"], job["chains"], job["seconds"], folder)
    startup = time.time() - job["started"]
    try:
        done = ENGINES[job["engine"]].run(task)
    except Unavailable as reason:
        return {"status": "skipped", "notes": [str(reason)]}
    total = time.time() - job["started"]
    # The largest process; kilobytes on Linux, bytes on macOS.
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    judge = reference.load(workload, data, folder / "reference", say=_say)
    figures = measure(done, judge, startup=startup, total=total)
    compile_s = done.compile_s or None
    return {
        "status": "ok",
        "n": workload.n,
        **figures,
        "compile_s": compile_s,
        "memory_gb": peak / (1e9 if sys.platform == "darwin" else 1e6),
        "versions": dict(done.versions),
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Do the job; a failure's last line goes to the answer."""
    job = json.loads(Path(sys.argv[1]).read_text())
    try:
        answer = prepare(job) if job["task"] == "prepare" else run(job)
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        answer = {"status": "failed", "notes": [textwrap.shorten(text, _MESSAGE)]}
    Path(job["answer"]).write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
