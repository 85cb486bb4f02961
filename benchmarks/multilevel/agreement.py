"""Draws of the multilevel programs, with no option given, beside long runs of exact samplers.

python benchmarks/multilevel/agreement.py --only poisson cumulative --size full --iterations 3000 --json agreement.json

`references.py` has the samplers. For every parameter (scales, correlations and cutpoints included), means and sds are
compared in units of sd and in units of Monte Carlo standard error. Rows are added to those in the file.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import arviz
import numpy as np
import orjson
from scipy.stats import norm

HERE = Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent))

from references import reference  # noqa: E402
from rows import ROWS, SIZES, Row  # noqa: E402
from run import ours  # noqa: E402
from suite.figures import Draws, slowest  # noqa: E402
from suite.machine import facts as machine  # noqa: E402

import stansub.stan.source  # noqa: E402


class Gap(NamedTuple):
    """Differences of all parameters in one statistic.

    Attributes
    ----------
    size : float
        The largest: of means in sds, of sds as the logarithm of their ratio.
    z : float
        The largest in standard errors.
    rms : float
        The root mean square in standard errors: 1 if both samplers draw from one distribution.
    n : int
        How many there are.
    """

    size: float
    z: float
    rms: float
    n: int

    @property
    def expected(self) -> float:
        """Return the z that the largest of as many independent normal values exceeds with probability 0.01."""
        return float(norm.isf(0.005 / self.n))


def gaps(one: Draws, other: Draws) -> dict[str, Gap]:
    """Compare means and sds of the parameters that both have."""
    both = [(one[name], other[name]) for name in one if name in other]
    mean = [
        (abs(a.mean() - b.mean()) / b.std(), np.hypot(_error(a, "mean"), _error(b, "mean")) / b.std()) for a, b in both
    ]
    sd = [
        (abs(np.log(a.std() / b.std())), np.hypot(_error(a, "sd") / a.std(), _error(b, "sd") / b.std()))
        for a, b in both
    ]
    return {"mean": _gap(mean), "sd": _gap(sd)}


def _error(draws: Any, statistic: str) -> float:
    return float(arviz.mcse(draws, method=statistic))


def _gap(found: Sequence[tuple[float, float]]) -> Gap:
    sizes, errors = np.array(found).T
    z = sizes / errors
    return Gap(float(sizes.max()), float(z.max()), float(np.sqrt(np.mean(z**2))), len(z))


def measure(row: Row, size: str, *, iterations: int, draws: int, seed: int) -> dict[str, Any]:
    """Draw both ways and compare."""
    load, data = os.getloadavg()[0], row.data(size)
    names = [one.name for one in stansub.stan.source.read(row.program).program.parameters.declarations]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{row.name}.json"
        file.write_bytes(orjson.dumps(data, default=np.ndarray.tolist, option=orjson.OPT_SERIALIZE_NUMPY))
        own = ours(row, file, names, 3600.0, iter_sampling=draws)
    long = reference(row, data, names, iterations=iterations, seed=seed)
    ess, name, r_hat = slowest(long.draws)
    found = gaps(own.draws, long.draws)
    return {
        "row": row.name, "size": size, "n": data["N"], "load": round(load, 1), "by": long.by,
        "reference": {"iterations": iterations, "ess": ess, "slowest": name, "r_hat": r_hat},
        "stansub": {"draws": draws, "ess": own.ess, "slowest": own.slowest, "r_hat": own.r_hat, "note": own.note},
        **{key: gap._asdict() | {"expected": gap.expected} for key, gap in found.items()},
    }  # fmt: skip


def line(record: Mapping[str, Any]) -> str:
    """Describe a comparison."""
    sides = (f"{side}: ESS {record[side]['ess']:.0f}, R-hat {record[side]['r_hat']:.3f}" for side in SIDES)
    z = (f"{key}s differ by {record[key]['size']:.3f} (z {record[key]['z']:.1f})" for key in ("mean", "sd"))
    return f"{record['row']} ({record['n']:,}; {record['by']}): {'; '.join([*sides, *z])}"


SIDES = ("stansub", "reference")


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the rows that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--size", choices=SIZES, default="reduced")
    parser.add_argument("--only", nargs="*", choices=ROWS, default=list(ROWS))
    parser.add_argument("--iterations", type=int, default=2000, help="of the reference, a chain, after half as many")
    parser.add_argument("--draws", type=int, default=1000, help="of stansub, a chain")
    parser.add_argument("--seed", type=int, default=2, help="of the reference")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    kept = json.loads(options.json.read_text())["records"] if options.json and options.json.exists() else []
    for name in options.only:
        found = measure(ROWS[name], options.size, iterations=options.iterations, draws=options.draws, seed=options.seed)
        print(line(found), flush=True)
        kept = [one for one in kept if (one["row"], one["size"]) != (name, options.size)] + [found]
        if options.json:
            options.json.write_text(json.dumps({"machine": machine(), "records": kept}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
