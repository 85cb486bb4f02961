"""Is what `stansub plan` says right? Its predictions beside real runs: risk, and what NUTS would take.

python benchmarks/planning/run.py --output-dir planning        # some minutes on two quiet cores
python benchmarks/planning/run.py --budget 4 --repeats 8 --flights flights.json --force     # the report: half an hour
python benchmarks/planning/run.py --part nuts --rows 1000 --draws 200 --output-dir planning  # to see that it works

`flights.json` is what `python examples/flights.py flights.json` writes. Prints what is found as it comes, and writes
README.md and results.json into reports/planning or `--output-dir`; where only one part is asked for, the other stays as
it is there.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent))

import nuts  # noqa: E402
import page  # noqa: E402
import risk  # noqa: E402
from suite.machine import facts  # noqa: E402

REPORTS = HERE.parent.parent / "reports" / "planning"
PARTS = ("risk", "nuts")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options; wrong ones end the program with code 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=PARTS, help="both by default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output-dir", type=Path, default=REPORTS, metavar="FOLDER")
    parser.add_argument("--force", action="store_true", help="overwrite what is in the folder")
    of_risk = parser.add_argument_group("risk")
    of_risk.add_argument("--budget", type=float, default=3.0, help="seconds")
    of_risk.add_argument("--pilot", type=float, default=3.0, help="seconds of the pilot's steps")
    of_risk.add_argument("--repeats", type=int, default=6, help="runs of each way")
    of_risk.add_argument("--observations", type=int, default=3000)
    of_risk.add_argument("--case", action="append", choices=risk.CASES, help="all by default")
    of_nuts = parser.add_argument_group("NUTS")
    of_nuts.add_argument("--rows", type=int, default=10_000)
    of_nuts.add_argument("--draws", type=int, default=1000, help="of each chain, after the warmup of NUTS")
    of_nuts.add_argument("--chains", type=int, default=4)
    of_nuts.add_argument("--program", action="append", choices=nuts.PROGRAMS, help="all by default")
    of_nuts.add_argument("--flights", type=Path, metavar="FILE", help="data of examples/flights.stan")
    options = parser.parse_args(arguments)
    if options.flights and not options.flights.is_file():
        parser.error(f"--flights {options.flights}: there is no such file")
    if (options.output_dir / "results.json").exists() and not options.force:
        parser.error(f"{options.output_dir / 'results.json'} exists already; --force overwrites it")
    return options


def measure_risk(options: argparse.Namespace) -> dict[str, Any]:
    """The first part, shown row by row."""
    chosen = {name: getattr(options, name) for name in ("budget", "pilot", "repeats", "observations", "seed")}
    machine, rows = facts(), []
    for row in risk.measure(options.case or list(risk.CASES), **chosen):
        rows.append(row)
        print(*risk.cells(row), sep=" | ", flush=True)
    return {
        "options": chosen,
        "machine": machine,
        "rows": [risk.cells(row) for row in rows],
        "conclusions": list(risk.conclusions(rows, options.budget)),
        "results": rows,
    }


def measure_nuts(options: argparse.Namespace) -> dict[str, Any]:
    """The second part."""
    chosen = {name: getattr(options, name) for name in ("rows", "chains", "draws", "seed")}
    machine = facts()
    found: list[nuts.Check] = []
    runs: dict[str, nuts.Nuts] = {}
    for name, run, checks in nuts.measure(options.program or list(nuts.PROGRAMS), flights=options.flights, **chosen):
        runs[name] = run
        found += checks
        for one in checks:
            print(*nuts.cells(one), sep=" | ", flush=True)
    return {
        "options": chosen,
        "machine": machine,
        "rows": [nuts.cells(one) for one in found],
        "conclusions": list(nuts.conclusions(found, runs)),
        "results": [asdict(one) | {"hit": one.hit} for one in found],
        "runs": {name: asdict(one) for name, one in runs.items()},
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Plan, run, and write."""
    options = parse(arguments)
    results = options.output_dir / "results.json"
    parts = json.loads(results.read_text()) if results.exists() else {}
    options.output_dir.mkdir(parents=True, exist_ok=True)
    for name, measure in zip(PARTS, (measure_risk, measure_nuts), strict=True):
        if name in (options.part or PARTS):
            parts[name] = measure(options)
            results.write_text(json.dumps(parts, indent=1) + "\n")
    (options.output_dir / "README.md").write_text(page.text(parts))
    print(*(line for part in parts.values() for line in part["conclusions"]), sep="\n")


if __name__ == "__main__":
    main()
