"""Which programs qualify? `stansub check` on programs as people have them, against the truth about each.

python benchmarks/reach/run.py                  # 400 observations each; the first time most of an hour, for compilers
python benchmarks/reach/run.py --size full      # more observations, and draws beside NUTS: hours
python benchmarks/reach/run.py --size text      # what is said of the text alone, without data or compilers: a minute
python benchmarks/reach/run.py --size tall      # effective draws beside NUTS, 100,000 observations, brms's style: hours
python benchmarks/reach/run.py --only ar1 hmm   # some of them
python benchmarks/reach/run.py --brms           # programs and data that brms writes (R with brms): an hour or two
python benchmarks/reach/run.py --posteriordb    # posteriordb's, in the checkout that STANSUB_POSTERIORDB names, beside
                                                # its reference draws: an hour

Writes reports/reach/README.md and results.json (tall.md and tall.json with --size tall), which are kept up to date
while it runs (--resume goes on from there), and ends with 1 where a verdict is false, or where draws of tall data or of
posteriordb's programs are wrong without a warning.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent))

import brms  # noqa: E402
import page  # noqa: E402
import published  # noqa: E402
import published_page  # noqa: E402
import tall  # noqa: E402
import tall_page  # noqa: E402
from corpus import CASES  # noqa: E402
from measure import Row, Subject, by_text, measure  # noqa: E402
from suite.machine import facts  # noqa: E402

from stansub.errors import StansubError  # noqa: E402

REPORTS = HERE.parent.parent / "reports"
SMALL, FULL_BRMS, TALL = 400, 2000, 100_000
SIZES = ("text", "small", "full", "tall")
_FORK = multiprocessing.get_context("fork")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="small", help="small by default")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="programs by name")
    parser.add_argument("--brms", action="store_true", help="programs that brms writes, in place of those here")
    parser.add_argument("--posteriordb", action="store_true", help="posteriordb's programs, in place of those here")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program-seconds", type=float, default=600.0, help="limit of each; 600 by default")
    parser.add_argument("--observations", type=int, default=TALL, help="of --size tall; 100,000 by default")
    parser.add_argument("--core-seconds", type=float, default=60.0, help="limit of a run, --size tall; 60 by default")
    parser.add_argument("--nuts-core-seconds", type=float, default=60.0, help="limit of NUTS there; 60 by default")
    parser.add_argument("--output-dir", type=Path, help="by default reports/reach, reports/brms or reports/posteriordb")
    parser.add_argument("--resume", action="store_true", help="measure only programs that are not there yet")
    parser.add_argument("--force", action="store_true", help="overwrite what is in the folder")
    options = parser.parse_args(arguments)
    if options.output_dir is None:
        options.output_dir = REPORTS / ("brms" if options.brms else "posteriordb" if options.posteriordb else "reach")
    options.is_tall = options.size == "tall"
    options.results = options.output_dir / ("tall.json" if options.is_tall else "results.json")
    if sum((options.is_tall, options.brms, options.posteriordb)) > 1:
        parser.error("take one of --size tall, --brms and --posteriordb")
    if options.posteriordb:
        options.size = "full"
    if options.seed < 0:
        parser.error("--seed must be at least 0")
    if options.results.exists() and not (options.force or options.resume):
        parser.error(f"{options.results} exists already; --force overwrites it, --resume adds to it")
    return options


def subjects(options: argparse.Namespace) -> Iterator[Subject]:
    """The programs asked for, with data."""
    made = published.subjects(published.folder()) if options.posteriordb else _made(options)
    return (subject for subject in made if not options.only or subject.name in options.only)


def _made(options: argparse.Namespace) -> Iterator[Subject]:
    """Programs of brms or of the corpus, with simulated data."""
    full = options.size == "full"
    if options.brms:
        with TemporaryDirectory() as folder:
            brms.write(Path(folder), FULL_BRMS if full else SMALL)
            yield from brms.subjects(Path(folder))
        return
    for name in corpus(options):
        case = CASES[name]
        yield Subject.of(case, options.observations if options.is_tall else case.full if full else SMALL, options.seed)


def corpus(options: argparse.Namespace) -> list[str]:
    """The programs of the corpus that are asked for: for tall data sums in brms's style."""
    cases = [case for case in CASES.values() if not options.only or case.name in options.only]
    return [case.name for case in cases if not options.is_tall or (case.in_brms_style and not case.obstacle)]


