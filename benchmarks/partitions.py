"""Sample a logistic regression whose rows are made by seed where they are held, by threads or by dask workers.

python benchmarks/partitions.py --rows 1e7 --partitions 20 --workers 2 --json partitions.json

No process holds all rows: every worker makes, proves and expands its partitions, and answers requests of the process
that samples. Without workers, threads of the one process do. Prints processor seconds, those of the workers by request,
bytes over the network interface `lo`, memory, R-hat and ESS.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

import stansub
from stansub import clock, memory
from stansub.output import inference_data
from stansub.output.summary import summarise
from stansub.run.executors import dask_client
from stansub.run.partitions import DaskPartitions
from stansub.stan.data.data import load
from stansub.stan.partition_requests import LogDensities, SingleSums
from stansub.stan.proved import Proved
from stansub.target.blocks import VARIATES_BLOCK_SIZE, coarse_size
from stansub.target.partitioned import Derivatives
from stansub.target.predictor_derivatives import LogLikelihood
from stansub.target.remainders import LinearPredictors
from stansub.target.requests import Request
from stansub.target.sites import Candidates, Expand, Site, Survey

T = TypeVar("T")

PROGRAM = Path(__file__).parents[1] / "stan_models" / "logistic.stan"
COEFFICIENTS = np.array([0.5, -0.5, 0.3, -0.3, 0.2, -0.2, 0.1, -0.1, 0.05, 0.0])
NAMES = [f"x{k}" for k in range(1, len(COEFFICIENTS) + 1)]


@dataclass(frozen=True)
class Made:
    """Rows of one partition, the same whenever they are made; covariates of mean 0 and variance 1."""

    seed: int
    number: int
    n: int

    def __call__(self) -> pa.Table:
        """Return the table."""
        rng = np.random.default_rng((self.seed, self.number))
        x = np.float32(np.sqrt(12)) * (rng.random((len(NAMES), self.n), np.float32) - np.float32(0.5))
        y = (rng.random(self.n, np.float32) < 1 / (1 + np.exp(1 - np.float32(COEFFICIENTS) @ x))).astype(np.int8)
        return pa.table({"y": y, **dict(zip(NAMES, x, strict=True))})


def traffic() -> int:
    """Return the bytes that have gone over `lo`."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.split()[0] == "lo:"), 0)


@dataclass(frozen=True)
class Timed:
    """A request, whose answer comes with the processor seconds that it took in a worker of one thread."""

    request: Any

    def answer(self, holder: Any, *, threads: int = 1) -> tuple[Any, float]:
        """Return answer and seconds."""
        began = time.process_time()
        return self.request.answer(holder, threads=threads), time.process_time() - began


def measure_requests() -> dict[str, list[float]]:
    """Return the processor seconds of each answer to come, by kind of request."""
    own, spent = DaskPartitions.answers, dict[str, list[float]]()

    def answers(self: DaskPartitions, requests: Mapping[int, Any]) -> list[Any]:
        found: list[Any] = own(self, {number: Timed(one) for number, one in requests.items()})
        for one, (_, seconds) in zip(requests.values(), found, strict=True):
            spent.setdefault(type(getattr(one, "request", one)).__name__, []).append(seconds)
        return [answer for answer, _ in found]

    DaskPartitions.answers = answers  # type: ignore[assignment,method-assign]
    return spent


