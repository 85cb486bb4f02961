"""Draws of the multilevel programs with default options, beside long runs of exact samplers.

python benchmarks/multilevel/agreement.py --only poisson cumulative --size full --iterations 3000 --json agreement.json

`references.py` has the samplers. For every parameter (scales, correlations and cutpoints included), means and sds are
compared in units of sd and in units of Monte Carlo standard error. A row replaces the same row in the file.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent))

from gaps import gaps  # noqa: E402
from references import reference  # noqa: E402
from rows import ROWS, SIZES, Row  # noqa: E402
from run import HOURS, known, ours, save  # noqa: E402
from suite.figures import Draws, slowest  # noqa: E402


def measure(row: Row, size: str, *, iterations: int, draws: int, seed: int) -> dict[str, Any]:
    """Draw both ways and compare."""
    load, data = os.getloadavg()[0], row.data(size)
    with tempfile.TemporaryDirectory() as folder:
        own = ours(row, row.stored(data, folder), row.parameters, HOURS, iter_sampling=draws)
    long = reference(row, data, row.parameters, iterations=iterations, seed=seed)
    ess, name, r_hat = slowest(long.draws)
    found = gaps(logarithms(own.draws, row.long_tailed), logarithms(long.draws, row.long_tailed))
    return {
        "row": row.name, "size": size, "n": data["N"], "load": round(load, 1), "by": long.by,
        "reference": {"iterations": iterations, "ess": ess, "slowest": name, "r_hat": r_hat},
        "stansub": {"draws": draws, "ess": own.ess, "slowest": own.slowest, "r_hat": own.r_hat, "note": own.note},
        **{key: gap._asdict() | {"expected": gap.expected} for key, gap in found.items()},
    }  # fmt: skip


def logarithms(draws: Draws, names: Collection[str]) -> Draws:
    """Return draws with these parameters, or arrays of parameters, in logarithms."""
    return {name: np.log(values) if name.partition("[")[0] in names else values for name, values in draws.items()}


def line(record: Mapping[str, Any]) -> str:
    """Describe a comparison."""
    both = ((side, record[side]) for side in ("stansub", "reference"))
    sides = (f"{side}: ESS {one['ess']:.0f}, R-hat {one['r_hat']:.3f}" for side, one in both)
    z = (f"{key}s differ by {record[key]['size']:.3f} (z {record[key]['z']:.1f})" for key in ("mean", "sd"))
    return f"{record['row']} ({record['n']:,}; {record['by']}): {'; '.join([*sides, *z])}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the requested rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--size", choices=SIZES, default="reduced")
    parser.add_argument("--only", nargs="*", choices=ROWS, default=list(ROWS))
    parser.add_argument("--iterations", type=int, default=2000, help="of the reference, a chain, after half as many")
    parser.add_argument("--draws", type=int, default=1000, help="of stansub, a chain")
    parser.add_argument("--seed", type=int, default=2, help="of the reference")
    parser.add_argument("--json", type=Path, help="file to update: new rows are added, old ones replaced")
    options = parser.parse_args(arguments)
    records = known(options.json)
    for name in options.only:
        found = measure(ROWS[name], options.size, iterations=options.iterations, draws=options.draws, seed=options.seed)
        print(line(found), flush=True)
        records[name, options.size] = found
        save(options.json, records)
    return 0


if __name__ == "__main__":
    sys.exit(main())
