"""Simulation-based calibration of `stansub.sample` on ten models: every test, every proposal, and three controls.

python benchmarks/calibration/run.py                     # three models, six cells: five minutes
python benchmarks/calibration/run.py --size full         # all of them
python benchmarks/calibration/run.py --size full --resume   # goes on where it was interrupted

Each repeat draws parameters from the prior and data given them, samples, and ranks the parameters among the draws
(Talts et al. 2018). Repeats go to a file of JSON lines as they are made; the report, reports/calibration/README.md, is
written from those that are there, after an interrupt too.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import multiprocessing
import signal
import sys
import warnings
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import page
from cells import CELLS, SMALL
from workloads import WORKLOADS

import stansub
from stansub.diagnostics.calibration import Repeat, repeat
from stansub.errors import DrawsWarning, RunError, StansubError, one_line

REPORTS = Path(__file__).resolve().parent.parent.parent / "reports"
SMALL_MODELS = ("normal", "logistic", "gamma")
REPEATS = 40

Row = dict[str, Any]


class Job(NamedTuple):
    """One simulated data set of a model, to be sampled in one way."""

    model: str
    cell: str
    number: int


@cache
def compiled(model: str) -> stansub.CompiledModel:
    """A compiled program, once a process."""
    return stansub.compile_model(WORKLOADS[model].path)


def run(job: Job, seed: int) -> Row:
    """The row of a job."""
    warnings.simplefilter("ignore", DrawsWarning)
    workload, cell = WORKLOADS[job.model], CELLS[job.cell]
    options = {"block_size": workload.block_size, **cell.options}
    try:
        made = repeat(compiled(job.model), cell.sampler_of(workload.simulate), job.number, seed=seed, **options)
    except StansubError as error:
        made = Repeat(job.number, failure=one_line(error))
    return {"model": job.model, "cell": job.cell, "seed": seed, **made._asdict()}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=("small", "full"), default="small", help="small by default")
    parser.add_argument("--models", nargs="+", choices=WORKLOADS, metavar="MODEL", help=", ".join(WORKLOADS))
    parser.add_argument("--cells", nargs="+", choices=CELLS, metavar="CELL", help=", ".join(CELLS))
    parser.add_argument("--repeats", type=int, default=REPEATS, help=f"{REPEATS} by default; 0 writes the report alone")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="processes at once")
    parser.add_argument("--resume", action="store_true", help="keep the repeats that are there, and make the others")
    parser.add_argument("--runs", type=Path, help="file of the repeats, by default in reports/draws")
    parser.add_argument("--output-dir", type=Path, default=REPORTS / "calibration")
    options = parser.parse_args(arguments)
    options.models = options.models or (SMALL_MODELS if options.size == "small" else tuple(WORKLOADS))
    options.cells = options.cells or (SMALL if options.size == "small" else tuple(CELLS))
    options.runs = options.runs or REPORTS / "draws" / f"calibration-{options.size}.jsonl"
    if options.jobs < 1 or options.repeats < 0 or options.seed < 0:
        parser.error("--jobs must be at least 1, --repeats and --seed at least 0")
    if options.runs.exists() and not options.resume and options.repeats:
        parser.error(f"{options.runs} exists already; --resume adds to it")
    return options


def read(path: Path, seed: int) -> list[Row]:
    """The repeats that are there; a line that an interrupt cut short is left out."""
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    # Two runs at once may both have made one.
    own = {Job(row["model"], row["cell"], row["number"]): row for row in rows if row["seed"] == seed}
    return list(own.values())


def missing(options: argparse.Namespace, rows: Sequence[Row]) -> list[Job]:
    """What is still to be made, repeat by repeat, so that an early end leaves as many of each."""
    known = {Job(row["model"], row["cell"], row["number"]) for row in rows}
    wanted = itertools.product(range(options.repeats), options.models, options.cells)
    return [job for job in (Job(model, cell, number) for number, model, cell in wanted) if job not in known]


def run_all(jobs: Sequence[Job], seed: int, processes: int) -> Generator[Row, None, None]:
    """Rows as they are done, from processes of their own."""
    # Libraries that were loaded keep threads, which a forked process would lack.
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures = [pool.submit(run, job, seed) for job in jobs]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def make(options: argparse.Namespace, rows: list[Row]) -> None:
    """Make what is missing; rows go to the file as they are done."""
    jobs = missing(options, rows)
    for model in dict.fromkeys(job.model for job in jobs):
        say(f"{model}: program")
        compiled(model)
    options.runs.parent.mkdir(parents=True, exist_ok=True)
    with (
        options.runs.open("a", encoding="utf-8") as file,
        contextlib.closing(run_all(jobs, options.seed, options.jobs)) as made,
    ):
        for count, row in enumerate(made, start=1):
            file.write(json.dumps(row) + "\n")
            file.flush()
            rows.append(row)
            text = f"{row['model']}, {row['cell']}, repeat {row['number'] + 1}"
            say(f"{count} of {len(jobs)}: {text}{': ' if row['failure'] else ''}{row['failure']}")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    # As Ctrl-C: workers that nobody waits for would go on.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    rows = read(options.runs, options.seed)
    interrupted = False
    try:
        make(options, rows)
    except KeyboardInterrupt:
        interrupted = True
        say("interrupted; the same command with --resume makes what is missing")
    except (StansubError, BrokenProcessPool) as error:
        sys.exit(f"Error: {error}")
    options.output_dir.mkdir(parents=True, exist_ok=True)
    try:
        print(page.write(rows, options.output_dir, size=options.size, seed=options.seed))
    except RunError as error:
        say(f"Error: {error}")
        sys.exit(130 if interrupted else error.exit_code)
    if interrupted:
        sys.exit(130)


if __name__ == "__main__":
    main()
