"""Samplers side by side on tall data: speed, cost and agreement with NUTS.

python benchmarks/run.py --json benchmark.json                              # everything: hours
python benchmarks/run.py --quick --json quick.json                          # one small workload: minutes
python benchmarks/run.py --workload flights --engine nuts-nutpie --engine stansub-auto --json flights.json
python benchmarks/run.py --scaling --quick --json scaling.json              # a step's time against N
python benchmarks/run.py --scaling --size 10000 --size 10000000 --covariates 10 --json big.json

Writes the rows to the JSON file after each engine, and report, picture and rows to the output folder (the committed
ones with `--output-dir reports/benchmark --force`). Each engine runs in a process of its own. Data and NUTS references
are made once and kept in the cache folder; covtype and mnist7v9 need STANSUB_REFERENCE (a folder with programs, draws
and make_data.py). `pip install ".[bench]"` adds numpyro.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from suite import scaling, table
from suite.engines import ENGINES
from suite.machine import facts
from suite.reference import SEED
from suite.workloads import ROUTINE, WORKLOADS, Workload

from stansub.run.choices import cores
from stansub.stan.toolchain.cache import cache_dir

HERE = Path(__file__).resolve().parent
QUICK_SECONDS = 20.0
SIZES, QUICK_SIZES = (1_000, 10_000, 100_000, 1_000_000), (1_000, 10_000, 100_000)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options; wrong ones end the program with code 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--workload", action="append", choices=WORKLOADS, metavar="NAME", help=f"one of {', '.join(WORKLOADS)}"
    )
    parser.add_argument(
        "--engine", action="append", choices=ENGINES, metavar="NAME", help=f"one of {', '.join(ENGINES)}"
    )
    parser.add_argument("--json", type=Path, required=True, metavar="FILE", help="where the rows go")
    parser.add_argument("--output-dir", type=Path, metavar="FOLDER", help="for report and picture: FILE_report")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--chains", type=int, default=max(2, cores()), help="one a core, at least 2")
    parser.add_argument(
        "--time-limit", type=float, metavar="SECONDS", help="of warmup and sampling; each workload has its own"
    )
    parser.add_argument("--quick", action="store_true", help=f"logistic-1e4, {QUICK_SECONDS:g} s an engine")
    parser.add_argument("--scaling", action="store_true", help="time and data of a step against N instead of the table")
    parser.add_argument("--size", type=int, action="append", metavar="N", help="observations for --scaling")
    parser.add_argument("--covariates", type=int, default=scaling.COVARIATES, metavar="K", help="for --scaling")
    parser.add_argument("--resume", action="store_true", help="keep the measured rows of FILE and run the others")
    parser.add_argument("--force", action="store_true", help="overwrite FILE and the report")
    parser.add_argument("--data-dir", type=Path, metavar="FOLDER", help="for data and references: the user's cache")
    options = parser.parse_args(arguments)
    options.output_dir = options.output_dir or options.json.with_name(f"{options.json.stem}_report")
    options.data_dir = (options.data_dir or cache_dir() / "benchmarks").resolve()
    options.workload = options.workload or (["logistic-1e4"] if options.quick else list(ROUTINE))
    options.engine = options.engine or list(ENGINES)
    if options.seed == SEED or options.seed < 0:
        parser.error(f"--seed {options.seed}: not below 0, and not the references' own")
    if options.chains < 2:
        parser.error("--chains: at least 2, for R-hat")
    if options.time_limit is not None and options.time_limit <= 0:
        parser.error("--time-limit: seconds above 0")
    if not options.json.resolve().parent.is_dir():
        parser.error(f"--json {options.json}: there is no folder {options.json.resolve().parent}")
    if options.scaling and options.resume:
        parser.error("--resume is for the table, not for --scaling")
    if options.size and not options.scaling:
        parser.error("--size is for --scaling; the workloads of the table have their own")
    if min(options.size or SIZES) < SIZES[0]:
        parser.error(f"--size {min(options.size)}: at least {SIZES[0]}")
    options.size = options.size or (QUICK_SIZES if options.quick else SIZES)
    name = "scaling" if options.scaling else "benchmark"
    targets = [options.json] if options.resume else [options.json, options.output_dir / f"{name}.json"]
    for target in targets:
        if target.exists() and not (options.force or options.resume):
            parser.error(f"{target} exists already; --force overwrites it, --resume adds to it")
    return options


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def work(job: dict[str, Any], *, limit: float | None) -> dict[str, Any]:
    """The answer of a process of its own, ended after ``limit`` seconds with all that it started."""
    with tempfile.TemporaryDirectory(prefix="stansub-benchmark-", ignore_cleanup_errors=True) as folder:
        file, answer, errors = (Path(folder) / name for name in ("job.json", "answer.json", "errors.txt"))
        file.write_text(json.dumps({**job, "answer": str(answer), "started": time.time()}))
        path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
        began = time.perf_counter()
        with errors.open("w") as told:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "suite.worker", str(file)],
                env={**os.environ, "PYTHONPATH": path},
                stdout=subprocess.DEVNULL,
                stderr=None if job["task"] == "prepare" else told,
                start_new_session=True,
            )
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                return {"status": "failed", "notes": [f"ended after {time.perf_counter() - began:.0f} s without draws"]}
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        if answer.exists():
            result: dict[str, Any] = json.loads(answer.read_text())
            return result
        last = errors.read_text().strip().splitlines()[-1:]
        return {"status": "failed", "notes": [" ".join([f"the process ended with code {code}", *last])]}


def run_workload(workload: Workload, engines: Sequence[str], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Prepare a workload; a row an engine."""
    seconds = options.time_limit or (QUICK_SECONDS if options.quick else workload.seconds)
    job = {
        "workload": workload.name,
        "seed": options.seed,
        "chains": options.chains,
        "seconds": seconds,
        "folder": str(options.data_dir),
    }
    say(f"{workload.name}: preparing")
    reason = workload.unavailable()
    prepared = {} if reason else work({**job, "task": "prepare", "engines": list(engines)}, limit=None)
    if reason or "notes" in prepared:
        answer = {"status": "skipped" if reason else "failed", "notes": [reason] if reason else prepared["notes"]}
        for engine in engines:
            yield table.row(workload.name, engine, answer)
        return
    for engine in engines:
        limit = options.time_limit or min(seconds, ENGINES[engine].seconds)
        say(f"{workload.name}: {engine} (up to {limit:g} s and what it takes to set up)")
        answer = work({**job, "task": "run", "engine": engine, "seconds": limit}, limit=2 * limit + 300)
        # Programs were compiled before; what they took is told for those that were not in the cache.
        compile_s = prepared["compile_s"].get(engine, answer.get("compile_s"))
        yield table.row(workload.name, engine, {**answer, "compile_s": compile_s, "limit_s": limit})


