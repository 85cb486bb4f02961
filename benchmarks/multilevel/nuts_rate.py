"""The rate of NUTS on the horseshoe, whose warmup on all the data takes too long, from sufficient statistics.

python benchmarks/multilevel/nuts_rate.py --size full --seconds 1200 --json nuts_rate.json

The likelihood is normal, so the posterior of all the data equals that of a program with K + 1 rows in place of N
(programs/horseshoe_reduced.stan), which is tested: same geometry, hence the same leapfrog steps and effective draws.
nutpie runs on that program, 1,000 draws a chain after 400. The core-seconds of a gradient are measured with the program
and data of the row. ESS a core-second is ESS over all leapfrog steps, those of warmup included, times these
core-seconds. stansub runs on all the data beside it, and draws are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson

HERE = Path(__file__).resolve().parent
sys.path.insert(1, str(HERE.parent))

from references import statistics  # noqa: E402
from rows import PROGRAMS, ROWS, SIZES, Row  # noqa: E402
from run import Side, differences, machine, ours, summarised  # noqa: E402
from suite.base import Task  # noqa: E402
from suite.figures import parameters  # noqa: E402
from suite.nuts import nutpie  # noqa: E402
from suite.workloads import Workload  # noqa: E402

import stansub  # noqa: E402

NAMES = ("alpha", "z", "lambda", "tau", "sigma")
# Gradients that are timed, and points at which both programs are compared.
GRADIENTS, POINTS = 30, 3


def reduced(data: dict[str, Any]) -> dict[str, Any]:
    """Sufficient statistics of the data."""
    return {"N": data["N"], "K": data["K"], **statistics(np.column_stack([np.ones(data["N"]), data["x"]]), data["y"])}


def gradient_cost(row: Row, data: dict[str, Any], small: dict[str, Any]) -> float:
    """Core-seconds of a gradient of all the data, where both programs have the same log density up to a constant."""
    whole, other = (
        compiled.read_data(values).model(compiled.original)
        for compiled, values in (
            (stansub.compile_model(row.program), data),
            (stansub.compile_model(PROGRAMS / "horseshoe_reduced.stan"), small),
        )
    )
    rng = np.random.default_rng(1)
    points = [rng.normal(0, 0.1, whole.dim) for _ in range(POINTS)]
    gaps = [whole.log_density(theta) - other.log_density(theta) for theta in points]
    assert np.ptp(gaps) < 1e-9 * abs(whole.log_density(points[0])), "the posteriors differ"
    began = time.process_time()
    for k in range(GRADIENTS):
        whole.log_density_gradient(points[k % POINTS])
    return (time.process_time() - began) / GRADIENTS


def nuts(small: dict[str, Any], gradient: float, folder: Path, seconds: float) -> Side:
    """NUTS on the statistics, with the time that it would take on all the data."""
    file = folder / "horseshoe_reduced.json"
    file.write_bytes(orjson.dumps(small, default=np.ndarray.tolist))
    workload = Workload("horseshoe_reduced", small["N"], PROGRAMS / "horseshoe_reduced.stan", lambda path: None)
    run = nutpie(Task(workload, file, seed=1, chains=4, seconds=seconds, cache=folder))
    steps = run.warmup_passes + run.sampling_passes
    note = f"{steps:,.0f} gradients of {gradient:.3f} core-s; {', '.join(run.notes)}"
    cores = steps * gradient
    return summarised(parameters(run.draws, NAMES), seconds=cores, set_up=0.0, cores=cores, note=note)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure both sides."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--size", choices=SIZES, default="reduced")
    parser.add_argument("--seconds", type=float, default=600.0, help="limit of either side")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    row, load = ROWS["horseshoe"], os.getloadavg()[0]
    data = row.data(options.size)
    small = reduced(data)
    gradient = gradient_cost(row, data, small)
    with tempfile.TemporaryDirectory() as folder:
        theirs = nuts(small, gradient, Path(folder), options.seconds)
        print(f"NUTS: ESS {theirs.ess:.0f} ({theirs.slowest}), R-hat {theirs.r_hat:.3f}, {theirs.note}", flush=True)
        file = row.stored(data, folder)
        del data
        own = ours(row, file, NAMES, options.seconds)
    gaps = differences(own, theirs)
    ratio = own.per_core / theirs.per_core
    print(f"stansub: ESS {own.ess:.0f} ({own.slowest}), R-hat {own.r_hat:.3f}, {own.cores:.0f} core-s, {own.note}")
    print(f"effective draws a core-second: {own.per_core:.3g}, NUTS {theirs.per_core:.3g}: {ratio:.3g} times")
    print(f"means differ by {gaps['mean']:.2f} sd (z {gaps['mean_z']:.1f})")
    print(f"log sds differ by {gaps['sd']:.3f} (z {gaps['sd_z']:.1f})")
    print(f"load {load:.1f}")
    if options.json:
        record = {
            "size": options.size,
            "gradient": gradient,
            "load": load,
            "stansub": own.record(),
            "nuts": theirs.record(),
        }
        options.json.write_text(json.dumps({"machine": machine(), **record, "differences": gaps}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