def command(options: argparse.Namespace) -> str:
    """What makes the same figures."""
    only = f" --only {' '.join(options.only)}" if options.only else ""
    seed = f" --seed {options.seed}" if options.seed != 1 else ""
    which = " --brms" if options.brms else " --posteriordb" if options.posteriordb else ""
    limits = ("observations", "core_seconds", "nuts_core_seconds") if options.is_tall else ()
    limited = "".join(f" --{name.replace('_', '-')} {getattr(options, name):g}" for name in limits)
    return f"python benchmarks/reach/run.py --size {options.size}{limited}{which}{only}{seed}"


def header(options: argparse.Namespace) -> dict[str, Any]:
    """What the results begin with."""
    about = f"about {SMALL:,} observations" if options.size != "full" else "thousands of observations"
    return {
        "command": command(options),
        "seed": options.seed,
        "observations": options.observations if options.is_tall else about,
        "limits": {"run": options.core_seconds, "nuts": options.nuts_core_seconds} if options.is_tall else None,
        "brms": options.brms,
        "machine": facts(),
    }


def make(options: argparse.Namespace) -> dict[str, Any]:
    """All rows; the file has those that are done."""
    options.output_dir.mkdir(parents=True, exist_ok=True)
    result, rows = header(options), []
    if options.resume and options.results.exists():
        earlier = json.loads(options.results.read_text(encoding="utf-8"))
        if earlier["command"] != result["command"]:
            raise SystemExit(f"{options.results} is of `{earlier['command']}`: leave out --resume")
        rows = earlier["rows"]
    result["rows"] = rows
    done = {row["program"] for row in rows}
    for subject in subjects(options):
        if subject.name in done:
            continue
        began = time.perf_counter()
        row = by_text(subject) if options.size == "text" else _measured(subject, options)
        rows.append(row)
        options.results.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        if options.is_tall:
            tall_page.write(result, corpus(options), options.output_dir)
        print(f"{_line(row)}, {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    return result


def _measured(subject: Subject, options: argparse.Namespace) -> Row:
    """A row, from a process that is stopped with its compilers when its time is up; then the parts that it had."""
    receiver, sender = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_measure, args=(sender, subject, options))
    process.start()
    sender.close()
    row: Row = {"program": subject.name, "about": subject.about} if options.is_tall else by_text(subject)
    ends = time.perf_counter() + options.program_seconds
    try:
        while receiver.poll(max(0.0, ends - time.perf_counter())):
            row |= receiver.recv()
        return row | {"failure": f"took more than {options.program_seconds:g} s"}
    except EOFError:
        process.join()
        return row | ({"failure": f"ended with exit code {process.exitcode}"} if process.exitcode else {})
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.join()


def _measure(sender: Connection, subject: Subject, options: argparse.Namespace) -> None:
    os.setsid()
    if options.is_tall:
        limits = tall.Limits(options.core_seconds, options.nuts_core_seconds)
        smaller = Subject.of(CASES[subject.name], options.observations // 10, options.seed)
        for part in tall.measured(subject, smaller, limits, options.seed):
            sender.send(part)
    else:
        sender.send(measure(subject, sampled=options.size == "full", seed=options.seed))


def _line(row: Row) -> str:
    """A row for whoever waits."""
    parts = [f"{row['program']}: by the text {row['text']}" if "text" in row else row["program"]]
    if "qualifies" in row:
        parts.append("with data " + ("qualifies" if row["qualifies"] else f"refused ({row['reason'][:100]})"))
    if "failure" in row:
        parts.append(f"fails ({row['failure'][:100]})")
    draws = row.get("draws", row.get("default", {})) | row.get("agreement", {})
    return ", ".join([*parts, *(str(draws[key]) for key in ("test", "verdict", "failure") if key in draws)])


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    try:
        result = make(options)
    except StansubError as error:
        sys.exit(f"Error: {error}")
    if options.is_tall:
        print("\n".join(tall_page.sentences(result["rows"], corpus(options))))
        sys.exit(bool(tall_page.disagreeing(result["rows"])))
    if options.posteriordb:
        print("\n".join(published_page.sentences(result["rows"])))
        print(published_page.write(result, options.output_dir))
        sys.exit(bool(published_page.wrong(result["rows"])))
    found = page.Findings(result["rows"])
    print("\n".join(page.sentences(found)))
    print(page.write(result, found, options.output_dir))
    if not found.passed:
        sys.exit(1)


if __name__ == "__main__":
    main()