def passes(n: int) -> dict[str, float]:
    """Return nanoseconds of processor time a row that opening a partition of n rows and each request take."""
    compiled, rng = stansub.compile_model(PROGRAM), np.random.default_rng(1)
    theta = np.array([-1.0, *COEFFICIENTS]) + 0.001 * rng.standard_normal(1 + len(NAMES))
    made: dict[str, float] = {}

    def measure(name: str, work: Callable[[], T]) -> T:
        began = time.process_time()
        found = work()
        made[name] = round((time.process_time() - began) / n * 1e9)
        return found

    memory.keep_freed()  # as workers do
    load(stansub.DataSources([stansub.DataPartitions([Made(1, 0, n)])], {"x": NAMES})).checked(
        compiled.program.data.declarations
    )  # imports libraries, and gets memory
    measure("making the rows", Made(1, 0, n))
    raw = load(stansub.DataSources([stansub.DataPartitions([Made(1, 0, n)])], {"x": NAMES}))
    values = measure("checking the values", lambda: raw.checked(compiled.program.data.declarations))
    size = coarse_size(VARIATES_BLOCK_SIZE, n)
    opened = measure("proof", lambda: compiled.with_data(values, block_size=size))
    predictors = measure("predictors", partial(opened.predictors, computed=True))
    known = Proved.of(opened)
    assert isinstance(predictors, LinearPredictors)
    assert known is not None
    measure("digest", lambda: known.check(values, "the partition"))
    measure("opening again, after the digest", lambda: compiled.with_proof(values, known))
    cholesky = np.linalg.cholesky(np.linalg.inv(-predictors.hessian_at(0.9 * theta)))
    site = Site(theta, cholesky)
    for request in (LogDensities((theta,)), SingleSums(theta)):
        measure(type(request).__name__, partial(request.answer, opened))
    ours: list[Request[LinearPredictors, Any]] = [LogLikelihood(theta), Derivatives(theta)]
    for one in (*ours, Survey(site, (2, 3)), Expand(site, 2), Expand(Site(1.01 * theta, cholesky), 3)):
        measure(f"{type(one).__name__}{getattr(one, 'order', '')}", partial(one.answer, predictors))
    expand = Expand(Site(1.01 * theta, cholesky), 3)  # the latest, which is kept
    began = time.process_time()
    Candidates(expand, rng.integers(0, n, 4096)).answer(predictors)
    made["microseconds a candidate"] = round((time.process_time() - began) / 4096 * 1e6, 2)
    return made


def main() -> None:
    """Run the demonstration."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=1e7)
    parser.add_argument("--partitions", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2, help="0 for threads of one process")
    parser.add_argument("--draws", type=int, default=5000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--passes", action="store_true", help="measure each pass over the rows of one partition")
    asked = parser.parse_args()
    if asked.passes:
        print(json.dumps(passes(int(asked.rows)), indent=2))
        return
    n = int(asked.rows) // asked.partitions
    parts = stansub.DataPartitions([Made(1, number, n) for number in range(asked.partitions)])
    sources = stansub.DataSources([parts], {"x": NAMES})
    spent = measure_requests()
    with dask_client("", asked.workers) if asked.workers else nullcontext() as client:
        before = client.run(time.process_time) if client else {}
        began, sent, own = clock.now(), traffic(), time.process_time()
        executor = f"dask:{client.scheduler.address}" if client else "threads"
        idata = stansub.sample(PROGRAM, sources, executor=executor, chains=2, iter_sampling=asked.draws, seed=1)
        seconds, sent, own = clock.now() - began, traffic() - sent, time.process_time() - own
        cpu = sum((client.run(time.process_time) if client else {}).values()) - sum(before.values())
        memory = client.run(_memory) if client else {}
    summary = summarise(idata)
    drawn = inference_data.group(idata, "posterior")
    draws = np.concatenate([drawn["alpha"].values[..., np.newaxis], drawn["beta"].values], axis=2).reshape(-1, 11)
    facts = inference_data.attrs(idata)
    found = {
        "rows": facts["n_observations"],
        "partitions": asked.partitions,
        "guarantee": facts["guarantee"],
        "load": os.getloadavg()[0],
        "wall_seconds": round(seconds, 1),
        "cpu_seconds_of_workers": round(cpu, 1),
        "cpu_seconds_of_sampler": round(own, 1),
        "cpu_seconds_by_request": {
            kind: {"passes": len(each) / asked.partitions, "seconds": round(sum(each), 2)}
            for kind, each in spent.items()
        },
        "setup_seconds": {name: round(one, 1) for name, one in facts["setup_times"].items()},
        "waits": sum(facts["n_waits"]) + sum(facts["warmup_n_waits"]),
        "wait_seconds": round(sum(facts["wait_time"]) + sum(facts["warmup_wait_time"]), 2),
        "megabytes_over_lo": round(sent / 1e6, 2),
        "peak_megabytes_of_workers": [round(one / 1e3) for one in memory.values()],
        "peak_megabytes_of_sampler": round(_memory() / 1e3),
        # A posterior mean differs from the coefficient that made the rows by about one posterior sd.
        "sds_from_truth": np.round((draws.mean(0) - np.array([-1.0, *COEFFICIENTS])) / draws.std(0), 2).tolist(),
        "r_hat": round(float(summary.statistics["r_hat"].max()), 4),
        "ess": round(float(summary.statistics["ess_bulk"].min())),
    }
    print(json.dumps(found, indent=2))
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=2) + "\n")


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
