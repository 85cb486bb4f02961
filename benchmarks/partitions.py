"""Sample a logistic regression whose rows are made by seed inside the workers of a dask cluster on this machine.

python benchmarks/partitions.py --rows 1e7 --partitions 20 --workers 2 --json partitions.json

No process holds all rows: every worker makes, proves and expands its partitions, and answers requests of the process
that samples. Prints seconds of set-up and of sampling, bytes over the network interface `lo`, memory, R-hat and ESS.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

import stansub
from stansub import clock
from stansub.output import inference_data
from stansub.output.summary import summarise
from stansub.run.executors import dask_client

PROGRAM = Path(__file__).parents[1] / "stan_models" / "logistic.stan"
COEFFICIENTS = np.array([0.5, -0.5, 0.3, -0.3, 0.2, -0.2, 0.1, -0.1, 0.05, 0.0])
NAMES = [f"x{k}" for k in range(1, len(COEFFICIENTS) + 1)]


@dataclass(frozen=True)
class Made:
    """Rows of one partition, the same whenever they are made."""

    seed: int
    number: int
    n: int

    def __call__(self) -> pa.Table:
        """Return the table."""
        rng = np.random.default_rng((self.seed, self.number))
        x = rng.standard_normal((len(NAMES), self.n))
        y = (rng.random(self.n) < 1 / (1 + np.exp(1.0 - COEFFICIENTS @ x))).astype(np.int32)
        return pa.table({"y": y, **dict(zip(NAMES, x, strict=True))})


def traffic() -> int:
    """Return the bytes that have gone over `lo`."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.split()[0] == "lo:"), 0)


def main() -> None:
    """Run the demonstration."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=1e7)
    parser.add_argument("--partitions", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--draws", type=int, default=5000)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    n = int(asked.rows) // asked.partitions
    parts = stansub.DataPartitions([Made(1, number, n) for number in range(asked.partitions)])
    sources = stansub.DataSources([parts], {"x": NAMES})
    with dask_client("", asked.workers) as client:
        before, began, sent = client.run(_cpu), clock.now(), traffic()
        idata = stansub.sample(
            PROGRAM,
            sources,
            executor=f"dask:{client.scheduler.address}",
            chains=2,
            iter_sampling=asked.draws,
            seed=1,
        )
        seconds, sent = clock.now() - began, traffic() - sent
        cpu = sum(client.run(_cpu).values()) - sum(before.values())
        memory = client.run(_memory)
    summary = summarise(idata)
    facts = inference_data.attrs(idata)
    found = {
        "rows": facts["n_observations"],
        "guarantee": facts["guarantee"],
        "wall_seconds": round(seconds, 1),
        "cpu_seconds_of_workers": round(cpu, 1),
        "cpu_seconds_of_sampler": round(time.process_time(), 1),
        "megabytes_over_lo": round(sent / 1e6, 2),
        "peak_megabytes_of_workers": [round(one / 1e3) for one in memory.values()],
        "peak_megabytes_of_sampler": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3),
        "r_hat": round(float(summary.statistics["r_hat"].max()), 4),
        "ess": round(float(summary.statistics["ess_bulk"].min())),
    }
    print(json.dumps(found, indent=2))
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=2) + "\n")


def _cpu() -> float:
    return time.process_time()


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