def write(options: argparse.Namespace, name: str, result: dict[str, Any], *, pictures: bool) -> None:
    """The JSON file; with ``pictures`` the output folder too."""
    text = json.dumps(result, indent=1) + "\n"
    part = options.json.with_name(f".{options.json.name}.part")
    part.write_text(text)
    part.replace(options.json)
    if not pictures:
        return
    options.output_dir.mkdir(parents=True, exist_ok=True)
    (options.output_dir / f"{name}.json").write_text(text)
    if name == "scaling":
        scaling.picture(result["rows"], options.output_dir / "scaling.png")
        return
    if any(one["status"] == "ok" for one in result["rows"]):
        table.picture(result["rows"], options.output_dir / "benchmark.png")
    (options.output_dir / "benchmark.md").write_text(table.markdown(result))


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    command = shlex.join(["python", "benchmarks/run.py", *(arguments or sys.argv[1:])])
    result: dict[str, Any] = {
        "machine": facts(),
        "command": command,
        "options": {"seed": options.seed, "chains": options.chains, "time_limit": options.time_limit},
    }
    if options.scaling:
        rows = scaling.rows(options.size, covariates=options.covariates, seed=options.seed, say=say)
        write(options, "scaling", {**result, "rows": rows}, pictures=True)
        return
    rows = json.loads(options.json.read_text())["rows"] if options.resume and options.json.exists() else []
    rows = [one for one in rows if one["status"] == "ok"]
    known = {(one["workload"], one["engine"]) for one in rows}
    interrupted = False
    try:
        for name in options.workload:
            missing = [engine for engine in options.engine if (name, engine) not in known]
            for row in run_workload(WORKLOADS[name], missing, options) if missing else ():
                rows = table.ordered([*rows, row])
                write(options, "benchmark", {**result, "rows": rows}, pictures=False)
                say(f"  {table.line(row)}")
    except KeyboardInterrupt:
        interrupted = True
        say("interrupted; the same command with --resume runs what is missing")
    write(options, "benchmark", {**result, "rows": rows}, pictures=True)
    print(table.markdown({**result, "rows": rows}))
    if interrupted:
        sys.exit(130)


if __name__ == "__main__":
    main()
