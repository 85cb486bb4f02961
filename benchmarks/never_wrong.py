"""How often stansub is wrong, and how often without a warning: posteriors with known answers, many seeds.

python benchmarks/never_wrong.py --seeds 50 --jobs 2 --json wrong.json                    # everything: hours
python benchmarks/never_wrong.py --seeds 8 --workload normal-3-apart --json wrong.json    # one workload: minutes
python benchmarks/never_wrong.py --seeds 50 --jobs 2 --json wrong.json --resume           # what is missing

Rows are written after each run, so that it can be interrupted. The answers are made once and kept. Prints the table
in Markdown; ends with 1 where a run was wrong without a warning, or crashed.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shlex
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from correctness import study, table, truth
from correctness.truth import NotTrusted
from correctness.workloads import WORKLOADS
from suite.machine import facts

from stansub.errors import StansubError
from stansub.stan.toolchain.cache import cache_dir

Job = tuple[str, int, str]


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options; wrong ones end the program with code 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--workload", action="append", choices=WORKLOADS, metavar="NAME", help=f"one of {', '.join(WORKLOADS)}"
    )
    parser.add_argument(
        "--way",
        action="append",
        choices=study.WAYS,
        help="the default, or the plain path without control variates; both by default, the latter on some workloads",
    )
    parser.add_argument("--seeds", type=int, default=50, help="how many, from 1")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, each on one core")
    parser.add_argument("--json", type=Path, required=True, metavar="FILE", help="where the runs and the table go")
    parser.add_argument("--resume", action="store_true", help="keep the runs of FILE and make the others")
    parser.add_argument("--force", action="store_true", help="overwrite FILE")
    parser.add_argument("--truth-dir", type=Path, metavar="FOLDER", help="for the answers: the user's cache")
    options = parser.parse_args(arguments)
    options.truth_dir = (options.truth_dir or cache_dir() / "benchmarks" / "truth").resolve()
    if options.seeds < 1 or options.jobs < 1:
        parser.error("--seeds and --jobs: at least 1")
    if not options.json.resolve().parent.is_dir():
        parser.error(f"--json {options.json}: there is no folder {options.json.resolve().parent}")
    if options.json.exists() and not (options.force or options.resume):
        parser.error(f"{options.json} exists already; --force overwrites it, --resume adds to it")
    return options


def jobs(options: argparse.Namespace) -> Iterator[Job]:
    """Workload, seed and way of each run, seed by seed, so that an early end leaves some of each."""
    for seed in range(1, options.seeds + 1):
        for name in options.workload or WORKLOADS:
            for way in options.way or study.WAYS:
                if way == "default" or options.way or WORKLOADS[name].plain:
                    yield name, seed, way


def prepare(names: Sequence[str], folder: Path) -> dict[str, str]:
    """Compile the programs and make the answers before runs share the cores; how each answer was made."""
    about = {}
    for name in names:
        say(f"{name}: program and answer")
        study.compiled(WORKLOADS[name].path)
        about[name] = truth.load(WORKLOADS[name], folder).about
    return about


def run_all(wanted: Sequence[Job], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Rows as they are done, from processes of their own."""
    # Libraries that were loaded keep threads, which a forked process would lack.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        futures = [pool.submit(study.run, *job, options.truth_dir) for job in wanted]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def write(options: argparse.Namespace, result: dict[str, Any]) -> None:
    """The JSON file, whole or not at all."""
    part = options.json.with_name(f".{options.json.name}.part")
    part.write_text(json.dumps(result, indent=1) + "\n")
    part.replace(options.json)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    kept = json.loads(options.json.read_text())["runs"] if options.resume and options.json.exists() else []
    runs: list[dict[str, Any]] = kept
    known = {(run["workload"], run["seed"], run["way"]) for run in runs}
    wanted = [job for job in jobs(options) if job not in known]
    result: dict[str, Any] = {
        "machine": facts(),
        "command": shlex.join(["python", "benchmarks/never_wrong.py", *(arguments or sys.argv[1:])]),
    }
    names = list(dict.fromkeys([*(run["workload"] for run in runs), *(name for name, _, _ in wanted)]))
    interrupted = False
    try:
        result["truths"] = prepare(names, options.truth_dir)
        for run in run_all(wanted, options):
            runs.append(run)
            order = list(WORKLOADS)
            runs.sort(key=lambda one: (one["way"], order.index(one["workload"]), one["seed"]))
            write(options, {**result, "table": table.summarise(runs), "runs": runs})
            say(table.line(run))
    except KeyboardInterrupt:
        interrupted = True
        say("interrupted; the same command with --resume runs what is missing")
    except (StansubError, NotTrusted, BrokenProcessPool) as error:
        sys.exit(f"Error: {error}")
    print(table.markdown(runs))
    if interrupted:
        sys.exit(130)
    if any(row["silent"] or row["crashed"] for row in table.summarise(runs)):
        sys.exit(1)


if __name__ == "__main__":
    main()
