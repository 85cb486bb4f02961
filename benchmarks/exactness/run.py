"""Do factorised draws come from the posterior itself? Beside importance sampling and NUTS, on three skewed posteriors.

python benchmarks/exactness/run.py                  # 20,000 effective draws each: a minute
python benchmarks/exactness/run.py --size full      # a million: ten minutes

Means, sds and the quantiles at 5 and 95 % are compared, with their Monte Carlo standard errors. Approximate tests at
their defaults, and normal draws, are held against the same. Writes reports/exactness/README.md and results.json, and
ends with 1 where an exact way of sampling does not pass.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent))

import page  # noqa: E402
import study  # noqa: E402
from posteriors import POSTERIORS  # noqa: E402
from suite.machine import facts  # noqa: E402

from stansub.errors import StansubError  # noqa: E402

REPORTS = HERE.parent.parent / "reports"
# Effective draws.
SIZES = {"small": 20_000, "full": 1_000_000}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="small", help="small by default")
    parser.add_argument("--posteriors", nargs="+", choices=POSTERIORS, metavar="NAME", help=", ".join(POSTERIORS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output-dir", type=Path, default=REPORTS / "exactness")
    parser.add_argument("--force", action="store_true", help="overwrite what is in the folder")
    options = parser.parse_args(arguments)
    options.posteriors = options.posteriors or tuple(POSTERIORS)
    if options.seed < 0:
        parser.error("--seed must be at least 0")
    if (options.output_dir / "results.json").exists() and not options.force:
        parser.error(f"{options.output_dir / 'results.json'} exists already; --force overwrites it")
    return options


def command(options: argparse.Namespace) -> str:
    """What makes the same figures."""
    parts = [f"python benchmarks/exactness/run.py --size {options.size}"]
    if options.posteriors != tuple(POSTERIORS):
        parts.append(f"--posteriors {' '.join(options.posteriors)}")
    return " ".join([*parts, *([f"--seed {options.seed}"] if options.seed != 1 else [])])


def make(options: argparse.Namespace) -> list[study.Row]:
    """All rows, with a line for each for whoever waits."""
    made = []
    for name in options.posteriors:
        for row in study.rows(POSTERIORS[name], SIZES[options.size], options.seed):
            made.append(row)
            text = f"{name}, {row['way']}: {row['effective']:,.0f} effective draws, {row['seconds']:.0f} s"
            print(text, file=sys.stderr, flush=True)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    result: dict[str, Any] = {
        "command": command(options),
        "effective": SIZES[options.size],
        "machine": facts(),
    }
    try:
        result["rows"] = make(options)
    except StansubError as error:
        sys.exit(f"Error: {error}")
    options.output_dir.mkdir(parents=True, exist_ok=True)
    (options.output_dir / "results.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    found = page.Findings.of(result["rows"], SIZES[options.size])
    print(page.write(result, found, options.output_dir))
    if not found.passed:
        sys.exit(1)


if __name__ == "__main__":
    main()
